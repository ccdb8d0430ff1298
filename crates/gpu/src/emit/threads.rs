//! Code for few groups: each thread has accumulators of every group, in shared memory.

use std::fmt::Write as _;

use super::generator::Generator;
use super::value::Value;
use crate::kernel::{
    AccumulationScope, Accumulator, AccumulatorLocation, AccumulatorSlot, Field, ThreadsPlan,
};

/// Maximum bits of a field whose sum over all threads of a block, at most 2^8, fits 64 bits with a sign.
const SHORT_BITS: u32 = 54;
/// Precedes loops that run once per block: unrolled, they would only take longer to compile.
const ROLLED: &str = "#pragma unroll 1\n";

/// Code for an integer of 64 bits.
fn widened(value: &Value) -> String {
    match (value.name(), value.bounds.0) {
        // not negative: no sign extension
        ("i32", 0..) => format!("(u64)(u32){}", value.code),
        _ => format!("(u64)(i64){}", value.code),
    }
}

impl Generator<'_> {
    /// Code that adds a row to its group.
    pub fn group_in_threads(
        &mut self,
        plan: &ThreadsPlan,
        all: &[AccumulatorSlot],
        arguments: &[Value],
        condition: &str,
    ) {
        let (groups, offset) = (plan.groups, plan.offset);
        // `g` may exceed the last group if a value is outside its chunk's bounds
        self.line(
            4,
            format!("const u32 to = min({condition} ? g : ALL, {groups}u);"),
        );
        let each = 32 * plan.words;
        let own = format!("(u64*)(own + {offset}) + lane_id()");
        self.line(4, format!("u64* const kept = {own} + to * {each};"));
        self.accumulate_row(plan, all, arguments);
        self.begin_threads(plan, all, &own);
        self.end_threads(plan, all, self.plan.per == AccumulationScope::Slot);
    }

    /// Code that adds a row, word by word.
    fn accumulate_row(&mut self, plan: &ThreadsPlan, all: &[AccumulatorSlot], arguments: &[Value]) {
        for word in plan.own_words..plan.words {
            self.line(4, format!("u64 sum{word} = kept[{}];", 32 * word));
        }
        for (slot, location) in all.iter().zip(&plan.locations) {
            let accumulator = slot.accumulator;
            let value = slot.argument.map(|argument| &arguments[argument]);
            let valid = value.and_then(|value| value.valid.as_ref());
            match *location {
                AccumulatorLocation::Field(field) => {
                    let Field { word, first, .. } = plan.fields[field];
                    let code =
                        match value.filter(|_| !matches!(accumulator, Accumulator::Count { .. })) {
                            Some(value) => widened(value),
                            None => "1".into(),
                        };
                    let code = match valid {
                        Some(valid) => format!("({valid} ? {code} : 0ull)"),
                        None => code,
                    };
                    let add = match first {
                        ..32 => format!("sum{word} += (u64){code} << {first};"),
                        _ => format!("add_high(sum{word}, (u32){code} << {});", first - 32),
                    };
                    self.line(4, add);
                }
                AccumulatorLocation::Own(word) => {
                    let (name, code) = (accumulator.name(), accumulator.row_value(value));
                    let this = self.temporary();
                    self.line(4, format!("{name} {this} = {};", accumulator.load(word)));
                    let other = self.temporary();
                    self.line(4, format!("const {name} {other} = {code};"));
                    let merge = accumulator.merge(&this, &other);
                    self.line(
                        4,
                        match valid {
                            Some(valid) => format!("if ({valid}) {merge}"),
                            None => merge,
                        },
                    );
                    self.line(4, accumulator.save(word, &this));
                }
            }
        }
        for word in plan.own_words..plan.words {
            self.line(4, format!("kept[{}] = sum{word};", 32 * word));
        }
    }

    /// Code that initializes a thread's accumulators; per slot, if there are any.
    fn begin_threads(&mut self, plan: &ThreadsPlan, all: &[AccumulatorSlot], own: &str) {
        let (groups, each) = (plan.groups, 32 * plan.words);
        let start = &mut self.start;
        let _ = writeln!(start, "{ROLLED}    for (u32 g = 0; g <= {groups}; g++) {{");
        let _ = writeln!(start, "        u64* const kept = {own} + g * {each};");
        for (slot, location) in all.iter().zip(&plan.locations) {
            if let AccumulatorLocation::Own(word) = *location {
                let first = slot.accumulator.first();
                let _ = writeln!(start, "        {}", slot.accumulator.save(word, &first));
            }
        }
        for word in plan.own_words..plan.words {
            let _ = writeln!(start, "        kept[{}] = 0;", 32 * word);
        }
        start.push_str("    }\n");
    }

    /// Code that merges the accumulators of a block's threads, or of a warp's for slots. A warp takes a group at a
    /// time.
    fn end_threads(&mut self, plan: &ThreadsPlan, all: &[AccumulatorSlot], by_slot: bool) {
        let ThreadsPlan { groups, offset, .. } = *plan;
        let each = 32 * plan.words;
        // the accumulators are the last part of a warp's memory
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
        for (index, (slot, location)) in all.iter().zip(&plan.locations).enumerate() {
            let first = slot.accumulator.first();
            let (name, first) = match location {
                AccumulatorLocation::Own(_) => (slot.accumulator.name(), first),
                // summed over the warps of a block
                AccumulatorLocation::Field(field) if plan.fields[*field].bits <= 58 => {
                    ("i64", "(i64)0".into())
                }
                AccumulatorLocation::Field(_) => ("u128", "(u128)0".into()),
            };
            let _ = writeln!(end, "        {name} s{index} = {first};");
        }
        let _ = match by_slot {
            true => writeln!(end, "        {{\n            const u8* const from = own;"),
            false => writeln!(
                end,
                "{ROLLED}        for (u32 w = 0; w < blockDim.x / 32; w++) {{\n            \
                 const u8* const from = own + (i32)(w - threadIdx.x / 32) * {bytes};"
            ),
        };
        let _ = writeln!(
            end,
            "            const u64* const kept = (const u64*)(from + {offset}) + lane_id() + g * {each};"
        );
        for word in plan.own_words..plan.words {
            let _ = writeln!(end, "            u64 sum{word} = kept[{}];", 32 * word);
        }
        // fields are extracted from a word in order, the lowest first
        let mut fields: Vec<(Field, usize)> = plan.fields.iter().copied().zip(0..).collect();
        fields.sort_by_key(|(field, _)| (field.word, field.first));
        let of = |field: usize| {
            plan.locations
                .iter()
                .position(|location| *location == AccumulatorLocation::Field(field))
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
        for (index, (slot, location)) in all.iter().zip(&plan.locations).enumerate() {
            if let AccumulatorLocation::Own(word) = *location {
                let accumulator = slot.accumulator;
                let (this, other) = (format!("s{index}"), format!("x{index}"));
                let _ = writeln!(
                    end,
                    "            const {} {other} = {};",
                    accumulator.name(),
                    accumulator.load(word)
                );
                let _ = writeln!(end, "            {}", accumulator.merge(&this, &other));
            }
        }
        let _ = writeln!(
            end,
            "        }}\n        \
             u64* const to = (u64*)a.word[3] + (result * {groups} + g) * {};",
            2 * all.len()
        );
        for (index, (slot, location)) in all.iter().zip(&plan.locations).enumerate() {
            let store = match location {
                AccumulatorLocation::Field(field) if plan.fields[*field].bits <= SHORT_BITS => {
                    "store_short_sum"
                }
                _ => slot.accumulator.store(),
            };
            let _ = writeln!(end, "        {store}(to + {}, s{index});", 2 * index);
        }
        end.push_str("    }\n");
    }
}
