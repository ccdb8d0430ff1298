//! What accumulators come to.

use super::exact::ExactSum;
use crate::kernel::{Fold, Outcome};
use crate::plan::{Number, Total, Type};

/// An aggregate so far.
#[derive(Clone, Debug)]
pub(super) struct Part {
    count: u64,
    value: Option<Folded>,
}

/// What accumulators came to.
#[derive(Clone, Debug)]
pub(super) enum Folded {
    Int(i128),
    /// An extreme.
    Float(f64),
    Sum(Box<ExactSum>),
}

impl Folded {
    fn number(&self) -> Number {
        match self {
            Self::Int(value) => Number::Int(*value),
            Self::Float(value) => Number::Float(*value),
            Self::Sum(sum) => Number::Float(sum.value()),
        }
    }
}

impl Part {
    /// The result of an aggregate.
    pub fn of(result: &Outcome, folded: &[Folded]) -> Self {
        let count = match folded.get(result.count) {
            Some(Folded::Int(count)) => *count as u64,
            _ => 0,
        };
        let value = match (result.value, count) {
            (None, _) => Some(Folded::Int(i128::from(count))),
            (Some(_), 0) => None,
            (Some(at), _) => folded.get(at).map(|folded| match (result.key, folded) {
                (Some(of), Folded::Int(key)) => Folded::Float(float_of(*key, of)),
                _ => folded.clone(),
            }),
        };
        Self { count, value }
    }

    /// The same for who asked.
    pub fn total(&self) -> Total {
        Total {
            count: self.count,
            value: self.value.as_ref().map(Folded::number),
        }
    }

    pub fn combine(&mut self, other: Self, fold: Fold) {
        use Folded::{Float, Int, Sum};
        self.count += other.count;
        self.value = match (self.value.take(), other.value) {
            (Some(Int(a)), Some(Int(b))) => Some(Int(match fold {
                Fold::Min => a.min(b),
                Fold::Max => a.max(b),
                Fold::Count | Fold::SumInt | Fold::SumFloat => a.wrapping_add(b),
            })),
            (Some(Float(a)), Some(Float(b))) => Some(Float(match fold {
                Fold::Min if b.total_cmp(&a).is_lt() => b,
                Fold::Max if b.total_cmp(&a).is_gt() => b,
                _ => a,
            })),
            (Some(Sum(mut a)), Some(Sum(b))) => {
                a.merge(&b);
                Some(Sum(a))
            }
            (a, b) => a.or(b),
        };
    }
}

/// What the accumulators of several warps, blocks or slots come to.
pub(super) fn fold_words<'a>(fold: Fold, words: impl Iterator<Item = &'a [u8; 16]>) -> Folded {
    let ints = words.map(|word| i128::from_le_bytes(*word));
    match fold {
        Fold::Count | Fold::SumInt => Folded::Int(ints.fold(0, i128::wrapping_add)),
        Fold::SumFloat => {
            let mut sum = Box::<ExactSum>::default();
            ints.for_each(|word| sum.add(f64::from_bits(word as u64)));
            Folded::Sum(sum)
        }
        Fold::Min => Folded::Int(ints.min().unwrap_or(0)),
        Fold::Max => Folded::Int(ints.max().unwrap_or(0)),
    }
}

/// The float with that place in the total order.
pub(super) fn float_of(key: i128, of: Type) -> f64 {
    match of {
        Type::F32 => {
            let key = key as i32;
            f64::from(f32::from_bits(
                (key ^ ((key >> 31) as u32 >> 1) as i32) as u32,
            ))
        }
        _ => {
            let key = key as i64;
            f64::from_bits((key ^ ((key >> 63) as u64 >> 1) as i64) as u64)
        }
    }
}
