//! `gpu_for`: frame of reference for each 128 values, and a width for each 32 of them.
//! Wins over `ffor` where ranges change within a vector; loses to it by 0.5 bits a value where they do
//! not, and is slower to decode.
//!
//! ```text
//! header   u8 words of a minimum: 2 if a value needs more than 32 bits, else 1
//! buffer   u16 quads (of four words) of each vector
//! buffer   u32 words: eight blocks a vector, see `blocks`; filled up to a quad
//! ```
//!
//! Rows behind the last one have residual 0.

use crate::VECTOR_LEN;
use crate::bitpack;
use crate::codecs::blocks::{
    self, BLOCK_LEN, Block, BlocksView, BlocksWriter, VECTOR_BLOCKS, Vectors, Width, Words,
};
use crate::error::Result;
use crate::masks::Mask;
use crate::selection::Selected;
use crate::simd::dispatched;
use crate::wire::{ChunkReader, ChunkWriter};
use crate::words::Word;

const PART: &str = "gpu_for";
/// Up to so many rows of a vector are read one by one.
const SPARSE_ROWS: usize = 8;

/// Appends `values`.
pub(crate) fn encode(values: &[u64], out: &mut ChunkWriter) {
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

/// Bytes that [`encode`] would append, as [`ChunkWriter::len`] counts them.
pub(crate) fn size(values: &[u64]) -> usize {
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
    1 + vectors.sum::<usize>()
}

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
pub(crate) struct GpuFor {
    width: Width,
    vectors: Vectors,
}

impl GpuFor {
    pub fn parse(reader: &mut ChunkReader, len: usize) -> Result<Self> {
        let width = Width::parse(reader, PART)?;
        let vectors = Vectors::parse(reader, len.div_ceil(VECTOR_LEN), PART)?;
        for vector in 0..vectors.len() {
            let mut words = vectors.words(vector);
            words.check_blocks(VECTOR_BLOCKS, width, PART)?;
            words.check_end(PART)?;
        }
        Ok(Self { width, vectors })
    }

    fn blocks(&self, vector: usize) -> impl Iterator<Item = Block<'_>> {
        let mut words = self.vectors.words(vector);
        (0..VECTOR_BLOCKS).map(move |_| words.block(self.width))
    }

    pub fn decode<T: Word>(&self, vector: usize, reference: T, out: &mut [T; VECTOR_LEN]) {
        decode(self.vectors.words(vector), self.width, reference, out);
    }

    /// Appends the selected values of a vector.
    pub fn select<T: Word>(
        &self,
        selected: &Selected,
        reference: T,
        values: &mut [T; VECTOR_LEN],
        out: &mut Vec<T>,
    ) {
        let vector = selected.vector;
        if selected.count > SPARSE_ROWS {
            self.decode(vector, reference, values);
            selected.append(values, out);
            return;
        }
        let mut blocks = self.blocks(vector);
        let (mut next, mut block) = (0, None);
        selected.for_each(|row| {
            // rows ascend
            let skipped = row / BLOCK_LEN + 1 - next;
            if skipped > 0 {
                block = blocks.nth(skipped - 1);
                next += skipped;
            }
            if let Some(block) = &block {
                let value = block.minimum.wrapping_add(block.get(row % BLOCK_LEN));
                out.push(reference.plus(value));
            }
        });
    }

    pub fn in_range(&self, vector: usize, low: u64, high: u64, out: &mut Mask) {
        let mut inside = [0; VECTOR_LEN];
        if low <= high {
            in_range(
                self.vectors.words(vector),
                self.width,
                low,
                high,
                &mut inside,
            );
        }
        bitpack::bits(&inside, out);
    }
}

dispatched! {
    /// Which values lie in `low..=high`, which is not empty: a byte each, which was 0.
    fn in_range(words: Words<'_>, width: Width, low: u64, high: u64, out: &mut [u8; VECTOR_LEN]) {
        let mut words = words;
        for inside in out.as_chunks_mut::<BLOCK_LEN>().0 {
            let block = words.block(width);
            let (least, most) = bounds(&block);
            if low <= least && most <= high {
                inside.fill(1);
            } else if most < low || high < least {
                // none
            } else if block.width() <= 32 {
                let mut residuals = [0; BLOCK_LEN];
                block.residuals(&mut residuals);
                let from = low.saturating_sub(block.minimum) as u32;
                let to = high.saturating_sub(block.minimum).min(u64::from(u32::MAX)) as u32;
                for (inside, residual) in inside.iter_mut().zip(residuals) {
                    *inside = u8::from(residual.wrapping_sub(from) <= to - from);
                }
            } else {
                let mut values = [0; BLOCK_LEN];
                block.decode(block.minimum, &mut values);
                for (inside, value) in inside.iter_mut().zip(values) {
                    *inside = u8::from((low..=high).contains(&value));
                }
            }
        }
    }
}

dispatched! {
    fn decode<T: Word>(words: Words<'_>, width: Width, reference: T, out: &mut [T; VECTOR_LEN]) {
        let mut words = words;
        for out in out.as_chunks_mut::<BLOCK_LEN>().0 {
            let block = words.block(width);
            block.decode(reference.plus(block.minimum), out);
        }
    }
}

/// Between which its values are. Sums of damaged data wrap around.
fn bounds(block: &Block<'_>) -> (u64, u64) {
    let top = u64::MAX.checked_shr(64 - block.width() as u32).unwrap_or(0);
    match block.minimum.checked_add(top) {
        Some(most) => (block.minimum, most),
        None => (0, u64::MAX),
    }
}

/// `gpu_for`.
#[derive(Clone, Copy, Debug)]
pub struct GpuForView<'a>(pub(crate) &'a GpuFor);

impl<'a> GpuForView<'a> {
    /// What it is made of.
    pub fn blocks(&self) -> BlocksView<'a> {
        BlocksView::new(&self.0.vectors, self.0.width, None)
    }

    /// Between which the values of a vector are.
    pub fn bounds(&self, vector: usize) -> (u64, u64) {
        let all = self.0.blocks(vector).map(|block| bounds(&block));
        all.fold((u64::MAX, 0), |(a, b), (least, most)| {
            (a.min(least), b.max(most))
        })
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
            encode(&values, &mut out);
            assert_eq!(size(&values), out.len(), "{rows} {bits}");
        }
    }

    #[test]
    fn words_are_those_of_the_paper() {
        // 127 is the largest of the second miniblock, 5 the smallest of all
        let mut values = [5; 128];
        values[1] = 6;
        values[32..64].copy_from_slice(&std::array::from_fn::<u64, 32, _>(|k| 5 + k as u64 * 4));
        let mut out = ChunkWriter::default();
        encode(&values, &mut out);
        let mut reader = ChunkReader::new(&out.finish().into(), crate::FORMAT_VERSION).unwrap();
        let parsed = GpuFor::parse(&mut reader, values.len()).unwrap();
        let mut words = parsed.vectors.words(0);
        let words: Vec<u32> = (0..24).map(|_| words.word()).collect();
        assert_eq!(words[..3], [5, 1 | 7 << 8, 2]);
        assert_eq!(words[3] & 0x1f_ffff, 4 << 7 | 8 << 14);
        // seven empty blocks behind 2 + 1 + 7 words
        assert_eq!(words[10..24], [0; 14]);
    }
}
