//! Group pruning: leaves out groups that the operators above an aggregate would drop, by a `HAVING` filter or a limit
//! on an order (top-k).
//!
//! A kernel may find millions of groups when a query returns ten. Pruned groups need no keys, and DataFusion computes
//! no results for them. The operators above still filter and sort, so pruning may keep too many groups, but never too
//! few.

use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, RecordBatch, Scalar, make_comparator};
use arrow::compute::kernels::cmp::{gt_eq, lt_eq};
use arrow::compute::{SortOptions, and, concat, filter, prep_null_mask_filter, sort_to_indices};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CastExpr, Column};
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, conjunction, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::sorts::sort::SortExec;
use vectile_pipeline::{Comparison, Expr, Groups, Literal, PostAggregation, TopK, Type};

use super::expression::Lowering;
use super::function::{Named, pruning_results};
use super::group_key::Keys;
use super::post_aggregation::{GroupTable, with_parameters};
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::pattern::columns::substituted;
use crate::fused::pattern::exchange::is_exchange;
use crate::fused::scalar::value_of;
use crate::stack;

/// How an operator restricts the rows of its input.
#[derive(Clone, Debug)]
pub(crate) enum GroupPruning {
    /// Rows for which the predicate is true.
    Passing(Arc<dyn PhysicalExpr>),
    /// The first `count` rows in the order of `by`, and all rows equal to the last of them.
    First {
        by: Arc<dyn PhysicalExpr>,
        options: SortOptions,
        count: usize,
    },
}

impl GroupPruning {
    /// The pruning of a filter, a sort with a limit, or a single `min` or `max` over all rows; `None` for other
    /// operators.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Option<Self> {
        if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            return Some(Self::Passing(Arc::clone(filter.predicate())));
        }
        if let Some(sort) = plan.downcast_ref::<SortExec>() {
            let first = sort.expr().first();
            return Some(Self::First {
                by: Arc::clone(&first.expr),
                options: first.options,
                count: sort.fetch()?,
            });
        }
        let aggregate = plan.downcast_ref::<AggregateExec>()?;
        let is_of_all = aggregate.group_expr().is_true_no_grouping()
            && *aggregate.mode() == AggregateMode::Partial
            && aggregate.filter_expr().iter().all(Option::is_none);
        let [function] = aggregate.aggr_expr() else {
            return None;
        };
        let is_max = function.fun().inner().is::<Max>();
        let is_extreme = is_max || function.fun().inner().is::<Min>();
        let by = function.expressions().into_iter().next()?;
        (is_of_all && is_extreme).then_some(Self::First {
            by,
            options: SortOptions {
                descending: is_max,
                nulls_first: false,
            },
            count: 1,
        })
    }

    /// Pushes the pruning below `plan`; `None` unless `plan` is a projection or only moves rows between partitions.
    pub(crate) fn below(
        &self,
        plan: &Arc<dyn ExecutionPlan>,
    ) -> Result<Option<Self>, FallbackReason> {
        let Some(projection) = plan.downcast_ref::<ProjectionExec>() else {
            let hands_on = is_exchange(plan) && plan.fetch().is_none();
            return Ok(hands_on.then(|| self.clone()));
        };
        let columns = projection.expr();
        Ok(Some(match self {
            Self::Passing(filter) => Self::Passing(substituted(filter, columns)?),
            Self::First { by, options, count } => Self::First {
                by: substituted(by, columns)?,
                options: *options,
                count: *count,
            },
        }))
    }
}

/// Pruning of groups by the results of aggregate functions.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResultPruning {
    /// Predicates over the results of functions; column `i` is function `i`.
    passing: Vec<Arc<dyn PhysicalExpr>>,
    first: Option<TopGroups>,
}

#[derive(Clone, Debug)]
struct TopGroups {
    /// The index of the function whose result orders the groups, and its name.
    function: usize,
    name: String,
    options: SortOptions,
    count: usize,
}

