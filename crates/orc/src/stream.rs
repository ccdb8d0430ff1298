//! Streams: the bytes of a column in a stripe, by purpose.

use bytes::Bytes;

use crate::compression::{Chunks, Codec};
use crate::error::Fault;
use crate::kind::StreamKind;
use crate::position::Position;

/// A stream as it is in the file: the input of a decoder, on the CPU or on a device.
#[derive(Clone, Debug)]
pub struct Stream {
    /// Its purpose.
    pub kind: StreamKind,
    /// Its column, by number in the file; 0 is the root.
    pub column: u32,
    /// Its bytes, in compression chunks unless the codec is none.
    pub bytes: Bytes,
    /// The compression of the chunks.
    pub codec: Codec,
}

impl Stream {
    /// Its compression chunks, which are independent of each other. A run of values may span two.
    pub fn chunks(&self) -> Chunks<'_> {
        self.codec.chunks(&self.bytes)
    }

    /// Inflates the stream from a position on. The values to skip are included.
    ///
    /// # Errors
    ///
    /// As [`inflate`](Self::inflate), or if the position is not in the stream.
    pub fn inflate_from(&self, position: Position) -> Result<Bytes, Fault> {
        let outside = || Fault::Corrupt(format!("{position:?} in {} bytes", self.bytes.len()));
        let rest = self.bytes.get(position.offset..).ok_or_else(outside)?;
        let inflated = self.codec.inflate(&self.bytes.slice_ref(rest))?;
        let rest = inflated.get(position.byte..).ok_or_else(outside)?;
        Ok(inflated.slice_ref(rest))
    }

    /// Inflates the whole stream.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if the codec cannot inflate a chunk.
    pub fn inflate(&self) -> Result<Bytes, Fault> {
        self.codec.inflate(&self.bytes)
    }

    /// As [`inflate`](Self::inflate); fails if the result exceeds `most` bytes.
    pub(crate) fn inflate_up_to(&self, most: usize) -> Result<Bytes, Fault> {
        self.codec.inflate_up_to(&self.bytes, most)
    }
}
