//! `rle`: a value and a length for each run, both themselves encoded integers.
//! Loses to `ffor` where runs are short.
//!
//! ```text
//! header   u64 number of runs
//! buffer   u16 number of runs of each vector, 1..=1024: runs do not cross vectors
//! then     the run values, then the run lengths minus one, as integer sequences
//! ```
//!
//! Bits per value: (value + length bits) over the mean run length, plus 16 bits a vector.

use std::ops::Range;
use std::sync::OnceLock;

use crate::VECTOR_LEN;
use crate::bitpack;
use crate::codecs::sequence_codec::{
    DecodedVector, RUNS_A_BYTE, RunSequence, Runs, Scratch, SequenceCodec, SpareRuns,
    check_nesting, parse_starts,
};
use crate::error::{Error, Result, corrupt, ensure};
use crate::masks::Mask;
use crate::row_list::push_rows;
use crate::selection::{Selection, deposit};
use crate::simd::dispatched;
use crate::wire::{ChunkReader, ChunkWriter, le_bytes};
use crate::words::Word;

const PART: &str = "rle";

/// Writes a run's value to its rows. Rows after it may be overwritten, so runs must come in order.
#[inline(always)]
pub(crate) fn fill_run<T: Copy>(out: &mut [T; VECTOR_LEN], rows: Range<usize>, value: T) {
    // at most a line of the cache at once: runs are mostly of a few rows
    match size_of::<T>() {
        8 => fill_run_by::<T, 8>(out, rows, value),
        _ => fill_run_by::<T, 16>(out, rows, value),
    }
}

/// Stores `AT_ONCE` rows at once.
#[inline(always)]
fn fill_run_by<T: Copy, const AT_ONCE: usize>(
    out: &mut [T; VECTOR_LEN],
    rows: Range<usize>,
    value: T,
) {
    let mut rows = rows;
    loop {
        // stores of fixed length: most runs need one, so that the processor predicts the end of the loop
        match out[rows.start..].first_chunk_mut::<AT_ONCE>() {
            Some(some) => some.fill(value),
            None => return out[rows].fill(value),
        }
        rows.start += AT_ONCE;
        if rows.is_empty() {
            return;
        }
    }
}

dispatched! {
    /// Writes the entries of runs to their rows. `bounds` are the starts of all runs, and the end of the last one.
    fn fill_runs<T: Word>(bounds: &[u32], entries: &[T], out: &mut [T; VECTOR_LEN]) {
        let mut next = 0;
        for (entry, [start, end]) in entries.iter().zip(bounds.array_windows()) {
            // a run has a first row, so that the compiler need not test for empty or reversed ranges
            let behind_first = end.wrapping_sub(*start).wrapping_sub(1);
            let rows = next..next + behind_first as usize + 1;
            next = rows.end;
            fill_run(out, rows, *entry);
        }
    }
}

/// A bit for each of the runs that a vector may have, wherever they are in vectors of runs, and a word that is zero.
type RunBits = [u64; 2 * VECTOR_LEN / 64 + 1];

dispatched! {
    /// The rows of runs that pass: the first run has the bit at `first`, and runs start at `starts`.
    ///
    /// Bits that differ from the one before are moved to the starts of their runs. A row passes if the number of them up
    /// to it is odd.
    fn rows_of_runs(passing: &RunBits, first: usize, starts: &Mask) -> Mask {
        let mut next = first % VECTOR_LEN;
        // all ones if the row before the word passes
        let mut before = 0u64;
        std::array::from_fn(|word| {
            let starts = starts[word];
            let (low, high) = (passing[next / 64], passing[next / 64 + 1]);
            let bits = low >> (next % 64) | high << 1 << (63 - next % 64);
            let changes = bits ^ (bits << 1 | before & 1);
            let inside = odd_up_to(deposit(changes, starts)) ^ before;
            next = (next + starts.count_ones() as usize) % (2 * VECTOR_LEN);
            before = (inside >> 63).wrapping_neg();
            inside
        })
    }
}

/// Bit `i` is set if an odd number of the bits up to `i` is.
#[inline(always)]
fn odd_up_to(bits: u64) -> u64 {
    let steps = [1, 2, 4, 8, 16, 32];
    steps.iter().fold(bits, |bits, step| bits ^ bits << step)
}

dispatched! {
    /// Picks the entries of rows of a vector, in which the runs start at `starts`.
    fn pick_entries<T: Word>(starts: &Mask, entries: &[T], rows: &[u32], out: &mut [T]) {
        // runs that start before each word
        let mut before = [0; VECTOR_LEN / 64];
        let mut all = 0;
        for (before, starts) in before.iter_mut().zip(starts) {
            *before = all;
            all += starts.count_ones() as usize;
        }
        for (out, row) in out.iter_mut().zip(rows) {
            let row = *row as usize % VECTOR_LEN;
            let up_to = starts[row / 64] << (63 - row % 64);
            let run = (before[row / 64] + up_to.count_ones() as usize).wrapping_sub(1);
            *out = entries.get(run).copied().unwrap_or_default();
        }
    }
}

