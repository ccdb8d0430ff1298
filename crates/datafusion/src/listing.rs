//! The runtime's cache of listings, which does not notice when files come and go.

use std::fmt;
use std::sync::Arc;

use datafusion::error::DataFusionError;
use datafusion::execution::cache::cache_manager::ListFilesCache;
use datafusion::execution::runtime_env::RuntimeEnv;
use object_store::path::Path;

/// What a runtime remembers of directories, if it does.
#[derive(Clone, Default)]
pub(crate) struct Listings(Option<Arc<ListFilesCache>>);

impl Listings {
    pub(crate) fn of(runtime: &RuntimeEnv) -> Self {
        Self(runtime.cache_manager.get_list_files_cache())
    }

    /// Forgets the listings that an object at `location` is in, or should be.
    pub(crate) fn forget(&self, location: &Path) {
        let Some(cache) = &self.0 else { return };
        for listed in cache.list_entries().into_keys() {
            if location.prefix_matches(&listed.path) {
                cache.remove(&listed);
            }
        }
    }

    /// A listed file could not be read. If that is because it is another one by now, the next query lists anew.
    pub(crate) fn note(&self, location: &Path, error: &DataFusionError) {
        let DataFusionError::External(error) = error else {
            return;
        };
        let is_gone =
            |error: &object_store::Error| matches!(error, object_store::Error::NotFound { .. });
        let is_other = match (error.downcast_ref(), error.downcast_ref()) {
            (Some(vectile_file::Error::Changed { .. }), _) => true,
            (Some(vectile_file::Error::ObjectStore(error)), _) => is_gone(error),
            (_, Some(vectile_orc::Error::Changed { .. })) => true,
            (_, Some(vectile_orc::Error::ObjectStore(error))) => is_gone(error),
            _ => false,
        };
        if is_other {
            self.forget(location);
        }
    }
}

impl fmt::Debug for Listings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listings").finish_non_exhaustive()
    }
}
