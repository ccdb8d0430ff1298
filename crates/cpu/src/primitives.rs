//! Primitives: loops over the values of vectors. Rows that are null or not selected are computed as well.

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::simd::dispatched;
use vectile_pipeline::{Arithmetic, Bounds, Comparison, DatePart, Error, KNOWN_DAYS, Result, Type};

use crate::vector::{HALF, Mask, Values, for_each_row, halves, mask_of, mask_of_pairs};

/// Compares two vectors of one kind.
pub(crate) fn compare(comparison: Comparison, a: &Values, b: &Values) -> Result<Mask> {
    match (a, b) {
        (Values::Int(a), Values::Int(b)) => Ok(compared(comparison, a, b)),
        (Values::Wide(a), Values::Wide(b)) => Ok(compared(comparison, a, b)),
        (Values::Float(a), Values::Float(b)) => {
            let mut ranks = [[0; VECTOR_LEN]; 2];
            ranks_of(a, &mut ranks[0]);
            ranks_of(b, &mut ranks[1]);
            Ok(compared(comparison, &ranks[0], &ranks[1]))
        }
        (Values::Bool(a), Values::Bool(b)) => {
            let word = |word: usize| (a[word], b[word]);
            Ok(std::array::from_fn(|at| {
                let (a, b) = word(at);
                match comparison {
                    Comparison::Equal => !(a ^ b),
                    Comparison::NotEqual => a ^ b,
                    Comparison::Less => !a & b,
                    Comparison::LessOrEqual => !a | b,
                    Comparison::Greater => a & !b,
                    Comparison::GreaterOrEqual => a | !b,
                }
            }))
        }
        _ => Err(mismatch()),
    }
}

trait Ordered: Copy + Ord {}
impl Ordered for i64 {}
impl Ordered for i128 {}

dispatched! {
    fn compared<T: Ordered>(comparison: Comparison, a: &[T; VECTOR_LEN], b: &[T; VECTOR_LEN]) -> Mask {
        match comparison {
            Comparison::Equal => mask_of_pairs(a, b, |a, b| a == b),
            Comparison::NotEqual => mask_of_pairs(a, b, |a, b| a != b),
            Comparison::Less => mask_of_pairs(a, b, |a, b| a < b),
            Comparison::LessOrEqual => mask_of_pairs(a, b, |a, b| a <= b),
            Comparison::Greater => mask_of_pairs(a, b, |a, b| a > b),
            Comparison::GreaterOrEqual => mask_of_pairs(a, b, |a, b| a >= b),
        }
    }
}

