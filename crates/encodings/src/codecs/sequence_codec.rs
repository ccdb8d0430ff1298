//! The trait of encodings of integer sequences, and what decoding keeps from one vector to the next.

use std::ops::RangeInclusive;

use crate::VECTOR_LEN;
use crate::bitpack::{Words, words_in_range};
use crate::error::{Result, corrupt, ensure};
use crate::masks::Mask;
use crate::selection::Selected;
use crate::wire::{ChunkReader, ChunkWriter, u16_at};
use crate::words::Word;

/// The depth limit of nested choices (the run values of run values ...): no run is stored in more runs. A vector of
/// runs may take two vectors of the next level to decode, so each level doubles the time.
pub(crate) const MAX_NESTING: usize = 2;

/// This many runs, exceptions of `sparse`, or differences cost as much as a byte when encodings are compared: a core
/// takes 4 ns for a run and 1.6 for a difference, but unpacks a value in 0.2.
pub(crate) const RUNS_A_BYTE: usize = 5;
pub(crate) const DIFFERENCES_A_BYTE: usize = 16;

/// Parses the number of runs or exceptions of each vector: each within `each`, in total `all`. Returns the index of the first
/// of each vector, and then `all`. Errors name the `part`, and call the counted things `what`.
pub(crate) fn parse_starts(
    reader: &mut ChunkReader,
    len: usize,
    all: usize,
    each: RangeInclusive<usize>,
    (part, what): (&'static str, &str),
) -> Result<Vec<u32>> {
    let vectors = len.div_ceil(VECTOR_LEN);
    let counts = reader.buffer_of(vectors.saturating_mul(2), part)?;
    let mut starts = Vec::with_capacity(vectors + 1);
    let mut total = 0u32;
    starts.push(0);
    for vector in 0..vectors {
        let count = u16_at(&counts, vector);
        ensure(each.contains(&usize::from(count)), part, || {
            format!("{count} {what} in a vector")
        })?;
        total = total.saturating_add(u32::from(count));
        starts.push(total);
    }
    ensure(total as usize == all, part, || {
        format!("{total} {what} in the vectors, {all} in all")
    })?;
    Ok(starts)
}

/// An encoding of sequences of `u64`, in its parsed form. A row of the list in `encoding` names its type.
///
/// `nesting` is the number of encodings that a sequence is a part of.
pub(crate) trait SequenceCodec: Sized {
    /// True if columns of booleans may be encoded.
    const STORES_BOOLEANS: bool = false;
    /// True if the bytes of values depend on their runs, not on their number.
    const SIZE_FOLLOWS_RUNS: bool = false;

    /// Appends `values`.
    fn encode(values: &[u64], nesting: usize, out: &mut ChunkWriter);

    /// Estimated bytes that [`encode`](Self::encode) appends, computed without packing; `None` if it is not worth
    /// trying.
    fn size(values: &[u64], nesting: usize) -> Option<usize>;

    /// The cost of decoding `values`, in bytes, beyond that of reading them.
    fn work(_values: &[u64]) -> usize {
        0
    }

    /// Parses a sequence of `len` values, and checks all that decoding does not.
    fn parse(reader: &mut ChunkReader, len: usize, nesting: usize) -> Result<Self>;

    /// Its name with those of its parts; `None` if it has no parts.
    fn describe(&self) -> Option<String> {
        None
    }

    /// Decodes a vector as `reference + value`. Values beyond the end are arbitrary. `runs` is only for this sequence
    /// and reference, and caches runs that the next vector may need.
    fn decode<T: Word>(
        &self,
        vector: usize,
        reference: T,
        runs: &mut SpareRuns<T>,
        out: &mut [T; VECTOR_LEN],
    ) -> Result<()>;

    /// Appends the selected values of a vector. `scratch` is only for this sequence and reference.
    fn select<T: Word>(
        &self,
        selected: &Selected,
        reference: T,
        scratch: &mut Scratch<T>,
        out: &mut Vec<T>,
    ) -> Result<()> {
        let Scratch { values, runs, .. } = scratch;
        self.decode(selected.vector, reference, runs, values)?;
        selected.append(values, out);
        Ok(())
    }

    /// Decodes single rows of a vector as `reference + value`: as many as `out` has. `rows` are those of the sequence;
    /// they ascend, and may repeat. `scratch` is only for this sequence and reference.
    fn pick<T: Word>(
        &self,
        vector: usize,
        rows: &[u32],
        reference: T,
        scratch: &mut Scratch<T>,
        out: &mut [T],
    ) -> Result<()> {
        let Scratch { values, runs, .. } = scratch;
        self.decode(vector, reference, runs, values)?;
        let pairs = out.iter_mut().zip(rows);
        pairs.for_each(|(out, row)| *out = values[*row as usize % VECTOR_LEN]);
        Ok(())
    }

    /// Starts loading what [`pick`](Self::pick) will read, if few rows are picked: their bytes are too far apart for the
    /// processor to load them ahead by itself.
    fn prefetch(&self, _vector: usize, _rows: &[u32]) {}

    /// Sets a bit per row of a vector whose value is in `low..=high`. Bits beyond the end are arbitrary. `runs` is as in
    /// [`decode`](Self::decode), without a reference.
    fn in_range(
        &self,
        vector: usize,
        low: u64,
        high: u64,
        runs: &mut SpareRuns<u64>,
        out: &mut Mask,
    ) -> Result<()> {
        if low > high {
            out.fill(0);
            return Ok(());
        }
        let mut values = [0; VECTOR_LEN];
        self.decode(vector, 0, runs, &mut values)?;
        words_in_range(&values, low, high, out);
        Ok(())
    }

    /// The largest value of a whole vector; `None` if that requires decoding it.
    fn largest(&self, _vector: usize) -> Option<u64> {
        None
    }

    /// No value of a whole vector is larger; `None` if that requires decoding it.
    fn upper_bound(&self, vector: usize) -> Option<u64> {
        self.largest(vector)
    }
}

/// A sequence in any encoding, for encodings whose parts are sequences.
pub(crate) trait RunSequence: Sized {
    /// Encodes `values`, whose nesting is as in [`SequenceCodec`].
    fn encode(values: &[u64], nesting: usize) -> ChunkWriter;
    /// Estimated bytes of the encoding.
    fn size(values: &[u64], nesting: usize) -> usize;
    /// Parses a sequence of `len` values.
    fn parse(reader: &mut ChunkReader, len: usize, nesting: usize) -> Result<Self>;
    /// The names of its encodings.
    fn describe(&self) -> String;
    /// Bytes of memory that parsing took, and that decoding may take, beyond those of the chunk.
    fn memory_size(&self) -> usize;
    /// As [`SequenceCodec::decode`].
    fn decode_next<T: Word>(
        &self,
        vector: usize,
        reference: T,
        runs: &mut SpareRuns<T>,
        out: &mut [T; VECTOR_LEN],
    ) -> Result<()>;
    /// As [`SequenceCodec::in_range`].
    fn in_range_next(
        &self,
        vector: usize,
        low: u64,
        high: u64,
        runs: &mut SpareRuns<u64>,
        out: &mut Mask,
    ) -> Result<()>;
}

/// Checks that a sequence of this nesting may have parts.
pub(crate) fn check_nesting(nesting: usize) -> Result<()> {
    match nesting < MAX_NESTING {
        true => Ok(()),
        false => Err(corrupt(
            "integers",
            format!("runs nested deeper than {MAX_NESTING}"),
        )),
    }
}

/// State that [`SequenceCodec::select`] keeps from one vector of a sequence to the next.
pub(crate) struct Scratch<T> {
    pub values: [T; VECTOR_LEN],
    pub words: Words,
    pub runs: SpareRuns<T>,
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

/// [`Runs`] created on first use.
pub(crate) type SpareRuns<T> = Option<Box<Runs<T>>>;

/// The runs decoded last: those of a vector of rows are rarely a whole vector of runs, and the next vector uses the
/// rest.
pub(crate) struct Runs<T> {
    pub values: DecodedVector<T>,
    pub lengths: DecodedVector<u64>,
    /// The runs whose values are in a range.
    pub in_range: RunsInRange,
    /// The starts of the runs of a vector, and the end of the last one.
    pub bounds: Vec<u32>,
    /// The values of the runs of a vector that were not decoded together.
    pub spare: [T; VECTOR_LEN],
}

impl<T: Word> Default for Runs<T> {
    fn default() -> Self {
        Self {
            values: DecodedVector::default(),
            lengths: DecodedVector::default(),
            in_range: RunsInRange::default(),
            bounds: Vec::new(),
            spare: [T::default(); VECTOR_LEN],
        }
    }
}

/// The vector of a sequence that was decoded last.
pub(crate) struct DecodedVector<T> {
    vector: Option<usize>,
    entries: [T; VECTOR_LEN],
    /// For the runs that the sequence consists of.
    runs: SpareRuns<T>,
}

impl<T: Word> Default for DecodedVector<T> {
    fn default() -> Self {
        Self {
            vector: None,
            entries: [T::default(); VECTOR_LEN],
            runs: None,
        }
    }
}

impl<T: Word> DecodedVector<T> {
    /// The entries of `sequence` from `first` on, up to `end` or the end of the vector.
    #[inline]
    pub fn load<S: RunSequence>(
        &mut self,
        sequence: &S,
        first: usize,
        end: usize,
        reference: T,
    ) -> Result<&[T]> {
        let vector = first / VECTOR_LEN;
        if self.vector != Some(vector) {
            self.vector = None;
            sequence.decode_next(vector, reference, &mut self.runs, &mut self.entries)?;
            self.vector = Some(vector);
        }
        let from = first % VECTOR_LEN;
        Ok(&self.entries[from..(from + end - first).min(VECTOR_LEN)])
    }
}

/// The entries of a vector of a sequence that are in a range.
#[derive(Default)]
pub(crate) struct RunsInRange {
    /// The vector, and the range.
    of: Option<(usize, u64, u64)>,
    mask: Mask,
    runs: SpareRuns<u64>,
}

impl RunsInRange {
    /// The entries of a vector of `sequence` that are in `low..=high`.
    #[inline]
    pub fn load<S: RunSequence>(
        &mut self,
        sequence: &S,
        vector: usize,
        low: u64,
        high: u64,
    ) -> Result<&Mask> {
        let of = Some((vector, low, high));
        if self.of != of {
            self.of = None;
            sequence.in_range_next(vector, low, high, &mut self.runs, &mut self.mask)?;
            self.of = of;
        }
        Ok(&self.mask)
    }
}
