//! Aggregate functions that kernels compute, and their conversion to states of DataFusion's accumulators.

use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, new_null_array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, FieldRef, Schema, SchemaRef};
use datafusion::common::{Result, internal_datafusion_err, internal_err};
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::bool_and_or::{BoolAnd, BoolOr};
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::stddev::{Stddev, StddevPop};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::functions_aggregate::variance::{VariancePopulation, VarianceSample};
use datafusion::logical_expr::{AggregateUDFImpl, EmitTo};
use datafusion::physical_expr::GroupsAccumulatorAdapter;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::{CastExpr, IsNotNullExpr};
use datafusion::physical_expr::projection::ProjectionExpr;
use vectile_gpu::Error;
use vectile_pipeline::{Aggregate, Expr, GroupTotals, Groups, Literal, Numbers, Output, Type};

use super::average::sum_of;
use super::expression::{Lowering, is_never_null};
use super::group_key::Keys;
use super::payload_values::PayloadValues;
use super::variance::Variance;
use crate::error;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::pattern::columns::substituted;
use crate::fused::scalar;
use crate::text::is_text;

/// An aggregate function that a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Function {
    /// The number of rows, or of values that are not null.
    Count,
    /// The number of distinct values that are not null. DataFusion's states are lists of values, so there are only results.
    CountDistinct,
    /// Average: the kernel has its sum and count.
    Average {
        /// True for floats, whose sums depend on the order of rows.
        of_floats: bool,
    },
    /// Sum, minimum, maximum; of booleans also AND and OR, which are minimum and maximum.
    Value,
    /// Variance or standard deviation, of a sample or of a population.
    Variance(Variance),
    /// Minimum or maximum of text, which a device knows by its rank among all values.
    Text,
    /// Minimum or maximum of strings, which are a key of the kernel: their index among the strings of [`Keys`].
    Strings(usize),
}

/// Maximum precision of an average's argument: sums of it over any number of rows that fits a disk have at most 38
/// digits.
const MAX_AVERAGE_DIGITS: u8 = 26;

