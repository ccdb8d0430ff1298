//! Filters the rows of a row group.

use std::ops::Bound;

use arrow::array::{ArrayData, ArrayRef, make_array};
use arrow::datatypes::DataType;
use vectile_encodings::{Column, Predicate, Selection};
use vectile_pipeline::{Bounds, Code, Error, Expr, Filter, Lookup, Op, Result, ValueTest};

use crate::batch::{Batch, for_each_batch};
use crate::logic::is_true;
use crate::program::Program;
use crate::reader::Reader;
use crate::row_group::RowGroup;
use crate::vector::Mask;

/// Keeps the selected rows for which `filter` is true.
///
/// # Errors
///
/// Errors of decoding; [`Error::Unsupported`] if no instruction computes an expression.
pub(crate) fn apply(
    filter: &Filter,
    row_group: RowGroup<'_>,
    selection: &mut Selection,
) -> Result<()> {
    let column_of = |column: usize| {
        let missing = || Error::Internal(format!("there is no column {column}"));
        row_group.columns.get(column).ok_or_else(missing)
    };
    match filter {
        Filter::Constant(true) => {}
        Filter::Constant(false) => *selection = Selection::none(0, selection.rows()),
        Filter::Column(column, predicate) => column_of(*column)?.filter(predicate, selection)?,
        Filter::Values(column, test) => {
            let column = column_of(*column)?;
            // a null passes no test
            column.filter(&Predicate::IsNotNull, selection)?;
            filter_values(column, test, selection)?;
        }
        Filter::And(parts) => {
            for part in parts {
                if selection.is_empty() {
                    break;
                }
                apply(part, row_group, selection)?;
            }
        }
        Filter::Or(parts) => {
            let mut some = Selection::none(0, selection.rows());
            for part in parts {
                let mut passing = selection.clone();
                // rows that pass another part need no test
                passing.and_not(&some);
                apply(part, row_group, &mut passing)?;
                some.or(&passing);
            }
            *selection = some;
        }
        Filter::Expr(expr) => apply_expr(expr, row_group, selection)?,
        Filter::Matched(lookup) if filter_by_ranges(*lookup, row_group, selection)? => {}
        Filter::Matched(lookup) | Filter::Unmatched(lookup) => {
            let is_unmatched = Expr::Unmatched(Code::Lookup(*lookup));
            let expr = match filter {
                Filter::Matched(_) => !is_unmatched,
                _ => is_unmatched,
            };
            apply_expr(&expr, row_group, selection)?;
        }
    }
    Ok(())
}

/// Keeps the selected rows, none of which is null, whose value passes `test`.
fn filter_values(column: &Column, test: &ValueTest, selection: &mut Selection) -> Result<()> {
    let automaton = || test.automaton().cloned();
    column.filter_text(&automaton, &mut |values| test.evaluate(values), selection)?;
    Ok(())
}

/// The most values that are tested one by one, in several ranges.
const MOST_VALUES: i128 = 1024;

/// Keeps the selected rows with a match by a test of the encoded values, if the keys are a few ranges of integers.
/// Returns false if they are not.
fn filter_by_ranges(
    lookup: usize,
    row_group: RowGroup<'_>,
    selection: &mut Selection,
) -> Result<bool> {
    let lookup = row_group.lookups.get(lookup);
    let Some(Lookup { column, key_table }) = lookup else {
        return Ok(false);
    };
    let (column, reader) = (
        row_group.columns.get(*column),
        row_group.readers.get(*column),
    );
    let of = reader.and_then(Reader::integer_type);
    let (Some(column), Some(of), Some(ranges)) = (column, of, key_table.ranges()) else {
        return Ok(false);
    };
    let Bounds(least, greatest) = Bounds::of(of);
    let ranges = ranges.iter().map(|(first, last)| {
        let (first, last) = (i128::from(*first), i128::from(*last));
        (first.max(least), last.min(greatest))
    });
    let ranges: Vec<(i128, i128)> = ranges.filter(|(first, last)| first <= last).collect();
    let values = |values: &[i128]| integers_of(column.data_type(), values);
    let predicate = match ranges[..] {
        [] => {
            *selection = Selection::none(0, selection.rows());
            return Ok(true);
        }
        [(first, last)] => Predicate::Range {
            low: Bound::Included(values(&[first])?),
            high: Bound::Included(values(&[last])?),
            negated: false,
        },
        _ => {
            let count = ranges.iter().map(|(first, last)| last - first + 1);
            if count.sum::<i128>() > MOST_VALUES {
                return Ok(false);
            }
            let all = ranges.iter().flat_map(|(first, last)| *first..=*last);
            Predicate::In {
                values: values(&all.collect::<Vec<_>>())?,
                negated: false,
            }
        }
    };
    column.filter(&predicate, selection)?;
    Ok(true)
}

