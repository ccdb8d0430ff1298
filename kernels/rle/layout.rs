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

/// Bit i is byte i.
fn bits(bytes: &[u8; 8]) -> u8 {
    // each factor moves one of the bytes to its place among the upper eight bits
    (u64::from_le_bytes(*bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
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
    // bytes first: bits would wait for those before them in their word
    let mut starts = [0u8; VECTOR_LEN];
    for first in firsts {
        starts[usize::from(*first) % VECTOR_LEN] = 1;
    }
    let mut block: Vec<u8> = Vec::with_capacity(VECTOR_LEN / 8 + entries.len() * width);
    block.extend(starts.as_chunks().0.iter().map(bits));
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

#[cfg(test)]
mod tests {
    use super::bits;

    #[test]
    fn bytes_to_bits() {
        for byte in 0..=u8::MAX {
            let bytes = std::array::from_fn(|bit| byte >> bit & 1);
            assert_eq!(bits(&bytes), byte);
        }
    }
}