/// Lowers an aggregate over rows with these columns. Adds a key for the minimum or maximum of text.
pub(crate) fn lower(
    aggregate: &AggregateFunctionExpr,
    filter: Option<&Arc<dyn PhysicalExpr>>,
    columns: &[ProjectionExpr],
    keys: &mut Keys,
    lowering: &mut Lowering<'_>,
) -> Result<(Function, Vec<Aggregate>), FallbackReason> {
    let unsupported = || FallbackReason::Aggregate(aggregate.name().to_owned());
    let is_distinct = aggregate.is_distinct();
    if !aggregate.order_bys().is_empty() || aggregate.ignore_nulls() {
        return Err(unsupported());
    }
    let arguments = aggregate.expressions();
    let [argument] = arguments.as_slice() else {
        return Err(unsupported());
    };
    let argument = substituted(argument, columns)?;
    let filter = filter
        .map(|filter| substituted(filter, columns))
        .transpose()?;
    let condition = filter.map(|filter| lowering.value(&filter)).transpose()?;
    let only_where = |value: Expr| match condition.clone() {
        Some(condition) => Expr::case(vec![(condition, value)], None),
        None => value,
    };
    let function = aggregate.fun().inner();
    if is_distinct {
        if !function.is::<Count>() {
            return Err(unsupported());
        }
        let value = match Type::of(&lowering.type_of(&argument)?) {
            Some(of) if !of.is_float() => lowering.value(&argument)?,
            _ => lowering.codes_of_text(&argument)?.ok_or_else(unsupported)?,
        };
        let value = only_where(value);
        return Ok((
            Function::CountDistinct,
            vec![Aggregate::CountDistinct(value)],
        ));
    }
    if function.is::<Count>() {
        let count = match (is_never_null(&argument), &condition) {
            (true, None) => Aggregate::CountRows,
            (true, Some(_)) => Aggregate::Count(only_where(one())),
            (false, _) => Aggregate::Count(only_where(counted(&argument, lowering)?)),
        };
        return Ok((Function::Count, vec![count]));
    }
    if is_variance(function.as_ref()) {
        let (variance, value) = Variance::lower(&argument, lowering)?;
        let aggregates = variance.aggregates(only_where(value));
        return Ok((Function::Variance(variance), aggregates));
    }
    let is_extreme = function.is::<Min>() || function.is::<Max>();
    if is_extreme && is_text(&lowering.type_of(&argument)?) {
        if let Some(text) = lowering.codes_of_text(&argument)? {
            let text = only_where(text);
            let aggregate = match function.is::<Min>() {
                true => Aggregate::Min(text),
                false => Aggregate::Max(text),
            };
            return Ok((Function::Text, vec![aggregate]));
        }
        let strings = condition
            .is_none()
            .then(|| keys.add_strings(&argument, lowering));
        let strings = strings.and_then(Result::ok).ok_or_else(unsupported)?;
        return Ok((Function::Strings(strings), vec![]));
    }
    let value = only_where(lowering.value(&argument)?);
    let (function, aggregate) = if function.is::<Sum>() {
        (Function::Value, Aggregate::Sum(value))
    } else if function.is::<Min>() || function.is::<BoolAnd>() {
        (Function::Value, Aggregate::Min(value))
    } else if function.is::<Max>() || function.is::<BoolOr>() {
        (Function::Value, Aggregate::Max(value))
    } else if function.is::<Avg>() {
        match lowering.type_of(&argument)? {
            DataType::Decimal128(digits, _) if digits > MAX_AVERAGE_DIGITS => {
                return Err(unsupported());
            }
            of => {
                let is_of_integers = argument
                    .downcast_ref::<CastExpr>()
                    .and_then(|cast| lowering.type_of(cast.expr()).ok())
                    .is_some_and(|of| of.is_integer());
                let of_floats = of.is_floating() && !is_of_integers;
                (Function::Average { of_floats }, Aggregate::Sum(value))
            }
        }
    } else {
        return Err(unsupported());
    };
    Ok((function, vec![aggregate]))
}

fn is_variance(function: &dyn AggregateUDFImpl) -> bool {
    let is_sample = function.is::<VarianceSample>() || function.is::<Stddev>();
    is_sample || function.is::<VariancePopulation>() || function.is::<StddevPop>()
}

/// A value that is null exactly where `argument` is. Which value it is does not matter: the argument may be text in a
/// key table.
fn counted(
    argument: &Arc<dyn PhysicalExpr>,
    lowering: &mut Lowering<'_>,
) -> Result<Expr, FallbackReason> {
    lowering.value(argument).or_else(|reason| {
        let present: Arc<dyn PhysicalExpr> = Arc::new(IsNotNullExpr::new(Arc::clone(argument)));
        match lowering.value(&present) {
            Ok(present) => Ok(Expr::case(vec![(present, one())], None)),
            Err(_) => Err(reason),
        }
    })
}

/// A value that is not null.
fn one() -> Expr {
    Expr::Literal(Literal::Int(1, Type::I32))
}

