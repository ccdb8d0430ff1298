//! Runs: a block for each vector, with a bit for each row that starts one, and values of whole bytes.

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::RleView;

use crate::builder::Builder;
use crate::error::Result;

/// Gives bounds of the entries; `None` without any.
pub(super) fn lay_out(builder: &mut Builder, view: RleView<'_>) -> Result<Option<(u64, u64)>> {
    builder.lines_are_blocks = true;
    let mut bounds: Option<(u64, u64)> = None;
    view.for_each_vector(|vector, firsts, entries, (low, high)| {
        bounds = Some(bounds.map_or((low, high), |(a, b)| (a.min(low), b.max(high))));
        block(builder, vector, firsts, entries, (low, high))
    })?;
    Ok(bounds)
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
    match width {
        0 => {}
        1 => offsets::<1>(entries, low, &mut block),
        2 => offsets::<2>(entries, low, &mut block),
        4 => offsets::<4>(entries, low, &mut block),
        _ => offsets::<8>(entries, low, &mut block),
    }
    let line = builder.add_block(&block)?;
    let vector = &mut builder.vectors[vector];
    vector.line = line;
    vector.width = width as u8;
    vector.base = low;
    Ok(())
}

/// Appends the lower bytes of what entries are above `low`.
fn offsets<const WIDTH: usize>(entries: &[u64], low: u64, out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + entries.len() * WIDTH, 0);
    let slots = out[start..].as_chunks_mut::<WIDTH>().0;
    for (slot, entry) in slots.iter_mut().zip(entries) {
        let bytes = (entry - low).to_le_bytes();
        *slot = std::array::from_fn(|byte| bytes[byte]);
    }
}

/// Bit i is byte i.
fn bits(bytes: &[u8; 8]) -> u8 {
    // each factor moves one of the bytes to its place among the upper eight bits
    (u64::from_le_bytes(*bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
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
