//! Footers, read once and kept in the runtime's cache of file metadata.

use std::any::Any;
use std::sync::Arc;

use datafusion::common::{HashMap, Result};
use datafusion::execution::cache::cache_manager::{
    CachedFileMetadataEntry, FileMetadata, FileMetadataCache,
};
use object_store::{ObjectMeta, ObjectStore};
use vectile_file::{Metadata, read_metadata};

use crate::error;
use crate::listing::Listings;

/// A footer in the cache.
struct CachedFooter(Arc<Metadata>);

impl FileMetadata for CachedFooter {
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

/// The footer of `object`, from the cache unless the file has changed.
pub(crate) async fn footer(
    store: &Arc<dyn ObjectStore>,
    object: &ObjectMeta,
    cache: Option<&FileMetadataCache>,
    listings: &Listings,
) -> Result<Arc<Metadata>> {
    if let Some(entry) = cache.and_then(|cache| cache.get(&object.location))
        && entry.is_valid_for(object)
        && entry.meta.e_tag == object.e_tag
        && let Some(footer) = entry.file_metadata.as_any().downcast_ref::<CachedFooter>()
    {
        return Ok(Arc::clone(&footer.0));
    }
    let read = read_metadata(store, object).await;
    let metadata = Arc::new(read.map_err(|error| {
        listings.note(&object.location, &error);
        error::file(error)
    })?);
    if let Some(cache) = cache {
        let footer = Arc::new(CachedFooter(Arc::clone(&metadata)));
        cache.put(
            &object.location,
            CachedFileMetadataEntry::new(object.clone(), footer),
        );
    }
    Ok(metadata)
}
