//! Variances and standard deviations: the sums that kernels compute, and the accumulator states derived from them.
//!
//! The state of DataFusion's accumulators is the count, the mean, and the sum of squared distances from the mean
//! (`m2`). Kernels do not know the mean while they add, so they compute other sums:
//!
//! - For integers and decimals, the exact sums of values and of squares. Nothing is rounded before the end. If squares
//!   may exceed 64 bits, values are treated as floats, as DataFusion does.
//! - For floats, the sums of `d = x - shift` and of `d * d`. Then `m2 = sum(d * d) - sum(d)^2 / n`. If that cancels
//!   most digits, the values lie close together and far from the shift. The kernel then runs a second time with their
//!   mean as the shift, which is an argument. If that does not help, as groups may lie far from each other, the CPU
//!   takes over. The minimum and maximum show whether all values are equal, or some are not finite.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, UInt64Array};
use datafusion::common::{Result, internal_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::CastExpr;
use vectile_pipeline::{Aggregate, Arithmetic, Expr, GroupTotals, Literal, Numbers, Type};

use super::decimal::{Decimal, cast};
use super::expression::Lowering;
use crate::fused::fallback_reason::FallbackReason;

/// Maximum share of `m2` that may be lost to rounding.
const MAX_LOSS: f64 = 1e-9;

/// Maximum number of additions assumed to round a sum of doubles: those of a slot, with room for the longer ones of a
/// table, where most errors cancel each other.
const MAX_ROUNDED_ADDITIONS: u64 = 1 << 12;

/// How the variance of an argument is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Variance {
    /// For integers of type `of`, by exact sums. The integers are the values times `unit`.
    Exact { of: Type, unit: f64 },
    /// For floats, by sums of distances from a shift.
    Shifted(Shifted),
}

/// The shift in use, and totals from which a shift close to the mean is computed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Shifted {
    /// The shift, which is subtracted from each value.
    by: f64,
    /// Count and sum of the distances from the shift, over all groups with unequal, finite values.
    count: f64,
    sum: f64,
    /// True if some group's values are too close together for this shift.
    is_close: bool,
}

/// The state of DataFusion's accumulator.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct State {
    count: u64,
    mean: f64,
    m2: f64,
}

impl Variance {
    /// Lowers an argument, which is a double.
    pub(crate) fn lower(
        argument: &Arc<dyn PhysicalExpr>,
        lowering: &mut Lowering<'_>,
    ) -> std::result::Result<(Self, Expr), FallbackReason> {
        if let Some(of) = argument.downcast_ref::<CastExpr>() {
            let from = lowering.type_of(of.expr())?;
            let scale = Decimal::of(&from).map(|decimal| decimal.scale);
            let scale = scale.or(from.is_integer().then_some(0));
            if let (Some(scale), Some(machine)) = (scale, Type::of(&from)) {
                let exact = Self::Exact {
                    of: machine,
                    unit: 10_f64.powi(scale.into()),
                };
                return Ok((exact, lowering.value(of.expr())?));
            }
        }
        let shifted = Self::Shifted(Shifted::default());
        Ok((shifted, lowering.value(argument)?))
    }

    /// The kernel's aggregates of `value`.
    pub(crate) fn aggregates(self, value: Expr) -> Vec<Aggregate> {
        let square = |of: Expr| {
            let copy = of.clone();
            Expr::arithmetic(Arithmetic::Multiply, of, copy)
        };
        match self {
            Self::Exact { of, .. } => {
                // Sums of squares of 64 bits are exact. If some are wider, there is no kernel.
                let squares = square(cast(value.clone(), of, Type::I128));
                let squares = cast(squares, Type::I128, Type::I64);
                vec![Aggregate::Sum(value), Aggregate::Sum(squares)]
            }
            Self::Shifted(Shifted { by, .. }) => {
                let by = Expr::Literal(Literal::F64(by));
                let distance = Expr::arithmetic(Arithmetic::Subtract, value.clone(), by);
                vec![
                    Aggregate::Sum(distance.clone()),
                    Aggregate::Sum(square(distance)),
                    Aggregate::Min(value.clone()),
                    Aggregate::Max(value),
                ]
            }
        }
    }

    /// The number of aggregates of the kernel.
    pub(crate) fn width(self) -> usize {
        match self {
            Self::Exact { .. } => 2,
            Self::Shifted(_) => 4,
        }
    }

    /// Returns true if [`states`](Self::states) records something in it.
    pub(crate) fn is_recorded(self) -> bool {
        matches!(self, Self::Shifted(_))
    }

    /// Returns true if some group lost too many digits.
    pub(crate) fn is_close(self) -> bool {
        matches!(self, Self::Shifted(Shifted { is_close: true, .. }))
    }

