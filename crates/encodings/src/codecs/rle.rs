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

use crate::VECTOR_LEN;
use crate::bitpack;
use crate::codecs::sequence_codec::{
    RUNS_A_BYTE, RunSequence, Runs, Scratch, SequenceCodec, SpareRuns, check_nesting, parse_starts,
};
use crate::error::{Error, Result, ensure};
use crate::masks::Mask;
use crate::selection::Selection;
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

/// Calls `visit` with the rows and the value of each run; `next` is the first row. Lengths are stored minus one.
#[inline(always)]
fn for_each_run<T: Copy>(
    values: &[T],
    lengths: &[u64],
    next: usize,
    mut visit: impl FnMut(Range<usize>, T),
) {
    let mut next = next;
    for (value, length) in values.iter().zip(lengths) {
        let rows = next..next + *length as usize + 1;
        next = rows.end;
        visit(rows, *value);
    }
}

dispatched! {
    /// Writes values to the rows of their runs, which are within a vector: the first starts at row `next`.
    fn fill_runs<T: Word>(values: &[T], lengths: &[u64], next: usize, out: &mut [T; VECTOR_LEN]) {
        for_each_run(values, lengths, next, |rows, value| fill_run(out, rows, value));
    }
}

dispatched! {
    /// As [`fill_runs`], but writes 1 for values in `low..=high`, and 0 for others.
    fn fill_inside(values: &[u64], lengths: &[u64], next: usize, low: u64, high: u64, out: &mut [u8; VECTOR_LEN]) {
        for_each_run(values, lengths, next, |rows, value| {
            fill_run(out, rows, u8::from((low..=high).contains(&value)));
        });
    }
}

