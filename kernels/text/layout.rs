//! Strings in splits, each of 32 rows: a block for each vector, with the starts of its splits in the body, and the
//! lengths of its strings.

use std::sync::Arc;

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::StringsView;

use crate::builder::{Builder, LANES, Lines, pad};
use crate::error::{Error, Result};
use crate::symbols::Symbols;

/// Lays out strings. The body is that of the file.
pub(super) fn lay_out(builder: &mut Builder, view: &dyn StringsView) -> Result<()> {
    let data = view.data();
    if u32::try_from(data.len()).is_err() {
        return Err(Error::Unsupported("4 GiB of text in a chunk".into()));
    }
    builder.lines = Lines::Blocks;
    let mut added = Ok(());
    // splits behind the last string have no bytes
    let start = |split| view.starts().get(split).map_or(data.len(), |s| *s as usize);
    view.for_each_vector(&mut |vector, lengths| {
        if added.is_ok() {
            let starts = (vector * LANES..=(vector + 1) * LANES).map(start);
            added = add(builder, starts, vector, lengths);
        }
    })?;
    added?;
    builder.words = data.clone();
    builder.symbols = Some(Arc::new(Symbols::of(view)));
    Ok(())
}

/// Lays out uncompressed strings of these lengths, to be written later. Returns their bytes.
pub(super) fn lay_out_unwritten(builder: &mut Builder, lengths: &[u64]) -> Result<usize> {
    builder.lines = Lines::Blocks;
    let mut end = 0u64;
    for (vector, lengths) in lengths.chunks(VECTOR_LEN).enumerate() {
        let mut starts = [0; LANES + 1];
        for (split, start) in starts.iter_mut().enumerate() {
            *start = usize::try_from(end).unwrap_or(usize::MAX);
            let own = lengths.iter().skip(split * LANES).take(LANES);
            if split < LANES {
                end = own.fold(end, |end, length| end.saturating_add(*length));
            }
        }
        if u32::try_from(end).is_err() {
            return Err(Error::Unsupported("4 GiB of text in a chunk".into()));
        }
        add(builder, starts.into_iter(), vector, lengths)?;
    }
    builder.symbols = Some(Arc::new(Symbols::of_none()));
    Ok(end as usize)
}

/// Adds the block of a vector whose splits start and end there.
fn add(
    builder: &mut Builder,
    starts: impl Iterator<Item = usize>,
    vector: usize,
    lengths: &[u64],
) -> Result<()> {
    let width: usize = match lengths.iter().copied().max().unwrap_or(0) {
        0..=0xFF => 1,
        0x100..=0xFFFF => 2,
        _ => 4,
    };
    let line = builder.block(|out| {
        starts.for_each(|start| out.extend((start as u32).to_le_bytes()));
        pad(out, 16);
        for length in lengths {
            out.extend(&length.to_le_bytes()[..width]);
        }
    })?;
    let vector = &mut builder.vectors[vector];
    vector.line = line;
    vector.width = width as u8;
    Ok(())
}