/// Estimated number of runs.
pub(crate) fn count_runs(values: &[u64]) -> usize {
    values.len().div_ceil(VECTOR_LEN) + changes(values) as usize
}

dispatched! {
    /// The number of values that differ from the one before.
    fn changes(values: &[u64]) -> u64 {
        let pairs = values.iter().zip(values.get(1..).unwrap_or_default());
        pairs.fold(0, |count, (a, b)| count + u64::from(a != b))
    }
}

dispatched! {
    /// The smallest and the largest entry; 0 and 0 if there are none.
    pub(crate) fn bounds(entries: &[u64]) -> (u64, u64) {
        let widen = |(low, high): (u64, u64), entry: &u64| (low.min(*entry), high.max(*entry));
        let (smallest, largest) = entries.iter().fold((u64::MAX, 0), widen);
        (smallest.min(largest), largest)
    }
}

/// The value of each run, its length minus one, and the number of runs per vector.
fn runs(values: &[u64]) -> (Vec<u64>, Vec<u64>, Vec<u16>) {
    let (mut runs, mut lengths, mut counts) = (vec![], vec![], vec![]);
    for vector in values.chunks(VECTOR_LEN) {
        let before = runs.len();
        for run in vector.chunk_by(|a, b| a == b) {
            runs.extend(run.first());
            lengths.push(run.len() as u64 - 1);
        }
        counts.push((runs.len() - before) as u16);
    }
    (runs, lengths, counts)
}

/// A parsed sequence. Invariants: `firsts` ascends, has an entry more than there are vectors, and ends with the number
/// of runs; `starts` has an entry for each vector.
#[derive(Clone, Debug)]
pub struct Rle<S> {
    len: usize,
    /// The first run of each vector.
    firsts: Vec<u32>,
    /// The rows of each vector that start a run, computed from the lengths when they are first needed.
    starts: Box<[OnceLock<Mask>]>,
    values: Box<S>,
    lengths: Box<S>,
}

impl<S: RunSequence> SequenceCodec for Rle<S> {
    const STORES_BOOLEANS: bool = true;
    const SIZE_FOLLOWS_RUNS: bool = true;

    fn encode(values: &[u64], nesting: usize, out: &mut ChunkWriter) {
        let (runs, lengths, counts) = runs(values);
        out.u64(runs.len() as u64);
        out.buffer(le_bytes(&counts, |count| count.to_le_bytes()));
        out.append(S::encode(&runs, nesting + 1));
        out.append(S::encode(&lengths, nesting + 1));
    }

    fn size(values: &[u64], nesting: usize) -> Option<usize> {
        let (runs, lengths, counts) = runs(values);
        // runs hardly longer than a row are not nested further
        let nesting = match runs.len() * 10 > values.len() * 9 {
            true => usize::MAX,
            false => nesting + 1,
        };
        Some(16 + 2 * counts.len() + S::size(&runs, nesting) + S::size(&lengths, nesting))
    }

    fn work(values: &[u64]) -> usize {
        count_runs(values) / RUNS_A_BYTE
    }

    fn parse(reader: &mut ChunkReader, len: usize, nesting: usize) -> Result<Self> {
        check_nesting(nesting)?;
        let runs = reader.count(len, PART)?;
        let firsts = parse_starts(reader, len, runs, 1..=VECTOR_LEN, (PART, "runs"))?;
        Ok(Self {
            len,
            starts: unknown_starts(len),
            firsts,
            values: Box::new(S::parse(reader, runs, nesting + 1)?),
            lengths: Box::new(S::parse(reader, runs, nesting + 1)?),
        })
    }

    fn describe(&self) -> Option<String> {
        let (values, lengths) = (self.values.describe(), self.lengths.describe());
        Some(format!("rle({values}, {lengths})"))
    }

    fn decode<T: Word>(
        &self,
        vector: usize,
        reference: T,
        runs: &mut SpareRuns<T>,
        out: &mut [T; VECTOR_LEN],
    ) -> Result<()> {
        let Runs {
            values,
            lengths,
            bounds,
            spare,
            ..
        } = &mut **runs.get_or_insert_default();
        bounds.clear();
        // a loop over the bits ends at another row in each word, which no processor predicts
        push_rows(self.starts(vector, lengths)?, 0, bounds);
        bounds.push(VECTOR_LEN as u32);
        fill_runs(bounds, self.entries(vector, reference, values, spare)?, out);
        Ok(())
    }

