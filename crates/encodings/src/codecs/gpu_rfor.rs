//! `gpu_rfor`: runs, with a frame of reference and a width for the values and the lengths of each 512
//! rows. Loses to `rle` where runs are long; wins where values of runs lie near each other.
//!
//! ```text
//! header   u8 words of a minimum of values: 2 if a value needs more than 32 bits, else 1
//! buffer   u16 quads (of four words) of the values of each vector
//! buffer   u32 words: the values of two blocks of runs a vector; filled up to a quad
//! buffer   u16 quads of the lengths of each vector
//! buffer   u32 words: likewise, with minima of one word
//! block    the minimum | u8 width, four times | u32 number of runs | residuals, one behind the other,
//!          of that width: a word at least
//! ```
//!
//! Runs do not cross blocks of 512 rows. The method is that of "Tile-based Lightweight Integer
//! Compression in GPU", as in `blocks`.

use std::ops::Range;

use crate::VECTOR_LEN;
use crate::bitpack;
use crate::codecs::blocks::{self, BlocksWriter, Vectors, Width, Words};
use crate::codecs::rle::{RunVectors, bounds, count_runs, fill_run};
use crate::codecs::sequence_codec::{RUNS_A_BYTE, SequenceCodec, SpareRuns};
use crate::error::{Error, Result, ensure};
use crate::masks::{Mask, set_bit};
use crate::residuals::bit_length;
use crate::rows::{Bytes, ROW_LEN, Row, reading_rows};
use crate::wire::{ChunkReader, ChunkWriter};
use crate::words::Word;

const PART: &str = "gpu_rfor";
/// Rows of a block.
const BLOCK_ROWS: usize = 512;
/// Runs that are unpacked together.
const TOGETHER: usize = 128;

/// The number of runs of a block, and the bits of the difference between the longest and the shortest.
fn run_lengths(block: &[u64]) -> (usize, usize) {
    let (mut runs, mut start, mut least, mut most) = (0, 0, BLOCK_ROWS, 0);
    let ends = (1..block.len()).filter(|end| block[*end] != block[end - 1]);
    for end in ends.chain([block.len()]) {
        let length = end - start;
        (least, most) = (least.min(length), most.max(length));
        (runs, start) = (runs + 1, end);
    }
    (runs, bit_length((most - least) as u64))
}

/// The values and the lengths of the runs of a block.
fn runs(block: &[u64]) -> (Vec<u64>, Vec<u64>) {
    block
        .chunk_by(|a, b| a == b)
        .map(|run| (run[0], run.len() as u64))
        .unzip()
}

/// The minimum, and the bits of the difference to the maximum.
fn frame(values: &[u64]) -> (u64, usize) {
    let least = values.iter().copied().min().unwrap_or_default();
    let most = values.iter().copied().max().unwrap_or_default();
    (least, bit_length(most - least))
}

fn packed_words(runs: usize, width: usize) -> usize {
    (runs * width).div_ceil(32).max(1)
}

fn block_words(runs: usize, bits: usize, width: Width) -> usize {
    width.words() + 2 + packed_words(runs, bits)
}

fn push_block(values: &[u64], writer: &mut BlocksWriter) {
    let (minimum, width) = frame(values);
    writer.integer(minimum);
    writer.word(u32::from_le_bytes([width as u8; 4]));
    writer.word(values.len() as u32);
    let residuals: Vec<u64> = values.iter().map(|value| value - minimum).collect();
    match width {
        0 => writer.word(0),
        _ => writer.packed(&residuals, width),
    }
}

/// A parsed sequence. Invariant: values and lengths of a vector are blocks of as many runs, up to
/// [`BLOCK_ROWS`] each.
#[derive(Clone, Debug)]
pub struct GpuRfor {
    len: usize,
    width: Width,
    values: Vectors,
    lengths: Vectors,
}

/// A block of values or lengths.
struct Block<'a> {
    minimum: u64,
    width: usize,
    count: usize,
    /// Its words, and those after them.
    words: &'a [Bytes],
}

impl<'a> Block<'a> {
    fn read(words: &mut Words<'a>, of: Width) -> Self {
        let minimum = words.integer(of);
        let width = usize::from(words.word() as u8);
        let count = words.word() as usize;
        let block = Self {
            minimum,
            width,
            count,
            words: words.all(),
        };
        words.take(packed_words(count.min(BLOCK_ROWS), width));
        block
    }

