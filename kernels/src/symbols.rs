//! The symbols of compressed strings, for testing and decoding them.

use std::any::Any;
use std::sync::{Arc, Mutex};

use vectile_encodings::layout::{EntriesView, StringsView};

/// Limit of the bytes of a symbol.
pub const SYMBOL_BYTES: usize = 8;

/// Entries that codes stand for, each of 1 to 16 bytes.
#[derive(Debug)]
pub struct Entries {
    code_bits: usize,
    strings: Vec<Vec<u8>>,
}

impl Entries {
    fn of(view: &dyn EntriesView) -> Self {
        let string = |code| view.entry(code).to_vec();
        Self {
            code_bits: view.code_bits(),
            strings: (0..view.count()).map(string).collect(),
        }
    }

    /// Bits of a code, at most 12.
    pub fn code_bits(&self) -> usize {
        self.code_bits
    }

    /// The string of each code: at most 4094.
    pub fn strings(&self) -> &[Vec<u8>] {
        &self.strings
    }
}

/// Data that devices keep of the symbols.
type DeviceCopies = Mutex<Vec<Arc<dyn Any + Send + Sync>>>;

/// The symbol tables of a chunk, or its entries.
#[derive(Debug)]
pub struct Symbols {
    /// For each code, its symbol and the symbol's length.
    tables: Vec<Vec<([u8; SYMBOL_BYTES], u8)>>,
    entries: Option<Entries>,
    device: DeviceCopies,
}

impl Symbols {
    pub(crate) fn of(view: &dyn StringsView) -> Self {
        let padded = |symbol: &[u8]| {
            let mut bytes = [0; SYMBOL_BYTES];
            let length = symbol.len().min(SYMBOL_BYTES);
            bytes[..length].copy_from_slice(&symbol[..length]);
            (bytes, length as u8)
        };
        let table = |table| {
            let symbols = (0..=u8::MAX).map(|code| padded(view.symbol(table, code)));
            symbols.collect()
        };
        Self {
            tables: (0..view.tables()).map(table).collect(),
            // without entries there are no codes, and so no strings with bytes
            entries: view.entries().filter(|of| of.count() > 0).map(Entries::of),
            device: Mutex::default(),
        }
    }

    /// For strings that are not compressed.
    pub(crate) fn of_none() -> Self {
        Self {
            tables: vec![],
            entries: None,
            device: Mutex::default(),
        }
    }

    /// Device copies of the tables, one for each device; filled by the code that decodes strings there.
    pub fn device_copies(&self) -> &Mutex<Vec<Arc<dyn Any + Send + Sync>>> {
        &self.device
    }

    /// The entries that codes stand for, if there are any.
    pub fn entries(&self) -> Option<&Entries> {
        self.entries.as_ref()
    }

    /// Number of tables that strings are compressed by, one after the other.
    pub fn tables(&self) -> usize {
        self.tables.len()
    }

    /// The symbol of a code, in the table applied first (0) or second (1): bytes, or codes of the first table. Empty
    /// if the code has no symbol.
    pub fn symbol(&self, table: usize, code: u8) -> &[u8] {
        let symbol = self
            .tables
            .get(table)
            .map(|symbols| &symbols[usize::from(code)]);
        symbol.map_or(&[], |(bytes, length)| &bytes[..usize::from(*length)])
    }
}
