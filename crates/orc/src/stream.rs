//! Streams: the bytes that a stripe has of one column, by what they are for.

use bytes::Bytes;

use crate::compression::{Chunks, Codec};
use crate::error::Fault;
use crate::kind::StreamKind;

/// A stream as it is in the file: what a decoder takes, on the CPU or on a device.
#[derive(Clone, Debug)]
pub struct Stream {
    /// What it is for.
    pub kind: StreamKind,
    /// The column that it is of, by its number in the file; 0 is the root.
    pub column: u32,
    /// Its bytes, in compression chunks unless the codec is none.
    pub bytes: Bytes,
    /// How these are compressed.
    pub codec: Codec,
}

impl Stream {
    /// Its compression chunks, which are independent of each other. A run of values may span two.
    pub fn chunks(&self) -> Chunks<'_> {
        self.codec.chunks(&self.bytes)
    }

    /// Its bytes as the encodings made them.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if a chunk is not what the codec makes.
    pub fn inflate(&self) -> Result<Bytes, Fault> {
        self.codec.inflate(&self.bytes)
    }
}
