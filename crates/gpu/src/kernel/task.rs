//! What a kernel is for, what it is told, and what it leaves behind.

use std::sync::Arc;

use vectile_encodings::Predicate;

use crate::plan::{Automaton, KeyTable, ValueTest};

/// Vectors that are summed by themselves, where the order of additions matters.
pub(crate) const SLOT_VECTORS: usize = 32;
/// Arguments with a fixed meaning: vectors, row groups, number of row groups, output, masks, counts. Of
/// groups, the third last is the table, then come the entries of hashed ones, and whether it is full.
pub(crate) const FIXED_ARGUMENTS: usize = 6;
/// Words of a row group before its columns: first vector, rows, first row.
pub(crate) const GROUP_WORDS: usize = 3;
/// Words of a row group for a table: bits, codes, first key, places; of a hash table keys, codes, the empty
/// slot, its size.
pub(crate) const TABLE_WORDS: usize = 4;

/// What a kernel leaves behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Task {
    /// Two words for each accumulator and warp.
    Totals,
    /// 32 words for each vector, bits in row order, and their number.
    Masks,
    /// Values at places that follow from masks and their numbers.
    Values,
    /// Values of every row.
    AllValues,
    /// Lengths of a column's strings, or their codes in a dictionary, at places that follow from masks; and the sum of
    /// each vector's lengths.
    Lengths,
    /// Accumulators of groups: a table, or as totals if there are few.
    Groups,
}

impl Task {
    /// Whether it is known which rows pass.
    pub fn is_behind_filters(self) -> bool {
        use Task::*;
        matches!(self, Values | AllValues | Lengths)
    }
}

/// An argument behind the fixed ones: where its value comes from among [`Bindings`](super::Bindings).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Argument {
    /// Bytes of shared memory that are the block's.
    BlockBytes,
    /// Where in them the table of groups is.
    TableAt,
    /// The low word of a constant.
    Low(usize),
    /// The high word of one.
    High(usize),
    /// The address of a table: smallest and largest integer of a range for each scale of ALP. The ends of the
    /// range are constants.
    Scales {
        column: usize,
        low: usize,
        high: usize,
    },
    /// Where in the block's memory a copy of bits is, by its number.
    CopyAt(usize),
    /// Words of the copy.
    CopyWords(usize),
    /// The address that it is of.
    CopyOf(usize),
    /// A word of a table of computed keys: table, word.
    TableWord(usize, usize),
    /// Where in the block's memory the table of a test of strings is, by the test's number; all ones if it does
    /// not fit there.
    TextAt(usize),
    /// The address of an attribute's values, one for each code.
    Values(usize),
    /// The address of their validity, a byte each.
    Validity(usize),
    /// What the first digit of a key stands for.
    KeyFirst(usize),
    /// The digit of a key that is null.
    KeyNull(usize),
    /// What the digit of a key is multiplied by.
    Stride(usize),
    /// Groups that there may be; of hashed ones, entries of their table.
    Groups,
    /// Entries of the table of groups in global memory.
    Entries,
}

/// A test of the entries of a dictionary, answered for each row group: a word of the group.
#[derive(Clone, Debug)]
pub(crate) struct CodeTest {
    pub column: usize,
    pub test: EntryTest,
    /// The same of strings that are in no dictionary, where there are some.
    pub automaton: Option<Arc<Automaton>>,
}

/// What is asked of entries.
#[derive(Clone, Debug)]
pub(crate) enum EntryTest {
    Predicate(Predicate),
    Values(ValueTest),
    Found(Arc<KeyTable>),
}

impl EntryTest {
    /// The automaton that does it, if there is one.
    pub fn automaton(&self) -> Option<Arc<Automaton>> {
        match self {
            Self::Predicate(predicate) => Automaton::of_predicate(predicate).map(Arc::new),
            Self::Values(test) => test.automaton.clone(),
            Self::Found(_) => None,
        }
    }
}

/// What there is a result of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum AccumulationScope {
    /// Each warp.
    Warp,
    /// Each block. A warp may take so many vectors.
    Block { vectors_per_warp: usize },
    /// Each slot of [`SLOT_VECTORS`] vectors of a row group: then it does not depend on who computes it.
    Slot,
}
