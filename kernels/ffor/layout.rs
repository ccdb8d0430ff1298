//! Packed residuals, as in the file, and a base for each vector.

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::Ffor;

use crate::builder::{Builder, LANES, LINE_BYTES, too_large};
use crate::chunk_structs::SOME_NULL;
use crate::error::Result;

/// Returns bounds of the entries; `None` without entries.
pub(super) fn lay_out(builder: &mut Builder, view: &Ffor) -> Result<Option<(u64, u64)>> {
    let residuals = view.residuals();
    builder.words = residuals.long_words().clone();
    builder.packed.extend_from_slice(residuals.short_words());
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

/// Lays out residuals to be written later, of vectors with these bounds; bounds of a vector without values are
/// reversed. No value is below `reference`. Returns the largest distance from it, and the bytes of all.
pub(super) fn lay_out_within(
    builder: &mut Builder,
    bounds: &[(i64, i64)],
    reference: i64,
) -> Result<(u64, usize)> {
    let (mut line, mut largest) = (0u32, 0);
    for (vector, (low, high)) in bounds.iter().enumerate() {
        let (base, span) = match low <= high {
            true => (low.abs_diff(reference), high.abs_diff(*low)),
            false => (0, 0),
        };
        let width = u64::BITS - span.leading_zeros();
        builder.traits.width(width as usize);
        let own = &mut builder.vectors[vector];
        (own.line, own.width, own.base) = (line, width as u8, base);
        line = line.checked_add(width).ok_or_else(too_large)?;
        largest = largest.max(base + span);
    }
    Ok((largest, line as usize * LINE_BYTES))
}

/// Lays out residuals of one width, up to `largest`, to be written later, as is the validity of rows. Returns their
/// bytes.
pub(super) fn lay_out_unwritten(
    builder: &mut Builder,
    largest: usize,
    is_nullable: bool,
) -> Result<usize> {
    let width = (usize::BITS - largest.leading_zeros()) as usize;
    builder.traits.width(width);
    for vector in 0..builder.vectors.len() {
        builder.vectors[vector].line = (vector * width) as u32;
        builder.vectors[vector].width = width as u8;
        if is_nullable {
            let bitmap = builder.block(|out| out.extend([0; LINE_BYTES]))?;
            builder.extra(vector).bitmap = bitmap;
            builder.flag(vector, SOME_NULL);
        }
    }
    Ok(builder.vectors.len() * width * LINE_BYTES)
}

/// Lays out row numbers: all vectors share the same residuals, and have bases [`VECTOR_LEN`] apart.
pub(super) fn lay_out_row_numbers(builder: &mut Builder) {
    let width = VECTOR_LEN.ilog2() as usize;
    builder.traits.width(width);
    for (vector, own) in builder.vectors.iter_mut().enumerate() {
        (own.line, own.width) = (0, width as u8);
        own.base = (vector * VECTOR_LEN) as u64;
    }
    let mut words = vec![0u32; width * LANES];
    for row in 0..VECTOR_LEN {
        let (lane, bit) = (row % LANES, row / LANES * width);
        let bits = (row as u64) << (bit % 32);
        let at = bit / 32 * LANES + lane;
        words[at] |= bits as u32;
        if bits >> 32 > 0 {
            words[at + LANES] |= (bits >> 32) as u32;
        }
    }
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    builder.packed.extend(bytes);
}
