//! Containers that are files: a format, the metadata of a file, an open file.
//!
//! ```text
//! ContainerFormat ── read_metadata ──▶ FileMetadata ── open ──▶ FileContainer
//!   in a list of formats                 in caches                scans, devices
//! ```

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt::Debug;
use std::sync::{Arc, Weak};

use async_trait::async_trait;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use vectile_encodings::streams::StreamColumn;

use crate::container::{Container, Fetch, RowGroupData};
use crate::error::Result;
use crate::object::{ReadBuffers, ReadError, ReadOptions};

/// A format whose files are containers.
///
/// An engine that has it in its list of formats scans such files, and decodes them on devices.
#[async_trait]
pub trait ContainerFormat: Debug + Send + Sync {
    /// Its name in lower case, which is the extension of its files, and in SQL follows `STORED AS`.
    fn name(&self) -> &'static str;

    /// The name of its metadata in caches. It is another one than [`name`](Self::name) if other readers keep metadata of
    /// their own for the same files, and if a file has different schemas by the options of the format.
    fn cache_name(&self) -> &'static str {
        self.name()
    }

    /// Returns true if fetching a column takes much longer than reading its bytes, as it is decoded. Parts of a row group
    /// are then not scanned apart, because each would fetch the columns.
    fn decodes_columns(&self) -> bool {
        false
    }

    /// Reads the metadata of `object`: its schema, row groups and their statistics.
    ///
    /// # Errors
    ///
    /// [`Error::External`](crate::Error::External) with the format's own error, which names the file.
    async fn read_metadata(
        &self,
        store: &Arc<dyn ObjectStore>,
        object: &ObjectMeta,
    ) -> Result<Arc<dyn FileMetadata>>;

    /// Returns true if an error of this format says that the object was deleted or replaced after it was listed. By
    /// default, only [`ReadError`]s do.
    fn is_outdated(&self, error: &(dyn StdError + 'static)) -> bool {
        error
            .downcast_ref()
            .is_some_and(|error: &ReadError| error.is_outdated())
    }
}

/// The metadata of one version of a file, to be kept while other scans may need it.
pub trait FileMetadata: Send + Sync {
    /// Approximate size in memory, in bytes.
    fn memory_size(&self) -> usize;

    /// The number of row groups.
    fn num_row_groups(&self) -> usize;

    /// The file at `location`, ready to be scanned.
    fn open(
        self: Arc<Self>,
        store: Arc<dyn ObjectStore>,
        location: &Path,
        options: ReadOptions,
    ) -> Arc<dyn FileContainer>;
}

/// Columns of a row group that a device can decode.
#[derive(Debug, Default)]
pub struct StreamData {
    /// The columns, by index in the schema. Others have to be fetched.
    pub columns: Vec<(usize, StreamColumn)>,
    /// Bytes requested, also for columns that turned out to need fetching.
    pub bytes_read: u64,
}

/// One version of a file, ready to be scanned.
#[async_trait]
pub trait FileContainer: Container {
    /// Its location in the object store.
    fn location(&self) -> &Path;

    /// The first byte of a row group, 0 if there is no such row group. A scan of a byte range has the row groups that
    /// start in it.
    fn row_group_start(&self, row_group: usize) -> u64;

    /// A checksum of the metadata, which differs if contents differ.
    fn checksum(&self) -> u32;

    /// A reference that ends with the rows, if they are those of a table in memory. Copies of them are of no use then.
    fn life(&self) -> Option<Weak<()>> {
        None
    }

    /// Bytes of a column as Arrow arrays, if known.
    fn arrow_bytes(&self, _column: usize) -> Option<u64> {
        None
    }

    /// The name of the encoding of a column of text in a row group; `None` if there is no such column. Names that start
    /// with "plain", "fsst" or "onpair" say that there is no dictionary.
    fn text_encoding(&self, _row_group: usize, _column: usize) -> Option<Cow<'_, str>> {
        Some("plain".into())
    }

    /// Returns true if reading the file occupies a core, rather than waiting for a store. If false,
    /// [`stream_columns`](Self::stream_columns) is not called.
    fn reads_on_thread(&self) -> bool {
        true
    }

    /// As [`Container::fetch`], but may read a local file into `buffers`, on the calling thread, which blocks meanwhile.
    ///
    /// # Errors
    ///
    /// As [`Container::fetch`].
    async fn fetch_into(
        &self,
        fetch: &Fetch,
        _buffers: Arc<dyn ReadBuffers>,
    ) -> Result<RowGroupData> {
        self.fetch(fetch).await
    }

    /// As [`Container::fetch`], for callers that keep some of the columns longer than others: none is a slice of memory
    /// that others hold, too.
    ///
    /// # Errors
    ///
    /// As [`Container::fetch`].
    async fn fetch_to_keep(&self, fetch: &Fetch) -> Result<RowGroupData> {
        self.fetch(fetch).await
    }

    /// Reads columns as streams that a device can decode. Leaves out columns that it cannot, or that are damaged:
    /// [`fetch`](Container::fetch) has them, or their errors. May read into `buffers` as
    /// [`fetch_into`](Self::fetch_into) does.
    ///
    /// # Errors
    ///
    /// As [`Container::fetch`].
    async fn stream_columns(
        &self,
        _row_group: usize,
        _columns: &[usize],
        _buffers: Option<Arc<dyn ReadBuffers>>,
    ) -> Result<StreamData> {
        Ok(StreamData::default())
    }
}
