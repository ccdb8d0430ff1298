//! The runtime's cache of directory listings, which does not notice created and deleted files.

use std::fmt;
use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::execution::cache::cache_manager::ListFilesCache;
use datafusion::execution::runtime_env::RuntimeEnv;
use object_store::path::Path;
use vectile_scan::ContainerFormat;

/// The cache of listings; without effect if the runtime has none.
#[derive(Clone, Default)]
pub(crate) struct Listings(Option<Arc<ListFilesCache>>);

impl Listings {
    pub(crate) fn of(runtime: &RuntimeEnv) -> Self {
        Self(runtime.cache_manager.get_list_files_cache())
    }

    /// Removes the listings that contain an object at `location`, or should.
    pub(crate) fn forget(&self, location: &Path) {
        let Some(cache) = &self.0 else { return };
        for listed in cache.list_entries().into_keys() {
            if location.prefix_matches(&listed.path) {
                cache.remove(&listed);
            }
        }
    }

    /// Removes the listings of a file that could not be read because it was deleted or replaced. The next query lists
    /// anew.
    pub(crate) fn note(
        &self,
        format: &dyn ContainerFormat,
        location: &Path,
        error: &DataFusionError,
    ) {
        if let DataFusionError::External(error) = error
            && format.is_outdated(error.as_ref())
        {
            self.forget(location);
        }
    }
}

impl fmt::Debug for Listings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listings").finish_non_exhaustive()
    }
}
