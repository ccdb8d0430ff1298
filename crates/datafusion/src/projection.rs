//! Builds output batches from the columns of a file.

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{Column, Literal};
use datafusion::physical_expr::projection::ProjectionExprs;
use vectile_scan::Error;

use crate::expression::renumber;
use crate::stack;

/// Expressions over the columns of one file.
pub(crate) struct Projection {
    /// Indices of the needed columns in the file's schema, ascending.
    columns: Vec<usize>,
    outputs: Vec<Output>,
    /// Schema for evaluating expressions: `columns`, in that order.
    input: SchemaRef,
    output: SchemaRef,
}

enum Output {
    /// The column at this position of [`Projection::columns`].
    Column(usize),
    /// The same value for every row: of a partition column, or null for a missing column.
    Constant(Constant),
    /// Any other expression, and its number of levels.
    Expr(Arc<dyn PhysicalExpr>, usize),
}

/// A constant, with the longest array of it so far; shorter arrays are slices of it.
struct Constant {
    value: ScalarValue,
    array: Mutex<Option<ArrayRef>>,
}

impl Constant {
    fn array(&self, rows: usize) -> Result<ArrayRef> {
        let mut cached = self.array.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(array) = cached.as_ref().filter(|array| array.len() >= rows) {
            return Ok(array.slice(0, rows));
        }
        let array = self.value.to_array_of_size(rows)?;
        *cached = Some(Arc::clone(&array));
        Ok(array)
    }
}

impl Projection {
    /// `exprs` are over `file`, the schema of the file, and return `output`.
    pub(crate) fn try_new(
        exprs: &ProjectionExprs,
        file: &Schema,
        output: SchemaRef,
    ) -> Result<Self> {
        let mut columns = exprs.column_indices();
        columns.sort_unstable();
        columns.dedup();
        let outputs = exprs
            .iter()
            .map(|projected| output_of(&projected.expr, &columns));
        let fields: Vec<Arc<Field>> = columns
            .iter()
            .filter_map(|&column| file.fields().get(column).cloned())
            .collect();
        Ok(Self {
            outputs: outputs.collect::<Result<_>>()?,
            input: Arc::new(Schema::new(fields)),
            columns,
            output,
        })
    }

    fn evaluate(&self, decoded: Vec<ArrayRef>, count: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(count));
        let input = match self
            .outputs
            .iter()
            .any(|output| matches!(output, Output::Expr(..)))
        {
            true => Some(RecordBatch::try_new_with_options(
                Arc::clone(&self.input),
                decoded.clone(),
                &options,
            )?),
            false => None,
        };
        let arrays = self.outputs.iter().map(|output| match (output, &input) {
            (Output::Column(position), _) => Ok(Arc::clone(&decoded[*position])),
            (Output::Constant(constant), _) => constant.array(count),
            (Output::Expr(expr, levels), Some(input)) => {
                stack::with_room(*levels, || expr.evaluate(input))?.into_array(count)
            }
            (Output::Expr(expr, _), None) => {
                datafusion::common::internal_err!("no input for {expr}")
            }
        });
        let arrays: Vec<ArrayRef> = arrays.collect::<Result<_>>()?;
        Ok(RecordBatch::try_new_with_options(
            Arc::clone(&self.output),
            arrays,
            &options,
        )?)
    }
}

impl vectile_scan::Projection for Projection {
    fn columns(&self) -> &[usize] {
        &self.columns
    }

    fn schema(&self) -> &SchemaRef {
        &self.output
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> vectile_scan::Result<RecordBatch> {
        self.evaluate(columns, rows).map_err(Error::external)
    }
}

fn output_of(expr: &Arc<dyn PhysicalExpr>, columns: &[usize]) -> Result<Output> {
    if let Some(literal) = expr.downcast_ref::<Literal>() {
        return Ok(Output::Constant(Constant {
            value: literal.value().clone(),
            array: Mutex::new(None),
        }));
    }
    if let Some(column) = expr.downcast_ref::<Column>()
        && let Ok(position) = columns.binary_search(&column.index())
    {
        return Ok(Output::Column(position));
    }
    let renumbered = renumber(expr, columns)?;
    let levels = stack::levels([&renumbered]);
    Ok(Output::Expr(renumbered, levels))
}
