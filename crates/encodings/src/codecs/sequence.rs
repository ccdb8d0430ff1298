//! Sequences of unsigned integers, on which all other encodings build.
//!
//! A column of an integer-like type is stored as offsets from its smallest value, so that every
//! type is the same `u64` here and order is kept: codes of a dictionary, run lengths, string
//! lengths and ALP's integers are such sequences too.
//!
//! ```text
//! header   u8 tag: 0 constant, others as listed in `encoding`; then the fields of that encoding
//! ```

use std::cell::Cell;
use std::ops::Range;

use crate::VECTOR_LEN;
use crate::codecs::rle::count_runs;
use crate::codecs::sequence_codec::{MAX_NESTING, RunSequence, Scratch, SequenceCodec, SpareRuns};
use crate::codecs::{delta, ffor, gpu_dfor, gpu_for, gpu_rfor, rle, sparse};
use crate::encoding::{Encoding, Pin, for_each_encoding};
use crate::error::{Result, corrupt};
use crate::masks::Mask;
use crate::selection::{Selected, Selection};
use crate::vectors::sample;
use crate::wire::{ChunkReader, ChunkWriter};
use crate::words::Word;

const PART: &str = "integers";
/// The tag of a constant.
const CONSTANT: u8 = 0;
/// Vectors sampled to choose an encoding, evenly spread.
const SAMPLE_VECTORS: usize = 32;

