//! Runs: a block for each vector, with a bit for each row that starts one, and values of whole bytes.

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::RleView;

use crate::builder::Builder;
use crate::error::Result;

/// Gives bounds of the entries; `None` without any.
pub(super) fn lay_out(builder: &mut Builder, view: RleView<'_>) -> Result<Option<(u64, u64)>> {
    builder.lines_are_blocks = true;
    let mut bounds: Option<(u64, u64)> = None;
    view.for_each_vector(|vector, firsts, entries| {
        let (low, high) = bounds_of(entries);
        bounds = Some(bounds.map_or((low, high), |(a, b)| (a.min(low), b.max(high))));
        block(builder, vector, firsts, entries, (low, high))
    })?;
    Ok(bounds)
}

fn bounds_of(entries: &[u64]) -> (u64, u64) {
    let first = entries.first().map_or((0, 0), |first| (*first, *first));
    let wider = |(low, high): (u64, u64), entry: &u64| (low.min(*entry), high.max(*entry));
    entries.iter().fold(first, wider)
}

/// Adds the runs of a vector, by first row and entry.
fn block(
    builder: &mut Builder,
    vector: usize,
    firsts: &[u16],
    entries: &[u64],
    (low, high): (u64, u64),
) -> Result<()> {
    let width: usize = match high - low {
        0 => 0,
        1..=0xFF => 1,
        0x100..=0xFFFF => 2,
        0x1_0000..=0x7FFF_FFFF => 4,
        // lookups count on four bytes having a bit to spare
        _ => 8,
    };
    builder.traits.wide_entries |= width == 8;
    let mut starts = [0u64; VECTOR_LEN / 64];
    for first in firsts {
        starts[usize::from(*first) / 64] |= 1 << (first % 64);
    }
    let mut block: Vec<u8> = Vec::with_capacity(VECTOR_LEN / 8 + entries.len() * width);
    block.extend(starts.iter().flat_map(|word| word.to_le_bytes()));
    let offsets = entries.iter().map(|entry| entry - low);
    match width {
        0 => {}
        1 => block.extend(offsets.map(|offset| offset as u8)),
        2 => block.extend(offsets.flat_map(|offset| (offset as u16).to_le_bytes())),
        4 => block.extend(offsets.flat_map(|offset| (offset as u32).to_le_bytes())),
        _ => block.extend(offsets.flat_map(u64::to_le_bytes)),
    }
    let line = builder.add_block(&block)?;
    let vector = &mut builder.vectors[vector];
    vector.line = line;
    vector.width = width as u8;
    vector.base = low;
    Ok(())
}
