//! Offsets of consecutive ranges of memory.

/// Assigns offsets in memory that is allocated later.
#[derive(Debug, Default)]
pub(super) struct OffsetAllocator(usize);

impl OffsetAllocator {
    /// Assigns the next `bytes`, far fewer than the address space: their offset, a multiple of 16.
    pub fn next(&mut self, bytes: usize) -> usize {
        let at = self.0;
        self.0 = (at + bytes).next_multiple_of(16);
        at
    }

    /// Total bytes.
    pub fn bytes(&self) -> usize {
        self.0
    }
}
