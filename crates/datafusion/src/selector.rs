//! What may find the rows of a scan in the place of its filters: a device.
//!
//! A scan knows no more of devices than these traits.

use std::fmt::{Debug, Display};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use object_store::ObjectMeta;
use vectile_encodings::Selection;

use crate::file::ScanFile;

/// A device that evaluates the filters of a scan. `EXPLAIN` shows it as it displays itself.
pub(crate) trait ScanDevice: Debug + Display + Send + Sync {
    /// What it does for one partition, counted in `metrics`.
    fn partition(
        &self,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
    ) -> Arc<dyn PartitionDevice>;
}

/// What a device does for one partition of a scan, file after file.
pub(crate) trait PartitionDevice: Send + Sync {
    /// For one file, of whose scan `schema` is; `None` if that has to be scanned without. If
    /// `can_change`, what will be wanted of it is not yet known.
    fn open(
        &self,
        file: Arc<ScanFile>,
        object: &ObjectMeta,
        table: &Schema,
        schema: &SchemaRef,
        can_change: bool,
    ) -> Result<Option<Arc<dyn Selector>>>;
}

/// Selects rows of one file.
#[async_trait]
pub(crate) trait Selector: Send + Sync {
    /// Whether this gives the batches of the scan, and not only its rows.
    fn projects(&self) -> bool;

    /// How many row groups to ask for with this one, itself included.
    fn window(&self, row_group: usize) -> usize;

    /// The selected rows of the first of `row_groups`, projected if [`Self::projects`]; `None` if the
    /// CPU has to find them. The stream will ask for the others next, in that order.
    async fn select(
        &self,
        row_groups: Vec<usize>,
        reservation: MemoryReservation,
    ) -> Result<Option<Selected>>;
}

/// The rows of a row group that pass the filters.
pub(crate) struct Selected {
    pub(crate) rows: SelectedRows,
    /// Covers them, with those of the same window.
    pub(crate) memory: Arc<MemoryReservation>,
}

/// Rows of a row group.
pub(crate) enum SelectedRows {
    /// Which they are.
    Which(Selection),
    /// What they come to.
    Batch(RecordBatch),
}

impl SelectedRows {
    /// How many, in memory.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Which(selection) => selection.rows().div_ceil(8),
            Self::Batch(batch) => batch.get_array_memory_size(),
        }
    }
}
