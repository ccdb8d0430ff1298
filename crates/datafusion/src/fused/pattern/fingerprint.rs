//! Identities of plans: what a plan reads and computes, for comparison with other plans.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{JoinType, NullEquality, Result, ScalarValue};
use datafusion::datasource::listing::{FileRange, PartitionedFile};
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::{AggregateUDF, Volatility};
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, CastExpr, Column, InListExpr, IsNotNullExpr, IsNullExpr, LikeExpr,
    Literal, NegativeExpr, NotExpr,
};
use datafusion::physical_expr::projection::ProjectionExprs;
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr};
use datafusion::physical_expr_common::physical_expr::is_volatile;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::{ColumnIndex, JoinFilter};
use datafusion::physical_plan::joins::{CrossJoinExec, HashJoinExec, NestedLoopJoinExec};
use datafusion::physical_plan::projection::ProjectionExec;

use super::exchange::without_exchange;
use crate::fused::string_id::StringId;
use object_store::ObjectMeta;

use crate::options::VectileOptions;
use crate::source::VectileSource;

/// All that decides on a plan's rows: plans with equal identities have the same rows, in some order.
///
/// It consists of the plan's own parts, never of their text, in which different parts may look alike.
#[derive(Debug, PartialEq)]
pub(crate) struct PlanIdentity {
    operator: PlanOperator,
    inputs: Vec<PlanIdentity>,
}

/// An operator with all that its rows depend on, except for its inputs.
#[derive(Debug, PartialEq)]
enum PlanOperator {
    Scan {
        table: SchemaRef,
        files: Vec<FilePart>,
        predicate: Option<Arc<dyn PhysicalExpr>>,
        /// True if rows are dropped for which the predicate is not true.
        evaluates_filters: bool,
        projection: Option<ProjectionExprs>,
    },
    Filter {
        predicate: Arc<dyn PhysicalExpr>,
        projection: Option<Arc<[usize]>>,
    },
    Projection(ProjectionExprs),
    CrossJoin,
    NestedLoopJoin {
        join_type: JoinType,
        condition: Option<JoinCondition>,
        projection: Option<Arc<[usize]>>,
    },
    HashJoin {
        join_type: JoinType,
        /// Pairs of left and right keys.
        keys: Vec<(Arc<dyn PhysicalExpr>, Arc<dyn PhysicalExpr>)>,
        condition: Option<JoinCondition>,
        null_equality: NullEquality,
        null_aware: bool,
        projection: Option<Arc<[usize]>>,
    },
    Aggregate {
        mode: AggregateMode,
        keys: Vec<Arc<dyn PhysicalExpr>>,
        functions: Vec<AggregateCall>,
    },
}

/// A join filter, and the sides of its columns: equal expressions over columns of other sides are different filters.
type JoinCondition = (Arc<dyn PhysicalExpr>, Vec<ColumnIndex>);

fn condition(filter: Option<&JoinFilter>) -> Result<Option<JoinCondition>> {
    let condition = filter.map(|filter| {
        let columns = filter.column_indices().to_vec();
        Ok((with_default_settings(filter.expression())?, columns))
    });
    condition.transpose()
}

/// An aggregate function with its arguments.
#[derive(Debug, PartialEq)]
struct AggregateCall {
    function: AggregateUDF,
    arguments: Vec<Arc<dyn PhysicalExpr>>,
    /// Only rows for which this is true are aggregated.
    filter: Option<Arc<dyn PhysicalExpr>>,
    is_distinct: bool,
    ignores_nulls: bool,
}

/// A part of a file.
#[derive(Debug, PartialEq)]
struct FilePart {
    /// Identifies the file and its version.
    key: Arc<str>,
    range: Option<FileRange>,
    /// The values of partition columns.
    partition: Vec<ScalarValue>,
}

impl PlanIdentity {
    /// The identity of a plan that reads only Vectile files and has the same rows each time. `None` for other plans,
    /// and for operators that are not known here.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        let plan = without_exchange(plan);
        if plan.fetch().is_some() || !has_fixed_expressions(plan)? {
            return Ok(None);
        }
        let Some(operator) = PlanOperator::of(plan)? else {
            return Ok(None);
        };
        let inputs = plan.children().into_iter().map(Self::of);
        let inputs: Option<Vec<Self>> = inputs.collect::<Result<_>>()?;
        Ok(inputs.map(|inputs| Self { operator, inputs }))
    }
}

