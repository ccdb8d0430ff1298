//! The CPU plan that a fused node falls back to.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::fresh::fresh;
use crate::pushdown::Rule;

/// A plan for the CPU. Rules after the replacement are applied only when it runs, because it is seldom needed.
#[derive(Clone, Debug)]
pub(crate) struct CpuPlan {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// Rules to apply to the plan before it runs.
    pub(crate) rules: Arc<[Rule]>,
}

impl CpuPlan {
    /// Optimizes the plan and merges its partitions into one.
    pub(crate) fn optimized(&self, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        // It shares operators with build sides that may have run.
        let plan = fresh(&self.plan)?;
        let mut rules = self.rules.iter();
        let plan = rules.try_fold(plan, |plan, rule| rule.optimize(plan, config))?;
        Ok(match plan.output_partitioning().partition_count() {
            0 | 1 => plan,
            _ => Arc::new(CoalescePartitionsExec::new(plan)),
        })
    }
}
