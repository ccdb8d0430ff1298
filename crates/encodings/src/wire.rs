//! The bytes of a column chunk: a small header, followed by buffers.
//!
//! ```text
//! number header_len | header | buffer 0 | buffer 1 | ...
//! ```
//!
//! The header is the tree of encodings in preorder: each node is a tag byte and its fields, and takes its buffers in
//! order. The length of a buffer follows from fields and buffers before it, or is a field itself. A buffer of 4096
//! bytes or more starts at a multiple of 64, so that it is aligned for mapping or copying; others start at the end of
//! the one before.
//!
//! A number is a varint: seven bits in each byte, the lowest first; all bytes but the last have the highest bit set.
//! Signed numbers are in zigzag order: 0, -1, 1, -2.
//!
//! In version 1 of the file format, numbers have a fixed width, and all lengths come first:
//!
//! ```text
//! u32 header_len | u32 buffer_count | u64 buffer_len * buffer_count | header (header_len bytes)
//! padding to 64 | buffer 0 | padding to 64 | buffer 1 | ...
//! ```

use arrow::buffer::Buffer;

use crate::error::{Result, corrupt, ensure};
use crate::{FORMAT_VERSION, MAX_TYPE_DEPTH};

const ALIGNMENT: usize = 64;
/// Buffers of at least this many bytes are aligned.
const LARGE: usize = 4096;
/// The deepest nesting of encodings that an encoder writes; it bounds recursion while parsing. A level of a type takes
/// two: the column and its children. The innermost column is at most a dictionary whose entries have lengths in runs of
/// runs.
const MAX_DEPTH: usize = 2 * MAX_TYPE_DEPTH + 4;
const PART: &str = "column chunk";

/// Collects a chunk while it is encoded.
#[derive(Clone, Default)]
pub(crate) struct ChunkWriter {
    header: Vec<u8>,
    buffers: Vec<Vec<u8>>,
}

impl ChunkWriter {
    pub fn u8(&mut self, value: u8) {
        self.header.push(value);
    }

    pub fn u64(&mut self, value: u64) {
        put_varint(&mut self.header, value.into());
    }

    pub fn i64(&mut self, value: i64) {
        self.i128(value.into());
    }

    pub fn i128(&mut self, value: i128) {
        put_varint(&mut self.header, (value << 1 ^ value >> 127) as u128);
    }

    /// Adds a buffer whose length a reader knows from the bytes before it.
    pub fn buffer(&mut self, bytes: Vec<u8>) {
        self.buffers.push(bytes);
    }

    /// Adds a buffer and its length.
    pub fn sized_buffer(&mut self, bytes: Vec<u8>) {
        self.u64(bytes.len() as u64);
        self.buffer(bytes);
    }

    /// Bytes of the buffers and header fields so far, without those around them.
    pub fn len(&self) -> usize {
        self.header.len() + self.buffers.iter().map(Vec::len).sum::<usize>()
    }

    /// Appends all of `child`.
    pub fn append(&mut self, child: ChunkWriter) {
        self.header.extend_from_slice(&child.header);
        self.buffers.extend(child.buffers);
    }

    pub fn finish(self) -> Vec<u8> {
        let large = self.buffers.iter().filter(|buffer| buffer.len() >= LARGE);
        let mut out = Vec::with_capacity(self.len() + large.count() * ALIGNMENT + 10);
        put_varint(&mut out, self.header.len() as u128);
        out.extend_from_slice(&self.header);
        for buffer in self.buffers {
            out.resize(start_of(buffer.len(), out.len()), 0);
            out.extend_from_slice(&buffer);
        }
        out
    }
}

fn put_varint(out: &mut Vec<u8>, mut value: u128) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The start of a buffer of `len` bytes after content that ends at `end`.
fn start_of(len: usize, end: usize) -> usize {
    match len {
        LARGE.. => end.next_multiple_of(ALIGNMENT),
        _ => end,
    }
}

/// Reads a chunk back; every read is checked.
pub(crate) struct ChunkReader {
    bytes: Buffer,
    header: Buffer,
    position: usize,
    /// End of the last buffer.
    end: usize,
    /// The lengths of buffers, if they come first (version 1).
    lengths: Option<std::vec::IntoIter<u64>>,
    depth: usize,
}

