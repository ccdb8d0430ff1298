//! Expressions that are evaluated on decoded values.

#[cfg(feature = "gpu")]
use std::any::Any;
use std::sync::Arc;

use arrow::array::{Array, AsArray, BooleanArray, RecordBatch};
use arrow::datatypes::{DataType, Schema};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, exec_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use vectile_encodings::Automaton;
use vectile_scan::{Error, RowTest, Test};

use crate::stack;
use crate::text;

/// A boolean expression as a scan evaluates it.
struct Expression {
    /// The original expression, over the file's schema.
    expr: Arc<dyn PhysicalExpr>,
    /// The expression over only the columns that it needs.
    renumbered: Arc<dyn PhysicalExpr>,
    levels: usize,
}

/// Creates a test from `expr`, whose columns are those of `schema`.
pub(crate) fn test(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Test> {
    let mut columns: Vec<usize> = collect_columns(expr).iter().map(Column::index).collect();
    columns.sort_unstable();
    columns.dedup();
    let rows = Expression {
        expr: Arc::clone(expr),
        renumbered: renumber(expr, &columns)?,
        levels: stack::levels([expr]),
    };
    Ok(Test::new(columns, schema, Arc::new(rows)))
}

/// The expression of a test that was created here.
#[cfg(feature = "gpu")]
pub(crate) fn expression_of(test: &Test) -> Result<&Arc<dyn PhysicalExpr>> {
    let rows: &dyn Any = test.rows();
    match rows.downcast_ref::<Expression>() {
        Some(expression) => Ok(&expression.expr),
        None => datafusion::common::internal_err!("a test without an expression"),
    }
}

impl Expression {
    fn evaluate(&self, rows: &RecordBatch) -> Result<BooleanArray> {
        let count = rows.num_rows();
        let passed = stack::with_room(self.levels, || self.renumbered.evaluate(rows))?;
        let passed = passed.into_array(count)?;
        match passed.as_boolean_opt() {
            Some(passed) => Ok(passed.clone()),
            None if passed.data_type() == &DataType::Null => Ok(BooleanArray::new_null(count)),
            None => exec_err!(
                "filter {} is {}, not a boolean",
                self.expr,
                passed.data_type()
            ),
        }
    }
}

impl RowTest for Expression {
    fn evaluate(&self, rows: &RecordBatch) -> vectile_scan::Result<BooleanArray> {
        self.evaluate(rows).map_err(Error::external)
    }

    fn automaton(&self, schema: &Schema) -> Option<Automaton> {
        text::automaton(&self.renumbered, schema)
    }
}

/// `expr` with each column's index replaced by its position in `columns`.
pub(crate) fn renumber(
    expr: &Arc<dyn PhysicalExpr>,
    columns: &[usize],
) -> Result<Arc<dyn PhysicalExpr>> {
    Arc::clone(expr)
        .transform_up(|expr| {
            let Some(column) = expr.downcast_ref::<Column>() else {
                return Ok(Transformed::no(expr));
            };
            match columns.binary_search(&column.index()) {
                Ok(position) if position != column.index() => {
                    let column = Column::new(column.name(), position);
                    Ok(Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>))
                }
                _ => Ok(Transformed::no(expr)),
            }
        })
        .data()
}
