//! Pieces of memory one behind the other.

/// What is handed out of a memory before that is there.
#[derive(Debug, Default)]
pub(super) struct Places(usize);

impl Places {
    /// Where the next `bytes` are, far fewer than can be addressed: a multiple of 16.
    pub fn next(&mut self, bytes: usize) -> usize {
        let at = self.0;
        self.0 = (at + bytes).next_multiple_of(16);
        at
    }

    /// Bytes of all.
    pub fn bytes(&self) -> usize {
        self.0
    }
}
