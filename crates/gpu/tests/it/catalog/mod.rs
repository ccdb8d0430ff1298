//! A catalogue of pipelines and data that together cover every encoding, type, width, shape of nulls and ragged end,
//! every test, expression and output.
//!
//! A kernel takes seconds to compile, and constants are its arguments: a case has each query with many constants. The
//! data of a case decides which code its kernels have.

mod encodings;
mod expressions;
mod few;
mod stars;
mod text;

use std::ops::Bound;
use std::sync::{Arc, LazyLock};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray};
use arrow::compute::{concat, sort};
use arrow::datatypes::{DataType, TimeUnit};
use vectile_encodings::{Encoding, Predicate};
use vectile_pipeline::{
    Aggregate, Arithmetic, Bounds, Comparison, DatePart, Expr, Filter, GroupKey, Literal, Lookup,
    Output, Pipeline, Type, ValueTest,
};

use crate::samples::{Nulls, Random, Style, VECTOR, array_of, sample, strings, with_nulls};
use crate::support::Input;
use encodings::*;
pub use expressions::many_columns;
use expressions::*;
use few::few;
use stars::stars;
pub use text::{automaton_filter, comments};
use text::{text_functions, text_keys, texts};

/// Pipelines over the same data.
pub struct Case {
    pub name: String,
    /// The columns of each row group.
    pub groups: Vec<Vec<Input>>,
    pub lookups: Vec<Lookup>,
    pub queries: Vec<Query>,
}

/// A query of a case. Queries of the same name differ only in constants.
pub struct Query {
    pub name: &'static str,
    pub filter: Filter,
    pub output: Output,
}

impl Case {
    pub fn pipeline(&self, query: &Query) -> Arc<Pipeline> {
        let columns = self.groups[0].iter();
        Arc::new(Pipeline {
            columns: columns.map(|c| c.array.data_type().clone()).collect(),
            lookups: self.lookups.clone(),
            matches: vec![],
            filter: query.filter.clone(),
            output: query.output.clone(),
        })
    }
}

/// All cases.
pub fn catalog() -> &'static [Case] {
    static CATALOG: LazyLock<Vec<Case>> = LazyLock::new(all);
    &CATALOG
}

fn all() -> Vec<Case> {
    let mut cases: Vec<Case> = types().iter().map(mixed).collect();
    cases.extend(singles());
    cases.extend(blocks());
    cases.extend(widths());
    cases.extend(patches());
    cases.extend(evenly_spaced());
    cases.push(dictionaries());
    cases.push(lists());
    cases.push(texts());
    cases.push(text_keys());
    cases.push(text_functions());
    cases.extend(arithmetic());
    cases.push(around_64_bits());
    cases.push(floats());
    cases.push(logic());
    cases.push(casts());
    cases.push(comparisons());
    cases.push(dates());
    cases.push(times());
    cases.push(decimals());
    cases.extend(stars());
    cases.extend(few());
    cases
}

/// At least one type for each machine type.
pub fn types() -> Vec<DataType> {
    use DataType::*;
    vec![
        Boolean,
        Int8,
        Int16,
        Int32,
        Int64,
        UInt8,
        UInt16,
        UInt32,
        UInt64,
        Date32,
        Timestamp(TimeUnit::Microsecond, None),
        Decimal32(9, 2),
        Decimal64(18, 3),
        Decimal128(38, 4),
        Float32,
        Float64,
    ]
}

fn is_float(data_type: &DataType) -> bool {
    Type::of(data_type).is_some_and(Type::is_float)
}

fn column(at: usize) -> Expr {
    Expr::Column(at)
}

fn compare(comparison: Comparison, a: &Expr, b: &Expr) -> Expr {
    Expr::compare(comparison, a.clone(), b.clone())
}

fn compute(operation: Arithmetic, a: &Expr, b: &Expr) -> Expr {
    Expr::arithmetic(operation, a.clone(), b.clone())
}

fn cast(expr: &Expr, to: Type) -> Expr {
    Expr::cast(expr.clone(), to)
}

fn int(value: i128, of: Type) -> Expr {
    Expr::Literal(Literal::Int(value, of))
}

fn range(at: usize, low: &Bound<ArrayRef>, high: &Bound<ArrayRef>, negated: bool) -> Filter {
    let (low, high) = (low.clone(), high.clone());
    Filter::Column(at, Predicate::Range { low, high, negated })
}

fn all_totals(at: usize) -> Output {
    Output::Aggregates(vec![
        Aggregate::CountRows,
        Aggregate::Count(column(at)),
        Aggregate::Sum(column(at)),
        Aggregate::Min(column(at)),
        Aggregate::Max(column(at)),
    ])
}

/// Values of a column in ascending order: minimum, maximum and `count` between them.
fn constants(groups: &[Vec<Input>], at: usize, count: usize) -> Vec<ArrayRef> {
    let chunks: Vec<&dyn Array> = groups.iter().map(|g| g[at].array.as_ref()).collect();
    let all = sort(&concat(&chunks).unwrap(), None).unwrap();
    let valid = all.slice(all.null_count(), all.len() - all.null_count());
    let last = valid.len() - 1;
    (0..=count + 1)
        .map(|i| valid.slice(last * i / (count + 1), 1))
        .collect()
}

/// Ranges with bounds in, at the edge of and beyond the values; empty and full ones.
fn ranges(groups: &[Vec<Input>], at: usize) -> Vec<(Bound<ArrayRef>, Bound<ArrayRef>)> {
    use Bound::{Excluded, Included, Unbounded};
    let c = constants(groups, at, 5);
    let c = |i: usize| Arc::clone(&c[i]);
    vec![
        (Unbounded, Unbounded),
        (Included(c(0)), Included(c(0))),
        (Excluded(c(1)), Excluded(c(5))),
        (Included(c(5)), Included(c(1))),
        (Excluded(c(6)), Unbounded),
        (Unbounded, Excluded(c(0))),
        (Included(c(3)), Unbounded),
        (Unbounded, Included(c(2))),
        (Excluded(c(2)), Included(c(3))),
        (Included(c(6)), Included(c(6))),
    ]
}

/// Queries for any column: totals in a range, a tree of tests, the rows that pass it, sums.
fn questions(groups: &[Vec<Input>], at: usize) -> Vec<Query> {
    let ranges = ranges(groups, at);
    let mut queries = vec![];
    for (index, (low, high)) in ranges.iter().enumerate() {
        let tree = Filter::Or(vec![
            Filter::And(vec![
                range(at, low, high, true),
                Filter::Column(at, Predicate::IsNotNull),
            ]),
            Filter::And(vec![
                Filter::Column(at, Predicate::IsNull),
                Filter::Constant(true),
            ]),
            Filter::Constant(false),
        ]);
        queries.push(Query {
            name: "totals",
            filter: range(at, low, high, false),
            output: all_totals(at),
        });
        let output = match index % 2 {
            0 => Output::Selection,
            _ => Output::Rows(vec![column(at), Expr::is_null(column(at))]),
        };
        queries.push(Query {
            name: if index % 2 == 0 { "tree" } else { "rows" },
            filter: tree,
            output,
        });
    }
    let of_column = groups[0][at].array.data_type();
    if !is_float(of_column) && *of_column != DataType::Boolean {
        let sum = |filter| Query {
            name: "sum",
            filter,
            output: Output::Aggregates(vec![Aggregate::Sum(column(at)), Aggregate::CountRows]),
        };
        let (low, high) = &ranges[2];
        queries.push(sum(Filter::Constant(true)));
        queries.push(sum(range(at, low, high, true)));
    }
    queries
}
