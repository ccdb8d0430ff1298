//! What a column chunk has in which buffer, for decoders that run elsewhere: see [`crate::layout`].

use std::fmt;

use arrow::array::ArrayRef;
use arrow::buffer::Buffer;

use crate::codecs::sequence::SequenceView as Sequence;
use crate::error::Result;
use crate::patches::PatchList;
use crate::residuals::Packed;
use crate::validity::Nulls;

/// A column chunk: which rows are null, and the values.
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    /// Which rows are null.
    pub validity: Nulls<'a>,
    /// The values; arbitrary where null.
    pub values: Values<'a>,
}

/// How values are stored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Values<'a> {
    /// Every row is null.
    AllNull,
    /// The only value, an array of one row.
    Constant(&'a ArrayRef),
    /// Fixed-width values as Arrow lays them out: bytes of a value, and all bytes.
    Plain(usize, &'a Buffer),
    /// `reference + entry` of a sequence; of floats, the integers that order as arrow-rs orders
    /// them.
    Integers {
        /// The smallest value.
        reference: i128,
        /// What is added to it.
        offsets: Sequence<'a>,
    },
    /// Codes of distinct values.
    Dictionary {
        /// The values, ascending.
        entries: &'a ArrayRef,
        /// The code of each row.
        codes: Sequence<'a>,
    },
    /// Floats that are decimals: `integer * 10^factor * 10^-exponent`, in doubles.
    Alp {
        /// The smallest integer, which the sequence counts from.
        reference: i64,
        /// The exponent of each vector, at most 18.
        exponents: &'a [u8],
        /// The factor of each vector, at most its exponent.
        factors: &'a [u8],
        /// Integer less reference of each row.
        integers: Sequence<'a>,
        /// Bits of the values that are stored as they are.
        exceptions: PatchList<'a>,
    },
    /// Floats cut in two: `left << right_width | right`.
    AlpRd {
        /// Bits of a right part.
        right_width: usize,
        /// Left parts in their place in a value.
        lefts: [u64; 8],
        /// Index of the left part of each row.
        indices: Sequence<'a>,
        /// Right parts.
        rights: Packed<'a>,
        /// Left parts without an index.
        exceptions: PatchList<'a>,
    },
    /// Byte strings in splits.
    Strings(&'a dyn StringsView),
    /// Nested types: no fixed-width value for a row.
    Other,
}

/// Byte strings as they lie in buffers: in splits of 32, each compressed as one.
pub trait StringsView: fmt::Debug {
    /// How many symbol tables were applied: none, one or two.
    fn tables(&self) -> usize;

    /// What a code of the table stands for that was applied first, or of the second: bytes, or codes of the first.
    /// Nothing if it has no symbol.
    fn symbol(&self, table: usize, code: u8) -> &[u8];

    /// What codes stand for where they are neither bytes nor those of symbol tables, but of entries.
    fn entries(&self) -> Option<&dyn EntriesView>;

    /// The bytes of all splits, one behind the other.
    fn data(&self) -> &Buffer;

    /// Where each split starts in them, and where the last one ends.
    fn starts(&self) -> &[u64];

    /// Calls `visit` with each vector and the lengths of its strings. Each split has been found to hold just these; of
    /// entries, each string has been found to have codes of its own.
    ///
    /// # Errors
    ///
    /// Corruption, if a split holds fewer or more bytes.
    fn for_each_vector(&self, visit: &mut dyn FnMut(usize, &[u64])) -> Result<()>;
}

/// Entries that codes stand for, which lie in a split one behind the other, from the lowest bit on.
pub trait EntriesView: fmt::Debug {
    /// How many there are, at most 4094.
    fn count(&self) -> usize;

    /// Bits of a code.
    fn code_bits(&self) -> usize;

    /// What a code stands for, 1 to 16 bytes; nothing if it has no entry.
    fn entry(&self, code: usize) -> &[u8];
}
