//! Differences: packed residuals, behind the first values of the lanes of a vector.

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::Delta;

use crate::builder::{Builder, LANES};
use crate::chunk_structs::WIDE;
use crate::error::Result;

/// Returns bounds of the entries. `largest` decodes the largest.
pub(super) fn lay_out(
    builder: &mut Builder,
    view: &Delta,
    largest: impl Fn() -> vectile_encodings::Result<u64>,
) -> Result<Option<(u64, u64)>> {
    let residuals = view.residuals();
    builder.patch_width(&residuals);
    let (mut least, mut most) = (0i128, 0i128);
    for vector in 0..builder.vectors.len() {
        lane_starts(builder, vector, &view.lane_starts(vector)?);
        let line = builder.line()?;
        builder.packed.extend_from_slice(residuals.words(vector));
        let top = builder.residuals(vector, line, &residuals)?;
        let (base, smallest) = (view.base(vector), view.smallest(vector));
        builder.vectors[vector].base = base;
        builder.extra(vector).smallest = smallest;
        // the first value, to which differences are added
        let first = i128::from(base.wrapping_add(smallest)) + i128::from(top);
        let (smallest, steps) = (i128::from(smallest as i64), VECTOR_LEN as i128 - 1);
        least = least.min(first - i128::from(top) + smallest.min(0) * steps);
        most = most.max(first + (smallest + i128::from(top)).max(0) * steps);
    }
    // differences may promise a wider range than the values have, and every kernel would be wider for it
    Ok(Some(match least >= 0 && most <= i128::from(u32::MAX) {
        true => (0, most as u64),
        false => (0, largest()?),
    }))
}

/// Adds the entries before the lanes' first ones, in a line, or in two if one needs more than 32 bits.
fn lane_starts(builder: &mut Builder, vector: usize, starts: &[u64]) {
    // a lane is bounded by the start of the one after it; starts of lanes after the last row may be anything
    let live = builder
        .rows()
        .saturating_sub(vector * VECTOR_LEN)
        .div_ceil(LANES);
    let mut bounds = starts.iter().take(live + 1);
    let is_wide = bounds.any(|start| *start > u64::from(u32::MAX));
    let bytes = if is_wide { 8 } else { 4 };
    for start in starts {
        builder.packed.extend(&start.to_le_bytes()[..bytes]);
    }
    if is_wide {
        builder.flag(vector, WIDE);
    }
}