/// An array of values of a type that is stored as integers.
fn integers_of(data_type: &DataType, values: &[i128]) -> Result<ArrayRef> {
    let unknown = || Error::Internal(format!("integers of type {data_type}"));
    let width = data_type.primitive_width().ok_or_else(unknown)?;
    let bytes = values.iter().map(|value| value.to_le_bytes());
    let bytes = bytes.flat_map(|bytes| bytes.into_iter().take(width));
    let data = ArrayData::builder(data_type.clone())
        .len(values.len())
        .add_buffer(bytes.collect())
        .align_buffers(true);
    let data = data.build().map_err(vectile_encodings::Error::from)?;
    Ok(make_array(data))
}

/// Testing so many runs takes as long as testing a row, for which all runs of its vector are decoded as well.
const RUNS_FOR_A_ROW: usize = 4;

/// Keeps the selected rows for which `expr` is true.
fn apply_expr(expr: &Expr, row_group: RowGroup<'_>, selection: &mut Selection) -> Result<()> {
    if let Some(column) = only_column(expr, row_group.lookups)
        && let Some(reader) = row_group.readers.get(column)
        && (!reader.is_nullable() || is_match(expr))
        && let Some(runs) = reader.runs()
        && let mut passing = runs.runs_of(selection)
        && passing.count() < RUNS_FOR_A_ROW * selection.count()
    {
        let of_runs = reader.of_runs(runs);
        let program = Program::new(row_group).over_runs(column, &of_runs);
        keep(expr, program, &mut passing)?;
        runs.keep_runs(&passing, selection)?;
        if let Some(column) = row_group
            .columns
            .get(column)
            .filter(|_| reader.is_nullable())
        {
            column.filter(&Predicate::IsNotNull, selection)?;
        }
        return Ok(());
    }
    keep(expr, Program::new(row_group), selection)
}

/// True if the expression is true for rows that have a match of their key, of which a null has none.
fn is_match(expr: &Expr) -> bool {
    match expr {
        Expr::Op(Op::Not, parts) => {
            matches!(&parts[..], [Expr::Unmatched(Code::Lookup(_))])
        }
        _ => false,
    }
}

/// The column that an expression reads, if that is one, and all it reads.
fn only_column(expr: &Expr, lookups: &[Lookup]) -> Option<usize> {
    let mut columns = Vec::new();
    let is_other = |part: &Expr| matches!(part, Expr::Values(..) | Expr::Exists(_));
    if expr.any(&is_other) || expr.last_match().is_some() {
        return None;
    }
    let mut codes = |code: &Code| {
        if let Code::Lookup(lookup) = code {
            columns.push(lookups.get(*lookup).map(|of| of.column));
        }
    };
    expr.visit_codes(&mut codes);
    add_columns(expr, &mut columns);
    let first = *columns.first()?;
    first.filter(|_| columns.iter().all(|column| *column == first))
}

/// Adds the columns that an expression and its parts name.
fn add_columns(expr: &Expr, columns: &mut Vec<Option<usize>>) {
    if let Expr::Column(column) = expr {
        columns.push(Some(*column));
    }
    expr.for_parts(|part| add_columns(part, columns));
}

/// Keeps the selected rows, of those that `program` computes on, for which `expr` is true.
fn keep<'a>(expr: &Expr, program: Program<'a>, selection: &mut Selection) -> Result<()> {
    let mut program = program;
    add_tests(&mut program, expr, selection)?;
    let condition = program.add(expr)?;
    let mut vectors = program.vectors();
    let mut passing = Selection::none(0, selection.rows());
    // a bit for each selected row, if batches are picked rows
    let mut kept: Vec<Mask> = Vec::new();
    for_each_batch(selection, |batch, mask| {
        program.run(batch, mask, &mut vectors)?;
        let met = is_true(&vectors[condition])?;
        let met = std::array::from_fn(|word| mask[word] & met[word]);
        match batch {
            Batch::Vector(vector) => passing.or_mask(vector, &met),
            Batch::Rows(..) => kept.push(met),
        }
        Ok(())
    })?;
    match kept.is_empty() {
        true => *selection = passing,
        // all batches but the last are full
        false => selection.keep_bits(kept.as_flattened().iter().copied()),
    }
    Ok(())
}

/// Adds the tests of values within `expr` to a program: each is evaluated for the selected rows.
pub(crate) fn add_tests(
    program: &mut Program<'_>,
    expr: &Expr,
    selection: &Selection,
) -> Result<()> {
    if let Expr::Values(column, test) = expr
        && !program.knows(expr)
    {
        let missing = || Error::Internal(format!("there is no column {column}"));
        let columns = program.row_group().columns;
        let of = columns.get(*column).ok_or_else(missing)?;
        let mut passed = selection.clone();
        of.filter(&Predicate::IsNotNull, &mut passed)?;
        filter_values(of, test, &mut passed)?;
        program.add_test(*column, test, passed);
    }
    let mut result = Ok(());
    expr.for_parts(|part| {
        if result.is_ok() {
            result = add_tests(program, part, selection);
        }
    });
    result
}
