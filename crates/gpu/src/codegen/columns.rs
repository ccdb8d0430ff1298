//! Which columns a pipeline reads, and how.

use super::Task;
use crate::ir::{Aggregate, Expr, Filter, Output, Pipeline};

fn push(column: usize, columns: &mut Vec<usize>) {
    if !columns.contains(&column) {
        columns.push(column);
    }
}

pub(super) fn columns_of_filter(filter: &Filter, columns: &mut Vec<usize>) {
    match filter {
        Filter::Constant(_) => {}
        Filter::Column(column, _) | Filter::Values(column, _) => push(*column, columns),
        Filter::And(parts) | Filter::Or(parts) => {
            parts
                .iter()
                .for_each(|part| columns_of_filter(part, columns));
        }
        Filter::Expr(expr) => columns_of_expr(expr, columns),
    }
}

pub(super) fn columns_of_expr(expr: &Expr, columns: &mut Vec<usize>) {
    match expr {
        Expr::Column(column) | Expr::Values(column, _) => push(*column, columns),
        Expr::Literal(_) => {}
        Expr::Compare(_, a, b) | Expr::Arithmetic(_, a, b) => {
            columns_of_expr(a, columns);
            columns_of_expr(b, columns);
        }
        Expr::And(parts) | Expr::Or(parts) => {
            parts.iter().for_each(|part| columns_of_expr(part, columns));
        }
        Expr::Not(part)
        | Expr::IsNull(part)
        | Expr::Negate(part)
        | Expr::Cast(part, _)
        | Expr::DatePart(_, part) => columns_of_expr(part, columns),
        Expr::Case(whens, otherwise) => {
            for (when, then) in whens {
                columns_of_expr(when, columns);
                columns_of_expr(then, columns);
            }
            if let Some(otherwise) = otherwise {
                columns_of_expr(otherwise, columns);
            }
        }
    }
}

/// The columns that are read row by row.
pub(super) fn columns_by_row(pipeline: &Pipeline, task: Task) -> Vec<usize> {
    fn of_filter(filter: &Filter, columns: &mut Vec<usize>) {
        match filter {
            Filter::Expr(expr) => columns_of_expr(expr, columns),
            Filter::And(parts) | Filter::Or(parts) => {
                parts.iter().for_each(|part| of_filter(part, columns));
            }
            _ => {}
        }
    }
    let mut columns = vec![];
    if !matches!(task, Task::Values | Task::AllValues) {
        of_filter(&pipeline.filter, &mut columns);
    }
    match (&pipeline.output, task) {
        (Output::Rows(exprs), Task::Values | Task::AllValues) => {
            exprs
                .iter()
                .for_each(|expr| columns_of_expr(expr, &mut columns));
        }
        (Output::Aggregates(aggregates), Task::Totals) => {
            for aggregate in aggregates {
                match aggregate {
                    Aggregate::CountRows => {}
                    Aggregate::Count(expr)
                    | Aggregate::Sum(expr)
                    | Aggregate::Min(expr)
                    | Aggregate::Max(expr) => columns_of_expr(expr, &mut columns),
                }
            }
        }
        _ => {}
    }
    columns
}
