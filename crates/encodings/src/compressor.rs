//! Delegates string compression from the thread that encodes a column, for example to a GPU.

use std::fmt::Debug;

/// Compresses strings instead of the thread that encodes a column.
pub trait Compressor: Debug + Send + Sync {
    /// Compresses `strings`; `None` leaves them to the calling thread.
    fn compress(&self, strings: &Uncompressed<'_>) -> Option<Splits>;
}

/// Strings, and the words that codes denote. Each code must be that of the longest word that is a prefix of the rest.
#[derive(Clone, Copy, Debug)]
pub struct Uncompressed<'a> {
    /// The strings. Their bytes are concatenated in a split.
    pub strings: &'a [&'a [u8]],
    /// Strings of a split; the last one has fewer.
    pub split_strings: usize,
    /// The word of each code: 1 to 16 bytes.
    pub words: &'a [Vec<u8>],
    /// Bits of a code, at most 12. A split has its codes packed from the lowest bit on, in whole bytes.
    pub code_bits: usize,
    /// The code for a byte that is no prefix of a word. The byte follows, in 8 bits. With an escape, a code may cover
    /// bytes of several strings; without it, no code does, and each byte that occurs is a word.
    pub escape: Option<u8>,
}

/// Concatenated byte strings.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Splits {
    /// Their bytes.
    pub data: Vec<u8>,
    /// The end of each in `data`; ascends.
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
