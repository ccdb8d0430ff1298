//! Dictionary-encodes strings without a dictionary, so that they can be keys of groups and joins.
//!
//! The device decodes all strings of a column, inserts them in a hash table, which compares their bytes, and numbers
//! them in the order of their first rows. The distinct strings come back as the entries of a dictionary, and each
//! chunk gets a second chunk with their codes. `kernels/text/distinct.cuh` is the device's side.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::concat;
use vectile_encodings::VECTOR_LEN;
use vectile_kernels::{DeviceChunk, DistinctStep, NumberedChunk, Transform};

use super::execution::{Execution, TABLE_SHARE};
use super::rows::{first_rows, offsets_and_counts};
use super::strings::{Decoded, RowSelection, Strings};
use super::tables::{on_device, write_words};
use crate::error::{Error, Result};
use crate::runtime::{
    Batch, ColumnBatch, DeviceBuffer, Engine, FixedKernel, Kernel, Launch, Resident, Stream,
    StreamContext, own,
};
use vectile_pipeline::Pipeline;

/// Limit of the strings of a dictionary.
const MOST_ENTRIES: usize = 1 << 24;
/// Limit of their bytes in host memory.
const MOST_BYTES: usize = 1 << 30;
/// Minimum number of hash table slots for each string.
const SLOTS_PER_ENTRY: usize = 2;
const MASK_BYTES: usize = VECTOR_LEN / 8;
const WARPS: usize = 8;
/// Bytes of an offset or a number.
const WORD: usize = 4;
/// Indices of arguments whose meaning depends on the step.
const MASKS: usize = 10;
const COUNTS: usize = 11;

impl Execution {
    /// Returns true if the pipeline has keys or functions of text for which dictionary values have to be numbered.
    pub(super) fn needs_codes(&self, batch: &Batch) -> bool {
        let is_text = |column: usize| {
            let column = batch.columns().get(column);
            column.is_some_and(|column| column.traits.has(Transform::Text))
        };
        self.original.has_text_functions() || self.original.key_columns().into_iter().any(is_text)
    }

    /// Returns the batch with one more column for each key column that has text in no dictionary: its dictionary
    /// codes, computed unless they are cached. From then on the pipeline's keys refer to the new columns, and functions of
    /// text are lookups.
    pub(super) fn with_codes(&mut self, batch: Batch) -> Result<Batch> {
        let original = Arc::clone(&self.original);
        batch.check(&original.columns, self.engine.pool())?;
        let mut columns = batch.columns().to_vec();
        let mut pipeline = Pipeline::clone(&original);
        for column in original.key_columns() {
            let is_text = batch.columns()[column].traits.has(Transform::Text);
            if is_text && pipeline.key_columns().contains(&column) {
                columns.push(coded(self, column, &batch.columns()[column])?);
                pipeline = pipeline.with_key_column(column, columns.len() - 1);
                pipeline.columns.push(original.columns[column].clone());
            }
        }
        if columns.len() == batch.columns().len() && !original.has_text_functions() {
            self.pipeline = original;
            return Ok(batch);
        }
        self.pipeline = Arc::new(self.with_text_functions(pipeline, &columns)?);
        Batch::new(batch.rows().into(), columns)
    }
}

/// The column with dictionaries for all chunks, of which some were text.
fn coded(
    of: &mut Execution,
    column: usize,
    column_batch: &ColumnBatch,
) -> Result<Arc<ColumnBatch>> {
    column_batch.coded(|| {
        let texts = Arc::new(column_batch.texts()?);
        column_batch.with_codes(codes_of(of, column, &texts)?)
    })
}

/// Computes chunks of codes for chunks of text.
fn codes_of(
    of: &mut Execution,
    column: usize,
    texts: &Arc<ColumnBatch>,
) -> Result<Vec<Arc<Resident>>> {
    let engine = &Arc::clone(&of.engine);
    let kernel = engine.fixed_kernel(FixedKernel::Distinct, of.may_compile)?;
    let mut strings = Strings::prepare(of, column, texts)?;
    let mut context = engine.stream_context()?;
    let firsts = first_rows(&texts.rows);
    let all = RowSelection {
        masks: 0,
        offsets: &firsts,
        counts: &texts.rows,
    };
    let most = engine.memory_limit() / TABLE_SHARE;
    let decoded = strings.decode(&all, 0..texts.len(), &mut context, most)?;
    let mut numbering = Numbering::new(&*kernel, engine, texts, &firsts, &decoded)?;
    numbering.insert(&mut context)?;
    let (offsets_before, counts) = numbering.mark(texts, &mut context)?;
    let selection = RowSelection {
        masks: numbering.masks.address(),
        offsets: &offsets_before,
        counts: &counts,
    };
    let entries = strings.arrays(&selection, 0..texts.len(), &mut context)?;
    let entries: Vec<&dyn Array> = entries.iter().map(AsRef::as_ref).collect();
    let bytes = entries.iter().map(|of| of.get_array_memory_size());
    if bytes.sum::<usize>() > MOST_BYTES {
        let reason = format!("more than {MOST_BYTES} bytes of different strings");
        return Err(Error::Unsupported(reason));
    }
    let entries = concat(&entries).map_err(vectile_encodings::Error::from)?;
    numbering.number(&offsets_before, &mut context)?;
    let codes = numbering.pack(texts, &own(&entries), &mut context)?;
    engine.give_back(context);
    strings.count(of);
    Ok(codes)
}

