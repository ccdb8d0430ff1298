//! Runtime arguments of a kernel plan.

use std::ops::Range;
use std::sync::Arc;

use super::plan::KernelPlan;
use super::task::CodeTest;
use vectile_pipeline::{KeyTable, PayloadColumn, Type};

/// Runtime arguments of a kernel: everything that may differ between two queries that share its plan.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    pub constants: Vec<i128>,
    /// Payload columns.
    pub attributes: Vec<Arc<PayloadColumn>>,
    /// Tables of computed keys.
    pub tables: Vec<Arc<KeyTable>>,
    pub code_tests: Vec<CodeTest>,
    /// Bits of lookups that each block copies to shared memory.
    pub copies: Vec<BitCopy>,
    /// Bytes of the block's own shared memory, which precedes that of its warps.
    pub block_bytes: u32,
    /// Offset of the group table in them.
    pub table_at: u32,
    /// The possible groups.
    pub grouping: Option<Grouping>,
    /// Sets of distinct values of each group.
    pub sets: Vec<SetBinding>,
}

impl Bindings {
    /// Bytes of dynamic shared memory of a block.
    pub fn shared_bytes(&self, plan: &KernelPlan) -> u32 {
        self.block_bytes + plan.warp_bytes * plan.warps
    }

    /// The index of a payload column, which is added if it is new.
    pub fn payload(&mut self, payload: &Arc<PayloadColumn>) -> usize {
        index_of(payload, &mut self.attributes)
    }

    /// The index of a table of computed keys, which is added if it is new.
    pub fn table(&mut self, codes: &Arc<KeyTable>) -> usize {
        index_of(codes, &mut self.tables)
    }

    /// The digits of a group's number.
    pub fn digits(&self) -> &[Digit] {
        self.grouping.as_ref().map_or(&[], |of| &of.digits)
    }

    /// The factor of a key's digit in the group number, or in the number of its part.
    pub fn stride(&self, key: usize) -> u64 {
        let parts = self.grouping.iter().flat_map(|of| &of.parts);
        let of_part = parts.map(|part| part.start).filter(|start| *start <= key);
        let before = &self.digits()[of_part.max().unwrap_or(0)..key];
        let counts = before.iter().map(|digit| digit.count.max(1));
        counts.fold(1, u64::saturating_mul)
    }
}

/// The index of `item` in `all`, which it is pushed to if it is new.
fn index_of<T>(item: &Arc<T>, all: &mut Vec<Arc<T>>) -> usize {
    let known = all.iter().position(|known| Arc::ptr_eq(known, item));
    known.unwrap_or_else(|| {
        all.push(Arc::clone(item));
        all.len() - 1
    })
}

/// A copy of a lookup's bits in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BitCopy {
    pub lookup: usize,
    pub at: u32,
    pub bytes: usize,
}

/// A digit of a group's number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Digit {
    /// Number of values of the digit, including null.
    pub count: u64,
    /// True if the last one stands for null.
    pub nullable: bool,
    /// The key of digit 0.
    pub first: i128,
    /// The type of the key; `None` for a code or a dictionary value.
    pub of: Option<Type>,
}

/// A set of distinct values of each group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SetBinding {
    /// The value that counts as 0.
    pub first: i128,
    /// The factor of a value in its number together with that of its group; 0 if these are too many for a number.
    pub stride: u64,
}

/// The possible groups.
#[derive(Clone, Debug)]
pub(crate) struct Grouping {
    pub digits: Vec<Digit>,
    /// Number of possible groups: the product of the digits' counts; `u64::MAX` for a key of several parts.
    pub groups: u64,
    /// The parts of a key that is too wide for one number, as ranges of digits; none of other keys.
    pub parts: Vec<Range<usize>>,
}

impl Grouping {
    /// The digits of each number of a group: its parts, or all of them.
    pub fn numbers(&self) -> Vec<Range<usize>> {
        let all = 0..self.digits.len();
        match self.parts.is_empty() {
            true => vec![all],
            false => self.parts.clone(),
        }
    }
}
