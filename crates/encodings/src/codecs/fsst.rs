//! `fsst`: strings as one-byte codes of frequent substrings of 1 to 8 bytes, and the symbol tables
//! that say which. Loses to `dict` where values repeat; random bytes grow, up to twofold.
//!
//! Code 255 is the escape: the next byte stands for itself. A table is stored as the FSST library
//! exports it (version 20190218), so other tools can read it:
//!
//! ```text
//! u64 version << 32 | symbol count << 8 | 1 | u8 0 | u8 number of symbols of length 1, 2, .., 8
//! the bytes of every symbol in code order: by length 2, 3, .., 8, then 1
//! ```

pub(crate) use fsst::Compressor;

use crate::bitpack::LANES;

/// Strings compressed together.
pub(crate) const SPLIT_ROWS: usize = LANES;
/// Fewer splits than this do not pay for a second symbol table.
const MIN_SPLITS_FOR_SECOND: usize = 64;
/// In the header of an exported table.
pub(crate) const VERSION: u64 = 20190218;
/// Bytes of that header.
pub(crate) const HEADER_BYTES: usize = 17;

/// Byte strings one behind another.
#[derive(Default)]
pub(crate) struct Splits {
    pub data: Vec<u8>,
    /// Where each ends in `data`; ascends.
    pub ends: Vec<u64>,
}

impl Splits {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let split = &self.data[start..*end as usize];
            start = *end as usize;
            split
        })
    }

    /// Each compressed.
    pub fn compress(&self, compressor: &Compressor) -> Self {
        let values: Vec<&[u8]> = self.iter().collect();
        let mut out = Self::default();
        compressor.compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(
            &values,
            &mut out.data,
            &mut out.ends,
        );
        out
    }
}

/// The exported table of a compressor.
pub(crate) fn export(compressor: &Compressor) -> Vec<u8> {
    let (symbols, lengths) = (compressor.symbol_table(), compressor.symbol_lengths());
    let mut histogram = [0u8; 8];
    for length in lengths.iter().take(symbols.len()) {
        histogram[usize::from(*length).clamp(1, 8) - 1] += 1;
    }
    let mut out = Vec::with_capacity(HEADER_BYTES + symbols.len() * 8);
    out.extend_from_slice(&(VERSION << 32 | (symbols.len() as u64) << 8 | 1).to_le_bytes());
    out.push(0);
    out.extend_from_slice(&histogram);
    for (symbol, length) in symbols.iter().zip(lengths) {
        out.extend_from_slice(&symbol.to_u64().to_le_bytes()[..usize::from(*length)]);
    }
    out
}

/// `values` in splits.
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
    pub first: Compressor,
    pub second: Option<Compressor>,
}

impl Tables {
    /// As many tables as pay for `values`.
    pub fn train(values: &[&[u8]]) -> Self {
        let first = Compressor::train(&values.to_vec());
        let once = splits_of(values).compress(&first);
        let second = Compressor::train(&once.iter().collect());
        let twice = once.compress(&second);
        // the second table costs about a third of decompression speed and two kilobytes
        let pays = twice.data.len() + twice.data.len() / 10 < once.data.len()
            && once.len() > MIN_SPLITS_FOR_SECOND;
        Self {
            first,
            second: pays.then_some(second),
        }
    }
}
