//! Streams: the bytes that a stripe has of one column, by what they are for.

use bytes::Bytes;

use crate::compression::{Chunks, Codec};
use crate::error::Fault;
use crate::kind::StreamKind;
use crate::position::Position;

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

    /// As [`inflate`](Self::inflate), from a position on. The values to skip are still there.
    ///
    /// # Errors
    ///
    /// As [`inflate`](Self::inflate), and if the position is not in the stream.
    pub fn inflate_from(&self, position: Position) -> Result<Bytes, Fault> {
        let outside = || Fault::Corrupt(format!("{position:?} in {} bytes", self.bytes.len()));
        let rest = self.bytes.get(position.offset..).ok_or_else(outside)?;
        let inflated = self.codec.inflate(&self.bytes.slice_ref(rest))?;
        let rest = inflated.get(position.byte..).ok_or_else(outside)?;
        Ok(inflated.slice_ref(rest))
    }

    /// Its bytes as the encodings made them.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if a chunk is not what the codec makes.
    pub fn inflate(&self) -> Result<Bytes, Fault> {
        self.codec.inflate(&self.bytes)
    }

    /// As [`inflate`](Self::inflate), if it is no more than `most` bytes.
    pub(crate) fn inflate_up_to(&self, most: usize) -> Result<Bytes, Fault> {
        self.codec.inflate_up_to(&self.bytes, most)
    }
}
