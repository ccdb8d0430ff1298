//! What is sent along with a launch.

/// Words for the device. Places in them are counted from their start.
#[derive(Default)]
pub(super) struct Parameters {
    pub bytes: Vec<u8>,
}

impl Parameters {
    /// The place of what is added next.
    pub fn place(&mut self) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        self.bytes.len() as u64
    }

    pub fn word(&mut self, word: u64) {
        self.bytes.extend(word.to_le_bytes());
    }
}
