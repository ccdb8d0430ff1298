//! Averages of groups, which kernels compute from sums and counts.

use arrow::datatypes::DataType;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use vectile_pipeline::{Arithmetic, Expr, Literal, Type};

/// An average among the columns of a [`GroupTable`](super::post_aggregation::GroupTable): indices of its column, its
/// sum and its count.
pub(crate) struct Average {
    pub(super) column: usize,
    pub(super) sum: usize,
    pub(super) count: usize,
    /// The factor by which the scale of a decimal average exceeds that of its sum; `None` for floats.
    pub(super) factor: Option<i128>,
}

impl Average {
    /// The average, given the pipeline columns of the sum and the count. The sum of decimals is scaled up before the
    /// division, whose remainder is dropped, as in DataFusion.
    pub(super) fn value(&self, sum: usize, count: usize) -> Expr {
        let (sum, count) = (Expr::Column(sum), Expr::Column(count));
        match self.factor {
            None => {
                let count = Expr::cast(count, Type::F64);
                Expr::arithmetic(Arithmetic::Divide, sum, count)
            }
            Some(factor) => {
                let factor = Expr::Literal(Literal::Int(factor, Type::I128));
                let sum = Expr::arithmetic(Arithmetic::Multiply, sum, factor);
                Expr::average(sum, count)
            }
        }
    }
}

/// The type of the sum behind an average, and the factor that scales a decimal sum up before the division. `None` if
/// kernels cannot compute this average.
pub(super) fn sum_of(aggregate: &AggregateFunctionExpr) -> Option<(DataType, Option<i128>)> {
    let state = aggregate.state_fields().ok()?;
    let of_sum = state.get(1)?.data_type().clone();
    let factor = match (&of_sum, aggregate.field().data_type()) {
        (DataType::Float64, DataType::Float64) => None,
        (DataType::Decimal128(_, from), DataType::Decimal128(_, to)) => {
            let digits = u32::try_from(i16::from(*to) - i16::from(*from)).ok()?;
            Some(10_i128.checked_pow(digits)?)
        }
        _ => return None,
    };
    Some((of_sum, factor))
}
