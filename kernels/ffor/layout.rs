//! Packed residuals, as in the file, and a base for each vector.

use vectile_encodings::layout::FforView;

use crate::builder::Builder;
use crate::error::Result;

/// Gives bounds of the entries; `None` without any.
pub(super) fn lay_out(builder: &mut Builder, view: FforView<'_>) -> Result<Option<(u64, u64)>> {
    let residuals = view.residuals();
    builder.words = residuals.all_words().clone();
    builder.patch_width(&residuals);
    let mut bounds: Option<(u64, u64)> = None;
    let mut line = 0u32;
    for vector in 0..builder.vectors.len() {
        let top = builder.residuals(vector, line, &residuals)?;
        line = line.saturating_add(residuals.width(vector) as u32);
        let base = view.base(vector);
        builder.vectors[vector].base = base;
        // sums of damaged data wrap around
        let (low, high) = match base.checked_add(top) {
            Some(high) => (base, high),
            None => (0, u64::MAX),
        };
        bounds = Some(bounds.map_or((low, high), |(a, b)| (a.min(low), b.max(high))));
    }
    Ok(bounds)
}