/// Defines [`Sequence`] and all that depends on its encoding, from the list of encodings.
macro_rules! define_sequence {
    ($(
        $(#[$doc:meta])* $variant:ident = $name:literal, $weight:literal
        $(, Sequence::$sequence:ident($codec:ty) = $tag:literal)?;
    )+) => {
        /// An encoded sequence of `u64`.
        #[derive(Clone, Debug)]
        pub enum Sequence {
            /// One value for all rows.
            Constant(u64),
            $($(
                #[doc = concat!("The encoding `", $name, "`.")]
                $sequence($codec),
            )?)+
        }

        /// The encodings of integer sequences, cheapest to decode first.
        pub(crate) const KINDS: &[Encoding] = &[$($(Encoding::$sequence,)?)+];

        /// Encodes `values` by `encoding`, which is one of [`KINDS`].
        pub(crate) fn encode_as(encoding: Encoding, values: &[u64], nesting: usize) -> ChunkWriter {
            let mut out = ChunkWriter::default();
            match encoding {
                $($(Encoding::$sequence => {
                    out.u8($tag);
                    <$codec>::encode(values, nesting, &mut out);
                })?)+
                _ => return encode_as(Encoding::Ffor, values, nesting),
            }
            out
        }

        /// Estimated bytes of `values` in an encoding, computed without packing; `None` if it is not worth trying.
        fn size_as(encoding: Encoding, values: &[u64], nesting: usize) -> Option<usize> {
            match encoding {
                $($(Encoding::$sequence => <$codec>::size(values, nesting),)?)+
                _ => None,
            }
        }

        /// The cost of `values` in `bytes` bytes of an encoding when encodings are compared.
        pub(crate) fn with_work(encoding: Encoding, bytes: usize, values: &[u64]) -> usize {
            match encoding {
                $($(Encoding::$sequence => bytes + <$codec>::work(values),)?)+
                _ => bytes,
            }
        }

        /// Returns true if columns of booleans may have this encoding of integers.
        pub(crate) fn stores_booleans(encoding: Encoding) -> bool {
            match encoding {
                $($(Encoding::$sequence => <$codec>::STORES_BOOLEANS,)?)+
                _ => false,
            }
        }

        /// Returns true if the bytes of values depend on their runs.
        fn size_follows_runs(encoding: Encoding) -> bool {
            match encoding {
                $($(Encoding::$sequence => <$codec>::SIZE_FOLLOWS_RUNS,)?)+
                _ => false,
            }
        }

        impl RunSequence for Sequence {
            fn encode(values: &[u64], nesting: usize) -> ChunkWriter {
                encode_smallest(values, nesting, |_, bytes| bytes)
            }

            fn size(values: &[u64], nesting: usize) -> usize {
                smallest_size(values, nesting)
            }

            fn parse(reader: &mut ChunkReader, len: usize, nesting: usize) -> Result<Self> {
                reader.nested(|reader| match reader.u8()? {
                    CONSTANT => Ok(Self::Constant(reader.u64()?)),
                    $($($tag => Ok(Self::$sequence(SequenceCodec::parse(reader, len, nesting)?)),)?)+
                    tag => Err(corrupt(PART, format!("an encoding tag of {tag}"))),
                })
            }

            fn describe(&self) -> String {
                let described = match self {
                    Self::Constant(_) => None,
                    $($(Self::$sequence(codec) => <$codec>::describe(codec),)?)+
                };
                described.unwrap_or_else(|| self.encoding().to_string())
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
                    Self::Constant(value) => {
                        out.fill(reference.plus(*value));
                        Ok(())
                    }
                    $($(Self::$sequence(codec) => <$codec>::decode(codec, vector, reference, runs, out),)?)+
                }
            }

            fn memory_size(&self) -> usize {
                match self {
                    Self::Rle(runs) => runs.memory_size(),
                    Self::Sparse(exceptions) => exceptions.memory_size(),
                    _ => 0,
                }
            }

            #[inline]
            fn in_range_next(
                &self,
                vector: usize,
                low: u64,
                high: u64,
                runs: &mut SpareRuns<u64>,
                out: &mut Mask,
            ) -> Result<()> {
                self.in_range(vector, low, high, runs, out)
            }
        }

        impl Sequence {
            pub(crate) fn encoding(&self) -> Encoding {
                match self {
                    Self::Constant(_) => Encoding::Constant,
                    $($(Self::$sequence(_) => Encoding::$sequence,)?)+
                }
            }

            /// As [`SequenceCodec::select`].
            pub(crate) fn select<T: Word>(
                &self,
                selected: &Selected,
                reference: T,
                scratch: &mut Scratch<T>,
                out: &mut Vec<T>,
            ) -> Result<()> {
                match self {
                    Self::Constant(value) => {
                        out.extend(std::iter::repeat_n(reference.plus(*value), selected.count));
                        Ok(())
                    }
                    $($(Self::$sequence(codec) => <$codec>::select(codec, selected, reference, scratch, out),)?)+
                }
            }

            /// As [`SequenceCodec::pick`].
            fn pick_of<T: Word>(
                &self,
                vector: usize,
                rows: &[u32],
                reference: T,
                scratch: &mut Scratch<T>,
                out: &mut [T],
            ) -> Result<()> {
                match self {
                    Self::Constant(value) => {
                        out.fill(reference.plus(*value));
                        Ok(())
                    }
                    $($(Self::$sequence(codec) => <$codec>::pick(codec, vector, rows, reference, scratch, out),)?)+
                }
            }

            /// As [`SequenceCodec::prefetch`].
            fn prefetch(&self, vector: usize, rows: &[u32]) {
                match self {
                    Self::Constant(_) => {}
                    $($(Self::$sequence(codec) => <$codec>::prefetch(codec, vector, rows),)?)+
                }
            }

            /// As [`SequenceCodec::in_range`].
            pub(crate) fn in_range(
                &self,
                vector: usize,
                low: u64,
                high: u64,
                runs: &mut SpareRuns<u64>,
                out: &mut Mask,
            ) -> Result<()> {
                match self {
                    Self::Constant(value) => {
                        let is_inside = (low..=high).contains(value);
                        out.fill(if is_inside { u64::MAX } else { 0 });
                        Ok(())
                    }
                    $($(Self::$sequence(codec) => <$codec>::in_range(codec, vector, low, high, runs, out),)?)+
                }
            }

            /// The largest value of a whole vector; `None` if that requires decoding it.
            fn largest_of(&self, vector: usize) -> Option<u64> {
                match self {
                    Self::Constant(value) => Some(*value),
                    $($(Self::$sequence(codec) => <$codec>::largest(codec, vector),)?)+
                }
            }

            /// As [`SequenceCodec::upper_bound`].
            fn upper_bound_of(&self, vector: usize) -> Option<u64> {
                match self {
                    Self::Constant(value) => Some(*value),
                    $($(Self::$sequence(codec) => <$codec>::upper_bound(codec, vector),)?)+
                }
            }
        }
    };
}

