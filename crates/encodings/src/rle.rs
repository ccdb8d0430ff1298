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

use crate::VECTOR_LEN;
use crate::bitpack::Mask;
use crate::error::{Result, corrupt, ensure};
use crate::ints::{self, Ints, Word};
use crate::selection::set_bit;
use crate::wire::{ChunkReader, ChunkWriter, le_bytes, u16_at};

const PART: &str = "rle";

/// Appends `values`.
pub(crate) fn encode(values: &[u64], nesting: usize, out: &mut ChunkWriter) {
    let (mut runs, mut lengths, mut counts) = (vec![], vec![], vec![]);
    for vector in values.chunks(VECTOR_LEN) {
        let before = runs.len();
        for run in vector.chunk_by(|a, b| a == b) {
            runs.extend(run.first());
            lengths.push(run.len() as u64 - 1);
        }
        counts.push((runs.len() - before) as u16);
    }
    out.u64(runs.len() as u64);
    out.buffer(le_bytes(&counts, |count| count.to_le_bytes()));
    out.append(ints::encode(&runs, nesting));
    out.append(ints::encode(&lengths, nesting));
}

/// A parsed sequence. Invariant: `starts` ascends, has an entry more than there are vectors, and
/// ends with the number of runs.
#[derive(Clone, Debug)]
pub(crate) struct Rle {
    len: usize,
    starts: Vec<u32>,
    values: Ints,
    lengths: Ints,
}

impl Rle {
    pub fn parse(reader: &mut ChunkReader, len: usize) -> Result<Self> {
        let runs = reader.count(len, PART)?;
        let vectors = len.div_ceil(VECTOR_LEN);
        let counts = reader.buffer_of(vectors.saturating_mul(2), PART)?;
        let mut starts = Vec::with_capacity(vectors + 1);
        let mut total = 0u32;
        starts.push(0);
        for vector in 0..vectors {
            let count = u16_at(&counts, vector);
            ensure((1..=VECTOR_LEN).contains(&usize::from(count)), PART, || {
                format!("{count} runs in a vector")
            })?;
            total = total.saturating_add(u32::from(count));
            starts.push(total);
        }
        ensure(total as usize == runs, PART, || {
            format!("{total} runs in the vectors, {runs} in all")
        })?;
        Ok(Self {
            len,
            starts,
            values: Ints::parse(reader, runs)?,
            lengths: Ints::parse(reader, runs)?,
        })
    }

    pub fn describe(&self) -> String {
        format!(
            "rle({}, {})",
            self.values.describe(),
            self.lengths.describe()
        )
    }

    pub fn decode<T: Word>(
        &self,
        vector: usize,
        reference: T,
        out: &mut [T; VECTOR_LEN],
    ) -> Result<()> {
        let mut values = Vec::with_capacity(VECTOR_LEN);
        self.values
            .decode_range(self.runs(vector), reference, &mut values)?;
        let mut values = values.into_iter();
        self.for_each_run(vector, |rows| {
            if let Some(value) = values.next() {
                out[rows].fill(value);
            }
        })
    }

    pub fn in_range(&self, vector: usize, low: u64, high: u64, out: &mut Mask) -> Result<()> {
        let mut values = Vec::with_capacity(VECTOR_LEN);
        self.values
            .decode_range(self.runs(vector), 0u64, &mut values)?;
        let mut values = values.into_iter();
        out.fill(0);
        self.for_each_run(vector, |rows| {
            if values
                .next()
                .is_some_and(|value| (low..=high).contains(&value))
            {
                rows.for_each(|row| set_bit(out, row, true));
            }
        })
    }

    fn runs(&self, vector: usize) -> std::ops::Range<usize> {
        let start = |i: usize| self.starts.get(i).map_or(0, |s| *s as usize);
        start(vector)..start(vector + 1).max(start(vector))
    }

    /// Calls `visit` with the rows of each run; they must tile the vector.
    fn for_each_run(
        &self,
        vector: usize,
        mut visit: impl FnMut(std::ops::Range<usize>),
    ) -> Result<()> {
        let mut lengths = Vec::with_capacity(VECTOR_LEN);
        self.lengths
            .decode_range(self.runs(vector), 0u64, &mut lengths)?;
        let rows = (self.len - vector * VECTOR_LEN).min(VECTOR_LEN);
        let mut next = 0;
        for length in lengths {
            let length = length.saturating_add(1);
            if length > (rows - next) as u64 {
                return Err(corrupt(
                    PART,
                    format!("a run of {length} from row {next} of {rows}"),
                ));
            }
            visit(next..next + length as usize);
            next += length as usize;
        }
        ensure(next == rows, PART, || {
            format!("runs of {next} rows in a vector of {rows}")
        })
    }
}
