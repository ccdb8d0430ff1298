//! Sums and extremes of the values of a mask's rows, in the processor's vector instructions.
//!
//! Rows take turns to add to lanes, and the lanes are added in a fixed order: sums of floats are the same for all
//! instruction sets.

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::simd::{dispatched, gather_bits};

use crate::vector::{Mask, halves};

/// Row `i` is in lane `i % LANES`: enough lanes for the processor's registers.
const LANES: usize = u32::BITS as usize;

/// Combines the values of a mask's rows with `start`, which changes nothing.
#[inline(always)]
fn combined<T: Copy>(
    values: &[T; VECTOR_LEN],
    mask: &Mask,
    start: T,
    with: impl Fn(T, T) -> T,
) -> T {
    let mut lanes = [start; LANES];
    for (word, values) in halves(mask).zip(values.as_chunks::<LANES>().0) {
        if word == 0 {
            continue;
        }
        for (lane, value) in values.iter().enumerate() {
            // kept or not, all lanes do the same
            let kept = if word >> lane & 1 == 1 { *value } else { start };
            lanes[lane] = with(lanes[lane], kept);
        }
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = with(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

dispatched! {
    /// The sum of the values of a mask's rows, wrapping.
    pub(crate) fn sum(values: &[i64; VECTOR_LEN], mask: &Mask) -> i64 {
        combined(values, mask, 0, i64::wrapping_add)
    }
}

dispatched! {
    /// The sum of the values of a mask's rows, in two parts that fit 64 bits.
    pub(crate) fn wide_sum(values: &[i64; VECTOR_LEN], mask: &Mask) -> i128 {
        let mut parts = [[0; VECTOR_LEN]; 2];
        for (row, value) in values.iter().enumerate() {
            parts[0][row] = value & i64::from(u32::MAX);
            parts[1][row] = value >> 32;
        }
        let [low, high] = parts.map(|part| combined(&part, mask, 0, i64::wrapping_add));
        i128::from(low) + (i128::from(high) << 32)
    }
}

dispatched! {
    /// The sum of the values of a mask's rows.
    pub(crate) fn float_sum(values: &[f64; VECTOR_LEN], mask: &Mask) -> f64 {
        combined(values, mask, 0.0, |a, b| a + b)
    }
}

dispatched! {
    /// The smallest value of a mask's rows.
    pub(crate) fn smallest(values: &[i64; VECTOR_LEN], mask: &Mask) -> i64 {
        combined(values, mask, i64::MAX, i64::min)
    }
}

dispatched! {
    /// The largest value of a mask's rows.
    pub(crate) fn largest(values: &[i64; VECTOR_LEN], mask: &Mask) -> i64 {
        combined(values, mask, i64::MIN, i64::max)
    }
}

/// The most groups that have masks.
pub(crate) const MOST_MASKS: usize = 1 << 3;

dispatched! {
    /// Sets `masks` to the rows of each group: those of `mask` with its number. There are at most [`MOST_MASKS`].
    pub(crate) fn by_group(numbers: &[u32; VECTOR_LEN], mask: &Mask, masks: &mut [Mask]) {
        masks.fill(*mask);
        if masks.len() < 2 {
            return;
        }
        for bit in 0..=(masks.len() - 1).ilog2() {
            let mut flags = [0u8; VECTOR_LEN];
            for (flag, number) in flags.iter_mut().zip(numbers) {
                *flag = (number >> bit & 1) as u8;
            }
            let mut ones = [0; VECTOR_LEN / 64];
            gather_bits(&flags, &mut ones);
            for (group, mask) in masks.iter_mut().enumerate() {
                let flip = if group >> bit & 1 == 1 { 0 } else { u64::MAX };
                mask.iter_mut().zip(&ones).for_each(|(mask, ones)| *mask &= ones ^ flip);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::for_each_row;

    fn numbers() -> [u32; VECTOR_LEN] {
        std::array::from_fn(|row| (row as u32).wrapping_mul(0x9e37_79b9) >> 7)
    }

    fn masks() -> [Mask; 4] {
        let random = numbers();
        let word = |word: usize| u64::from(random[word]) << 32 | u64::from(random[word + 100]);
        let mut gaps: Mask = std::array::from_fn(word);
        gaps[3] = 0;
        gaps[5] = u64::MAX;
        [[u64::MAX; 16], [0; 16], gaps, gaps.map(|word| !word)]
    }

    #[test]
    fn values_of_a_mask_are_combined() {
        let values: [i64; VECTOR_LEN] = std::array::from_fn(|row| {
            i64::from(numbers()[row]).wrapping_mul(0x7654_3210_1234_5678)
        });
        for mask in masks() {
            let mut kept = Vec::new();
            for_each_row(&mask, |row| kept.push(values[row]));
            let total: i128 = kept.iter().map(|x| i128::from(*x)).sum();
            assert_eq!(sum(&values, &mask), total as i64);
            assert_eq!(wide_sum(&values, &mask), total);
            let least = kept.iter().min().copied();
            assert_eq!(smallest(&values, &mask), least.unwrap_or(i64::MAX));
            let most = kept.iter().max().copied();
            assert_eq!(largest(&values, &mask), most.unwrap_or(i64::MIN));
            let floats = values.map(|value| value as f64 * 1.25e-3);
            let by_hand = combined(&floats, &mask, 0.0, |a, b| a + b);
            assert_eq!(float_sum(&floats, &mask).to_bits(), by_hand.to_bits());
        }
    }

    #[test]
    fn groups_have_their_rows() {
        for groups in 1..=MOST_MASKS {
            let numbers = numbers().map(|number| number % groups as u32);
            for mask in masks() {
                let mut of_groups = vec![[0; VECTOR_LEN / 64]; groups];
                by_group(&numbers, &mask, &mut of_groups);
                let mut expected = vec![[0; VECTOR_LEN / 64]; groups];
                for_each_row(&mask, |row| {
                    expected[numbers[row] as usize][row / 64] |= 1 << (row % 64);
                });
                assert_eq!(of_groups, expected, "{groups} groups");
            }
        }
    }
}
