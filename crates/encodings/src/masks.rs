//! Masks with a bit for each row of a vector.

use crate::VECTOR_LEN;
use crate::simd::dispatched;

/// One bit for each row of a vector, in row order.
pub(crate) type Mask = [u64; VECTOR_LEN / 64];

/// Calls `visit` with the index of each set bit, ascending.
#[inline]
pub(crate) fn for_each_bit(mask: &Mask, mut visit: impl FnMut(usize)) {
    for (i, word) in mask.iter().enumerate() {
        let mut rest = *word;
        while rest != 0 {
            visit(i * 64 + rest.trailing_zeros() as usize);
            rest &= rest - 1;
        }
    }
}

dispatched! {
    /// The total number of set bits.
    pub(crate) fn count(masks: &[Mask]) -> usize {
        let words = masks.as_flattened().iter();
        words.map(|word| word.count_ones() as usize).sum()
    }
}

/// Sets or clears bit `row`.
pub(crate) fn set_bit(mask: &mut Mask, row: usize, value: bool) {
    let bit = 1 << (row % 64);
    if value {
        mask[row / 64] |= bit;
    } else {
        mask[row / 64] &= !bit;
    }
}
