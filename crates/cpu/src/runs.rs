//! Runs of rows with the same combination of group keys, of which only the first needs a number.

use std::hint::select_unpredictable;

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::simd::{dispatched, gather_bits};

use crate::group::Combination;
use crate::vector::Mask;

dispatched! {
    /// The rows of `mask` whose combination differs from that of the row before, or that follow a row without a bit.
    pub(crate) fn firsts_of_runs<T: Combination>(combinations: &[T; VECTOR_LEN], mask: &Mask) -> Mask {
        let mut flags = [1; VECTOR_LEN];
        let pairs = combinations.iter().zip(&combinations[1..]);
        for (flag, (before, combination)) in flags[1..].iter_mut().zip(pairs) {
            *flag = u8::from(before != combination);
        }
        let mut differs = [0; VECTOR_LEN / 64];
        gather_bits(&flags, &mut differs);
        let mut before = 0;
        std::array::from_fn(|word| {
            let follows = mask[word] << 1 | before >> 63;
            before = mask[word];
            mask[word] & (differs[word] | !follows)
        })
    }
}

/// Copies the number of the first row of each run to the rows behind it, up to the next first one.
pub(crate) fn copy_to_runs(firsts: &Mask, numbers: &mut [u32; VECTOR_LEN]) {
    let mut last = 0;
    for (numbers, firsts) in numbers.as_chunks_mut::<64>().0.iter_mut().zip(firsts) {
        for (bit, number) in numbers.iter_mut().enumerate() {
            last = select_unpredictable(firsts >> bit & 1 == 1, *number, last);
            *number = last;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::{count, has_row};

    #[test]
    fn each_run_has_one_first_row() {
        for seed in 0..60u64 {
            let combinations: [u64; VECTOR_LEN] =
                std::array::from_fn(|row| row as u64 * (seed % 7 + 1) / 5 % (seed + 2));
            let mask: Mask = std::array::from_fn(|word| match seed % 3 {
                0 => u64::MAX,
                1 => 0xf0f0_ffff_0001_8000u64.rotate_left((seed + word as u64) as u32),
                _ => u64::MAX << (word as u32 * 4 % 64),
            });
            let firsts = firsts_of_runs(&combinations, &mask);
            let mut numbers = [0; VECTOR_LEN];
            for (row, number) in numbers.iter_mut().enumerate() {
                let follows = row > 0 && has_row(&mask, row - 1);
                let is_same = follows && combinations[row] == combinations[row - 1];
                assert_eq!(has_row(&firsts, row), has_row(&mask, row) && !is_same);
                *number = combinations[row] as u32;
            }
            let expected = numbers;
            for (row, number) in numbers.iter_mut().enumerate() {
                *number = if has_row(&firsts, row) { *number } else { 999 };
            }
            copy_to_runs(&firsts, &mut numbers);
            let selected = (0..VECTOR_LEN).filter(|row| has_row(&mask, *row));
            assert_eq!(selected.clone().count(), count(&mask));
            for row in selected {
                assert_eq!(numbers[row], expected[row]);
            }
        }
    }
}
