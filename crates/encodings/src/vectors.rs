//! Splitting of rows into vectors, and sampling of vectors.

use std::borrow::Cow;
use std::ops::Range;

use crate::VECTOR_LEN;

/// Calls `visit` with `values` in vectors, each with its number of rows; the last one is padded
/// with its last value.
pub(crate) fn for_each_vector<T: Copy>(
    values: &[T],
    mut visit: impl FnMut(&[T; VECTOR_LEN], usize),
) {
    let (whole, rest) = values.as_chunks::<VECTOR_LEN>();
    whole.iter().for_each(|vector| visit(vector, VECTOR_LEN));
    if let Some(last) = rest.last() {
        let mut vector = [*last; VECTOR_LEN];
        vector[..rest.len()].copy_from_slice(rest);
        visit(&vector, rest.len());
    }
}

/// The row ranges of up to `vectors` whole vectors of `len` rows, evenly spread; all rows if there
/// are not more.
pub(crate) fn sample_ranges(len: usize, vectors: usize) -> impl Iterator<Item = Range<usize>> {
    let total = len.div_ceil(VECTOR_LEN);
    let taken = total.min(vectors);
    (0..taken).map(move |i| {
        let start = i * total / taken * VECTOR_LEN;
        start..(start + VECTOR_LEN).min(len)
    })
}

/// The values of up to `vectors` whole vectors, evenly spread; of all if there are not more.
pub(crate) fn sample<T: Copy>(values: &[T], vectors: usize) -> Cow<'_, [T]> {
    if values.len() <= vectors * VECTOR_LEN {
        return Cow::Borrowed(values);
    }
    let ranges = sample_ranges(values.len(), vectors);
    Cow::Owned(
        ranges
            .flat_map(|rows| values[rows].iter().copied())
            .collect(),
    )
}