/// The position of a float in the total order.
#[inline(always)]
pub(crate) fn rank_of(value: f64) -> i64 {
    let bits = value.to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

dispatched! {
    /// The positions of floats in the total order.
    pub(crate) fn ranks_of(values: &[f64; VECTOR_LEN], ranks: &mut [i64; VECTOR_LEN]) {
        let pairs = ranks.iter_mut().zip(values);
        pairs.for_each(|(rank, value)| *rank = rank_of(*value));
    }
}

/// The float of a [`rank_of`].
pub(crate) fn value_of(rank: i64) -> f64 {
    f64::from_bits((rank ^ ((rank >> 63) as u64 >> 1) as i64) as u64)
}

dispatched! {
    /// Arithmetic on two vectors of one kind; integers wrap around at the bits of the kind.
    pub(crate) fn arithmetic(
        operation: Arithmetic,
        a: &Values,
        b: &Values,
        out: &mut Values,
    ) -> Result<()> {
        macro_rules! combine {
            ($a:expr, $b:expr, $out:expr, $with:expr) => {{
                let pairs = $a.iter().zip($b.iter());
                let out = $out.iter_mut().zip(pairs);
                out.for_each(|(out, (a, b))| *out = $with(*a, *b));
            }};
        }
        macro_rules! integers {
            ($a:expr, $b:expr, $out:expr, $native:ty) => {
                match operation {
                    Arithmetic::Add => combine!($a, $b, $out, <$native>::wrapping_add),
                    Arithmetic::Subtract => combine!($a, $b, $out, <$native>::wrapping_sub),
                    Arithmetic::Multiply => combine!($a, $b, $out, <$native>::wrapping_mul),
                    Arithmetic::Divide => {
                        combine!($a, $b, $out, |a: $native, b| a
                            .checked_div(b)
                            .unwrap_or_default())
                    }
                    Arithmetic::Remainder => {
                        combine!($a, $b, $out, |a: $native, b| a
                            .checked_rem(b)
                            .unwrap_or_default())
                    }
                }
            };
        }
        match (a, b, out) {
            (Values::Int(a), Values::Int(b), Values::Int(out)) => integers!(a, b, out, i64),
            (Values::Wide(a), Values::Wide(b), Values::Wide(out)) => integers!(a, b, out, i128),
            (Values::Float(a), Values::Float(b), Values::Float(out)) => match operation {
                Arithmetic::Add => combine!(a, b, out, |a: f64, b| a + b),
                Arithmetic::Subtract => combine!(a, b, out, |a: f64, b| a - b),
                Arithmetic::Multiply => combine!(a, b, out, |a: f64, b| a * b),
                Arithmetic::Divide => combine!(a, b, out, |a: f64, b| a / b),
                Arithmetic::Remainder => return Err(mismatch()),
            },
            _ => return Err(mismatch()),
        }
        Ok(())
    }
}

dispatched! {
    /// Wraps values around to a type of at most 64 bits.
    pub(crate) fn wrap(of: Type, values: &mut [i64; VECTOR_LEN]) {
        macro_rules! to {
            ($native:ty) => {
                values
                    .iter_mut()
                    .for_each(|x| *x = i64::from(*x as $native))
            };
        }
        match of {
            Type::I8 => to!(i8),
            Type::I16 => to!(i16),
            Type::I32 => to!(i32),
            Type::U8 => to!(u8),
            Type::U16 => to!(u16),
            Type::U32 => to!(u32),
            _ => {}
        }
    }
}

dispatched! {
    /// Converts values to the kind of `out`. Integers fit it.
    pub(crate) fn convert(values: &Values, out: &mut Values) -> Result<()> {
        macro_rules! each {
            ($from:expr, $out:expr, $to:ty) => {{
                let pairs = $out.iter_mut().zip($from.iter());
                pairs.for_each(|(out, value)| *out = *value as $to);
            }};
        }
        macro_rules! bits {
            ($mask:expr, $out:expr, $to:ty) => {{
                let rows = $out.iter_mut().enumerate();
                rows.for_each(|(row, out)| *out = ($mask[row / 64] >> (row % 64) & 1) as $to);
            }};
        }
        match (values, out) {
            (Values::Int(from), Values::Wide(out)) => each!(from, out, i128),
            (Values::Wide(from), Values::Int(out)) => each!(from, out, i64),
            (Values::Int(from), Values::Float(out)) => each!(from, out, f64),
            (Values::Wide(from), Values::Float(out)) => each!(from, out, f64),
            (Values::Bool(mask), Values::Int(out)) => bits!(mask, out, i64),
            (Values::Bool(mask), Values::Wide(out)) => bits!(mask, out, i128),
            (Values::Bool(mask), Values::Float(out)) => bits!(mask, out, f64),
            (from, out) => copy(from, out)?,
        }
        Ok(())
    }
}

/// Copies all values into the vector of the same kind.
pub(crate) fn copy(values: &Values, out: &mut Values) -> Result<()> {
    match (values, out) {
        (Values::Int(from), Values::Int(out)) => out.copy_from_slice(&from[..]),
        (Values::Wide(from), Values::Wide(out)) => out.copy_from_slice(&from[..]),
        (Values::Float(from), Values::Float(out)) => out.copy_from_slice(&from[..]),
        (Values::Bool(from), Values::Bool(out)) => *out = *from,
        _ => return Err(mismatch()),
    }
    Ok(())
}

dispatched! {
    /// Rounds numbers to single precision.
    pub(crate) fn single(values: &Values, out: &mut Values) -> Result<()> {
        macro_rules! each {
            ($from:expr, $out:expr) => {{
                let pairs = $out.iter_mut().zip($from.iter());
                pairs.for_each(|(out, value)| *out = f64::from(*value as f32));
            }};
        }
        match (values, out) {
            (Values::Int(from), Values::Float(out)) => each!(from, out),
            (Values::Float(from), Values::Float(out)) => each!(from, out),
            (from @ Values::Bool(_), out) => convert(from, out)?,
            _ => return Err(mismatch()),
        }
        Ok(())
    }
}

#[inline(always)]
fn blend<T: Copy>(mask: &Mask, values: &[T; VECTOR_LEN], out: &mut [T; VECTOR_LEN]) {
    let values = values.as_chunks::<HALF>().0.iter();
    let parts = out.as_chunks_mut::<HALF>().0.iter_mut().zip(values);
    for (word, (out, values)) in halves(mask).zip(parts) {
        for lane in 0..HALF {
            // copied or not, all lanes do the same
            out[lane] = if word >> lane & 1 == 1 {
                values[lane]
            } else {
                out[lane]
            };
        }
    }
}

dispatched! {
    fn blend_ints(mask: &Mask, values: &[i64; VECTOR_LEN], out: &mut [i64; VECTOR_LEN]) {
        blend(mask, values, out);
    }
}

dispatched! {
    fn blend_floats(mask: &Mask, values: &[f64; VECTOR_LEN], out: &mut [f64; VECTOR_LEN]) {
        blend(mask, values, out);
    }
}

/// Copies the values of the rows of a mask.
pub(crate) fn merge(mask: &Mask, values: &Values, out: &mut Values) -> Result<()> {
    match (values, out) {
        (Values::Int(from), Values::Int(out)) => blend_ints(mask, from, out),
        (Values::Wide(from), Values::Wide(out)) => {
            for_each_row(mask, |row| out[row] = from[row]);
        }
        (Values::Float(from), Values::Float(out)) => blend_floats(mask, from, out),
        (Values::Bool(from), Values::Bool(out)) => {
            for ((out, from), mask) in out.iter_mut().zip(from).zip(mask) {
                *out = (*out & !mask) | (from & mask);
            }
        }
        _ => return Err(mismatch()),
    }
    Ok(())
}

dispatched! {
    /// The days, or seconds, of which arrow-rs computes a part.
    pub(crate) fn known_times(part: DatePart, times: &[i64; VECTOR_LEN]) -> Mask {
        let Bounds(first, last) = Bounds::known(part);
        let (first, last) = (first as i64, last as i64);
        mask_of(times, |time| first <= time && time <= last)
    }
}

dispatched! {
    /// Divides by a positive constant, and rounds down.
    pub(crate) fn floor_divide(divisor: i64, values: &[i64; VECTOR_LEN], out: &mut [i64; VECTOR_LEN]) {
        let pairs = out.iter_mut().zip(values);
        // division by what the compiler knows is a multiplication
        macro_rules! known {
            ($($known:literal)*) => {
                match divisor {
                    $($known => pairs.for_each(|(out, value)| *out = value.div_euclid($known)),)*
                    _ => pairs.for_each(|(out, value)| *out = value.checked_div_euclid(divisor).unwrap_or(0)),
                }
            };
        }
        // a second, minute, hour and day in each unit of time
        known!(
            1_000 1_000_000 1_000_000_000
            60 60_000 60_000_000 60_000_000_000
            3_600 3_600_000 3_600_000_000 3_600_000_000_000
            86_400 86_400_000 86_400_000_000 86_400_000_000_000
        )
    }
}

dispatched! {
    /// A part of dates in days since 1970-01-01, or of times in seconds. Unknown ones have arbitrary parts.
    pub(crate) fn date_part(part: DatePart, times: &[i64; VECTOR_LEN], out: &mut [i64; VECTOR_LEN]) {
        let pairs = out.iter_mut().zip(times);
        match part {
            DatePart::DayOfWeek => pairs.for_each(|(out, day)| *out = day.wrapping_add(4).rem_euclid(7)),
            DatePart::Year => pairs.for_each(|(out, day)| *out = date_of(*day).0),
            DatePart::Month => pairs.for_each(|(out, day)| *out = date_of(*day).1),
            DatePart::Quarter => pairs.for_each(|(out, day)| *out = (date_of(*day).1 + 2) / 3),
            DatePart::Day => pairs.for_each(|(out, day)| *out = date_of(*day).2),
            DatePart::DayOfYear => pairs.for_each(|(out, day)| {
                let (year, ..) = date_of(*day);
                *out = day.wrapping_sub(first_day(year) - 1);
            }),
            DatePart::Hour => pairs.for_each(|(out, second)| *out = second.rem_euclid(86_400) / 3_600),
            DatePart::Minute => pairs.for_each(|(out, second)| *out = second.rem_euclid(3_600) / 60),
            DatePart::Second => pairs.for_each(|(out, second)| *out = second.rem_euclid(60)),
        }
    }
}

/// Year, month (1 to 12) and day (1 to 31), after Howard Hinnant's `civil_from_days`: years begin in March, so that a
/// leap day is the last.
#[inline(always)]
fn date_of(day: i64) -> (i64, i64, i64) {
    // a day that is not known may be any number
    let day = day.clamp(KNOWN_DAYS.0 as i64, KNOWN_DAYS.1 as i64) + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let date = of_year - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 {
        (month + 3, 0)
    } else {
        (month - 9, 1)
    };
    (year + era * 400 + next, month, date)
}

/// The day of January 1st of a year.
fn first_day(year: i64) -> i64 {
    let before = year - 1;
    365 * before + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) - 719_162
}

