//! Selected rows of a column of text or binary.
//!
//! Two kernels, which read no other column: the first gives the length of each selected string, or its code where it is
//! one of a dictionary. The sums of lengths say where the strings of each vector belong, and the second decodes them
//! there. `kernels/text/decode.cuh` is the device's side.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array, new_empty_array, new_null_array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{TakeOptions, take};
use vectile_kernels::Transform;

use super::execution::{Execution, Prepared};
use super::launch::{Outputs, Wanted};
use crate::error::{Error, Result};
use crate::kernel::Task;
use crate::plan::{Expr, Filter, Output, Pipeline};
use crate::runtime::{Batch, Lane, Piece};

/// Bytes of strings that a launch gives: the offsets of most types of arrays reach no further.
const MOST_BYTES: u64 = i32::MAX as u64;

/// A column of strings, of which rows are put out.
pub(super) struct Strings {
    /// Over this column alone, so that queries over other columns have the same kernels.
    execution: Execution,
    batch: Batch,
    lengths: Prepared,
    /// Nothing if all of them are in dictionaries.
    strings: Option<Prepared>,
}

/// Which rows of some groups are wanted.
pub(super) struct WantedRows<'a> {
    /// Where their bits are on the device; nowhere if all of them are.
    pub masks: u64,
    /// For each vector, how many rows before it are wanted.
    pub places: &'a [u64],
    /// How many rows of each group are wanted.
    pub counts: &'a [usize],
}

/// What came back of the rows of some groups.
struct Found {
    /// Words for lengths or codes, and a byte for each that says whether it is valid, begin there in what came back.
    lengths_at: usize,
    valid_at: Option<usize>,
    rows: Arc<Piece>,
    /// The bytes of strings.
    bytes: Option<Arc<Piece>>,
}

impl Strings {
    /// Makes kernels for a column of the batch.
    pub fn prepare(of: &Execution, column: usize, batch: &Batch) -> Result<Self> {
        let pipeline = Pipeline {
            columns: vec![of.pipeline.columns[column].clone()],
            lookups: vec![],
            filter: Filter::Constant(true),
            output: Output::Rows(vec![Expr::Column(0)]),
        };
        let mut execution = of.part(Arc::new(pipeline), column);
        let stack = Arc::clone(&batch.columns()[column]);
        let has_text = stack.traits.has(Transform::Text);
        let batch = Batch::new(batch.rows().into(), vec![stack])?;
        let lengths = execution.prepare(&batch, Task::Lengths)?;
        let strings = has_text.then(|| execution.prepare(&batch, Task::Strings));
        Ok(Self {
            strings: strings.transpose()?,
            execution,
            batch,
            lengths,
        })
    }

    /// Adds what it took to an execution.
    pub fn count(&self, to: &mut Execution) {
        to.statistics += self.execution.statistics;
    }

    /// The wanted rows of some groups, an array for each group.
    pub fn arrays(
        &mut self,
        wanted: &WantedRows,
        part: Range<usize>,
        lane: &mut Lane,
    ) -> Result<Vec<ArrayRef>> {
        let stack = Arc::clone(&self.batch.columns()[0]);
        let data_type = &self.execution.pipeline.columns[0];
        let rows: usize = wanted.counts.iter().sum();
        if rows == 0 {
            let empty = wanted.counts.iter().map(|_| new_empty_array(data_type));
            return Ok(empty.collect());
        }
        let found = self.find(wanted, rows, part.clone(), lane)?;
        let (mut row, mut byte) = (0, 0);
        let groups = wanted.counts.iter().zip(part);
        let arrays = groups.map(|(count, group)| {
            let rows = row..row + count;
            row = rows.end;
            let nulls = found.nulls(rows.clone());
            let dictionary = &stack.dictionaries[stack.dictionary_of[group]];
            if let Some(dictionary) = dictionary {
                return entries_at(&dictionary.entries, found.lengths(rows), nulls);
            }
            let mut end = 0usize;
            let ends = found.lengths(rows).map(|length| {
                end += length as usize;
                end
            });
            let ends: Vec<usize> = ends.collect();
            let bytes = byte..byte + end;
            byte = bytes.end;
            let data = found.bytes.as_ref().map(|piece| piece.buffer(bytes));
            let data_type = &self.execution.pipeline.columns[0];
            Ok(vectile_encodings::strings(
                data_type,
                data.unwrap_or_default(),
                &ends,
                nulls,
            )?)
        });
        arrays.collect()
    }

