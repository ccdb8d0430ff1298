//! Selectors, which find the rows of a scan instead of its filters: a device.

use std::any::Any;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use vectile_encodings::Selection;

use crate::error::Result;

/// Selects rows of one container.
#[async_trait]
pub trait Selector: Send + Sync {
    /// Returns true if the scan must call it even when no filter is left to evaluate: it returns the scan's batches and
    /// not only its rows, or filters by more than the scan's filters do.
    fn is_always_asked(&self) -> bool;

    /// The number of row groups to request together, this one included.
    fn window(&self, row_group: usize) -> usize;

    /// Selects rows of the first of `row_groups`, projected or not; `None` if the scan has to evaluate the filters
    /// itself. The scan requests the others next, in that order.
    ///
    /// # Errors
    ///
    /// Errors that end the scan.
    async fn select(&self, row_groups: Vec<usize>) -> Result<Option<Selected>>;
}

/// The rows of a row group that pass the filters.
pub struct Selected {
    /// The rows.
    pub rows: SelectedRows,
    /// The memory reserved for the rows and for those of the same window. Held as long as the rows are.
    pub memory: Arc<dyn Any + Send + Sync>,
}

/// Rows of a row group.
pub enum SelectedRows {
    /// The selection; the scan decodes them.
    Which(Selection),
    /// The rows themselves, projected.
    Batch(RecordBatch),
}

impl SelectedRows {
    /// Bytes of memory that they take.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Which(selection) => selection.rows().div_ceil(8),
            Self::Batch(batch) => batch.get_array_memory_size(),
        }
    }
}
