//! Nested aggregation: aggregates over the groups of another aggregate. Examples are a count of customers by their
//! number of orders, and `count(DISTINCT x)` of groups, which DataFusion plans as a count over groups by `x`.
//!
//! The groups of the inner aggregate stay on the device, where a second kernel groups them.

use std::fmt;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::{PhysicalExpr, conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use vectile_pipeline::{Aggregate, Expr, GroupKey, NestedAggregation, PostAggregation};

use super::build_output::BuildColumns;
use super::expression::{Grouping, Lowering};
use super::function::{self, Function, Named};
use super::group_key::Keys;
use super::post_aggregation::{GroupTable, with_parameters};
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::pattern::aggregates::Aggregates;
use crate::fused::pattern::columns::{columns_from, projected, selected, substituted};
use crate::fused::pattern::exchange::is_exchange;

type Exprs = Vec<Arc<dyn PhysicalExpr>>;

/// An operator over the groups of an aggregate, during planning: an outer aggregate, or a star join that looks groups
/// up.
pub(crate) struct AggregateOverGroups {
    /// The aggregate that computes the groups.
    pub(crate) inner: Aggregates,
    /// Predicates over the columns of `inner`; groups must pass all of them.
    filters: Exprs,
    /// The operator's input columns, as expressions over the columns of `inner`.
    columns: Vec<ProjectionExpr>,
}

impl AggregateOverGroups {
    /// The groups that `outer` aggregates; `None` if its input is no such aggregate.
    pub(crate) fn of(outer: &Aggregates) -> Result<Option<Self>, FallbackReason> {
        let partial = outer.partial.as_ref();
        if !partial.group_expr().is_single() || partial.limit_options().is_some() {
            return Ok(None);
        }
        let over = Self::below(partial.input())?;
        Ok(over.filter(|over| {
            let inner = over.inner.partial.as_ref();
            inner.group_expr().is_single() && inner.limit_options().is_none()
        }))
    }

    /// The aggregate that `plan` computes, below filters and projections; `None` if it is something else.
    pub(crate) fn below(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>, FallbackReason> {
        if plan.fetch().is_some() {
            return Ok(None);
        }
        if let Some(inner) = Aggregates::of(plan) {
            return Ok(Some(Self {
                columns: columns_from(&plan.schema(), 0),
                filters: Vec::new(),
                inner,
            }));
        }
        let input = match plan.children()[..] {
            [input] => Self::below(input)?,
            _ => None,
        };
        let Some(mut input) = input else {
            return Ok(None);
        };
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            input.columns = projected(projection.expr(), &input.columns)?;
        } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            let passing = substituted(filter.predicate(), &input.columns)?;
            input.filters.push(passing);
            if let Some(kept) = filter.projection() {
                input.columns = selected(kept, &input.columns);
            }
        } else if !is_exchange(plan) {
            return Ok(None);
        }
        Ok(Some(input))
    }
}

/// Key tables that are built from groups.
pub(crate) struct BuildFromGroups {
    pub(crate) columns: BuildColumns,
    pub(crate) post_aggregation: PostAggregation,
}

