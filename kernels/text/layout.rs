//! Strings in splits, each of 32 rows: a block for each vector, with where its splits start in the body, and the
//! lengths of its strings.

use std::sync::Arc;

use vectile_encodings::layout::StringsView;

use crate::builder::{Builder, LANES, Lines, pad};
use crate::error::{Error, Result};
use crate::symbols::Symbols;

/// The body is that of the file.
pub(super) fn lay_out(builder: &mut Builder, view: &dyn StringsView) -> Result<()> {
    let data = view.data();
    if u32::try_from(data.len()).is_err() {
        return Err(Error::Unsupported("4 GiB of text in a chunk".into()));
    }
    builder.lines = Lines::Blocks;
    let mut added = Ok(());
    view.for_each_vector(&mut |vector, lengths| {
        if added.is_ok() {
            added = add(builder, view, vector, lengths);
        }
    })?;
    added?;
    builder.words = data.clone();
    builder.symbols = Some(Arc::new(Symbols::of(view)));
    Ok(())
}

/// Adds the block of a vector.
fn add(
    builder: &mut Builder,
    view: &dyn StringsView,
    vector: usize,
    lengths: &[u64],
) -> Result<()> {
    let width: usize = match lengths.iter().copied().max().unwrap_or(0) {
        0..=0xFF => 1,
        0x100..=0xFFFF => 2,
        _ => 4,
    };
    // splits behind the last string have no bytes
    let start = |split| {
        view.starts()
            .get(split)
            .map_or(view.data().len(), |s| *s as usize)
    };
    let starts = (vector * LANES..=(vector + 1) * LANES).map(start);
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
