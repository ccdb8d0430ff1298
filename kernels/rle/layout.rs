//! Runs: a block for each vector, with a bit for each row that starts one, and values of whole bytes.

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::RleView;

use crate::builder::Builder;
use crate::error::Result;

/// Gives bounds of the entries; `None` without any.
pub(super) fn lay_out(builder: &mut Builder, view: RleView<'_>) -> Result<Option<(u64, u64)>> {
    builder.lines_are_blocks = true;
    let mut bounds: Option<(u64, u64)> = None;
    let mut blocks = vec![];
    let mut runs: Vec<(u16, u64)> = vec![];
    let mut current = 0;
    view.for_each_run(|vector, row, entry| {
        if vector != current {
            blocks.push((current, std::mem::take(&mut runs)));
            current = vector;
        }
        bounds = Some(bounds.map_or((entry, entry), |(a, b)| (a.min(entry), b.max(entry))));
        runs.push((row as u16, entry));
    })?;
    blocks.push((current, runs));
    for (vector, runs) in blocks {
        if vector < builder.vectors.len() {
            block(builder, vector, &runs)?;
        }
    }
    Ok(bounds)
}

/// Adds the runs of a vector, by first row and entry.
fn block(builder: &mut Builder, vector: usize, runs: &[(u16, u64)]) -> Result<()> {
    let low = runs.iter().map(|(_, entry)| *entry).min().unwrap_or(0);
    let high = runs.iter().map(|(_, entry)| *entry).max().unwrap_or(0);
    let width: usize = match high - low {
        0 => 0,
        1..=0xFF => 1,
        0x100..=0xFFFF => 2,
        0x1_0000..=0x7FFF_FFFF => 4,
        // lookups count on four bytes having a bit to spare
        _ => 8,
    };
    builder.traits.wide_entries |= width == 8;
    let mut block = vec![0u8; VECTOR_LEN / 8];
    for (row, _) in runs {
        block[usize::from(*row) / 8] |= 1 << (row % 8);
    }
    for (_, entry) in runs {
        block.extend(&(entry - low).to_le_bytes()[..width]);
    }
    let line = builder.add_block(block)?;
    let vector = &mut builder.vectors[vector];
    vector.line = line;
    vector.width = width as u8;
    vector.base = low;
    Ok(())
}
