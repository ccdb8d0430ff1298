//! Few groups: each thread has accumulators of every group, in shared memory.

use std::fmt::Write as _;

use super::generator::Generator;
use super::value::Value;
use crate::kernel::{Accumulator, Field, Fold, Kept, Outcome, Per, ThreadsPlan};

/// Bits of a field up to which the sum over all threads of a block, 2^8 at most, fits 64 bits with a sign.
const SHORT_BITS: u32 = 54;

/// Code for what it starts with.
fn first(of: Fold, name: &str) -> String {
    match of {
        Fold::Min => format!("greatest<{name}>()"),
        Fold::Max => format!("least<{name}>()"),
        Fold::Count | Fold::SumInt | Fold::SumFloat => format!("({name})0"),
    }
}

/// Code that adds one of the same type to what `name` is.
fn fold(of: Fold, name: &str, other: &str) -> String {
    match of {
        Fold::Min => format!("{name} = {other} < {name} ? {other} : {name};"),
        Fold::Max => format!("{name} = {other} > {name} ? {other} : {name};"),
        Fold::Count | Fold::SumInt | Fold::SumFloat => format!("{name} += {other};"),
    }
}

/// Code for an integer of 64 bits.
fn widened(value: &Value) -> String {
    match (value.name(), value.bounds.0) {
        // without bits of a sign
        ("i32", 0..) => format!("(u64)(u32){}", value.code),
        _ => format!("(u64)(i64){}", value.code),
    }
}

/// Code for what a row adds to an accumulator, and for whether it does.
fn added(accumulator: &Accumulator, arguments: &[Value]) -> (String, Option<String>) {
    let Some(value) = accumulator.argument.map(|argument| &arguments[argument]) else {
        return ("1".into(), None);
    };
    let code = &value.code;
    let code = match accumulator.kept {
        _ if accumulator.counts => "1".into(),
        Kept::Field(_) => widened(value),
        Kept::Own(_, "double") => format!("(double){code}"),
        Kept::Own(_, "u128") => format!("(u128)(i128){code}"),
        Kept::Own(_, "i128") => code.clone(),
        Kept::Own(..) if value.of.is_float() => format!("(i64)key_of({code})"),
        Kept::Own(..) => format!("(i64){code}"),
    };
    (code, value.valid.clone())
}

/// Code for the accumulator in a word, and the next, of a thread.
fn load(name: &str, word: usize) -> String {
    let low = format!("kept[{}]", 32 * word);
    match name {
        "double" => format!("__longlong_as_double((i64){low})"),
        "i128" | "u128" => {
            let high = 32 * (word + 1);
            format!("({name})((u128)kept[{high}] << 64 | {low})")
        }
        _ => format!("({name}){low}"),
    }
}

/// The same for storing.
fn store(name: &str, word: usize, value: &str) -> String {
    let low = 32 * word;
    match name {
        "double" => format!("kept[{low}] = (u64)__double_as_longlong({value});"),
        "i128" | "u128" => {
            let high = 32 * (word + 1);
            format!("kept[{low}] = (u64){value}; kept[{high}] = (u64)((u128){value} >> 64);")
        }
        _ => format!("kept[{low}] = (u64){value};"),
    }
}