    /// A second attempt, with the observed mean as the shift. `None` if no other shift helps: the mean is 0, or this was
    /// the second attempt.
    pub(crate) fn shifted(self) -> Option<Self> {
        match self {
            Self::Shifted(Shifted {
                by: 0.0,
                count,
                sum,
                is_close: true,
            }) if (sum / count).is_finite() && sum != 0.0 => Some(Self::Shifted(Shifted {
                by: sum / count,
                ..Shifted::default()
            })),
            _ => None,
        }
    }

    /// The computation in doubles, for integers that are too wide for exact sums.
    pub(crate) fn rounded(self) -> Option<Self> {
        let is_exact = matches!(self, Self::Exact { .. });
        is_exact.then(|| Self::Shifted(Shifted::default()))
    }

    /// The aggregates of `now`, given `aggregates`, those of `self`.
    pub(crate) fn replaced(self, aggregates: &[Aggregate], now: Self) -> Vec<Aggregate> {
        match (self, aggregates, now) {
            (Self::Exact { of, unit }, [Aggregate::Sum(value), _], Self::Shifted(_)) => {
                let double = cast(value.clone(), of, Type::F64);
                let unit = Expr::Literal(Literal::F64(unit));
                now.aggregates(Expr::arithmetic(Arithmetic::Divide, double, unit))
            }
            (Self::Shifted(_), [.., Aggregate::Max(value)], _) => now.aggregates(value.clone()),
            _ => aggregates.to_vec(),
        }
    }

    /// The states of all groups, from the totals that a kernel computed. Records in `self` if digits were lost.
    pub(crate) fn states(&mut self, totals: &[GroupTotals]) -> Result<Vec<ArrayRef>> {
        let counts = totals.first().map_or(&[][..], |sums| &sums.counts);
        let mut states = Vec::with_capacity(counts.len());
        for (group, &count) in counts.iter().enumerate() {
            states.push(match (&mut *self, totals) {
                _ if count == 0 => State::default(),
                (Self::Exact { unit, .. }, [sums, squares]) => {
                    let [sum, squares] = [sums, squares].map(|of| integer(&of.values, group));
                    State::exact(count, sum, squares, *unit)
                }
                (Self::Shifted(of), [sums, squares, least, greatest]) => {
                    let all = [sums, squares, least, greatest];
                    of.state(count, all.map(|of| float(&of.values, group)))
                }
                _ => return internal_err!("a variance of other sums"),
            });
        }
        let counts: UInt64Array = states.iter().map(|state| Some(state.count)).collect();
        let means = states.iter().map(|state| state.mean);
        let m2s = states.iter().map(|state| state.m2);
        Ok(vec![
            Arc::new(counts),
            Arc::new(Float64Array::from_iter_values(means)),
            Arc::new(Float64Array::from_iter_values(m2s)),
        ])
    }
}

fn integer(numbers: &Numbers, at: usize) -> i128 {
    match numbers {
        Numbers::Int(values) => values.get(at).copied().unwrap_or_default(),
        Numbers::Float(_) | Numbers::Text(_) => 0,
    }
}

fn float(numbers: &Numbers, at: usize) -> f64 {
    match numbers {
        Numbers::Float(values) => values.get(at).copied().unwrap_or_default(),
        Numbers::Int(_) | Numbers::Text(_) => 0.0,
    }
}

impl State {
    /// The state of `count` integers whose squares fit 64 bits; `count` is less than 2^62.
    fn exact(count: u64, sum: i128, squares: i128, unit: f64) -> Self {
        let n = i128::from(count);
        let (mean, rest) = (sum.div_euclid(n), sum.rem_euclid(n));
        // Squares of distances from an integer close to the mean.
        let squares = squares - mean * (sum + rest);
        let times_n = squares.checked_mul(n).map(|all| all - rest * rest);
        let m2 = match times_n {
            Some(times_n) => times_n as f64 / count as f64,
            None => squares as f64 - (rest as f64).powi(2) / count as f64,
        };
        Self {
            count,
            mean: sum as f64 / count as f64 / unit,
            m2: m2 / unit / unit,
        }
    }
}

