//! Little-endian numbers from bytes that may be too few.

use crate::error::{FilePosition, Result};

/// A method that reads a number in its written form.
pub(crate) type Read<'a> = fn(&mut Cursor<'a>, &str) -> Result<u64>;

/// Reads the footer front to back; every read checks the remaining length.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    left: &'a [u8],
    position: FilePosition<'a>,
}

impl<'a> Cursor<'a> {
    /// Starts at the first of `bytes`; errors name `position`.
    pub(crate) fn new(bytes: &'a [u8], position: FilePosition<'a>) -> Self {
        Self {
            left: bytes,
            position,
        }
    }

    /// The number of bytes left.
    pub(crate) fn remaining(&self) -> usize {
        self.left.len()
    }

    /// The next `len` bytes. Errors call them `what`.
    pub(crate) fn bytes(&mut self, len: usize, what: &str) -> Result<&'a [u8]> {
        let Some((taken, left)) = self.left.split_at_checked(len) else {
            let left = self.left.len();
            return Err(self.position.corrupt(format!(
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

    pub(crate) fn u8(&mut self, what: &str) -> Result<u8> {
        self.array::<1>(what).map(u8::from_le_bytes)
    }

    pub(crate) fn u32(&mut self, what: &str) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    /// As [`u32`](Self::u32), widened to the common type of numbers.
    pub(crate) fn wide_u32(&mut self, what: &str) -> Result<u64> {
        self.u32(what).map(u64::from)
    }

    pub(crate) fn u64(&mut self, what: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// A varint: seven bits in each byte, the lowest first; all bytes but the last have the highest bit set.
    pub(crate) fn varint(&mut self, what: &str) -> Result<u64> {
        let mut value = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.u8(what)?;
            let bits = u64::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(self.position.corrupt(format!("{what} beyond 64 bits")))
    }

    /// Bytes preceded by their length, which `read` reads.
    pub(crate) fn prefixed(&mut self, read: Read<'a>, what: &str) -> Result<&'a [u8]> {
        let len = read(self, what)?;
        self.bytes(usize::try_from(len).unwrap_or(usize::MAX), what)
    }

    /// A number of entries, which `read` reads. Each takes at least `entry_bytes` of the remaining bytes, so that
    /// memory for them can be reserved.
    pub(crate) fn count(
        &mut self,
        read: Read<'a>,
        entry_bytes: usize,
        what: &str,
    ) -> Result<usize> {
        let count = read(self, what)?;
        let room = self.left.len() / entry_bytes.max(1);
        match usize::try_from(count) {
            Ok(count) if count <= room => Ok(count),
            _ => Err(self
                .position
                .corrupt(format!("{count} {what}, but room for at most {room}"))),
        }
    }
}

/// Appends `value` in the form that [`Cursor::varint`] reads.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_as_many_bytes_as_they_need() {
        for (value, bytes) in [(0, 1), (127, 1), (128, 2), (1 << 35, 6), (u64::MAX, 10)] {
            let mut out = vec![];
            put_varint(&mut out, value);
            assert_eq!(out.len(), bytes);
            let read = |bytes| Cursor::new(bytes, FilePosition::file("t")).varint("it");
            assert_eq!(read(&out).unwrap(), value);
            assert!(read(&out[1..]).is_err() || bytes > 1);
            assert!(read(&out[..bytes - 1]).is_err());
        }
        for long in [[0xFF; 10], [0x80; 10]] {
            assert!(
                Cursor::new(&long, FilePosition::file("t"))
                    .varint("it")
                    .is_err()
            );
        }
    }
}
