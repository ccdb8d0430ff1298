//! What the CPU does where the device cannot.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::config::ConfigOptions;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use crate::fresh::fresh;
use crate::pushdown::Rule;

/// A plan for the CPU. It is seldom needed, so that it is left as it was when something else took its place.
#[derive(Clone, Debug)]
pub(crate) struct CpuPlan {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// Those that are still to be applied to it.
    pub(crate) rules: Arc<[Rule]>,
}

impl CpuPlan {
    /// The plan as it is to run, in one partition.
    pub(crate) fn optimized(&self, config: &ConfigOptions) -> Result<Arc<dyn ExecutionPlan>> {
        // Dimensions that were read share operators with it.
        let plan = fresh(&self.plan)?;
        let mut rules = self.rules.iter();
        let plan = rules.try_fold(plan, |plan, rule| rule.optimize(plan, config))?;
        Ok(match plan.output_partitioning().partition_count() {
            0 | 1 => plan,
            _ => Arc::new(CoalescePartitionsExec::new(plan)),
        })
    }
}