    /// Runs both kernels.
    fn find(
        &mut self,
        wanted: &WantedRows,
        rows: usize,
        part: Range<usize>,
        lane: &mut Lane,
    ) -> Result<Found> {
        let (masks, vectors) = (wanted.masks, wanted.places.len());
        let engine = Arc::clone(&self.execution.engine);
        let sum_bytes = vectors * 8;
        let lengths_at = sum_bytes.next_multiple_of(256);
        let valid_at = lengths_at + rows * 4;
        let is_nullable = self.lengths.plan.columns[0].traits.nullable();
        let bytes = valid_at + if is_nullable { rows } else { 0 };
        let result = engine.take(bytes)?;
        let start = result.address();
        let mut words = vec![start + lengths_at as u64, start + valid_at as u64, start];
        let table_bytes = words.len() as u64 * 8;
        words.extend(wanted.places);
        let own = Wanted { words, bytes: 0 };
        let (execution, batch) = (&mut self.execution, &self.batch);
        let rows = execution.run(&self.lengths, batch, part.clone(), lane, own, |got| {
            Outputs {
                out: got.words,
                masks,
                counts: got.words + table_bytes,
                clear: Some((start, sum_bytes)),
                back: (start, bytes),
            }
        })?;
        let sums = rows.as_slice().as_chunks::<8>().0.iter().take(vectors);
        let mut total = 0u64;
        let places = sums.map(|sum| {
            let place = total;
            total += u64::from_le_bytes(*sum);
            place
        });
        let words: Vec<u64> = places.collect();
        if total > MOST_BYTES {
            let reason = format!("{total} bytes of strings in one launch");
            return Err(Error::Unsupported(reason));
        }
        let bytes = match &self.strings {
            Some(strings) if total > 0 => {
                let len = total as usize;
                let result = engine.take(len)?;
                let own = Wanted { words, bytes: 0 };
                let back = execution.run(strings, batch, part, lane, own, |got| Outputs {
                    out: result.address(),
                    masks,
                    counts: got.words,
                    clear: None,
                    back: (result.address(), len),
                })?;
                Some(Arc::new(back))
            }
            _ => None,
        };
        Ok(Found {
            lengths_at,
            valid_at: is_nullable.then_some(valid_at),
            rows: Arc::new(rows),
            bytes,
        })
    }
}

impl Found {
    /// Lengths, or codes, of some rows.
    fn lengths(&self, rows: Range<usize>) -> impl Iterator<Item = u32> {
        let words = self
            .rows
            .as_slice()
            .get(self.lengths_at..)
            .unwrap_or_default();
        let words = words.as_chunks::<4>().0.get(rows).unwrap_or_default();
        words.iter().map(|word| u32::from_le_bytes(*word))
    }

    fn nulls(&self, rows: Range<usize>) -> Option<NullBuffer> {
        let valid = self.rows.as_slice().get(self.valid_at?..)?.get(rows)?;
        let bits: BooleanBuffer = valid.iter().map(|byte| *byte != 0).collect();
        Some(NullBuffer::new(bits))
    }
}

/// Entries of a dictionary.
fn entries_at(
    entries: &ArrayRef,
    codes: impl Iterator<Item = u32>,
    nulls: Option<NullBuffer>,
) -> Result<ArrayRef> {
    let codes = UInt32Array::new(codes.collect(), nulls);
    if entries.is_empty() && codes.null_count() == codes.len() {
        return Ok(new_null_array(entries.data_type(), codes.len()));
    }
    let options = TakeOptions { check_bounds: true };
    Ok(take(entries, &codes, Some(options)).map_err(vectile_encodings::Error::from)?)
}