fn mismatch() -> Error {
    Error::Internal("vectors of other kinds".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_parts() {
        // 1970-01-01 was a Thursday; 2000-02-29 is day 60; 1969-12-31; 0001-01-01 was a Monday
        let known = [
            (0, [1970, 1, 1, 1, 4, 1]),
            (11_016, [2000, 1, 2, 29, 2, 60]),
            (-1, [1969, 4, 12, 31, 3, 365]),
            (-719_162, [1, 1, 1, 1, 1, 1]),
            (20_088, [2024, 4, 12, 31, 2, 366]),
        ];
        let parts = [
            DatePart::Year,
            DatePart::Quarter,
            DatePart::Month,
            DatePart::Day,
            DatePart::DayOfWeek,
            DatePart::DayOfYear,
        ];
        for (day, of_day) in known {
            for (part, expected) in parts.into_iter().zip(of_day) {
                let mut out = [0; VECTOR_LEN];
                date_part(part, &[day; VECTOR_LEN], &mut out);
                assert_eq!(out, [expected; VECTOR_LEN], "{part:?} of {day}");
            }
        }
    }

    #[test]
    fn times_have_parts() {
        for (second, of_day) in [
            (0, [0, 0, 0]),
            (-1, [23, 59, 59]),
            (-86_400, [0, 0, 0]),
            (1_234_567_890, [23, 31, 30]),
        ] {
            for (part, expected) in [DatePart::Hour, DatePart::Minute, DatePart::Second]
                .into_iter()
                .zip(of_day)
            {
                let mut out = [0; VECTOR_LEN];
                date_part(part, &[second; VECTOR_LEN], &mut out);
                assert_eq!(out, [expected; VECTOR_LEN], "{part:?} of {second}");
            }
        }
    }

    #[test]
    fn quotients_are_rounded_down() {
        let mut values = [0; VECTOR_LEN];
        for (row, value) in values.iter_mut().enumerate() {
            *value = (row as i64 - 500) * 7_777_777_777_777_777;
        }
        (values[0], values[1], values[2], values[3]) = (i64::MIN, i64::MAX, -1, 86_399);
        let days = [86_400, 86_400_000, 86_400_000_000, 86_400_000_000_000];
        let steps = days
            .into_iter()
            .flat_map(|day| [day, day / 24, day / 1_440]);
        for divisor in steps.chain([1, 2, 7, 1_000, 1_000_000, 1_000_000_000, i64::MAX]) {
            let mut out = [0; VECTOR_LEN];
            floor_divide(divisor, &values, &mut out);
            for (value, quotient) in values.iter().zip(out) {
                let exact = i128::from(*value).div_euclid(divisor.into());
                assert_eq!(i128::from(quotient), exact, "{value} by {divisor}");
            }
        }
    }

    #[test]
    fn ranks_are_in_the_total_order() {
        let ascending = [
            f64::NEG_INFINITY,
            -1.5,
            -0.0,
            0.0,
            1.5,
            f64::INFINITY,
            f64::NAN,
        ];
        assert!(ascending.map(rank_of).is_sorted());
        for value in ascending {
            assert_eq!(value_of(rank_of(value)).to_bits(), value.to_bits());
        }
    }
}
