//! The CPU plan that a fused node falls back to.

use std::sync::{Arc, OnceLock};

use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::fresh::fresh;
use crate::pushdown::Rule;

/// True for optimized plans that can be copied after they have run.
pub(crate) type CanBeCopied = fn(&Arc<dyn ExecutionPlan>) -> bool;

/// A plan for the CPU. Rules after the replacement are applied only when it runs, because it is seldom needed.
#[derive(Clone, Debug)]
pub(crate) struct CpuPlan {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// Rules to apply to the plan before it runs.
    rules: Arc<[Rule]>,
    can_be_copied: CanBeCopied,
    /// The optimized plan, if it is kept and can be copied. Copies of this one share it.
    known: Arc<OnceLock<Arc<dyn ExecutionPlan>>>,
}

impl CpuPlan {
    /// A plan that `rules` are to be applied to before it runs.
    pub(crate) fn new(
        plan: Arc<dyn ExecutionPlan>,
        rules: Arc<[Rule]>,
        can_be_copied: CanBeCopied,
    ) -> Self {
        Self {
            plan,
            rules,
            can_be_copied,
            known: Arc::default(),
        }
    }

    /// The same for another plan.
    pub(crate) fn of(&self, plan: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(plan, Arc::clone(&self.rules), self.can_be_copied)
    }

    /// Optimizes the plan and merges its partitions into one. With `is_kept`, the result is kept for later runs, which have
    /// to have the same `config`.
    pub(crate) fn optimized(
        &self,
        config: &ConfigOptions,
        is_kept: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if let Some(known) = self.known.get().filter(|_| is_kept) {
            return fresh(known);
        }
        let plan = self.applied(fresh(&self.plan)?, config)?;
        match is_kept && (self.can_be_copied)(&plan) {
            true => fresh(self.known.get_or_init(|| plan)),
            false => Ok(plan),
        }
    }

    /// The optimized `plan`, which shares no operators with build sides that may have run.
    fn applied(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut rules = self.rules.iter();
        let plan = rules.try_fold(plan, |plan, rule| rule.optimize(plan, config))?;
        Ok(match plan.output_partitioning().partition_count() {
            0 | 1 => plan,
            _ => Arc::new(CoalescePartitionsExec::new(plan)),
        })
    }
}
