//! Plans key tables that the device builds from the output of a kernel.

use std::sync::Arc;

use datafusion::physical_expr::PhysicalExpr;
use vectile_pipeline::Output;

use super::aggregate::{GroupTarget, relation_of};
use super::fusing::Fusing;
use super::relation::{FusedParts, FusionTarget};
use crate::fused::cost_model::Work;
use crate::fused::exec::build_side::BuildSide;
use crate::fused::exec::device_build::{BuildOutput, DeviceBuild};
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::lowering::build_output::BuildColumns;
use crate::fused::lowering::expression::Lowering;
use crate::fused::lowering::function::Named;
use crate::fused::lowering::nested_aggregate::{AggregateOverGroups, BuildFromGroups};
use crate::fused::pattern::probe_side::ProbeSide;
use crate::fused::pattern::relation::Relation;

/// The key tables of a build side.
struct TableTarget<'a>(&'a BuildSide);

impl FusionTarget for TableTarget<'_> {
    const IS_AGGREGATED: bool = false;
    type Outputs = BuildColumns;

    fn lower(
        &self,
        relation: &Relation,
        lowering: &mut Lowering<'_>,
    ) -> Result<(BuildColumns, Output), FallbackReason> {
        let over = |expr: &Arc<dyn PhysicalExpr>| relation.over_table(expr);
        let columns = self.0.build_columns(over, lowering)?;
        let output = Output::Rows(columns.of_kernel().to_vec());
        Ok((columns, output))
    }

    fn work(&self, _: &Relation, _: Work) -> Result<Option<Work>, FallbackReason> {
        Ok(None)
    }
}

impl Fusing<'_> {
    /// Plans how the device builds the key tables of a build side, or why it cannot; `None` if it is too small.
    pub(super) fn plan_build(
        &self,
        build_side: &BuildSide,
    ) -> Option<Result<DeviceBuild, FallbackReason>> {
        let rows = build_side.scanned_rows()?;
        let is_large = rows >= self.options.gpu_tuning.build_from_rows;
        is_large.then(|| {
            // A cached plan knows the subqueries of its own nodes only.
            if !build_side.is_fixed() {
                let reason = "what it reads may be another thing the next time";
                return Err(FallbackReason::Join(reason.into()));
            }
            if build_side.has_subqueries()? {
                return Err(FallbackReason::Join(
                    "it has the result of a subquery".into(),
                ));
            }
            match Relation::of(&build_side.plan, ProbeSide::LargestTable)? {
                Some(relation) => self.build_from_rows(build_side, relation),
                None => self.build_from_groups(build_side),
            }
        })
    }

    fn build_from_rows(
        &self,
        build_side: &BuildSide,
        relation: Relation,
    ) -> Result<DeviceBuild, FallbackReason> {
        let parts = self.lower_relation(&TableTarget(build_side), relation)?;
        Ok(self.device_build(parts, |columns| {
            vec![BuildOutput {
                columns,
                post_aggregation: None,
            }]
        }))
    }

    fn build_from_groups(&self, build_side: &BuildSide) -> Result<DeviceBuild, FallbackReason> {
        let no_groups = || FallbackReason::Join("it is no table, nor groups of one".into());
        let groups = AggregateOverGroups::below(&build_side.plan)?.ok_or_else(no_groups)?;
        let (inner, relation) =
            relation_of(&groups.inner, ProbeSide::LargestTable)?.ok_or_else(no_groups)?;
        if !inner.group_expr().is_single() || inner.limit_options().is_some() {
            return Err(FallbackReason::GroupingSets);
        }
        let target = GroupTarget {
            aggregate: &inner,
            is_for_tables: true,
        };
        let parts = self.lower_relation(&target, relation)?;
        let (keys, functions) = (&parts.outputs.keys, &parts.outputs.functions);
        if !parts.has_distinct_groups() || keys.of_kernel().is_empty() {
            return Err(no_groups());
        }
        // The original expressions have the names that the plan uses.
        let functions = functions.iter().copied();
        let named = groups.inner.partial.aggr_expr().iter().cloned();
        let functions: Vec<Named> = functions.zip(named).collect();
        let lower = |may_round| {
            BuildFromGroups::lower(&groups, keys, &functions, may_round, |over, lowering| {
                build_side.build_columns(over, lowering)
            })
        };
        let rounding = lower(true)?;
        // The alternative leaves to the CPU what kernels may be unable to round.
        let others = lower(false).ok();
        let others =
            others.filter(|others| others.columns.of_kernel() != rounding.columns.of_kernel());
        let built = [Some(rounding), others].into_iter().flatten();
        let outputs = built.map(|built| BuildOutput {
            columns: built.columns,
            post_aggregation: Some(built.post_aggregation),
        });
        let outputs = outputs.collect();
        Ok(self.device_build(parts, |_| outputs))
    }

    /// The build from the outputs of a kernel.
    fn device_build<T>(
        &self,
        parts: FusedParts<T>,
        outputs: impl FnOnce(T) -> Vec<BuildOutput>,
    ) -> DeviceBuild {
        let mut star = parts.star;
        for build_side in &mut star.dimensions {
            // These build sides are in no plan, so that the optimizer does not reach them.
            build_side.rules = Arc::clone(self.later);
        }
        DeviceBuild {
            input: parts.input,
            star,
            outputs: outputs(parts.outputs),
        }
    }
}
