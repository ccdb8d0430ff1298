//! Grouped aggregates: the number of a row's group, and accumulators in a table.

use std::fmt::Write as _;

use super::generator::Generator;
use super::value::Value;
use crate::kernel::{Argument, GroupFold, GroupsPlan, KeySource, Spot};

impl<'a> Generator<'a> {
    pub fn groups(&mut self, plan: &'a GroupsPlan) {
        self.by_row(&plan.rows, |this, values| {
            let (keys, arguments) = values.split_at(plan.key_values);
            let codes = this.digits(plan, keys);
            this.number(plan, &codes);
            match &plan.threads {
                Some(threads) => this.group_in_threads(threads, arguments, &condition(plan)),
                None => this.group_in_table(plan, arguments),
            }
        });
        match plan.spot {
            Spot::Shared => self.share_table(plan),
            Spot::Threads | Spot::Numbered | Spot::Hashed => self.end_block(),
        }
    }

    /// Code for the digits of a row's group.
    fn digits(&mut self, plan: &GroupsPlan, values: &[Value]) -> Vec<String> {
        let keys = plan.keys.iter().enumerate();
        let codes = keys.map(|(index, key)| match key.source {
            KeySource::Value(value) => {
                let value = &values[value];
                let of = number_name(key.is_wide);
                let first = self.argument(Argument::KeyFirst(index));
                let code = format!("({of})((u64){} - a.word[{first}])", value.code);
                match &value.valid {
                    None => code,
                    Some(valid) => {
                        let null = self.argument(Argument::KeyNull(index));
                        format!("({valid} ? {code} : a.word[{null}])")
                    }
                }
            }
            KeySource::Table(table) if key.nullable => {
                let null = self.argument(Argument::KeyNull(index));
                format!("(q{table} == ALL ? a.word[{null}] : q{table})")
            }
            KeySource::Table(table) => format!("q{table}"),
        });
        codes.collect()
    }

    /// Code for the number of a row's group, `g`.
    fn number(&mut self, plan: &GroupsPlan, codes: &[String]) {
        let of = number_name(plan.is_wide);
        let mut number = String::from("0");
        for (key, code) in codes.iter().enumerate() {
            let factor = self.argument(Argument::Stride(key));
            number = format!("{number} + ({of})({code}) * ({of})a.word[{factor}]");
        }
        self.line(4, format!("const {of} g = {number};"));
    }

    /// Code for a row that adds to the words of its group in a table.
    fn group_in_table(&mut self, plan: &GroupsPlan, arguments: &[Value]) {
        let condition = condition(plan);
        self.line(4, format!("if ({condition}) {{"));
        let table = self.argument(Argument::Groups);
        if plan.spot == Spot::Hashed {
            self.line(5, format!("const u64 at = entry_of((u64*)a.word[4], a.word[{table}] - 1, g, (u64*)a.word[5]);"));
            self.line(5, "if (at != ~0ull) {");
        } else {
            // a value out of its chunk's bounds: none of ours
            self.line(5, format!("const u64 at = g;\n                        if (at >= a.word[{table}]) *(volatile u64*)a.word[5] = 1;\n                        else {{"));
        }
        let (base, suffix) = match plan.spot {
            Spot::Shared => ("own_table", "_shared"),
            _ => ("((u64*)a.word[3])", ""),
        };
        let to = |word: usize| match word {
            0 => format!("{base} + at"),
            _ => format!("{base} + (at + {word} * a.word[{table}])"),
        };
        match plan.spot {
            Spot::Shared => self.line(6, format!("count_shared({});", to(0))),
            _ => self.line(6, format!("add({}, (u64)1);", to(0))),
        }
        for add in &plan.adds {
            let Value {
                code, valid, of, ..
            } = &arguments[add.argument];
            let target = to(add.word);
            let add = match plan.words[add.word] {
                GroupFold::Count => match plan.spot {
                    Spot::Shared => format!("count_shared({target});"),
                    _ => format!("add({target}, (u64)1);"),
                },
                GroupFold::Sum => format!("add{suffix}({target}, (u64)(i64){code});"),
                GroupFold::WideSum => {
                    format!("add{suffix}({target}, a.word[{table}], (u128)(i128){code});")
                }
                GroupFold::SumFloat => format!("add({target}, (double){code});"),
                GroupFold::Min | GroupFold::Max => {
                    let word = match of.is_float() {
                        true => format!("(i64)key_of({code})"),
                        false => format!("(i64){code}"),
                    };
                    let turned = if plan.words[add.word] == GroupFold::Min {
                        "~"
                    } else {
                        ""
                    };
                    format!("raise({target}, {turned}ordered({word}));")
                }
                GroupFold::High => continue,
            };
            match valid {
                Some(valid) => self.line(6, format!("if ({valid}) {add}")),
                None => self.line(6, add),
            }
        }
        self.line(5, "}");
        self.line(4, "}");
    }

    /// Tables in shared memory: cleared before, added to those in global memory afterwards.
    fn share_table(&mut self, plan: &GroupsPlan) {
        let table = self.argument(Argument::Groups);
        let (at, count) = (self.table_argument, plan.words.len());
        let _ = writeln!(
            self.block,
            "    u64* const own_table = (u64*)(shared + a.word[{at}]);\n    \
             for (u32 i = threadIdx.x; i < {count} * a.word[{table}]; i += blockDim.x) own_table[i] = 0;\n    \
             __syncthreads();"
        );
        let end = &mut self.end;
        let _ = writeln!(
            end,
            "    __syncthreads();\n    \
             for (u64 g = threadIdx.x; g < a.word[{table}]; g += blockDim.x) {{\n        \
             if (!own_table[g]) continue;\n        \
             u64* const to = (u64*)a.word[3] + g;"
        );
        for (word, fold) in plan.words.iter().enumerate() {
            let from = format!("own_table[g + {word} * a.word[{table}]]");
            let to = format!("to + {word} * a.word[{table}]");
            let add = match fold {
                GroupFold::Count | GroupFold::Sum => format!("add({to}, {from});"),
                GroupFold::WideSum => {
                    let high = format!("own_table[g + {} * a.word[{table}]]", word + 1);
                    format!("add({to}, a.word[{table}], (u128){high} << 64 | {from});")
                }
                GroupFold::High => continue,
                GroupFold::SumFloat => format!("add({to}, __longlong_as_double((i64){from}));"),
                GroupFold::Min | GroupFold::Max => format!("raise({to}, {from});"),
            };
            let _ = writeln!(end, "        {add}");
        }
        end.push_str("    }\n");
    }
}

fn number_name(is_wide: bool) -> &'static str {
    match is_wide {
        false => "u32",
        true => "u64",
    }
}

/// Code for whether the row counts.
pub(super) fn condition(plan: &GroupsPlan) -> String {
    let mut condition = String::from("in");
    for lookup in &plan.deferred {
        let _ = write!(condition, " && q{lookup} != ALL");
    }
    condition
}
