//! Sequences of unsigned integers, on which all other encodings build.
//!
//! A column of an integer-like type is stored as offsets from its smallest value, so that every
//! type is the same `u64` here and order is kept: codes of a dictionary, run lengths, string
//! lengths and ALP's integers are such sequences too.
//!
//! ```text
//! header   u8 tag: 0 constant, 1 ffor, 2 delta, 3 rle, 4 gpu_for, 5 gpu_dfor, 6 gpu_rfor, 7 sparse;
//!          then the fields of that encoding
//! ```

use std::ops::Range;

use crate::VECTOR_LEN;
use crate::bitpack::{Words, words_in_range};
use crate::codecs::delta::{self, Delta, DeltaView};
use crate::codecs::ffor::{self, Ffor, FforView};
use crate::codecs::gpu_dfor::{self, GpuDfor, GpuDforView};
use crate::codecs::gpu_for::{self, GpuFor, GpuForView};
use crate::codecs::gpu_rfor::{self, GpuRfor};
use crate::codecs::rle::{self, Rle, RunSequence, Runs, SpareRuns};
use crate::codecs::sparse::{self, Sparse};
use crate::encoding::{Encoding, Pin};
use crate::error::{Result, corrupt};
use crate::masks::Mask;
use crate::selection::{Selected, Selection};
use crate::simd::dispatched;
use crate::vectors::sample;
use crate::wire::{ChunkReader, ChunkWriter};
use crate::words::Word;

const PART: &str = "integers";
/// Vectors sampled to choose an encoding, evenly spread.
const SAMPLE_VECTORS: usize = 32;
/// The depth limit of nested choices (the run values of run values ...): no run is stored in more runs. A vector of
/// runs may take two vectors of the next level to decode, so each level doubles the time.
const MAX_NESTING: usize = 2;

/// An encoded sequence of `u64`.
#[derive(Clone, Debug)]
pub(crate) enum Sequence {
    Constant(u64),
    Ffor(Ffor),
    Delta(Delta),
    Rle(Box<Rle<Self>>),
    GpuFor(GpuFor),
    GpuDfor(GpuDfor),
    GpuRfor(GpuRfor),
    Sparse(Box<Sparse<Self>>),
}

/// State that [`Sequence::select`] keeps from one vector of a sequence to the next.
pub(crate) struct Scratch<T> {
    pub values: [T; VECTOR_LEN],
    pub words: Words,
    runs: SpareRuns<T>,
}

impl<T: Word> Default for Scratch<T> {
    fn default() -> Self {
        Self {
            values: [T::default(); VECTOR_LEN],
            words: [0; VECTOR_LEN],
            runs: None,
        }
    }
}

/// The encodings of integer sequences, cheapest to decode first.
pub(crate) const KINDS: [Encoding; 7] = [
    Encoding::Ffor,
    Encoding::Sparse,
    Encoding::Rle,
    Encoding::Delta,
    Encoding::GpuFor,
    Encoding::GpuRfor,
    Encoding::GpuDfor,
];

/// Encodes `values` by `encoding`, which is one of [`KINDS`].
pub(crate) fn encode_as(encoding: Encoding, values: &[u64], nesting: usize) -> ChunkWriter {
    let mut out = ChunkWriter::default();
    match encoding {
        Encoding::Delta => {
            out.u8(2);
            delta::encode(values, &mut out);
        }
        Encoding::Rle => {
            out.u8(3);
            rle::encode::<Sequence>(values, nesting + 1, &mut out);
        }
        Encoding::GpuFor => {
            out.u8(4);
            gpu_for::encode(values, &mut out);
        }
        Encoding::GpuDfor => {
            out.u8(5);
            gpu_dfor::encode(values, &mut out);
        }
        Encoding::GpuRfor => {
            out.u8(6);
            gpu_rfor::encode(values, &mut out);
        }
        Encoding::Sparse => {
            out.u8(7);
            sparse::encode::<Sequence>(values, nesting + 1, &mut out);
        }
        _ => {
            out.u8(1);
            ffor::encode(values, &mut out);
        }
    }
    out
}

/// Encodes `values` in the best encoding.
pub(crate) fn encode(values: &[u64]) -> ChunkWriter {
    encode_smallest(values, 0, |encoding, bytes| {
        with_work(encoding, bytes, values)
    })
}

