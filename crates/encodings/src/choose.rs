//! What the choice of an encoding looks at.

use std::ops::Range;

use crate::VECTOR_LEN;

/// Up to `vectors` whole vectors of `len` rows, evenly spread; all rows if there are not more.
pub(crate) fn sample_ranges(len: usize, vectors: usize) -> impl Iterator<Item = Range<usize>> {
    let total = len.div_ceil(VECTOR_LEN);
    let taken = total.min(vectors);
    (0..taken).map(move |i| {
        let start = i * total / taken * VECTOR_LEN;
        start..(start + VECTOR_LEN).min(len)
    })
}
