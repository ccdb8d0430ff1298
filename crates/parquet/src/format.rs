//! Parquet files as a format of containers.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::sync::Arc;

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use vectile_scan::object::{ReadBuffers, ReadOptions};
use vectile_scan::{ContainerFormat, FileContainer, FileMetadata, Result, StreamData};

use crate::error::Error;
use crate::file::File;
use crate::metadata::{Metadata, Options, is_dictionary, read_metadata};

/// The format of Parquet files. Errors are [`Error`]s. Other readers may keep metadata of their own for the same files,
/// so that its own has [names](ContainerFormat::cache_name) apart.
#[derive(Clone, Copy, Debug, Default)]
pub struct Format {
    options: Options,
}

impl Format {
    /// The format of files that are read with these options.
    pub fn new(options: Options) -> Self {
        Self { options }
    }
}

#[async_trait]
impl ContainerFormat for Format {
    fn name(&self) -> &'static str {
        "parquet"
    }

    fn cache_name(&self) -> &'static str {
        match self.options.view_types {
            true => "parquet with views",
            false => "parquet without views",
        }
    }

    fn decodes_columns(&self) -> bool {
        true
    }

    async fn read_metadata(
        &self,
        store: &Arc<dyn ObjectStore>,
        object: &ObjectMeta,
    ) -> Result<Arc<dyn FileMetadata>> {
        let metadata = read_metadata(store, object, &self.options).await;
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
        self.row_groups().len()
    }

    fn open(
        self: Arc<Self>,
        _store: Arc<dyn ObjectStore>,
        _location: &Path,
        _options: ReadOptions,
    ) -> Arc<dyn FileContainer> {
        Arc::new(File::new(self))
    }
}

#[async_trait]
impl FileContainer for File {
    fn location(&self) -> &Path {
        self.metadata().object.location()
    }

    fn row_group_start(&self, row_group: usize) -> u64 {
        let row_group = self.metadata().row_groups().get(row_group);
        row_group.map_or(0, |row_group| row_group.start)
    }

    fn checksum(&self) -> u32 {
        self.metadata().checksum()
    }

    async fn stream_columns(
        &self,
        row_group: usize,
        columns: &[usize],
        buffers: Option<Arc<dyn ReadBuffers>>,
    ) -> Result<StreamData> {
        let data = self.read_stream_columns(row_group, columns, buffers).await;
        data.map_err(vectile_scan::Error::external)
    }

    fn text_encoding(&self, row_group: usize, column: usize) -> Option<Cow<'_, str>> {
        let column = self.metadata().column(column).ok()?;
        let (_, chunks) = self.metadata().row_group(row_group).ok()?;
        let chunk = chunks.columns().get(column.leaves.start)?;
        Some(match column.may_be_dictionary && is_dictionary(chunk) {
            true => "dict".into(),
            false => "plain".into(),
        })
    }
}