impl ChunkReader {
    /// Starts to read a chunk of a file of this format version.
    pub fn new(bytes: &Buffer, version: u32) -> Result<Self> {
        ensure((1..=FORMAT_VERSION).contains(&version), PART, || {
            format!("format version {version}, at most {FORMAT_VERSION}")
        })?;
        let mut head = Cursor { bytes, position: 0 };
        let (header_len, lengths) = match version {
            1 => head.lengths()?,
            _ => (head.varint(u64::MAX.into())? as u64, None),
        };
        let header = slice(bytes, head.position, header_len)?;
        Ok(Self {
            end: head.position + header.len(),
            bytes: bytes.clone(),
            header,
            position: 0,
            lengths: lengths.map(Vec::into_iter),
            depth: 0,
        })
    }

    /// Returns true if the chunk is of a file of version 1.
    pub fn is_version_1(&self) -> bool {
        self.lengths.is_some()
    }

    /// Reads from the header.
    fn read<T>(&mut self, read: impl FnOnce(&mut Cursor<'_>) -> Result<T>) -> Result<T> {
        let mut cursor = Cursor {
            bytes: &self.header,
            position: self.position,
        };
        let value = read(&mut cursor)?;
        self.position = cursor.position;
        Ok(value)
    }

    pub fn u8(&mut self) -> Result<u8> {
        self.read(|header| header.array().map(u8::from_le_bytes))
    }

    pub fn u64(&mut self) -> Result<u64> {
        match self.is_version_1() {
            true => self.read(|header| header.array().map(u64::from_le_bytes)),
            false => self.read(|header| Ok(header.varint(u64::MAX.into())? as u64)),
        }
    }

    pub fn i64(&mut self) -> Result<i64> {
        match self.is_version_1() {
            true => self.read(|header| header.array().map(i64::from_le_bytes)),
            false => self.read(|header| Ok(unzigzag(header.varint(u64::MAX.into())?) as i64)),
        }
    }

    pub fn i128(&mut self) -> Result<i128> {
        match self.is_version_1() {
            true => self.read(|header| header.array().map(i128::from_le_bytes)),
            false => self.read(|header| header.varint(u128::MAX).map(unzigzag)),
        }
    }

    /// Bytes of the whole chunk.
    pub fn total_bytes(&self) -> usize {
        self.bytes.len()
    }

    /// Reads a count of at most `limit`.
    pub fn count(&mut self, limit: usize, part: &'static str) -> Result<usize> {
        let count = self.u64()?;
        ensure(count <= limit as u64, part, || {
            format!("a count of {count}, at most {limit} possible")
        })?;
        Ok(count as usize)
    }

    /// The next buffer, which is stored with its length.
    pub fn sized_buffer(&mut self) -> Result<Buffer> {
        let len = match &mut self.lengths {
            Some(lengths) => lengths.next().ok_or_else(too_few)?,
            None => self.u64()?,
        };
        self.take(len)
    }

    /// The next buffer, which must hold exactly `len` bytes.
    pub fn buffer_of(&mut self, len: usize, part: &'static str) -> Result<Buffer> {
        if let Some(lengths) = &mut self.lengths {
            let actual = lengths.next().ok_or_else(too_few)?;
            ensure(actual == len as u64, part, || {
                format!("a buffer of {actual} bytes where {len} belong")
            })?;
        }
        self.take(len as u64)
    }

    fn take(&mut self, len: u64) -> Result<Buffer> {
        let start = match self.is_version_1() {
            true => self.end.next_multiple_of(ALIGNMENT),
            false => start_of(usize::try_from(len).unwrap_or(usize::MAX), self.end),
        };
        let buffer = slice(&self.bytes, start, len)?;
        self.end = start + buffer.len();
        Ok(buffer)
    }

    /// Runs `parse` one level deeper; hostile nesting is refused.
    pub fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.depth += 1;
        ensure(self.depth <= MAX_DEPTH, PART, || {
            format!("encodings nested deeper than {MAX_DEPTH}")
        })?;
        let value = parse(self)?;
        self.depth -= 1;
        Ok(value)
    }

    /// Checks that everything was read.
    pub fn finish(self) -> Result<()> {
        let header = self.header.len() - self.position;
        let behind = self.bytes.len() - self.end;
        let lengths = self.lengths.map_or(0, |lengths| lengths.len());
        ensure(header + behind + lengths == 0, PART, || {
            format!("{header} header bytes or {behind} bytes behind them belong to no encoding")
        })
    }
}

fn too_few() -> crate::Error {
    corrupt(PART, "fewer buffers than its encodings need")
}

fn unzigzag(value: u128) -> i128 {
    (value >> 1) as i128 ^ -((value & 1) as i128)
}