/// As [`encode`], for lengths: values take so much longer to decode than these that only bytes count.
pub(crate) fn encode_lengths(values: &[u64]) -> ChunkWriter {
    Sequence::encode(values, 0)
}

/// Encodes `values`, which are `nesting` runs deep, in the encoding with the lowest cost, which `counted` computes from
/// its bytes.
fn encode_smallest(
    values: &[u64],
    nesting: usize,
    counted: impl Fn(Encoding, usize) -> usize,
) -> ChunkWriter {
    if let Some(first) = values.first()
        && values.iter().all(|v| v == first)
    {
        return constant(*first);
    }
    if values.is_empty() {
        return constant(0);
    }
    let sizes = sizes(values, nesting).into_iter();
    let counted = sizes.map(|(encoding, bytes)| (encoding, counted(encoding, bytes)));
    encode_as(Encoding::smallest(counted), values, nesting)
}

fn constant(value: u64) -> ChunkWriter {
    let mut out = ChunkWriter::default();
    out.u8(0);
    out.u64(value);
    out
}

/// Estimated bytes of `values` in an encoding, which is one of [`KINDS`], computed without packing; `None` if it is not
/// worth trying.
fn size_as(encoding: Encoding, values: &[u64], nesting: usize) -> Option<usize> {
    Some(match encoding {
        Encoding::Delta => delta::size(values),
        Encoding::Rle => rle::size::<Sequence>(values, nesting + 1),
        Encoding::Sparse => return sparse::size::<Sequence>(values, nesting + 1),
        Encoding::GpuFor => gpu_for::size(values),
        Encoding::GpuDfor => gpu_dfor::size(values),
        Encoding::GpuRfor => gpu_rfor::size(values),
        _ => ffor::size(values),
    })
}

/// This many runs, exceptions of `sparse`, or differences cost as much as a byte when encodings are compared: a core
/// takes 4 ns for a run and 1.6 for a difference, but unpacks a value in 0.2.
const RUNS_A_BYTE: usize = 5;
const DIFFERENCES_A_BYTE: usize = 16;

/// The cost of `values` in `bytes` bytes of an encoding when encodings are compared.
pub(crate) fn with_work(encoding: Encoding, bytes: usize, values: &[u64]) -> usize {
    match encoding {
        Encoding::Rle | Encoding::GpuRfor => bytes + runs(values) / RUNS_A_BYTE,
        Encoding::Sparse => bytes + sparse::count_exceptions(values) / RUNS_A_BYTE,
        Encoding::Delta | Encoding::GpuDfor => bytes + values.len() / DIFFERENCES_A_BYTE,
        _ => bytes,
    }
}

/// Runs are few if there is at most one for this many rows.
const FEW_RUNS: usize = 4;

/// Estimated bytes of `values` in each of [`KINDS`] worth trying: from a sample, unless runs or exceptions are few.
pub(crate) fn sizes(values: &[u64], nesting: usize) -> Vec<(Encoding, usize)> {
    let sample = sample(values, SAMPLE_VECTORS);
    if nesting >= MAX_NESTING {
        let bytes = scaled(ffor::size(&sample), values.len(), sample.len());
        return vec![(Encoding::Ffor, bytes)];
    }
    let is_all = sample.len() == values.len();
    let mut sizes: Vec<(Encoding, usize)> = vec![];
    for kind in kinds_of(nesting) {
        if kind == Encoding::Rle && !is_all && runs(values) * FEW_RUNS <= values.len() {
            sizes.extend(size_as(kind, values, nesting).map(|bytes| (kind, bytes)));
            continue;
        }
        let Some(of_sample) = size_as(kind, &sample, nesting) else {
            continue;
        };
        let mut bytes = match kind {
            _ if is_all => of_sample,
            Encoding::Rle | Encoding::GpuRfor => scaled(of_sample, runs(values), runs(&sample)),
            _ => scaled(of_sample, values.len(), sample.len()),
        };
        // exceptions may cluster outside the sample; but if it is twice too large in the sample, the rest is not read
        let may_pay = || sizes.iter().all(|(_, other)| bytes < 2 * other);
        if kind == Encoding::Sparse && !is_all && may_pay() {
            match size_as(kind, values, nesting) {
                Some(of_all) => bytes = of_all,
                None => continue,
            }
        }
        sizes.push((kind, bytes));
    }
    sizes
}

