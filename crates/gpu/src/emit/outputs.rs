//! Code for outputs without groups: rows that are written, and totals.

use std::fmt::Write as _;
use std::ops::Range;

use super::expressions::native_names;
use super::generator::Generator;
use super::value::Value;
use crate::kernel::{Accumulator, AccumulatorSlot, Accumulators, RowLoop, Task};
use vectile_pipeline::Type;

impl<'a> Generator<'a> {
    pub fn rows(
        &mut self,
        columns: usize,
        copied: &[(usize, usize)],
        loops: &'a [(RowLoop, Vec<usize>)],
    ) {
        self.layout.outputs = vec![(Type::Bool, false); columns];
        for (index, column) in copied.iter().copied() {
            if let Some(of) = self.plan.columns[column].of {
                self.layout.outputs[index].0 = of;
            }
            self.prepare(column);
            let out = self.output(self.types(column).0, 2 * index);
            let tile = self.tile(column);
            self.line(
                2,
                format!("copy_values<C{column}>(c{column}, m, {tile}, {out} + first);"),
            );
        }
        for (rows, indices) in loops {
            self.write_rows(rows, indices);
        }
    }

    /// Writes a loop that stores values of expressions in the outputs with these indices.
    fn write_rows(&mut self, rows: &'a RowLoop, indices: &[usize]) {
        let all = self.plan.task == Task::AllValues;
        self.row_loop(&[rows], |this, values| {
            if all {
                this.line(4, "const u64 to = first + r * 32;");
            } else {
                this.line(4, "const u32 word = __shfl_sync(ALL, selected, r);");
                this.line(4, "const u64 first = __shfl_sync(ALL, place, r);");
                this.line(
                    4,
                    "const u64 to = first + __popc(word & ((1u << lane_id()) - 1));",
                );
            }
            for (index, value) in indices.iter().copied().zip(values) {
                let of = match value.of {
                    Type::Bool => "u8",
                    Type::F32 => "float",
                    Type::F64 => "double",
                    Type::I128 => "i128",
                    other => native_names(other).1,
                };
                let out = this.output(of, 2 * index);
                this.line(4, format!("if (in) {out}[to] = ({of}){};", value.code));
                if let Some(valid) = &value.valid {
                    let out = this.output("u8", 2 * index + 1);
                    this.line(4, format!("if (in) {out}[to] = {valid};"));
                }
                this.layout.outputs[index] = (value.of, value.valid.is_some());
            }
        });
    }

    /// Code for the lengths of strings of the only column.
    pub fn lengths(&mut self) {
        self.open(0, 2);
        let [lengths, valid, sums] = [("u32", 0), ("u8", 1), ("u64", 2)];
        let [lengths, valid, sums] = [lengths, valid, sums].map(|(of, at)| self.output(of, at));
        let tile = self.tile(0);
        let to = format!("{lengths}, {valid}, {sums} + at");
        self.line(
            2,
            format!("write_lengths<C0>(c0, selected, place, {tile}, {to});"),
        );
    }

    /// The name of a pointer to an output's values, or to their validity. It is loaded once: the compiler cannot know
    /// that stores do not change it.
    fn output(&mut self, of: &str, at: usize) -> String {
        let name = format!("o{at}");
        let address = format!("((const u64*)a.word[3])[{at}]");
        let _ = writeln!(self.start, "    {of}* const {name} = ({of}*){address};");
        name
    }

    pub fn totals(
        &mut self,
        accumulators: &Accumulators,
        loops: &'a [(RowLoop, Range<usize>)],
        counts: &[(usize, usize)],
    ) {
        for (index, slot) in accumulators.all.iter().enumerate() {
            let (of, first) = (slot.accumulator.name(), slot.accumulator.first());
            let _ = writeln!(self.start, "    {of} s{index} = {first};");
        }
        let is_combined = loops.iter().any(|(rows, _)| rows.combined.is_some());
        if !is_combined {
            self.line(2, "s0 += __popc(m);");
        }
        for (_, column) in counts {
            self.valid_rows(*column);
        }
        for (rows, of_loop) in loops {
            self.row_loop(&[rows], |this, values| {
                if is_combined {
                    this.line(4, "s0++;");
                }
                let mut named: Option<(usize, Value)> = None;
                for index in of_loop.clone() {
                    let AccumulatorSlot {
                        accumulator,
                        argument: Some(argument),
                    } = accumulators.all[index]
                    else {
                        continue;
                    };
                    let value = match named.take() {
                        Some((known, value)) if known == argument => value,
                        _ => this.named(values[argument].clone()),
                    };
                    this.accumulate(index, accumulator, &value, is_combined);
                    named = Some((argument, value));
                }
            });
            if let Some(column) = rows.summed {
                self.sum(column, accumulators, of_loop.clone());
            }
        }
        for (index, column) in counts {
            if let Some(valid) = self.valid_rows(*column) {
                self.line(2, format!("s{index} += __popc(m & {valid});"));
            }
        }
        // the results of warps, two words per accumulator
        let words = 2 * accumulators.all.len();
        let _ = writeln!(
            self.end,
            "    u64* const to = (u64*)a.word[3] + result * {words};"
        );
        for (index, slot) in accumulators.all.iter().enumerate() {
            let store = slot.accumulator.store();
            let cast = match slot.accumulator {
                Accumulator::Count { .. } => "(i64)",
                _ => "",
            };
            let _ = writeln!(self.end, "    {store}(to + {}, {cast}s{index});", 2 * index);
        }
        if self.plan.has_block {
            self.end_block();
        }
    }

    /// Code that sums a column's values in the selected rows, and counts them if the column may have nulls.
    fn sum(&mut self, column: usize, accumulators: &Accumulators, of_loop: Range<usize>) {
        let rows = match self.valid_rows(column) {
            Some(valid) => format!("(m & {valid})"),
            None => "m".into(),
        };
        let tile = self.tile(column);
        self.is_overwritten(column);
        self.line(2, "{");
        for index in of_loop {
            let sum = match accumulators.all[index].accumulator {
                Accumulator::Count { .. } => format!("(u32)__popc({rows})"),
                _ => format!("sum_of_values<C{column}>(c{column}, {rows}, {tile})"),
            };
            self.line(3, format!("s{index} += {sum};"));
        }
        self.line(2, "}");
    }

    /// Code that accumulates a row if it is selected.
    fn accumulate(
        &mut self,
        index: usize,
        accumulator: Accumulator,
        value: &Value,
        is_combined: bool,
    ) {
        let name = format!("s{index}");
        let condition = match &value.valid {
            Some(valid) => format!("in && {valid}"),
            None => "in".into(),
        };
        let line = if matches!(accumulator, Accumulator::Count { .. }) {
            format!("{name} += {condition};")
        } else if accumulator.adds_by_eight(value.bounds) && !is_combined {
            let partial = format!("p{index}");
            let line = format!("if ({condition}) {partial} += (i32){};", value.code);
            self.partials.push((partial, name));
            line
        } else {
            let other = accumulator.row_value(Some(value));
            accumulator.merge_if(&condition, &name, &other)
        };
        self.line(4, line);
    }
}
