//! One run of a rule: walks a plan and replaces what can be fused.

use std::cell::RefCell;
use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_datafusion_err, plan_err};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::recursive_query::RecursiveQueryExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use datafusion::physical_plan::sorts::sort_preserving_merge::SortPreservingMergeExec;
use datafusion::physical_plan::work_table::WorkTableExec;

use super::share::share_aggregates;
use crate::error;
use crate::fused::background::SessionEnd;
use crate::fused::cost_model::{Missing, Work};
use crate::fused::device::Gpu;
use crate::fused::exec::auto::Auto;
use crate::fused::exec::cpu_fallback::{CanBeCopied, CpuPlan};
use crate::fused::exec::fused_exec::FusedExec;
use crate::fused::exec::fused_nodes::as_fused;
use crate::fused::exec::fused_plan::FusedPlan;
use crate::fused::exec::operation::Operation;
use crate::fused::exec::prewarm::PrewarmCandidate;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::lowering::group_pruning::GroupPruning;
use crate::fused::pattern::aggregates::Aggregates;
use crate::fused::pattern::exchange::is_exchange;
use crate::fused::pattern::reduction::reduce_groups;
use crate::options::{FuseMode, GpuMode, VectileOptions};
use crate::pushdown::Rule;
use crate::source::{GpuNote, VectileSource, scan_of};
use crate::stack;

/// Decisions about the operators above, passed down the plan.
#[derive(Clone, Copy, Default)]
struct ParentContext<'a> {
    /// Why the operator that reads the plan was not fused with it.
    reason: Option<&'a FallbackReason>,
    /// True if an operator's cost was estimated together with the joins below it, and the CPU is faster.
    is_for_cpu: bool,
    /// How they restrict the rows, if they do.
    pruning: Option<&'a GroupPruning>,
}

/// Joins that become fused nodes of their own.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Joins {
    All,
    /// Joins of a large table; others are not worth a kernel.
    Large,
    None,
}

/// One run of a rule, with its settings.
pub(super) struct Fusing<'a> {
    pub(super) gpu: &'a Gpu,
    session: SessionEnd,
    pub(super) options: VectileOptions,
    /// Number of cores that the CPU would use.
    pub(super) cores: usize,
    /// True if a top-k tells the scan below which rows it still needs.
    pub(super) has_top_k_filters: bool,
    pub(super) joins: Joins,
    /// True if programs on the CPU run what is fused.
    pub(super) is_on_cpu: bool,
    /// The rules that run after this one.
    pub(super) later: &'a Arc<[Rule]>,
    /// The rules for what a kernel leaves to the CPU.
    pub(super) left: Arc<[Rule]>,
    pub(super) can_be_copied: CanBeCopied,
    /// True if an aggregate opens the device once the CPU has answered.
    pub(super) is_opened: bool,
    /// Nodes that could run on the GPU, but are left to the CPU for now.
    pub(super) waiting: RefCell<Vec<PrewarmCandidate>>,
    /// True if those are prepared: the nodes are of the plan itself, and not of build sides.
    is_whole: bool,
}

/// The node that replaces an operator; `None` if it is not an operator that can be fused.
pub(super) type Fused = Result<Option<Arc<dyn ExecutionPlan>>, FallbackReason>;

impl<'a> Fusing<'a> {
    /// `None` if nothing is fused: the GPU is switched off, and programs on the CPU are, too.
    pub(super) fn new(
        gpu: &'a Gpu,
        session: SessionEnd,
        later: &'a Arc<[Rule]>,
        config: &ConfigOptions,
    ) -> Option<Self> {
        let is_off = VectileOptions::of(config).gpu == GpuMode::Off;
        let own = Self {
            gpu,
            session,
            options: VectileOptions::of(config),
            cores: config.execution.target_partitions,
            has_top_k_filters: config.optimizer.enable_topk_dynamic_filter_pushdown,
            joins: Joins::All,
            is_on_cpu: false,
            later,
            left: Arc::default(),
            can_be_copied: |_| false,
            is_opened: false,
            waiting: RefCell::default(),
            is_whole: true,
        };
        if !is_off && !matches!(gpu.opened(), Some(Err(_))) {
            return Some(own);
        }
        match own.may_run_programs() {
            true => Some(Self {
                is_on_cpu: true,
                ..own
            }),
            false => (!is_off).then_some(own),
        }
    }

    /// Fuses for programs what is left to the CPU; `None` if those are switched off, or everything has to be on the GPU.
    pub(super) fn for_programs(&self) -> Option<Self> {
        let mut programs = self.lenient(Joins::All);
        programs.options.gpu = GpuMode::Off;
        programs.is_on_cpu = true;
        self.may_run_programs().then_some(programs)
    }

    fn may_run_programs(&self) -> bool {
        self.options.fuse != FuseMode::Off && self.options.gpu != GpuMode::Require
    }

    /// Fuses the aggregates of a plan that runs on the CPU as a whole.
    pub(super) fn programs(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = share_aggregates(reduce_groups(plan)?)?;
        self.operators(plan).data()
    }

