//! The buffers of a column chunk by content, for external decoders: see [`crate::layout`].

use std::fmt;

use arrow::array::ArrayRef;
use arrow::buffer::Buffer;

use crate::codecs::sequence::Sequence;
use crate::error::Result;
use crate::patches::PatchList;
use crate::residuals::Packed;
use crate::validity::Nulls;

/// A column chunk: its nulls and its values.
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    /// The nulls.
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
    /// Fixed-width values in Arrow's layout: bytes per value, and the buffer.
    Plain(usize, &'a Buffer),
    /// `reference + entry` of a sequence; for floats, the integers that order as arrow-rs orders them.
    Integers {
        /// The smallest value.
        reference: i128,
        /// The sequence added to the reference.
        offsets: &'a Sequence,
    },
    /// Codes of distinct values.
    Dictionary {
        /// The values, ascending.
        entries: &'a ArrayRef,
        /// The code of each row.
        codes: &'a Sequence,
    },
    /// Floats that are decimals: `integer * 10^factor * 10^-exponent`, in doubles.
    Alp {
        /// The smallest integer, which is the origin of the sequence.
        reference: i64,
        /// The exponent of each vector, at most 18.
        exponents: &'a [u8],
        /// The factor of each vector, at most its exponent.
        factors: &'a [u8],
        /// Per row, integer minus reference.
        integers: &'a Sequence,
        /// Exceptions, as bits of the value.
        exceptions: PatchList<'a>,
    },
    /// Floats cut in two: `left << right_width | right`.
    AlpRd {
        /// Bits of a right part.
        right_width: usize,
        /// Left parts, shifted to their position in a value.
        lefts: [u64; 8],
        /// Index of the left part of each row.
        indices: &'a Sequence,
        /// Right parts.
        rights: Packed<'a>,
        /// Left parts without an index.
        exceptions: PatchList<'a>,
    },
    /// Byte strings in splits.
    Strings(&'a dyn StringsView),
    /// Nested types, which have no fixed-width value per row.
    Other,
}

/// Byte strings in their buffers: in splits of 32, each compressed as one.
pub trait StringsView: fmt::Debug {
    /// The number of symbol tables: 0, 1 or 2.
    fn tables(&self) -> usize;

    /// The symbol of a code in the first or second applied table: bytes, or codes of the first. Empty if the code has
    /// no symbol.
    fn symbol(&self, table: usize, code: u8) -> &[u8];

    /// The entries that codes refer to; `None` if codes are bytes or refer to symbol tables.
    fn entries(&self) -> Option<&dyn EntriesView>;

    /// The concatenated bytes of all splits.
    fn data(&self) -> &Buffer;

    /// The start of each split in `data`, and the end of the last one.
    fn starts(&self) -> &[u64];

    /// Bytes of memory that parsing took, and that decoding may take, beyond those of the chunk.
    fn memory_size(&self) -> usize;

    /// Calls `visit` with each vector and the lengths of its strings, after a check that each split holds exactly
    /// these; with entries, also that each string has codes of its own.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if a split holds fewer or more bytes.
    fn for_each_vector(&self, visit: &mut dyn FnMut(usize, &[u64])) -> Result<()>;
}

/// The entries that codes refer to. Codes in a split are packed from the lowest bit on.
pub trait EntriesView: fmt::Debug {
    /// The number of entries, at most 4094.
    fn count(&self) -> usize;

    /// Bits of a code.
    fn code_bits(&self) -> usize;

    /// The 1 to 16 bytes of a code's entry; empty if it has none.
    fn entry(&self, code: usize) -> &[u8];
}