    fn pick<T: Word>(
        &self,
        vector: usize,
        rows: &[u32],
        reference: T,
        scratch: &mut Scratch<T>,
        out: &mut [T],
    ) -> Result<()> {
        let Scratch {
            values: spare,
            runs,
            ..
        } = scratch;
        let Runs {
            values, lengths, ..
        } = &mut **runs.get_or_insert_default();
        let starts = self.starts(vector, lengths)?;
        let entries = self.entries(vector, reference, values, spare)?;
        pick_entries(starts, entries, rows, out);
        Ok(())
    }

    fn in_range(
        &self,
        vector: usize,
        low: u64,
        high: u64,
        runs: &mut SpareRuns<u64>,
        out: &mut Mask,
    ) -> Result<()> {
        let Runs {
            lengths, in_range, ..
        } = &mut **runs.get_or_insert_default();
        let starts = self.starts(vector, lengths)?;
        let mut of_runs = |vector| Ok(*in_range.load(&*self.values, vector, low, high)?);
        let (passing, first) = self.bits_of_runs(vector, &mut of_runs)?;
        *out = rows_of_runs(&passing, first, starts);
        Ok(())
    }
}

/// No starts of runs are known.
fn unknown_starts(len: usize) -> Box<[OnceLock<Mask>]> {
    let vectors = 0..len.div_ceil(VECTOR_LEN);
    vectors.map(|_| OnceLock::new()).collect()
}

/// Runs of a sequence, which tile each of its vectors.
pub trait RunVectors {
    /// Calls `visit` with each vector: a mask of the rows that start a run in it, the entries of its runs, in order,
    /// and the smallest and the largest entry.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if runs do not tile a vector; errors of `visit`.
    fn for_each_vector<E: From<Error>>(
        &self,
        visit: impl FnMut(usize, &Mask, &[u64], (u64, u64)) -> Result<(), E>,
    ) -> Result<(), E>;
}

impl<S: RunSequence> RunVectors for Rle<S> {
    fn for_each_vector<E: From<Error>>(
        &self,
        mut visit: impl FnMut(usize, &Mask, &[u64], (u64, u64)) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut lengths, mut values) = (DecodedVector::default(), DecodedVector::default());
        let mut spare = [0; VECTOR_LEN];
        for vector in 0..self.len.div_ceil(VECTOR_LEN) {
            let starts = self.starts(vector, &mut lengths)?;
            let entries = self.entries(vector, 0, &mut values, &mut spare)?;
            visit(vector, starts, entries, bounds(entries))?;
        }
        Ok(())
    }
}

#[expect(
    private_bounds,
    reason = "the only sequence outside of this crate is `Sequence`"
)]
impl<S: RunSequence> Rle<S> {
    /// The number of runs.
    pub fn num_runs(&self) -> usize {
        self.firsts.last().map_or(0, |all| *all as usize)
    }

    /// The value of each run.
    pub fn run_values(&self) -> &S {
        &self.values
    }

    /// The runs of the vectors with a selected row.
    pub fn runs_of(&self, selection: &Selection) -> Selection {
        let mut runs = Selection::none(0, self.num_runs());
        let vectors = self.firsts.array_windows();
        for (vector, [start, end]) in vectors.enumerate() {
            if !selection.is_vector_empty(vector) {
                runs.add_range(*start as usize..*end as usize);
            }
        }
        runs
    }

    /// Keeps the selected rows whose run is selected in `passing`, which covers all runs.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] if runs do not tile a vector.
    pub fn keep_runs(&self, passing: &Selection, selection: &mut Selection) -> Result<()> {
        let mut lengths = DecodedVector::default();
        for (vector, mask) in selection.vectors_mut() {
            let starts = self.starts(vector, &mut lengths)?;
            let (passing, first) = self.bits_of_runs(vector, &mut |runs| Ok(passing.mask(runs)))?;
            let words = mask.iter_mut().zip(rows_of_runs(&passing, first, starts));
            words.for_each(|(mask, kept)| *mask &= kept);
        }
        Ok(())
    }

    /// Bytes of memory that parsing took, and that decoding may take, beyond those of the chunk.
    pub fn memory_size(&self) -> usize {
        let own = size_of_val(&self.firsts[..]) + size_of_val(&self.starts[..]);
        own + self.values.memory_size() + self.lengths.memory_size()
    }

    /// The indices of a vector's runs.
    fn runs_of_vector(&self, vector: usize) -> Range<usize> {
        let first = |vector: usize| self.firsts.get(vector).map_or(0, |first| *first as usize);
        first(vector)..first(vector + 1)
    }

