//! Code for grouped aggregates: a row's group number, and accumulators in a table.

use std::fmt::Write as _;
use std::ops::Range;

use super::accumulator::Table;
use super::generator::Generator;
use super::value::Value;
use crate::kernel::{Accumulator, AccumulatorSlot, Argument, GroupsPlan, KeySource, Strategy};

/// Code for the address of the group table in global memory.
const GLOBAL_TABLE: &str = "((u64*)a.word[3])";

impl<'a> Generator<'a> {
    pub fn groups(&mut self, plan: &'a GroupsPlan) {
        self.row_loop(&[&plan.rows], |this, values| {
            let (keys, others) = values.split_at(plan.key_values);
            let (conditions, arguments) = others.split_at(plan.conditions);
            let condition = condition(plan, conditions);
            let codes = this.digits(plan, keys);
            this.number(plan, &codes);
            match &plan.threads {
                Some(threads) => {
                    let of = &plan.accumulators.all;
                    this.group_in_threads(threads, of, arguments, &condition);
                }
                None => this.group_in_table(plan, arguments, &condition),
            }
        });
        match plan.strategy {
            Strategy::Shared => self.share_table(plan),
            Strategy::Threads | Strategy::Numbered | Strategy::Hashed => self.end_block(),
        }
    }

    /// Code for the digits of a row's group number.
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

    /// Code for the group number `g` of a row, and for the parts `g0`, `g1`, .. of its key, if it has several.
    fn number(&mut self, plan: &GroupsPlan, codes: &[String]) {
        let of = number_name(plan.is_wide);
        if plan.parts.is_empty() {
            let number = self.number_of(of, 0..codes.len(), codes);
            self.line(4, format!("const {of} g = {number};"));
            return;
        }
        let mut hash = String::from("0");
        for (part, keys) in plan.parts.iter().enumerate() {
            let number = self.number_of(of, keys.clone(), codes);
            self.line(4, format!("const {of} g{part} = {number};"));
            hash = format!("hashed_with({hash}, g{part})");
        }
        self.line(4, format!("const {of} g = group_of_hash({hash});"));
    }

    /// Code for the number that the digits of `keys` make.
    fn number_of(&mut self, of: &str, keys: Range<usize>, codes: &[String]) -> String {
        keys.fold(String::from("0"), |number, key| {
            let (factor, code) = (self.argument(Argument::Stride(key)), &codes[key]);
            format!("{number} + ({of})({code}) * ({of})a.word[{factor}]")
        })
    }

    /// Code that adds a row to its group in a table.
    fn group_in_table(&mut self, plan: &GroupsPlan, arguments: &[Value], condition: &str) {
        self.line(4, format!("if ({condition}) {{"));
        let table = self.argument(Argument::Groups);
        if plan.strategy == Strategy::Hashed {
            self.line(5, format!("const u64 at = entry_of((u64*)a.word[4], a.word[{table}] - 1, g, (u64*)a.word[5]);"));
            self.line(5, "if (at != ~0ull) {");
        } else {
            // a value outside its chunk's bounds: no file of Vectile has one
            self.line(5, format!("const u64 at = g;\n                        if (at >= a.word[{table}]) *(volatile u64*)a.word[5] = 1;\n                        else {{"));
        }
        let is_shared = plan.strategy == Strategy::Shared;
        let groups = match is_shared {
            true => format!("a.word[{table}]"),
            false => self.entries(),
        };
        let table = Table {
            base: if is_shared { "own_table" } else { GLOBAL_TABLE },
            groups: &groups,
        };
        let accumulators = &plan.accumulators;
        let (mut parts, mut sets) = (0.., 0..);
        for (slot, word) in accumulators.all.iter().zip(accumulators.words().0) {
            let value = slot.argument.map(|argument| &arguments[argument]);
            let own = match (slot.accumulator, value) {
                (Accumulator::KeyPart, _) => parts.next().map(Value::of_key_part),
                (Accumulator::DistinctCount, Some(value)) => {
                    sets.next().map(|set| self.is_new_in(set, plan, value))
                }
                _ => None,
            };
            let value = own.as_ref().or(value);
            let to = table.address("at", slot.accumulator, word);
            let add = slot.accumulator.add_to(&to, is_shared, value);
            match value.and_then(|value| value.valid.as_ref()) {
                Some(valid) => self.line(6, format!("if ({valid}) {add}")),
                None => self.line(6, add),
            }
        }
        self.line(5, "}");
        self.line(4, "}");
    }

    /// Code that adds a value to a set of the group's, which is true if it is new there.
    fn is_new_in(&mut self, set: usize, plan: &GroupsPlan, value: &Value) -> Value {
        let arguments = [
            Argument::SetAt(set),
            Argument::SetEntries(set),
            Argument::SetStride(set),
            Argument::SetFirst(set),
        ];
        let [at, entries, stride, first] = arguments.map(|of| self.argument(of));
        let (count, of) = (plan.parts.len(), &value.code);
        let parts: Vec<String> = (0..count).map(|part| format!("g{part}")).collect();
        let parts = match count {
            0 => "(const u64*)0".to_owned(),
            _ => format!("Parts<{count}>{{{{{}}}}}.all", parts.join(", ")),
        };
        Value {
            code: format!(
                "add_to_set((u64*)a.word[{at}], a.word[{entries}], a.word[{stride}], (u64)g, {parts}, {count}, \
                 (u64){of} - a.word[{first}], (u64*)a.word[5], {set})"
            ),
            ..value.clone()
        }
    }

    /// Code for the number of entries of the table in global memory.
    fn entries(&mut self) -> String {
        format!("a.word[{}]", self.argument(Argument::Entries))
    }

    /// Clears tables in shared memory before the loop, and merges them into the one in global memory afterwards.
    fn share_table(&mut self, plan: &GroupsPlan) {
        let table = self.argument(Argument::Groups);
        let (words, count) = plan.accumulators.words();
        let (at, entries) = (self.table_argument, self.entries());
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
             if (!own_table[g]) continue;"
        );
        let groups = format!("a.word[{table}]");
        let tables = [("own_table", &groups), (GLOBAL_TABLE, &entries)];
        let [from, to] = tables.map(|(base, groups)| Table { base, groups });
        for (AccumulatorSlot { accumulator, .. }, word) in plan.accumulators.all.iter().zip(words) {
            let [from, to] = [from, to].map(|table| table.address("g", *accumulator, word));
            let _ = writeln!(end, "        {}", accumulator.merge_tables(&to, &from));
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

/// Code for the condition under which a row counts.
fn condition(plan: &GroupsPlan, conditions: &[Value]) -> String {
    let mut condition = String::from("in");
    for lookup in &plan.deferred {
        let _ = write!(condition, " && q{lookup} != ALL");
    }
    for value in conditions {
        let _ = write!(condition, " && {}", value.truth());
    }
    condition
}
