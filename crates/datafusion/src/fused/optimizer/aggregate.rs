//! Fuses aggregates with the relation that they read.

use std::sync::Arc;

use datafusion::common::tree_node::TreeNode;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::union::UnionExec;
use datafusion::physical_plan::{ExecutionPlan, StatisticsArgs, StatisticsContext};
use vectile_pipeline::Output;

use super::fusing::{Fused, Fusing, Joins};
use super::relation::{FusedParts, FusionTarget, check_size};
use crate::fused::cost_model::Work;
use crate::fused::exec::fused_aggregate::Aggregation;
use crate::fused::exec::grouping_sets::GroupingSets;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::lowering::expression::Lowering;
use crate::fused::lowering::function::{self, Function, Named};
use crate::fused::lowering::group_key::Keys;
use crate::fused::lowering::group_pruning::GroupPruning;
use crate::fused::lowering::nested_aggregate::{AggregateOverGroups, NestedAggregationPlan};
use crate::fused::pattern::aggregates::Aggregates;
use crate::fused::pattern::eager::before_join;
use crate::fused::pattern::files::{bytes_per_value, num_rows};
use crate::fused::pattern::probe_side::ProbeSide;
use crate::fused::pattern::reduction::replaced;
use crate::fused::pattern::relation::Relation;
use crate::fused::pattern::union;
use crate::options::{FuseMode, GpuMode};
use crate::text::is_text;

/// Groups of a relation.
pub(super) struct GroupTarget<'a> {
    pub(super) aggregate: &'a AggregateExec,
    /// True if key tables are built from the groups.
    pub(super) is_for_tables: bool,
}

/// Keys and aggregate functions of groups.
pub(super) struct GroupOutputs {
    pub(super) keys: Keys,
    pub(super) functions: Vec<Function>,
}

impl FusionTarget for GroupTarget<'_> {
    const IS_AGGREGATED: bool = true;
    type Outputs = GroupOutputs;

    fn lower(
        &self,
        relation: &Relation,
        lowering: &mut Lowering<'_>,
    ) -> Result<(GroupOutputs, Output), FallbackReason> {
        let mut keys = Keys::lower(self.aggregate.group_expr(), relation, lowering)?;
        let (mut functions, mut aggregates) = (Vec::new(), Vec::new());
        let exprs = self.aggregate.aggr_expr().iter();
        for (expr, only_where) in exprs.zip(self.aggregate.filter_expr()) {
            let (function, lowered) = function::lower(
                expr,
                only_where.as_ref(),
                relation.columns(),
                &mut keys,
                lowering,
            )?;
            functions.push(function);
            aggregates.extend(lowered);
        }
        let of_groups = |of: &Function| matches!(of, Function::CountDistinct | Function::Text);
        let needs_groups = functions.iter().any(of_groups) && !lowering.is_for_program();
        let output = match keys.of_kernel() {
            // on a device, sets of values and ranks of text belong to a table of groups
            [] if !needs_groups => Output::Aggregates(aggregates),
            keys => Output::Groups(keys.to_vec(), aggregates),
        };
        Ok((GroupOutputs { keys, functions }, output))
    }

    fn work(&self, relation: &Relation, work: Work) -> Result<Option<Work>, FallbackReason> {
        if self.is_for_tables {
            return Ok(None);
        }
        let passing = match relation.joins.is_empty() {
            true => selectivity(self.aggregate, &relation.config)?,
            false => 0.0,
        };
        let may_be_program =
            check_values(self.aggregate, relation).and_then(|()| check_size(relation));
        // only the chunks show if text has a dictionary
        let schema = self.aggregate.input_schema();
        let mut keys = self.aggregate.group_expr().expr().iter();
        let has_text = keys.any(|(key, _)| key.data_type(&schema).is_ok_and(|of| is_text(&of)));
        Ok(Some(Work {
            passing,
            is_for_operators: has_text || may_be_program.is_err(),
            ..work
        }))
    }
}

impl FusedParts<GroupOutputs> {
    /// True if each group comes exactly once when all rows are in one batch.
    pub(super) fn has_distinct_groups(&self) -> bool {
        self.outputs.keys.match_kernel_groups() && self.has_code_per_group
    }
}

