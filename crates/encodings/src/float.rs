//! Properties of `f32` and `f64` for `alp` and `alp_rd`.

use crate::class::Native;
use crate::words::Word;

/// `1.5 * 2^52`: adding it to a double below `2^51` in magnitude rounds to the nearest integer,
/// which is then the difference of the sum's bits to `MAGIC_BITS`. Two vector instructions on
/// every processor, where a conversion between `i64` and `f64` takes AVX-512.
const MAGIC: f64 = 6_755_399_441_055_744.0;
const MAGIC_BITS: i64 = MAGIC.to_bits() as i64;

/// The nearest integer if that is below `2^51` in magnitude, otherwise (and for NaN) some integer
/// that is not.
#[inline(always)]
pub(crate) fn nearest_integer(value: f64) -> i64 {
    ((value + MAGIC).to_bits() as i64).wrapping_sub(MAGIC_BITS)
}

/// `f32` or `f64`.
pub(crate) trait Float: Native {
    /// The type that integers are unpacked to: it converts to a double in few instructions.
    type Unpacked: Word;

    /// Bits of a value.
    const BITS: usize;
    /// The largest integer that may be unpacked; its negative may be as well.
    const MAX_INTEGER: i64;

    /// An integer in the order of arrow's total order:
    /// -NaN < -inf < .. < -0.0 < 0.0 < .. < inf < NaN.
    fn key(self) -> i64;
    /// The value of a key; the nearest one if there is none.
    fn from_key(key: i64) -> Self;
    fn to_bits64(self) -> u64;
    /// The value of the low [`Self::BITS`] bits.
    fn from_bits64(bits: u64) -> Self;
    fn to_double(self) -> f64;
    /// The value nearest to `double`.
    fn from_double(double: f64) -> Self;

    /// Converts `integer` to its unpacked form.
    fn unpacked(integer: i64) -> Self::Unpacked;
    /// The integer as a double; arbitrary beyond [`Self::MAX_INTEGER`].
    fn integer_to_double(unpacked: Self::Unpacked) -> f64;
}

impl Float for f64 {
    /// Biased by `MAGIC_BITS`, which is free, as a reference is added to all integers anyway.
    type Unpacked = i64;

    const BITS: usize = 64;
    const MAX_INTEGER: i64 = (1 << 51) - 1;

    #[inline(always)]
    fn key(self) -> i64 {
        self.to_word()
    }

    #[inline(always)]
    fn from_key(key: i64) -> Self {
        Self::from_word(key)
    }

    #[inline(always)]
    fn to_bits64(self) -> u64 {
        self.to_bits()
    }

    #[inline(always)]
    fn from_bits64(bits: u64) -> Self {
        Self::from_bits(bits)
    }

    #[inline(always)]
    fn to_double(self) -> f64 {
        self
    }

    #[inline(always)]
    fn from_double(double: f64) -> Self {
        double
    }

    #[inline(always)]
    fn unpacked(integer: i64) -> i64 {
        integer.wrapping_add(MAGIC_BITS)
    }

    #[inline(always)]
    fn integer_to_double(unpacked: i64) -> f64 {
        Self::from_bits(unpacked as u64) - MAGIC
    }
}

impl Float for f32 {
    type Unpacked = i32;

    const BITS: usize = 32;
    const MAX_INTEGER: i64 = i32::MAX as i64;

    #[inline(always)]
    fn key(self) -> i64 {
        i64::from(self.to_word())
    }

    #[inline(always)]
    fn from_key(key: i64) -> Self {
        Self::from_word(key.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32)
    }

    #[inline(always)]
    fn to_bits64(self) -> u64 {
        u64::from(self.to_bits())
    }

    #[inline(always)]
    fn from_bits64(bits: u64) -> Self {
        Self::from_bits(bits as u32)
    }

    #[inline(always)]
    fn to_double(self) -> f64 {
        f64::from(self)
    }

    #[inline(always)]
    fn from_double(double: f64) -> Self {
        double as f32
    }

    #[inline(always)]
    fn unpacked(integer: i64) -> i32 {
        integer as i32
    }

    #[inline(always)]
    fn integer_to_double(unpacked: i32) -> f64 {
        f64::from(unpacked)
    }
}

/// Runs `$body` with `$float` the Rust type of single or double precision, `$other` for other types.
macro_rules! match_float {
    ($data_type:expr, $float:ident => $body:expr, _ => $other:expr) => {
        match $data_type {
            arrow::datatypes::DataType::Float64 => {
                type $float = f64;
                $body
            }
            arrow::datatypes::DataType::Float32 => {
                type $float = f32;
                $body
            }
            _ => $other,
        }
    };
}
pub(crate) use match_float;

/// Values sampled from one vector.
pub(crate) const SAMPLES: usize = 32;

