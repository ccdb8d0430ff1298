//! DataFusion's filter pushdown, limited to filters that keep their meaning below a node.
//!
//! DataFusion 55.2 looks up a filter's columns in the input of a plan node by name. If two columns have the same name
//! it may take the other one, and a scan cannot detect that. So these rules replace DataFusion's: they call the same
//! nodes, but a filter stops above a node in which one of its names is not unique. Scans of Vectile files accept
//! filters from these rules only.
//!
//! A filter also stops above a node with a limit, whose first rows would differ. DataFusion 55.2 pushes filters through
//! some of these, and into scans with a limit.
//!
//! Dynamic filters of aggregates are not pushed down: those of 55.2 drop rows.

use std::any::Any;
use std::sync::Arc;

use arrow::datatypes::Schema;
use datafusion::common::config::{ConfigEntry, ConfigExtension, ConfigOptions, ExtensionOptions};
use datafusion::common::{JoinType, Result, config_err, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::filter_pushdown::FilterPushdown;
use datafusion::physical_plan::aggregates::AggregateExec;
use datafusion::physical_plan::filter_pushdown::{
    ChildFilterPushdownResult, ChildPushdownResult, FilterPushdownPhase, FilterPushdownPropagation,
    PushedDown,
};
use datafusion::physical_plan::joins::HashJoinExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::{
    ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions, replace_children_if_necessary,
};

use crate::stack;

type Filter = Arc<dyn PhysicalExpr>;

/// A rule of the physical optimizer.
pub(crate) type Rule = Arc<dyn PhysicalOptimizerRule + Send + Sync>;

/// Replaces each `FilterPushdown` by a [`ProvenFilterPushdown`].
pub(crate) fn replace_rules(rules: &mut [Rule]) {
    for (theirs, phase) in [
        (FilterPushdown::new(), FilterPushdownPhase::Pre),
        (
            FilterPushdown::new_post_optimization(),
            FilterPushdownPhase::Post,
        ),
    ] {
        for rule in rules.iter_mut().filter(|rule| rule.name() == theirs.name()) {
            *rule = Arc::new(ProvenFilterPushdown {
                phase,
                name: theirs.name().to_owned(),
            });
        }
    }
}

/// True if filters pushed down under this configuration refer to the columns that they name.
pub(crate) fn is_proven(config: &ConfigOptions) -> bool {
    config.extensions.get::<Proven>().is_some()
}

/// Marks the configuration that [`ProvenFilterPushdown`] passes to the nodes.
#[derive(Clone, Debug)]
struct Proven;

impl ConfigExtension for Proven {
    const PREFIX: &'static str = "vectile_proven_filters";
}

impl ExtensionOptions for Proven {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn cloned(&self) -> Box<dyn ExtensionOptions> {
        Box::new(self.clone())
    }

    fn set(&mut self, key: &str, _: &str) -> Result<()> {
        config_err!("there is no setting {}.{key}", Self::PREFIX)
    }

    fn entries(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}

/// Pushes filters down as DataFusion's `FilterPushdown` does, under its name.
#[derive(Debug)]
struct ProvenFilterPushdown {
    phase: FilterPushdownPhase,
    name: String,
}

impl PhysicalOptimizerRule for ProvenFilterPushdown {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut config = config.clone();
        config.extensions.insert(Proven);
        config.optimizer.enable_aggregate_dynamic_filter_pushdown = false;
        let pushed = self.push_down(&plan, &[], &config)?;
        Ok(pushed.updated_node.unwrap_or(plan))
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl ProvenFilterPushdown {
    /// `node` with `children`. Dynamic filters change no properties of a plan.
    fn with_children(
        &self,
        node: &Arc<dyn ExecutionPlan>,
        children: Vec<Arc<dyn ExecutionPlan>>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let node = Arc::clone(node);
        let are_new =
            (node.children().into_iter().zip(&children)).any(|(old, new)| !Arc::ptr_eq(old, new));
        match self.phase {
            FilterPushdownPhase::Post if are_new => {
                let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
                node.replace_children(children, options)
            }
            FilterPushdownPhase::Post => Ok(node),
            FilterPushdownPhase::Pre => replace_children_if_necessary(node, children),
        }
    }

    /// Offers `filters` to `node` and the nodes below it. A filter that may not pass is withheld from the node, which
    /// might otherwise accept it with another meaning.
    fn push_down(
        &self,
        node: &Arc<dyn ExecutionPlan>,
        filters: &[Filter],
        config: &ConfigOptions,
    ) -> Result<FilterPushdownPropagation<Arc<dyn ExecutionPlan>>> {
        let is_limited = node.fetch().is_some();
        let may_pass = |filter: &Filter| {
            let mut columns = collect_columns(filter).into_iter();
            !is_limited
                && !is_volatile(filter)
                && columns.all(|column| keeps_meaning(node.as_ref(), &column))
        };
        let passes: Vec<bool> = filters.iter().map(may_pass).collect();
        let passing = filters.iter().zip(&passes).filter(|(_, passes)| **passes);
        let passing: Vec<Filter> = passing.map(|(filter, _)| Arc::clone(filter)).collect();

        let gathered = node.gather_filters_for_pushdown(self.phase, passing.clone(), config)?;
        let mut parent_filters: Vec<ChildFilterPushdownResult> = passing
            .into_iter()
            .map(|filter| ChildFilterPushdownResult {
                filter,
                child_results: Vec::new(),
            })
            .collect();
        let mut self_filters = Vec::new();
        let mut children = Vec::new();
        let inputs = node.children().into_iter();
        for ((child, of_parent), own) in inputs
            .zip(gathered.parent_filters())
            .zip(gathered.self_filters())
        {
            let own: Vec<(Filter, bool)> = own
                .into_iter()
                .map(|filter| (Arc::clone(&filter), !is_volatile(&filter)))
                .collect();
            let of_parent: Vec<(Filter, bool)> = of_parent
                .into_iter()
                .map(|filter| {
                    let goes_down = matches!(filter.discriminant, PushedDown::Yes);
                    (filter.predicate, goes_down)
                })
                .collect();
            let down = own.iter().chain(&of_parent).filter(|(_, goes)| *goes);
            let down: Vec<Filter> = down.map(|(filter, _)| Arc::clone(filter)).collect();
            let pushed = stack::grown(|| self.push_down(child, &down, config))?;
            children.push(pushed.updated_node.unwrap_or_else(|| Arc::clone(child)));

            let mut answers = Answers(pushed.filters.into_iter());
            let own = own.into_iter().map(|(filter, went)| {
                let answer = answers.next(went)?;
                Ok(answer.wrap_expression(filter))
            });
            self_filters.push(own.collect::<Result<_>>()?);
            for (filter, (_, went)) in parent_filters.iter_mut().zip(of_parent) {
                filter.child_results.push(answers.next(went)?);
            }
        }

        let new = self.with_children(node, children)?;
        let result = ChildPushdownResult {
            parent_filters,
            self_filters,
        };
        let pushed = new.handle_child_pushdown_result(self.phase, result, config)?;
        let mut answers = Answers(pushed.filters.into_iter());
        let answers = passes.into_iter().map(|passed| answers.next(passed));
        Ok(FilterPushdownPropagation {
            filters: answers.collect::<Result<_>>()?,
            updated_node: match pushed.updated_node {
                None if !Arc::ptr_eq(&new, node) => Some(new),
                updated => updated,
            },
        })
    }
}

/// The results of the filters that were pushed down, in order.
struct Answers(std::vec::IntoIter<PushedDown>);

impl Answers {
    /// The result of the next filter; `No` if it was not pushed down.
    fn next(&mut self, went: bool) -> Result<PushedDown> {
        match went {
            true => self.0.next().ok_or_else(|| {
                internal_datafusion_err!("a plan node answered too few of the filters it was asked")
            }),
            false => Ok(PushedDown::No),
        }
    }
}

/// True if `node` maps the column of its output to the right input column, although it looks it up by name.
fn keeps_meaning(node: &dyn ExecutionPlan, column: &Column) -> bool {
    let output = node.schema();
    let field = output.fields().get(column.index());
    if field.is_none_or(|field| field.name() != column.name()) {
        return false;
    }
    let occurs = |schema: &Schema| {
        let fields = schema.fields().iter();
        fields.filter(|field| field.name() == column.name()).count()
    };
    // A projection maps the output name to an expression, whose columns have indices.
    if node.downcast_ref::<ProjectionExec>().is_some() {
        return occurs(&output) == 1;
    }
    let inputs: Vec<_> = node.children().iter().map(|child| child.schema()).collect();
    // A hash join chooses the side by the index.
    if let Some(join) = node.downcast_ref::<HashJoinExec>() {
        return inputs.iter().all(|input| occurs(input) <= 1)
            && semi_join_keeps_meaning(join, column);
    }
    // An aggregate maps by the name of a key, which may be another expression than the column of that name.
    if let Some(aggregate) = node.downcast_ref::<AggregateExec>() {
        let key = aggregate.group_expr().expr().get(column.index());
        let key = key.and_then(|(key, _)| key.downcast_ref::<Column>());
        return key.is_some_and(|key| key.name() == column.name())
            && inputs.iter().all(|input| occurs(input) == 1);
    }
    occurs(&output) == 1 && inputs.iter().all(|input| occurs(input) <= 1)
}

/// A semi join passes a filter of a key to both sides. The name must then be that of the other side's key.
fn semi_join_keeps_meaning(join: &HashJoinExec, column: &Column) -> bool {
    let name = column.name();
    let (kept, other, swapped) = match join.join_type() {
        JoinType::LeftSemi => (join.left(), join.right(), false),
        JoinType::RightSemi => (join.right(), join.left(), true),
        _ => return true,
    };
    let (Ok(kept), Ok(other)) = (kept.schema().index_of(name), other.schema().index_of(name))
    else {
        return true;
    };
    let is = |key: &Filter, index| {
        let key = key.downcast_ref::<Column>();
        key.is_some_and(|key| key.index() == index)
    };
    join.on().iter().any(|(left, right)| match swapped {
        false => is(left, kept) && is(right, other),
        true => is(right, kept) && is(left, other),
    })
}
