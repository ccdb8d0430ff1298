//! Runs: a block for each vector, with a bit for each row that starts one, and values of whole bytes.

use vectile_encodings::layout::RunVectors;

use crate::builder::{Builder, Lines};
use crate::error::{Error, Result};

/// Returns bounds of the entries; `None` without entries.
pub(super) fn lay_out(builder: &mut Builder, view: &impl RunVectors) -> Result<Option<(u64, u64)>> {
    builder.lines = Lines::Blocks;
    let mut bounds: Option<(u64, u64)> = None;
    view.for_each_vector(|vector, starts, entries, (low, high)| {
        bounds = Some(bounds.map_or((low, high), |(a, b)| (a.min(low), b.max(high))));
        let width: usize = match high - low {
            0 => 0,
            1..=0xFF => 1,
            0x100..=0xFFFF => 2,
            0x1_0000..=0x7FFF_FFFF => 4,
            // lookups require a spare bit in four bytes
            _ => 8,
        };
        builder.traits.wide_entries |= width == 8;
        let line = builder.block(|out| {
            out.extend_from_slice(starts.map(u64::to_le_bytes).as_flattened());
            match width {
                0 => {}
                1 => offsets::<1>(entries, low, out),
                2 => offsets::<2>(entries, low, out),
                4 => offsets::<4>(entries, low, out),
                _ => offsets::<8>(entries, low, out),
            }
        })?;
        let vector = &mut builder.vectors[vector];
        vector.line = line;
        vector.width = width as u8;
        vector.base = low;
        Ok::<_, Error>(())
    })?;
    Ok(bounds)
}

/// Appends the lower bytes of the entries' distances from `low`.
fn offsets<const WIDTH: usize>(entries: &[u64], low: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + entries.len() * WIDTH, 0);
    let slots = out[start..].as_chunks_mut::<WIDTH>().0;
    for (slot, entry) in slots.iter_mut().zip(entries) {
        let bytes = (entry - low).to_le_bytes();
        *slot = std::array::from_fn(|byte| bytes[byte]);
    }
}
