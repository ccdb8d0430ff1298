//! Averages of groups, of which kernels have the sums and the counts.

use arrow::datatypes::DataType;
use datafusion::physical_expr::aggregate::AggregateFunctionExpr;
use vectile_gpu::plan::{Arithmetic, Expr, Literal, Type};

/// A column of groups that is an average, by its number, with those of what it is made of.
pub(crate) struct Average {
    pub(super) column: usize,
    pub(super) sum: usize,
    pub(super) count: usize,
    /// By how much a decimal has more than its sum; `None` of floats.
    pub(super) factor: Option<i128>,
}

impl Average {
    /// The average, of the places in the pipeline of the sum and the count. Decimals are as DataFusion has them: with more digits
    /// than the sum before it is divided, and none of what is left.
    pub(super) fn value(&self, sum: usize, count: usize) -> Expr {
        let (sum, count) = (Expr::Column(sum), Box::new(Expr::Column(count)));
        match self.factor {
            None => {
                let count = Expr::Cast(count, Type::F64);
                Expr::Arithmetic(Arithmetic::Divide, Box::new(sum), Box::new(count))
            }
            Some(factor) => {
                let factor = Expr::Literal(Literal::Int(factor, Type::I128));
                let sum = Expr::Arithmetic(Arithmetic::Multiply, Box::new(sum), Box::new(factor));
                Expr::Average(Box::new(sum), count)
            }
        }
    }
}

/// The type of the sum that an average is made of, and by how much that has to be more before it is divided. `None` if
/// kernels have no such average.
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