impl ResultPruning {
    /// Adds a pruning of the output rows of an aggregate with `keys` key columns. Returns true if it restricts groups
    /// by results that are known exactly; conjuncts over other columns are ignored.
    pub(crate) fn add(
        &mut self,
        pruning: &GroupPruning,
        keys: usize,
        functions: &[Named],
    ) -> Result<bool, FallbackReason> {
        let is_known = |column: &Column| {
            let function = column.index().checked_sub(keys);
            let function = function.and_then(|number| functions.get(number));
            function.is_some_and(|(function, aggregate)| function.can_prune_groups(aggregate))
        };
        match pruning {
            GroupPruning::Passing(filter) => {
                // Columns of keys map to a placeholder, which no conjunct that is kept reads.
                let none = (0..keys).map(|_| ProjectionExpr::new(Arc::new(Column::new("", 0)), ""));
                let numbered = functions
                    .iter()
                    .enumerate()
                    .map(|(number, (_, aggregate))| {
                        let column = Column::new(aggregate.name(), number);
                        ProjectionExpr::new(Arc::new(column), aggregate.name())
                    });
                let columns: Vec<ProjectionExpr> = none.chain(numbered).collect();
                for conjunct in split_conjunction(filter) {
                    let used = collect_columns(conjunct);
                    if !used.is_empty() && used.iter().all(is_known) {
                        self.passing.push(substituted(conjunct, &columns)?);
                    }
                }
                Ok(!self.passing.is_empty())
            }
            GroupPruning::First { by, options, count } => {
                let column = by
                    .downcast_ref::<Column>()
                    .filter(|column| is_known(column));
                self.first = column.map(|column| TopGroups {
                    function: column.index() - keys,
                    name: column.name().to_owned(),
                    options: *options,
                    count: *count,
                });
                Ok(self.first.is_some())
            }
        }
    }

