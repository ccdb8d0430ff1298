//! Tiles of differences in blocks of 128, as in the file.

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::GpuDfor;

use crate::builder::Builder;
use crate::error::Result;

/// Returns bounds of the entries; `None` without entries.
pub(super) fn lay_out(builder: &mut Builder, view: &GpuDfor) -> Result<Option<(u64, u64)>> {
    builder.blocks_of(view.blocks());
    let mut bounds: Option<(u64, u64)> = None;
    for vector in 0..builder.vectors.len() {
        let rows = builder.rows() - vector * VECTOR_LEN;
        let own = view.bounds(vector, rows.min(VECTOR_LEN))?;
        builder.bounds(vector, own);
        bounds = Some(bounds.map_or(own, |(a, b)| (a.min(own.0), b.max(own.1))));
    }
    Ok(bounds)
}
