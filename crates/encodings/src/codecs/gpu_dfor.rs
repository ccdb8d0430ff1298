//! `gpu_dfor`: differences of consecutive values in blocks, a tile of 512 values at a time. Wins over `delta` if steps
//! change within a vector.
//!
//! ```text
//! header   u8 words of a minimum: 2 if a value needs more than 32 bits, else 1
//! buffer   u16 quads (of four words) of each vector
//! buffer   u32 words: two tiles a vector; filled up to a quad
//! tile     its first value, as many words as a minimum | four blocks of differences, see `blocks`
//! ```
//!
//! The first difference of a tile is 0. A minimum is signed; sums wrap around at 32 or 64 bits. Rows
//! behind the last one have residual 0.

use crate::VECTOR_LEN;
use crate::codecs::blocks::{
    self, BLOCK_LEN, BlocksView, BlocksWriter, MINIBLOCKS, Vectors, Width, Words,
};
use crate::codecs::sequence_codec::{DIFFERENCES_A_BYTE, SequenceCodec, SpareRuns};
use crate::error::Result;
use crate::rows::{ROW_LEN, reading_rows};
use crate::wire::{ChunkReader, ChunkWriter};
use crate::words::{Sum, Word};

const PART: &str = "gpu_dfor";
/// Values of a tile.
const TILE_LEN: usize = 512;
const TILE_BLOCKS: usize = TILE_LEN / BLOCK_LEN;
const TILES: usize = VECTOR_LEN / TILE_LEN;

fn tile_of(vector: &[u64], tile: usize) -> &[u64] {
    let values = vector.get(tile * TILE_LEN..).unwrap_or_default();
    &values[..values.len().min(TILE_LEN)]
}

/// Calls `visit` with the smallest difference and the residuals of each block of a tile.
fn each_block(tile: &[u64], width: Width, mut visit: impl FnMut(u64, &[u64; BLOCK_LEN])) {
    let mut differences = [0; TILE_LEN];
    for (difference, pair) in differences[1..].iter_mut().zip(tile.windows(2)) {
        *difference = width.signed(pair[1].wrapping_sub(pair[0]));
    }
    let mut residuals = [0; BLOCK_LEN];
    for (block, differences) in differences.as_chunks::<BLOCK_LEN>().0.iter().enumerate() {
        let live = tile.len().saturating_sub(block * BLOCK_LEN).min(BLOCK_LEN);
        let live = &differences[..live];
        let minimum = live.iter().map(|difference| *difference as i64).min();
        let minimum = minimum.unwrap_or_default() as u64;
        residuals.fill(0);
        for (residual, difference) in residuals.iter_mut().zip(live) {
            *residual = width.truncated(difference.wrapping_sub(minimum));
        }
        visit(minimum, &residuals);
    }
}

/// A parsed sequence. Invariant: a vector is two tiles.
#[derive(Clone, Debug)]
pub struct GpuDfor {
    width: Width,
    vectors: Vectors,
}

impl SequenceCodec for GpuDfor {
    fn encode(values: &[u64], _nesting: usize, out: &mut ChunkWriter) {
        let width = Width::of(values);
        let mut writer = BlocksWriter::new(width);
        for vector in values.chunks(VECTOR_LEN) {
            for tile in 0..TILES {
                let tile = tile_of(vector, tile);
                writer.integer(tile.first().copied().unwrap_or_default());
                each_block(tile, width, |minimum, residuals| {
                    writer.block(minimum, residuals)
                });
            }
            writer.end_vector();
        }
        out.u8(width.words() as u8);
        writer.finish(out);
    }

    /// Exact, as [`ChunkWriter::len`] counts bytes.
    fn size(values: &[u64], _nesting: usize) -> Option<usize> {
        let width = Width::of(values);
        let vectors = values.chunks(VECTOR_LEN).map(|vector| {
            let mut words = TILES * width.words();
            for tile in 0..TILES {
                each_block(tile_of(vector, tile), width, |_, residuals| {
                    let widths = blocks::widths(residuals);
                    words += width.words() + 1;
                    words += widths
                        .iter()
                        .map(|width| usize::from(*width))
                        .sum::<usize>();
                });
            }
            blocks::vector_bytes(words)
        });
        Some(1 + vectors.sum::<usize>())
    }