for_each_encoding!(define_sequence);

/// Encodes `values` by `encoding`, or in the best one. They are stored as a constant if they are equal.
pub(crate) fn encode(values: &[u64], encoding: Option<Encoding>) -> ChunkWriter {
    match (encoding, constant_of(values)) {
        (Some(encoding), None) => encode_as(encoding, values, 0),
        _ => encode_smallest(values, 0, |encoding, bytes| {
            with_work(encoding, bytes, values)
        }),
    }
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
    if let Some(value) = constant_of(values) {
        return constant(value);
    }
    let sizes = sizes(values, nesting).into_iter();
    let counted = sizes.map(|(encoding, bytes)| (encoding, counted(encoding, bytes)));
    encode_as(Encoding::smallest(counted), values, nesting)
}

/// The value of all of `values`; any if there are none.
fn constant_of(values: &[u64]) -> Option<u64> {
    let first = values.first().copied().unwrap_or(0);
    values.iter().all(|value| *value == first).then_some(first)
}

fn constant(value: u64) -> ChunkWriter {
    let mut out = ChunkWriter::default();
    out.u8(CONSTANT);
    out.u64(value);
    out
}

/// Runs are few if there is at most one for this many rows.
const FEW_RUNS: usize = 4;

/// Estimated bytes of `values` in each of [`KINDS`] worth trying: from a sample, unless runs or exceptions are few.
pub(crate) fn sizes(values: &[u64], nesting: usize) -> Vec<(Encoding, usize)> {
    let sample = sample(values, SAMPLE_VECTORS);
    if nesting >= MAX_NESTING {
        let bytes = ffor::Ffor::size(&sample, nesting).unwrap_or(0);
        let bytes = scaled(bytes, values.len(), sample.len());
        return vec![(Encoding::Ffor, bytes)];
    }
    let is_all = sample.len() == values.len();
    let mut sizes: Vec<(Encoding, usize)> = vec![];
    for kind in kinds_of(nesting) {
        if kind == Encoding::Rle && !is_all && count_runs(values) * FEW_RUNS <= values.len() {
            sizes.extend(size_as(kind, values, nesting).map(|bytes| (kind, bytes)));
            continue;
        }
        let Some(of_sample) = size_as(kind, &sample, nesting) else {
            continue;
        };
        let mut bytes = match kind {
            _ if is_all => of_sample,
            _ if size_follows_runs(kind) => {
                scaled(of_sample, count_runs(values), count_runs(&sample))
            }
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
    KINDS.iter().copied().filter(is_tried)
}

fn scaled(bytes: usize, of: usize, sampled: usize) -> usize {
    (bytes as u128 * of as u128 / sampled.max(1) as u128) as usize
}

/// Estimated bytes of `values` in the smallest encoding.
fn smallest_size(values: &[u64], nesting: usize) -> usize {
    if values.iter().all(|value| Some(value) == values.first()) {
        return constant(0).len();
    }
    let sizes = sizes(values, nesting).into_iter();
    sizes.map(|(_, bytes)| bytes).min().unwrap_or(0)
}

impl Sequence {
    /// Bytes of memory that parsing took, and that decoding may take, beyond those of the chunk.
    pub fn memory_size(&self) -> usize {
        RunSequence::memory_size(self)
    }

    pub(crate) fn parse(reader: &mut ChunkReader, len: usize) -> Result<Self> {
        RunSequence::parse(reader, len, 0)
    }

    pub(crate) fn describe(&self) -> String {
        RunSequence::describe(self)
    }

    /// Decodes a vector as `reference + offset`. Entries beyond the end are arbitrary.
    pub(crate) fn decode<T: Word>(
        &self,
        vector: usize,
        reference: T,
        out: &mut [T; VECTOR_LEN],
    ) -> Result<()> {
        self.decode_next(vector, reference, &mut None, out)
    }

    /// Appends the values of any range of rows.
    pub(crate) fn decode_range<T: Word>(
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

    /// The largest of the first `rows` entries, decoded; 0 if there are none.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) for runs that do not tile a vector.
    pub fn largest(&self, rows: usize) -> Result<u64> {
        self.largest_by(rows, Self::largest_of)
    }

    /// None of the first `rows` entries is larger. It has no more bits than the largest, unless this is in a vector whose
    /// smallest entry is larger than 0. Takes less time than [`largest`](Self::largest) if entries are packed.
    ///
    /// # Errors
    ///
    /// As [`largest`](Self::largest).
    pub(crate) fn upper_bound(&self, rows: usize) -> Result<u64> {
        self.largest_by(rows, Self::upper_bound_of)
    }

    fn largest_by(
        &self,
        rows: usize,
        of_vector: impl Fn(&Self, usize) -> Option<u64>,
    ) -> Result<u64> {
        let mut largest = 0;
        let (mut runs, mut entries) = (None, [0; VECTOR_LEN]);
        for vector in 0..rows.div_ceil(VECTOR_LEN) {
            let live = VECTOR_LEN.min(rows - vector * VECTOR_LEN);
            let of_whole = if live == VECTOR_LEN {
                of_vector(self, vector)
            } else {
                None
            };
            let of_vector = match of_whole {
                Some(of_vector) => of_vector,
                None => {
                    self.decode_next(vector, 0, &mut runs, &mut entries)?;
                    entries[..live].iter().fold(0, |a, b| a.max(*b))
                }
            };
            largest = largest.max(of_vector);
        }
        Ok(largest)
    }
}

/// Reads entries of a sequence as `reference + entry`, wrapping. It keeps decoded runs, as the next vector may need the
/// rest of them.
pub struct SequenceReader<'a> {
    sequence: &'a Sequence,
    reference: i64,
    /// Only for this sequence and reference. `None` before the first use.
    scratch: Cell<Option<Box<Scratch<i64>>>>,
}

impl<'a> SequenceReader<'a> {
    /// A reader of all entries.
    pub fn new(sequence: &'a Sequence, reference: i64) -> Self {
        Self {
            sequence,
            reference,
            scratch: Cell::default(),
        }
    }

    /// Decodes a vector. Entries beyond the end are arbitrary.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`](crate::Error::Corrupt) for runs that do not tile the vector.
    pub fn decode(&self, vector: usize, out: &mut [i64; VECTOR_LEN]) -> Result<()> {
        self.with_scratch(|scratch| {
            let runs = &mut scratch.runs;
            self.sequence.decode_next(vector, self.reference, runs, out)
        })
    }

    /// Decodes single rows: as many as `out` has. `rows` ascend, and may repeat.
    ///
    /// # Errors
    ///
    /// As [`decode`](Self::decode).
    pub fn pick(&self, rows: &[u32], out: &mut [i64]) -> Result<()> {
        let vector_of = |rows: &[u32]| rows.first().map_or(0, |row| *row as usize / VECTOR_LEN);
        let by_vector = rows.chunk_by(|a, b| *a as usize / VECTOR_LEN == *b as usize / VECTOR_LEN);
        let mut by_vector = by_vector.peekable();
        self.with_scratch(|scratch| {
            let mut out = out;
            while let Some(rows) = by_vector.next() {
                if let Some(next) = by_vector.peek() {
                    self.sequence.prefetch(vector_of(next), next);
                }
                let of_vector = out.split_off_mut(..rows.len().min(out.len()));
                let (of_vector, reference) = (of_vector.unwrap_or_default(), self.reference);
                self.sequence
                    .pick_of(vector_of(rows), rows, reference, scratch, of_vector)?;
            }
            Ok(())
        })
    }

    fn with_scratch<R>(&self, read: impl FnOnce(&mut Scratch<i64>) -> R) -> R {
        let mut scratch = self.scratch.take().unwrap_or_default();
        let result = read(&mut scratch);
        self.scratch.set(Some(scratch));
        result
    }
}

/// Sets with more ranges of consecutive values than this are looked up value by value.
const MAX_RANGES: usize = 4;
/// Sets spread over at most this many values are looked up in a bitmap.
const MAX_BITMAP: u64 = 1 << 20;

impl Sequence {
    /// Keeps the selected rows whose value is one of `set`, which ascends.
    pub(crate) fn filter_in(
        &self,
        set: &[u64],
        negated: bool,
        selection: &mut Selection,
    ) -> Result<()> {
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
