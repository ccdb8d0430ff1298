//! The optimizer rules that move aggregates, joins and scans to the GPU where that is supported and expected to pay.
//!
//! ```text
//!  fusing     one run of a rule: walks the plan, and dispatches by operator
//!    aggregate  aggregates, also over groups
//!    join       joins whose rows are put out
//!    scan       filters and projections of scans
//!    build      key tables of build sides, built on the device
//!  share      aggregates that occur several times, to run once
//!  spread     rows of fused nodes, over partitions
//!  relation   lowers the relation below an operator: scan, joins, filters
//! ```

mod aggregate;
mod build;
mod fusing;
mod join;
mod relation;
mod scan;
mod share;
mod spread;

use std::iter;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::limited_distinct_aggregation::LimitedDistinctAggregation;
use datafusion::physical_plan::ExecutionPlan;

use self::fusing::Fusing;
use self::share::share_aggregates;
use self::spread::spread;
use super::background::{Session, SessionEnd};
use super::device::Gpu;
use super::exec::cpu_fallback::CanBeCopied;
use super::exec::fused_nodes::{as_fused, without_nodes};
use super::exec::prewarm::{PrewarmCandidate, PrewarmExec};
use super::pattern::reduction::reduce_groups;
use crate::fresh::fresh;
use crate::nullable;
use crate::options::{GpuMode, VectileOptions};
use crate::pushdown::Rule;

/// Fuses aggregates and joins, with the scans below them, into nodes for the GPU.
///
/// Runs before the rules about joins, filters, distribution and order, which see only the build sides of fused nodes.
/// Programs on the CPU run what is not on the GPU. If the CPU has to take over from a kernel, the same goes for its part of
/// the plan, to which all later rules are applied then.
#[derive(Debug)]
struct FuseGpuAggregates {
    gpu: Gpu,
    /// The rules that run after it.
    later: Arc<[Rule]>,
    can_be_copied: CanBeCopied,
    /// Held here and not by a later rule: plans hold the later rules, and tasks that end with the session hold plans.
    session: Session,
}

/// Fuses aggregates for programs, in a plan that a kernel has left to the CPU. If the GPU is switched off, nodes for it are
/// replaced by their CPU plans.
#[derive(Debug)]
struct FusePrograms {
    gpu: Gpu,
    later: Arc<[Rule]>,
    session: SessionEnd,
    /// True if groups have been reduced and aggregates shared before.
    is_reduced: bool,
}

/// Moves filters and projections of scans to the GPU. Runs late, when they are known.
#[derive(Debug)]
struct FuseGpuScans {
    gpu: Gpu,
    end: SessionEnd,
    /// The session, if there is no rule for aggregates to hold it.
    _session: Option<Session>,
}

/// The name of each rule, and of the rule before which it runs.
const AGGREGATES: [&str; 2] = ["FuseGpuAggregates", nullable::RULE];
const SCANS: [&str; 2] = ["FuseGpuScans", "EnsureCooperative"];

/// Adds the rules, or replaces those of another GPU. Plans that the CPU runs instead of a kernel are kept if they can be
/// copied.
pub(crate) fn insert_rules(rules: &mut Vec<Rule>, gpu: Gpu, can_be_copied: CanBeCopied) {
    rules.retain(|rule| ![AGGREGATES[0], SCANS[0]].contains(&rule.name()));
    let position_of = |rules: &[Rule], name| rules.iter().position(|rule| rule.name() == name);
    let session = Session::new();
    let scans = |session: Option<Session>, end| FuseGpuScans {
        gpu: gpu.clone(),
        end,
        _session: session,
    };
    let end = session.end();
    let of_scans = position_of(rules, SCANS[1]).unwrap_or(rules.len());
    // With other rules than ours, the partitions that operators above need may not be restored.
    let joins = position_of(rules, nullable::JOINS);
    match position_of(rules, AGGREGATES[1]).filter(|_| joins.is_some()) {
        Some(index) => {
            rules.insert(of_scans, Arc::new(scans(None, end)));
            let index = index + usize::from(of_scans <= index);
            let aggregates = FuseGpuAggregates {
                later: rules[index..].into(),
                gpu,
                can_be_copied,
                session,
            };
            rules.insert(index, Arc::new(aggregates));
        }
        None => rules.insert(of_scans, Arc::new(scans(Some(session), end))),
    }
}

