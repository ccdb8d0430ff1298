//! Wraps a CPU plan that has parts which the GPU could run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::common::{Result, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, DisplayAs, DisplayFormatType, ExecutionPlan, PlanProperties,
    ReplaceChildrenOptions, SendableRecordBatchStream,
};

use super::fused_exec::FusedNode;
use super::fused_nodes::as_fused;
use super::fused_run::at_end;
use crate::fused::fallback_reason::FallbackReason;

/// Passes on the rows of its input. When it runs, it prepares the GPU for the next run, if that is enabled and would
/// help. It records the CPU's time, by which later runs are planned.
#[derive(Debug)]
pub(crate) struct PrewarmExec {
    input: Arc<dyn ExecutionPlan>,
    waiting: Vec<PrewarmCandidate>,
    has_begun: AtomicBool,
}

/// A part of a query that could run on the GPU.
#[derive(Clone, Debug)]
pub(crate) struct PrewarmCandidate {
    /// A fused node.
    pub(crate) node: Arc<dyn ExecutionPlan>,
    /// Why it runs on the CPU.
    pub(crate) reason: FallbackReason,
}

impl PrewarmExec {
    pub(crate) fn new(input: Arc<dyn ExecutionPlan>, waiting: Vec<PrewarmCandidate>) -> Self {
        Self {
            input,
            waiting,
            has_begun: AtomicBool::new(false),
        }
    }

    /// True if the nodes wait for the same as when this was planned. Never for those that wait for a device to open: each
    /// run decides anew.
    fn is_current(&self) -> bool {
        nodes(&self.waiting).all(|(node, reason)| reason.is_settled() || node.not_ready().is_some())
    }

    /// True if nothing is prepared: it only records times.
    pub(crate) fn is_settled(&self) -> bool {
        let mut waiting = self.waiting.iter();
        waiting.all(|waiting| waiting.reason.is_settled())
    }
}

/// True if `plan` would be planned again as it was, as to what the device is ready for.
pub(crate) fn is_current(plan: &Arc<dyn ExecutionPlan>) -> bool {
    if let Some(prewarm) = plan.downcast_ref::<PrewarmExec>()
        && !prewarm.is_current()
    {
        return false;
    }
    match as_fused(plan) {
        Some(node) => node.not_ready().is_none(),
        None => plan.children().into_iter().all(is_current),
    }
}

/// Nodes, and why the CPU runs them.
fn nodes(waiting: &[PrewarmCandidate]) -> impl Iterator<Item = (&dyn FusedNode, &FallbackReason)> {
    let waiting = waiting.iter();
    waiting.filter_map(|waiting| Some((as_fused(&waiting.node)?, &waiting.reason)))
}

impl DisplayAs for PrewarmExec {
    fn fmt_as(&self, _: DisplayFormatType, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prepared = nodes(&self.waiting).filter(|(_, reason)| reason.can_be_prepared());
        write!(f, "PrewarmExec: aggregates={}", prepared.count())
    }
}

impl ExecutionPlan for PrewarmExec {
    fn name(&self) -> &str {
        "PrewarmExec"
    }

    fn properties(&self) -> &Arc<PlanProperties> {
        self.input.properties()
    }

    fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        vec![&self.input]
    }

    fn maintains_input_order(&self) -> Vec<bool> {
        vec![true]
    }

    fn benefits_from_input_partitioning(&self) -> Vec<bool> {
        vec![false]
    }

    fn replace_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
        _: ReplaceChildrenOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Ok([input]) = <[_; 1]>::try_from(children) else {
            return internal_err!("PrewarmExec has one child");
        };
        Ok(Arc::new(Self::new(input, self.waiting.clone())))
    }

    fn with_new_children(
        self: Arc<Self>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        self.replace_children(children, options)
    }

    fn apply_expressions(
        &self,
        _: &mut dyn FnMut(&Arc<dyn PhysicalExpr>) -> Result<TreeNodeRecursion>,
    ) -> Result<TreeNodeRecursion> {
        Ok(TreeNodeRecursion::Continue)
    }

    fn execute(
        &self,
        partition: usize,
        context: Arc<TaskContext>,
    ) -> Result<SendableRecordBatchStream> {
        if self.has_begun.swap(true, Ordering::Relaxed) {
            return self.input.execute(partition, context);
        }
        let waiting = self.waiting.clone();
        let begun = Instant::now();
        let rows = self.input.execute(partition, Arc::clone(&context))?;
        Ok(at_end(rows, move || {
            let took = begun.elapsed();
            let expected = nodes(&waiting).map(|(node, _)| node.expected_on_cpu());
            let expected: f64 = expected.sum();
            for (node, reason) in nodes(&waiting) {
                let share = node.expected_on_cpu() / expected;
                node.record_cpu(took, (waiting.len() > 1).then_some(share));
                // only now: until here the query needs all cores
                node.prepare_in_background(reason, Arc::clone(&context));
            }
        }))
    }
}
