//! Lists of the rows of a mask.

use crate::VECTOR_LEN;
use crate::masks::{Mask, for_each_bit};

/// Appends the rows whose bit is set, ascending; that of the first bit is `first`.
pub fn push_rows(mask: &[u64; VECTOR_LEN / 64], first: u32, rows: &mut Vec<u32>) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("popcnt") {
        // SAFETY: the processor has the instructions.
        return unsafe { push_avx512(mask, first, rows) };
    }
    push_singly(mask, first, rows);
}

fn push_singly(mask: &Mask, first: u32, rows: &mut Vec<u32>) {
    rows.reserve(VECTOR_LEN);
    for_each_bit(mask, |row| rows.push(first + row as u32));
}

/// The compiler does not use compressing stores by itself: they take a third of the time of pushing single rows.
///
/// # Safety
///
/// The processor has AVX-512 F and population counts.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,popcnt")]
unsafe fn push_avx512(mask: &Mask, first: u32, rows: &mut Vec<u32>) {
    use std::arch::x86_64::*;
    const LANES: usize = 16;
    // the last store may write behind the last row
    rows.reserve(VECTOR_LEN + LANES);
    let mut count = rows.len();
    let lanes: [u32; LANES] = std::array::from_fn(|lane| lane as u32);
    // SAFETY: the array has 16 values of 32 bits.
    let lanes = unsafe { _mm512_loadu_si512(lanes.as_ptr().cast()) };
    for (word, bits) in mask.iter().enumerate().filter(|(_, bits)| **bits != 0) {
        for quarter in 0..u64::BITS as usize / LANES {
            let bits = (bits >> (quarter * LANES)) as u16;
            let start = first + (word * 64 + quarter * LANES) as u32;
            let of_lanes = _mm512_add_epi32(lanes, _mm512_set1_epi32(start as i32));
            let picked = _mm512_maskz_compress_epi32(bits, of_lanes);
            // SAFETY: at most the rows of a mask were pushed since room was reserved for them and for one more store.
            unsafe { _mm512_storeu_si512(rows.as_mut_ptr().add(count).cast(), picked) };
            count += bits.count_ones() as usize;
        }
    }
    // SAFETY: rows up to here were written, within the capacity.
    unsafe { rows.set_len(count) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_rows_of_a_mask_are_listed() {
        let words = [0, 1, u64::MAX, 1 << 63, 0x8421_0f0f_0000_ffff];
        for seed in 0..50usize {
            let mask: Mask = std::array::from_fn(|word| match seed {
                0 => u64::MAX,
                _ => words[(word * 7 + seed * word + seed) % words.len()],
            });
            let (mut rows, mut expected) = (vec![5], vec![5]);
            for first in [0, 1 << 20, u32::MAX - VECTOR_LEN as u32 + 1] {
                push_rows(&mask, first, &mut rows);
                push_singly(&mask, first, &mut expected);
            }
            assert_eq!(rows, expected, "{seed}");
        }
    }
}
