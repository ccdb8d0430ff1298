//! Tasks of kernels: their arguments and results.

use std::sync::Arc;

use vectile_encodings::Predicate;

use vectile_pipeline::{Automaton, KeyTable, ValueTest};

/// Vectors per slot. Slots are summed separately if the order of additions matters.
pub(crate) const SLOT_VECTORS: usize = 32;
/// Number of arguments with a fixed meaning: vectors, row groups, number of row groups, output, masks, counts. For
/// [`Task::Groups`], the last three are the group table, the number of entries of a hashed one, and the flag that it
/// is full.
pub(crate) const FIXED_ARGUMENTS: usize = 6;
/// Words of a row group's descriptor before its columns: first vector, number of rows, first row.
pub(crate) const GROUP_WORDS: usize = 3;
/// Words of a row group's descriptor per table: bits, codes, first key, range; for a hash table keys, codes, empty
/// slot, size.
pub(crate) const TABLE_WORDS: usize = 4;

/// The result of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    /// Two words per accumulator and warp.
    Totals,
    /// Per vector, 32 words of bits in row order, and the number of set bits.
    Masks,
    /// Values of the selected rows; masks and their counts determine the offsets.
    Values,
    /// Values of every row.
    AllValues,
    /// Lengths of a column's strings, or their dictionary codes, for the selected rows; and the sum of each vector's
    /// lengths. Masks and their counts determine the offsets.
    Lengths,
    /// Accumulators of groups: a table, or as in [`Totals`](Self::Totals) if there are few.
    Groups,
}

impl Task {
    /// Returns true if the selected rows are known before the kernel runs.
    pub fn follows_filters(self) -> bool {
        use Task::*;
        matches!(self, Values | AllValues | Lengths)
    }
}

/// An argument after the fixed ones, by the source of its value in [`Bindings`](super::Bindings).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    /// Bytes of the block's own shared memory.
    BlockBytes,
    /// Offset of the group table in them.
    TableAt,
    /// The low word of a constant.
    Low(usize),
    /// The high word of a constant.
    High(usize),
    /// A constant for the interpreter, which must fit 64 bits.
    Fitting(usize),
    /// The address of a table with the smallest and largest integer of a range per scale of ALP. The ends of the range
    /// are constants.
    Scales {
        column: usize,
        low: usize,
        high: usize,
    },
    /// Offset of a copy of bits in the block's shared memory, by the copy's index.
    CopyAt(usize),
    /// Words of the copy.
    CopyWords(usize),
    /// The address of the copied bits.
    CopyOf(usize),
    /// A word of a table of computed keys: (table, word).
    TableWord(usize, usize),
    /// Offset of the table of a string test in the block's shared memory, by the test's index; all ones if it does
    /// not fit there.
    TextAt(usize),
    /// The address of a payload column's values, one per code.
    Values(usize),
    /// The address of their validity, a byte each.
    Validity(usize),
    /// The value of digit 0 of a key.
    KeyFirst(usize),
    /// The digit of null for a key.
    KeyNull(usize),
    /// The factor of a key's digit in the group number.
    Stride(usize),
    /// The address of a set of distinct values.
    SetAt(usize),
    /// Its number of entries.
    SetEntries(usize),
    /// The value that counts as 0 in it.
    SetFirst(usize),
    /// The factor of a value in its number together with that of its group; 0 if there is none.
    SetStride(usize),
    /// Number of possible groups; for a hash table, its number of entries.
    Groups,
    /// Number of entries of the group table in global memory.
    Entries,
    /// The address of memory of which each warp of the interpreter has its part.
    Scratch,
    /// The address of the word that the interpreter sets if a number does not fit 64 bits.
    Overflow,
    /// A number, and above it the warps of a block.
    WithWarps(u32),
    /// The same word for all launches.
    Word(u64),
}

/// A test of dictionary values, evaluated per row group: a word of the row group's descriptor.
#[derive(Clone, Debug)]
pub(crate) struct CodeTest {
    pub column: usize,
    pub test: DictionaryTest,
    /// The equivalent test of strings that are in no dictionary, if the column has any.
    pub automaton: Option<Arc<Automaton>>,
}

/// The kind of a [`CodeTest`].
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum DictionaryTest {
    Predicate(Predicate),
    Values(ValueTest),
    Matched(Arc<KeyTable>),
}

impl DictionaryTest {
    /// The equivalent automaton, if there is one.
    pub fn automaton(&self) -> Option<Arc<Automaton>> {
        match self {
            Self::Predicate(predicate) => Automaton::of_predicate(predicate).map(Arc::new),
            Self::Values(test) => test.automaton().cloned(),
            Self::Matched(_) => None,
        }
    }
}

/// The scope of accumulators: each of these has its own result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AccumulationScope {
    /// Each warp.
    Warp,
    /// Each block. A warp may take at most this many vectors.
    Block { vectors_per_warp: usize },
    /// Each slot of [`SLOT_VECTORS`] vectors of a row group: then results do not depend on the computing warp.
    Slot,
}