    /// Replaces each predicate by `other` of it.
    pub(crate) fn with_filters(
        mut self,
        other: impl FnMut(Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>>,
    ) -> Result<Self> {
        self.passing = self.passing.into_iter().map(other).collect::<Result<_>>()?;
        Ok(self)
    }

    /// Lowers the pruning for the device. Predicates without a kernel are left out, so the device may keep more groups.
    pub(crate) fn on_device(&self, functions: &[Named]) -> Result<PostAggregation> {
        let fields = functions.iter().map(|(_, aggregate)| aggregate.field());
        let results = Schema::new(fields.collect::<Vec<_>>());
        let no_keys = Keys::default();
        let groups = GroupTable::new(&results, &no_keys, functions);
        let table = groups.schema();
        let mut lowering = Lowering::over_groups(&table, &groups.averages);
        let mut conditions = Vec::new();
        for filter in &self.passing {
            let mut trial = lowering.clone();
            let condition = match before_cast(filter, &mut trial) {
                Some(condition) => Ok(condition),
                None => trial.value(filter),
            };
            if let Ok(condition) = condition {
                conditions.push(condition);
                lowering = trial;
            }
        }
        // If a predicate has no kernel, the first groups on the device may be ones that it rejects.
        let is_exact = conditions.len() == self.passing.len();
        let first = self.first.as_ref().filter(|_| is_exact);
        let first = first.and_then(|first| {
            let by: Arc<dyn PhysicalExpr> = Arc::new(Column::new(&first.name, first.function));
            Some(TopK {
                by: lowering.value(&by).ok()?,
                of: Type::of(&lowering.type_of(&by).ok()?)?,
                descending: first.options.descending,
                nulls_first: first.options.nulls_first,
                count: first.count,
            })
        });
        let needs = lowering.finish();
        let columns = groups.columns(&needs.columns);
        let post_aggregation = PostAggregation {
            columns: columns.map_err(|reason| internal_datafusion_err!("{reason}"))?,
            conditions,
            top_k: first,
            nested: None,
        };
        with_parameters(post_aggregation, &needs.parameters)
    }

    /// Selects the groups to keep, by the results of `functions`. `parts` have different groups.
    pub(crate) fn of(
        &self,
        parts: &[Groups],
        functions: &mut [Named],
    ) -> Result<Vec<BooleanArray>> {
        let (mut selected, mut values) = (Vec::new(), Vec::new());
        for groups in parts {
            let results = pruning_results(groups, functions)?;
            selected.push(self.passing(groups, &results, functions)?);
            let first = self.first.as_ref();
            values.extend(first.and_then(|first| results.into_iter().nth(first.function)));
        }
        match &self.first {
            Some(first) if values.len() == parts.len() => first.of(&values, &selected),
            _ => Ok(selected),
        }
    }

    /// Selects the groups that pass, by these `results` of functions.
    fn passing(
        &self,
        groups: &Groups,
        results: &[ArrayRef],
        functions: &[Named],
    ) -> Result<BooleanArray> {
        if self.passing.is_empty() {
            return Ok(BooleanArray::from(vec![true; groups.count]));
        }
        let fields = results
            .iter()
            .zip(functions.iter())
            .map(|(result, (_, aggregate))| {
                Field::new(aggregate.name(), result.data_type().clone(), true)
            });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(schema, results.to_vec())?;
        let filter = conjunction(self.passing.iter().cloned());
        let passing = stack::evaluated(&filter, &batch)?.into_array(groups.count)?;
        let passing = passing.as_boolean();
        Ok(match passing.null_count() {
            0 => passing.clone(),
            _ => prep_null_mask_filter(passing),
        })
    }
}

/// Lowers a comparison of a constant with a decimal column that is cast to a larger scale, as in `HAVING sum(x) >
/// (SELECT ..)`, to one with the column itself. Values whose cast overflows pass, so that the operator above reports
/// the overflow: a kernel has no cast that may fail. `None` if `filter` has another form.
fn before_cast(filter: &Arc<dyn PhysicalExpr>, lowering: &mut Lowering<'_>) -> Option<Expr> {
    let binary = filter.downcast_ref::<BinaryExpr>()?;
    let sides = [binary.left(), binary.right()];
    let (cast, operator, constant) = match sides.map(|side| side.downcast_ref::<CastExpr>()) {
        [Some(cast), None] => (cast, Some(*binary.op()), binary.right()),
        [None, Some(cast)] => (cast, binary.op().swap(), binary.left()),
        _ => return None,
    };
    let (Ok(DataType::Decimal128(_, from)), DataType::Decimal128(digits, to)) =
        (lowering.type_of(cast.expr()), cast.cast_type())
    else {
        return None;
    };
    let is_column = cast.expr().is::<Column>() && collect_columns(constant).is_empty();
    let scale = u32::try_from(to - from).ok();
    let factor = scale.and_then(|scale| 10_i128.checked_pow(scale));
    let largest = 10_i128.checked_pow(u32::from(*digits));
    let (Some(factor), Some(largest), true) = (factor, largest, is_column) else {
        return None;
    };
    let Ok(Literal::Int(constant, Type::I128)) = value_of(constant) else {
        return None;
    };
    let below = constant.div_euclid(factor);
    let above = -(-constant).div_euclid(factor);
    let (comparison, bound) = match operator {
        Some(Operator::Gt) => (Comparison::Greater, below),
        Some(Operator::GtEq) => (Comparison::GreaterOrEqual, above),
        Some(Operator::Lt) => (Comparison::Less, above),
        Some(Operator::LtEq) => (Comparison::LessOrEqual, below),
        _ => return None,
    };
    let Ok(value) = lowering.value(cast.expr()) else {
        return None;
    };
    let most = largest / factor;
    let tests = [
        (comparison, bound),
        (Comparison::GreaterOrEqual, most),
        (Comparison::LessOrEqual, -most),
    ];
    let tests = tests.map(|(comparison, bound)| {
        let bound = Expr::Literal(Literal::Int(bound, Type::I128));
        Expr::compare(comparison, value.clone(), bound)
    });
    Some(Expr::or(tests.to_vec()))
}

impl TopGroups {
    /// Selects, from the `selected` rows of all parts, the first by `values` and those equal to the last of them.
    fn of(&self, values: &[ArrayRef], selected: &[BooleanArray]) -> Result<Vec<BooleanArray>> {
        let count: usize = selected.iter().map(BooleanArray::true_count).sum();
        if count <= self.count {
            return Ok(selected.to_vec());
        }
        let parts = values.iter().zip(selected);
        let some = parts
            .clone()
            .map(|(values, selected)| filter(values, selected));
        let some: Vec<ArrayRef> = some.collect::<Result<_, _>>()?;
        let some: Vec<&dyn Array> = some.iter().map(AsRef::as_ref).collect();
        let some = concat(&some)?;
        let ordered = sort_to_indices(&some, Some(self.options), Some(self.count))?;
        let Some(last) = ordered.values().last().map(|last| *last as usize) else {
            let none = selected.iter().map(|of| vec![false; of.len()].into());
            return Ok(none.collect());
        };
        let last = some.slice(last, 1);
        let first = parts.map(|(values, selected)| Ok(and(selected, &self.up_to(values, &last)?)?));
        first.collect()
    }

