//! Symbol tables, for tests of strings.

use vectile_encodings::layout::StringsView;

/// The symbol tables of a chunk.
#[derive(Debug)]
pub struct Symbols {
    tables: Vec<Vec<Box<[u8]>>>,
}

impl Symbols {
    pub(crate) fn of(view: &dyn StringsView) -> Self {
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
