//! What kernels with the same plan are told apart by.

use std::sync::Arc;

use super::plan::KernelPlan;
use super::task::CodeTest;
use crate::plan::{KeyTable, PayloadColumn, Type};

/// What a kernel with this plan is told: all that may differ between two queries that share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bindings {
    pub constants: Vec<i128>,
    /// Values of codes.
    pub attributes: Vec<Arc<PayloadColumn>>,
    /// Tables of computed keys.
    pub tables: Vec<Arc<KeyTable>>,
    pub code_tests: Vec<CodeTest>,
    /// Bits that each block copies.
    pub copies: Vec<BitCopy>,
    /// Bytes of shared memory that belong to the block, before those of its warps.
    pub block_bytes: u32,
    /// Where in them the table of groups is.
    pub table_at: u32,
    /// Which groups there may be.
    pub grouping: Option<Grouping>,
}

impl Bindings {
    /// Bytes of dynamic shared memory of a block.
    pub fn shared_bytes(&self, plan: &KernelPlan) -> u32 {
        self.block_bytes + plan.warp_bytes * plan.warps
    }

    /// The number of an attribute, which is added if it is another one.
    pub fn attribute(&mut self, attribute: &Arc<PayloadColumn>) -> usize {
        number_of(attribute, &mut self.attributes)
    }

    /// The number of a table of computed keys, which is added if it is another one.
    pub fn table(&mut self, codes: &Arc<KeyTable>) -> usize {
        number_of(codes, &mut self.tables)
    }

    /// The digits of a group's number.
    pub fn digits(&self) -> &[Digit] {
        self.grouping.as_ref().map_or(&[], |of| &of.digits)
    }

    /// What a digit is multiplied by.
    pub fn stride(&self, key: usize) -> u64 {
        let before = self.digits()[..key].iter();
        before.map(|digit| digit.count.max(1)).product()
    }
}

/// The place of `item` among `all`, where it is added if it is not there.
fn number_of<T>(item: &Arc<T>, all: &mut Vec<Arc<T>>) -> usize {
    let known = all.iter().position(|known| Arc::ptr_eq(known, item));
    known.unwrap_or_else(|| {
        all.push(Arc::clone(item));
        all.len() - 1
    })
}

/// Bits of a lookup in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BitCopy {
    pub lookup: usize,
    pub at: u32,
    pub bytes: usize,
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

/// Which groups there may be.
#[derive(Clone, Debug)]
pub(crate) struct Grouping {
    pub digits: Vec<Digit>,
    /// All there may be: the product of the digits' counts.
    pub groups: u64,
}