impl BuildFromGroups {
    /// Lowers the tables that `build` makes of groups by `keys`, with the results of `functions`. `may_round` permits
    /// rounded doubles, which kernels can do for small values only.
    pub(crate) fn lower(
        groups: &AggregateOverGroups,
        keys: &Keys,
        functions: &[Named],
        may_round: bool,
        build: impl FnOnce(
            &dyn Fn(&Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>, FallbackReason>,
            &mut Lowering<'_>,
        ) -> Result<BuildColumns, FallbackReason>,
    ) -> Result<Self, FallbackReason> {
        let results = groups.inner.last.schema();
        let of = GroupTable::new(&results, keys, functions);
        let table = of.schema();
        let lowering = Lowering::over_groups(&table, &of.averages);
        let mut lowering = match may_round {
            true => lowering.with_rounding(),
            false => lowering,
        };
        let conditions = groups.filters.iter().map(|filter| lowering.value(filter));
        let conditions = conditions.collect::<Result<_, FallbackReason>>()?;
        let columns = build(&|expr| substituted(expr, &groups.columns), &mut lowering)?;
        let needs = lowering.finish();
        if let Some(parameter) = needs.parameters.first() {
            return Err(FallbackReason::Expr(parameter.to_string()));
        }
        Ok(Self {
            columns,
            post_aggregation: PostAggregation {
                columns: of.columns(&needs.columns)?,
                conditions,
                ..PostAggregation::default()
            },
        })
    }
}

/// The nested aggregation of a fused node.
#[derive(Clone, Debug)]
pub(crate) struct NestedAggregationPlan {
    inner: Aggregates,
    filters: Exprs,
    post_aggregation: PostAggregation,
    parameters: Exprs,
}

/// The lowered outer aggregate.
pub(crate) struct OuterAggregate {
    pub(crate) nested: NestedAggregationPlan,
    pub(crate) keys: Keys,
    pub(crate) functions: Vec<Function>,
    /// True if each group occurs once.
    pub(crate) has_distinct_groups: bool,
}

impl NestedAggregationPlan {
    /// Lowers `outer` over groups by `keys`, with the results of `functions`.
    pub(crate) fn lower(
        outer: &Aggregates,
        of: AggregateOverGroups,
        keys: &Keys,
        functions: &[Named],
    ) -> Result<OuterAggregate, FallbackReason> {
        let AggregateOverGroups {
            inner,
            filters,
            columns,
        } = of;
        let results = inner.last.schema();
        let groups = GroupTable::new(&results, keys, functions);
        let table = groups.schema();
        let mut lowering = Lowering::over_groups(&table, &groups.averages);
        let conditions = filters.iter().map(|filter| lowering.value(filter));
        let conditions = conditions.collect::<Result<_, FallbackReason>>()?;
        let (mut own_keys, mut exprs) = (Vec::new(), Vec::new());
        for (key, _) in outer.partial.group_expr().expr() {
            let key = substituted(key, &columns)?;
            let column = key.downcast_ref::<Column>().map(Column::index);
            let column = column.filter(|&column| column < keys.len());
            exprs.push(match column {
                Some(column) => Expr::Column(lowering.key_column(column)?),
                None => match lowering.group_key(&key)? {
                    Grouping::Key(GroupKey::Value(value)) => value,
                    _ => return Err(FallbackReason::GroupKey(key.to_string())),
                },
            });
            own_keys.push(column);
        }
        let (outer_keys, exprs) = keys.nested(&own_keys, exprs);
        let mut own_functions = Vec::new();
        let mut aggregates: Vec<Aggregate> = Vec::new();
        let mut no_strings = Keys::default();
        let all = outer.partial.aggr_expr().iter();
        for (aggregate, filter) in all.zip(outer.partial.filter_expr()) {
            let filter = filter.as_ref();
            let lowered =
                function::lower(aggregate, filter, &columns, &mut no_strings, &mut lowering);
            let (function, lowered) = lowered?;
            let of_groups = matches!(function, Function::Text | Function::Strings(_));
            if of_groups || matches!(function, Function::Variance(_)) {
                return Err(FallbackReason::Aggregate(aggregate.name().to_owned()));
            }
            own_functions.push(function);
            aggregates.extend(lowered);
        }
        let needs = lowering.finish();
        let used = groups.columns(&needs.columns)?;
        let nested = NestedAggregation {
            keys: exprs,
            aggregates,
        };
        Ok(OuterAggregate {
            nested: Self {
                post_aggregation: PostAggregation {
                    columns: used,
                    conditions,
                    top_k: None,
                    nested: Some(nested),
                },
                inner,
                filters,
                parameters: needs.parameters,
            },
            has_distinct_groups: keys.has_distinct_groups(&own_keys),
            keys: outer_keys,
            functions: own_functions,
        })
    }

    /// Replaces filters and parameters, the constants that are known only when the query runs, by `other` of them.
    pub(crate) fn with_exprs(
        mut self,
        mut other: impl FnMut(Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>>,
    ) -> Result<Self> {
        self.filters = self
            .filters
            .into_iter()
            .map(&mut other)
            .collect::<Result<_>>()?;
        self.parameters = self
            .parameters
            .into_iter()
            .map(other)
            .collect::<Result<_>>()?;
        Ok(self)
    }

    /// The post-aggregation with the values of its parameters: results of subqueries, which must have run.
    pub(crate) fn post_aggregation(&self) -> Result<PostAggregation> {
        with_parameters(self.post_aggregation.clone(), &self.parameters)
    }
}

/// For `EXPLAIN`.
impl fmt::Display for NestedAggregationPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.inner.partial.group_expr().expr().iter();
        let keys: Vec<&str> = keys.map(|(_, name)| name.as_str()).collect();
        let functions = self.inner.partial.aggr_expr().iter();
        let functions: Vec<&str> = functions.map(|function| function.name()).collect();
        let (keys, functions) = (keys.join(", "), functions.join(", "));
        write!(f, ", groups=[gby=[{keys}], aggr=[{functions}]")?;
        if !self.filters.is_empty() {
            write!(f, ", having={}", conjunction(self.filters.iter().cloned()))?;
        }
        f.write_str("]")
    }
}