impl PlanOperator {
    fn of(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>> {
        if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
            return match scan.downcast_to_file_source::<VectileSource>() {
                Some((config, source)) => Self::of_scan(config, source),
                None => Ok(None),
            };
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            return Ok(Some(Self::Filter {
                predicate: with_default_settings(filter.predicate())?,
                projection: filter.projection().clone(),
            }));
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            let projection = projection.projection_expr().clone();
            let projection = projection.try_map_exprs(|expr| with_default_settings(&expr))?;
            return Ok(Some(Self::Projection(projection)));
        }
        if let Some(aggregate) = plan.downcast_ref::<AggregateExec>() {
            return Self::of_aggregate(aggregate);
        }
        if plan.is::<CrossJoinExec>() {
            return Ok(Some(Self::CrossJoin));
        }
        if let Some(join) = plan.downcast_ref::<NestedLoopJoinExec>() {
            return Ok(Some(Self::NestedLoopJoin {
                join_type: *join.join_type(),
                condition: condition(join.filter())?,
                projection: join.projection().clone(),
            }));
        }
        let Some(join) = plan.downcast_ref::<HashJoinExec>() else {
            return Ok(None);
        };
        let keys = join.on().iter();
        let keys = keys
            .map(|(left, right)| Ok((with_default_settings(left)?, with_default_settings(right)?)));
        Ok(Some(Self::HashJoin {
            join_type: *join.join_type(),
            keys: keys.collect::<Result<_>>()?,
            condition: condition(join.filter())?,
            null_equality: join.null_equality(),
            null_aware: join.null_aware,
            projection: join.projection.clone(),
        }))
    }

    fn of_aggregate(aggregate: &AggregateExec) -> Result<Option<Self>> {
        let groups = aggregate.group_expr();
        if !groups.is_single() || aggregate.limit_options().is_some() {
            return Ok(None);
        }
        let keys = groups.expr().iter();
        let keys = keys.map(|(key, _)| with_default_settings(key));
        let mut functions = Vec::new();
        for (expr, filter) in aggregate.aggr_expr().iter().zip(aggregate.filter_expr()) {
            let is_immutable = expr.fun().signature().volatility == Volatility::Immutable;
            if !is_immutable || !expr.order_bys().is_empty() {
                return Ok(None);
            }
            let arguments = expr.expressions();
            let arguments = arguments.iter().map(with_default_settings);
            functions.push(AggregateCall {
                function: expr.fun().clone(),
                arguments: arguments.collect::<Result<_>>()?,
                filter: filter.as_ref().map(with_default_settings).transpose()?,
                is_distinct: expr.is_distinct(),
                ignores_nulls: expr.ignore_nulls(),
            });
        }
        Ok(Some(Self::Aggregate {
            mode: *aggregate.mode(),
            keys: keys.collect::<Result<_>>()?,
            functions,
        }))
    }

    fn of_scan(config: &FileScanConfig, source: &VectileSource) -> Result<Option<Self>> {
        // Adapters cannot be compared.
        if config.expr_adapter_factory.is_some() {
            return Ok(None);
        }
        let files = config.file_groups.iter().flat_map(|group| group.iter());
        let predicate = source.filter().map(|filter| with_default_settings(&filter));
        let projection = source.projection().cloned();
        let projection =
            projection.map(|exprs| exprs.try_map_exprs(|expr| with_default_settings(&expr)));
        Ok(Some(Self::Scan {
            table: Arc::clone(source.table_schema().table_schema()),
            files: files
                .map(|file| FilePart::of(&config.object_store_url, file))
                .collect(),
            predicate: predicate.transpose()?,
            evaluates_filters: source.evaluates_filters(),
            projection: projection.transpose()?,
        }))
    }
}

impl FilePart {
    fn of(store: &ObjectStoreUrl, file: &PartitionedFile) -> Self {
        Self {
            key: file_key(store, &file.object_meta),
            range: file.range.clone(),
            partition: file.partition_values.clone(),
        }
    }
}

/// A key that identifies this version of a file.
pub(crate) fn file_key(url: &ObjectStoreUrl, object: &ObjectMeta) -> Arc<str> {
    let ObjectMeta {
        location,
        last_modified,
        size,
        e_tag,
        version,
    } = object;
    let modified = last_modified.timestamp_nanos_opt();
    format!("{url}{location} {size} {modified:?} {e_tag:?} {version:?}").into()
}