    fn check(&self, of: Width) -> Result<()> {
        let (width, count) = (self.width, self.count);
        let is_known = width <= of.bits() && (1..=BLOCK_ROWS).contains(&count);
        ensure(
            is_known && self.words.len() >= packed_words(count, width),
            PART,
            || format!("a block of {count} runs of width {width}"),
        )
    }

    /// A row of values, or of lengths.
    #[inline(always)]
    fn row(&self, row: usize) -> Row<'a> {
        Row {
            words: self.words.get(row * self.width..).unwrap_or_default(),
            width: self.width,
        }
    }
}

impl SequenceCodec for GpuRfor {
    const SIZE_FOLLOWS_RUNS: bool = true;

    fn encode(values: &[u64], _nesting: usize, out: &mut ChunkWriter) {
        let width = Width::of(values);
        let mut run_values = BlocksWriter::new(width);
        let mut run_lengths = BlocksWriter::new(Width::Narrow);
        for vector in values.chunks(VECTOR_LEN) {
            for block in vector.chunks(BLOCK_ROWS) {
                let (values, lengths) = runs(block);
                push_block(&values, &mut run_values);
                push_block(&lengths, &mut run_lengths);
            }
            run_values.end_vector();
            run_lengths.end_vector();
        }
        out.u8(width.words() as u8);
        run_values.finish(out);
        run_lengths.finish(out);
    }

    /// Exact, as [`ChunkWriter::len`] counts bytes.
    fn size(values: &[u64], _nesting: usize) -> Option<usize> {
        let width = Width::of(values);
        let vectors = values.chunks(VECTOR_LEN).map(|vector| {
            let (mut value_words, mut length_words) = (0, 0);
            for block in vector.chunks(BLOCK_ROWS) {
                let (_, bits) = frame(block);
                let (runs, length_bits) = run_lengths(block);
                value_words += block_words(runs, bits, width);
                length_words += block_words(runs, length_bits, Width::Narrow);
            }
            blocks::vector_bytes(value_words) + blocks::vector_bytes(length_words)
        });
        Some(1 + vectors.sum::<usize>())
    }

    fn work(values: &[u64]) -> usize {
        count_runs(values) / RUNS_A_BYTE
    }

    fn parse(reader: &mut ChunkReader, len: usize, _nesting: usize) -> Result<Self> {
        let width = Width::parse(reader, PART)?;
        let vectors = len.div_ceil(VECTOR_LEN);
        let parsed = Self {
            len,
            width,
            values: Vectors::parse(reader, vectors, PART)?,
            lengths: Vectors::parse(reader, vectors, PART)?,
        };
        for vector in 0..vectors {
            let (mut values, mut lengths) = parsed.words(vector);
            for _ in 0..parsed.rows(vector).div_ceil(BLOCK_ROWS) {
                let of_values = Block::read(&mut values, width);
                let of_lengths = Block::read(&mut lengths, Width::Narrow);
                of_values.check(width)?;
                of_lengths.check(Width::Narrow)?;
                ensure(of_values.count == of_lengths.count, PART, || {
                    format!("{} values of {} runs", of_values.count, of_lengths.count)
                })?;
            }
            values.check_end(PART)?;
            lengths.check_end(PART)?;
        }
        Ok(parsed)
    }

    fn decode<T: Word>(
        &self,
        vector: usize,
        reference: T,
        _runs: &mut SpareRuns<T>,
        out: &mut [T; VECTOR_LEN],
    ) -> Result<()> {
        self.for_each_run(vector, |rows, value| {
            fill_run(out, rows, reference.plus(value));
        })
    }

    fn in_range(
        &self,
        vector: usize,
        low: u64,
        high: u64,
        _runs: &mut SpareRuns<u64>,
        out: &mut Mask,
    ) -> Result<()> {
        let mut inside = [0; VECTOR_LEN];
        self.for_each_run(vector, |rows, value| {
            fill_run(&mut inside, rows, u8::from((low..=high).contains(&value)));
        })?;
        bitpack::bits(&inside, out);
        Ok(())
    }
}

impl RunVectors for GpuRfor {
    fn for_each_vector<E: From<Error>>(
        &self,
        mut visit: impl FnMut(usize, &Mask, &[u64], (u64, u64)) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut entries, mut starts) = (vec![], [0; VECTOR_LEN / 64]);
        for vector in 0..self.values.len() {
            entries.clear();
            starts.fill(0);
            self.for_each_run(vector, |rows, value| {
                entries.push(value);
                set_bit(&mut starts, rows.start, true);
            })?;
            visit(vector, &starts, &entries, bounds(&entries))?;
        }
        Ok(())
    }
}

