//! `sparse`: the value of most rows, and exceptions with their rows. Loses to
//! `ffor` if more than a few rows in a hundred are exceptions, to `rle` if these stand together.
//!
//! ```text
//! header   u64 the value of most rows, u64 number of exceptions
//! buffer   u16 number of exceptions in each vector, 0..=1024
//! then     the exceptions, then the row in its vector of each, as integer sequences
//! ```
//!
//! Bits per value: (value + 10 bits) for each exception, 16 bits a vector.

use crate::VECTOR_LEN;
use crate::codecs::sequence_codec::{
    RUNS_A_BYTE, RunSequence, Runs, SequenceCodec, SpareRuns, check_nesting, parse_starts,
};
use crate::error::{Error, Result, ensure};
use crate::masks::{Mask, set_bit};
use crate::wire::{ChunkReader, ChunkWriter, le_bytes};
use crate::words::Word;

const PART: &str = "sparse";

/// The value of more than half of `values`, if there is one (Boyer and Moore's vote).
fn majority(values: &[u64]) -> u64 {
    let vote = |(kept, lead): (u64, usize), value: &u64| match lead {
        _ if *value == kept => (kept, lead + 1),
        0 => (*value, 1),
        _ => (kept, lead - 1),
    };
    values.iter().fold((0, 0), vote).0
}

/// The number of exceptions.
fn count_exceptions(values: &[u64]) -> usize {
    let most = majority(values);
    values.iter().filter(|value| **value != most).count()
}

/// The values other than `most`, their rows, and their number per vector.
fn exceptions(values: &[u64], most: u64) -> (Vec<u64>, Vec<u64>, Vec<u16>) {
    let (mut exceptions, mut rows, mut counts) = (vec![], vec![], vec![]);
    for vector in values.chunks(VECTOR_LEN) {
        let before = exceptions.len();
        for (row, value) in (0u64..).zip(vector).filter(|(_, value)| **value != most) {
            exceptions.push(*value);
            rows.push(row);
        }
        counts.push((exceptions.len() - before) as u16);
    }
    (exceptions, rows, counts)
}

/// A parsed sequence. Invariant: `starts` ascends, has an entry more than there are vectors, and
/// ends with the number of exceptions.
#[derive(Clone, Debug)]
pub struct Sparse<S> {
    value: u64,
    starts: Vec<u32>,
    exceptions: Box<S>,
    rows: Box<S>,
}

impl<S: RunSequence> SequenceCodec for Sparse<S> {
    const STORES_BOOLEANS: bool = true;

    fn encode(values: &[u64], nesting: usize, out: &mut ChunkWriter) {
        let most = majority(values);
        let (exceptions, rows, counts) = exceptions(values, most);
        out.u64(most);
        out.u64(exceptions.len() as u64);
        out.buffer(le_bytes(&counts, |count| count.to_le_bytes()));
        out.append(S::encode(&exceptions, nesting + 1));
        out.append(S::encode(&rows, nesting + 1));
    }

    /// `None` unless most values are equal.
    fn size(values: &[u64], nesting: usize) -> Option<usize> {
        if count_exceptions(values) > values.len().div_ceil(2) {
            return None;
        }
        let (exceptions, rows, counts) = exceptions(values, majority(values));
        let parts = S::size(&exceptions, nesting + 1) + S::size(&rows, nesting + 1);
        Some(24 + 2 * counts.len() + parts)
    }

    fn work(values: &[u64]) -> usize {
        count_exceptions(values) / RUNS_A_BYTE
    }

    fn parse(reader: &mut ChunkReader, len: usize, nesting: usize) -> Result<Self> {
        check_nesting(nesting)?;
        let value = reader.u64()?;
        let exceptions = reader.count(len, PART)?;
        let starts = parse_starts(reader, len, exceptions, 0..=VECTOR_LEN, (PART, "others"))?;
        Ok(Self {
            value,
            starts,
            exceptions: Box::new(S::parse(reader, exceptions, nesting + 1)?),
            rows: Box::new(S::parse(reader, exceptions, nesting + 1)?),
        })
    }

    fn describe(&self) -> Option<String> {
        let (exceptions, rows) = (self.exceptions.describe(), self.rows.describe());
        Some(format!("sparse({exceptions}, {rows})"))
    }

    fn decode<T: Word>(
        &self,
        vector: usize,
        reference: T,
        runs: &mut SpareRuns<T>,
        out: &mut [T; VECTOR_LEN],
    ) -> Result<()> {
        out.fill(reference.plus(self.value));
        self.for_each_exception(vector, reference, runs, |row, value| out[row] = value)
    }

    fn in_range(
        &self,
        vector: usize,
        low: u64,
        high: u64,
        runs: &mut SpareRuns<u64>,
        out: &mut Mask,
    ) -> Result<()> {
        let is_in = |value| (low..=high).contains(&value);
        out.fill(if is_in(self.value) { u64::MAX } else { 0 });
        self.for_each_exception(vector, 0, runs, |row, value| {
            set_bit(out, row, is_in(value))
        })
    }
}

#[expect(
    private_bounds,
    reason = "the only sequence outside of this crate is `Sequence`"
)]
impl<S: RunSequence> Sparse<S> {
    /// Bytes of memory that parsing took, and that decoding may take, beyond those of the chunk.
    pub(crate) fn memory_size(&self) -> usize {
        let own = size_of_val(&self.starts[..]);
        own + self.exceptions.memory_size() + self.rows.memory_size()
    }

    /// The value of most rows.
    pub fn value(&self) -> u64 {
        self.value
    }

    /// Calls `visit` with each vector that has exceptions, and all of its entries.
    ///
    /// # Errors
    ///
    /// [`Error::Corrupt`] for rows outside of a vector; errors of `visit`.
    pub fn for_each_uneven<E: From<Error>>(
        &self,
        mut visit: impl FnMut(usize, &[u64; VECTOR_LEN]) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut decoded = None;
        let mut entries = [0; VECTOR_LEN];
        for (vector, starts) in self.starts.windows(2).enumerate() {
            if starts[0] < starts[1] {
                self.decode(vector, 0, &mut decoded, &mut entries)?;
                visit(vector, &entries)?;
            }
        }
        Ok(())
    }

    /// Calls `visit` with the row and the value of each exception of a vector.
    fn for_each_exception<T: Word>(
        &self,
        vector: usize,
        reference: T,
        runs: &mut SpareRuns<T>,
        mut visit: impl FnMut(usize, T),
    ) -> Result<()> {
        let runs = runs.get_or_insert_default();
        let start = |i: usize| self.starts.get(i).map_or(0, |s| *s as usize);
        let (mut exception, end) = (start(vector), start(vector + 1));
        while exception < end {
            let Runs {
                values, lengths, ..
            } = &mut **runs;
            let values = values.load(&*self.exceptions, exception, end, reference)?;
            let rows = lengths.load(&*self.rows, exception, end, 0)?;
            for (value, row) in values.iter().zip(rows) {
                ensure(*row < VECTOR_LEN as u64, PART, || {
                    format!("row {row} of a vector")
                })?;
                visit(*row as usize, *value);
            }
            exception += values.len();
        }
        Ok(())
    }
}
