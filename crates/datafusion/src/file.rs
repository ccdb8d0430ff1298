//! A file that a scan has opened.

use std::sync::Arc;

use datafusion::common::Result;
use object_store::ObjectStore;
use object_store::path::Path;
use vectile_file::{Fetch, Handle, Metadata, ReadOptions, RowGroupData, read_row_group_from};

use crate::listing::Listings;
use crate::metrics::ScanMetrics;

/// A file and how to read it.
pub(crate) struct ScanFile {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) handle: Handle,
    pub(crate) listings: Listings,
    pub(crate) location: Path,
    pub(crate) metadata: Arc<Metadata>,
    pub(crate) options: ReadOptions,
    pub(crate) metrics: ScanMetrics,
}

impl ScanFile {
    /// Reads the values of `data` and the zone maps of `zones`.
    pub(crate) async fn read(
        &self,
        row_group: usize,
        data: Vec<usize>,
        zones: Vec<usize>,
    ) -> Result<RowGroupData> {
        let fetch = Fetch {
            row_group,
            data,
            zones,
        };
        let read = read_row_group_from(
            &self.handle,
            &self.store,
            &self.location,
            &self.metadata,
            &fetch,
            &self.options,
        )
        .await;
        let read = read.map_err(|error| self.listings.error(&self.location, error))?;
        self.metrics.bytes_scanned.add(read.bytes_read as usize);
        Ok(read)
    }

    /// Bytes of the values of `columns`.
    pub(crate) fn data_bytes(&self, row_group: usize, columns: &[usize]) -> usize {
        let group = self.metadata.row_group(row_group);
        let chunks = columns
            .iter()
            .filter_map(|&column| group.columns.get(column));
        chunks
            .map(|chunk| (chunk.data.end - chunk.data.start) as usize)
            .sum()
    }
}
