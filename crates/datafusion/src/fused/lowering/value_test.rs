//! Predicates over one text column as functions of its values.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use vectile_pipeline::ValueTest;

use crate::stack;

/// Turns `expr`, a predicate over the one column `of`, into a test of that column's values.
pub(super) fn value_test(expr: &Arc<dyn PhysicalExpr>, of: &Field) -> Result<ValueTest> {
    let (expr, schema) = alone(expr, of)?;
    let test = move |values: &ArrayRef| -> Result<BooleanArray> {
        let values = cast(values, schema.field(0).data_type())?;
        let rows = values.len();
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![values])?;
        let passed = stack::evaluated(&expr, &batch)?.into_array(rows)?;
        let passed = passed.as_boolean_opt();
        let passed =
            passed.ok_or_else(|| internal_datafusion_err!("a predicate that is not boolean"))?;
        Ok(passed.clone())
    };
    Ok(ValueTest::new(Arc::new(move |values| {
        test(values).map_err(|error| ArrowError::ExternalError(Box::new(error)).into())
    })))
}

/// `expr` over the one column `of` alone, and the schema with that column.
pub(super) fn alone(
    expr: &Arc<dyn PhysicalExpr>,
    of: &Field,
) -> Result<(Arc<dyn PhysicalExpr>, SchemaRef)> {
    let field = Field::new(of.name(), of.data_type().clone(), true);
    let schema = Arc::new(Schema::new(vec![field]));
    let alone = Arc::clone(expr).transform(|part| {
        Ok(match part.downcast_ref::<Column>() {
            Some(column) => {
                let column = Column::new(column.name(), 0);
                Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>)
            }
            None => Transformed::no(part),
        })
    });
    Ok((alone.data()?, schema))
}
