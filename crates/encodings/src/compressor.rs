//! Strings that somebody else compresses than the thread that encodes their column: a GPU.

use std::fmt::Debug;

/// Makes codes of strings in the place of the thread that encodes a column.
pub trait Compressor: Debug + Send + Sync {
    /// The codes of `strings`; `None` leaves them to the thread that asks.
    fn compress(&self, strings: &Uncompressed<'_>) -> Option<Splits>;
}

/// Strings, and what codes stand for. Each code is that of the longest word that the rest starts with.
#[derive(Clone, Copy, Debug)]
pub struct Uncompressed<'a> {
    /// The strings. Their bytes lie one behind the other in a split.
    pub strings: &'a [&'a [u8]],
    /// Strings of a split; the last one has fewer.
    pub split_strings: usize,
    /// What each code stands for: 1 to 16 bytes.
    pub words: &'a [Vec<u8>],
    /// Bits of a code, at most 12. A split has its codes packed from the lowest bit on, in whole bytes.
    pub code_bits: usize,
    /// The code of a byte that no word begins with. The byte follows, in 8 bits. A code may then stand for the bytes of
    /// several strings; without it, no code does, and each byte that occurs is a word.
    pub escape: Option<u8>,
}

/// Byte strings one behind another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Splits {
    /// Their bytes.
    pub data: Vec<u8>,
    /// Where each ends in `data`; ascends.
    pub ends: Vec<u64>,
}

impl Splits {
    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let split = &self.data[start..*end as usize];
            start = *end as usize;
            split
        })
    }
}