impl GpuRfor {
    fn rows(&self, vector: usize) -> usize {
        self.len.saturating_sub(vector * VECTOR_LEN).min(VECTOR_LEN)
    }

    fn words(&self, vector: usize) -> (Words<'_>, Words<'_>) {
        (self.values.words(vector), self.lengths.words(vector))
    }

    /// Calls `visit` with the rows and the value of each run; they tile the vector.
    #[inline(always)]
    fn for_each_run(&self, vector: usize, mut visit: impl FnMut(Range<usize>, u64)) -> Result<()> {
        let rows = self.rows(vector);
        let mut values = self.values.words_from(vector);
        let mut lengths = self.lengths.words_from(vector);
        let mut next = 0;
        while next < rows {
            let end = rows.min(next + BLOCK_ROWS);
            let values = Block::read(&mut values, self.width);
            let lengths = Block::read(&mut lengths, Width::Narrow);
            let count = values.count.min(BLOCK_ROWS);
            for first in (0..count).step_by(TOGETHER) {
                let (mut run_values, mut run_lengths) = ([0; TOGETHER], [0; TOGETHER]);
                unpack_runs(&values, &lengths, first, &mut run_values, &mut run_lengths);
                let runs = run_values.iter().zip(&run_lengths);
                for (value, length) in runs.take(count - first) {
                    let length = *length as usize;
                    ensure(length.wrapping_sub(1) < end - next, PART, || {
                        format!("a run of {length} from row {next} of {rows}")
                    })?;
                    visit(next..next + length, *value);
                    next += length;
                }
            }
            ensure(next == end, PART, || {
                format!("runs of {next} rows in a block that ends at {end}")
            })?;
        }
        Ok(())
    }
}

reading_rows! {
    /// Unpacks the values and the lengths of some runs of a block, from `first` on.
    fn unpack_runs(
        reader,
        values: &Block<'_>,
        lengths: &Block<'_>,
        first: usize,
        run_values: &mut [u64; TOGETHER],
        run_lengths: &mut [u32; TOGETHER],
    ) {
        let rows = first / ROW_LEN..values.count.min(first + TOGETHER).div_ceil(ROW_LEN);
        let outs = run_values.as_chunks_mut().0.iter_mut().zip(run_lengths.as_chunks_mut().0);
        for (row, (of_values, of_lengths)) in rows.zip(outs) {
            reader.wide(values.row(row), of_values);
            reader.narrow(lengths.row(row), of_lengths);
        }
        run_values
            .iter_mut()
            .for_each(|value| *value = value.wrapping_add(values.minimum));
        run_lengths
            .iter_mut()
            .for_each(|length| *length = length.wrapping_add(lengths.minimum as u32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_encoded_values() {
        for (rows, run, step) in [(1, 1, 0), (1000, 3, 1), (1025, 700, 1 << 33), (5000, 1, 9)] {
            let values: Vec<u64> = (0..rows).map(|row| row / run * step).collect();
            let mut out = ChunkWriter::default();
            GpuRfor::encode(&values, 0, &mut out);
            assert_eq!(
                GpuRfor::size(&values, 0),
                Some(out.len()),
                "{rows} {run} {step}"
            );
        }
    }

    #[test]
    fn words_are_those_of_the_paper() {
        // runs of 300, 212 and 100 rows
        let values: Vec<u64> = (0..612).map(|row| if row < 300 { 7 } else { 10 }).collect();
        let mut out = ChunkWriter::default();
        GpuRfor::encode(&values, 0, &mut out);
        let mut reader = ChunkReader::new(&out.finish().into(), crate::FORMAT_VERSION).unwrap();
        let parsed = GpuRfor::parse(&mut reader, values.len(), 0).unwrap();
        let all = |mut words: Words<'_>| -> Vec<u32> { (0..8).map(|_| words.word()).collect() };
        let (values, lengths) = parsed.words(0);
        assert_eq!(all(values), [7, 0x0202_0202, 2, 3 << 2, 10, 0, 1, 0]);
        assert_eq!(all(lengths), [212, 0x0707_0707, 2, 88, 100, 0, 1, 0]);
    }
}
