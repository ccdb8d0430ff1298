//! Selected rows of a column of text or binary.
//!
//! Two kernels, which read no other column: the first computes the length of each selected string, or its dictionary
//! code. The sums of lengths give the output offset of each vector, and the second kernel, which is the same for all
//! columns, decodes strings there. `kernels/text/decode.cuh` is the device's side.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array, new_empty_array, new_null_array};
use arrow::buffer::{BooleanBuffer, NullBuffer};
use arrow::compute::{TakeOptions, take};
use vectile_kernels::{DecodeChunk, Transform};

use super::execution::{Execution, Prepared, vectors_of};
use super::expansion;
use super::launch::{Outputs, ScratchRequest};
use crate::error::{Error, Result};
use crate::kernel::Task;
use crate::runtime::{
    Batch, ColumnBatch, DeviceBuffer, Engine, FixedKernel, Kernel, Launch, StreamContext,
};
use vectile_pipeline::{Expr, Filter, Output, Pipeline};

/// Limit of the string bytes of a launch: that of the offsets of most array types.
const MOST_BYTES: u64 = i32::MAX as u64;
/// Bytes behind decoded strings that kernels may read.
const SLACK_BYTES: usize = 16;
/// Warps of a block that decodes.
const WARPS: usize = 16;
/// Bytes of shared memory of a block: each warp's buffer for decoded strings, and the index of the next vector.
const STAGES_BYTES: u32 = WARPS as u32 * 2048 + 16;

/// An output column of strings.
pub(super) struct Strings {
    /// Over this column alone, so that queries over other columns share kernels.
    execution: Execution,
    batch: Batch,
    lengths: Prepared,
    /// `None` if all strings are in dictionaries.
    decoder: Option<Decoder>,
}

/// The kernel that decodes, and its arguments.
struct Decoder {
    kernel: Arc<dyn Kernel>,
    /// For each of [`ColumnBatch::symbols`].
    expansions: Vec<Option<Arc<DeviceBuffer>>>,
    /// Bytes of shared memory of a block, and the part of them for an expansion.
    shared: u32,
    room: u32,
}

impl Decoder {
    fn of(column_batch: &ColumnBatch, engine: &Engine, may_compile: bool) -> Result<Self> {
        let expansions = expansion::all(column_batch, engine)?;
        let most = engine.device().shared_memory.saturating_sub(STAGES_BYTES);
        let bytes = expansions.iter().flatten().map(|of| of.bytes() as u32);
        let room = bytes.filter(|bytes| *bytes <= most).max().unwrap_or(0);
        Ok(Self {
            kernel: engine.fixed_kernel(FixedKernel::Decode, may_compile)?,
            expansions,
            shared: STAGES_BYTES + room,
            room,
        })
    }

    /// Blocks for so many vectors: no more than can be resident.
    fn grid(&self, vectors: usize, engine: &Engine) -> u32 {
        let resident = self.kernel.resident_blocks(WARPS as u32 * 32, self.shared);
        let most = resident.max(1) * engine.device().multiprocessors.max(1);
        most.min(vectors.div_ceil(WARPS).try_into().unwrap_or(u32::MAX))
    }

    /// Descriptors of some chunks.
    fn descriptors(&self, column_batch: &ColumnBatch, part: Range<usize>) -> Vec<u8> {
        let mut first = 0;
        let descriptors = part.flat_map(|chunk| {
            let (index, rows) = (column_batch.dictionary_of[chunk], column_batch.rows[chunk]);
            let is_text = column_batch.symbols[index].is_some();
            let expansion = self.expansions[index].as_ref();
            let descriptor = DecodeChunk {
                first_vector: first,
                address: match is_text {
                    true => column_batch.addresses[chunk],
                    false => 0,
                },
                rows: rows as u64,
                expansion: expansion.map_or(0, |of| of.address()),
                expansion_bytes: expansion.map_or(0, |of| of.bytes() as u64),
            };
            first += vectors_of(&[rows]) as u64;
            descriptor.to_bytes()
        });
        descriptors.collect()
    }
}

/// Selected rows of some groups.
pub(super) struct RowSelection<'a> {
    /// Address of their bits on the device; 0 if all rows are selected.
    pub masks: u64,
    /// For each vector, the number of selected rows before it.
    pub offsets: &'a [u64],
    /// Selected rows of each group.
    pub counts: &'a [usize],
}

/// Results of the first kernel.
pub(super) struct Lengths {
    /// For each vector, bytes of the strings before it; and bytes of all strings.
    pub offsets: Vec<u64>,
    total: u64,
    /// Offsets in the memory: a word for each length or code, and a validity byte for each.
    lengths_at: usize,
    valid_at: Option<usize>,
    memory: DeviceBuffer,
    here: DeviceBuffer,
}

/// Decoded strings in device memory.
pub(super) struct Decoded {
    pub lengths: Lengths,
    strings: Option<DeviceBuffer>,
}

