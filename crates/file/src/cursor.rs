//! Little-endian numbers out of bytes that may be too few.

use crate::error::{Place, Result};

/// Reads the footer front to back; every read checks what is left.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    left: &'a [u8],
    place: Place<'a>,
}

impl<'a> Cursor<'a> {
    /// At the start of `bytes`; errors name `place`.
    pub(crate) fn new(bytes: &'a [u8], place: Place<'a>) -> Self {
        Self { left: bytes, place }
    }

    /// How many bytes are left.
    pub(crate) fn remaining(&self) -> usize {
        self.left.len()
    }

    /// The next `len` bytes, which are called `what` in an error.
    pub(crate) fn bytes(&mut self, len: usize, what: &str) -> Result<&'a [u8]> {
        let Some((taken, left)) = self.left.split_at_checked(len) else {
            let left = self.left.len();
            return Err(self.place.corrupt(format!(
                "the footer ends in its {what}: {len} bytes, {left} left"
            )));
        };
        self.left = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.bytes(N, what)?);
        Ok(array)
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Bytes preceded by their length as a `u32`.
    pub(crate) fn prefixed(&mut self, what: &str) -> Result<&'a [u8]> {
        let len = self.u32(what)?;
        self.bytes(len as usize, what)
    }

    /// A count of entries that each take at least `entry_bytes` of what is left, so that
    /// memory for them can be reserved.
    pub(crate) fn count(&mut self, entry_bytes: usize, what: &str) -> Result<usize> {
        let count = self.u32(what)? as usize;
        let room = self.left.len() / entry_bytes.max(1);
        if count > room {
            return Err(self
                .place
                .corrupt(format!("{count} {what}, but room for at most {room}")));
        }
        Ok(count)
    }
}
