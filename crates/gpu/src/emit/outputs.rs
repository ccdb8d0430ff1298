//! What becomes of the rows that pass: they are written, or accumulated.

use std::fmt::Write as _;

use super::expressions::native_names;
use super::generator::Generator;
use super::value::Value;
use crate::kernel::{Fold, Outcome, RowLoop, Task, Total};
use crate::plan::Type;

impl<'a> Generator<'a> {
    pub fn rows(
        &mut self,
        columns: usize,
        copied: &[(usize, usize)],
        loops: &'a [(RowLoop, Vec<usize>)],
    ) {
        self.layout.outputs = vec![(Type::Bool, false); columns];
        for (place, column) in copied.iter().copied() {
            if let Some(of) = self.plan.columns[column].of {
                self.layout.outputs[place].0 = of;
            }
            self.prepare(column);
            let out = self.output(self.types(column).0, 2 * place);
            let tile = self.tile(column);
            self.line(
                2,
                format!("copy_values<C{column}>(c{column}, m, {tile}, {out} + first);"),
            );
        }
        for (rows, places) in loops {
            self.write_rows(rows, places);
        }
    }

    /// A loop that writes values of some expressions, the outputs at these places.
    fn write_rows(&mut self, rows: &'a RowLoop, places: &[usize]) {
        let all = self.plan.task == Task::AllValues;
        self.by_row(rows, |this, values| {
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
            for (place, value) in places.iter().copied().zip(values) {
                let of = match value.of {
                    Type::Bool => "u8",
                    Type::F32 => "float",
                    Type::F64 => "double",
                    Type::I128 => "i128",
                    other => native_names(other).1,
                };
                let out = this.output(of, 2 * place);
                this.line(4, format!("if (in) {out}[to] = ({of}){};", value.code));
                if let Some(valid) = &value.valid {
                    let out = this.output("u8", 2 * place + 1);
                    this.line(4, format!("if (in) {out}[to] = {valid};"));
                }
                this.layout.outputs[place] = (value.of, value.valid.is_some());
            }
        });
    }

    /// A pointer to where an output's values, or whether they are null, belong. It is loaded once for
    /// all: the compiler cannot know that storing does not change it.
    fn output(&mut self, of: &str, at: usize) -> String {
        let name = format!("o{at}");
        let address = format!("((const u64*)a.word[3])[{at}]");
        let _ = writeln!(self.start, "    {of}* const {name} = ({of}*){address};");
        name
    }

    fn accumulator(&mut self, fold: Fold, of: &str, first: &str) -> (usize, String) {
        let index = self.layout.accumulators.len();
        let name = format!("s{index}");
        let _ = writeln!(self.start, "    {of} {name} = {first};");
        self.layout.accumulators.push(fold);
        (index, name)
    }

    pub fn totals(
        &mut self,
        aggregates: usize,
        counts: &[(usize, Option<usize>)],
        loops: &'a [(RowLoop, Vec<(usize, Total)>)],
    ) {
        let rows = self.accumulator(Fold::Count, "u32", "0").1;
        self.line(2, format!("{rows} += __popc(m);"));
        for column in counts.iter().filter_map(|(_, column)| *column) {
            self.valid_rows(column);
        }
        let of_rows = Outcome {
            count: 0,
            value: None,
            key: None,
        };
        let mut results = vec![of_rows; aggregates];
        for (rows, totals) in loops {
            self.by_row(rows, |this, values| {
                for ((place, total), value) in totals.iter().zip(values) {
                    results[*place] = this.accumulate(*total, value);
                }
            });
        }
        // counts of rows, and of a column's values, need no values
        for (place, column) in counts {
            if let Some(valid) = column.and_then(|column| self.valid_rows(column)) {
                let (index, name) = self.accumulator(Fold::Count, "u32", "0");
                self.line(2, format!("{name} += __popc(m & {valid});"));
                results[*place].count = index;
            }
        }
        self.layout.results = results;
        self.store_accumulators();
        if self.plan.has_block {
            self.end_block();
        }
    }

    /// What warps leave behind, two words for each accumulator.
    fn store_accumulators(&mut self) {
        let words = 2 * self.layout.accumulators.len();
        let _ = writeln!(
            self.end,
            "    u64* const to = (u64*)a.word[3] + result * {words};"
        );
        for (index, fold) in self.layout.accumulators.iter().enumerate() {
            let (store, cast) = match fold {
                Fold::Count => ("store_sum", "(i64)"),
                Fold::SumInt | Fold::SumFloat => ("store_sum", ""),
                Fold::Min => ("store_min", ""),
                Fold::Max => ("store_max", ""),
            };
            let _ = writeln!(self.end, "    {store}(to + {}, {cast}s{index});", 2 * index);
        }
    }

    /// Code that accumulates a row, if it is selected. The first accumulator counts the rows.
    fn accumulate(&mut self, total: Total, value: &Value) -> Outcome {
        let value = self.named(value.clone());
        let taken = match &value.valid {
            Some(valid) => format!("in && {valid}"),
            None => "in".into(),
        };
        let count = match &value.valid {
            None => 0,
            Some(_) => {
                let (index, name) = self.accumulator(Fold::Count, "u32", "0");
                self.line(4, format!("{name} += {taken};"));
                index
            }
        };
        let code = &value.code;
        let mut key = None;
        let index = match total {
            Total::Count => None,
            Total::SumFloat => {
                let (index, name) = self.accumulator(Fold::SumFloat, "double", "0.0");
                self.line(4, format!("if ({taken}) {name} += {code};"));
                Some(index)
            }
            Total::Sum { wide, by_eight } => {
                let (of, cast) = match wide {
                    true => ("u128", "(u128)(i128)"),
                    false => ("i64", "(i64)"),
                };
                let (index, name) = self.accumulator(Fold::SumInt, of, "0");
                if by_eight {
                    let partial = format!("p{index}");
                    self.line(4, format!("if ({taken}) {partial} += (i32){code};"));
                    self.partials.push((partial, name));
                } else {
                    self.line(4, format!("if ({taken}) {name} += {cast}{code};"));
                }
                Some(index)
            }
            Total::Min | Total::Max => {
                let (fold, symbol, first) = match total {
                    Total::Min => (Fold::Min, "<", "greatest"),
                    _ => (Fold::Max, ">", "least"),
                };
                let (of, code) = match value.of {
                    Type::F32 | Type::F64 => ("i64", format!("(i64)key_of({code})")),
                    _ => (value.name(), format!("({}){code}", value.name())),
                };
                key = value.of.is_float().then_some(value.of);
                let (index, name) = self.accumulator(fold, of, &format!("{first}<{of}>()"));
                self.line(
                    4,
                    format!("if ({taken} && {code} {symbol} {name}) {name} = {code};"),
                );
                Some(index)
            }
        };
        Outcome {
            count,
            value: index,
            key,
        }
    }
}
