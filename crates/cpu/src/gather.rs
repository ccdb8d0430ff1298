//! Values of a table at the indices of a vector.
//!
//! Loads are single ones: the gather instructions of current processors take two to three times as long. Indices without
//! a value choose between two registers, since a branch that cannot be predicted takes as long as ten rows.

use std::hint::select_unpredictable;

use vectile_encodings::VECTOR_LEN;

/// Sets `out` to the values at `keys[i] - first`, or to `missing` where there is none.
pub(crate) fn gather<T: Copy + ToI64>(
    values: &[T],
    first: i64,
    keys: &[i64; VECTOR_LEN],
    missing: i64,
    out: &mut [i64; VECTOR_LEN],
) {
    let pairs = keys.iter().zip(out);
    gather_each(
        values,
        missing,
        pairs.map(|(key, out)| (key.wrapping_sub(first), out)),
    );
}

/// Replaces indices by the values at them, or by `missing` where there is none.
pub(crate) fn replace<T: Copy + ToI64>(
    values: &[T],
    missing: i64,
    indices: &mut [i64; VECTOR_LEN],
) {
    gather_each(
        values,
        missing,
        indices.iter_mut().map(|index| (*index, index)),
    );
}

#[inline(always)]
fn gather_each<'a, T: Copy + ToI64>(
    values: &[T],
    missing: i64,
    indices: impl Iterator<Item = (i64, &'a mut i64)>,
) {
    if values.is_empty() {
        return indices.for_each(|(_, out)| *out = missing);
    }
    for (index, out) in indices {
        // negative indices are beyond the end
        let is_within = (index as u64) < values.len() as u64;
        let value = values[select_unpredictable(is_within, index as usize, 0)];
        *out = select_unpredictable(is_within, value.to_i64(), missing);
    }
}

/// An integer of at most 8 bytes.
pub(crate) trait ToI64 {
    /// The value; the same bits if it is of 64 bits without a sign.
    fn to_i64(self) -> i64;
}

macro_rules! integers {
    ($($native:ty),*) => {
        $(
            impl ToI64 for $native {
                #[inline(always)]
                fn to_i64(self) -> i64 {
                    self as i64
                }
            }
        )*
    };
}

integers!(u8, u16, u32, u64, i8, i16, i32, i64);

#[cfg(test)]
mod tests {
    use super::*;

    fn check<T: Copy + ToI64>(values: &[T]) {
        for len in [0, 1, 2, 31, values.len()] {
            let values = &values[..len];
            for first in [0, -5, i64::MAX - 3, i64::MAX, i64::MIN, i64::MIN + 2] {
                let mut keys = [0; VECTOR_LEN];
                let numbers = keys.iter_mut().zip(0i64..);
                numbers.for_each(|(key, at)| *key = first.wrapping_add(at % 310 - 4));
                keys[9] = i64::MAX;
                keys[10] = i64::MIN;
                let indices = keys.map(|key| key.wrapping_sub(first));
                let (mut out, mut replaced) = ([7; VECTOR_LEN], indices);
                gather(values, first, &keys, -9, &mut out);
                replace(values, -9, &mut replaced);
                for ((index, out), replaced) in indices.iter().zip(out).zip(replaced) {
                    let value = usize::try_from(*index).ok().and_then(|at| values.get(at));
                    let expected = value.map_or(-9, |value| value.to_i64());
                    assert_eq!((out, replaced), (expected, expected), "{len} from {first}");
                }
            }
        }
    }

    #[test]
    fn values_of_any_width_are_gathered() {
        let numbers = || (0u64..300).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 1);
        check::<u8>(&numbers().map(|x| x as u8).collect::<Vec<_>>());
        check::<u16>(&numbers().map(|x| x as u16).collect::<Vec<_>>());
        check::<u32>(&numbers().map(|x| x as u32).collect::<Vec<_>>());
        check::<u64>(&numbers().collect::<Vec<_>>());
        check::<i8>(&numbers().map(|x| x as i8).collect::<Vec<_>>());
        check::<i16>(&numbers().map(|x| x as i16).collect::<Vec<_>>());
        check::<i32>(&numbers().map(|x| x as i32).collect::<Vec<_>>());
        check::<i64>(&numbers().map(|x| x as i64 - (1 << 60)).collect::<Vec<_>>());
    }
}
