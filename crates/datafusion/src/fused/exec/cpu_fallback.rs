//! The CPU plan that a fused node falls back to.

use std::sync::{Arc, OnceLock};

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::config::ConfigOptions;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::{ExecutionPlan, ExecutionPlanProperties};

use super::fused_nodes::as_fused;
use crate::fresh::fresh;
use crate::plan_cache::can_be_copied;
use crate::pushdown::Rule;
use crate::shared::SharedExec;

/// A plan for the CPU. Rules after the replacement are applied only when it runs, because it is seldom needed.
#[derive(Clone, Debug)]
pub(crate) struct CpuPlan {
    pub(crate) plan: Arc<dyn ExecutionPlan>,
    /// Rules to apply to the plan before it runs.
    rules: Arc<[Rule]>,
    /// The optimized plan without fused nodes, once it has run, if it can be copied: copies of this one share it.
    known: Arc<OnceLock<Arc<dyn ExecutionPlan>>>,
}

impl CpuPlan {
    /// A plan that `rules` are to be applied to before it runs.
    pub(crate) fn new(plan: Arc<dyn ExecutionPlan>, rules: Arc<[Rule]>) -> Self {
        Self {
            plan,
            rules,
            known: Arc::default(),
        }
    }

    /// The same for another plan.
    pub(crate) fn of(&self, plan: Arc<dyn ExecutionPlan>) -> Self {
        Self::new(plan, Arc::clone(&self.rules))
    }

    /// Optimizes the plan and merges its partitions into one. Without `keeps_nodes`, fused nodes in it are replaced by
    /// their own CPU plans.
    pub(crate) fn optimized(
        &self,
        config: &ConfigOptions,
        keeps_nodes: bool,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if keeps_nodes {
            return self.applied(fresh(&self.plan)?, config);
        }
        if let Some(known) = self.known.get() {
            return fresh(known);
        }
        let plan = fresh(&without_nodes(Arc::clone(&self.plan))?)?;
        let plan = self.applied(plan, config)?;
        if !can_be_copied(&plan) {
            return Ok(plan);
        }
        fresh(self.known.get_or_init(|| plan))
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

/// `plan` with the CPU plan of each fused node in its place. Shared plans stay: all their readers have to get the same rows.
fn without_nodes(plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
    let unfused = plan.transform_down(|mut node| {
        if node.is::<SharedExec>() {
            return Ok(Transformed::new(node, false, TreeNodeRecursion::Jump));
        }
        let mut is_fused = false;
        while let Some(cpu) = as_fused(&node).map(|fused| Arc::clone(fused.cpu())) {
            (node, is_fused) = (cpu, true);
        }
        Ok(match is_fused {
            true => Transformed::yes(node),
            false => Transformed::no(node),
        })
    });
    unfused.data()
}
