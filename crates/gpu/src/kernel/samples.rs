//! Sample pipelines and columns for tests of planning.

use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::DataType;
use vectile_encodings::Predicate;

use super::{Bindings, Facts, KernelPlan, Task, plan};
use vectile_kernels::ColumnTraits;
use vectile_pipeline::{Aggregate, Expr, Filter, GroupKey, KeyTable, Lookup, Output, Pipeline};

/// A column of packed integers.
pub(crate) fn integers(width: usize, low: i128, high: i128) -> ColumnTraits {
    ColumnTraits::integers(width, low, high)
}

pub(crate) fn facts() -> Facts {
    Facts {
        rows: 1 << 20,
        table_bytes: 1 << 30,
        shared_bytes: 227 << 10,
        ..Facts::default()
    }
}

/// `SELECT sum(c1) WHERE c0 < limit`
pub(crate) fn filtered_sum(limit: i64) -> Pipeline {
    let high: ArrayRef = Arc::new(Int64Array::from(vec![limit]));
    Pipeline {
        columns: vec![DataType::Int64; 2],
        lookups: vec![],
        matches: vec![],
        filter: Filter::Column(
            0,
            Predicate::Range {
                low: Bound::Unbounded,
                high: Bound::Excluded(high),
                negated: false,
            },
        ),
        output: Output::Aggregates(vec![Aggregate::Sum(Expr::Column(1))]),
    }
}

/// `SELECT c0, count(*), sum(c1) GROUP BY c0`
pub(crate) fn grouped() -> Pipeline {
    Pipeline {
        columns: vec![DataType::Int64; 2],
        lookups: vec![],
        matches: vec![],
        filter: Filter::Constant(true),
        output: Output::Groups(
            vec![GroupKey::Value(Expr::Column(0))],
            vec![Aggregate::CountRows, Aggregate::Sum(Expr::Column(1))],
        ),
    }
}

/// A lookup of the keys 0, 1, .. `keys - 1`, with `codes` codes.
fn lookup(column: usize, keys: u32, codes: u32) -> Lookup {
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..i64::from(keys)));
    let of_keys: Vec<u32> = (0..keys).map(|key| key % codes).collect();
    Lookup {
        column,
        key_table: Arc::new(KeyTable::new(&values, &of_keys, codes).unwrap()),
    }
}

/// `SELECT year, sum(c2) JOIN dates USING (c0) JOIN parts USING (c1) GROUP BY year`; `shares` are the shares of rows
/// that have a date, and a part.
pub(crate) fn star(shares: [f64; 2]) -> (Pipeline, Facts) {
    let lookups = vec![lookup(0, 2500, 7), lookup(1, 20_000, 1)];
    let facts = Facts {
        shares: shares.to_vec(),
        bits: lookups.iter().map(|of| of.key_table.bits_bytes()).collect(),
        hashed: vec![false; 2],
        ..facts()
    };
    let pipeline = Pipeline {
        columns: vec![DataType::Int64; 3],
        lookups,
        matches: vec![],
        filter: Filter::And(vec![Filter::Matched(0), Filter::Matched(1)]),
        output: Output::Groups(
            vec![GroupKey::Code(0)],
            vec![Aggregate::Sum(Expr::Column(2))],
        ),
    };
    (pipeline, facts)
}

/// Columns for [`star`].
pub(crate) fn star_columns() -> Vec<ColumnTraits> {
    vec![
        integers(12, 0, 2499),
        integers(15, 0, 19_999),
        integers(20, 0, 999_999),
    ]
}

pub(crate) fn planned(
    pipeline: &Pipeline,
    traits: &[ColumnTraits],
    facts: &Facts,
) -> (KernelPlan, Bindings) {
    let task = match pipeline.output {
        Output::Groups(..) => Task::Groups,
        _ => Task::Totals,
    };
    plan(pipeline, traits, facts, task).unwrap()
}