/// Copies words to the device's memory.
fn words_on_device(engine: &Engine, words: &[u64]) -> Result<DeviceBuffer> {
    on_device(engine, words.len() * 8, |to| write_words(words, to))
}

/// Arguments and memory of the kernel.
struct Numbering<'a> {
    kernel: &'a dyn Kernel,
    engine: &'a Engine,
    vectors: usize,
    /// Most distinct strings, and slots for them.
    entries: usize,
    slots: usize,
    /// All arguments but step and vectors, in the kernel's order.
    args: [u64; 13],
    table: DeviceBuffer,
    count: DeviceBuffer,
    masks: DeviceBuffer,
    counts: DeviceBuffer,
    _others: [DeviceBuffer; 4],
}

impl<'a> Numbering<'a> {
    /// For the decoded strings of a column. `firsts` has the first row of each vector.
    fn new(
        kernel: &'a dyn Kernel,
        engine: &'a Engine,
        texts: &ColumnBatch,
        firsts: &[u64],
        decoded: &Decoded,
    ) -> Result<Self> {
        let before = &decoded.lengths.offsets;
        let mut bytes = before.iter().zip(before.iter().skip(1));
        if bytes.any(|(start, end)| end - start > u32::MAX.into()) {
            return Err(Error::Unsupported("4 GiB of text in a vector".into()));
        }
        let vectors = firsts.len();
        let padded_rows = vectors * VECTOR_LEN;
        if u32::try_from(padded_rows).is_err() {
            return Err(Error::Unsupported(format!("{padded_rows} rows of text")));
        }
        let rows: usize = texts.rows.iter().sum();
        let entries = rows.min(MOST_ENTRIES);
        let slots = (entries * SLOTS_PER_ENTRY).next_power_of_two();
        let words: Vec<u64> = firsts.iter().copied().chain([rows as u64]).collect();
        let words = words_on_device(engine, &[&words, &before[..]].concat())?;
        let starts = engine.take(padded_rows * WORD)?;
        let slot_of = engine.take(padded_rows * WORD)?;
        let numbers = engine.take(slots * WORD)?;
        let table = engine.take(slots * WORD)?;
        let count = engine.take(2 * WORD)?;
        let masks = engine.take(vectors * MASK_BYTES)?;
        let counts = engine.take(vectors * 8)?;
        Ok(Self {
            kernel,
            engine,
            vectors,
            entries,
            slots,
            args: [
                words.address(),
                words.address() + (vectors as u64 + 1) * 8,
                decoded.lengths_at(),
                decoded.valid_at(),
                decoded.strings_at(),
                starts.address(),
                table.address(),
                (slots as u64 - 1) | (entries as u64) << 32,
                slot_of.address(),
                count.address(),
                masks.address(),
                counts.address(),
                numbers.address(),
            ],
            table,
            count,
            masks,
            counts,
            _others: [words, starts, slot_of, numbers],
        })
    }

    /// Inserts each string in the table.
    fn insert(&self, context: &mut StreamContext) -> Result<()> {
        let mut result = self.engine.host_pool().take(2 * WORD)?;
        let to = result.as_mut_slice().as_mut_ptr();
        context.finish(|stream| {
            // SAFETY: filled and copied ranges have these lengths, and live until `finish` is done.
            unsafe {
                stream.fill(self.table.address(), 0xFF, self.slots * WORD)?;
                stream.fill(self.count.address(), 0, 2 * WORD)?;
                self.launch(stream, DistinctStep::Starts)?;
                self.launch(stream, DistinctStep::Insert)?;
                stream.copy_out(to, self.count.address(), 2 * WORD)
            }
        })?;
        if result.as_slice()[WORD..2 * WORD] == [0; WORD] {
            return Ok(());
        }
        let most = self.entries;
        let reason = format!("more than {most} different strings, or some that hash alike");
        Err(Error::Unsupported(reason))
    }