impl Shifted {
    /// The state of a group. Sets `is_close` if it is too imprecise.
    fn state(&mut self, count: u64, [sum, squares, least, greatest]: [f64; 4]) -> State {
        let n = count as f64;
        let mean = sum / n + self.by;
        let state = |mean, m2| State { count, mean, m2 };
        if !least.is_finite() || !greatest.is_finite() {
            return state(mean, f64::NAN);
        }
        if least == greatest {
            return state(least, 0.0);
        }
        self.count += n;
        self.sum += sum;
        if ((greatest - least).powi(2) / 2.0).is_infinite() {
            return state(mean, f64::INFINITY);
        }
        let m2 = squares - sum * (sum / n);
        // The distance, its square and the other terms are rounded, as is each addition.
        let lost = (count.min(MAX_ROUNDED_ADDITIONS) + 4) as f64 * f64::EPSILON * squares;
        self.is_close |= !(squares.is_finite() && lost <= MAX_LOSS * m2);
        state(mean, m2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computes the state by DataFusion's algorithm.
    fn welford(values: &[f64]) -> State {
        let mut state = State::default();
        for value in values {
            let distance = value - state.mean;
            state.count += 1;
            state.mean += distance / state.count as f64;
            state.m2 += distance * (value - state.mean);
        }
        state
    }

    fn exact(values: &[i128], unit: f64) -> State {
        let squares = values.iter().map(|value| value * value).sum();
        State::exact(values.len() as u64, values.iter().sum(), squares, unit)
    }

    fn shifted(values: &[f64], by: f64) -> (State, Shifted) {
        let mut of = Shifted {
            by,
            ..Shifted::default()
        };
        let distances = values.iter().map(|value| value - by);
        let squares = distances.clone().map(|distance| distance * distance);
        let order = |a: &&f64, b: &&f64| a.total_cmp(b);
        let ends = [values.iter().min_by(order), values.iter().max_by(order)];
        let [least, greatest] = ends.map(|end| *end.unwrap());
        let state = of.state(
            values.len() as u64,
            [distances.sum(), squares.sum(), least, greatest],
        );
        (state, of)
    }

    fn check(actual: State, expected: State) {
        assert_eq!(actual.count, expected.count);
        let close = |a: f64, b: f64| a == b || (a - b).abs() <= 1e-9 * b.abs();
        assert!(close(actual.mean, expected.mean), "{actual:?} {expected:?}");
        assert!(close(actual.m2, expected.m2), "{actual:?} {expected:?}");
    }

    #[test]
    fn integers_lose_nothing() {
        let most = i128::from(u32::MAX);
        for (values, m2) in [
            (vec![7], 0.0),
            (vec![-3, -3, -3], 0.0),
            (vec![1, 2, 4, -8], 84.75),
            (vec![most, most - 1, most], 2.0 / 3.0),
            (vec![-(1 << 31), 1 << 31], (1_u64 << 63) as f64),
        ] {
            let mean = values.iter().sum::<i128>() as f64 / values.len() as f64;
            let count = values.len() as u64;
            assert_eq!(exact(&values, 1.0), State { count, mean, m2 });
            let scaled = exact(&values, 100.0);
            let (mean, m2) = (mean / 100.0, m2 / 1e4);
            check(scaled, State { count, mean, m2 });
        }
        assert_eq!(exact(&[most, most - 1], 1.0).m2, 0.5);
        // the mean is no integer, and products with the number of values take more than 128 bits
        let state = State::exact(1 << 62, 1 << 61, 1 << 94, 1.0);
        assert_eq!(
            (state.mean, state.m2),
            (0.5, (1_i128 << 94) as f64 - (1_i64 << 60) as f64)
        );
    }

    #[test]
    fn floats_far_from_the_shift_are_shifted() {
        let far: Vec<f64> = (0..1000).map(|i| 1e7 + f64::from(i % 97)).collect();
        let (_, of) = shifted(&far, 0.0);
        assert!(of.is_close);
        let Some(Variance::Shifted(Shifted { by, .. })) = Variance::Shifted(of).shifted() else {
            panic!("{of:?}");
        };
        let (state, of) = shifted(&far, by);
        assert!(!of.is_close);
        check(state, welford(&far));
        // There is no third attempt.
        let second = Shifted {
            is_close: true,
            ..of
        };
        assert_eq!(Variance::Shifted(second).shifted(), None);
        let near: Vec<f64> = (0..1000).map(|i| f64::from(i % 7) * 0.1).collect();
        let (state, of) = shifted(&near, 0.0);
        assert!(!of.is_close);
        check(state, welford(&near));
    }

    #[test]
    fn odd_floats_are_as_for_datafusion() {
        for values in [
            vec![0.1, 0.1, 0.1],
            vec![-0.0, 0.0],
            vec![1e200, -1e200],
            vec![3e-200, 1e-200],
        ] {
            let (state, of) = shifted(&values, 0.0);
            assert!(!of.is_close, "{values:?}");
            assert_eq!(state.m2, welford(&values).m2, "{values:?}");
        }
        for value in [f64::NAN, -f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for values in [vec![value], vec![1.0, value], vec![value, value]] {
                let (state, of) = shifted(&values, 0.0);
                assert!(
                    state.m2.is_nan() && welford(&values).m2.is_nan(),
                    "{values:?}"
                );
                assert!(!of.is_close, "{values:?}");
            }
        }
        // The squares overflow, but the variance does not.
        assert!(shifted(&[1e160, 1.000_000_1e160], 0.0).1.is_close);
    }
}
