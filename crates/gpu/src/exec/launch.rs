//! One launch of a kernel: parameters, output addresses, and the results copied back.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::alp_integers;

use super::execution::{Execution, Prepared};
use super::parameters::Parameters;
use super::tables::{DevicePayload, DeviceTable, SentTableOffsets, write_words};
use crate::error::{Error, Result};
use crate::kernel::{
    AccumulationScope, Argument, FIXED_ARGUMENTS, GROUP_WORDS, SLOT_VECTORS, TABLE_WORDS,
};
use crate::runtime::{Batch, DeviceBuffer, Event, Launch, Stream, StreamContext};
use vectile_kernels::program::PROGRAM_WORDS;
use vectile_kernels::{ColumnTraits, SCALES};
use vectile_pipeline::{KeyTable, PayloadColumn};

/// Bytes for the word that the interpreter sets if a number does not fit 64 bits.
const OVERFLOW_BYTES: usize = 256;

/// Scratch memory of a launch on the device. The next launch overwrites it.
#[derive(Default)]
pub(super) struct ScratchRequest {
    /// Words to copy there.
    pub words: Vec<u64>,
    /// Bytes of uninitialized memory.
    pub bytes: usize,
}

/// Addresses of a launch's scratch memory.
pub(super) struct ScratchAddresses {
    pub words: u64,
    pub bytes: u64,
}

/// Addresses that a kernel writes to, and the range to copy back.
#[derive(Default)]
pub(super) struct Outputs {
    pub out: u64,
    pub masks: u64,
    pub counts: u64,
    /// Address and length of a range to zero before the launch.
    pub clear: Option<(u64, usize)>,
    /// Address and length of the range to copy back.
    pub back: (u64, usize),
}

/// Where the parameters of a launch are in its scratch memory, as offsets. Descriptors of row groups are at the start.
struct Offsets {
    /// For each argument [`Argument::Scales`], in order.
    scales: Vec<u64>,
    /// For each code test and each table.
    code_tests: Vec<Vec<u64>>,
    tables: Vec<Vec<SentTableOffsets>>,
    /// The words of [`ScratchRequest`].
    words: u64,
    /// Its uninitialized bytes, which are not sent.
    bytes: u64,
}

/// A launch whose parameters and arguments are known.
struct Ready {
    parameters: Parameters,
    /// Address that the parameters are copied to.
    scratch: u64,
    /// Address of the word that the interpreter sets if a number does not fit 64 bits.
    overflow: u64,
    arguments: Arguments,
    outputs: Outputs,
}

/// Arguments of a kernel.
struct Arguments {
    words: Vec<u64>,
    /// Key tables and payload columns that the words name. They must live until the kernel is done.
    held: Vec<Arc<DeviceBuffer>>,
}

impl Execution {
    /// Launches a kernel over some of the row groups, and copies back the range that `outputs` names, to the start of
    /// the returned buffer. When this returns, even with an error, no work is left on the stream.
    pub(super) fn run(
        &mut self,
        prepared: &Prepared,
        batch: &Batch,
        part: Range<usize>,
        context: &mut StreamContext,
        request: ScratchRequest,
        outputs: impl FnOnce(ScratchAddresses) -> Outputs,
    ) -> Result<DeviceBuffer> {
        self.check_cancelled()?;
        // offsets first: addresses follow from the memory they require
        let (mut parameters, offsets) = self.placed(prepared, batch, &part, &request.words)?;
        // the interpreter's: a word for overflow, then the scratch memory of warps
        let own_at = (offsets.bytes as usize + request.bytes).next_multiple_of(OVERFLOW_BYTES);
        let own_bytes = match &prepared.loaded.program {
            Some(program) => OVERFLOW_BYTES + program.scratch_bytes * prepared.warps(),
            None => 0,
        };
        let scratch = context.scratch(&self.engine, own_at + own_bytes)?;
        let overflow = scratch + own_at as u64;
        let outputs = outputs(ScratchAddresses {
            words: scratch + offsets.words,
            bytes: scratch + offsets.bytes,
        });
        let (units, descriptors) = descriptors(prepared, batch, part.clone(), &offsets, scratch);
        write_words(&descriptors, &mut parameters.bytes);
        for column_batch in batch.columns() {
            let bytes: usize = column_batch.bytes[part.clone()].iter().sum();
            self.statistics.bytes_scanned += bytes as u64;
        }
        let fixed = [
            units,
            scratch,
            part.len() as u64,
            outputs.out,
            outputs.masks,
            outputs.counts,
        ];
        let scales = offsets.scales.iter().map(|at| scratch + at);
        let ready = Ready {
            arguments: self.arguments(prepared, fixed, scales, overflow)?,
            parameters,
            scratch,
            overflow,
            outputs,
        };
        self.launched(prepared, batch, ready, context)
    }

