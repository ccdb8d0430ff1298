//! One value and exceptions: packed integers of no bits, or, in vectors with exceptions, of as many as these need.
//! Kernels decode it with the code of `ffor`.

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::{Sequence, Sparse, pack};

use crate::builder::Builder;
use crate::error::{Error, Result};

/// Returns bounds of the entries.
pub(super) fn lay_out(
    builder: &mut Builder,
    view: &Sparse<Sequence>,
) -> Result<Option<(u64, u64)>> {
    let value = view.value();
    builder.vectors.iter_mut().for_each(|v| v.base = value);
    builder.traits.width(0);
    let mut bounds = (value, value);
    view.for_each_uneven(|vector, entries| {
        let widen = |(low, high): (u64, u64), entry: &u64| (low.min(*entry), high.max(*entry));
        let (low, high) = entries.iter().fold((u64::MAX, 0), widen);
        bounds = (bounds.0.min(low), bounds.1.max(high));
        let width = (high - low).checked_ilog2().map_or(0, |bit| bit + 1) as usize;
        let residuals: [u64; VECTOR_LEN] = std::array::from_fn(|row| entries[row] - low);
        let line = builder.line()?;
        pack(&residuals, width, &mut builder.packed);
        let vector = &mut builder.vectors[vector];
        (vector.line, vector.width, vector.base) = (line, width as u8, low);
        builder.traits.width(width);
        Ok::<_, Error>(())
    })?;
    Ok(Some(bounds))
}
