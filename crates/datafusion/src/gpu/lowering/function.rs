//! Aggregate functions that kernels compute, and the states of DataFusion's accumulators for them.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use datafusion::common::{Result, internal_err};
use datafusion::functions_aggregate::average::Avg;
use datafusion::functions_aggregate::count::Count;
use datafusion::functions_aggregate::min_max::{Max, Min};
use datafusion::functions_aggregate::sum::Sum;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use datafusion::physical_expr::expressions::IsNotNullExpr;
use vectile_gpu::plan::{Aggregate, Expr, GroupTotals, Literal, Number, Numbers, Total, Type};

use super::expression::{Lowering, is_never_null};
use crate::gpu::pattern::relation::Relation;
use crate::gpu::reason::Reason;
use crate::gpu::scalar;

/// An aggregate function that a kernel computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Function {
    /// Rows, or values.
    Count,
    /// The sum, which the average has with its count.
    Average,
    /// Sum, minimum, maximum.
    Value,
}

/// The most digits of values whose sum over any number of rows that fits a disk has 38 at most.
const MAX_AVERAGE_DIGITS: u8 = 26;

/// Lowers an aggregate over `relation`.
pub(crate) fn lower(
    aggregate: &AggregateFunctionExpr,
    filter: Option<&Arc<dyn PhysicalExpr>>,
    relation: &Relation,
    lowering: &mut Lowering<'_>,
) -> Result<(Function, Aggregate), Reason> {
    let unsupported = || Reason::Aggregate(aggregate.name().to_owned());
    if aggregate.is_distinct() || !aggregate.order_bys().is_empty() || aggregate.ignore_nulls() {
        return Err(unsupported());
    }
    let arguments = aggregate.expressions();
    let [argument] = arguments.as_slice() else {
        return Err(unsupported());
    };
    let argument = relation.over_table(argument)?;
    let filter = filter
        .map(|filter| relation.over_table(filter))
        .transpose()?;
    let condition = filter.map(|filter| lowering.value(&filter)).transpose()?;
    let only_where = |value: Expr| match condition.clone() {
        Some(condition) => Expr::Case(vec![(condition, value)], None),
        None => value,
    };
    let function = aggregate.fun().inner();
    if function.is::<Count>() {
        let count = match (is_never_null(&argument), &condition) {
            (true, None) => Aggregate::CountRows,
            (true, Some(_)) => Aggregate::Count(only_where(one())),
            (false, _) => Aggregate::Count(only_where(counted(&argument, lowering)?)),
        };
        return Ok((Function::Count, count));
    }
    let value = only_where(lowering.value(&argument)?);
    if function.is::<Sum>() {
        Ok((Function::Value, Aggregate::Sum(value)))
    } else if function.is::<Min>() {
        Ok((Function::Value, Aggregate::Min(value)))
    } else if function.is::<Max>() {
        Ok((Function::Value, Aggregate::Max(value)))
    } else if function.is::<Avg>() {
        match lowering.type_of(&argument)? {
            DataType::Decimal128(digits, _) if digits > MAX_AVERAGE_DIGITS => Err(unsupported()),
            _ => Ok((Function::Average, Aggregate::Sum(value))),
        }
    } else {
        Err(unsupported())
    }
}

/// A value where `argument` has one. What that is does not matter: it may be text that is looked up.
fn counted(argument: &Arc<dyn PhysicalExpr>, lowering: &mut Lowering<'_>) -> Result<Expr, Reason> {
    lowering.value(argument).or_else(|reason| {
        let present: Arc<dyn PhysicalExpr> = Arc::new(IsNotNullExpr::new(Arc::clone(argument)));
        match lowering.value(&present) {
            Ok(present) => Ok(Expr::Case(vec![(present, one())], None)),
            Err(_) => Err(reason),
        }
    })
}

/// A value that is there.
fn one() -> Expr {
    Expr::Literal(Literal::Int(1, Type::I32))
}

impl Function {
    /// The state that `total` is, as the aggregate's accumulator has it.
    pub(crate) fn state(
        self,
        total: Total,
        aggregate: &AggregateFunctionExpr,
    ) -> Result<Vec<ArrayRef>> {
        let values = match total.value {
            Some(Number::Float(value)) => Numbers::Float(vec![value]),
            Some(Number::Int(value)) => Numbers::Int(vec![value]),
            None => Numbers::Int(vec![0]),
        };
        let counts = vec![total.count];
        self.states(&GroupTotals { counts, values }, aggregate)
    }

    /// The states of groups, as the aggregate's accumulator has them.
    pub(crate) fn states(
        self,
        totals: &GroupTotals,
        aggregate: &AggregateFunctionExpr,
    ) -> Result<Vec<ArrayRef>> {
        let fields = aggregate.state_fields()?;
        let types: Vec<&DataType> = fields.iter().map(|field| field.data_type()).collect();
        let GroupTotals { counts, values } = totals;
        match (self, types.as_slice()) {
            (Self::Count, [of]) => Ok(vec![scalar::counts(counts, of)?]),
            (Self::Value, [of]) => Ok(vec![scalar::numbers(values, counts, of)?]),
            (Self::Average, [of_count, of_sum]) => {
                // An accumulator of groups takes a count of zero for one of values whose sum is null.
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
