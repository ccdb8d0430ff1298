//! What a node needs to decide between CPU and GPU when it runs, with `vectile.gpu = auto`.

use std::sync::Arc;

use crate::fused::background::{Background, SessionEnd};
use crate::fused::cost_model::{Costs, Estimate, Missing, Work};
use crate::fused::fallback_reason::FallbackReason;

/// How a node with `auto` decides.
#[derive(Clone, Debug)]
pub(crate) struct Auto {
    /// What the query may take on a device that is ready, as far as that was known when it was planned.
    pub(crate) estimate: Estimate,
    /// What there is to do, as far as that was known then.
    pub(crate) planned: Work,
    pub(crate) costs: Arc<Costs>,
    /// Where the device is made ready, if that is wanted.
    pub(crate) background: Option<Arc<Background>>,
    pub(crate) session: SessionEnd,
}

impl Auto {
    /// Why the CPU should do `work` of the query with this description, if it should.
    pub(crate) fn cpu_is_faster(
        &self,
        query: Option<&str>,
        work: Work,
        missing: Missing,
        cores: usize,
    ) -> Option<FallbackReason> {
        let estimate = self.costs.estimate(query, work, missing, cores);
        estimate.is_for_cpu().then(|| because_of(estimate, missing))
    }

    /// Why a query that ran on both should be left to the CPU, if that was faster.
    pub(crate) fn cpu_was_faster(&self, query: &str) -> Option<FallbackReason> {
        let estimate = self.costs.known_for_cpu(query)?;
        Some(because_of(estimate, Missing::default()))
    }

    /// Whether the query with this description is being made ready.
    pub(crate) fn is_being_prepared(&self, query: &str) -> bool {
        let background = self.background.as_ref();
        background.is_some_and(|background| background.is_pending(query))
    }

    /// The same for all of the work, with so many rows in dimensions, as long as the device is not open.
    pub(crate) fn cpu_is_faster_than_opening(
        &self,
        query: Option<&str>,
        rows: u64,
        cores: usize,
    ) -> Option<FallbackReason> {
        let missing = Missing {
            bytes: self.planned.bytes,
            rows,
            kernel: true,
            device: true,
        };
        self.cpu_is_faster(query, self.planned, missing, cores)
    }
}

/// Why the CPU is faster.
fn because_of(estimate: Estimate, missing: Missing) -> FallbackReason {
    match missing {
        _ if estimate.is_refused() => FallbackReason::Refused,
        Missing { device: true, .. } => FallbackReason::NotOpen(estimate),
        Missing { kernel: true, .. } => FallbackReason::NotCompiled(estimate),
        Missing { bytes: 1.., .. } | Missing { rows: 1.., .. } => {
            FallbackReason::NotLoaded(estimate)
        }
        _ => FallbackReason::CpuIsFaster(estimate),
    }
}