    /// Places the parameters of a launch: room for descriptors of row groups, then everything that these and the
    /// arguments name.
    fn placed(
        &self,
        prepared: &Prepared,
        batch: &Batch,
        part: &Range<usize>,
        words: &[u64],
    ) -> Result<(Parameters, Offsets)> {
        let slots = GROUP_WORDS
            + self.pipeline.columns.len()
            + TABLE_WORDS * prepared.tables.len()
            + prepared.code_tests.len();
        let mut parameters = Parameters::default();
        parameters.bytes.resize(part.len() * slots * 8, 0);
        let mut scales = vec![];
        for argument in &prepared.loaded.layout.arguments {
            if let Argument::Scales { column, low, high } = *argument {
                scales.push(parameters.next_offset());
                let data_type = &self.pipeline.columns[column];
                let used = &batch.columns()[column].traits;
                let ends = [low, high].map(|end| prepared.bindings.constants[end] as i64);
                append_scales(&mut parameters, data_type, used, ends)?;
            }
        }
        let code_tests = prepared.code_tests.iter();
        let code_tests = code_tests
            .map(|code_tests| code_tests.append(part.clone(), &mut parameters))
            .collect();
        let tables = prepared.tables.iter();
        let tables = tables
            .map(|table| table.append(part.clone(), &mut parameters))
            .collect();
        let words_at = parameters.next_offset();
        words.iter().for_each(|word| parameters.word(*word));
        let offsets = Offsets {
            scales,
            code_tests,
            tables,
            words: words_at,
            bytes: parameters.next_offset().next_multiple_of(256),
        };
        Ok((parameters, offsets))
    }

    /// The arguments of a kernel, in its layout's order: the fixed ones, then its own. `scales` are the addresses of
    /// the tables that [`Argument::Scales`] names, in order, and `overflow` is that of [`Argument::Overflow`], which
    /// [`Argument::Scratch`] follows. The interpreter has its program behind them.
    fn arguments(
        &self,
        prepared: &Prepared,
        fixed: [u64; FIXED_ARGUMENTS],
        mut scales: impl Iterator<Item = u64>,
        overflow: u64,
    ) -> Result<Arguments> {
        let bindings = &prepared.bindings;
        let mut words = fixed.to_vec();
        let mut held = vec![];
        for argument in &prepared.loaded.layout.arguments {
            words.push(match *argument {
                Argument::BlockBytes => bindings.block_bytes.into(),
                Argument::TableAt => bindings.table_at.into(),
                Argument::TextAt(test) => prepared.text_at[test].unwrap_or(u64::MAX),
                Argument::Low(constant) => bindings.constants[constant] as u64,
                Argument::High(constant) => (bindings.constants[constant] >> 64) as u64,
                Argument::Fitting(constant) => {
                    let value = i64::try_from(bindings.constants[constant]);
                    // checked before the interpreter was chosen
                    value.map_err(|_| Error::Overflow)? as u64
                }
                Argument::CopyAt(copy) => bindings.copies[copy].at.into(),
                Argument::CopyWords(copy) => bindings.copies[copy].bytes as u64 / 4,
                Argument::CopyOf(copy) => {
                    let codes = &self.pipeline.lookups[bindings.copies[copy].lookup].key_table;
                    self.table_words(codes, &mut held)?[0]
                }
                Argument::TableWord(table, word) => {
                    self.table_words(&bindings.tables[table], &mut held)?[word]
                }
                Argument::KeyFirst(key) => bindings.digits()[key].first as u64,
                Argument::KeyNull(key) => bindings.digits()[key].count - 1,
                Argument::Stride(key) => bindings.stride(key),
                Argument::SetAt(set) => prepared.sets[set].address,
                Argument::SetEntries(set) => prepared.sets[set].entries,
                Argument::SetFirst(set) => bindings.sets[set].first as u64,
                Argument::SetStride(set) => bindings.sets[set].stride,
                Argument::Groups => prepared.groups,
                Argument::Entries => prepared.table_entries(),
                Argument::Values(attribute) => {
                    self.payload_addresses(&bindings.attributes[attribute], &mut held)?
                        .0
                }
                Argument::Validity(attribute) => {
                    self.payload_addresses(&bindings.attributes[attribute], &mut held)?
                        .1
                }
                Argument::Scales { .. } => scales.next().unwrap_or(0),
                Argument::Overflow => overflow,
                Argument::Scratch => overflow + OVERFLOW_BYTES as u64,
                Argument::WithWarps(number) => {
                    u64::from(number) | u64::from(prepared.warps_per_block) << 32
                }
                Argument::Word(word) => word,
            });
        }
        if let Some(program) = &prepared.loaded.program {
            words.extend(&program.code);
            words.resize(PROGRAM_WORDS, 0);
        }
        Ok(Arguments { words, held })
    }

