//! Files that scans open: Vectile's own and other container formats.

#[cfg(feature = "gpu")]
use std::borrow::Cow;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::error::DataFusionError;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
#[cfg(feature = "gpu")]
use vectile_file::Compression;
use vectile_file::{Fetch, File, ReadOptions, RowGroupData};
use vectile_scan::Container;
use vectile_scan::object::ReadBuffers;

use crate::error;
use crate::footer::{self, footer};
use crate::listing::Listings;
use crate::metrics::ScanMetrics;

/// The format of a table's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Vectile,
    Orc,
}

impl FileKind {
    /// File extension and name of the format.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Vectile => "vectile",
            Self::Orc => "orc",
        }
    }
}

/// Context for opening files: format, object store and caches.
pub(crate) struct FileContext<'a> {
    pub(crate) kind: FileKind,
    pub(crate) store: &'a Arc<dyn ObjectStore>,
    pub(crate) footers: Option<&'a FileMetadataCache>,
    pub(crate) listings: &'a Listings,
}

/// A file with its footer.
#[derive(Clone)]
pub(crate) enum TableFile {
    Vectile(Arc<File>),
    Orc(Arc<vectile_orc::File>),
}

impl FileContext<'_> {
    /// Opens `object`. Takes its footer from the cache unless the file has changed.
    pub(crate) async fn open(
        &self,
        object: &ObjectMeta,
        options: ReadOptions,
    ) -> Result<TableFile> {
        let (store, listings) = (self.store, self.listings);
        Ok(match self.kind {
            FileKind::Vectile => {
                let metadata = footer(store, object, self.footers, listings).await?;
                let location = object.location.clone();
                let file = File::new(Arc::clone(store), location, metadata, options);
                TableFile::Vectile(Arc::new(file))
            }
            FileKind::Orc => {
                let metadata = footer(store, object, self.footers, listings).await?;
                TableFile::Orc(Arc::new(vectile_orc::File::new(metadata)))
            }
        })
    }
}

impl TableFile {
    /// The container to scan.
    pub(crate) fn container(&self) -> Arc<dyn Container> {
        match self {
            Self::Vectile(file) => Arc::clone(file) as _,
            Self::Orc(file) => Arc::clone(file) as _,
        }
    }

    /// As [`container`](Self::container).
    pub(crate) fn as_container(&self) -> &dyn Container {
        match self {
            Self::Vectile(file) => file.as_ref(),
            Self::Orc(file) => file.as_ref(),
        }
    }

    /// Its location in the object store.
    pub(crate) fn location(&self) -> &Path {
        match self {
            Self::Vectile(file) => file.location(),
            Self::Orc(file) => file.location(),
        }
    }

    /// The first byte of a row group.
    pub(crate) fn start(&self, row_group: usize) -> u64 {
        let start = match self {
            Self::Vectile(file) => {
                let row_group = file.metadata().row_groups().get(row_group);
                row_group.map(|row_group| row_group.bytes.start)
            }
            Self::Orc(file) => {
                let stripe = file.metadata().stripes().get(row_group);
                stripe.map(|stripe| stripe.bytes.start)
            }
        };
        start.unwrap_or_default()
    }

    /// Bytes of a column as Arrow arrays, if known.
    pub(crate) fn arrow_bytes(&self, column: usize) -> Option<u64> {
        match self {
            Self::Vectile(file) => {
                let row_groups = file.metadata().row_groups().iter();
                let chunks = row_groups.filter_map(|row_group| row_group.columns.get(column));
                Some(chunks.map(|chunk| chunk.arrow_bytes).sum())
            }
            Self::Orc(_) => None,
        }
    }

