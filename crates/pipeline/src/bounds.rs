//! Bounds of integers, and the types that they are computed in.

use crate::op::DatePart;
use crate::types::Type;

/// Maximum rows of a sum.
const MOST_ROWS: i128 = 1 << 31;

/// The dates that arrow-rs supports, those of chrono: -262143-01-01 to 262142-12-31, in days since 1970-01-01.
pub const KNOWN_DAYS: Bounds = Bounds(-96_465_292, 95_026_236);

/// The smallest and the largest value that an integer may have. They need not be tight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Bounds(pub i128, pub i128);

impl Bounds {
    /// `low..=high` rounded out to powers of two, so that few kernels differ by them.
    pub fn rounded(low: i128, high: i128) -> Self {
        let up = |x: i128| match 128 - x.unsigned_abs().leading_zeros() {
            127.. => i128::MAX,
            bits => (1i128 << bits) - 1,
        };
        let low = if low < 0 { !up(!low) } else { 0 };
        Self(low, if high > 0 { up(high) } else { 0 })
    }

    /// Bounds of all constants of the same size class and sign: constants are arguments.
    pub fn literal(value: i128) -> Self {
        let bits = 128 - value.unsigned_abs().leading_zeros();
        let bits = [7, 15, 31, 63]
            .into_iter()
            .find(|b| bits <= *b)
            .unwrap_or(127);
        let top = if bits == 127 {
            i128::MAX
        } else {
            (1i128 << bits) - 1
        };
        match value {
            ..0 => Self(-top, 0),
            _ => Self(0, top),
        }
    }

    /// All values of a type; `0..=0` for floats.
    pub fn of(of: Type) -> Self {
        let (low, high) = of.range().unwrap_or((0, 0));
        Self(low, high)
    }

    /// Returns true if all values are within `other`, too.
    pub fn within(self, other: Self) -> bool {
        other.0 <= self.0 && self.1 <= other.1
    }

    /// Bounds of values that are within `self` or `other`.
    pub fn union(self, other: Self) -> Self {
        Self(self.0.min(other.0), self.1.max(other.1))
    }

    /// The narrowest of `i32`, `i64` and `i128` that has all values.
    pub fn name(self) -> &'static str {
        if self.within(Self::of(Type::I32)) {
            "i32"
        } else if self.within(Self::of(Type::I64)) {
            "i64"
        } else {
            "i128"
        }
    }

    /// The days, or for parts of times the seconds, that arrow-rs supports.
    pub fn known(part: DatePart) -> Self {
        let Self(first, last) = KNOWN_DAYS;
        match part.is_of_time() {
            true => Self(86_400 * first, 86_400 * last + 86_399),
            false => KNOWN_DAYS,
        }
    }

    /// Bounds of values within `self` divided by `divisor`, which is positive, and rounded down.
    pub fn floor_divided(self, divisor: i64) -> Self {
        let divisor = i128::from(divisor.max(1));
        Self(self.0.div_euclid(divisor), self.1.div_euclid(divisor))
    }

    /// Bounds of a part of dates whose days are within `self`, or of times whose seconds are.
    pub fn of_part(self, part: DatePart) -> Self {
        match part {
            DatePart::Year => {
                // a year has 365 days or 366
                let year = |day: i128, days| 1970 + day.div_euclid(days);
                let Self(first, last) = self;
                Self(
                    year(first, 365).min(year(first, 366)),
                    year(last, 365).max(year(last, 366)),
                )
            }
            DatePart::Quarter => Self(1, 4),
            DatePart::Month => Self(1, 12),
            DatePart::Day => Self(1, 31),
            DatePart::DayOfWeek => Self(0, 6),
            DatePart::DayOfYear => Self(1, 366),
            DatePart::Hour => Self(0, 23),
            DatePart::Minute | DatePart::Second => Self(0, 59),
        }
    }

    /// Bounds of the remainders of values within `self` by `divisor`. A remainder has the sign of the dividend.
    pub fn remainders(self, divisor: i128) -> Self {
        let most = divisor.saturating_abs().saturating_sub(1).max(0);
        Self(self.0.clamp(-most, 0), self.1.clamp(0, most))
    }

    /// Clamps both ends to `to`.
    pub fn clamped(self, to: Self) -> Self {
        Self(self.0.clamp(to.0, to.1), self.1.clamp(to.0, to.1))
    }

    /// Bounds of the sum of values within `self` over any number of rows, each counted at most `times` times; not
    /// always tight.
    pub fn of_sum(self, times: u64) -> (i128, i128) {
        let most = MOST_ROWS.saturating_mul(times.into());
        (
            self.0.min(0).saturating_mul(most),
            self.1.max(0).saturating_mul(most),
        )
    }

    /// Bounds of the product; `None` if they do not fit 128 bits.
    pub fn product(self, other: Self) -> Option<Self> {
        let Self(low, high) = other;
        let ends = [
            self.0.checked_mul(low)?,
            self.0.checked_mul(high)?,
            self.1.checked_mul(low)?,
            self.1.checked_mul(high)?,
        ];
        Some(Self(*ends.iter().min()?, *ends.iter().max()?))
    }

    /// Bits of the largest magnitude.
    pub fn bits(self) -> u32 {
        let of = |x: i128| 128 - x.unsigned_abs().leading_zeros();
        of(self.0).max(of(self.1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn years_are_within_those_of_their_days() {
        // 1969-12-31, 1970-01-01, 1970-12-31, 1972-12-31, 1973-01-01, 2000-02-29, 2024-12-31, 0001-01-01
        let years = [
            (-1, 1969),
            (0, 1970),
            (364, 1970),
            (1095, 1972),
            (1096, 1973),
            (11_016, 2000),
            (20_088, 2024),
            (-719_162, 1),
        ];
        for (day, year) in years {
            let Bounds(low, high) = Bounds(day, day).of_part(DatePart::Year);
            assert!(low <= year && year <= high, "{day}: {low} to {high}");
            assert!(high - low <= 7, "{day}: {low} to {high}");
        }
        assert_eq!(Bounds(-5, 700).of_part(DatePart::Month), Bounds(1, 12));
    }

    #[test]
    fn quotients_are_rounded_down() {
        assert_eq!(Bounds(-1, 59).floor_divided(60), Bounds(-1, 0));
        assert_eq!(Bounds(-61, 60).floor_divided(60), Bounds(-2, 1));
    }

    #[test]
    fn remainders_are_smaller_than_the_divisor() {
        assert_eq!(Bounds(0, 1000).remainders(7), Bounds(0, 6));
        assert_eq!(Bounds(-1000, 3).remainders(-7), Bounds(-6, 3));
        assert_eq!(Bounds(5, 9).remainders(100), Bounds(0, 9));
        assert_eq!(Bounds(-9, -5).remainders(i128::MIN), Bounds(-9, 0));
    }
}
