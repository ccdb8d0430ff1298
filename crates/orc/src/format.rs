//! ORC files as a format of containers.

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
use crate::kind::Encoding;
use crate::metadata::{Metadata, read_metadata};

/// The format of ORC files. Errors are [`Error`]s.
#[derive(Clone, Copy, Debug)]
pub struct Format;

#[async_trait]
impl ContainerFormat for Format {
    fn name(&self) -> &'static str {
        "orc"
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
        self.stripes().len()
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
        let stripe = self.metadata().stripes().get(row_group);
        stripe.map_or(0, |stripe| stripe.bytes.start)
    }

    fn checksum(&self) -> u32 {
        self.metadata().checksum()
    }

    fn text_encoding(&self, row_group: usize, column: usize) -> Option<Cow<'_, str>> {
        let column = self.metadata().root().children.get(column)?.column;
        let stripe = self.metadata().stripes().get(row_group)?;
        Some(match stripe.encodings.get(column as usize)? {
            Encoding::Dictionary { .. } => "dict".into(),
            Encoding::Direct { .. } => "plain".into(),
        })
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
}