/// The [`KINDS`] to try for sequences nested this deep. Runs and exceptions are few values: blocks save little of them.
fn kinds_of(nesting: usize) -> impl Iterator<Item = Encoding> {
    let is_tried = move |kind: &Encoding| nesting == 0 || !Pin::GPU_STAR.contains(kind);
    KINDS.into_iter().filter(is_tried)
}

fn scaled(bytes: usize, of: usize, sampled: usize) -> usize {
    (bytes as u128 * of as u128 / sampled.max(1) as u128) as usize
}

/// Estimated number of runs of `rle`.
pub(crate) fn runs(values: &[u64]) -> usize {
    values.len().div_ceil(VECTOR_LEN) + changes(values) as usize
}

dispatched! {
    /// The number of values that differ from the one before.
    fn changes(values: &[u64]) -> u64 {
        let pairs = values.iter().zip(values.get(1..).unwrap_or_default());
        pairs.fold(0, |count, (a, b)| count + u64::from(a != b))
    }
}

impl RunSequence for Sequence {
    fn encode(values: &[u64], nesting: usize) -> ChunkWriter {
        encode_smallest(values, nesting, |_, bytes| bytes)
    }

    fn size(values: &[u64], nesting: usize) -> usize {
        if values.iter().all(|value| Some(value) == values.first()) {
            return constant(0).len();
        }
        let sizes = sizes(values, nesting).into_iter();
        sizes.map(|(_, bytes)| bytes).min().unwrap_or(0)
    }

    fn parse(reader: &mut ChunkReader, len: usize, nesting: usize) -> Result<Self> {
        reader.nested(|reader| match reader.u8()? {
            0 => Ok(Self::Constant(reader.u64()?)),
            1 => Ok(Self::Ffor(Ffor::parse(reader, len)?)),
            2 => Ok(Self::Delta(Delta::parse(reader, len)?)),
            3 | 7 if nesting == MAX_NESTING => Err(corrupt(
                PART,
                format!("runs nested deeper than {MAX_NESTING}"),
            )),
            3 => Ok(Self::Rle(Box::new(Rle::parse(reader, len, nesting + 1)?))),
            4 => Ok(Self::GpuFor(GpuFor::parse(reader, len)?)),
            5 => Ok(Self::GpuDfor(GpuDfor::parse(reader, len)?)),
            6 => Ok(Self::GpuRfor(GpuRfor::parse(reader, len)?)),
            7 => Ok(Self::Sparse(Box::new(Sparse::parse(
                reader,
                len,
                nesting + 1,
            )?))),
            tag => Err(corrupt(PART, format!("an encoding tag of {tag}"))),
        })
    }

    fn describe(&self) -> String {
        self.describe()
    }

    #[inline]
    fn decode_next<T: Word>(
        &self,
        vector: usize,
        reference: T,
        runs: &mut SpareRuns<T>,
        out: &mut [T; VECTOR_LEN],
    ) -> Result<()> {
        match self {
            Self::Constant(value) => out.fill(reference.plus(*value)),
            Self::Ffor(ffor) => ffor.decode(vector, reference, out),
            Self::Delta(delta) => delta.decode(vector, reference, out),
            Self::Rle(rle) => rle.decode(vector, reference, runs.get_or_insert_default(), out)?,
            Self::GpuFor(gpu_for) => gpu_for.decode(vector, reference, out),
            Self::GpuDfor(gpu_dfor) => gpu_dfor.decode(vector, reference, out),
            Self::GpuRfor(gpu_rfor) => gpu_rfor.decode(vector, reference, out)?,
            Self::Sparse(sparse) => {
                sparse.decode(vector, reference, runs.get_or_insert_default(), out)?;
            }
        }
        Ok(())
    }
}

impl Sequence {
    pub fn parse(reader: &mut ChunkReader, len: usize) -> Result<Self> {
        RunSequence::parse(reader, len, 0)
    }

