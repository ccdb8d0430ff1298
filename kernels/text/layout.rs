//! Strings in splits, each of 32 rows: a block for each vector, with where its splits start in the body, and the
//! lengths of its strings.

use std::sync::Arc;

use vectile_encodings::layout::StringsView;

use crate::builder::{Builder, LANES};
use crate::error::{Error, Result};

/// The symbol tables of a chunk.
#[derive(Debug)]
pub struct Symbols {
    tables: Vec<Vec<Box<[u8]>>>,
}

impl Symbols {
    fn of(view: StringsView<'_>) -> Self {
        let table = |table| {
            let symbols = (0..=u8::MAX).map(|code| view.symbol(table, code).into());
            symbols.collect()
        };
        Self {
            tables: (0..view.tables()).map(table).collect(),
        }
    }

    /// How many tables strings are compressed by, one after the other.
    pub fn tables(&self) -> usize {
        self.tables.len()
    }

    /// What a code of the table stands for that was applied first, or of the second: bytes, or codes of the first.
    /// Nothing if it has no symbol.
    pub fn symbol(&self, table: usize, code: u8) -> &[u8] {
        let symbols = self.tables.get(table);
        symbols.map_or(&[], |symbols| &symbols[usize::from(code)])
    }
}

/// The body is that of the file.
pub(super) fn lay_out(builder: &mut Builder, view: StringsView<'_>) -> Result<()> {
    let data = view.data();
    if u32::try_from(data.len()).is_err() {
        return Err(Error::Unsupported("4 GiB of text in a chunk".into()));
    }
    builder.lines_are_blocks = true;
    view.for_each_vector(|vector, lengths| {
        let width: usize = match lengths.iter().copied().max().unwrap_or(0) {
            0..=0xFF => 1,
            0x100..=0xFFFF => 2,
            _ => 4,
        };
        // those behind the last string have no bytes
        let starts = (vector * LANES..=(vector + 1) * LANES)
            .map(|split| view.starts().get(split).map_or(data.len(), |s| *s as usize));
        let line = builder.block(|out| {
            starts.for_each(|start| out.extend((start as u32).to_le_bytes()));
            out.resize(out.len().next_multiple_of(16), 0);
            for length in lengths {
                out.extend(&length.to_le_bytes()[..width]);
            }
        })?;
        let vector = &mut builder.vectors[vector];
        vector.line = line;
        vector.width = width as u8;
        Ok::<_, Error>(())
    })?;
    builder.words = data.clone();
    builder.symbols = Some(Arc::new(Symbols::of(view)));
    Ok(())
}