    /// Selects the first row of each string. Returns how many rows are selected before each vector, and in each group.
    fn mark(
        &self,
        texts: &ColumnBatch,
        context: &mut StreamContext,
    ) -> Result<(Vec<u64>, Vec<usize>)> {
        let bytes = self.vectors * 8;
        let mut counts = self.engine.host_pool().take(bytes)?;
        let to = counts.as_mut_slice().as_mut_ptr();
        context.finish(|stream| {
            // SAFETY: as above; `insert` has set the slots of all rows.
            unsafe {
                self.launch(stream, DistinctStep::MarkFirsts)?;
                stream.copy_out(to, self.counts.address(), bytes)
            }
        })?;
        Ok(offsets_and_counts(&counts, &texts.rows))
    }

    /// Numbers the strings.
    fn number(&mut self, offsets_before: &[u64], context: &mut StreamContext) -> Result<()> {
        let offsets_before = words_on_device(self.engine, offsets_before)?;
        self.args[COUNTS] = offsets_before.address();
        // SAFETY: as above; first rows are selected.
        context.finish(|stream| unsafe { self.launch(stream, DistinctStep::Number) })
    }

    /// # Safety
    ///
    /// The arguments are those that `distinct.cuh` names: memory as long as the kernel requires, which lives until the
    /// stream has passed this point and holds the results of earlier steps.
    unsafe fn launch(&self, stream: &mut dyn Stream, step: DistinctStep) -> Result<()> {
        let threads = WARPS as u32 * 32;
        let resident = self.kernel.resident_blocks(threads, 0).max(1);
        let resident = resident.saturating_mul(self.engine.device().multiprocessors.max(1));
        let needed = self.vectors.div_ceil(WARPS).try_into().unwrap_or(u32::MAX);
        let mut args = vec![step as u64, self.vectors as u64];
        args.extend(self.args);
        let launch = Launch {
            grid: resident.min(needed),
            block: threads,
            shared: 0,
            args: &args,
        };
        // SAFETY: as the caller says.
        unsafe { stream.launch(self.kernel, launch) }
    }

    /// Builds chunks of the codes of `entries`.
    fn pack(
        &mut self,
        texts: &ColumnBatch,
        entries: &ArrayRef,
        context: &mut StreamContext,
    ) -> Result<Vec<Arc<Resident>>> {
        let is_nullable = texts.traits.nullable();
        let chunks = texts.rows.iter();
        let chunks = chunks.map(|rows| DeviceChunk::of_codes(*rows, entries, is_nullable));
        let chunks: Vec<DeviceChunk> = chunks.collect::<vectile_kernels::Result<_>>()?;
        let mut end = 0;
        let offsets = chunks.iter().map(|chunk| {
            end += chunk.info().bytes;
            end - chunk.info().bytes
        });
        let offsets: Vec<usize> = offsets.collect();
        let memory = Arc::new(self.engine.take_to_keep(end)?);
        let (mut descriptors, mut vector) = (vec![], 0);
        for (chunk, offset) in chunks.iter().zip(&offsets) {
            let descriptor = NumberedChunk {
                first_vector: vector as u64,
                address: memory.address() + *offset as u64,
            };
            descriptors.extend(descriptor.to_bytes());
            vector += chunk.rows().div_ceil(VECTOR_LEN);
        }
        let descriptors = on_device(self.engine, descriptors.len(), |to| {
            to[..descriptors.len()].copy_from_slice(&descriptors);
        })?;
        self.args[MASKS] = descriptors.address();
        self.args[COUNTS] = chunks.len() as u64;

        let front_bytes = chunks.iter().map(DeviceChunk::front_bytes);
        let mut fronts = self.engine.host_pool().take(front_bytes.sum())?;
        let mut rest = fronts.as_mut_slice();
        let mut copies = vec![];
        for (chunk, offset) in chunks.iter().zip(&offsets) {
            let (front, others) = rest.split_at_mut(chunk.front_bytes());
            chunk.write_front(front, front.len())?;
            copies.push((memory.address() + *offset as u64, &*front));
            rest = others;
        }
        context.finish(|stream| {
            for (to, front) in &copies {
                // SAFETY: a chunk begins with its front, which lives until `finish` is done.
                unsafe { stream.copy_in(*to, front.as_ptr(), front.len()) }?;
            }
            // SAFETY: the chunks are at the addresses in `descriptors`, with the layout that their fronts have.
            unsafe { self.launch(stream, DistinctStep::Pack) }
        })?;
        let residents = chunks.iter().zip(offsets).map(|(chunk, offset)| {
            let info = Arc::new(chunk.info().clone());
            Resident::in_memory(Arc::clone(&memory), offset as u64, info)
        });
        Ok(residents.collect())
    }
}