impl Fusing<'_> {
    /// Fuses an aggregate; `None` if it is not over a scan of a Vectile table.
    pub(super) fn fuse_aggregate(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        aggregates: Aggregates,
        pruning: Option<&GroupPruning>,
    ) -> Fused {
        if !self.is_on_cpu
            && let Some(fused) = self.fuse_branches(&aggregates)?
        {
            return Ok(Some(fused));
        }
        let sets = GroupingSets::of(aggregates.partial.group_expr());
        let has_limit = aggregates.partial.limit_options().is_some();
        let aggregates = match &sets {
            Some(_) => aggregates.by_all_keys()?,
            None => aggregates,
        };
        let Some((partial, relation)) = relation_of(&aggregates, self.probe_side())? else {
            return match self.is_on_cpu || sets.is_some() || aggregates.are_states() {
                true => Ok(None),
                false => self.fuse_nested(plan, aggregates, pruning),
            };
        };
        let is_auto = self.is_on_cpu && self.options.fuse == FuseMode::Auto;
        if is_auto {
            check_values(&partial, &relation)?;
            // groups that no set has may be many more than those of the sets
            if sets.as_ref().is_some_and(|sets| !sets.have_finest()) {
                return Err(FallbackReason::GroupingSets);
            }
        }
        if has_limit && self.options.gpu != GpuMode::Require {
            return Err(FallbackReason::AnyGroups);
        }
        let target = GroupTarget {
            aggregate: &partial,
            is_for_tables: false,
        };
        let parts = self.lower_relation(&target, relation)?;
        // A join may turn out not to be a lookup: the operators below are then fused one by one.
        let cpu = match parts.star.dimensions.is_empty() {
            true => Arc::clone(plan),
            false => self.fused_below(plan)?,
        };
        let has_distinct_groups = parts.has_distinct_groups();
        let GroupOutputs { keys, functions } = &parts.outputs;
        let has_groups = !keys.of_kernel().is_empty();
        let has_distinct = functions.contains(&Function::CountDistinct);
        // the values of a group are those of several finer ones
        if sets.is_some() && (has_distinct || !has_groups) {
            return Err(FallbackReason::GroupingSets);
        }
        if has_distinct && aggregates.are_states() {
            return Err(FallbackReason::Aggregate(
                "states of distinct values".into(),
            ));
        }
        if has_distinct && has_groups && !has_distinct_groups {
            return Err(FallbackReason::Aggregate(SEVERAL_TIMES.into()));
        }
        let functions = functions.iter().copied();
        let aggregation = Aggregation {
            functions: with_names(functions, &aggregates),
            keys: keys.clone(),
            has_distinct_groups,
            nested: None,
            sets,
            pruning: None,
            aggregates,
        };
        self.aggregate_node(parts, aggregation, cpu, pruning)
    }

    /// Fuses the branches of the union that an aggregate reads, each with an aggregate of its own; `None` if there is no
    /// union, or no branch can be fused.
    fn fuse_branches(&self, aggregates: &Aggregates) -> Fused {
        let Some(branches) = union::branches(aggregates)? else {
            return Ok(None);
        };
        let (mut nodes, mut is_any_fused) = (vec![], false);
        for branch in branches {
            let plan = Arc::clone(&branch.last) as Arc<dyn ExecutionPlan>;
            let partial = Arc::clone(&branch.partial) as Arc<dyn ExecutionPlan>;
            let reason = match self.fuse_aggregate(&plan, branch, None) {
                Ok(Some(fused)) => {
                    is_any_fused = true;
                    nodes.push(fused);
                    continue;
                }
                Ok(None) => None,
                Err(defect @ FallbackReason::Defect(_)) => return Err(defect),
                Err(reason) => Some(reason),
            };
            let below = |input| self.operators_of_branch(input, reason.as_ref());
            nodes.push(partial.map_children(below)?.data);
        }
        if !is_any_fused {
            return Ok(None);
        }
        let last = Arc::clone(&aggregates.last) as Arc<dyn ExecutionPlan>;
        let states = UnionExec::try_new(nodes)?;
        Ok(Some(replaced(&last, vec![states])?))
    }

    /// The probe side of joins below aggregates, which take any number of matches.
    fn probe_side(&self) -> ProbeSide {
        match self.is_on_cpu {
            true => ProbeSide::MostRows,
            false => ProbeSide::LargestTable,
        }
    }

    /// Fuses an aggregate over the groups of another one; `None` if `plan` is something else.
    fn fuse_nested(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
        outer: Aggregates,
        pruning: Option<&GroupPruning>,
    ) -> Fused {
        let Some(groups) = AggregateOverGroups::of(&outer)? else {
            return Ok(None);
        };
        let Some((inner, relation)) = relation_of(&groups.inner, self.probe_side())? else {
            return Ok(None);
        };
        let target = GroupTarget {
            aggregate: &inner,
            is_for_tables: false,
        };
        let parts = self.lower_relation(&target, relation)?;
        let GroupOutputs { keys, functions } = &parts.outputs;
        // Without keys there is a group even for empty input.
        if !parts.has_distinct_groups() || keys.of_kernel().is_empty() {
            return Ok(None);
        }
        // The original expressions have the names that the plan uses.
        let functions = with_names(functions.iter().copied(), &groups.inner);
        let lowered = NestedAggregationPlan::lower(&outer, groups, keys, &functions)?;
        let has_distinct = lowered.functions.contains(&Function::CountDistinct);
        if has_distinct && !lowered.has_distinct_groups {
            return Err(FallbackReason::Aggregate(SEVERAL_TIMES.into()));
        }
        let aggregation = Aggregation {
            functions: with_names(lowered.functions, &outer),
            keys: lowered.keys,
            has_distinct_groups: lowered.has_distinct_groups,
            nested: Some(lowered.nested),
            sets: None,
            pruning: None,
            aggregates: outer,
        };
        // If the groups take several launches, the inner aggregate is fused by itself.
        let cpu = self.fused_below(plan)?;
        self.aggregate_node(parts, aggregation, cpu, pruning)
    }

    /// An aggregate in two steps with the operators below it fused one by one.
    fn fused_below(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<Arc<dyn ExecutionPlan>, FallbackReason> {
        let below = self.lenient(Joins::None);
        let fused = Arc::clone(plan)
            .map_children(|partial| partial.map_children(|input| below.operators(input)))?;
        Ok(fused.data)
    }

    /// The fused node of an aggregate, which `cpu` computes otherwise.
    fn aggregate_node(
        &self,
        parts: FusedParts<GroupOutputs>,
        mut aggregation: Aggregation,
        cpu: Arc<dyn ExecutionPlan>,
        pruning: Option<&GroupPruning>,
    ) -> Fused {
        let cpu = self.cpu_plan(cpu)?;
        let is_pruned = match pruning {
            Some(pruning) => aggregation.prune(pruning)?,
            None => false,
        };
        let plan = parts.plan(aggregation, cpu, self);
        if !is_pruned {
            plan.check_groups()?;
        }
        self.node(plan)
    }
}