    /// The rows of a vector that start a run. `decoded` is only for the lengths.
    fn starts(&self, vector: usize, decoded: &mut DecodedVector<u64>) -> Result<&Mask> {
        let starts = self.starts.get(vector).ok_or_else(|| beyond(vector))?;
        if let Some(known) = starts.get() {
            return Ok(known);
        }
        let computed = self.starts_of_lengths(vector, decoded)?;
        Ok(starts.get_or_init(|| computed))
    }

    fn starts_of_lengths(&self, vector: usize, decoded: &mut DecodedVector<u64>) -> Result<Mask> {
        let rows = self.len.saturating_sub(vector * VECTOR_LEN).min(VECTOR_LEN);
        let runs = self.runs_of_vector(vector);
        // bytes first: setting bits would wait for those before them in their word
        let mut flags = [0; VECTOR_LEN];
        // lengths are stored minus one, so a run starts at the sum before it plus its index
        let (mut before, mut union) = (0usize, 0);
        let mut run = runs.start;
        while run < runs.end {
            let lengths = decoded.load(&*self.lengths, run, runs.end, 0)?;
            for (index, length) in (run - runs.start..).zip(lengths) {
                flags[before.wrapping_add(index) % VECTOR_LEN] = 1;
                // damaged lengths may wrap around: see below
                before = before.wrapping_add(*length as usize);
                union |= length;
            }
            run += lengths.len();
        }
        let next = before.wrapping_add(runs.len());
        // lengths below that of a vector cannot wrap around
        ensure(next == rows && union < VECTOR_LEN as u64, PART, || {
            format!("runs of {next} rows in a vector of {rows}")
        })?;
        let mut starts = [0; VECTOR_LEN / 64];
        bitpack::bits(&flags, &mut starts);
        Ok(starts)
    }

    /// The entries of a vector's runs. `decoded` is only for the values and the reference; `spare` receives entries that
    /// were not decoded together.
    fn entries<'a, T: Word>(
        &self,
        vector: usize,
        reference: T,
        decoded: &'a mut DecodedVector<T>,
        spare: &'a mut [T; VECTOR_LEN],
    ) -> Result<&'a [T]> {
        let runs = self.runs_of_vector(vector);
        if runs.start % VECTOR_LEN + runs.len() <= VECTOR_LEN {
            return decoded.load(&*self.values, runs.start, runs.end, reference);
        }
        let mut filled = 0;
        while filled < runs.len() {
            let next = runs.start + filled;
            let entries = decoded.load(&*self.values, next, runs.end, reference)?;
            spare[filled..filled + entries.len()].copy_from_slice(entries);
            filled += entries.len();
        }
        Ok(&spare[..filled])
    }

    /// The bits of a vector's runs, and the index of the first. `of_runs` returns the bits of a vector of runs.
    fn bits_of_runs(
        &self,
        vector: usize,
        of_runs: &mut impl FnMut(usize) -> Result<Mask>,
    ) -> Result<(RunBits, usize)> {
        let runs = self.runs_of_vector(vector);
        let first = runs.start / VECTOR_LEN;
        let mut bits = [0; 2 * VECTOR_LEN / 64 + 1];
        let halves = bits.as_chunks_mut::<{ VECTOR_LEN / 64 }>().0;
        for (half, vector) in halves.iter_mut().zip(first..runs.end.div_ceil(VECTOR_LEN)) {
            *half = of_runs(vector)?;
        }
        Ok((bits, runs.start % VECTOR_LEN))
    }
}

fn beyond(vector: usize) -> Error {
    corrupt(PART, format!("no runs in vector {vector}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codecs::sequence::Sequence;

    /// Two runs of one length in a vector of 600 rows.
    fn decoded(length: u64) -> Result<[i64; VECTOR_LEN]> {
        let rle = Rle {
            len: 600,
            starts: unknown_starts(600),
            firsts: vec![0, 2],
            values: Box::new(Sequence::Constant(7)),
            lengths: Box::new(Sequence::Constant(length.wrapping_sub(1))),
        };
        let (mut out, mut bits) = ([0; VECTOR_LEN], [0; VECTOR_LEN / 64]);
        let result = rle.decode(0, 1, &mut None, &mut out);
        let filtered = rle.in_range(0, 7, 7, &mut None, &mut bits);
        assert_eq!(result.is_ok(), filtered.is_ok());
        result.map(|()| out)
    }

    #[test]
    fn runs_tile_a_vector() {
        assert_eq!(decoded(300).unwrap()[..600], [8; 600]);
        for length in [1, 299, 301, 512, 1024, 1025, 1 << 32, 300 + (1 << 63), 0] {
            let error = decoded(length).unwrap_err();
            assert!(matches!(error, Error::Corrupt { .. }), "{length}: {error}");
        }
    }
}
