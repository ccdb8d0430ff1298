//! Expressions that are evaluated on decoded values.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, exec_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;

/// An expression to evaluate on decoded values of `columns`.
pub(crate) struct Test {
    /// Indices of the columns in the file's schema, ascending.
    pub(crate) columns: Vec<usize>,
    /// What `expr` is evaluated against: `columns`, in that order.
    schema: SchemaRef,
    /// As it was, over the file's schema.
    pub(crate) expr: Arc<dyn PhysicalExpr>,
    /// The same over `schema`.
    renumbered: Arc<dyn PhysicalExpr>,
    /// The values last asked about, and the answer.
    last: Mutex<Option<(Weak<dyn Array>, BooleanArray)>>,
}

/// Fewer values are not worth remembering.
const REMEMBERED_VALUES: usize = 16;

impl Test {
    /// A test whose columns are those of `schema`.
    pub(crate) fn try_new(expr: &Arc<dyn PhysicalExpr>, schema: &Schema) -> Result<Self> {
        let mut columns: Vec<usize> = collect_columns(expr).iter().map(Column::index).collect();
        columns.sort_unstable();
        columns.dedup();
        let fields: Vec<Field> = columns
            .iter()
            .filter_map(|&column| schema.fields().get(column))
            .map(|field| field.as_ref().clone().with_nullable(true))
            .collect();
        Ok(Self {
            expr: Arc::clone(expr),
            renumbered: renumber(expr, &columns)?,
            schema: Arc::new(Schema::new(fields)),
            columns,
            last: Mutex::new(None),
        })
    }

    /// Whether a column is of floating point.
    pub(crate) fn has_floats(&self) -> bool {
        self.schema
            .fields()
            .iter()
            .any(|field| field.data_type().is_floating())
    }

    /// Whether each of the distinct values of the one column passes. A column hands out the same
    /// array of them for every window of a row group, so the last answer is remembered.
    pub(crate) fn evaluate_values(&self, values: &ArrayRef) -> Result<BooleanArray> {
        if values.len() < REMEMBERED_VALUES {
            return self.evaluate(vec![Arc::clone(values)], values.len());
        }
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((asked, passed)) = last.as_ref()
            && asked
                .upgrade()
                .is_some_and(|asked| Arc::ptr_eq(&asked, values))
        {
            return Ok(passed.clone());
        }
        let passed = self.evaluate(vec![Arc::clone(values)], values.len())?;
        *last = Some((Arc::downgrade(values), passed.clone()));
        Ok(passed)
    }

    /// Whether each of `rows` rows passes; null or false: no. `values` are those of `columns`.
    pub(crate) fn evaluate(&self, values: Vec<ArrayRef>, rows: usize) -> Result<BooleanArray> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), values, &options)?;
        let passed = self.renumbered.evaluate(&batch)?.into_array(rows)?;
        match passed.as_boolean_opt() {
            Some(passed) => Ok(passed.clone()),
            None if passed.data_type() == &DataType::Null => Ok(BooleanArray::new_null(rows)),
            None => exec_err!(
                "filter {} is {}, not a boolean",
                self.expr,
                passed.data_type()
            ),
        }
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
