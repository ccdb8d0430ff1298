//! Sums of doubles without intermediate rounding: independent of the order.
//!
//! A superaccumulator (Kulisch): one fixed-point number wide enough for every double, in digits of 32 bits that are
//! added up without carries until the end.

/// Digits: doubles reach from 2^-1074 to below 2^1024, plus a few bits for the sum of many.
const DIGITS: usize = (1074 + 1024) / 32 + 3;
/// The exponent of the lowest bit.
const LOWEST: i32 = -1074;

/// A sum of doubles. At most 2^31 may be added.
#[derive(Clone, Debug)]
pub(crate) struct ExactSum {
    digits: [i64; DIGITS],
    /// The sum of the infinities and NaNs, if there are any.
    special: Option<f64>,
}

impl Default for ExactSum {
    fn default() -> Self {
        Self {
            digits: [0; DIGITS],
            special: None,
        }
    }
}

impl ExactSum {
    pub fn add(&mut self, value: f64) {
        if !value.is_finite() {
            self.special = Some(self.special.map_or(value, |sum| sum + value));
            return;
        }
        let bits = value.to_bits();
        let exponent = (bits >> 52 & 0x7FF) as usize;
        let fraction = bits & ((1 << 52) - 1);
        let (mantissa, shift) = match exponent {
            0 => (fraction, 0),
            _ => (fraction | 1 << 52, exponent - 1),
        };
        let shifted = u128::from(mantissa) << (shift % 32);
        for (i, digit) in self.digits[shift / 32..][..3].iter_mut().enumerate() {
            let part = (shifted >> (32 * i)) as u32;
            *digit += if value < 0.0 {
                -i64::from(part)
            } else {
                i64::from(part)
            };
        }
    }

    pub fn merge(&mut self, other: &Self) {
        let digits = self.digits.iter_mut().zip(&other.digits);
        digits.for_each(|(a, b)| *a += b);
        if let Some(special) = other.special {
            self.special = Some(self.special.map_or(special, |sum| sum + special));
        }
    }

    /// The double nearest to the sum.
    pub fn value(&self) -> f64 {
        if let Some(special) = self.special {
            return special;
        }
        let (mut digits, negative) = match carried(&self.digits, 1) {
            (digits, carry) if carry >= 0 => (digits, false),
            _ => (carried(&self.digits, -1).0, true),
        };
        let Some(top) = digits.iter().rposition(|digit| *digit != 0) else {
            return 0.0;
        };
        // 65 to 96 bits, and a sticky bit for anything below: enough to round once
        let bottom = top.saturating_sub(2);
        if digits[..bottom].iter().any(|digit| *digit != 0) {
            digits[bottom] |= 1;
        }
        let word = |i: usize| u128::from(digits.get(bottom + i).copied().unwrap_or(0));
        let magnitude = (word(0) | word(1) << 32 | word(2) << 64) as f64;
        // the power of two may exceed the range of a double
        let exponent = 32 * bottom as i32 + LOWEST;
        let half = exponent / 2;
        let scaled = magnitude * 2f64.powi(half) * 2f64.powi(exponent - half);
        if negative { -scaled } else { scaled }
    }
}

/// `sign` times the digits, normalized to below 2^32 each, and the carry: -1 for a negative number.
fn carried(digits: &[i64; DIGITS], sign: i64) -> ([u32; DIGITS], i64) {
    let mut carry = 0;
    let carried = std::array::from_fn(|i| {
        let sum = sign * digits[i] + carry;
        carry = sum >> 32;
        sum as u32
    });
    (carried, carry)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(values: &[f64]) -> f64 {
        let mut sum = ExactSum::default();
        values.iter().for_each(|value| sum.add(*value));
        sum.value()
    }

    #[test]
    fn rounds_once() {
        assert_eq!(sum(&[]), 0.0);
        assert_eq!(sum(&[0.1, 0.2, 0.3]), 0.6);
        assert_eq!(sum(&[1e308, 1e308, -1e308, -1e308, 1.0]), 1.0);
        assert_eq!(sum(&[1e300, 1.0, -1e300]), 1.0);
        assert_eq!(sum(&[-1e300, -1.0, 1e300, -2.5]), -3.5);
        assert_eq!(sum(&[f64::MAX, f64::MAX]), f64::INFINITY);
        assert_eq!(sum(&[5e-324, 5e-324, -1e-323]), 0.0);
        assert_eq!(
            sum(&[5e-324, f64::MIN_POSITIVE]),
            5e-324 + f64::MIN_POSITIVE
        );
        // half way between two doubles, and a little more
        assert_eq!(sum(&[1.0, f64::EPSILON / 2.0]), 1.0);
        assert_eq!(sum(&[1.0, f64::EPSILON / 2.0, 1e-300]), 1.0 + f64::EPSILON);
        assert!(sum(&[f64::INFINITY, f64::NEG_INFINITY]).is_nan());
        assert_eq!(sum(&[f64::NEG_INFINITY, 1.0]), f64::NEG_INFINITY);
    }

    #[test]
    fn order_does_not_matter() {
        let mut state = 1u64;
        let mut values: Vec<f64> = (0..5000)
            .map(|_| {
                state = state
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                f64::from_bits(state & !(1 << 62))
            })
            .filter(|value| value.is_finite())
            .collect();
        let expected = sum(&values).to_bits();
        values.reverse();
        assert_eq!(sum(&values).to_bits(), expected);
        let (a, b) = values.split_at(1234);
        let mut parts = [ExactSum::default(), ExactSum::default()];
        b.iter().for_each(|value| parts[0].add(*value));
        a.iter().for_each(|value| parts[1].add(*value));
        let [mut first, second] = parts;
        first.merge(&second);
        assert_eq!(first.value().to_bits(), expected);
    }
}
