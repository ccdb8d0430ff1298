//! A file that a scan has opened.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::error::DataFusionError;
use vectile_file::{Fetch, File, ReadBuffers, RowGroupData};

use crate::error;
use crate::listing::Listings;
use crate::metrics::ScanMetrics;

/// A file, and who is told of it.
pub(crate) struct ScanFile {
    pub(crate) file: Arc<File>,
    pub(crate) listings: Listings,
    pub(crate) metrics: ScanMetrics,
}

impl ScanFile {
    /// Reads the values of `data`, into `buffers` if it is a local file.
    pub(crate) async fn read(
        &self,
        row_group: usize,
        data: Vec<usize>,
        buffers: Arc<dyn ReadBuffers>,
    ) -> Result<RowGroupData> {
        let fetch = Fetch {
            row_group,
            data,
            ..Fetch::default()
        };
        let read = self.file.fetch_into(&fetch, buffers).await;
        let read = read.map_err(|error| self.error(error))?;
        self.metrics.bytes_scanned.add(read.bytes_read as usize);
        Ok(read)
    }

    /// Why a scan of it ended.
    pub(crate) fn error(&self, error: vectile_scan::Error) -> DataFusionError {
        let error = error::scan(error);
        if let DataFusionError::External(source) = &error
            && let Some(source) = source.downcast_ref()
        {
            self.listings.note(self.file.location(), source);
        }
        error
    }
}
