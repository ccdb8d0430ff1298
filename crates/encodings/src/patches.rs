//! Patches: the rows of packed vectors whose value is stored apart, for all encodings that have
//! such rows (residuals that are too wide, floats that are no decimals).
//!
//! ```text
//! header   u8 bytes of a patch value: 2, 4 or 8; 0: no vector has patches, and no buffers follow
//! buffer   u16 patch count of each vector, 0..=1024
//! buffer   u16 * 32 for each vector that has patches: lane l's count << 10 | offset of its first
//! buffer   u16 row in vector of each patch, grouped by lane (row % 32), ascending in a lane
//! buffer   u16, u32 or u64 value of each patch, in the same order
//! ```
//!
//! These are G-ALP's data-parallel exceptions: a thread that owns a lane reads only that lane's.

use std::ops::Range;

use arrow::buffer::Buffer;

use crate::VECTOR_LEN;
use crate::bitpack::{LANES, Mask};
use crate::error::{Result, ensure};
use crate::wire::{ChunkReader, ChunkWriter, le_bytes, u16_at, u32_at, u64_at};

const PART: &str = "patches";
/// Bytes of the lane words of a vector that has patches.
pub(crate) const LANE_WORD_BYTES: usize = LANES * 2;

/// Bytes that each patch takes if the largest patch value of the chunk has `bit_length` bits.
pub(crate) fn patch_bytes(bit_length: usize) -> usize {
    2 + value_bytes(bit_length)
}

fn value_bytes(bit_length: usize) -> usize {
    match bit_length {
        0..=16 => 2,
        17..=32 => 4,
        _ => 8,
    }
}

/// Collects the patches of one vector after another.
#[derive(Default)]
pub(crate) struct PatchesWriter {
    counts: Vec<u16>,
    lane_words: Vec<u16>,
    positions: Vec<u16>,
    values: Vec<u64>,
}

impl PatchesWriter {
    /// Adds the next vector, with a patch in each of `rows`.
    pub fn push(&mut self, rows: &Mask, value: impl Fn(usize) -> u64) {
        let before = self.positions.len();
        if *rows != [0; VECTOR_LEN / 64] {
            for lane in 0..LANES {
                let offset = self.positions.len() - before;
                for row in (lane..VECTOR_LEN).step_by(LANES) {
                    if rows[row / 64] >> (row % 64) & 1 == 1 {
                        self.positions.push(row as u16);
                        self.values.push(value(row));
                    }
                }
                let count = self.positions.len() - before - offset;
                // An offset is at most 31 * 32 = 992, which ten bits hold.
                self.lane_words.push((count << 10 | offset) as u16);
            }
        }
        self.counts.push((self.positions.len() - before) as u16);
    }

    /// Appends the patches of all vectors.
    pub fn finish(self, out: &mut ChunkWriter) {
        let Some(largest) = self.values.iter().max() else {
            return out.u8(0);
        };
        let bytes = value_bytes(64 - largest.leading_zeros() as usize);
        out.u8(bytes as u8);
        for words in [&self.counts, &self.lane_words, &self.positions] {
            out.buffer(le_bytes(words, |v| v.to_le_bytes()));
        }
        out.buffer(match bytes {
            2 => le_bytes(&self.values, |v| (*v as u16).to_le_bytes()),
            4 => le_bytes(&self.values, |v| (*v as u32).to_le_bytes()),
            _ => le_bytes(&self.values, |v| v.to_le_bytes()),
        });
    }
}

/// Parsed patches.
///
/// Invariants, checked by [`Patches::parse`]: patch rows are below 1024, in the lane that the lane
/// words say, and as many as `starts` ends with; without any patch, `starts` is empty.
#[derive(Clone, Debug)]
pub(crate) struct Patches {
    starts: Vec<u32>,
    positions: Buffer,
    values: Buffer,
    value_bytes: u8,
}

