//! Reads the metadata of files, and caches it in the runtime's cache of file metadata.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::{HashMap, Result};
use datafusion::execution::cache::cache_manager::{
    CachedFileMetadataEntry, FileMetadata, FileMetadataCache,
};
use object_store::{ObjectMeta, ObjectStore};
use vectile_scan::ContainerFormat;

use crate::error;

/// Metadata in the cache, with the name of its format: tables of different formats may name one file.
struct CachedMetadata {
    format: &'static str,
    metadata: Arc<dyn vectile_scan::FileMetadata>,
}

impl FileMetadata for CachedMetadata {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn memory_size(&self) -> usize {
        self.metadata.memory_size()
    }

    fn extra_info(&self) -> HashMap<String, String> {
        let row_groups = self.metadata.num_row_groups().to_string();
        HashMap::from([("row_groups".to_owned(), row_groups)])
    }
}

/// Returns the metadata of `object`, from the cache unless the file has changed.
pub(crate) async fn metadata(
    format: &dyn ContainerFormat,
    store: &Arc<dyn ObjectStore>,
    object: &ObjectMeta,
    cache: Option<&FileMetadataCache>,
) -> Result<Arc<dyn vectile_scan::FileMetadata>> {
    if let Some(entry) = cache.and_then(|cache| cache.get(&object.location))
        && entry.is_valid_for(object)
        && entry.meta.e_tag == object.e_tag
        && let Some(cached) = entry
            .file_metadata
            .as_any()
            .downcast_ref::<CachedMetadata>()
        && cached.format == format.name()
    {
        return Ok(Arc::clone(&cached.metadata));
    }
    let read = format.read_metadata(store, object).await;
    let metadata = read.map_err(error::scan)?;
    if let Some(cache) = cache {
        let cached = CachedMetadata {
            format: format.name(),
            metadata: Arc::clone(&metadata),
        };
        cache.put(
            &object.location,
            CachedFileMetadataEntry::new(object.clone(), Arc::new(cached)),
        );
    }
    Ok(metadata)
}