struct Cursor<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl Cursor<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let array = self
            .bytes
            .get(self.position..)
            .and_then(|rest| rest.first_chunk::<N>())
            .ok_or_else(|| corrupt(PART, format!("ends at byte {}", self.bytes.len())))?;
        self.position += N;
        Ok(*array)
    }

    /// A number of at most `largest`.
    fn varint(&mut self, largest: u128) -> Result<u128> {
        let mut value = 0;
        for shift in (0..u128::BITS).step_by(7) {
            let [byte] = self.array()?;
            let bits = u128::from(byte & 0x7F);
            if bits << shift >> shift != bits {
                break;
            }
            value |= bits << shift;
            if byte < 0x80 {
                ensure(value <= largest, PART, || {
                    format!("a number of {value}, at most {largest}")
                })?;
                return Ok(value);
            }
        }
        Err(corrupt(PART, "a number beyond 128 bits"))
    }

    /// The length of the header and those of the buffers, in version 1.
    fn lengths(&mut self) -> Result<(u64, Option<Vec<u64>>)> {
        let header_len = u32::from_le_bytes(self.array()?);
        let count = u32::from_le_bytes(self.array()?) as usize;
        ensure(count <= self.bytes.len() / 8, PART, || {
            format!("{count} buffers in {} bytes", self.bytes.len())
        })?;
        let lengths = (0..count)
            .map(|_| self.array().map(u64::from_le_bytes))
            .collect::<Result<Vec<_>>>()?;
        Ok((header_len.into(), Some(lengths)))
    }
}

fn slice(bytes: &Buffer, start: usize, len: u64) -> Result<Buffer> {
    let end = usize::try_from(len)
        .ok()
        .and_then(|len| start.checked_add(len));
    match end {
        Some(end) if start <= bytes.len() && end <= bytes.len() => {
            Ok(bytes.slice_with_length(start, end - start))
        }
        _ => Err(corrupt(
            PART,
            format!(
                "a buffer of {len} bytes at {start}, of {} in all",
                bytes.len()
            ),
        )),
    }
}

/// The `index`-th little-endian integers of a buffer whose length was checked when it was parsed.
pub(crate) fn u16_at(bytes: &[u8], index: usize) -> u16 {
    bytes
        .as_chunks::<2>()
        .0
        .get(index)
        .map_or(0, |b| u16::from_le_bytes(*b))
}

pub(crate) fn u64_at(bytes: &[u8], index: usize) -> u64 {
    bytes
        .as_chunks::<8>()
        .0
        .get(index)
        .map_or(0, |b| u64::from_le_bytes(*b))
}

/// `values` as little-endian bytes.
pub(crate) fn le_bytes<const N: usize, T>(
    values: &[T],
    to_bytes: impl Fn(&T) -> [u8; N],
) -> Vec<u8> {
    values.iter().flat_map(to_bytes).collect()
}

/// Appends `values` as [`Narrow`] reads them: each in as few bytes as the widest of them takes.
pub(crate) fn put_narrow(values: &[u64], out: &mut ChunkWriter) {
    let bytes = values.iter().map(|value| narrow_bytes(*value)).max();
    let bytes = bytes.unwrap_or(0);
    out.u8(bytes as u8);
    let value = |value: &u64| value.to_le_bytes().into_iter().take(bytes);
    out.buffer(values.iter().flat_map(value).collect());
}

/// Bytes appended by [`put_narrow`].
pub(crate) fn narrow_size(values: &[u64]) -> usize {
    let bytes = values.iter().map(|value| narrow_bytes(*value)).max();
    1 + bytes.unwrap_or(0) * values.len()
}

/// Bytes of a number whose highest bit is its sign.
fn narrow_bytes(value: u64) -> usize {
    let signed = value as i64;
    let bits = match signed {
        0 => 0,
        _ => 65 - (signed ^ signed >> 63).leading_zeros(),
    };
    bits.div_ceil(8) as usize
}

/// A number of 64 bits per vector, stored in 0 to 8 bytes each and sign-extended.
#[derive(Clone, Debug)]
pub(crate) struct Narrow {
    bytes: usize,
    values: Buffer,
}

impl Narrow {
    pub fn parse(reader: &mut ChunkReader, count: usize, part: &'static str) -> Result<Self> {
        let bytes = match reader.is_version_1() {
            true => 8,
            false => usize::from(reader.u8()?),
        };
        ensure(bytes <= 8, part, || {
            format!("numbers of {bytes} bytes, at most 8")
        })?;
        Ok(Self {
            bytes,
            values: reader.buffer_of(count.saturating_mul(bytes), part)?,
        })
    }

