//! Grouped aggregates: the number of a row's group, and where groups are added up.

use super::task::Outcome;
use crate::plan::Type;

/// Bytes of a table of groups up to which each block has one in shared memory.
pub(crate) const SHARED_TABLE: u64 = 24 << 10;
/// Where groups are accumulated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spot {
    /// Each thread has accumulators of every group, in shared memory.
    Threads,
    /// By number, in shared memory, then in global memory.
    Shared,
    /// By number, in global memory.
    Numbered,
    /// Where the number hashes to.
    Hashed,
}

/// How a word of a group's accumulators starts and how two are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupFold {
    /// The number of rows or values.
    Count,
    /// A sum of 64 bits.
    Sum,
    /// A sum of 128 bits: this word and the next.
    WideSum,
    /// The high word of the sum before.
    High,
    /// A sum of doubles.
    SumFloat,
    /// The smallest, in unsigned order and turned round.
    Min,
    /// The largest, in unsigned order.
    Max,
}

/// A digit of a group's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digit {
    /// How many there are, null among them.
    pub count: u64,
    /// The last one is null.
    pub nullable: bool,
    /// What the first one stands for.
    pub first: i128,
    /// The type of a value; `None` if it is a code or an entry.
    pub of: Option<Type>,
}

/// What the table of a kernel holds.
#[derive(Clone, Debug)]
pub(crate) struct Grouping {
    pub spot: Spot,
    pub digits: Vec<Digit>,
    /// All there may be: the product of the digits' counts.
    pub groups: u64,
    /// The words of a group. The first counts its rows.
    pub words: Vec<GroupFold>,
    pub results: Vec<Outcome>,
}
