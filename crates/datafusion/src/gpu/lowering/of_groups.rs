//! Computations over a kernel's groups: the columns of groups, and constants that are known when the query runs.

use std::sync::Arc;

use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use vectile_gpu::plan::{Expr, GroupColumn, Literal, OfGroups, Type};

use super::function::{Function, Named};
use crate::gpu::scalar::value_of;

/// The column of groups that the result of a function is, if it is one.
pub(super) fn function_column(functions: &[Named], number: usize) -> Option<GroupColumn> {
    let (function, aggregate) = functions.get(number)?;
    let before = functions.iter().take(number);
    let first = before.map(|(function, _)| function.width()).sum();
    match function {
        Function::Count => Some(GroupColumn::Count(first)),
        Function::Value => {
            let of = Type::of(aggregate.field().data_type())?;
            Some(GroupColumn::Value(first, of))
        }
        Function::Average | Function::Variance(_) | Function::Strings(_) => None,
    }
}

/// The same with the values of these parameters: of subqueries, which have run.
pub(super) fn with_parameters(
    mut of: OfGroups,
    parameters: &[Arc<dyn PhysicalExpr>],
) -> Result<OfGroups> {
    let parameters = parameters.iter().map(value_of);
    let parameters: Vec<Literal> = parameters.collect::<Result<_>>()?;
    let known = |expr: &Expr| -> Result<Expr> {
        expr.replaced(&mut |part| match part {
            Expr::Parameter(number, _) => {
                let value = parameters.get(*number).copied();
                let value = value.ok_or_else(|| internal_datafusion_err!("no such parameter"))?;
                Ok(Some(Expr::Literal(value)))
            }
            _ => Ok(None),
        })
    };
    for condition in &mut of.conditions {
        *condition = known(condition)?;
    }
    if let Some(again) = &mut of.again {
        for key in &mut again.keys {
            *key = known(key)?;
        }
        for aggregate in &mut again.aggregates {
            *aggregate = aggregate.over(&mut |value| known(value))?;
        }
    }
    Ok(of)
}