    #[inline]
    pub fn get(&self, index: usize) -> u64 {
        if self.bytes == 8 {
            return u64_at(&self.values, index);
        }
        let start = index.saturating_mul(self.bytes);
        let bytes = self.values.get(start..start.saturating_add(self.bytes));
        let Some(bytes @ [.., last]) = bytes else {
            return 0;
        };
        let mut value = [if *last < 0x80 { 0 } else { 0xFF }; 8];
        value[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(value)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reader(out: ChunkWriter) -> ChunkReader {
        ChunkReader::new(&out.finish().into(), FORMAT_VERSION).unwrap()
    }

    proptest! {
        #[test]
        fn numbers_round_trip(values: Vec<(u64, u32, i128, u32)>) {
            let mut out = ChunkWriter::default();
            let shifted = values.iter().map(|(a, i, b, j)| (a >> (i % 64), b >> (j % 128)));
            let shifted: Vec<_> = shifted.collect();
            for (a, b) in &shifted {
                out.u64(*a);
                out.i64(*a as i64);
                out.i128(*b);
            }
            put_narrow(&shifted.iter().map(|(a, _)| *a).collect::<Vec<_>>(), &mut out);
            put_narrow(&shifted.iter().map(|(_, b)| *b as i64 as u64).collect::<Vec<_>>(), &mut out);
            let mut reader = reader(out);
            for (a, b) in &shifted {
                prop_assert_eq!(reader.u64().unwrap(), *a);
                prop_assert_eq!(reader.i64().unwrap(), *a as i64);
                prop_assert_eq!(reader.i128().unwrap(), *b);
            }
            let first = Narrow::parse(&mut reader, shifted.len(), PART).unwrap();
            let second = Narrow::parse(&mut reader, shifted.len(), PART).unwrap();
            for (index, (a, b)) in shifted.iter().enumerate() {
                prop_assert_eq!(first.get(index), *a);
                prop_assert_eq!(second.get(index), *b as i64 as u64);
            }
            reader.finish().unwrap();
        }
    }

    #[test]
    fn narrow_numbers_take_the_bytes_of_the_widest() {
        for (value, bytes) in [
            (0, 0),
            (127, 1),
            (128, 2),
            (-128, 1),
            (-129, 2),
            (i64::MIN, 8),
        ] {
            assert_eq!(narrow_bytes(value as u64), bytes, "{value}");
        }
    }

    #[test]
    fn large_buffers_are_aligned_and_small_ones_are_not() {
        let mut out = ChunkWriter::default();
        out.sized_buffer(vec![1; 3]);
        out.buffer(vec![2; LARGE]);
        out.buffer(vec![3; 5]);
        let bytes = out.finish();
        assert_eq!(bytes.len(), 64 + LARGE + 5);
        let mut reader = ChunkReader::new(&bytes.clone().into(), FORMAT_VERSION).unwrap();
        assert_eq!(reader.sized_buffer().unwrap().as_slice(), [1; 3]);
        assert_eq!(
            reader.buffer_of(LARGE, PART).unwrap().as_slice(),
            [2; LARGE]
        );
        assert!(reader.buffer_of(6, PART).is_err());
        assert_eq!(reader.buffer_of(5, PART).unwrap().as_slice(), [3; 5]);
        reader.finish().unwrap();
    }

    #[test]
    fn what_is_left_over_or_missing_is_refused() {
        let read = |bytes: &[u8]| -> Result<()> {
            let mut reader = ChunkReader::new(&bytes.to_vec().into(), FORMAT_VERSION)?;
            reader.i64()?;
            reader.buffer_of(2, PART)?;
            reader.finish()
        };
        read(&[1, 9, 7, 7]).unwrap();
        let wide = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2];
        for bytes in [
            &[][..],
            &[1],
            &[0, 7, 7],
            &[1, 0x80],
            &[1, 9, 7],
            &[2, 9, 9, 7, 7],
            &[1, 9, 7, 7, 7],
            &[[10].as_slice(), &wide, &[7, 7]].concat(),
            &[0xFF; 30],
        ] {
            let error = read(bytes).unwrap_err();
            assert!(matches!(error, crate::Error::Corrupt { .. }), "{error}");
        }
        assert!(ChunkReader::new(&vec![0u8].into(), FORMAT_VERSION + 1).is_err());
        assert!(ChunkReader::new(&vec![0u8].into(), 0).is_err());
    }
}