impl Function {
    /// The number of aggregates of the kernel that this function takes.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::Count | Self::CountDistinct | Self::Average { .. } | Self::Value | Self::Text => {
                1
            }
            Self::Variance(variance) => variance.width(),
            Self::Strings(_) => 0,
        }
    }

    /// Returns true if the state of a group is the result.
    pub(super) fn has_result(self) -> bool {
        matches!(self, Self::Count | Self::CountDistinct | Self::Value)
    }

    /// Returns true if groups can be pruned by its result: the result over the kernel's totals must equal the CPU's to
    /// the last bit.
    pub(super) fn can_prune_groups(self, aggregate: &AggregateFunctionExpr) -> bool {
        match self {
            Self::Average { of_floats } => !of_floats && sum_of(aggregate).is_some(),
            _ => self.has_result(),
        }
    }

    /// Converts the kernel's totals of groups to the accumulator's states.
    pub(crate) fn states(
        &mut self,
        totals: &[GroupTotals],
        aggregate: &AggregateFunctionExpr,
    ) -> Result<Vec<ArrayRef>> {
        if let Self::Variance(variance) = self {
            return variance.states(totals);
        }
        let fields = aggregate.state_fields()?;
        let types: Vec<&DataType> = fields.iter().map(|field| field.data_type()).collect();
        let [GroupTotals { counts, values }] = totals else {
            return internal_err!("{} totals for {}", totals.len(), aggregate.name());
        };
        match (self, types.as_slice()) {
            (Self::Count, [of]) => Ok(vec![scalar::counts(counts, of)?]),
            (Self::CountDistinct, _) => {
                let of = aggregate.field();
                Ok(vec![scalar::counts(counts, of.data_type())?])
            }
            (Self::Value, [of]) => Ok(vec![scalar::numbers(values, counts, of)?]),
            (Self::Text, [of]) => match values {
                Numbers::Text(text) => Ok(vec![cast(text, of)?]),
                _ if counts.iter().all(|count| *count == 0) => {
                    Ok(vec![new_null_array(of, counts.len())])
                }
                _ => internal_err!("ranks for {}", aggregate.name()),
            },
            (Self::Average { .. }, [of_count, of_sum]) => {
                // A groups accumulator takes a count of zero to mean a null sum.
                let numbers = Numbers::Int(counts.iter().map(|&count| count.into()).collect());
                Ok(vec![
                    scalar::numbers(&numbers, counts, of_count)?,
                    scalar::numbers(values, counts, of_sum)?,
                ])
            }
            _ => internal_err!("{} has another state than expected", aggregate.name()),
        }
    }
}

/// An aggregate function, and DataFusion's expression for it.
pub(crate) type Named = (Function, Arc<AggregateFunctionExpr>);

/// The output rows of a partial aggregate: GROUP BY columns, and states of its functions.
pub(crate) fn batch_of(
    groups: &Groups,
    keys: &Keys,
    payload: &PayloadValues<'_>,
    functions: &mut [Named],
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let schema = &with_results(schema, keys.len(), functions)?;
    let mut columns = keys.columns(groups, payload, schema)?;
    let mut totals = groups.totals.as_slice();
    for (function, aggregate) in functions {
        if let Function::Strings(number) = function {
            let data_type = schema.field(columns.len()).data_type();
            columns.push(keys.strings(*number, groups, payload, data_type)?);
            continue;
        }
        let own = totals.split_off(..function.width());
        let own = own.ok_or_else(|| internal_datafusion_err!("too few totals"))?;
        columns.extend(function.states(own, aggregate)?);
    }
    Ok(RecordBatch::try_new(Arc::clone(schema), columns)?)
}

/// The schema of a partial aggregate, where counts of distinct values are results. `keys` columns precede those of functions.
fn with_results(schema: &SchemaRef, keys: usize, functions: &[Named]) -> Result<SchemaRef> {
    if !functions
        .iter()
        .any(|(function, _)| *function == Function::CountDistinct)
    {
        return Ok(Arc::clone(schema));
    }
    let mut fields: Vec<FieldRef> = schema.fields().iter().cloned().collect();
    let mut column = keys;
    for (function, aggregate) in functions {
        if let (Function::CountDistinct, Some(field)) = (function, fields.get_mut(column)) {
            *field = aggregate.field();
        }
        column += aggregate.state_fields()?.len();
    }
    Ok(Arc::new(Schema::new(fields)))
}

