//! What becomes of the rows that pass: they are written, or accumulated.

use std::fmt::Write as _;

use super::expressions::native_names;
use super::generator::{Generator, Walk};
use super::value::Value;
use crate::error::{Error, Result};
use crate::kernel::{Fold, Outcome, is_float, loops};
use crate::plan::{Aggregate, Expr, Type};

impl Generator<'_> {
    pub fn rows(&mut self, exprs: &[Expr], all: bool) -> Result<()> {
        // columns without nulls of which every row is wanted need no loop
        let copied = |this: &Self, expr: &Expr| match expr {
            Expr::Column(column) if all && !this.shapes[*column].nullable() => Some(*column),
            _ => None,
        };
        let (mut computed, mut places) = (vec![], vec![]);
        for (place, expr) in exprs.iter().enumerate() {
            let Some(column) = copied(self, expr) else {
                computed.push(expr.clone());
                places.push(place);
                self.outputs.push((Type::Bool, false));
                continue;
            };
            let data_type = &self.pipeline.columns[column];
            let of = Type::of(data_type)
                .ok_or_else(|| Error::Unsupported(format!("values of type {data_type}")))?;
            self.outputs.push((of, false));
            self.prepare(column);
            let out = self.output(self.types(column).0, 2 * place);
            let tile = self.tile(column);
            self.line(
                2,
                format!("copy_values<C{column}>(c{column}, m, {tile}, {out} + first);"),
            );
        }
        for exprs in loops(&computed) {
            let places = exprs.iter().map(|expr| places[*expr]).collect();
            let exprs: Vec<Expr> = exprs.iter().map(|expr| computed[*expr].clone()).collect();
            self.write_rows(&exprs, places, all)?;
        }
        Ok(())
    }

    /// A loop that writes values of some expressions, the outputs at these places.
    fn write_rows(&mut self, exprs: &[Expr], places: Vec<usize>, all: bool) -> Result<()> {
        self.by_row(exprs, &[], Walk::Together, |this, values| {
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
            for (place, value) in places.into_iter().zip(values) {
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
                this.outputs[place] = (value.of, value.valid.is_some());
            }
            Ok(())
        })
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
        let index = self.accumulators.len();
        let name = format!("s{index}");
        let _ = writeln!(self.start, "    {of} {name} = {first};");
        self.accumulators.push(fold);
        (index, name)
    }

    pub fn aggregates(&mut self, aggregates: &[Aggregate]) -> Result<()> {
        let rows = self.accumulator(Fold::Count, "u32", "0").1;
        self.line(2, format!("{rows} += __popc(m);"));
        let (mut exprs, mut places) = (vec![], vec![]);
        for (place, aggregate) in aggregates.iter().enumerate() {
            match aggregate {
                Aggregate::CountRows => {}
                Aggregate::Count(Expr::Column(column)) => drop(self.valid_rows(*column)),
                Aggregate::Count(expr)
                | Aggregate::Sum(expr)
                | Aggregate::Min(expr)
                | Aggregate::Max(expr) => {
                    exprs.push(expr.clone());
                    places.push(place);
                }
            }
        }
        let mut results: Vec<Option<Outcome>> = vec![None; aggregates.len()];
        for together in loops(&exprs) {
            let values: Vec<Expr> = together.iter().map(|expr| exprs[*expr].clone()).collect();
            let sums = together.iter().map(|expr| &aggregates[places[*expr]]);
            let walk = self.walk_of(sums);
            self.by_row(&values, &[], walk, |this, values| {
                for (expr, value) in together.iter().zip(values) {
                    let place = places[*expr];
                    results[place] = Some(this.accumulate(&aggregates[place], value));
                }
                Ok(())
            })?;
        }
        for (result, aggregate) in results.iter_mut().zip(aggregates) {
            if result.is_none() {
                *result = self.count_only(aggregate);
            }
        }
        self.results = results.into_iter().flatten().collect();
        self.store_accumulators();
        if self.has_block() {
            self.end_block();
        }
        Ok(())
    }

    /// What warps leave behind, two words for each accumulator.
    fn store_accumulators(&mut self) {
        let accumulators = self.accumulators.clone();
        let words = 2 * accumulators.len();
        let _ = writeln!(
            self.end,
            "    u64* const to = (u64*)a.word[3] + result * {words};"
        );
        for (index, fold) in accumulators.iter().enumerate() {
            let combine = match fold {
                Fold::Count => "store_sum(to + {}, (i64)s{});",
                Fold::SumInt | Fold::SumFloat => "store_sum(to + {}, s{});",
                Fold::Min => "store_min(to + {}, s{});",
                Fold::Max => "store_max(to + {}, s{});",
            };
            let code = combine
                .replacen("{}", &(2 * index).to_string(), 1)
                .replacen("{}", &index.to_string(), 1);
            let _ = writeln!(self.end, "    {code}");
        }
    }

    /// How rows are accumulated: of sums of floats the order matters.
    pub fn walk_of<'b>(&self, mut aggregates: impl Iterator<Item = &'b Aggregate>) -> Walk {
        let is_ordered = |aggregate: &Aggregate| match aggregate {
            Aggregate::Sum(expr) => is_float(expr, &self.pipeline.columns),
            _ => false,
        };
        match aggregates.any(is_ordered) {
            true => Walk::Each,
            false => Walk::Any,
        }
    }

    /// Counts of rows, and of a column's values, need no values.
    fn count_only(&mut self, aggregate: &Aggregate) -> Option<Outcome> {
        let count = match aggregate {
            Aggregate::CountRows => 0,
            Aggregate::Count(Expr::Column(column)) => match self.valid_rows(*column) {
                None => 0,
                Some(valid) => {
                    let (index, name) = self.accumulator(Fold::Count, "u32", "0");
                    self.line(2, format!("{name} += __popc(m & {valid});"));
                    index
                }
            },
            _ => return None,
        };
        Some(Outcome {
            count,
            value: None,
            key: None,
        })
    }

    /// Code that accumulates a row, if it is selected. The first accumulator counts the rows.
    fn accumulate(&mut self, aggregate: &Aggregate, value: &Value) -> Outcome {
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
        let index = match aggregate {
            Aggregate::Sum(_) if value.of.is_float() => {
                let (index, name) = self.accumulator(Fold::SumFloat, "double", "0.0");
                self.line(4, format!("if ({taken}) {name} += {code};"));
                index
            }
            Aggregate::Sum(_) => {
                // a thread sees at most 2^20 rows of a launch
                let of = if value.bounds.bits() + 20 <= 63 {
                    "i64"
                } else {
                    "u128"
                };
                let (index, name) = self.accumulator(Fold::SumInt, of, "0");
                if value.bounds.bits() + 3 <= 31 {
                    // eight of them fit 32 bits
                    let partial = format!("p{index}");
                    self.line(4, format!("if ({taken}) {partial} += (i32){code};"));
                    self.partials.push((partial, name));
                    return Outcome {
                        count,
                        value: Some(index),
                        key,
                    };
                }
                let wide = if of == "u128" {
                    "(u128)(i128)"
                } else {
                    "(i64)"
                };
                self.line(4, format!("if ({taken}) {name} += {wide}{code};"));
                index
            }
            Aggregate::Min(_) | Aggregate::Max(_) => {
                let is_min = matches!(aggregate, Aggregate::Min(_));
                let (fold, symbol) = match is_min {
                    true => (Fold::Min, "<"),
                    false => (Fold::Max, ">"),
                };
                let (of, code) = match value.of {
                    Type::F32 | Type::F64 => ("i64", format!("(i64)key_of({code})")),
                    _ => (value.name(), format!("({}){code}", value.name())),
                };
                key = value.of.is_float().then_some(value.of);
                let first = if is_min { "greatest" } else { "least" };
                let (index, name) = self.accumulator(fold, of, &format!("{first}<{of}>()"));
                self.line(
                    4,
                    format!("if ({taken} && {code} {symbol} {name}) {name} = {code};"),
                );
                index
            }
            _ => {
                return Outcome {
                    count,
                    value: None,
                    key: None,
                };
            }
        };
        Outcome {
            count,
            value: Some(index),
            key,
        }
    }
}