    pub fn encoding(&self) -> Encoding {
        match self {
            Self::Constant(_) => Encoding::Constant,
            Self::Ffor(_) => Encoding::Ffor,
            Self::Delta(_) => Encoding::Delta,
            Self::Rle(_) => Encoding::Rle,
            Self::GpuFor(_) => Encoding::GpuFor,
            Self::GpuDfor(_) => Encoding::GpuDfor,
            Self::GpuRfor(_) => Encoding::GpuRfor,
            Self::Sparse(_) => Encoding::Sparse,
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Self::Rle(rle) => rle.describe(),
            Self::Sparse(sparse) => sparse.describe(),
            other => other.encoding().to_string(),
        }
    }

    /// Decodes a vector as `reference + offset`. Entries beyond the end are arbitrary.
    pub fn decode<T: Word>(
        &self,
        vector: usize,
        reference: T,
        out: &mut [T; VECTOR_LEN],
    ) -> Result<()> {
        self.decode_next(vector, reference, &mut None, out)
    }

    /// Appends the selected values of a vector. `scratch` is only for this sequence and reference.
    pub fn select<T: Word>(
        &self,
        selected: &Selected,
        reference: T,
        scratch: &mut Scratch<T>,
        out: &mut Vec<T>,
    ) -> Result<()> {
        match self {
            Self::Ffor(ffor) => ffor.select(
                selected,
                reference,
                &mut scratch.values,
                &mut scratch.words,
                out,
            ),
            Self::GpuFor(gpu_for) => {
                gpu_for.select(selected, reference, &mut scratch.values, out);
            }
            _ => {
                let Scratch { values, runs, .. } = scratch;
                self.decode_next(selected.vector, reference, runs, values)?;
                selected.append(values, out);
            }
        }
        Ok(())
    }

    /// Sets a bit per row of a vector whose value is in `low..=high`. Bits beyond the end are arbitrary. `runs` is only
    /// for this sequence, and caches runs that the next vector may need.
    pub fn in_range(
        &self,
        vector: usize,
        low: u64,
        high: u64,
        runs: &mut SpareRuns<u64>,
        out: &mut Mask,
    ) -> Result<()> {
        match self {
            Self::Constant(value) => {
                out.fill(if (low..=high).contains(value) {
                    u64::MAX
                } else {
                    0
                });
            }
            Self::Ffor(ffor) => ffor.in_range(vector, low, high, out),
            Self::Delta(delta) if low <= high => {
                let mut values = [0; VECTOR_LEN];
                delta.decode(vector, 0u64, &mut values);
                words_in_range(&values, low, high, out);
            }
            Self::Delta(_) => out.fill(0),
            Self::Rle(rle) => rle.in_range(vector, low, high, runs.get_or_insert_default(), out)?,
            Self::GpuFor(gpu_for) => gpu_for.in_range(vector, low, high, out),
            Self::GpuDfor(gpu_dfor) => gpu_dfor.in_range(vector, low, high, out),
            Self::GpuRfor(gpu_rfor) => gpu_rfor.in_range(vector, low, high, out)?,
            Self::Sparse(sparse) => {
                sparse.in_range(vector, low, high, runs.get_or_insert_default(), out)?;
            }
        }
        Ok(())
    }

    /// Appends the values of any range of rows.
    pub fn decode_range<T: Word>(
        &self,
        rows: Range<usize>,
        reference: T,
        out: &mut Vec<T>,
    ) -> Result<()> {
        let (mut runs, mut values) = (None, [T::default(); VECTOR_LEN]);
        for vector in rows.start / VECTOR_LEN..rows.end.div_ceil(VECTOR_LEN) {
            self.decode_next(vector, reference, &mut runs, &mut values)?;
            let start = vector * VECTOR_LEN;
            let from = rows.start.saturating_sub(start);
            let to = (rows.end - start).min(VECTOR_LEN);
            out.extend_from_slice(&values[from..to]);
        }
        Ok(())
    }
}

/// Sets with more ranges of consecutive values than this are looked up value by value.
const MAX_RANGES: usize = 4;
/// Sets spread over at most this many values are looked up in a bitmap.
const MAX_BITMAP: u64 = 1 << 20;

