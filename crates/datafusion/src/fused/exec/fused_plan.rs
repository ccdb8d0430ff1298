//! Plan of a fused node: the kernel with its scan and joins, the operation, and the alternative on the CPU.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_plan::ExecutionPlan;

use super::auto::Auto;
use super::build_side::OtherExpr;
use super::cpu_fallback::CpuPlan;
use super::input::Input;
use super::operation::Operation;
use super::star_pipeline::StarTemplate;
use crate::fresh::fresh;
use crate::fused::cost_model::ColumnId;
use crate::fused::device::Gpu;
use crate::fused::fallback_reason::FallbackReason;
use crate::options::VectileOptions;
use crate::snapshot::lasting_name;
use crate::stack;

/// The plan of a fused node. It does not change when the node runs.
#[derive(Clone, Debug)]
pub(crate) struct FusedPlan<O> {
    pub(crate) gpu: Gpu,
    /// True if a program on the CPU runs the pipeline, and no kernel.
    pub(crate) is_on_cpu: bool,
    pub(crate) input: Input,
    pub(crate) star: StarTemplate,
    /// `None` unless `vectile.gpu = auto`.
    pub(crate) auto: Option<Auto>,
    /// All filters, for `EXPLAIN`.
    pub(crate) filter: Option<Arc<dyn PhysicalExpr>>,
    pub(crate) operation: O,
    pub(crate) options: VectileOptions,
    /// Computes the same rows.
    pub(crate) cpu: CpuPlan,
    /// Why no kernel could do it in an earlier run of this plan, of which copies know, too.
    pub(crate) refused: Arc<OnceLock<FallbackReason>>,
}

impl<O: Operation> FusedPlan<O> {
    /// The plans of the build sides.
    pub(super) fn children(&self) -> Vec<&Arc<dyn ExecutionPlan>> {
        let build_sides = self.star.dimensions.iter();
        build_sides.map(|build_side| &build_side.plan).collect()
    }

    /// A copy with other plans of the build sides.
    pub(super) fn with_children(&self, children: Vec<Arc<dyn ExecutionPlan>>) -> Result<Self> {
        let count = self.star.dimensions.len();
        if children.len() != count {
            return internal_err!("{} has {count} children", O::NAME);
        }
        let mut copy = self.clone();
        for (build_side, plan) in copy.star.dimensions.iter_mut().zip(children) {
            build_side.plan = plan;
        }
        Ok(copy)
    }

    /// A copy whose build sides have not run: their operators can run only once.
    pub(super) fn fresh(&self) -> Result<Self> {
        let children = self.children().into_iter().map(fresh);
        self.with_children(children.collect::<Result<_>>()?)
    }

    /// Replaces expressions of the kernel and of its scan by `other` of them.
    pub(super) fn with_exprs(mut self, other: OtherExpr<'_>) -> Result<Self> {
        self.star = self.star.with_exprs(other)?;
        self.filter = self.filter.as_ref().map(other).transpose()?;
        self.operation = self.operation.with_exprs(other)?;
        self.input.source = self.input.source.with_predicate(other)?;
        Ok(self)
    }

    /// Returns why the CPU should run the query, if that is known at planning. Always `None` without `auto`.
    pub(crate) fn is_for_cpu(&self, cores: usize) -> Option<FallbackReason> {
        let (auto, query) = (self.auto.as_ref()?, self.identity());
        if self.gpu.opened().is_some() {
            return auto.cpu_was_faster(&query, cores);
        }
        let builds = self.star.builds(None).unwrap_or_default();
        let bytes = self.star.build_bytes();
        let reason = auto.cpu_is_faster_than_opening(Some(&query), builds, bytes, cores);
        if reason.is_none() {
            auto.costs.add_opened(&query);
        }
        reason
    }

    /// Why the device was not ready for the query and may still not be.
    pub(crate) fn not_ready(&self) -> Option<FallbackReason> {
        let is_open = self.gpu.opened().is_some();
        let auto = self.auto.as_ref().filter(|_| is_open)?;
        // an identity takes longer to make than a cached plan to copy
        let is_awaited = auto.readiness.is_awaited();
        is_awaited.then(|| auto.not_ready(&self.identity()))?
    }

