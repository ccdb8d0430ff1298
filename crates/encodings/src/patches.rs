//! Patches: the rows of packed vectors whose value is stored separately, for all encodings that have such rows
//! (residuals that are too wide, floats that are no decimals).
//!
//! ```text
//! header   u8 bytes of a patch value: 2, 4 or 8; 0: no vector has patches, and no buffers follow
//! buffer   u16 patch count of each vector, 0..=1024
//! buffer   u16 row in vector of each patch, grouped by lane (row % 32), ascending in a lane
//! buffer   u16, u32 or u64 value of each patch, in the same order
//! ```
//!
//! These are G-ALP's data-parallel exceptions: a thread that owns a lane reads only that lane's. The start of a lane
//! follows from the rows. Version 1 stores it in another buffer before these: u16 * 32 for each vector that has
//! patches.

use std::ops::Range;

use arrow::buffer::Buffer;

use crate::VECTOR_LEN;
use crate::bitpack::LANES;
use crate::error::{Result, ensure};
use crate::masks::{Mask, for_each_bit};
use crate::wire::{ChunkReader, ChunkWriter, le_bytes, u16_at};

const PART: &str = "patches";
/// Bytes of the starts of lanes, per vector with patches, in version 1.
const LANE_WORD_BYTES: usize = LANES * 2;

/// Bytes per patch if the largest patch value of the chunk has `bit_length` bits.
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
#[derive(Debug, Default)]
pub(crate) struct PatchesWriter {
    counts: Vec<u16>,
    positions: Vec<u16>,
    values: Vec<u64>,
}

impl PatchesWriter {
    /// Adds the next vector, with a patch in each of `rows`.
    pub fn push(&mut self, rows: &Mask, value: impl Fn(usize) -> u64) {
        if *rows == [0; VECTOR_LEN / 64] {
            self.counts.push(0);
            return;
        }
        let mut counts = [0; LANES];
        for_each_bit(rows, |row| counts[row % LANES] += 1);
        let start = self.positions.len();
        let mut next = start;
        let mut indices = counts.map(|count| {
            next += count;
            next - count
        });
        self.counts.push((next - start) as u16);
        self.positions.resize(next, 0);
        self.values.resize(next, 0);
        for_each_bit(rows, |row| {
            let index = &mut indices[row % LANES];
            self.positions[*index] = row as u16;
            self.values[*index] = value(row);
            *index += 1;
        });
    }

    /// Returns true if no vector has patches.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Appends the patches of all vectors.
    pub fn finish(self, out: &mut ChunkWriter) {
        let Some(largest) = self.values.iter().max() else {
            return out.u8(0);
        };
        let bytes = value_bytes(64 - largest.leading_zeros() as usize);
        out.u8(bytes as u8);
        for words in [&self.counts, &self.positions] {
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
/// Invariants, checked by [`Patches::parse`]: patch rows are below 1024, grouped by lane, without duplicates, and as
/// many as `starts` ends with; without any patch, `starts` is empty.
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
        if reader.is_version_1() {
            reader.buffer_of(patched.saturating_mul(LANE_WORD_BYTES), PART)?;
        }
        let patches = Self {
            starts,
            positions: reader.buffer_of(total.saturating_mul(2), PART)?,
            values: reader.buffer_of(total.saturating_mul(usize::from(value_bytes)), PART)?,
            value_bytes,
        };
        (0..vectors).try_for_each(|vector| patches.check_rows(vector))?;
        Ok(patches)
    }

    /// Checks that rows are in the vector, by lane, and ascending in a lane.
    fn check_rows(&self, vector: usize) -> Result<()> {
        let mut previous = None;
        for patch in self.range(vector) {
            let row = usize::from(u16_at(&self.positions, patch));
            let key = (row % LANES, row);
            let follows = row < VECTOR_LEN && previous.is_none_or(|previous| previous < key);
            ensure(follows, PART, || {
                format!("a patch of vector {vector} at row {row}, behind those of its lane")
            })?;
            previous = Some(key);
        }
        Ok(())
    }

    fn range(&self, vector: usize) -> Range<usize> {
        let start = |i: usize| self.starts.get(i).map_or(0, |s| *s as usize);
        start(vector)..start(vector + 1).max(start(vector))
    }

    /// Returns true if `vector` has no patches.
    pub fn is_empty(&self, vector: usize) -> bool {
        self.range(vector).is_empty()
    }

    /// The patches of a vector, as (row in vector, value).
    #[inline]
    pub fn of(&self, vector: usize) -> impl Iterator<Item = (usize, u64)> {
        let range = self.range(vector);
        let size = usize::from(self.value_bytes).max(1);
        let bytes = range.start * size..range.end * size;
        let values = self
            .values
            .get(bytes)
            .unwrap_or_default()
            .chunks_exact(size);
        let positions = self
            .positions
            .as_chunks::<2>()
            .0
            .get(range)
            .unwrap_or_default();
        positions.iter().zip(values).map(|(position, value)| {
            let row = usize::from(u16::from_le_bytes(*position));
            (row % VECTOR_LEN, integer(value))
        })
    }
}

/// The little-endian integer of 2, 4 or 8 bytes.
#[inline]
fn integer(bytes: &[u8]) -> u64 {
    match *bytes {
        [a, b] => u64::from(u16::from_le_bytes([a, b])),
        [a, b, c, d] => u64::from(u32::from_le_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_le_bytes([a, b, c, d, e, f, g, h]),
        _ => 0,
    }
}

/// The start of each vector's patches, with an end entry; and the number of vectors that have patches.
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

/// Values that replace packed ones, grouped by lane, ascending in a lane.
#[derive(Clone, Copy, Debug)]
pub struct PatchList<'a>(pub(crate) &'a Patches);

impl<'a> PatchList<'a> {
    /// The patches of a vector: row in the vector, and value.
    pub fn of(&self, vector: usize) -> impl Iterator<Item = (usize, u64)> + use<'a> {
        self.0.of(vector)
    }