/// One value of each 32nd part of `values` (not empty), at a pseudo-random index in it: samples at a fixed distance
/// would miss values if the data repeats with that period.
pub(crate) fn sample<T: Copy>(values: &[T]) -> [T; SAMPLES] {
    let mut state = 0x9E37_79B9u32;
    std::array::from_fn(|part| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let within = ((state >> 16) as usize * values.len()) >> 16;
        values[(part * values.len() + within) / SAMPLES]
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::VECTOR_LEN;

    /// Floats of all kinds: decimals of few digits, any bits, and special values.
    pub(crate) fn values<F: Float>() -> impl Strategy<Value = F> {
        const SPECIAL: [f64; 14] = [
            0.0,
            -0.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::NAN,
            f64::MIN_POSITIVE,
            5e-324,
            -5e-324,
            f64::MAX,
            f64::MIN,
            9_223_372_036_854_774_784.0,
            2_251_799_813_685_248.0,
            16_777_217.0,
            0.1,
        ];
        prop_oneof![
            8 => (-2_000_000i64..2_000_000, 0..6i32).prop_map(|(digits, scale)| {
                parse(&format!("{digits}e-{scale}"))
            }),
            2 => any::<i64>().prop_map(|integer| parse(&integer.to_string())),
            1 => any::<u64>().prop_map(F::from_bits64),
            1 => proptest::sample::select(&SPECIAL[..]).prop_map(|value| {
                if F::BITS == 64 { F::from_bits64(value.to_bits()) } else { F::from_bits64(u64::from((value as f32).to_bits())) }
            }),
        ]
    }

    /// The value of a decimal literal.
    pub(crate) fn parse<F: Float>(text: &str) -> F {
        F::from_bits64(if F::BITS == 64 {
            text.parse::<f64>().map_or(0, f64::to_bits)
        } else {
            u64::from(text.parse::<f32>().map_or(0, f32::to_bits))
        })
    }

    /// A column: runs of values of one kind, so that vectors have from none to 1024 exceptions.
    pub(crate) fn columns<F: Float>() -> impl Strategy<Value = Vec<F>> {
        let run = prop_oneof![
            2 => proptest::collection::vec(values(), 0..1500),
            2 => (-90_000i64..90_000, 0..5i32, 1..2100usize).prop_map(|(start, scale, len)| {
                (0..len as i64).map(|i| parse(&format!("{}e-{scale}", start + i * 7 % 1000))).collect()
            }),
            1 => (values(), 1..2100usize).prop_map(|(value, len)| vec![value; len]),
            1 => (any::<u64>(), 1..2100u64).prop_map(|(seed, len)| {
                (0..len).map(|i| F::from_bits64((seed ^ i).wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect()
            }),
        ];
        proptest::collection::vec(run, 0..4).prop_map(|runs| runs.concat())
    }

    proptest! {
        #[test]
        fn keys_order_like_the_total_order(a in values::<f64>(), b in values::<f64>(), c in values::<f32>(), d in values::<f32>()) {
            prop_assert_eq!(a.key().cmp(&b.key()), a.total_cmp(&b));
            prop_assert_eq!(c.key().cmp(&d.key()), c.total_cmp(&d));
            prop_assert_eq!(f64::from_key(a.key()).to_bits(), a.to_bits());
            prop_assert_eq!(f32::from_key(c.key()).to_bits(), c.to_bits());
        }

        #[test]
        fn integers_survive_unpacking(integer in -f64::MAX_INTEGER..=f64::MAX_INTEGER, short in -f32::MAX_INTEGER..=f32::MAX_INTEGER) {
            prop_assert_eq!(f64::integer_to_double(f64::unpacked(integer)), integer as f64);
            prop_assert_eq!(f32::integer_to_double(f32::unpacked(short)), short as f64);
            prop_assert_eq!(nearest_integer(integer as f64), integer);
        }

        #[test]
        fn what_is_too_large_rounds_to_something_too_large(value in values::<f64>()) {
            if value.is_nan() || value.abs() > f64::MAX_INTEGER as f64 + 0.5 {
                prop_assert!(nearest_integer(value).unsigned_abs() > f64::MAX_INTEGER as u64);
            } else {
                prop_assert_eq!(nearest_integer(value), value.round_ties_even() as i64);
            }
        }
    }

    #[test]
    fn samples_come_from_every_part_and_from_short_vectors() {
        let rows: Vec<usize> = (0..VECTOR_LEN).collect();
        for (part, row) in sample(&rows).into_iter().enumerate() {
            assert_eq!(row / SAMPLES, part);
        }
        assert_eq!(sample(&[7]), [7; SAMPLES]);
        assert!(sample(&rows[..45]).into_iter().all(|row| row < 45));
        let distinct: std::collections::HashSet<usize> =
            sample(&rows).into_iter().map(|row| row % 32).collect();
        assert!(distinct.len() > 12, "{distinct:?}");
    }
}
