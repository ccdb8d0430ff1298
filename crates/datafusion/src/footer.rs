//! Reads footers, and caches them in the runtime's cache of file metadata.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::{HashMap, Result};
use datafusion::execution::cache::cache_manager::{
    CachedFileMetadataEntry, FileMetadata, FileMetadataCache,
};
use object_store::{ObjectMeta, ObjectStore};

use crate::listing::Listings;

/// Metadata of a file.
pub(crate) trait Footer: Send + Sync + Sized + 'static {
    /// Reads the footer of `object`.
    fn read(
        store: &Arc<dyn ObjectStore>,
        object: &ObjectMeta,
    ) -> impl Future<Output = Result<Self>> + Send;

    /// Approximate size in memory, in bytes.
    fn memory_size(&self) -> usize;

    /// Number of row groups of the file.
    fn num_row_groups(&self) -> usize;
}

/// A footer in the cache.
struct CachedFooter<F>(Arc<F>);

impl<F: Footer> FileMetadata for CachedFooter<F> {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn memory_size(&self) -> usize {
        self.0.memory_size()
    }

    fn extra_info(&self) -> HashMap<String, String> {
        let row_groups = self.0.num_row_groups().to_string();
        HashMap::from([("row_groups".to_owned(), row_groups)])
    }
}

/// Returns the footer of `object`, from the cache unless the file has changed.
pub(crate) async fn footer<F: Footer>(
    store: &Arc<dyn ObjectStore>,
    object: &ObjectMeta,
    cache: Option<&FileMetadataCache>,
    listings: &Listings,
) -> Result<Arc<F>> {
    if let Some(entry) = cache.and_then(|cache| cache.get(&object.location))
        && entry.is_valid_for(object)
        && entry.meta.e_tag == object.e_tag
        && let Some(footer) = entry
            .file_metadata
            .as_any()
            .downcast_ref::<CachedFooter<F>>()
    {
        return Ok(Arc::clone(&footer.0));
    }
    let read = F::read(store, object).await;
    let metadata = Arc::new(read.inspect_err(|error| listings.note(&object.location, error))?);
    if let Some(cache) = cache {
        let footer = Arc::new(CachedFooter(Arc::clone(&metadata)));
        cache.put(
            &object.location,
            CachedFileMetadataEntry::new(object.clone(), footer),
        );
    }
    Ok(metadata)
}