    /// Makes the program of a plan a wide one from now on: a number did not fit 64 bits.
    fn overflow(&self, prepared: &Prepared) -> Error {
        let widened = self.engine.widen_program(&prepared.plan, &prepared.loaded);
        widened.err().unwrap_or(Error::Overflow)
    }

    /// The words of a key table on the device, whose memory is added to `held`.
    fn table_words(
        &self,
        codes: &KeyTable,
        held: &mut Vec<Arc<DeviceBuffer>>,
    ) -> Result<[u64; TABLE_WORDS]> {
        let table = DeviceTable::of(codes, &self.engine)?;
        held.push(table.memory);
        Ok(table.words)
    }

    /// Addresses of the values of a payload column on the device and of their validity. Their memory is added to
    /// `held`.
    fn payload_addresses(
        &self,
        attribute: &PayloadColumn,
        held: &mut Vec<Arc<DeviceBuffer>>,
    ) -> Result<(u64, u64)> {
        let of = DevicePayload::of(attribute, &self.engine)?;
        held.push(of.memory);
        Ok((of.values, of.validity))
    }

    /// Copies the parameters to the device, launches the kernel, and copies its results back. Waits for all of it, even
    /// after an error. Adds the launch to the statistics.
    fn launched(
        &mut self,
        prepared: &Prepared,
        batch: &Batch,
        ready: Ready,
        context: &mut StreamContext,
    ) -> Result<DeviceBuffer> {
        let launch = Launch {
            grid: prepared.grid,
            block: prepared.warps_per_block * 32,
            shared: prepared.shared_bytes,
            args: &ready.arguments.words,
        };
        // arrays share the copied-back memory: without a copy, and without new pages from the system
        let (from, len) = ready.outputs.back;
        let mut back = self.engine.host_pool().take(len)?;
        let to = back.as_mut_slice().as_mut_ptr();
        let sent = ready.parameters.bytes.len();
        let staging = context.staging(&self.engine, sent)?;
        staging[..sent].copy_from_slice(&ready.parameters.bytes);
        let pinned = staging.as_ptr();
        let is_checked = matches!(&prepared.loaded.program, Some(program) if program.is_checked);
        let overflow_bytes = if is_checked { OVERFLOW_BYTES } else { 0 };
        let mut overflow = self.engine.host_pool().take(overflow_bytes)?;
        let overflow_to = overflow.as_mut_slice().as_mut_ptr();
        let enqueue = |stream: &mut dyn Stream| -> Result<(Event, Event)> {
            self.engine.wait_for(stream, batch)?;
            // SAFETY: scratch, staging and the buffer are as long as requested; they, the memory that `outputs` names,
            // the tables that the arguments and `prepared` hold and the chunks of `batch` live until the stream is
            // done, which is waited for below. The kernel was generated for these arguments: columns of these traits,
            // tables and outputs of these sizes. `Batch::check` has made sure that the columns are of the pipeline's
            // types and on this engine's device.
            unsafe {
                stream.copy_in(ready.scratch, pinned, sent)?;
                if let Some((address, bytes)) = ready.outputs.clear {
                    stream.fill(address, 0, bytes)?;
                }
                if is_checked {
                    stream.fill(ready.overflow, 0, OVERFLOW_BYTES)?;
                }
                let events = stream.launch_timed(prepared.loaded.kernel.as_ref(), launch)?;
                stream.copy_out(to, from, len)?;
                if is_checked {
                    stream.copy_out(overflow_to, ready.overflow, OVERFLOW_BYTES)?;
                }
                Ok(events)
            }
        };
        let events = context.finish(enqueue);
        drop(ready.arguments.held);
        let events = events?;
        self.engine.arrived(batch);
        if is_checked && overflow.as_slice()[..8] != [0; 8] {
            return Err(self.overflow(prepared));
        }
        let time = context.between(&events)?;
        self.statistics.kernel += time;
        self.statistics.launches += 1;
        if prepared.loaded.program.is_some() {
            self.statistics.launches_interpreted += 1;
            if let Some(plan) = &prepared.replacement {
                self.engine.note_interpreted(plan, time);
            }
        }
        self.statistics.bytes_returned += len as u64;
        Ok(back)
    }
}

