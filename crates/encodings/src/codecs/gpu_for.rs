//! `gpu_for`: frame of reference for each 128 values, and a width for each 32 of them.
//! Wins over `ffor` where ranges change within a vector; loses to it by 0.8 bits a value where they do
//! not.
//!
//! ```text
//! header   u8 words of a minimum: 2 if a value needs more than 32 bits, else 1
//! buffer   u16 quads (of four words) of each vector
//! buffer   u32 words: eight blocks a vector, see `blocks`; filled up to a quad
//! ```
//!
//! Rows behind the last one have residual 0.

use crate::VECTOR_LEN;
use crate::bitpack::words_in_range;
use crate::codecs::blocks::{
    self, BLOCK_LEN, BlocksView, BlocksWriter, MINIBLOCKS, VECTOR_BLOCKS, Vectors, Width, Words,
};
use crate::codecs::sequence_codec::{Scratch, SequenceCodec, SpareRuns};
use crate::error::Result;
use crate::masks::Mask;
use crate::rows::{ROW_LEN, Reader, Row, reading_rows};
use crate::selection::Selected;
use crate::wire::{ChunkReader, ChunkWriter};
use crate::words::{Sum, Word};

const PART: &str = "gpu_for";
/// Up to this many rows of a vector are read one by one.
const SPARSE_ROWS: usize = 8;

/// Calls `visit` with the minimum and the residuals of each block of a vector.
fn each_block(vector: &[u64], mut visit: impl FnMut(u64, &[u64; BLOCK_LEN])) {
    let mut residuals = [0; BLOCK_LEN];
    for block in 0..VECTOR_BLOCKS {
        let values = vector.get(block * BLOCK_LEN..).unwrap_or_default();
        let values = &values[..values.len().min(BLOCK_LEN)];
        let minimum = values.iter().copied().min().unwrap_or_default();
        residuals.fill(0);
        for (residual, value) in residuals.iter_mut().zip(values) {
            *residual = value - minimum;
        }
        visit(minimum, &residuals);
    }
}

/// A parsed sequence. Invariant: a vector is eight blocks.
#[derive(Clone, Debug)]
pub struct GpuFor {
    width: Width,
    vectors: Vectors,
}

impl SequenceCodec for GpuFor {
    fn encode(values: &[u64], _nesting: usize, out: &mut ChunkWriter) {
        let width = Width::of(values);
        let mut writer = BlocksWriter::new(width);
        for vector in values.chunks(VECTOR_LEN) {
            each_block(vector, |minimum, residuals| {
                writer.block(minimum, residuals)
            });
            writer.end_vector();
        }
        out.u8(width.words() as u8);
        writer.finish(out);
    }

    /// Exact, as [`ChunkWriter::len`] counts bytes.
    fn size(values: &[u64], _nesting: usize) -> Option<usize> {
        let head = Width::of(values).words() + 1;
        let vectors = values.chunks(VECTOR_LEN).map(|vector| {
            let mut words = 0;
            each_block(vector, |_, residuals| {
                let widths = blocks::widths(residuals);
                words += head
                    + widths
                        .iter()
                        .map(|width| usize::from(*width))
                        .sum::<usize>();
            });
            blocks::vector_bytes(words)
        });
        Some(1 + vectors.sum::<usize>())
    }

    fn parse(reader: &mut ChunkReader, len: usize, _nesting: usize) -> Result<Self> {
        let width = Width::parse(reader, PART)?;
        let vectors = Vectors::parse(reader, len.div_ceil(VECTOR_LEN), PART)?;
        for vector in 0..vectors.len() {
            let mut words = vectors.words(vector);
            words.check_blocks(VECTOR_BLOCKS, width, PART)?;
            words.check_end(PART)?;
        }
        Ok(Self { width, vectors })
    }

    fn decode<T: Word>(
        &self,
        vector: usize,
        reference: T,
        _runs: &mut SpareRuns<T>,
        out: &mut [T; VECTOR_LEN],
    ) -> Result<()> {
        unpack(self.vectors.words_from(vector), self.width, reference, out);
        Ok(())
    }

    fn select<T: Word>(
        &self,
        selected: &Selected,
        reference: T,
        scratch: &mut Scratch<T>,
        out: &mut Vec<T>,
    ) -> Result<()> {
        let values = &mut scratch.values;
        let mut words = self.vectors.words_from(selected.vector);
        if selected.count == VECTOR_LEN {
            append(words, self.width, reference, out);
        } else if selected.count > SPARSE_ROWS {
            unpack(words, self.width, reference, values);
            selected.append(values, out);
        } else {
            let (mut next, mut block) = (0, (0, [Row::default(); MINIBLOCKS]));
            selected.for_each(|row| {
                // rows ascend
                while next <= row / BLOCK_LEN {
                    block = words.block(self.width);
                    next += 1;
                }
                let (minimum, rows) = &block;
                let residual = rows[row % BLOCK_LEN / ROW_LEN].get(row % ROW_LEN);
                out.push(reference.plus(minimum.wrapping_add(residual)));
            });
        }
        Ok(())
    }

    fn in_range(
        &self,
        vector: usize,
        low: u64,
        high: u64,
        _runs: &mut SpareRuns<u64>,
        out: &mut Mask,
    ) -> Result<()> {
        if low > high {
            out.fill(0);
            return Ok(());
        }
        let words = self.vectors.words_from(vector);
        if !in_range(words, self.width, low, high, out) {
            let mut values = [0; VECTOR_LEN];
            self.decode(vector, 0, &mut None, &mut values)?;
            words_in_range(&values, low, high, out);
        }
        Ok(())
    }
}

