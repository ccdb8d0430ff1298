//! How rows are cut into vectors, and which of them the choice of an encoding looks at.

use std::borrow::Cow;
use std::ops::Range;

use crate::VECTOR_LEN;

/// `values` in vectors, each with its number of rows; the last one is filled up with its last
/// value.
pub(crate) fn vectors<T: Copy>(
    values: &[T],
) -> impl Iterator<Item = (Cow<'_, [T; VECTOR_LEN]>, usize)> {
    let (whole, rest) = values.as_chunks::<VECTOR_LEN>();
    let last = rest.last().map(|last| {
        let mut vector = [*last; VECTOR_LEN];
        vector[..rest.len()].copy_from_slice(rest);
        (Cow::Owned(vector), rest.len())
    });
    whole
        .iter()
        .map(|vector| (Cow::Borrowed(vector), VECTOR_LEN))
        .chain(last)
}

/// Up to `vectors` whole vectors of `len` rows, evenly spread; all rows if there are not more.
pub(crate) fn sample_ranges(len: usize, vectors: usize) -> impl Iterator<Item = Range<usize>> {
    let total = len.div_ceil(VECTOR_LEN);
    let taken = total.min(vectors);
    (0..taken).map(move |i| {
        let start = i * total / taken * VECTOR_LEN;
        start..(start + VECTOR_LEN).min(len)
    })
}