/// The number of units of work of some row groups, which warps share, and the words that describe these row groups to
/// kernels: the number of its first unit, its rows, the number of its first row; then addresses of columns, words of
/// tables, words of code tests. `scratch` is the address that offsets count from.
fn descriptors(
    prepared: &Prepared,
    batch: &Batch,
    part: Range<usize>,
    offsets: &Offsets,
    scratch: u64,
) -> (u64, Vec<u64>) {
    let unit = match prepared.plan.per {
        AccumulationScope::Slot => VECTOR_LEN * SLOT_VECTORS,
        AccumulationScope::Warp | AccumulationScope::Block { .. } => VECTOR_LEN,
    };
    let (mut first, mut first_row) = (0u64, 0u64);
    let tables = TABLE_WORDS * prepared.tables.len();
    let slots = GROUP_WORDS + batch.columns().len() + tables + prepared.code_tests.len();
    let mut words = Vec::with_capacity(part.len() * slots);
    for index in part {
        let rows = batch.rows()[index];
        words.extend([first, rows as u64, first_row]);
        let columns = batch.columns().iter();
        words.extend(columns.map(|column_batch| column_batch.addresses[index]));
        for (table, offsets) in prepared.tables.iter().zip(&offsets.tables) {
            words.extend(table.words(index, offsets, scratch));
        }
        for (code_tests, offsets) in prepared.code_tests.iter().zip(&offsets.code_tests) {
            words.push(code_tests.word(index, offsets, scratch));
        }
        first += rows.div_ceil(unit) as u64;
        first_row += rows as u64;
    }
    (first, words)
}

/// Appends the range of integers for each scale in use.
fn append_scales(
    parameters: &mut Parameters,
    data_type: &DataType,
    used: &ColumnTraits,
    [low, high]: [i64; 2],
) -> Result<()> {
    let single = data_type == &DataType::Float32;
    let mut table = vec![(1i64, 0i64); SCALES];
    for scale in used.scales.iter().copied() {
        let (exponent, factor) = ((scale / 19) as u8, (scale % 19) as u8);
        if let Some(range) = alp_integers(single, exponent, factor, low, high)? {
            table[usize::from(scale)] = range;
        }
    }
    for (first, last) in table {
        parameters.word(first as u64);
        parameters.word(last as u64);
    }
    Ok(())
}