impl Generator<'_> {
    /// Code for a row where there are few groups.
    pub fn group_in_threads(&mut self, plan: &ThreadsPlan, arguments: &[Value], condition: &str) {
        let (groups, at) = (plan.groups, plan.at);
        // beyond the last group, too, if a value is out of its chunk's bounds
        self.line(
            4,
            format!("const u32 to = min({condition} ? g : ALL, {groups}u);"),
        );
        let each = 32 * plan.words;
        let own = format!("(u64*)(own + {at}) + lane_id()");
        self.line(4, format!("u64* const kept = {own} + to * {each};"));
        self.accumulate_row(plan, arguments);
        self.begin_threads(plan, groups, &own);
        self.end_threads(plan, groups, at, self.plan.per == Per::Slot);
        for group in 0..groups as usize {
            let first = group * plan.accumulators.len();
            let folds = plan.accumulators.iter().map(|one| one.fold);
            self.layout.accumulators.extend(folds);
            let outcomes = plan.results.iter().map(|outcome| Outcome {
                count: first + outcome.count,
                value: outcome.value.map(|value| first + value),
                key: outcome.key,
            });
            self.layout.results.extend(outcomes);
        }
    }

    /// What a row adds, word by word.
    fn accumulate_row(&mut self, plan: &ThreadsPlan, arguments: &[Value]) {
        for word in plan.own_words..plan.words {
            self.line(4, format!("u64 sum{word} = kept[{}];", 32 * word));
        }
        for accumulator in &plan.accumulators {
            let (value, valid) = added(accumulator, arguments);
            match accumulator.kept {
                Kept::Field(field) => {
                    let Field { word, first, .. } = plan.fields[field];
                    let value = match valid {
                        Some(valid) => format!("({valid} ? {value} : 0ull)"),
                        None => value,
                    };
                    let add = match first {
                        ..32 => format!("sum{word} += (u64){value} << {first};"),
                        _ => format!("add_high(sum{word}, (u32){value} << {});", first - 32),
                    };
                    self.line(4, add);
                }
                Kept::Own(word, name) => {
                    let this = self.temporary();
                    self.line(4, format!("{name} {this} = {};", load(name, word)));
                    let other = self.temporary();
                    self.line(4, format!("const {name} {other} = {value};"));
                    let fold = fold(accumulator.fold, &this, &other);
                    self.line(
                        4,
                        match valid {
                            Some(valid) => format!("if ({valid}) {fold}"),
                            None => fold,
                        },
                    );
                    self.line(4, store(name, word, &this));
                }
            }
        }
        for word in plan.own_words..plan.words {
            self.line(4, format!("kept[{}] = sum{word};", 32 * word));
        }
    }

    /// Has a thread's accumulators start: of each slot, where there are any.
    fn begin_threads(&mut self, plan: &ThreadsPlan, groups: u32, own: &str) {
        let each = 32 * plan.words;
        let start = &mut self.start;
        let _ = writeln!(start, "    for (u32 g = 0; g <= {groups}; g++) {{");
        let _ = writeln!(start, "        u64* const kept = {own} + g * {each};");
        for accumulator in &plan.accumulators {
            if let Kept::Own(word, name) = accumulator.kept {
                let _ = writeln!(
                    start,
                    "        {}",
                    store(name, word, &first(accumulator.fold, name))
                );
            }
        }
        for word in plan.own_words..plan.words {
            let _ = writeln!(start, "        kept[{}] = 0;", 32 * word);
        }
        start.push_str("    }\n");
    }

    /// Has a block, or of slots a warp, put together what its threads have. A warp takes a group at a time.
    fn end_threads(&mut self, plan: &ThreadsPlan, groups: u32, at: u32, by_slot: bool) {
        let each = 32 * plan.words;
        let all = plan.accumulators.len();
        // nothing is added to a warp's memory behind the accumulators
        let bytes = self.plan.warp_bytes;
        let end = &mut self.end;
        let _ = match by_slot {
            true => writeln!(end, "    for (u32 g = 0; g < {groups}; g++) {{"),
            false => writeln!(
                end,
                "    __syncthreads();\n    \
                 for (u32 g = threadIdx.x / 32; g < {groups}; g += blockDim.x / 32) {{"
            ),
        };
        for (index, accumulator) in plan.accumulators.iter().enumerate() {
            let name = match accumulator.kept {
                Kept::Own(_, name) => name,
                // over the warps of a block
                Kept::Field(field) => match plan.fields[field].bits {
                    ..=58 => "i64",
                    _ => "u128",
                },
            };
            let first = first(accumulator.fold, name);
            let _ = writeln!(end, "        {name} s{index} = {first};");
        }
        let _ = match by_slot {
            true => writeln!(end, "        {{\n            const u8* const from = own;"),
            false => writeln!(
                end,
                "        for (u32 w = 0; w < blockDim.x / 32; w++) {{\n            \
                 const u8* const from = own + (i32)(w - threadIdx.x / 32) * {bytes};"
            ),
        };
        let _ = writeln!(
            end,
            "            const u64* const kept = (const u64*)(from + {at}) + lane_id() + g * {each};"
        );
        for word in plan.own_words..plan.words {
            let _ = writeln!(end, "            u64 sum{word} = kept[{}];", 32 * word);
        }
        // the fields of a word from the lowest on, as they are taken out
        let mut fields: Vec<(Field, usize)> = plan.fields.iter().copied().zip(0..).collect();
        fields.sort_by_key(|(field, _)| (field.word, field.first));
        let of = |field: usize| {
            let mut all = plan.accumulators.iter();
            all.position(|one| matches!(one.kept, Kept::Field(other) if other == field))
        };
        for (of_word, field) in fields {
            let Field { word, bits, .. } = of_word;
            let take = match of_word.signed {
                true => "take_signed",
                false => "take_unsigned",
            };
            if let Some(index) = of(field) {
                let _ = writeln!(end, "            s{index} += {take}<{bits}>(sum{word});");
            }
        }
        for (index, accumulator) in plan.accumulators.iter().enumerate() {
            if let Kept::Own(word, name) = accumulator.kept {
                let (this, other) = (format!("s{index}"), format!("x{index}"));
                let _ = writeln!(
                    end,
                    "            const {name} {other} = {};",
                    load(name, word)
                );
                let _ = writeln!(end, "            {}", fold(accumulator.fold, &this, &other));
            }
        }
        let _ = writeln!(
            end,
            "        }}\n        \
             u64* const to = (u64*)a.word[3] + (result * {groups} + g) * {};",
            2 * all
        );
        for (index, accumulator) in plan.accumulators.iter().enumerate() {
            let is_short = match accumulator.kept {
                Kept::Field(field) => plan.fields[field].bits <= SHORT_BITS,
                Kept::Own(..) => false,
            };
            let store = match accumulator.fold {
                Fold::Min => "store_min",
                Fold::Max => "store_max",
                Fold::Count | Fold::SumInt if is_short => "store_short_sum",
                Fold::Count | Fold::SumInt | Fold::SumFloat => "store_sum",
            };
            let _ = writeln!(end, "        {store}(to + {}, s{index});", 2 * index);
        }
        end.push_str("    }\n");
    }
}
