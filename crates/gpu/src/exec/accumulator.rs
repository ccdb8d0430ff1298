//! Accumulator states: read from the words that kernels leave behind, and merged.

use super::exact::ExactSum;
use crate::kernel::{Accumulator, Accumulators, ResultSlots};
use vectile_pipeline::{GroupTotals, Number, Numbers, Total, Type};

/// State of one accumulator.
#[derive(Clone, Debug)]
pub(super) enum AccumulatorState {
    Sum(i128),
    FloatSum(Box<ExactSum>),
    Min(Number),
    Max(Number),
}

impl AccumulatorState {
    /// Combines the words of several warps, blocks or slots. For min and max, the result is arbitrary if no word has a
    /// value.
    pub fn of<'a>(
        accumulator: Accumulator,
        words: impl Iterator<Item = &'a [u8; 16]> + Clone,
    ) -> Self {
        let ints = words.map(|word| i128::from_le_bytes(*word));
        match accumulator {
            // the part of a key is in tables only, and no result
            Accumulator::Count { .. }
            | Accumulator::Sum { .. }
            | Accumulator::DistinctCount
            | Accumulator::KeyPart => Self::Sum(ints.fold(0, i128::wrapping_add)),
            Accumulator::FloatSum => {
                let mut sum = Box::<ExactSum>::default();
                ints.for_each(|word| sum.add(f64::from_bits(word as u64)));
                Self::FloatSum(sum)
            }
            Accumulator::Min(of) => Self::Min(number(ints.min().unwrap_or(0), of)),
            Accumulator::Max(of) => Self::Max(number(ints.max().unwrap_or(0), of)),
        }
    }

    pub fn number(&self) -> Number {
        match self {
            Self::Sum(sum) => Number::Int(*sum),
            Self::FloatSum(sum) => Number::Float(sum.value()),
            Self::Min(value) | Self::Max(value) => *value,
        }
    }

    /// The number of values; 0 for an accumulator that does not count.
    pub fn count(&self) -> u64 {
        match self {
            Self::Sum(count) => *count as u64,
            _ => 0,
        }
    }

    /// Adds the state of the same accumulator elsewhere.
    pub fn merge(&mut self, other: &Self) {
        match (self, other) {
            (Self::Sum(a), Self::Sum(b)) => *a = a.wrapping_add(*b),
            (Self::FloatSum(a), Self::FloatSum(b)) => a.merge(b),
            (Self::Min(a), Self::Min(b)) if is_less(*b, *a) => *a = *b,
            (Self::Max(a), Self::Max(b)) if is_less(*a, *b) => *a = *b,
            _ => {}
        }
    }
}

/// Returns true if `a` is less than `b`: two numbers of one kind, floats in their total order.
fn is_less(a: Number, b: Number) -> bool {
    match (a, b) {
        (Number::Int(a), Number::Int(b)) => a < b,
        (Number::Float(a), Number::Float(b)) => a.total_cmp(&b).is_lt(),
        _ => false,
    }
}

/// Partial result of an aggregate.
#[derive(Clone, Debug)]
pub(super) struct PartialResult {
    count: u64,
    /// `None` if no value was counted, or if the aggregate is a count.
    value: Option<AccumulatorState>,
    is_count: bool,
}

impl PartialResult {
    /// The partial result of an aggregate, from the states of its accumulators.
    pub fn of(result: &ResultSlots, states: &[AccumulatorState]) -> Self {
        let count = states[result.count].count();
        let value = result.value.filter(|_| count > 0);
        Self {
            count,
            value: value.map(|value| states[value].clone()),
            is_count: result.value.is_none(),
        }
    }

    /// The result so far, as callers get it.
    pub fn total(&self) -> Total {
        let value = self.value.as_ref().map(AccumulatorState::number);
        let count = Number::Int(self.count.into());
        Total {
            count: self.count,
            value: value.or_else(|| self.is_count.then_some(count)),
        }
    }

    pub fn merge(&mut self, other: Self) {
        self.count += other.count;
        match (&mut self.value, &other.value) {
            (Some(value), Some(other)) => value.merge(other),
            (None, Some(_)) => self.value = other.value,
            (_, None) => {}
        }
    }
}

/// Numbers from the words of a group table's entries. `high` gives the high words of wide sums.
fn numbers_of(accumulator: Accumulator, low: Vec<u64>, high: impl FnOnce() -> Vec<u64>) -> Numbers {
    let ordered = |word: u64| i128::from((word ^ 1 << 63) as i64);
    let low = low.into_iter();
    match accumulator {
        Accumulator::Count { .. } | Accumulator::DistinctCount => {
            Numbers::Int(low.map(i128::from).collect())
        }
        Accumulator::Sum { wide: false } | Accumulator::KeyPart => {
            Numbers::Int(low.map(|word| i128::from(word as i64)).collect())
        }
        Accumulator::Sum { wide: true } => {
            let wide = |(low, high): (u64, u64)| i128::from(low) | i128::from(high as i64) << 64;
            Numbers::Int(low.zip(high()).map(wide).collect())
        }
        Accumulator::FloatSum => Numbers::Float(low.map(f64::from_bits).collect()),
        // minima are stored inverted
        Accumulator::Min(of) => numbers(low.map(|word| number(ordered(!word), of)), accumulator),
        Accumulator::Max(of) => numbers(low.map(|word| number(ordered(word), of)), accumulator),
    }
}

/// The results of groups. `words` gives the words of an accumulator, by its index: the low (0) or the high (1) ones.
pub(super) fn totals_of(
    accumulators: &Accumulators,
    words: impl Fn(usize, usize) -> Vec<u64>,
) -> Vec<GroupTotals> {
    let totals = accumulators.results.iter().map(|result| GroupTotals {
        counts: words(result.count, 0),
        values: match result.value {
            None => Numbers::Int(vec![]),
            Some(at) => {
                let of = accumulators.all[at].accumulator;
                numbers_of(of, words(at, 0), || words(at, 1))
            }
        },
    });
    totals.collect()
}

/// Collects numbers as floats or integers, as the accumulator has them.
pub(super) fn numbers(of: impl Iterator<Item = Number>, accumulator: Accumulator) -> Numbers {
    let float = |number| match number {
        Number::Float(value) => value,
        Number::Int(_) => 0.0,
    };
    let int = |number| match number {
        Number::Int(value) => value,
        Number::Float(_) => 0,
    };
    match accumulator.is_float() {
        true => Numbers::Float(of.map(float).collect()),
        false => Numbers::Int(of.map(int).collect()),
    }
}

/// Maps a key back to its number: the integer itself, or the float at that position of the total order.
fn number(key: i128, of: Type) -> Number {
    match of {
        Type::F32 => {
            let key = key as i32;
            let bits = key ^ ((key >> 31) as u32 >> 1) as i32;
            Number::Float(f32::from_bits(bits as u32).into())
        }
        Type::F64 => {
            let key = key as i64;
            Number::Float(f64::from_bits(
                (key ^ ((key >> 63) as u64 >> 1) as i64) as u64,
            ))
        }
        _ => Number::Int(key),
    }
}