/// Copied-back results for the rows of some groups.
struct FetchedStrings {
    /// Offsets in `rows`: a word for each length or code, and a validity byte for each.
    lengths_at: usize,
    valid_at: Option<usize>,
    rows: Arc<DeviceBuffer>,
    /// The bytes of strings.
    bytes: Option<Arc<DeviceBuffer>>,
}

impl Strings {
    /// Prepares kernels for chunks of a column.
    pub fn prepare(of: &Execution, column: usize, column_batch: &Arc<ColumnBatch>) -> Result<Self> {
        let pipeline = Pipeline {
            columns: vec![of.pipeline.columns[column].clone()],
            lookups: vec![],
            matches: vec![],
            filter: Filter::Constant(true),
            output: Output::Rows(vec![Expr::Column(0)]),
        };
        let mut execution = of.part(Arc::new(pipeline), column);
        let has_text = column_batch.traits.has(Transform::Text);
        let batch = Batch::new(
            column_batch.rows.clone().into(),
            vec![Arc::clone(column_batch)],
        )?;
        let lengths = execution.prepare(&batch, Task::Lengths)?;
        let decoder = || Decoder::of(column_batch, &execution.engine, execution.may_compile);
        Ok(Self {
            decoder: has_text.then(decoder).transpose()?,
            execution,
            batch,
            lengths,
        })
    }

    /// Adds its statistics to an execution.
    pub fn count(&self, to: &mut Execution) {
        to.statistics += self.execution.statistics;
    }

