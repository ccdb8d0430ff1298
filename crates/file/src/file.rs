//! A file as a container of row groups to scan.

use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use vectile_encodings::ZoneMap;
use vectile_scan::object::{Handle, ReadBuffers, ReadOptions};
use vectile_scan::{Container, Fetch, RowGroupData, ValueFilter};

use crate::encode::EncodedRowGroup;
use crate::error::Result;
use crate::metadata::{Compression, Metadata};
use crate::reader::{read_bloom_filters, read_encoded, read_metadata, read_row_group_from};

/// One version of a file, ready to be scanned. A local file stays open once its first row group was read.
///
/// Errors of a scan are [`Error`](crate::Error)s within [`vectile_scan::Error::External`].
#[derive(Debug)]
pub struct File {
    store: Arc<dyn ObjectStore>,
    handle: Handle,
    pub(crate) location: Path,
    metadata: Arc<Metadata>,
    options: ReadOptions,
}

impl File {
    /// Reads the footer of `object`.
    ///
    /// # Errors
    ///
    /// Those of [`read_metadata`].
    pub async fn open(store: Arc<dyn ObjectStore>, object: &ObjectMeta) -> Result<Self> {
        let metadata = Arc::new(read_metadata(&store, object).await?);
        let location = object.location.clone();
        let options = ReadOptions::default();
        Ok(Self::new(store, location, metadata, options))
    }

    /// The file at `location`, whose footer is known.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        location: Path,
        metadata: Arc<Metadata>,
        options: ReadOptions,
    ) -> Self {
        Self {
            store,
            handle: Handle::default(),
            location,
            metadata,
            options,
        }
    }

    /// As [`Container::fetch`], but reads a local file into `buffers`, if there are any. If `apart`, columns share no
    /// memory.
    pub(crate) async fn fetch_with(
        &self,
        fetch: &Fetch,
        buffers: Option<Arc<dyn ReadBuffers>>,
        apart: bool,
    ) -> vectile_scan::Result<RowGroupData> {
        let mut options = self.options.clone();
        options.buffers = buffers.or(options.buffers);
        let read = read_row_group_from(
            &self.handle,
            &self.store,
            &self.location,
            &self.metadata,
            fetch,
            &options,
            apart,
        );
        read.await.map_err(vectile_scan::Error::external)
    }

    /// Reads a row group as it is encoded, without parsing it. Compressed values are decompressed.
    ///
    /// # Errors
    ///
    /// As [`read_row_group`](crate::read_row_group); [`Error::InvalidArgument`](crate::Error::InvalidArgument) also if
    /// the file is of an older format version.
    pub async fn read_encoded(&self, row_group: usize) -> Result<EncodedRowGroup> {
        let (handle, location) = (&self.handle, &self.location);
        read_encoded(handle, &self.store, location, &self.metadata, row_group).await
    }

    /// Its footer.
    pub fn metadata(&self) -> &Arc<Metadata> {
        &self.metadata
    }
}

#[async_trait]
impl Container for File {
    fn schema(&self) -> &SchemaRef {
        self.metadata.schema()
    }

    fn num_row_groups(&self) -> usize {
        self.metadata.num_row_groups()
    }

    fn rows(&self, row_group: usize) -> usize {
        self.metadata.row_group(row_group).rows
    }

    fn row_group_zones(&self, column: usize) -> Option<&ZoneMap> {
        self.metadata.statistics.get(column)
    }

    fn data_bytes(&self, row_group: usize, columns: &[usize]) -> usize {
        let chunks = &self.metadata.row_group(row_group).columns;
        let chunks = columns.iter().filter_map(|&column| chunks.get(column));
        chunks
            .map(|chunk| match chunk.compression {
                Compression::None => chunk.data_bytes,
                _ => chunk.data_bytes + (chunk.data.end - chunk.data.start),
            })
            .map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX))
            .fold(0, usize::saturating_add)
    }

    async fn fetch(&self, fetch: &Fetch) -> vectile_scan::Result<RowGroupData> {
        self.fetch_with(fetch, None, false).await
    }

    fn has_bloom_filter(&self, row_group: usize, column: usize) -> bool {
        let chunk = self.metadata.row_group(row_group).columns.get(column);
        chunk.is_some_and(|chunk| chunk.bloom.is_some())
    }

    async fn bloom_filters(
        &self,
        row_group: usize,
        columns: &[usize],
    ) -> vectile_scan::Result<Vec<Box<dyn ValueFilter>>> {
        let read = read_bloom_filters(
            &self.handle,
            &self.store,
            &self.location,
            &self.metadata,
            row_group,
            columns,
            &self.options,
        );
        let filters = read.await.map_err(vectile_scan::Error::external)?;
        Ok(filters
            .into_iter()
            .map(|filter| Box::new(filter) as _)
            .collect())
    }

    fn error(
        &self,
        row_group: usize,
        column: usize,
        source: vectile_encodings::Error,
    ) -> vectile_scan::Error {
        vectile_scan::Error::external(self.metadata.error(row_group, column, source))
    }
}
