//! Queries for which the GPU was not ready, with `vectile.gpu = auto`.
//!
//! Fused nodes that fall back share nothing between them. So all of a query is planned for the CPU once the
//! GPU was not ready for it, until it is.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fallback_reason::FallbackReason;

/// After this many runs on the CPU, a run decides if the GPU is ready.
const MOST_RUNS: usize = 16;

/// If the GPU is not ready for a query more often than this, although it was in between, its columns do not stay there.
const MOST_TIMES: usize = 2;

/// Limit of the queries that are noted.
const MOST_QUERIES: usize = 1024;

/// Notes of queries, by the hash of their identity.
#[derive(Debug, Default)]
pub(crate) struct Readiness {
    queries: Mutex<HashMap<u64, NotReady>>,
    hasher: RandomState,
}

/// Notes of a query for which the GPU was not ready.
#[derive(Debug, Default)]
struct NotReady {
    /// Why it is not ready; `None` if it is now.
    reason: Option<FallbackReason>,
    /// Runs on the CPU since.
    runs: usize,
    /// How often the GPU was not ready.
    times: usize,
}

impl Readiness {
    /// Notes why the GPU is not ready for a query.
    pub(crate) fn add_not_ready(&self, query: &str, reason: &FallbackReason) {
        let mut queries = self.queries();
        let query = self.hasher.hash_one(query);
        if queries.len() >= MOST_QUERIES && !queries.contains_key(&query) {
            queries.clear();
        }
        let known = queries.entry(query).or_default();
        if known.times < MOST_TIMES {
            known.times += 1;
            known.runs = 0;
            known.reason = Some(reason.clone());
        }
    }

    /// Notes that the GPU is ready for a query.
    pub(crate) fn add_ready(&self, query: &str) {
        if let Some(known) = self.queries().get_mut(&self.hasher.hash_one(query)) {
            known.reason = None;
        }
    }

    /// True if the GPU is not ready for some query.
    pub(crate) fn is_awaited(&self) -> bool {
        let queries = self.queries();
        queries.values().any(|known| known.reason.is_some())
    }

    /// Counts a run of a query on the CPU.
    pub(crate) fn add_run(&self, query: &str) {
        if let Some(known) = self.queries().get_mut(&self.hasher.hash_one(query)) {
            known.runs += 1;
        }
    }

    /// Why the GPU is not ready for a query that took this time on the CPU, if that is known. `None` if making the GPU
    /// ready takes less time, and after some runs on the CPU: the next run decides then.
    pub(crate) fn not_ready(
        &self,
        query: &str,
        took: impl FnOnce() -> Option<Duration>,
    ) -> Option<FallbackReason> {
        let queries = self.queries();
        let known = queries.get(&self.hasher.hash_one(query))?;
        let reason = known.reason.clone().filter(|_| known.runs < MOST_RUNS)?;
        let is_slow = |until_ready| took().is_some_and(|took| took > until_ready);
        (!reason.until_ready().is_some_and(is_slow)).then_some(reason)
    }

    fn queries(&self) -> MutexGuard<'_, HashMap<u64, NotReady>> {
        self.queries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fused::cost_model::Estimate;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_query_waits_until_the_gpu_is_ready() {
        let (all, query) = (Readiness::default(), "not loaded");
        let (cpu, gpu) = (10 * MS, 400 * MS);
        let reason = FallbackReason::NotLoaded(Estimate { cpu, gpu });
        let not_ready = || all.not_ready(query, || Some(cpu));
        assert_eq!(not_ready(), None);
        assert!(!all.is_awaited());
        all.add_not_ready(query, &reason);
        assert!(all.is_awaited());
        assert_eq!(not_ready(), Some(reason.clone()));
        assert_eq!(all.not_ready(query, || None), Some(reason.clone()));
        let is_slow = || Some(2 * gpu);
        assert_eq!(
            all.not_ready(query, is_slow),
            None,
            "loading takes less time"
        );
        all.add_ready(query);
        assert_eq!(not_ready(), None);
        // its columns may have been dropped, but not again and again
        all.add_not_ready(query, &reason);
        let mut runs = 0;
        while not_ready().is_some() {
            all.add_run(query);
            runs += 1;
        }
        assert_eq!(runs, MOST_RUNS, "then a run decides");
        all.add_not_ready(query, &reason);
        assert_eq!(not_ready(), None);
        (0..2 * MOST_QUERIES).for_each(|query| all.add_not_ready(&query.to_string(), &reason));
        assert!(all.queries().len() <= MOST_QUERIES);
    }
}
