//! What may find the rows of a scan in the place of its filters: a device.

use std::any::Any;
use std::sync::Arc;

use arrow::array::RecordBatch;
use async_trait::async_trait;
use vectile_encodings::Selection;

use crate::error::Result;

/// Selects rows of one container.
#[async_trait]
pub trait Selector: Send + Sync {
    /// Whether it is asked even where no filter is left to evaluate: it gives the batches of the scan, and not only its
    /// rows, or knows of rows what filters do not say.
    fn is_always_asked(&self) -> bool;

    /// How many row groups to ask for with this one, itself included.
    fn window(&self, row_group: usize) -> usize;

    /// The selected rows of the first of `row_groups`, projected or not; `None` if the scan has to
    /// find them. It will ask for the others next, in that order.
    ///
    /// # Errors
    ///
    /// Those for which the scan is to end.
    async fn select(&self, row_groups: Vec<usize>) -> Result<Option<Selected>>;
}

/// The rows of a row group that pass the filters.
pub struct Selected {
    /// The rows.
    pub rows: SelectedRows,
    /// Held as long as the rows are: the memory reserved for them, with those of the same window.
    pub memory: Arc<dyn Any + Send + Sync>,
}

/// Rows of a row group.
pub enum SelectedRows {
    /// Which they are.
    Which(Selection),
    /// What they come to.
    Batch(RecordBatch),
}

impl SelectedRows {
    /// How many bytes of memory they take.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Which(selection) => selection.rows().div_ceil(8),
            Self::Batch(batch) => batch.get_array_memory_size(),
        }
    }
}