/// Why distinct values are not counted on the device: a set has those of one code, of which several may be one group.
const SEVERAL_TIMES: &str = "distinct values of groups that come several times";

/// Text of more bytes on average, as Arrow arrays, is not expected to be in a dictionary.
const MOST_TEXT_BYTES: usize = 32;

/// An error if a program would compute another value than DataFusion's operators, is expected to find text without a
/// dictionary at run time, for which there is no program, or counts distinct values more slowly than operators.
fn check_values(partial: &AggregateExec, relation: &Relation) -> Result<(), FallbackReason> {
    let is_extreme = |function: &AggregateFunctionExpr| {
        let of = function.fun().inner();
        of.is::<Min>() || of.is::<Max>()
    };
    let table = relation.source.table_schema().table_schema();
    // the column of the table that `expr` is
    let column_of = |expr: &Arc<dyn PhysicalExpr>| -> Result<_, FallbackReason> {
        let expr = relation.over_table(expr)?;
        let column = expr.downcast_ref::<Column>().map(Column::index);
        Ok(column.filter(|column| *column < table.fields().len()))
    };
    let config = &relation.config;
    let is_long_text = |column: usize| {
        let bytes = bytes_per_value(config, column);
        let is_long = bytes.is_none_or(|bytes| bytes > MOST_TEXT_BYTES);
        is_text(table.field(column).data_type()) && is_long
    };
    for function in partial.aggr_expr().iter().filter(|of| is_extreme(of)) {
        if function.field().data_type().is_floating() {
            let name = function.name();
            let reason = format!("{name}, for whose NaNs DataFusion has another order");
            return Err(FallbackReason::Aggregate(reason));
        }
        for argument in function.expressions() {
            if column_of(&argument)?.is_some_and(is_long_text) {
                let reason = format!("{} of long text", function.name());
                return Err(FallbackReason::Aggregate(reason));
            }
        }
    }
    let mut functions = partial.aggr_expr().iter();
    if let Some(function) = functions.find(|of| of.is_distinct())
        && !partial.group_expr().is_true_no_grouping()
    {
        let reason = format!(
            "{} by groups, which operators are faster at",
            function.name()
        );
        return Err(FallbackReason::Aggregate(reason));
    }
    for (key, _) in partial.group_expr().expr() {
        let Some(column) = column_of(key)? else {
            continue;
        };
        if is_long_text(column) {
            return Err(FallbackReason::GroupKey(format!("{key}, long text")));
        }
    }
    Ok(())
}

/// Functions with DataFusion's expressions for them.
fn with_names(
    functions: impl IntoIterator<Item = Function>,
    aggregates: &Aggregates,
) -> Vec<Named> {
    let named = aggregates.partial.aggr_expr().iter().cloned();
    functions.into_iter().zip(named).collect()
}

/// The relation that an aggregate reads, and the aggregate: a rewritten one (eager aggregation) if only that is over a
/// relation.
pub(super) fn relation_of(
    aggregates: &Aggregates,
    probe_side: ProbeSide,
) -> Result<Option<(Arc<AggregateExec>, Relation)>, FallbackReason> {
    let partial = &aggregates.partial;
    let own = Relation::of(partial.input(), probe_side);
    if let Ok(Some(relation)) = own {
        return Ok(Some((Arc::clone(partial), relation)));
    }
    if let Some(other) = before_join(partial)?
        && let Some(relation) = Relation::of(other.input(), probe_side)?
    {
        return Ok(Some((Arc::new(other), relation)));
    }
    own.map(|_| None)
}

/// Estimated share of a table's rows that an aggregate reads.
fn selectivity(aggregate: &AggregateExec, config: &FileScanConfig) -> Result<f64, FallbackReason> {
    let input = aggregate.input().as_ref();
    let statistics = StatisticsContext::new().compute(input, &StatisticsArgs::new())?;
    let rows = num_rows(config).unwrap_or_default();
    Ok(match statistics.num_rows.get_value() {
        Some(&read) if rows > 0 => (read as f64 / rows as f64).min(1.0),
        _ => 1.0,
    })
}
