//! Expressions over the columns of a plan, and the expressions that these are.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::{ProjectionExpr, update_expr};

use crate::gpu::reason::Reason;

/// `expr` with the expressions behind its columns in their place.
pub(crate) fn over(
    expr: &Arc<dyn PhysicalExpr>,
    columns: &[ProjectionExpr],
) -> Result<Arc<dyn PhysicalExpr>, Reason> {
    let expanded = update_expr(expr, columns, true)?;
    Ok(expanded.unwrap_or_else(|| Arc::clone(expr)))
}

/// The columns of `schema`, numbered from `first` on.
pub(crate) fn columns_from(schema: &Schema, first: usize) -> Vec<ProjectionExpr> {
    let fields = schema.fields().iter().zip(first..);
    let columns = fields.map(|(field, number)| {
        let column = Column::new(field.name(), number);
        ProjectionExpr::new(Arc::new(column), field.name().clone())
    });
    columns.collect()
}
