//! Decides between CPU and GPU at execution, with `vectile.gpu = auto`.

use std::sync::Arc;

use crate::fused::background::{Background, SessionEnd};
use crate::fused::cost_model::{Builds, Costs, Estimate, Expected, Missing, MissingKernel, Work};
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::readiness::Readiness;

/// Inputs of the decision: estimates, measured costs and the background worker.
#[derive(Clone, Debug)]
pub(crate) struct Auto {
    /// Expected times if the device is ready, as of planning.
    pub(crate) expected: Expected,
    /// The work to do, as of planning.
    pub(crate) planned: Work,
    pub(crate) costs: Arc<Costs>,
    pub(crate) readiness: Arc<Readiness>,
    /// Worker that prepares the device; `None` if disabled.
    pub(crate) background: Option<Arc<Background>>,
    pub(crate) session: SessionEnd,
}

impl Auto {
    /// Returns why the CPU should do `work`, if it is estimated to be faster. `query` identifies the query for measured
    /// times.
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

    /// Returns why the CPU should run a query that has run on both, if it was faster.
    pub(crate) fn cpu_was_faster(&self, query: &str, cores: usize) -> Option<FallbackReason> {
        let estimate = self.costs.known_for_cpu(query, self.planned, cores)?;
        Some(because_of(estimate, Missing::default()))
    }

    /// Returns why the device was not ready for a query and may still not be. `None` without a background that makes it
    /// ready.
    pub(crate) fn not_ready(&self, query: &str) -> Option<FallbackReason> {
        self.background.as_ref()?;
        self.readiness
            .not_ready(query, || self.costs.cpu_time(query))
    }

    /// Notes why the device was not ready for a query, if the background may make it ready.
    pub(crate) fn add_not_ready(&self, query: &str, reason: &FallbackReason) {
        if self.background.is_some() && reason.can_be_prepared() {
            self.readiness.add_not_ready(query, reason);
        }
    }

    /// True if a generated kernel is expected to have saved more by now than it takes to compile it.
    pub(crate) fn is_worth_compiling(&self, query: &str, cores: usize) -> bool {
        self.costs.is_worth_compiling(query, self.planned, cores)
    }

    /// True if the background worker has a pending task for `query`.
    pub(crate) fn is_being_prepared(&self, query: &str) -> bool {
        let background = self.background.as_ref();
        background.is_some_and(|background| background.is_pending(query))
    }

    /// Like [`Self::cpu_is_faster`] for the planned work, if the device is not open. Build sides read `bytes` on it.
    pub(crate) fn cpu_is_faster_than_opening(
        &self,
        query: Option<&str>,
        builds: Builds,
        bytes: u64,
        cores: usize,
    ) -> Option<FallbackReason> {
        let missing = Missing {
            bytes: self.planned.bytes.saturating_add(bytes),
            builds,
            kernel: match self.costs.has_interpreter() {
                true => MissingKernel::Interpreted,
                false => MissingKernel::Compiled,
            },
            device: true,
        };
        // A wrong guess would cost the first query more than it takes: an aggregate may have a program.
        let work = Work {
            is_for_operators: self.planned.is_for_operators && self.planned.states == 0,
            ..self.planned
        };
        self.cpu_is_faster(query, work, missing, cores)
    }
}

/// The reason for an estimate that favours the CPU.
fn because_of(estimate: Estimate, missing: Missing) -> FallbackReason {
    match missing {
        _ if estimate.is_refused() => FallbackReason::Refused,
        Missing { device: true, .. } => FallbackReason::NotOpen(estimate),
        _ if missing.kernel != MissingKernel::Nothing => FallbackReason::NotCompiled(estimate),
        _ if missing.is_loaded() => FallbackReason::CpuIsFaster(estimate),
        _ => FallbackReason::NotLoaded(estimate),
    }
}