impl FuseGpuAggregates {
    /// The rules for what a kernel leaves to the CPU.
    fn left_to_cpu(&self, is_reduced: bool) -> Arc<[Rule]> {
        let programs: Rule = Arc::new(FusePrograms {
            gpu: self.gpu.clone(),
            later: Arc::clone(&self.later),
            session: self.session.end(),
            is_reduced,
        });
        let later = self.later.iter().cloned();
        iter::once(programs).chain(later).collect()
    }
}

impl PhysicalOptimizerRule for FuseGpuAggregates {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let fusing = Fusing::new(&self.gpu, self.session.end(), &self.later, config);
        let Some(mut fusing) = fusing else {
            return Ok(plan);
        };
        // It shows which groups the query needs, and depends on no earlier rule.
        let plan = LimitedDistinctAggregation::new().optimize(plan, config)?;
        if fusing.is_on_cpu {
            return fusing.programs(plan);
        }
        let programs = fusing.for_programs();
        let plan = match programs.is_some() && fusing.is_reduced() {
            true => share_aggregates(reduce_groups(plan)?)?,
            false => plan,
        };
        fusing.can_be_copied = self.can_be_copied;
        fusing.left = self.left_to_cpu(fusing.is_reduced());
        let plan = fusing.operators(plan)?.data;
        let plan = match programs {
            Some(programs) => programs.operators(plan)?.data,
            None => plan,
        };
        // These nodes are in no plan, so that the optimizer does not reach what is below them.
        let waiting = fusing.waiting.into_inner().into_iter();
        let waiting = waiting.filter_map(|PrewarmCandidate { node, reason }| {
            let mut rules = self.later.iter();
            let node = rules.try_fold(node, |node, rule| rule.optimize(node, config));
            let node = node.ok().filter(|node| as_fused(node).is_some())?;
            Some(PrewarmCandidate { node, reason })
        });
        Ok(match waiting.collect::<Vec<_>>() {
            waiting if waiting.is_empty() => plan,
            waiting => Arc::new(PrewarmExec::new(plan, waiting)),
        })
    }

    fn name(&self) -> &str {
        AGGREGATES[0]
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl PhysicalOptimizerRule for FusePrograms {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let plan = match VectileOptions::of(config).gpu {
            // their CPU plans may run again
            GpuMode::Off => fresh(&without_nodes(plan)?)?,
            _ => plan,
        };
        let fusing = Fusing::new(&self.gpu, self.session.clone(), &self.later, config);
        match fusing.and_then(|fusing| fusing.for_programs()) {
            Some(fusing) if self.is_reduced => fusing.operators(plan).data(),
            Some(fusing) => fusing.programs(plan),
            None => Ok(plan),
        }
    }

    fn name(&self) -> &str {
        "FusePrograms"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl PhysicalOptimizerRule for FuseGpuScans {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        // This rule fuses no operators, whose CPU plans would need later rules.
        let plan = spread(plan)?;
        match Fusing::new(&self.gpu, self.end.clone(), &Arc::default(), config) {
            // Scans evaluate filters on the CPU without a program.
            Some(fusing) if fusing.options.gpu == GpuMode::Off => Ok(plan),
            Some(mut fusing) => {
                // without a device, they note why
                fusing.is_on_cpu = false;
                fusing.is_opened = plan.exists(|node| Ok(node.is::<PrewarmExec>()))?;
                Ok(fusing.scans(plan)?.data)
            }
            None => Ok(plan),
        }
    }

    fn name(&self) -> &str {
        SCANS[0]
    }

    fn schema_check(&self) -> bool {
        true
    }
}