impl Sequence {
    /// Keeps the selected rows whose value is one of `set`, which ascends.
    pub fn filter_in(&self, set: &[u64], negated: bool, selection: &mut Selection) -> Result<()> {
        let ranges: Vec<&[u64]> = set.chunk_by(|a, b| a.checked_add(1) == Some(*b)).collect();
        let flip = if negated { u64::MAX } else { 0 };
        if ranges.len() <= MAX_RANGES {
            let mut runs = None;
            for (vector, mask) in selection.vectors_mut() {
                let (mut members, mut range) = ([0; 16], [0; 16]);
                for of_set in &ranges {
                    let (low, high) = (of_set[0], of_set[of_set.len() - 1]);
                    self.in_range(vector, low, high, &mut runs, &mut range)?;
                    members
                        .iter_mut()
                        .zip(&range)
                        .for_each(|(members, range)| *members |= range);
                }
                mask.iter_mut()
                    .zip(&members)
                    .for_each(|(mask, members)| *mask &= members ^ flip);
            }
            return Ok(());
        }
        let lookup = Lookup::new(set);
        let (mut runs, mut values) = (None, [0u64; VECTOR_LEN]);
        for (vector, mask) in selection.vectors_mut() {
            self.decode_next(vector, 0, &mut runs, &mut values)?;
            for (word, values) in mask.iter_mut().zip(values.as_chunks::<64>().0) {
                let mut members = 0;
                for (bit, value) in values.iter().enumerate() {
                    members |= u64::from(lookup.contains(*value)) << bit;
                }
                *word &= members ^ flip;
            }
        }
        Ok(())
    }
}

/// Membership in a set of integers.
enum Lookup<'a> {
    Bitmap { low: u64, bits: Vec<u64> },
    Sorted(&'a [u64]),
}

impl<'a> Lookup<'a> {
    fn new(set: &'a [u64]) -> Self {
        match (set.first(), set.last()) {
            (Some(low), Some(high)) if high - low < MAX_BITMAP => {
                let mut bits = vec![0; ((high - low) / 64 + 1) as usize];
                for value in set {
                    bits[((value - low) / 64) as usize] |= 1 << ((value - low) % 64);
                }
                Self::Bitmap { low: *low, bits }
            }
            _ => Self::Sorted(set),
        }
    }

    #[inline]
    fn contains(&self, value: u64) -> bool {
        match self {
            Self::Bitmap { low, bits } => {
                let offset = value.wrapping_sub(*low);
                bits.get((offset / 64) as usize)
                    .is_some_and(|word| word >> (offset % 64) & 1 == 1)
            }
            Self::Sorted(set) => set.binary_search(&value).is_ok(),
        }
    }
}