/// The output rows of a final aggregate, from states in which each group occurs once, so that they need no merge.
/// `keys` columns precede those of functions.
pub(crate) fn results_of(
    states: &RecordBatch,
    keys: usize,
    functions: &[Named],
    schema: &SchemaRef,
) -> Result<RecordBatch> {
    let mut columns = states.columns();
    let own = columns.split_off(..keys);
    let mut all = own.unwrap_or_default().to_vec();
    all.extend(results(columns, functions)?);
    Ok(RecordBatch::try_new(Arc::clone(schema), all)?)
}

/// The results of `functions`, from all their states, in which each group occurs once.
pub(crate) fn results(mut states: &[ArrayRef], functions: &[Named]) -> Result<Vec<ArrayRef>> {
    let rows = states.first().map_or(0, |states| states.len());
    let results = functions.iter().map(|(function, aggregate)| {
        let own = states.split_off(..aggregate.state_fields()?.len());
        let own = own.ok_or_else(|| internal_datafusion_err!("too few states"))?;
        result_of(*function, aggregate, own, rows)
    });
    results.collect()
}

/// The results of a function, from states in which each group occurs once.
fn result_of(
    function: Function,
    aggregate: &Arc<AggregateFunctionExpr>,
    states: &[ArrayRef],
    groups: usize,
) -> Result<ArrayRef> {
    if let [result] = states
        && function.has_result()
    {
        return Ok(Arc::clone(result));
    }
    let mut accumulator = match aggregate.groups_accumulator_supported() {
        true => aggregate.create_groups_accumulator()?,
        false => {
            let aggregate = Arc::clone(aggregate);
            let create = move || aggregate.create_accumulator();
            Box::new(GroupsAccumulatorAdapter::new(create))
        }
    };
    let numbers: Vec<usize> = (0..groups).collect();
    accumulator.merge_batch(states, &numbers, groups)?;
    accumulator.evaluate(EmitTo::All)
}

/// The results of functions by which groups can be pruned; nulls for the others.
pub(super) fn pruning_results(groups: &Groups, functions: &mut [Named]) -> Result<Vec<ArrayRef>> {
    let mut totals = groups.totals.as_slice();
    let finals = functions.iter_mut().map(|(function, aggregate)| {
        let own = totals.split_off(..function.width());
        let own = own.ok_or_else(|| internal_datafusion_err!("too few totals"))?;
        if !function.can_prune_groups(aggregate) {
            return Ok(new_null_array(&DataType::Null, groups.count));
        }
        let states = function.states(own, aggregate)?;
        result_of(*function, aggregate, &states, groups.count)
    });
    finals.collect()
}

/// Changes functions that must be recomputed in another way, and returns true if there are any: because there was no
/// kernel for exact sums, in which case `has_kernel` is false, or because digits were lost.
pub(crate) fn recompute(functions: &mut [Named], has_kernel: bool) -> Result<bool> {
    let mut changes = false;
    for (function, aggregate) in functions {
        let Function::Variance(variance) = function else {
            continue;
        };
        let now = match has_kernel {
            true => variance.shifted(),
            false => variance.rounded(),
        };
        match now {
            Some(now) => {
                *variance = now;
                changes = true;
            }
            None if has_kernel && variance.is_close() => {
                let name = aggregate.name();
                let reason = format!("values that are too close together for {name}");
                return Err(error::gpu(Error::Unsupported(reason)));
            }
            None => {}
        }
    }
    Ok(changes)
}

/// Replaces the aggregates of the `planned` functions in `output` by those of `functions`.
pub(crate) fn replace(planned: &[Named], functions: &[Named], output: &mut Output) {
    let (Output::Aggregates(aggregates) | Output::Groups(_, aggregates)) = output else {
        return;
    };
    let mut rest = std::mem::take(aggregates).into_iter();
    for ((planned, _), (function, _)) in planned.iter().zip(functions) {
        let own: Vec<Aggregate> = rest.by_ref().take(planned.width()).collect();
        aggregates.extend(match (planned, function) {
            (Function::Variance(planned), Function::Variance(now)) => planned.replaced(&own, *now),
            _ => own,
        });
    }
}
