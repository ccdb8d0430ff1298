//! Substitution of the expressions behind a plan's columns.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, update_expr};

use crate::fused::fallback_reason::FallbackReason;

/// Replaces the columns of `expr` by the expressions behind them.
pub(crate) fn substituted(
    expr: &Arc<dyn PhysicalExpr>,
    columns: &[ProjectionExpr],
) -> Result<Arc<dyn PhysicalExpr>, FallbackReason> {
    let expanded = update_expr(expr, columns, true)?;
    Ok(expanded.unwrap_or_else(|| Arc::clone(expr)))
}

/// Replaces the columns in a projection by the expressions behind them.
pub(crate) fn projected<'a>(
    projection: impl IntoIterator<Item = &'a ProjectionExpr>,
    columns: &[ProjectionExpr],
) -> Result<Vec<ProjectionExpr>, FallbackReason> {
    let projected = projection.into_iter().map(|projected| {
        let expr = substituted(&projected.expr, columns)?;
        Ok(ProjectionExpr::new(expr, projected.alias.clone()))
    });
    projected.collect()
}

/// The columns with these indices.
pub(crate) fn selected(indices: &[usize], columns: &[ProjectionExpr]) -> Vec<ProjectionExpr> {
    let some = indices.iter().filter_map(|&number| columns.get(number));
    some.cloned().collect()
}

/// The columns of `schema`, with indices from `first` on.
pub(crate) fn columns_from(schema: &Schema, first: usize) -> Vec<ProjectionExpr> {
    let fields = schema.fields().iter().zip(first..);
    let columns = fields.map(|(field, number)| {
        let column = Column::new(field.name(), number);
        ProjectionExpr::new(Arc::new(column), field.name().clone())
    });
    columns.collect()
}