    /// Selects the values that do not come after `last`, an array of one value.
    fn up_to(&self, values: &ArrayRef, last: &ArrayRef) -> Result<BooleanArray> {
        if values.null_count() == 0 && last.null_count() == 0 {
            let last = Scalar::new(last);
            return Ok(match self.options.descending {
                true => gt_eq(values, &last)?,
                false => lt_eq(values, &last)?,
            });
        }
        let compare = make_comparator(values.as_ref(), last.as_ref(), self.options)?;
        let is_up_to = |row| Some(compare(row, 0) != Ordering::Greater);
        Ok((0..values.len()).map(is_up_to).collect())
    }
}

/// For `EXPLAIN`.
impl fmt::Display for ResultPruning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.passing.is_empty() {
            write!(f, ", having={}", conjunction(self.passing.iter().cloned()))?;
        }
        match &self.first {
            Some(TopGroups { count, name, .. }) => write!(f, ", first={count} by {name}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int32Array;
    use arrow::datatypes::Int32Type;
    use datafusion::common::ScalarValue;
    use datafusion::datasource::table_schema::TableSchema;
    use datafusion::functions_aggregate::average::avg_udaf;
    use datafusion::functions_aggregate::sum::sum_udaf;
    use datafusion::physical_expr::aggregate::AggregateExprBuilder;
    use datafusion::physical_expr::expressions::Literal;
    use vectile_pipeline::{GroupColumn, GroupTotals, Literal as KernelLiteral, Numbers, Op};

    use super::super::function::Function;
    use super::*;

    /// Five groups with a sum; that of the second is null.
    fn sums() -> (Groups, Vec<Named>) {
        let schema = Arc::new(Schema::new(vec![Field::new(
            "value",
            arrow::datatypes::DataType::Int64,
            true,
        )]));
        let sum = AggregateExprBuilder::new(sum_udaf(), vec![Arc::new(Column::new("value", 0))]);
        let sum = sum.schema(schema).alias("sum").build().unwrap();
        let groups = Groups {
            count: 5,
            keys: vec![Arc::new(Int32Array::from(vec![1, 2, 3, 4, 5]))],
            totals: vec![GroupTotals {
                counts: vec![1, 0, 2, 1, 1],
                values: Numbers::Int(vec![7, 0, -3, 7, 9]),
            }],
        };
        (groups, vec![(Function::Value, Arc::new(sum))])
    }

    fn column(index: usize) -> Arc<dyn PhysicalExpr> {
        Arc::new(Column::new("sum", index))
    }

    fn first(count: usize, descending: bool, nulls_first: bool) -> GroupPruning {
        GroupPruning::First {
            by: column(1),
            options: SortOptions {
                descending,
                nulls_first,
            },
            count,
        }
    }

    fn above(least: i64) -> GroupPruning {
        let least = Arc::new(Literal::new(least.into()));
        GroupPruning::Passing(Arc::new(BinaryExpr::new(column(1), Operator::Gt, least)))
    }

    /// The keys of the groups that are kept if they are all in one part, or in parts of at most two.
    fn kept(groups: &Groups, of: &ResultPruning, functions: &mut [Named]) -> Vec<i32> {
        let [of_one, of_three] = [5, 2].map(|most| {
            let parts = [0, 1, 2].map(|part| {
                let of_part = (0..5).map(|group| Some(group / most == part));
                groups.filtered(&of_part.collect()).unwrap()
            });
            let selected = of.of(&parts, functions).unwrap();
            let some = parts.iter().zip(&selected);
            let some = some.map(|(part, selected)| part.filtered(selected).unwrap());
            let keys = some.flat_map(|some| {
                assert_eq!(some.count, some.totals[0].counts.len());
                some.keys[0].as_primitive::<Int32Type>().values().to_vec()
            });
            keys.collect::<Vec<i32>>()
        });
        assert_eq!(of_one, of_three);
        of_one
    }

    /// The keys of the groups that all of these prunings leave.
    fn kept_keys(all: &[GroupPruning]) -> Vec<i32> {
        let (groups, mut functions) = sums();
        let mut of = ResultPruning::default();
        for pruning in all {
            assert!(of.add(pruning, 1, &functions).unwrap());
        }
        kept(&groups, &of, &mut functions)
    }

    #[test]
    fn groups_that_pass_are_kept() {
        assert_eq!(kept_keys(&[above(0)]), [1, 4, 5]);
        assert_eq!(kept_keys(&[above(100)]), [0; 0]);
    }

    #[test]
    fn ties_with_the_last_group_are_kept() {
        assert_eq!(kept_keys(&[first(1, true, false)]), [5]);
        assert_eq!(kept_keys(&[first(2, true, false)]), [1, 4, 5]);
        assert_eq!(kept_keys(&[first(1, false, false)]), [3]);
        assert_eq!(kept_keys(&[first(1, false, true)]), [2]);
        assert_eq!(kept_keys(&[first(2, true, true)]), [2, 5]);
        assert_eq!(kept_keys(&[first(0, true, false)]), [0; 0]);
        assert_eq!(kept_keys(&[first(9, true, false)]), [1, 2, 3, 4, 5]);
        assert_eq!(kept_keys(&[above(0), first(1, false, true)]), [1, 4]);
    }

    #[test]
    fn orders_by_keys_do_not_prune() {
        let (_, functions) = sums();
        let by_key = GroupPruning::First {
            by: Arc::new(Column::new("key", 0)),
            options: SortOptions::default(),
            count: 1,
        };
        let mut groups = ResultPruning::default();
        assert!(!groups.add(&by_key, 1, &functions).unwrap());
    }

    /// An average of the only column, which is of type `of`.
    fn average(of: DataType) -> Named {
        let function = Function::Average {
            of_floats: of.is_floating(),
        };
        let schema = Arc::new(Schema::new(vec![Field::new("value", of, true)]));
        let average = AggregateExprBuilder::new(avg_udaf(), vec![column(0)]);
        let average = average.schema(schema).alias("average").build().unwrap();
        (function, Arc::new(average))
    }

    #[test]
    fn averages_prune_groups() {
        let (groups, _) = sums();
        let mut functions = vec![average(DataType::Decimal128(10, 2))];
        let above = |least| {
            let least = ScalarValue::Decimal128(Some(least), 14, 6);
            let least = Arc::new(Literal::new(least));
            GroupPruning::Passing(Arc::new(BinaryExpr::new(column(1), Operator::Gt, least)))
        };
        // The averages are 0.07, null, -0.03 (of two values), 0.07 and 0.09.
        for (all, expected) in [
            (vec![above(-15_001)], vec![1, 3, 4, 5]),
            (vec![above(-15_000)], vec![1, 4, 5]),
            (vec![first(1, false, false)], vec![3]),
            (vec![first(2, true, true)], vec![2, 5]),
            (vec![above(-15_000), first(1, false, true)], vec![1, 4]),
        ] {
            let mut of = ResultPruning::default();
            for pruning in &all {
                assert!(of.add(pruning, 1, &functions).unwrap());
            }
            assert_eq!(kept(&groups, &of, &mut functions), expected);
            let on_device = of.on_device(&functions).unwrap();
            let columns = [GroupColumn::Value(0, Type::I128), GroupColumn::Count(0)];
            assert_eq!(on_device.columns, columns);
            let is_average = |expr: &Expr| matches!(expr, Expr::Op(Op::Average, _));
            for condition in &on_device.conditions {
                assert!(
                    matches!(condition, Expr::Op(Op::Compare(_), sides) if is_average(&sides[0]))
                );
            }
            assert!(on_device.top_k.is_none_or(|first| is_average(&first.by)));
        }
        let mut of = ResultPruning::default();
        let of_floats = vec![average(DataType::Float64)];
        assert!(!of.add(&first(1, true, true), 1, &of_floats).unwrap());
    }

    #[test]
    fn decimals_are_compared_before_they_are_cast() {
        let decimal = |digits, scale| DataType::Decimal128(digits, scale);
        let schema = Schema::new(vec![Field::new("sum", decimal(38, 4), true)]);
        let table = TableSchema::from(Arc::new(schema));
        let test = |operator, constant: i128, is_left: bool| {
            let cast = CastExpr::new(Arc::new(Column::new("sum", 0)), decimal(38, 15), None);
            let constant = ScalarValue::Decimal128(Some(constant), 38, 15);
            let sides: [Arc<dyn PhysicalExpr>; 2] =
                [Arc::new(cast), Arc::new(Literal::new(constant))];
            let [left, right] = sides;
            let filter: Arc<dyn PhysicalExpr> = Arc::new(match is_left {
                true => BinaryExpr::new(left, operator, right),
                false => BinaryExpr::new(right, operator, left),
            });
            let mut lowering = Lowering::over_groups(&table, &[]);
            let Some(Expr::Op(Op::Or, tests)) = before_cast(&filter, &mut lowering) else {
                panic!("{filter}");
            };
            // The other two tests pass values whose cast overflows.
            assert_eq!(tests.len(), 3);
            match &tests[0] {
                Expr::Op(Op::Compare(comparison), sides) => match sides[1] {
                    Expr::Literal(KernelLiteral::Int(bound, Type::I128)) => (*comparison, bound),
                    ref other => panic!("{other:?}"),
                },
                other => panic!("{other:?}"),
            }
        };
        let point = 10_i128.pow(11);
        use Comparison::{Greater, GreaterOrEqual, Less, LessOrEqual};
        for (constant, below, above) in [
            (5 * point, 5, 5),
            (5 * point + 1, 5, 6),
            (-5 * point - 1, -6, -5),
        ] {
            assert_eq!(test(Operator::Gt, constant, true), (Greater, below));
            assert_eq!(
                test(Operator::GtEq, constant, true),
                (GreaterOrEqual, above)
            );
            assert_eq!(test(Operator::Lt, constant, true), (Less, above));
            assert_eq!(test(Operator::LtEq, constant, true), (LessOrEqual, below));
            assert_eq!(test(Operator::Lt, constant, false), (Greater, below));
        }
    }
}
