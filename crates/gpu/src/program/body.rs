//! State of the assembler within a body of row instructions.

use crate::kernel::Typed;

/// Where a value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// A slot, and the flag of its validity.
    Slot(u16, u16),
    /// A flag of booleans, and the flag of their validity.
    Flag(u16, u16),
}

/// The current match of a repetition over a list of matches.
#[derive(Clone, Copy, Debug)]
pub(super) struct CurrentMatch {
    pub number: usize,
    /// The slot of its index, and the flag that there is one.
    pub index: u16,
    pub valid: u16,
}

/// What is known within a body.
#[derive(Debug, Default)]
pub(super) struct Body<'a> {
    /// The slot and validity flag of codes, by table.
    pub codes: Vec<(usize, u16, u16)>,
    /// Expressions that occur more than once.
    pub repeated: Vec<&'a Typed>,
    /// Those of them that are computed.
    pub computed: Vec<(&'a Typed, Place)>,
    /// Vector flags of tests, by number.
    pub tests: Vec<(u32, u16)>,
    pub matches: Vec<CurrentMatch>,
}