    /// The columns that the device reads.
    pub(super) fn column_ids(&self) -> Vec<ColumnId> {
        let mut columns = self.input.column_ids();
        columns.extend(self.star.build_columns());
        columns
    }

    /// True if preparing the device could change the decision for the CPU, which was made for this `reason`. A kernel is
    /// compiled once that pays, if the interpreter runs others.
    pub(super) fn may_be_prepared(&self, reason: &FallbackReason, cores: usize) -> bool {
        let Some(auto) = &self.auto else { return false };
        let lacks_only_kernel = matches!(reason, FallbackReason::NotCompiled(_));
        let is_early = lacks_only_kernel
            && auto.costs.has_interpreter()
            && !auto.is_worth_compiling(&self.identity(), cores);
        reason.can_be_prepared() && !is_early
    }

    /// Records the time of a CPU plan that includes this node's part, `share` of it where there are other nodes.
    pub(super) fn record_cpu(&self, took: Duration, share: Option<f64>) {
        let Some(auto) = &self.auto else { return };
        let query = self.identity();
        match share {
            None => auto.costs.add_cpu_within(&query, took),
            Some(share) => {
                let share = took.mul_f64(if share.is_finite() { share } else { 0.0 });
                auto.costs.add_cpu_share(&query, share);
            }
        }
        auto.readiness.add_run(&query);
    }

    /// Identifies the query: the operation and its files.
    pub(super) fn identity(&self) -> String {
        let files = self.input.config.file_groups.iter();
        let files = files.flat_map(|group| group.iter());
        let mut hasher = DefaultHasher::new();
        let mut last = None;
        for name in files.map(lasting_name) {
            // the segments of a table are neighbours
            if last.replace(name) != Some(name) {
                name.hash(&mut hasher);
            }
        }
        // exclude state that changes between runs: the estimate, and if the device is open
        let mut plan = self.clone();
        plan.auto = None;
        plan.gpu = Gpu::none("");
        let plan = plan.with_exprs(&without_subqueries);
        let plan = plan.as_ref().unwrap_or(self);
        format!("{plan} {:x}", hasher.finish())
    }
}

/// For `EXPLAIN`.
impl<O: Operation> fmt::Display for FusedPlan<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = stack::levels(&self.filter);
        stack::with_room(levels, || self.fmt_parts(f))
    }
}

impl<O: Operation> FusedPlan<O> {
    fn fmt_parts(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", O::NAME)?;
        if let Some(keys) = self.operation.group_by() {
            write!(f, "gby=[{keys}], ")?;
        }
        write!(f, "{}=[{}]", O::OUTPUTS, self.operation.outputs())?;
        if !self.star.dimensions.is_empty() {
            write!(f, ", joins=[{}]", self.star.joins())?;
        }
        if let Some(filter) = &self.filter {
            write!(f, ", filter={filter}")?;
        }
        self.operation.fmt_groups(f)?;
        write!(f, ", columns=[{}], device=", self.input)?;
        match self.is_on_cpu {
            true => f.write_str("CPU")?,
            false => write!(f, "{}", self.gpu)?,
        }
        if let Some(note) = self.input.source.gpu_note().filter(|_| self.is_on_cpu) {
            write!(f, ", not_on_gpu={}", note.reason)?;
        }
        match &self.auto {
            Some(auto) => write!(f, ", expected=[{}]", auto.expected),
            None => Ok(()),
        }
    }
}

/// Replaces subqueries in `expr` by a placeholder, as their display changes once they have run.
fn without_subqueries(expr: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let without = Arc::clone(expr).transform_up(|expr| {
        Ok(match expr.is::<ScalarSubqueryExpr>() {
            true => Transformed::yes(Arc::new(Column::new("subquery", 0)) as _),
            false => Transformed::no(expr),
        })
    });
    without.data()
}