    /// Name of a text column's encoding in a row group.
    #[cfg(feature = "gpu")]
    pub(crate) fn text_encoding(&self, row_group: usize, column: usize) -> Option<Cow<'_, str>> {
        match self {
            Self::Vectile(file) => {
                let row_group = file.metadata().row_groups().get(row_group)?;
                let chunk = row_group.columns.get(column)?;
                Some(match chunk.compression {
                    Compression::None => (*chunk.encoding).into(),
                    // compressed repeated values are not dictionary encoded
                    compression => format!("{} + {compression}", chunk.encoding).into(),
                })
            }
            Self::Orc(file) => {
                let metadata = file.metadata();
                let column = metadata.root().children.get(column)?.column;
                let stripe = metadata.stripes().get(row_group)?;
                Some(match stripe.encodings.get(column as usize)? {
                    vectile_orc::Encoding::Dictionary { .. } => "dict".into(),
                    vectile_orc::Encoding::Direct { .. } => "plain".into(),
                })
            }
        }
    }

    /// Checksum of the file's metadata; differs if contents differ.
    #[cfg(feature = "gpu")]
    pub(crate) fn checksum(&self) -> u32 {
        match self {
            Self::Vectile(file) => file.metadata().checksum(),
            Self::Orc(file) => file.metadata().checksum(),
        }
    }

    /// True if reading the file occupies a core, rather than waiting for a store.
    #[cfg(feature = "gpu")]
    pub(crate) fn reads_on_thread(&self) -> bool {
        match self {
            Self::Vectile(file) => file.is_local(),
            Self::Orc(_) => true,
        }
    }
}

/// An open file, with the cache and metrics to notify.
pub(crate) struct ScanFile {
    pub(crate) file: TableFile,
    pub(crate) listings: Listings,
    pub(crate) metrics: ScanMetrics,
}

impl ScanFile {
    /// Reads the columns `data`, into `buffers` if it is a local Vectile file.
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
        let read = match &self.file {
            TableFile::Vectile(file) => file.fetch_into(&fetch, buffers).await,
            TableFile::Orc(file) => file.fetch(&fetch).await,
        };
        let read = read.map_err(|error| self.error(error))?;
        self.metrics.bytes_scanned.add(read.bytes_read as usize);
        Ok(read)
    }

    /// Reads the columns `data` as streams that a device can decode, by index in the file, into `buffers` if it is a
    /// local file. Skips columns that fail; [`read`](Self::read) reports their errors.
    #[cfg(feature = "gpu")]
    pub(crate) async fn parted(
        &self,
        row_group: usize,
        data: &[usize],
        buffers: Arc<dyn ReadBuffers>,
    ) -> Vec<(usize, vectile_orc::PartedColumn)> {
        let TableFile::Orc(file) = &self.file else {
            return Vec::new();
        };
        let Ok((columns, bytes)) = file.parted(row_group, data, Some(&buffers)).await else {
            return Vec::new();
        };
        self.metrics.bytes_scanned.add(bytes as usize);
        let columns = data.iter().copied().zip(columns);
        columns
            .filter_map(|(column, parted)| Some((column, parted?)))
            .collect()
    }

    /// Converts an error of scanning this file. Removes outdated listings from the cache.
    pub(crate) fn error(&self, error: vectile_scan::Error) -> DataFusionError {
        let error = error::scan(error);
        self.listings.note(self.file.location(), &error);
        error
    }
}

impl footer::Footer for vectile_file::Metadata {
    async fn read(store: &Arc<dyn ObjectStore>, object: &ObjectMeta) -> Result<Self> {
        let read = vectile_file::read_metadata(store, object).await;
        read.map_err(error::external)
    }

    fn memory_size(&self) -> usize {
        vectile_file::Metadata::memory_size(self)
    }

    fn num_row_groups(&self) -> usize {
        vectile_file::Metadata::num_row_groups(self)
    }
}

impl footer::Footer for vectile_orc::Metadata {
    async fn read(store: &Arc<dyn ObjectStore>, object: &ObjectMeta) -> Result<Self> {
        let read = vectile_orc::read_metadata(store, object).await;
        read.map_err(error::external)
    }

    fn memory_size(&self) -> usize {
        vectile_orc::Metadata::memory_size(self)
    }

    fn num_row_groups(&self) -> usize {
        self.stripes().len()
    }
}
