//! What may find the rows of a scan in the place of its filters: a device.
//!
//! A scan knows no more of devices than these traits and [`Selector`].

use std::fmt::{Debug, Display};
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use async_trait::async_trait;
use datafusion::common::Result;
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use object_store::ObjectMeta;
use vectile_scan::Selector;

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

/// A file that a device is to select rows of, and the scan of it.
pub(crate) struct DeviceScan<'a> {
    pub(crate) file: Arc<ScanFile>,
    pub(crate) object: &'a ObjectMeta,
    pub(crate) table: &'a Schema,
    /// Of the scan's batches.
    pub(crate) schema: &'a SchemaRef,
    /// Whether what will be wanted of it is not yet known.
    pub(crate) can_change: bool,
    /// For the selected rows.
    pub(crate) reservation: MemoryReservation,
}

/// What a device does for one partition of a scan, file after file.
#[async_trait]
pub(crate) trait PartitionDevice: Send + Sync {
    /// For one file; `None` if that has to be scanned without.
    async fn open(&self, scan: DeviceScan<'_>) -> Result<Option<Arc<dyn Selector>>>;
}
