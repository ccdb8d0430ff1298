//! What is sent along with a launch.

use arrow::array::{Array, ArrayRef, AsArray};

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

    /// Values as a kernel reads them: booleans in a byte each.
    pub fn values(&mut self, values: &ArrayRef) {
        if let Some(booleans) = values.as_boolean_opt() {
            let bytes = booleans.values().iter().map(u8::from);
            self.bytes.extend(bytes);
            return;
        }
        let data = values.to_data();
        let width = data.data_type().primitive_width().unwrap_or(0);
        if let Some(buffer) = data.buffers().first() {
            let bytes = data.offset() * width..(data.offset() + data.len()) * width;
            self.bytes.extend(&buffer[bytes]);
        }
    }
}