    fn work(values: &[u64]) -> usize {
        values.len() / DIFFERENCES_A_BYTE
    }

    fn parse(reader: &mut ChunkReader, len: usize, _nesting: usize) -> Result<Self> {
        let width = Width::parse(reader, PART)?;
        let vectors = Vectors::parse(reader, len.div_ceil(VECTOR_LEN), PART)?;
        for vector in 0..vectors.len() {
            let mut words = vectors.words(vector);
            for _ in 0..TILES {
                words.integer(width);
                words.check_blocks(TILE_BLOCKS, width, PART)?;
            }
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
        let words = self.vectors.words_from(vector);
        match self.width {
            Width::Narrow => unpack(words, self.width, 0u32, reference, out),
            Width::Wide => unpack(words, self.width, 0u64, reference, out),
        }
        Ok(())
    }
}

impl GpuDfor {
    /// Its blocks.
    pub fn blocks(&self) -> BlocksView<'_> {
        BlocksView::new(&self.vectors, self.width, Some(TILE_BLOCKS))
    }

    /// The smallest and the largest of the first `rows` values of a vector.
    ///
    /// # Errors
    ///
    /// None today: blocks are checked when they are parsed.
    pub fn bounds(&self, vector: usize, rows: usize) -> Result<(u64, u64)> {
        let mut values = [0u64; VECTOR_LEN];
        self.decode(vector, 0, &mut None, &mut values)?;
        let values = values.iter().take(rows);
        let bounds = values.fold((u64::MAX, 0), |(least, most), value| {
            (least.min(*value), most.max(*value))
        });
        Ok((bounds.0.min(bounds.1), bounds.1))
    }
}

reading_rows! {
    /// Sums have the type of `zero`.
    fn unpack<T: Word, S: Sum>(reader, words: Words<'_>, width: Width, zero: S, reference: T, out: &mut [T; VECTOR_LEN]) {
        let mut words = words;
        let rows = out.as_chunks_mut::<ROW_LEN>().0;
        let mut sum = zero;
        for (block, rows) in rows.as_chunks_mut::<MINIBLOCKS>().0.iter_mut().enumerate() {
            if block % TILE_BLOCKS == 0 {
                sum = S::truncate(words.integer(width));
            }
            let (minimum, widths) = words.head(width);
            let minimum = S::truncate(width.signed(minimum));
            for (row, width) in rows.iter_mut().zip(widths) {
                let mut sums = [S::default(); ROW_LEN];
                S::unpack(reader, words.row(usize::from(width)), &mut sums);
                for difference in &mut sums {
                    *difference = difference.add(minimum);
                }
                sum = S::sum(reader, sum, &mut sums);
                for (value, sum) in row.iter_mut().zip(sums) {
                    *value = reference.plus(sum.into());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_encoded_values() {
        for (rows, step) in [(1, 0), (1000, 3), (1025, 1 << 22), (5000, 1 << 40)] {
            let value =
                |row: u64| row * step + row.wrapping_mul(0x9E37_79B9_7F4A_7C15) % (step + 1);
            let values: Vec<u64> = (0..rows).map(value).collect();
            let mut out = ChunkWriter::default();
            GpuDfor::encode(&values, 0, &mut out);
            assert_eq!(GpuDfor::size(&values, 0), Some(out.len()), "{rows} {step}");
        }
    }

    #[test]
    fn words_are_those_of_the_paper() {
        // a step down has a minimum of -1
        let values: Vec<u64> = (0..512)
            .map(|row| if row == 200 { 998 } else { 1000 + row / 512 })
            .collect();
        let mut out = ChunkWriter::default();
        GpuDfor::encode(&values, 0, &mut out);
        let mut reader = ChunkReader::new(&out.finish().into(), crate::FORMAT_VERSION).unwrap();
        let parsed = GpuDfor::parse(&mut reader, values.len(), 0).unwrap();
        let mut words = parsed.vectors.words(0);
        let words: Vec<u32> = (0..24).map(|_| words.word()).collect();
        assert_eq!(words[..3], [1000, 0, 0]);
        // rows 200 and 201 are in the third miniblock of the second block
        assert_eq!(words[3..5], [-2i32 as u32, 2 | 2 << 8 | 3 << 16 | 2 << 24]);
    }
}