impl Patches {
    /// The patches of `vectors` vectors, whose values have at most `widest` bytes.
    pub fn parse(reader: &mut ChunkReader, vectors: usize, widest: usize) -> Result<Self> {
        let value_bytes = reader.u8()?;
        let possible = matches!(value_bytes, 0 | 2 | 4 | 8) && usize::from(value_bytes) <= widest;
        ensure(possible, PART, || {
            format!("values of {value_bytes} bytes, at most {widest} possible")
        })?;
        if value_bytes == 0 {
            return Ok(Self {
                starts: vec![],
                positions: Buffer::default(),
                values: Buffer::default(),
                value_bytes,
            });
        }
        let counts = reader.buffer_of(vectors.saturating_mul(2), PART)?;
        let (starts, patched) = starts(&counts, vectors)?;
        let total = starts.last().map_or(0, |total| *total as usize);
        let lane_words = reader.buffer_of(patched.saturating_mul(LANE_WORD_BYTES), PART)?;
        let patches = Self {
            starts,
            positions: reader.buffer_of(total.saturating_mul(2), PART)?,
            values: reader.buffer_of(total.saturating_mul(usize::from(value_bytes)), PART)?,
            value_bytes,
        };
        let patched = (0..vectors).filter(|v| !patches.is_empty(*v));
        for (vector, words) in patched.zip(lane_words.chunks(LANE_WORD_BYTES)) {
            patches.check_lanes(vector, words)?;
        }
        Ok(patches)
    }

    /// Checks that the lane words and the positions of a vector say the same.
    fn check_lanes(&self, vector: usize, lane_words: &[u8]) -> Result<()> {
        let range = self.range(vector);
        let mut next = range.start;
        for lane in 0..LANES {
            let word = usize::from(u16_at(lane_words, lane));
            let (count, offset) = (word >> 10, word & 0x3FF);
            ensure(offset == next - range.start && count <= range.end - next, PART, || {
                format!("lane {lane} of vector {vector} has {count} patches at {offset}")
            })?;
            let mut previous = None;
            for patch in next..next + count {
                let row = u16_at(&self.positions, patch);
                let placed = usize::from(row) % LANES == lane
                    && usize::from(row) < VECTOR_LEN
                    && previous.is_none_or(|p| p < row);
                ensure(placed, PART, || {
                    format!("a patch of lane {lane} in vector {vector} at row {row}")
                })?;
                previous = Some(row);
            }
            next += count;
        }
        ensure(next == range.end, PART, || {
            format!("vector {vector} has patches that no lane owns")
        })
    }

    fn range(&self, vector: usize) -> Range<usize> {
        let start = |i: usize| self.starts.get(i).map_or(0, |s| *s as usize);
        start(vector)..start(vector + 1).max(start(vector))
    }

    /// Whether `vector` has no patches.
    pub fn is_empty(&self, vector: usize) -> bool {
        self.range(vector).is_empty()
    }

    /// The patches of a vector, as (row in vector, value).
    pub fn of(&self, vector: usize) -> impl Iterator<Item = (usize, u64)> {
        self.range(vector).map(|i| {
            let value = match self.value_bytes {
                2 => u64::from(u16_at(&self.values, i)),
                4 => u64::from(u32_at(&self.values, i)),
                _ => u64_at(&self.values, i),
            };
            (usize::from(u16_at(&self.positions, i)) % VECTOR_LEN, value)
        })
    }
}

/// Where the patches of each vector start, with an end entry; and how many vectors have patches.
fn starts(counts: &[u8], vectors: usize) -> Result<(Vec<u32>, usize)> {
    let mut starts = Vec::with_capacity(vectors + 1);
    let (mut total, mut patched) = (0u32, 0);
    starts.push(0);
    for vector in 0..vectors {
        let count = u16_at(counts, vector);
        ensure(usize::from(count) <= VECTOR_LEN, PART, || {
            format!("{count} patches in vector {vector}, at most {VECTOR_LEN}")
        })?;
        patched += usize::from(count > 0);
        total = total.saturating_add(u32::from(count));
        starts.push(total);
    }
    Ok((starts, patched))
}
