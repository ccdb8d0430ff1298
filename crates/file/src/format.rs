//! Vectile's files as a format of containers.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use vectile_scan::object::{ReadBuffers, ReadOptions};
use vectile_scan::{ContainerFormat, Fetch, FileContainer, FileMetadata, Result, RowGroupData};

use crate::error::Error;
use crate::file::File;
use crate::metadata::{Compression, Metadata};
use crate::reader::read_metadata;

/// Extension of Vectile files, without the dot.
pub const EXTENSION: &str = "vectile";

/// The format of Vectile's files. Errors are [`Error`]s.
#[derive(Clone, Copy, Debug)]
pub struct Format;

#[async_trait]
impl ContainerFormat for Format {
    fn name(&self) -> &'static str {
        EXTENSION
    }

    async fn read_metadata(
        &self,
        store: &Arc<dyn ObjectStore>,
        object: &ObjectMeta,
    ) -> Result<Arc<dyn FileMetadata>> {
        let metadata = read_metadata(store, object).await;
        Ok(Arc::new(metadata.map_err(vectile_scan::Error::external)?))
    }

    fn is_outdated(&self, error: &(dyn StdError + 'static)) -> bool {
        use object_store::Error::NotFound;
        matches!(
            error.downcast_ref(),
            Some(Error::Changed { .. } | Error::ObjectStore(NotFound { .. }))
        )
    }
}

impl FileMetadata for Metadata {
    fn memory_size(&self) -> usize {
        Metadata::memory_size(self)
    }

    fn num_row_groups(&self) -> usize {
        Metadata::num_row_groups(self)
    }

    fn open(
        self: Arc<Self>,
        store: Arc<dyn ObjectStore>,
        location: &Path,
        options: ReadOptions,
    ) -> Arc<dyn FileContainer> {
        Arc::new(File::new(store, location.clone(), self, options))
    }
}

#[async_trait]
impl FileContainer for File {
    fn location(&self) -> &Path {
        &self.location
    }

    fn row_group_start(&self, row_group: usize) -> u64 {
        let row_group = self.metadata().row_groups().get(row_group);
        row_group.map_or(0, |row_group| row_group.bytes.start)
    }

    fn checksum(&self) -> u32 {
        self.metadata().checksum()
    }

    fn arrow_bytes(&self, column: usize) -> Option<u64> {
        let row_groups = self.metadata().row_groups().iter();
        let chunks = row_groups.filter_map(|row_group| row_group.columns.get(column));
        Some(chunks.map(|chunk| chunk.arrow_bytes).sum())
    }

    fn text_encoding(&self, row_group: usize, column: usize) -> Option<Cow<'_, str>> {
        let row_group = self.metadata().row_groups().get(row_group)?;
        let chunk = row_group.columns.get(column)?;
        Some(match chunk.compression {
            Compression::None => (*chunk.encoding).into(),
            // compressed repeated values are not dictionary encoded
            compression => format!("{} + {compression}", chunk.encoding).into(),
        })
    }

    fn reads_on_thread(&self) -> bool {
        self.metadata().is_file
    }

    async fn fetch_into(
        &self,
        fetch: &Fetch,
        buffers: Arc<dyn ReadBuffers>,
    ) -> Result<RowGroupData> {
        self.fetch_with(fetch, Some(buffers), false).await
    }

    async fn fetch_to_keep(&self, fetch: &Fetch) -> Result<RowGroupData> {
        self.fetch_with(fetch, None, true).await
    }
}
