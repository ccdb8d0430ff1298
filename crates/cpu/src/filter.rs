//! Filters the rows of a row group.

use vectile_encodings::{Predicate, Selection};
use vectile_pipeline::{Code, Error, Expr, Filter, Result};

use crate::batch::for_each_batch;
use crate::logic::is_true;
use crate::program::Program;
use crate::row_group::RowGroup;

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
            column.filter_with(&mut |values| test.evaluate(values), selection)?;
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

/// Keeps the selected rows for which `expr` is true.
fn apply_expr(expr: &Expr, row_group: RowGroup<'_>, selection: &mut Selection) -> Result<()> {
    let mut program = Program::new(row_group);
    add_tests(&mut program, expr, selection)?;
    let condition = program.add(expr)?;
    let mut vectors = program.vectors();
    let mut passing = Selection::none(0, selection.rows());
    for_each_batch(selection, |batch, mask| {
        program.run(batch, mask, &mut vectors)?;
        let met = is_true(&vectors[condition])?;
        let met = std::array::from_fn(|word| mask[word] & met[word]);
        batch.for_each_mask(&met, |vector, mask| passing.or_mask(vector, mask));
        Ok(())
    })?;
    *selection = passing;
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
        of.filter_with(&mut |values| test.evaluate(values), &mut passed)?;
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
