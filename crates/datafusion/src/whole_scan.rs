//! Plans that read whole tables: all rows and columns of files or of a table in memory, as they are. Their row groups can
//! be copied without being decoded.

use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::projection::ProjectionExec;

use crate::source::VectileSource;

/// The scan that `plan` is, if it returns all rows and columns of a table of Vectile's.
pub(crate) fn whole_scan(
    plan: &Arc<dyn ExecutionPlan>,
) -> Option<(&FileScanConfig, &VectileSource)> {
    if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
        let exprs = projection.expr().iter().map(|projected| &projected.expr);
        let all = projection.input().schema().fields().len();
        return are_all(exprs, all).then(|| whole_scan(projection.input()))?;
    }
    let scan = plan.downcast_ref::<DataSourceExec>()?;
    let (config, source) = scan.downcast_to_file_source::<VectileSource>()?;
    let table = source.table_schema();
    let projection = source.projection()?;
    let exprs = projection.iter().map(|projected| &projected.expr);
    let all = table.table_schema().fields().len();
    let is_whole = source.filter().is_none()
        && config.limit.is_none()
        && table.table_partition_cols().is_empty()
        && config.expr_adapter_factory.is_none()
        && are_all(exprs, all);
    is_whole.then_some((config, source))
}

/// True if rows of one schema are rows of another one, whatever the names of columns.
pub(crate) fn fits(from: &Schema, to: &Schema) -> bool {
    let mut fields = from.fields().iter().zip(to.fields());
    from.fields().len() == to.fields().len()
        && fields.all(|(from, to)| {
            from.data_type() == to.data_type() && (to.is_nullable() || !from.is_nullable())
        })
}

/// True if the expressions are the first `all` columns in order.
fn are_all<'a>(exprs: impl Iterator<Item = &'a Arc<dyn PhysicalExpr>>, all: usize) -> bool {
    let mut number = 0;
    for expr in exprs {
        let column = expr.downcast_ref::<Column>();
        if column.is_none_or(|column| column.index() != number) {
            return false;
        }
        number += 1;
    }
    number == all
}
