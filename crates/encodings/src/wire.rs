//! The bytes of a column chunk: a small header and buffers behind it.
//!
//! ```text
//! u32 header_len | u32 buffer_count | u64 buffer_len * buffer_count | header (header_len bytes)
//! padding to 64 | buffer 0 | padding to 64 | buffer 1 | ...
//! ```
//!
//! All integers are little-endian. Buffers start at the next multiple of 64 behind what precedes
//! them, so their offsets follow from their lengths. The header is the tree of encodings in
//! preorder: each node is a tag byte and its fields, and takes its buffers in order.

use arrow::buffer::Buffer;

use crate::MAX_TYPE_DEPTH;
use crate::error::{Result, corrupt, ensure};

const ALIGNMENT: usize = 64;
/// As many nested encodings as any encoder writes; bounds recursion while parsing. A level of a type
/// takes two: the column and its children. The innermost column is at most a dictionary whose
/// entries have lengths in runs of runs.
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
        self.header.extend_from_slice(&value.to_le_bytes());
    }

    pub fn i128(&mut self, value: i128) {
        self.header.extend_from_slice(&value.to_le_bytes());
    }

    pub fn buffer(&mut self, bytes: Vec<u8>) {
        self.buffers.push(bytes);
    }

    /// Bytes of the buffers and header fields so far: what a chunk of this content costs.
    pub fn len(&self) -> usize {
        self.header.len() + self.buffers.iter().map(|b| b.len() + 8).sum::<usize>()
    }

    /// Appends all of `child`.
    pub fn append(&mut self, child: ChunkWriter) {
        self.header.extend_from_slice(&child.header);
        self.buffers.extend(child.buffers);
    }

    pub fn finish(self) -> Vec<u8> {
        let total: usize = self.buffers.iter().map(|b| b.len() + ALIGNMENT).sum();
        let mut out = Vec::with_capacity(self.header.len() + self.buffers.len() * 8 + total + 128);
        out.extend_from_slice(&(self.header.len() as u32).to_le_bytes());
        out.extend_from_slice(&(self.buffers.len() as u32).to_le_bytes());
        for buffer in &self.buffers {
            out.extend_from_slice(&(buffer.len() as u64).to_le_bytes());
        }
        out.extend_from_slice(&self.header);
        for buffer in self.buffers {
            out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
            out.extend_from_slice(&buffer);
        }
        out
    }
}

/// Reads a chunk back; every read is checked.
pub(crate) struct ChunkReader {
    header: Buffer,
    position: usize,
    buffers: std::vec::IntoIter<Buffer>,
    depth: usize,
    total_bytes: usize,
}

impl ChunkReader {
    pub fn new(bytes: &Buffer) -> Result<Self> {
        let mut head = Cursor { bytes, position: 0 };
        let header_len = u32::from_le_bytes(head.array()?) as usize;
        let count = u32::from_le_bytes(head.array()?) as usize;
        ensure(count <= bytes.len() / 8, PART, || {
            format!("{count} buffers in {} bytes", bytes.len())
        })?;
        let lengths = (0..count)
            .map(|_| head.array().map(u64::from_le_bytes))
            .collect::<Result<Vec<_>>>()?;
        let header = slice(bytes, head.position, header_len as u64)?;
        let mut end = head.position + header_len;
        let mut buffers = Vec::with_capacity(count);
        for length in lengths {
            let start = end.next_multiple_of(ALIGNMENT);
            let buffer = slice(bytes, start, length)?;
            end = start + buffer.len();
            buffers.push(buffer);
        }
        ensure(end == bytes.len(), PART, || {
            format!("{} bytes, of which the buffers explain {end}", bytes.len())
        })?;
        Ok(Self {
            header,
            position: 0,
            buffers: buffers.into_iter(),
            depth: 0,
            total_bytes: bytes.len(),
        })
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut cursor = Cursor {
            bytes: &self.header,
            position: self.position,
        };
        let value = cursor.array()?;
        self.position = cursor.position;
        Ok(value)
    }

    pub fn u8(&mut self) -> Result<u8> {
        self.array().map(u8::from_le_bytes)
    }

    pub fn u64(&mut self) -> Result<u64> {
        self.array().map(u64::from_le_bytes)
    }

    pub fn i128(&mut self) -> Result<i128> {
        self.array().map(i128::from_le_bytes)
    }

    /// Bytes of the whole chunk.
    pub fn total_bytes(&self) -> usize {
        self.total_bytes
    }

    /// A `u64` that counts something of which `limit` is the most.
    pub fn count(&mut self, limit: usize, part: &'static str) -> Result<usize> {
        let count = self.u64()?;
        ensure(count <= limit as u64, part, || {
            format!("a count of {count}, at most {limit} possible")
        })?;
        Ok(count as usize)
    }

    pub fn buffer(&mut self) -> Result<Buffer> {
        self.buffers
            .next()
            .ok_or_else(|| corrupt(PART, "fewer buffers than its encodings need"))
    }

    /// The next buffer, which must hold exactly `len` bytes.
    pub fn buffer_of(&mut self, len: usize, part: &'static str) -> Result<Buffer> {
        let buffer = self.buffer()?;
        ensure(buffer.len() == len, part, || {
            format!("a buffer of {} bytes where {len} belong", buffer.len())
        })?;
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
    pub fn finish(mut self) -> Result<()> {
        let unread = self.header.len() - self.position;
        ensure(unread == 0 && self.buffers.next().is_none(), PART, || {
            format!("{unread} header bytes or some buffers belong to no encoding")
        })
    }
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
