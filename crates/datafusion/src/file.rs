//! Files that scans open, of any format.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::execution::object_store::ObjectStoreUrl;
use object_store::{ObjectMeta, ObjectStore};
use vectile_encodings::streams::StreamColumn;
use vectile_file::ReadOptions;
use vectile_scan::object::ReadBuffers;
use vectile_scan::{ContainerFormat, Fetch, FileContainer, RowGroupData};

use crate::error;
use crate::footer::{Footer, footer, known_footer};
use crate::listing::Listings;
use crate::metrics::ScanMetrics;

/// DataFusion's URL of the file system; locations are relative to its root.
const LOCAL_FILES: &str = "file:///";

/// True if a store is the file system.
pub(crate) fn is_local(store: &ObjectStoreUrl) -> bool {
    store.as_str() == LOCAL_FILES
}

/// Context for opening files: format, object store and caches.
pub(crate) struct FileContext<'a> {
    pub(crate) format: &'static dyn ContainerFormat,
    pub(crate) store: &'a Arc<dyn ObjectStore>,
    pub(crate) footers: Option<&'a Arc<FileMetadataCache>>,
    pub(crate) listings: &'a Listings,
}

impl FileContext<'_> {
    /// The footer of `object`, from the cache unless the file has changed.
    pub(crate) async fn footer(&self, object: &ObjectMeta) -> Result<Footer> {
        let footer = footer(self.format, self.store, object, self.footers).await;
        footer.inspect_err(|error| self.listings.note(self.format, &object.location, error))
    }

    /// The footer of `object`, if the cache has it.
    pub(crate) fn known_footer(&self, object: &ObjectMeta) -> Option<Footer> {
        known_footer(self.format, self.store, object, self.footers)
    }

    /// Opens `object`. Takes its metadata from the cache unless the file has changed.
    pub(crate) async fn open(&self, object: &ObjectMeta) -> Result<Arc<dyn FileContainer>> {
        let options = ReadOptions::default();
        Ok(self.opened(&self.footer(object).await?, object, options))
    }

    /// The file of a footer.
    pub(crate) fn opened(
        &self,
        footer: &Footer,
        object: &ObjectMeta,
        options: ReadOptions,
    ) -> Arc<dyn FileContainer> {
        let metadata = Arc::clone(&footer.metadata);
        metadata.open(Arc::clone(self.store), &object.location, options)
    }
}

/// An open file, with the cache and metrics to notify.
pub(crate) struct ScanFile {
    pub(crate) format: &'static dyn ContainerFormat,
    pub(crate) file: Arc<dyn FileContainer>,
    pub(crate) listings: Listings,
    pub(crate) metrics: ScanMetrics,
}

impl ScanFile {
    /// Reads the columns `data`, into `buffers` if the format can and the file is a local one.
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

    /// Reads the columns `data` as streams that a device can decode, by index in the file, into `buffers` if it is a
    /// local file. Skips columns that fail; [`read`](Self::read) reports their errors.
    pub(crate) async fn stream_columns(
        &self,
        row_group: usize,
        data: &[usize],
        buffers: Arc<dyn ReadBuffers>,
    ) -> Vec<(usize, StreamColumn)> {
        let read = self
            .file
            .stream_columns(row_group, data, Some(buffers))
            .await;
        let Ok(read) = read else {
            return Vec::new();
        };
        self.metrics.bytes_scanned.add(read.bytes_read as usize);
        read.columns
    }

    /// Converts an error of scanning this file. Removes outdated listings from the cache.
    pub(crate) fn error(&self, error: vectile_scan::Error) -> DataFusionError {
        let error = error::scan(error);
        self.listings
            .note(self.format, self.file.location(), &error);
        error
    }
}