/// Returns true if all expressions of an operator are fixed, but for filters that it makes for its inputs.
fn has_fixed_expressions(plan: &Arc<dyn ExecutionPlan>) -> Result<bool> {
    let produced = plan.dynamic_expressions_produced();
    let mut are_fixed = true;
    plan.apply_expressions(&mut |expr| {
        are_fixed &= produced.iter().any(|own| Arc::ptr_eq(own, expr)) || is_fixed(expr)?;
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(are_fixed)
}

/// Returns true if the value of an expression depends on its input alone. Dynamic filters and subqueries may differ
/// although the expressions are equal.
pub(crate) fn is_fixed(expr: &Arc<dyn PhysicalExpr>) -> Result<bool> {
    let mut is_fixed = !is_volatile(expr);
    expr.apply(|expr| {
        is_fixed &= expr.is::<Column>()
            || expr.is::<Literal>()
            || expr.is::<BinaryExpr>()
            || expr.is::<NotExpr>()
            || expr.is::<IsNullExpr>()
            || expr.is::<IsNotNullExpr>()
            || expr.is::<NegativeExpr>()
            || expr.is::<InListExpr>()
            || expr.is::<LikeExpr>()
            || expr.is::<CaseExpr>()
            || expr.is::<CastExpr>()
            || expr.is::<StringId>()
            || expr.downcast_ref().is_some_and(is_immutable);
        Ok(match is_fixed {
            true => TreeNodeRecursion::Continue,
            false => TreeNodeRecursion::Stop,
        })
    })?;
    Ok(is_fixed)
}

/// Resets Vectile's own settings, which change no value, to their defaults in the functions of `expr`. The result
/// equals the same expression of a session with other settings.
pub(crate) fn with_default_settings(expr: &Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>> {
    let without = Arc::clone(expr).transform_up(|expr| {
        let Some(function) = expr.downcast_ref::<ScalarFunctionExpr>() else {
            return Ok(Transformed::no(expr));
        };
        let mut settings = function.config_options().clone();
        settings.extensions.insert(VectileOptions::default());
        let field = function.return_field(&Schema::empty())?;
        let (name, args) = (function.name(), function.args().to_vec());
        let fun = Arc::new(function.fun().clone());
        let function = ScalarFunctionExpr::new(name, fun, args, field, Arc::new(settings));
        Ok(Transformed::yes(Arc::new(function) as Arc<dyn PhysicalExpr>))
    });
    without.data()
}

fn is_immutable(function: &ScalarFunctionExpr) -> bool {
    function.fun().signature().volatility == Volatility::Immutable
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use datafusion::common::JoinSide;
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::datasource::physical_plan::FileScanConfigBuilder;
    use datafusion::logical_expr::Operator;
    use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
    use datafusion::physical_plan::joins::PartitionMode;
    use datafusion::physical_plan::joins::utils::JoinFilter;
    use datafusion::physical_plan::limit::GlobalLimitExec;

    use super::*;

    fn identity(plan: Arc<dyn ExecutionPlan>) -> Option<PlanIdentity> {
        PlanIdentity::of(&plan).unwrap()
    }

    fn column(name: &str, index: usize) -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new(name, index))
    }

    /// A scan of two columns.
    fn scan(file: &str) -> Arc<dyn ExecutionPlan> {
        let field = |name| Field::new(name, DataType::Int64, true);
        let schema = Arc::new(Schema::new(vec![field("key"), field("value")]));
        let store = ObjectStoreUrl::local_filesystem();
        let source = Arc::new(VectileSource::new(schema));
        let config =
            FileScanConfigBuilder::new(store, source).with_file(PartitionedFile::new(file, 100));
        DataSourceExec::from_data_source(config.build())
    }

    /// A join whose condition compares the value of one side with that of the left one.
    fn join(side: JoinSide, null_equality: NullEquality) -> Arc<dyn ExecutionPlan> {
        let (left, right) = (column("value", 0), column("value", 1));
        let columns = [side, JoinSide::Left].map(|side| ColumnIndex { index: 1, side });
        let field = Field::new("value", DataType::Int64, true);
        let condition = JoinFilter::new(
            Arc::new(BinaryExpr::new(left, Operator::Lt, right)),
            columns.into(),
            Arc::new(Schema::new(vec![field.clone(), field])),
        );
        let join = HashJoinExec::try_new(
            scan("a"),
            scan("b"),
            vec![(column("key", 0), column("key", 0))],
            Some(condition),
            &JoinType::Inner,
            None,
            PartitionMode::CollectLeft,
            null_equality,
            false,
        );
        Arc::new(join.unwrap())
    }

    #[test]
    fn conditions_over_other_sides_distinguish_joins() {
        let nulls = NullEquality::NullEqualsNothing;
        let one = identity(join(JoinSide::Left, nulls));
        assert!(one.is_some());
        assert_eq!(one, identity(join(JoinSide::Left, nulls)));
        assert_ne!(one, identity(join(JoinSide::Right, nulls)));
        assert_ne!(
            one,
            identity(join(JoinSide::Left, NullEquality::NullEqualsNull))
        );
    }

    #[test]
    fn files_distinguish_scans_but_exchanges_do_not() {
        let one = identity(scan("a"));
        assert!(one.is_some());
        assert_ne!(one, identity(scan("b")));
        assert_eq!(
            one,
            identity(Arc::new(CoalescePartitionsExec::new(scan("a"))))
        );
        let some = CoalescePartitionsExec::new(scan("a")).with_fetch(Some(3));
        assert_eq!(identity(Arc::new(some)), None);
    }

    #[test]
    fn unknown_operators_have_no_identity() {
        let memory = MemorySourceConfig::try_new_exec(&[vec![]], Arc::new(Schema::empty()), None);
        assert_eq!(identity(memory.unwrap()), None);
        let limit = GlobalLimitExec::new(scan("a"), 1, None);
        assert_eq!(identity(Arc::new(limit)), None);
    }
}
