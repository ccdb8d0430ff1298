//! `fsst`: strings as one-byte codes of frequent substrings of 1 to 8 bytes, which symbol tables
//! define. Loses to `dict` where values repeat; random bytes grow, up to twofold.
//!
//! Code 255 is the escape: the next byte stands for itself. A table is stored as the FSST library
//! exports it (version 20190218), so other tools can read it:
//!
//! ```text
//! u64 version << 32 | symbol count << 8 | 1 | u8 0 | u8 number of symbols of length 1, 2, .., 8
//! the bytes of every symbol in code order: by length 2, 3, .., 8, then 1
//! ```

use fsst::Compressor;

use crate::bitpack::LANES;
use crate::compressor::{Splits, Uncompressed};

/// The code after which a byte is literal.
pub(crate) const ESCAPE: u8 = 255;
/// Strings compressed together.
pub(crate) const SPLIT_ROWS: usize = LANES;
/// Fewer splits than this do not pay for a second symbol table.
const MIN_SPLITS_FOR_SECOND: usize = 64;
/// The version in the header of an exported table.
pub(crate) const VERSION: u64 = 20190218;
/// Bytes of that header.
pub(crate) const HEADER_BYTES: usize = 17;

/// A symbol table for compression.
pub(crate) struct Table(Compressor);

impl Table {
    /// Trains a table for these values.
    pub fn train(values: &[&[u8]]) -> Self {
        Self(Compressor::train(&values.to_vec()))
    }

    /// The symbol of each code.
    fn symbols(&self) -> Vec<Vec<u8>> {
        let lengths = self.0.symbol_lengths().iter();
        let symbols = self.0.symbol_table().iter().zip(lengths);
        let bytes = symbols
            .map(|(symbol, length)| symbol.to_u64().to_le_bytes()[..usize::from(*length)].to_vec());
        bytes.collect()
    }

    /// Serializes the table.
    pub fn export(&self) -> Vec<u8> {
        let symbols = self.symbols();
        let mut histogram = [0u8; 8];
        for symbol in &symbols {
            histogram[symbol.len().clamp(1, 8) - 1] += 1;
        }
        let mut out = Vec::with_capacity(HEADER_BYTES + symbols.len() * 8);
        out.extend_from_slice(&(VERSION << 32 | (symbols.len() as u64) << 8 | 1).to_le_bytes());
        out.push(0);
        out.extend_from_slice(&histogram);
        symbols.iter().for_each(|symbol| out.extend(symbol));
        out
    }

    /// Compresses `values`, in splits of `split_rows` values.
    pub fn compress(
        &self,
        values: &[&[u8]],
        split_strings: usize,
        other: Option<&dyn crate::Compressor>,
    ) -> Splits {
        let of_other = other.and_then(|other| {
            other.compress(&Uncompressed {
                strings: values,
                split_strings,
                words: &self.symbols(),
                code_bits: 8,
                escape: Some(ESCAPE),
            })
        });
        of_other.unwrap_or_else(|| match split_strings {
            1 => self.compress_each(values),
            _ => self.compress_each(&splits_of(values).iter().collect::<Vec<_>>()),
        })
    }

    fn compress_each(&self, values: &[&[u8]]) -> Splits {
        let mut out = Splits::default();
        self.0
            .compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(
                values,
                &mut out.data,
                &mut out.ends,
            );
        out
    }
}

/// Concatenates `values` in splits.
pub(crate) fn splits_of(values: &[&[u8]]) -> Splits {
    let mut splits = Splits::default();
    splits
        .data
        .reserve(values.iter().map(|value| value.len()).sum());
    for split in values.chunks(SPLIT_ROWS) {
        split
            .iter()
            .for_each(|value| splits.data.extend_from_slice(value));
        splits.ends.push(splits.data.len() as u64);
    }
    splits
}

/// The symbol tables to compress a column with, in order of use.
pub(crate) struct Tables {
    pub first: Table,
    pub second: Option<Table>,
}

impl Tables {
    /// Trains as many tables as pay for `values`.
    pub fn train(values: &[&[u8]]) -> Self {
        let first = Table::train(values);
        let once = first.compress(values, SPLIT_ROWS, None);
        let codes: Vec<&[u8]> = once.iter().collect();
        let second = Table::train(&codes);
        let twice = second.compress(&codes, 1, None);
        // the second table costs about a third of decompression speed and two kilobytes
        let pays = twice.data.len() + twice.data.len() / 10 < once.data.len()
            && once.len() > MIN_SPLITS_FOR_SECOND;
        Self {
            first,
            second: pays.then_some(second),
        }
    }

    /// Serializes the tables, in the order of decompression.
    pub fn export(&self) -> impl Iterator<Item = Vec<u8>> {
        let tables = self.second.iter().chain([&self.first]);
        tables.map(Table::export)
    }

    /// Compresses `values`.
    pub fn compress(&self, values: &[&[u8]], other: Option<&dyn crate::Compressor>) -> Splits {
        let once = self.first.compress(values, SPLIT_ROWS, other);
        match &self.second {
            None => once,
            Some(second) => second.compress(&once.iter().collect::<Vec<_>>(), 1, other),
        }
    }
}
