//! Parameters copied to the device for a launch.

/// Bytes for the device. Offsets count from their start.
#[derive(Default)]
pub(super) struct Parameters {
    pub bytes: Vec<u8>,
}

impl Parameters {
    /// The offset of the next bytes, a multiple of 16.
    pub fn next_offset(&mut self) -> u64 {
        self.bytes.resize(self.bytes.len().next_multiple_of(16), 0);
        self.bytes.len() as u64
    }

    pub fn word(&mut self, word: u64) {
        self.bytes.extend(word.to_le_bytes());
    }
}