impl GpuFor {
    /// Its blocks.
    pub fn blocks(&self) -> BlocksView<'_> {
        BlocksView::new(&self.vectors, self.width, None)
    }

    /// Bounds of the values of a vector.
    pub fn bounds(&self, vector: usize) -> (u64, u64) {
        let mut words = self.vectors.words_from(vector);
        let all = (0..VECTOR_BLOCKS).map(|_| {
            let (minimum, rows) = words.block(self.width);
            bounds(minimum, &rows)
        });
        all.fold((u64::MAX, 0), |(a, b), (least, most)| {
            (a.min(least), b.max(most))
        })
    }
}

reading_rows! {
    fn unpack<T: Word>(reader, words: Words<'_>, width: Width, reference: T, out: &mut [T; VECTOR_LEN]) {
        let out = out.as_chunks_mut().0;
        each_row(reader, words, width, reference, |row, values| out[row] = *values);
    }
}

reading_rows! {
    fn append<T: Word>(reader, words: Words<'_>, width: Width, reference: T, out: &mut Vec<T>) {
        out.reserve(VECTOR_LEN);
        each_row(reader, words, width, reference, |_, values| out.extend_from_slice(values));
    }
}

/// Calls `put` with the values of each row.
#[inline(always)]
fn each_row<T: Word>(
    reader: impl Reader,
    mut words: Words<'_>,
    width: Width,
    reference: T,
    mut put: impl FnMut(usize, &[T; ROW_LEN]),
) {
    for block in 0..VECTOR_BLOCKS {
        let (minimum, widths) = words.head(width);
        let base = reference.plus(minimum);
        for (m, width) in widths.into_iter().enumerate() {
            let mut residuals = [T::Sum::default(); ROW_LEN];
            T::Sum::unpack(reader, words.row(usize::from(width)), &mut residuals);
            let mut values = [base; ROW_LEN];
            for (value, residual) in values.iter_mut().zip(residuals) {
                *value = base.plus(residual.into());
            }
            put(block * MINIBLOCKS + m, &values);
        }
    }
}

reading_rows! {
    /// Sets a bit per value in `low..=high`, which is not empty. Returns `false` if that requires decoding: values have
    /// more than 32 bits, or are sums that wrap around in damaged data.
    fn in_range(reader, words: Words<'_>, width: Width, low: u64, high: u64, out: &mut Mask) -> bool {
        let mut words = words;
        for out in out.as_chunks_mut::<2>().0 {
            let (minimum, widths) = words.head(width);
            let mut inside = [0; MINIBLOCKS];
            for (inside, width) in inside.iter_mut().zip(widths) {
                let row = words.row(usize::from(width));
                if row.width > 32 {
                    return false;
                }
                let top = row.top();
                let Some(most) = minimum.checked_add(top) else {
                    return false;
                };
                *inside = if low <= minimum && most <= high {
                    u32::MAX
                } else if high < minimum || most < low {
                    0
                } else {
                    let to = (high - minimum).min(top);
                    reader.inside(row, (low.saturating_sub(minimum) as u32, to as u32))
                };
            }
            let [a, b, c, d] = inside.map(u64::from);
            *out = [a | b << 32, c | d << 32];
        }
        true
    }
}

/// Bounds of the values of a block. Sums of damaged data wrap around.
fn bounds(minimum: u64, rows: &[Row<'_>; MINIBLOCKS]) -> (u64, u64) {
    let top = rows.iter().fold(0, |top, row| top.max(row.top()));
    match minimum.checked_add(top) {
        Some(most) => (minimum, most),
        None => (0, u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_encoded_values() {
        for (rows, bits) in [(1, 0), (1000, 3), (1025, 20), (5000, 33), (3000, 64)] {
            let value = |row: u64| row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - bits).min(63);
            let values: Vec<u64> = (0..rows).map(value).collect();
            let mut out = ChunkWriter::default();
            GpuFor::encode(&values, 0, &mut out);
            assert_eq!(GpuFor::size(&values, 0), Some(out.len()), "{rows} {bits}");
        }
    }

    #[test]
    fn words_are_those_of_the_paper() {
        // 127 is the largest of the second miniblock, 5 the smallest of all
        let mut values = [5; 128];
        values[1] = 6;
        values[32..64].copy_from_slice(&std::array::from_fn::<u64, 32, _>(|k| 5 + k as u64 * 4));
        let mut out = ChunkWriter::default();
        GpuFor::encode(&values, 0, &mut out);
        let mut reader = ChunkReader::new(&out.finish().into(), crate::FORMAT_VERSION).unwrap();
        let parsed = GpuFor::parse(&mut reader, values.len(), 0).unwrap();
        let mut words = parsed.vectors.words(0);
        let words: Vec<u32> = (0..24).map(|_| words.word()).collect();
        assert_eq!(words[..3], [5, 1 | 7 << 8, 2]);
        assert_eq!(words[3] & 0x1f_ffff, 4 << 7 | 8 << 14);
        // seven empty blocks behind 2 + 1 + 7 words
        assert_eq!(words[10..24], [0; 14]);
    }
}