/// A sequence of unsigned integers.
#[derive(Clone, Copy, Debug)]
pub enum SequenceView<'a> {
    /// One value for every row.
    Constant(u64),
    /// `base + residual`, with a base for each vector.
    Ffor(FforView<'a>),
    /// Running sums of differences.
    Delta(DeltaView<'a>),
    /// Runs of equal entries.
    Rle(RunsView<'a>),
    /// Blocks of 128.
    GpuFor(GpuForView<'a>),
    /// Tiles of 512, with differences in blocks of 128.
    GpuDfor(GpuDforView<'a>),
    /// The entry of most rows, and exceptions with their rows.
    Sparse(SparseView<'a>),
}

impl<'a> SequenceView<'a> {
    pub(crate) fn new(sequence: &'a Sequence) -> Self {
        match sequence {
            Sequence::Constant(value) => Self::Constant(*value),
            Sequence::Ffor(ffor) => Self::Ffor(FforView(ffor)),
            Sequence::Delta(delta) => Self::Delta(DeltaView(delta)),
            Sequence::Rle(rle) => Self::Rle(RunsView(RunsOf::Rle(rle))),
            Sequence::GpuFor(gpu_for) => Self::GpuFor(GpuForView(gpu_for)),
            Sequence::GpuDfor(gpu_dfor) => Self::GpuDfor(GpuDforView(gpu_dfor)),
            Sequence::GpuRfor(gpu_rfor) => Self::Rle(RunsView(RunsOf::GpuRfor(gpu_rfor))),
            Sequence::Sparse(sparse) => Self::Sparse(SparseView(sparse)),
        }
    }

    /// The largest of the first `rows` entries, decoded; 0 if there are none.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) for runs that do not tile a vector.
    pub fn largest(&self, rows: usize) -> Result<u64> {
        let mut largest = 0;
        let mut entries = [0; VECTOR_LEN];
        for vector in 0..rows.div_ceil(VECTOR_LEN) {
            let live = VECTOR_LEN.min(rows - vector * VECTOR_LEN);
            if let Self::Ffor(view) = self
                && live == VECTOR_LEN
                && let Some(of_vector) = view.0.largest(vector)
            {
                largest = largest.max(of_vector);
                continue;
            }
            match self {
                Self::Constant(value) => entries.fill(*value),
                Self::Ffor(view) => view.0.decode(vector, 0, &mut entries),
                Self::Delta(view) => view.0.decode(vector, 0, &mut entries),
                Self::Rle(view) => view.decode(vector, &mut entries)?,
                Self::GpuFor(view) => view.0.decode(vector, 0, &mut entries),
                Self::GpuDfor(view) => view.0.decode(vector, 0, &mut entries),
                Self::Sparse(view) => {
                    view.0
                        .decode(vector, 0, &mut Runs::default(), &mut entries)?
                }
            }
            largest = entries[..live].iter().fold(largest, |a, b| a.max(*b));
        }
        Ok(largest)
    }
}

dispatched! {
    /// The smallest and the largest entry; 0 and 0 if there are none.
    fn bounds(entries: &[u64]) -> (u64, u64) {
        let widen = |(low, high): (u64, u64), entry: &u64| (low.min(*entry), high.max(*entry));
        let (smallest, largest) = entries.iter().fold((u64::MAX, 0), widen);
        (smallest.min(largest), largest)
    }
}

/// `rle` and `gpu_rfor`.
#[derive(Clone, Copy, Debug)]
pub struct RunsView<'a>(RunsOf<'a>);

#[derive(Clone, Copy, Debug)]
enum RunsOf<'a> {
    Rle(&'a Rle<Sequence>),
    GpuRfor(&'a GpuRfor),
}

impl RunsView<'_> {
    /// Calls `visit` with each vector: a mask of the rows that start a run in it, the entries of its runs, in order,
    /// and the smallest and the largest entry. The runs of a vector tile it.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) if runs do not tile a vector; errors of `visit`.
    pub fn for_each_vector<E: From<crate::Error>>(
        &self,
        mut visit: impl FnMut(usize, &Mask, &[u64], (u64, u64)) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut starts = [0; VECTOR_LEN / 64];
        match self.0 {
            RunsOf::Rle(rle) => {
                let (mut decoded, mut spare) = (Runs::default(), [0; VECTOR_LEN]);
                for vector in 0..rle.num_vectors() {
                    let entries = rle.runs(vector, &mut decoded, &mut spare, &mut starts)?;
                    visit(vector, &starts, entries, bounds(entries))?;
                }
            }
            RunsOf::GpuRfor(gpu_rfor) => {
                let mut entries = vec![];
                for vector in 0..gpu_rfor.num_vectors() {
                    gpu_rfor.runs(vector, &mut entries, &mut starts)?;
                    visit(vector, &starts, &entries, bounds(&entries))?;
                }
            }
        }
        Ok(())
    }

    fn decode(&self, vector: usize, out: &mut [u64; VECTOR_LEN]) -> Result<()> {
        match self.0 {
            RunsOf::Rle(rle) => rle.decode(vector, 0, &mut Runs::default(), out),
            RunsOf::GpuRfor(gpu_rfor) => gpu_rfor.decode(vector, 0, out),
        }
    }
}

/// `sparse`.
#[derive(Clone, Copy, Debug)]
pub struct SparseView<'a>(&'a Sparse<Sequence>);

impl SparseView<'_> {
    /// The entry of most rows.
    pub fn value(&self) -> u64 {
        self.0.value()
    }

    /// Calls `visit` with each vector that has exceptions, and all of its entries.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) for rows outside of a vector; errors of `visit`.
    pub fn for_each_uneven<E: From<crate::Error>>(
        &self,
        mut visit: impl FnMut(usize, &[u64; VECTOR_LEN]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        let mut decoded = Runs::default();
        let mut entries = [0; VECTOR_LEN];
        for vector in (0..self.0.num_vectors()).filter(|vector| !self.0.is_even(*vector)) {
            self.0.decode(vector, 0, &mut decoded, &mut entries)?;
            visit(vector, &entries)?;
        }
        Ok(())
    }
}