    /// Fuses the aggregates and joins of `plan` where possible.
    pub(super) fn operators(
        &self,
        plan: Arc<dyn ExecutionPlan>,
    ) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        self.operators_below(plan, ParentContext::default())
    }

    /// The same below an aggregate that was not fused for this reason.
    pub(super) fn operators_of_branch(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        reason: Option<&FallbackReason>,
    ) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        let parent = ParentContext {
            reason,
            is_for_cpu: reason.is_some_and(FallbackReason::is_for_cpu),
            pruning: None,
        };
        self.operators_below(plan, parent)
    }

    fn operators_below(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        parent: ParentContext<'_>,
    ) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        if as_fused(&plan).is_some() {
            // of a kernel, which reads the plans of its build sides
            let build_sides = self.lenient(Joins::Large);
            return plan.map_children(|child| stack::grown(|| build_sides.operators(child)));
        }
        let mut reason = parent.reason.cloned();
        let mut is_for_cpu = parent.is_for_cpu;
        if let Some(aggregates) = Aggregates::of(&plan) {
            match self.fuse_aggregate(&plan, aggregates, parent.pruning) {
                Ok(Some(fused)) => return Ok(Transformed::yes(fused)),
                Ok(None) => reason = None,
                Err(why) => {
                    self.check(&why)?;
                    is_for_cpu |= why.is_for_cpu();
                    reason = Some(why);
                }
            }
        } else if !is_for_cpu {
            match self.fuse_join(&plan) {
                Ok(Some(fused)) => return Ok(Transformed::yes(fused)),
                Ok(None) => {}
                // The filters of its scans may pay even if the join does not.
                Err(why) if why.is_for_cpu() => is_for_cpu = true,
                Err(why) => {
                    self.check(&why)?;
                    reason = reason.or(Some(why));
                }
            }
        }
        if let Some(scan) = plan.downcast_ref::<DataSourceExec>()
            && let Some((config, source)) = scan.downcast_to_file_source::<VectileSource>()
            && let Some(reason) = reason
        {
            return Ok(match self.with_note(source, &reason) {
                Some(noted) => Transformed::yes(scan_of(config, noted)),
                None => Transformed::no(plan),
            });
        }
        let propagated = || parent.pruning?.below(&plan).ok().flatten();
        let pruning = GroupPruning::of(&plan).or_else(propagated);
        let below = ParentContext {
            reason: reason.as_ref(),
            is_for_cpu,
            pruning: pruning.as_ref(),
        };
        plan.map_children(|child| stack::grown(|| self.operators_below(child, below)))
    }

    /// Moves the scans of `plan` to the GPU where possible.
    pub(super) fn scans(
        &self,
        plan: Arc<dyn ExecutionPlan>,
    ) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        self.scans_below(plan, false)
    }

    /// `are_first` says that an operator above needs only the rows that come first in an order.
    fn scans_below(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        are_first: bool,
    ) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        if as_fused(&plan).is_some() {
            // The fused node has the main scan of the query.
            let lenient = self.lenient(Joins::None);
            return plan.map_children(|child| lenient.scans(child));
        }
        let Some(scan) = plan.downcast_ref::<DataSourceExec>() else {
            let are_first = match plan.downcast_ref::<SortExec>() {
                Some(sort) => sort.fetch().is_some(),
                None => are_first && keeps_rows_apart(&plan),
            };
            return plan.map_children(|child| stack::grown(|| self.scans_below(child, are_first)));
        };
        let Some((config, source)) = scan.downcast_to_file_source::<VectileSource>() else {
            return Ok(Transformed::no(plan));
        };
        if source.gpu_note().is_some_and(|note| note.is_of_cost) {
            // If the CPU is cheaper for the operator above, filtering for it on the GPU does not pay either.
            return Ok(Transformed::no(plan));
        }
        let own = match self.fuse_scan(config, source, are_first) {
            Ok(fused) => return Ok(Transformed::yes(scan_of(config, fused))),
            Err(own) => own,
        };
        self.check(&own)?;
        if self.options.gpu == GpuMode::Require {
            let above = source.gpu_note().map(|note| Arc::clone(&note.reason));
            let reason = above.unwrap_or_else(|| own.to_string().into());
            return plan_err!("vectile.gpu = require: {reason}");
        }
        let noted = match source.gpu_note() {
            Some(_) => None,
            None => self.with_note(source, &own),
        };
        Ok(match noted {
            Some(noted) => Transformed::yes(scan_of(config, noted)),
            None => Transformed::no(plan),
        })
    }

    /// Reports a defect of Vectile instead of hiding it behind the CPU's answer.
    ///
    /// # Errors
    ///
    /// The defect, with `require` and on an emulator.
    fn check(&self, reason: &FallbackReason) -> Result<()> {
        let FallbackReason::Defect(defect) = reason else {
            return Ok(());
        };
        let error = internal_datafusion_err!("{defect}");
        match self.options.gpu {
            GpuMode::Require => Err(error::required(error)),
            _ => self.gpu.left_to_cpu(error).map(drop),
        }
    }

    /// Records in the scan why it, or the operator that reads it, is not fused; `None` if no GPU may be present. What has
    /// no program is not on the GPU because that failed.
    fn with_note(&self, source: &VectileSource, reason: &FallbackReason) -> Option<VectileSource> {
        let failed = match self.gpu.opened() {
            Some(Err(failed)) if self.is_on_cpu && self.options.gpu != GpuMode::Off => {
                Some(FallbackReason::NoDevice(failed))
            }
            _ => None,
        };
        let is_of_gpu = !self.is_on_cpu || failed.is_some();
        let reason = failed.as_ref().unwrap_or(reason);
        (self.gpu.may_be_there() && is_of_gpu).then(|| {
            source.clone().with_gpu_note(GpuNote {
                reason: reason.to_string().into(),
                is_of_cost: reason.is_of_cost(),
            })
        })
    }

    /// The fused node for `plan`, or the reason why the CPU is used.
    pub(super) fn node<O: Operation>(&self, plan: FusedPlan<O>) -> Fused {
        let not_ready = || plan.not_ready().filter(|_| self.is_whole);
        let reason = plan.is_for_cpu(self.cores).or_else(not_ready);
        let node: Arc<dyn ExecutionPlan> = Arc::new(FusedExec::new(plan));
        match reason {
            // If the CPU answers, opening the device is part of prewarming.
            Some(reason) => {
                let mut waiting = self.waiting.borrow_mut();
                waiting.push(PrewarmCandidate {
                    node,
                    reason: reason.clone(),
                });
                Err(reason)
            }
            None => {
                if !self.is_on_cpu {
                    self.gpu.open_in_background();
                }
                Ok(Some(node))
            }
        }
    }

    /// The plan that the CPU runs instead of a fused one.
    pub(super) fn cpu_plan(&self, plan: Arc<dyn ExecutionPlan>) -> Result<CpuPlan, FallbackReason> {
        if reads_work_table(&plan) {
            return Err(FallbackReason::WorkTable);
        }
        let rules = match self.is_on_cpu {
            true => self.later,
            false => &self.left,
        };
        Ok(CpuPlan::new(plan, Arc::clone(rules), self.can_be_copied))
    }

    /// True if groups are reduced and aggregates shared before anything is fused for the GPU: with `auto`, programs may run
    /// all of it.
    pub(super) fn is_reduced(&self) -> bool {
        self.options.gpu == GpuMode::Auto
    }

    /// The settings for plans whose scans need not be on the GPU.
    pub(super) fn lenient(&self, joins: Joins) -> Self {
        let mut options = self.options.clone();
        if options.gpu == GpuMode::Require {
            options.gpu = GpuMode::Auto;
        }
        Self {
            options,
            joins,
            session: self.session.clone(),
            left: Arc::clone(&self.left),
            waiting: RefCell::default(),
            is_whole: false,
            ..*self
        }
    }

    /// With `auto`, estimates the time on the CPU and on the GPU. The estimate is revised once zone maps and the
    /// device's memory have been inspected.
    ///
    /// # Errors
    ///
    /// There is no device, or the CPU would be faster than a device with all data in its memory.
    pub(super) fn estimated(&self, work: Work) -> Result<Option<Auto>, FallbackReason> {
        if self.is_on_cpu {
            return Ok(None);
        }
        self.gpu
            .opened()
            .transpose()
            .map_err(FallbackReason::NoDevice)?;
        if self.options.gpu != GpuMode::Auto {
            self.gpu.open_in_background();
            return Ok(None);
        }
        let costs = self.gpu.costs();
        let estimate = costs.estimate(None, work, Missing::default(), self.cores);
        if estimate.is_for_cpu() {
            return Err(FallbackReason::CpuIsFaster(estimate));
        }
        let background = Arc::clone(self.gpu.background());
        Ok(Some(Auto {
            expected: costs.expected(work, self.cores),
            planned: work,
            costs: Arc::clone(costs),
            readiness: Arc::clone(self.gpu.readiness()),
            background: self.options.gpu_background.then_some(background),
            session: self.session.clone(),
        }))
    }
}

/// True if each row of `plan` is one of its input.
fn keeps_rows_apart(plan: &Arc<dyn ExecutionPlan>) -> bool {
    plan.is::<ProjectionExec>()
        || plan.is::<FilterExec>()
        || plan.is::<SortPreservingMergeExec>()
        || is_exchange(plan)
}

/// Returns true if `plan` reads the work table of a recursive query that it is a part of. The work table has its rows
/// for one reader, which the recursive query finds among the children of operators; a fallback plan is not one of them.
fn reads_work_table(plan: &Arc<dyn ExecutionPlan>) -> bool {
    match plan.downcast_ref::<RecursiveQueryExec>() {
        // The recursive term reads the query's own work table.
        Some(query) => reads_work_table(query.static_term()),
        None => plan.is::<WorkTableExec>() || plan.children().into_iter().any(reads_work_table),
    }
}
