//! Interface for devices that evaluate the filters of a scan.
//!
//! Scans depend on devices only by these traits and [`Selector`].

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
    /// Starts the scan of one partition, with metrics in `metrics`.
    fn partition(
        &self,
        metrics: &ExecutionPlanMetricsSet,
        partition: usize,
    ) -> Arc<dyn PartitionDevice>;
}

/// A file whose rows a device selects, with its scan.
pub(crate) struct DeviceScan<'a> {
    pub(crate) file: Arc<ScanFile>,
    pub(crate) object: &'a ObjectMeta,
    pub(crate) table: &'a Schema,
    /// Schema of the scan's batches.
    pub(crate) schema: &'a SchemaRef,
    /// True if dynamic filters may still change which rows are needed.
    pub(crate) can_change: bool,
    /// Memory for the selected rows.
    pub(crate) reservation: MemoryReservation,
}

/// Evaluates filters for one partition of a scan, file after file.
#[async_trait]
pub(crate) trait PartitionDevice: Send + Sync {
    /// Opens a file; `None` if the scan has to evaluate the filters.
    async fn open(&self, scan: DeviceScan<'_>) -> Result<Option<Arc<dyn Selector>>>;
}
