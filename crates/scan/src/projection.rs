//! Projections: how a scan forms batches from the selected rows.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::datatypes::{Schema, SchemaRef};

use crate::error::{Error, Result};

/// Forms batches from decoded columns.
pub trait Projection: Send + Sync {
    /// Indices of the input columns in the container's schema, ascending.
    fn columns(&self) -> &[usize];

    /// The schema of the batches.
    fn schema(&self) -> &SchemaRef;

    /// Forms the batch of `rows` rows from their `columns`.
    ///
    /// # Errors
    ///
    /// [`Error::External`] with the engine's error.
    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch>;
}

/// Columns without change, in any order.
pub(crate) struct Columns {
    needed: Vec<usize>,
    /// Per output column, its position in `needed`.
    positions: Vec<usize>,
    schema: SchemaRef,
}

impl Columns {
    /// All columns of `schema`.
    pub(crate) fn all(schema: &SchemaRef) -> Self {
        let needed: Vec<usize> = (0..schema.fields().len()).collect();
        Self {
            positions: needed.clone(),
            needed,
            schema: Arc::clone(schema),
        }
    }

    /// The columns of these indices.
    pub(crate) fn try_new(columns: &[usize], schema: &Schema) -> Result<Self> {
        let mut needed = columns.to_vec();
        needed.sort_unstable();
        needed.dedup();
        let schema = schema.project(columns)?;
        let position = |column| needed.binary_search(column).ok();
        let positions = columns.iter().map(position).collect::<Option<_>>();
        let lost = || Error::Internal("a column was lost".into());
        Ok(Self {
            positions: positions.ok_or_else(lost)?,
            schema: Arc::new(schema),
            needed,
        })
    }
}

impl Projection for Columns {
    fn columns(&self) -> &[usize] {
        &self.needed
    }

    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn batch(&self, columns: Vec<ArrayRef>, rows: usize) -> Result<RecordBatch> {
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        let outputs = self.positions.iter().map(|&at| Arc::clone(&columns[at]));
        let schema = Arc::clone(&self.schema);
        let batch = RecordBatch::try_new_with_options(schema, outputs.collect(), &options);
        Ok(batch?)
    }
}