    /// The selected rows of some groups, an array for each group.
    pub fn arrays(
        &mut self,
        selection: &RowSelection,
        part: Range<usize>,
        context: &mut StreamContext,
    ) -> Result<Vec<ArrayRef>> {
        let column_batch = Arc::clone(&self.batch.columns()[0]);
        let data_type = &self.execution.pipeline.columns[0];
        let rows: usize = selection.counts.iter().sum();
        if rows == 0 {
            let empty = selection.counts.iter().map(|_| new_empty_array(data_type));
            return Ok(empty.collect());
        }
        let fetched = self.find(selection, part.clone(), context)?;
        let (mut row, mut byte) = (0, 0);
        let groups = selection.counts.iter().zip(part);
        let arrays = groups.map(|(count, group)| {
            let rows = row..row + count;
            row = rows.end;
            let nulls = fetched.nulls(rows.clone());
            let dictionary = &column_batch.dictionaries[column_batch.dictionary_of[group]];
            if let Some(dictionary) = dictionary {
                return entries_at(&dictionary.entries, fetched.lengths(rows), nulls);
            }
            let mut end = 0usize;
            let ends = fetched.lengths(rows).map(|length| {
                end += length as usize;
                end
            });
            let ends: Vec<usize> = ends.collect();
            let bytes = byte..byte + end;
            byte = bytes.end;
            let data = fetched.bytes.as_ref().map(|buffer| buffer.buffer(bytes));
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
        selection: &RowSelection,
        part: Range<usize>,
        context: &mut StreamContext,
    ) -> Result<FetchedStrings> {
        let lengths = self.lengths(selection, part.clone(), context, true)?;
        if lengths.total > MOST_BYTES {
            let reason = format!("{} bytes of strings in one launch", lengths.total);
            return Err(Error::Unsupported(reason));
        }
        let len = lengths.total as usize;
        let strings = self.strings(selection, part, context, &lengths, len)?;
        Ok(FetchedStrings {
            lengths_at: lengths.lengths_at,
            valid_at: lengths.valid_at,
            rows: Arc::new(lengths.here),
            bytes: strings.map(|(_, here)| Arc::new(here)),
        })
    }

    /// Decodes selected strings, which stay on the device. Returns an error if lengths and strings take more than
    /// `most` bytes.
    pub fn decode(
        &mut self,
        selection: &RowSelection,
        part: Range<usize>,
        context: &mut StreamContext,
        most: u64,
    ) -> Result<Decoded> {
        let lengths = self.lengths(selection, part.clone(), context, false)?;
        let bytes = lengths.total.saturating_add(lengths.memory.bytes() as u64);
        if bytes > most {
            let reason = format!("{bytes} bytes of strings, at most {most} of device memory");
            return Err(Error::Unsupported(reason));
        }
        let strings = self.strings(selection, part, context, &lengths, 0)?;
        Ok(Decoded {
            strings: strings.map(|(memory, _)| memory),
            lengths,
        })
    }

    /// Runs the first kernel. Copies back all of its results, or only the sums.
    fn lengths(
        &mut self,
        selection: &RowSelection,
        part: Range<usize>,
        context: &mut StreamContext,
        is_all_back: bool,
    ) -> Result<Lengths> {
        let rows: usize = selection.counts.iter().sum();
        let vectors = selection.offsets.len();
        let sum_bytes = vectors * 8;
        let lengths_at = sum_bytes.next_multiple_of(256);
        let valid_at = lengths_at + rows * 4;
        let is_nullable = self.lengths.plan.columns[0].traits.nullable();
        let bytes = valid_at + if is_nullable { rows } else { 0 };
        let memory = self.execution.engine.take(bytes)?;
        let start = memory.address();
        let mut words = vec![start + lengths_at as u64, start + valid_at as u64, start];
        let table_bytes = words.len() as u64 * 8;
        words.extend(selection.offsets);
        let own = ScratchRequest { words, bytes: 0 };
        let (execution, batch) = (&mut self.execution, &self.batch);
        let here = execution.run(&self.lengths, batch, part, context, own, |scratch| {
            Outputs {
                out: scratch.words,
                masks: selection.masks,
                counts: scratch.words + table_bytes,
                clear: Some((start, sum_bytes)),
                back: (start, if is_all_back { bytes } else { sum_bytes }),
            }
        })?;
        let mut total = 0u64;
        let sums = here.as_slice().as_chunks::<8>().0.iter().take(vectors);
        let offsets = sums.map(|sum| {
            let offset = total;
            total = total.saturating_add(u64::from_le_bytes(*sum));
            offset
        });
        Ok(Lengths {
            offsets: offsets.collect(),
            total,
            lengths_at,
            valid_at: is_nullable.then_some(valid_at),
            memory,
            here,
        })
    }

    /// Runs the second kernel, unless all lengths are 0, and copies `back` bytes back. Returns the device's memory,
    /// and the copy.
    fn strings(
        &mut self,
        selection: &RowSelection,
        part: Range<usize>,
        context: &mut StreamContext,
        lengths: &Lengths,
        back: usize,
    ) -> Result<Option<(DeviceBuffer, DeviceBuffer)>> {
        let Some(decoder) = self.decoder.as_ref().filter(|_| lengths.total > 0) else {
            return Ok(None);
        };
        let execution = &mut self.execution;
        execution.check_cancelled()?;
        let engine = Arc::clone(&execution.engine);
        let bytes = usize::try_from(lengths.total).unwrap_or(usize::MAX);
        let memory = engine.take(bytes.saturating_add(SLACK_BYTES))?;
        let column_batch = &self.batch.columns()[0];
        let (chunks, vectors) = (part.len() as u64, lengths.offsets.len());
        let mut input = decoder.descriptors(column_batch, part.clone());
        let places_at = input.len() as u64;
        let offsets = lengths.offsets.iter().chain([&lengths.total]);
        input.extend(offsets.flat_map(|offset| offset.to_le_bytes()));
        let scratch = context.scratch(&engine, input.len())?;
        let staging = context.staging(&engine, input.len())?;
        staging[..input.len()].copy_from_slice(&input);
        let pinned = staging.as_ptr();
        let launch = Launch {
            grid: decoder.grid(vectors, &engine),
            block: WARPS as u32 * 32,
            shared: decoder.shared,
            args: &[
                vectors as u64,
                scratch,
                chunks,
                memory.address(),
                selection.masks,
                scratch + places_at,
                decoder.room.into(),
            ],
        };
        let mut here = engine.host_pool().take(back)?;
        let to = here.as_mut_slice().as_mut_ptr();
        let events = context.finish(|stream| {
            engine.wait_for(stream, &self.batch)?;
            // SAFETY: the arguments are those that `decode.cuh` names: chunks that were checked before they were
            // copied to the device, with their expansions; masks for their vectors, and offsets by which the memory
            // has room for the bytes of each. All of it lives until the stream is done.
            unsafe {
                stream.copy_in(scratch, pinned, input.len())?;
                let events = stream.launch_timed(decoder.kernel.as_ref(), launch)?;
                stream.copy_out(to, memory.address(), back)?;
                Ok(events)
            }
        })?;
        engine.arrived(&self.batch);
        let statistics = &mut execution.statistics;
        statistics.kernel += context.between(&events)?;
        statistics.launches += 1;
        statistics.bytes_scanned += column_batch.bytes[part].iter().sum::<usize>() as u64;
        statistics.bytes_returned += back as u64;
        Ok(Some((memory, here)))
    }
}

impl Decoded {
    /// Address of the lengths: a word for each row.
    pub fn lengths_at(&self) -> u64 {
        self.lengths.memory.address() + self.lengths.lengths_at as u64
    }

    /// Address of the validity, a byte for each row; 0 if all rows are valid.
    pub fn valid_at(&self) -> u64 {
        let at = self.lengths.valid_at;
        at.map_or(0, |at| self.lengths.memory.address() + at as u64)
    }

    /// Address of the concatenated strings.
    pub fn strings_at(&self) -> u64 {
        self.strings.as_ref().map_or(0, DeviceBuffer::address)
    }
}

impl FetchedStrings {
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