dispatched! {
    /// As [`fill_runs`], but writes bits of `passing`, of which that of the first run is at `first`.
    fn fill_bits(passing: &Mask, first: usize, lengths: &[u64], next: usize, out: &mut [u8; VECTOR_LEN]) {
        let mut next = next;
        for (run, length) in (first..).zip(lengths) {
            let rows = next..next + *length as usize + 1;
            next = rows.end;
            let bit = passing[run % VECTOR_LEN / 64] >> (run % 64) & 1;
            fill_run(out, rows, bit as u8);
        }
    }
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

dispatched! {
    /// The sum of lengths stored minus one; the maximum if one is longer than a vector.
    fn sum(lengths: &[u64]) -> usize {
        let add = |(sum, union): (u64, u64), length: &u64| (sum.wrapping_add(*length), union | length);
        let (sum, union) = lengths.iter().fold((0, 0), add);
        // lengths below that of a vector cannot wrap around
        match union < VECTOR_LEN as u64 {
            true => sum as usize + lengths.len(),
            false => usize::MAX,
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

/// A parsed sequence. Invariant: `starts` ascends, has an entry more than there are vectors, and
/// ends with the number of runs.
#[derive(Clone, Debug)]
pub struct Rle<S> {
    len: usize,
    starts: Vec<u32>,
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
        let starts = parse_starts(reader, len, runs, 1..=VECTOR_LEN, (PART, "runs"))?;
        Ok(Self {
            len,
            starts,
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
        let runs = runs.get_or_insert_default();
        self.for_each_part(vector, reference, runs, |_, values, lengths, next| {
            fill_runs(values, lengths, next, out);
        })
    }

    fn pick<T: Word>(
        &self,
        vector: usize,
        rows: &[u32],
        reference: T,
        scratch: &mut Scratch<T>,
        out: &mut [T],
    ) -> Result<()> {
        let Scratch { values, runs, .. } = scratch;
        let runs = runs.get_or_insert_default();
        let mut starts = [0; VECTOR_LEN / 64];
        let entries = self.runs(vector, reference, runs, values, &mut starts)?;
        pick_entries(&starts, entries, rows, out);
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
        let mut inside = [0; VECTOR_LEN];
        let runs = runs.get_or_insert_default();
        self.for_each_part(vector, 0, runs, |_, values, lengths, next| {
            fill_inside(values, lengths, next, low, high, &mut inside);
        })?;
        bitpack::bits(&inside, out);
        Ok(())
    }
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
        let (mut decoded, mut spare) = (Runs::default(), [0; VECTOR_LEN]);
        let mut starts = [0; VECTOR_LEN / 64];
        for vector in 0..self.len.div_ceil(VECTOR_LEN) {
            let entries = self.runs(vector, 0, &mut decoded, &mut spare, &mut starts)?;
            visit(vector, &starts, entries, bounds(entries))?;
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
        self.starts.last().map_or(0, |all| *all as usize)
    }

    /// The value of each run.
    pub fn run_values(&self) -> &S {
        &self.values
    }

    /// The runs of the vectors with a selected row.
    pub fn runs_of(&self, selection: &Selection) -> Selection {
        let mut runs = Selection::none(0, self.num_runs());
        let vectors = self.starts.array_windows();
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
        let mut runs = Runs::default();
        for (vector, mask) in selection.vectors_mut() {
            let (mut flags, mut kept) = ([0; VECTOR_LEN], [0; VECTOR_LEN / 64]);
            // only lengths are read
            self.for_each_part(vector, 0u8, &mut runs, |run, _, lengths, next| {
                let of_runs = passing.mask(run / VECTOR_LEN);
                fill_bits(&of_runs, run, lengths, next, &mut flags);
            })?;
            bitpack::bits(&flags, &mut kept);
            let words = mask.iter_mut().zip(kept);
            words.for_each(|(mask, kept)| *mask &= kept);
        }
        Ok(())
    }

    /// The values of the runs of `vector`, and the rows that start one. This is the faster twin of
    /// [`for_each_part`](Self::for_each_part), for callers that need all runs of all vectors: the sum of the lengths is
    /// checked once, at the end, and nothing is done run by run with the values. `decoded` is only for this sequence;
    /// `spare` receives values that were not decoded together.
    fn runs<'a, T: Word>(
        &self,
        vector: usize,
        reference: T,
        decoded: &'a mut Runs<T>,
        spare: &'a mut [T; VECTOR_LEN],
        starts: &mut Mask,
    ) -> Result<&'a [T]> {
        let rows = self.len.saturating_sub(vector * VECTOR_LEN).min(VECTOR_LEN);
        let start = |i: usize| self.starts.get(i).map_or(0, |s| *s as usize);
        let (first, end) = (start(vector), start(vector + 1));
        let count = end - first;
        // bytes first: setting bits would wait for those before them in their word
        let mut flags = [0; VECTOR_LEN];
        // lengths are stored minus one, so a run starts at the sum before it plus its index
        let (mut before, mut all_lengths) = (0usize, 0);
        let mut filled = 0;
        while filled < count {
            let run = first + filled;
            decoded.load(&*self.values, &*self.lengths, run, end, reference)?;
            let from = run % VECTOR_LEN;
            let part = from..VECTOR_LEN.min(from + count - filled);
            for (run, length) in (filled..).zip(&decoded.lengths[part.clone()]) {
                flags[before.wrapping_add(run) % VECTOR_LEN] = 1;
                // damaged lengths may wrap around: see below
                before = before.wrapping_add(*length as usize);
                all_lengths |= length;
            }
            if part.len() < count {
                spare[filled..filled + part.len()].copy_from_slice(&decoded.values[part.clone()]);
            }
            filled += part.len();
        }
        let next = before.wrapping_add(count);
        // lengths below that of a vector cannot wrap around
        ensure(
            next == rows && all_lengths < VECTOR_LEN as u64,
            PART,
            || format!("runs of {next} rows in a vector of {rows}"),
        )?;
        bitpack::bits(&flags, starts);
        let from = first % VECTOR_LEN;
        Ok(match decoded.values.get(from..from + count) {
            Some(together) => together,
            None => &spare[..count],
        })
    }

    /// Calls `visit` with the index of a run, values and lengths of runs from it on, and the row at which it starts. All
    /// of them tile the vector.
    #[inline(always)]
    fn for_each_part<T: Word>(
        &self,
        vector: usize,
        reference: T,
        runs: &mut Runs<T>,
        mut visit: impl FnMut(usize, &[T], &[u64], usize),
    ) -> Result<()> {
        let rows = self.len.saturating_sub(vector * VECTOR_LEN).min(VECTOR_LEN);
        let start = |i: usize| self.starts.get(i).map_or(0, |s| *s as usize);
        let (mut run, end) = (start(vector), start(vector + 1));
        let mut next = 0usize;
        while run < end {
            let (values, lengths) =
                runs.load(&*self.values, &*self.lengths, run, end, reference)?;
            let after = next.saturating_add(sum(lengths));
            ensure(after <= rows, PART, || {
                format!("runs beyond the end of a vector of {rows}")
            })?;
            visit(run, values, lengths, next);
            next = after;
            run += values.len();
        }
        ensure(next == rows, PART, || {
            format!("runs of {next} rows in a vector of {rows}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codecs::sequence::Sequence;

    /// Two runs of one length in a vector of 600 rows.
    fn decoded(length: u64) -> Result<[i64; VECTOR_LEN]> {
        let rle = Rle {
            len: 600,
            starts: vec![0, 2],
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
