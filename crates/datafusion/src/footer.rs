//! Reads the metadata of files, and caches it in the runtime's cache of file metadata.

use std::any::Any;
use std::ptr;
use std::sync::Arc;

use datafusion::common::{HashMap, Result};
use datafusion::execution::cache::cache_manager::{
    CachedFileMetadataEntry, FileMetadata, FileMetadataCache,
};
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use vectile_scan::{ContainerFormat, FileChunks};

use crate::chunk_cache;
use crate::error;

/// Metadata of a version of a file, and a place for its chunks, which goes when the cache drops the metadata.
#[derive(Clone)]
pub(crate) struct Footer {
    pub(crate) metadata: Arc<dyn vectile_scan::FileMetadata>,
    /// `None` without a cache.
    pub(crate) chunks: Option<Arc<FileChunks>>,
}

/// A footer in the cache, with the name of its format and its store: tables of different formats may name one file, and
/// files of different stores may have one path.
struct CachedFooter {
    format: &'static str,
    store: Arc<dyn ObjectStore>,
    footer: Footer,
}

/// Chunks do not count: they have a budget of their own.
impl FileMetadata for CachedFooter {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn memory_size(&self) -> usize {
        self.footer.metadata.memory_size()
    }

    fn extra_info(&self) -> HashMap<String, String> {
        let row_groups = self.footer.metadata.num_row_groups().to_string();
        HashMap::from([("row_groups".to_owned(), row_groups)])
    }
}

/// Returns the footer of `object`, from the cache unless the file has changed.
pub(crate) async fn footer(
    format: &dyn ContainerFormat,
    store: &Arc<dyn ObjectStore>,
    object: &ObjectMeta,
    cache: Option<&Arc<FileMetadataCache>>,
) -> Result<Footer> {
    let known = || known_footer(format, store, object, cache);
    if let Some(footer) = known() {
        return Ok(footer);
    }
    let read = format.read_metadata(store, object).await;
    let metadata = read.map_err(error::scan)?;
    let Some(cache) = cache else {
        return Ok(Footer {
            metadata,
            chunks: None,
        });
    };
    // Scans that read the footer at the same time share chunks.
    if let Some(footer) = known() {
        return Ok(footer);
    }
    let footer = Footer {
        metadata,
        chunks: Some(Arc::new(chunk_cache::of_runtime(cache).file())),
    };
    let cached = CachedFooter {
        format: format.cache_name(),
        store: Arc::clone(store),
        footer: footer.clone(),
    };
    cache.put(
        &key(format, object),
        CachedFileMetadataEntry::new(object.clone(), Arc::new(cached)),
    );
    Ok(footer)
}

/// Where the cache has the footer: at the location of the file, or at one that DataFusion's reader of the same files does
/// not use, as one would throw out the footers of the other, and with ours the chunks in memory.
fn key(format: &dyn ContainerFormat, object: &ObjectMeta) -> Path {
    match format.cache_name() == format.name() {
        true => object.location.clone(),
        false => Path::from(format!("{}/{}", format.cache_name(), object.location)),
    }
}

/// The footer of this version of a file, if it is in the cache.
pub(crate) fn known_footer(
    format: &dyn ContainerFormat,
    store: &Arc<dyn ObjectStore>,
    object: &ObjectMeta,
    cache: Option<&Arc<FileMetadataCache>>,
) -> Option<Footer> {
    let entry = cache?.get(&key(format, object))?;
    let is_same = entry.is_valid_for(object) && entry.meta.e_tag == object.e_tag;
    let cached: &CachedFooter = entry.file_metadata.as_any().downcast_ref()?;
    let is_same = is_same
        && cached.format == format.cache_name()
        && ptr::addr_eq(Arc::as_ptr(&cached.store), Arc::as_ptr(store));
    is_same.then(|| cached.footer.clone())
}