    /// Returns true if a vector has no patches.
    pub fn is_empty(&self, vector: usize) -> bool {
        self.0.is_empty(vector)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::FORMAT_VERSION;

    fn parsed(out: ChunkWriter, vectors: usize) -> Result<Patches> {
        let mut reader = ChunkReader::new(&out.finish().into(), FORMAT_VERSION)?;
        let patches = Patches::parse(&mut reader, vectors, 8)?;
        reader.finish()?;
        Ok(patches)
    }

    proptest! {
        #[test]
        fn patches_round_trip_by_lane(
            masks in proptest::collection::vec(
                prop_oneof![Just([0; 16]), Just([u64::MAX; 16]), any::<Mask>()],
                0..5,
            ),
            largest in prop_oneof![Just(0xFFFFu64), Just(0xFFFF_FFFF), Just(u64::MAX)],
        ) {
            let value = |vector: usize, row: usize| largest - (vector * VECTOR_LEN + row) as u64;
            let mut writer = PatchesWriter::default();
            for (vector, mask) in masks.iter().enumerate() {
                writer.push(mask, |row| value(vector, row));
            }
            let mut out = ChunkWriter::default();
            writer.finish(&mut out);
            let patches = parsed(out, masks.len()).unwrap();
            for (vector, mask) in masks.iter().enumerate() {
                let by_lane = (0..LANES).flat_map(|lane| (lane..VECTOR_LEN).step_by(LANES));
                let patched = by_lane.filter(|row| mask[row / 64] >> (row % 64) & 1 == 1);
                let expected: Vec<_> = patched.map(|row| (row, value(vector, row))).collect();
                prop_assert_eq!(patches.is_empty(vector), expected.is_empty());
                prop_assert_eq!(patches.of(vector).collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn counts_and_rows_must_agree() {
        let message = |counts: [u16; 2], rows: &[u16]| {
            let mut out = ChunkWriter::default();
            out.u8(2);
            for part in [&counts[..], rows, rows] {
                out.buffer(le_bytes(part, |v| v.to_le_bytes()));
            }
            parsed(out, 2)
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        // rows 1 and 33 of lane 1, row 2 of lane 2
        assert_eq!(message([0, 3], &[1, 33, 2]), Ok(()));
        assert_eq!(message([1, 2], &[33, 1, 2]), Ok(()));
        assert_eq!(message([0, 0], &[]), Ok(()));
        let refused = |counts, rows: &[u16], reason: &str| {
            let message = message(counts, rows).unwrap_err();
            assert!(message.contains(reason), "{message}");
        };
        refused([0, 1025], &[1], "1025 patches in vector 1, at most 1024");
        refused([3, 0], &[1, 33], "a buffer of 6 bytes");
        refused([2, 0], &[1, 33, 2], "4 bytes behind them");
        let misplaced = "of vector 0 at row";
        for rows in [
            [33, 1, 2],
            [1, 1, 2],
            [1, 1057, 2],
            [1, 2, 33],
            [1, 2, 1024],
        ] {
            refused([3, 0], &rows, misplaced);
        }
    }
}
