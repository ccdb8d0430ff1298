//! Scales: conversion of a vector's floats to integers and back.

use std::marker::PhantomData;

use crate::error::{Result, ensure};
use crate::float::{Float, nearest_integer};

/// `10^exponent`, exact; and the double nearest to `10^-exponent`. At most 18.
const POWERS: [(f64, f64); 19] = [
    (1e0, 1e0),
    (1e1, 1e-1),
    (1e2, 1e-2),
    (1e3, 1e-3),
    (1e4, 1e-4),
    (1e5, 1e-5),
    (1e6, 1e-6),
    (1e7, 1e-7),
    (1e8, 1e-8),
    (1e9, 1e-9),
    (1e10, 1e-10),
    (1e11, 1e-11),
    (1e12, 1e-12),
    (1e13, 1e-13),
    (1e14, 1e-14),
    (1e15, 1e-15),
    (1e16, 1e-16),
    (1e17, 1e-17),
    (1e18, 1e-18),
];

fn power(exponent: u8) -> f64 {
    POWERS
        .get(usize::from(exponent))
        .map_or(1.0, |(power, _)| *power)
}

fn fraction(exponent: u8) -> f64 {
    POWERS
        .get(usize::from(exponent))
        .map_or(1.0, |(_, fraction)| *fraction)
}

/// The largest exponent of a scale.
pub(super) const fn max_exponent<F: Float>() -> u8 {
    if F::BITS == 64 { 18 } else { 10 }
}

/// The scale of a vector: values are multiplied by `10^exponent * 10^-factor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Scale {
    pub exponent: u8,
    pub factor: u8,
}

/// The factors of a scale.
#[derive(Clone, Copy)]
pub(super) struct Factors<F> {
    /// `10^exponent`, then `10^-factor`: to the integer.
    power: f64,
    fraction: f64,
    /// `10^factor`, then `10^-exponent`: from the integer.
    unpower: f64,
    unfraction: f64,
    /// The largest integer.
    limit: i64,
    float: PhantomData<F>,
}

impl Scale {
    /// From the largest exponent and factor down: earlier ones win ties.
    pub fn all<F: Float>() -> impl Iterator<Item = Self> {
        let exponents = (0..=max_exponent::<F>()).rev();
        exponents.flat_map(|exponent| {
            (0..=exponent)
                .rev()
                .map(move |factor| Self { exponent, factor })
        })
    }

    #[inline(always)]
    pub fn factors<F: Float>(self) -> Factors<F> {
        Factors {
            power: power(self.exponent),
            fraction: fraction(self.factor),
            unpower: power(self.factor),
            unfraction: fraction(self.exponent),
            limit: F::MAX_INTEGER.min(i64::MAX / 10i64.pow(u32::from(self.factor))),
            float: PhantomData,
        }
    }
}

impl<F: Float> Factors<F> {
    #[inline(always)]
    pub fn to_integer(self, value: F) -> i64 {
        nearest_integer(value.to_double() * self.power * self.fraction)
    }

    #[inline(always)]
    pub fn to_float(self, unpacked: F::Unpacked) -> F {
        F::from_double(F::integer_to_double(unpacked) * self.unpower * self.unfraction)
    }

    /// Returns true if `integer` restores `value`.
    #[inline(always)]
    pub fn holds(self, integer: i64, value: F) -> bool {
        let same = self.to_float(F::unpacked(integer)).to_bits64() == value.to_bits64();
        same & (integer.wrapping_add(self.limit) as u64 <= 2 * self.limit as u64)
    }

    /// The smallest and the largest integer whose floats have a key in `low..=high`; crossed if there are none.
    pub fn range(self, low: i64, high: i64) -> (i64, i64) {
        let last = match high.checked_add(1) {
            Some(above) => self.first_at_least(above) - 1,
            None => self.limit,
        };
        (self.first_at_least(low), last)
    }

    /// The smallest integer whose float's key is at least `key`; `limit + 1` if there is none.
    ///
    /// Floats ascend with their integers, so this is a search with a good first guess: the nearest
    /// integer, from which steps grow until they bracket the answer.
    fn first_at_least(self, key: i64) -> i64 {
        let (mut below, mut smallest) = (-self.limit - 1, self.limit + 1);
        let mut probe = self
            .to_integer(F::from_key(key))
            .clamp(-self.limit, self.limit);
        let mut step = 1;
        loop {
            let next = if self.to_float(F::unpacked(probe)).key() >= key {
                smallest = probe;
                smallest - step
            } else {
                below = probe;
                below + step
            };
            if smallest - below <= 1 {
                return smallest;
            }
            let inside = below < next && next < smallest;
            probe = if inside {
                next
            } else {
                below + (smallest - below) / 2
            };
            step = (step * 2).min(2 * self.limit + 2);
        }
    }
}

/// The range of decimal integers whose floats have a key in `low..=high`, for ALP values of
/// `exponent` and `factor`; `None` if there are none. `single`: values are `f32`.
///
/// # Errors
///
/// [`Error::Corrupt`](crate::Error::Corrupt) for an exponent or a factor that the type does not have.
pub fn alp_integers(
    single: bool,
    exponent: u8,
    factor: u8,
    low: i64,
    high: i64,
) -> Result<Option<(i64, i64)>> {
    let scale = Scale { exponent, factor };
    let largest = match single {
        true => max_exponent::<f32>(),
        false => max_exponent::<f64>(),
    };
    ensure(factor <= exponent && exponent <= largest, "alp", || {
        format!("exponent {exponent} and factor {factor}")
    })?;
    let (first, last) = match single {
        true => scale.factors::<f32>().range(low, high),
        false => scale.factors::<f64>().range(low, high),
    };
    Ok((low <= high && first <= last).then_some((first, last)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::float::tests::values;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_first_integer_of_a_key_is_the_first(key in values::<f64>(), exponent in 0..=18u8, factor in 0..=18u8) {
            let factors: Factors<f64> = Scale { exponent, factor: factor.min(exponent) }.factors();
            let first = factors.first_at_least(key.key());
            let reached = |integer: i64| factors.to_float(f64::unpacked(integer)).key() >= key.key();
            prop_assert!(first > factors.limit || reached(first));
            prop_assert!(first <= -factors.limit || !reached(first - 1));
        }
    }

    #[test]
    fn integers_give_back_their_value_in_integer_arithmetic_too() {
        for scale in Scale::all::<f64>() {
            let factors: Factors<f64> = scale.factors();
            for integer in
                [0, 1, 99, 12_345_678_901, factors.limit].map(|i: i64| i.min(factors.limit))
            {
                let product = integer
                    .checked_mul(10i64.pow(u32::from(scale.factor)))
                    .unwrap();
                let expected = product as f64 * factors.unfraction;
                assert_eq!(
                    factors.to_float(f64::unpacked(integer)),
                    expected,
                    "{scale:?}"
                );
            }
        }
        for scale in Scale::all::<f32>() {
            let factors: Factors<f32> = scale.factors();
            for integer in [0, 1, 9_999_999, factors.limit] {
                let product = integer
                    .checked_mul(10i64.pow(u32::from(scale.factor)))
                    .unwrap();
                let expected = (product as f64 * factors.unfraction) as f32;
                assert_eq!(
                    factors.to_float(f32::unpacked(integer)),
                    expected,
                    "{scale:?}"
                );
            }
        }
    }
}
