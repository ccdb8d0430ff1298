//! One launch of a kernel: parameters, output addresses, and the results copied back.

use std::ops::Range;
use std::sync::Arc;

use arrow::datatypes::DataType;
use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::alp_integers;

use super::execution::{Execution, Prepared};
use super::parameters::Parameters;
use super::tables::{DevicePayload, DeviceTable};
use crate::error::{Error, Result};
use crate::kernel::{
    AccumulationScope, Argument, FIXED_ARGUMENTS, GROUP_WORDS, SLOT_VECTORS, TABLE_WORDS,
};
use crate::runtime::{Batch, DeviceBuffer, Event, Launch, Stream, StreamContext};
use vectile_kernels::{ColumnTraits, SCALES};
use vectile_pipeline::{KeyTable, PayloadColumn};

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
        let slots = GROUP_WORDS
            + self.pipeline.columns.len()
            + TABLE_WORDS * prepared.tables.len()
            + prepared.code_tests.len();
        let mut parameters = Parameters::default();
        let groups_at = parameters.next_offset();
        parameters.bytes.resize(part.len() * slots * 8, 0);
        let mut sent_at = vec![];
        let (bindings, arguments) = (&prepared.bindings, &prepared.loaded.layout.arguments);
        for argument in arguments {
            if let Argument::Scales { column, low, high } = *argument {
                sent_at.push(parameters.next_offset());
                let data_type = &self.pipeline.columns[column];
                let used = &batch.columns()[column].traits;
                let ends = [low, high].map(|end| bindings.constants[end] as i64);
                scales(&mut parameters, data_type, used, ends)?;
            }
        }
        let code_tests = prepared.code_tests.iter();
        let tables_at: Vec<Vec<u64>> = code_tests
            .map(|code_tests| code_tests.append(part.clone(), &mut parameters))
            .collect();
        let tables = prepared.tables.iter();
        let lookups_at: Vec<_> = tables
            .map(|table| table.append(part.clone(), &mut parameters))
            .collect();
        let words_at = parameters.next_offset();
        request.words.iter().for_each(|word| parameters.word(*word));
        let bytes_at = parameters.next_offset().next_multiple_of(256);
        let scratch = context.scratch(&self.engine, bytes_at as usize + request.bytes)?;
        let outputs = outputs(ScratchAddresses {
            words: scratch + words_at,
            bytes: scratch + bytes_at,
        });

        let unit = match prepared.plan.per {
            AccumulationScope::Slot => VECTOR_LEN * SLOT_VECTORS,
            AccumulationScope::Warp | AccumulationScope::Block { .. } => VECTOR_LEN,
        };
        let (mut first, mut first_row) = (0u64, 0u64);
        let mut words = Vec::with_capacity(part.len() * slots);
        for index in part.clone() {
            let rows = batch.rows()[index];
            words.extend([first, rows as u64, first_row]);
            words.extend(
                batch
                    .columns()
                    .iter()
                    .map(|column_batch| column_batch.addresses[index]),
            );
            for (table, offsets) in prepared.tables.iter().zip(&lookups_at) {
                words.extend(table.words(index, offsets, scratch));
            }
            for (code_tests, offsets) in prepared.code_tests.iter().zip(&tables_at) {
                words.push(code_tests.word(index, offsets, scratch));
            }
            first += rows.div_ceil(unit) as u64;
            first_row += rows as u64;
        }
        for column_batch in batch.columns() {
            let bytes: usize = column_batch.bytes[part.clone()].iter().sum();
            self.statistics.bytes_scanned += bytes as u64;
        }
        let table = parameters.bytes.as_chunks_mut::<8>().0.iter_mut();
        table
            .zip(words)
            .for_each(|(to, word)| *to = word.to_le_bytes());

        let mut args = vec![
            first,
            scratch + groups_at,
            part.len() as u64,
            outputs.out,
            outputs.masks,
            outputs.counts,
        ];
        debug_assert_eq!(args.len(), FIXED_ARGUMENTS);
        let mut sent_at = sent_at.into_iter();
        // tables that arguments name live until the kernel is done
        let mut held: Vec<Arc<DeviceBuffer>> = vec![];
        let mut table_of = |codes: &KeyTable| {
            let table = DeviceTable::of(codes, &self.engine)?;
            held.push(table.memory);
            Ok::<_, Error>(table.words)
        };
        let mut held_attributes: Vec<Arc<DeviceBuffer>> = vec![];
        let mut attribute_of = |attribute: &PayloadColumn| {
            let of = DevicePayload::of(attribute, &self.engine)?;
            held_attributes.push(of.memory);
            Ok::<_, Error>((of.values, of.validity))
        };
        for argument in arguments {
            args.push(match *argument {
                Argument::BlockBytes => bindings.block_bytes.into(),
                Argument::TableAt => bindings.table_at.into(),
                Argument::TextAt(test) => prepared.text_at[test].unwrap_or(u64::MAX),
                Argument::Low(constant) => bindings.constants[constant] as u64,
                Argument::High(constant) => (bindings.constants[constant] >> 64) as u64,
                Argument::CopyAt(copy) => bindings.copies[copy].at.into(),
                Argument::CopyWords(copy) => bindings.copies[copy].bytes as u64 / 4,
                Argument::CopyOf(copy) => {
                    let codes = &self.pipeline.lookups[bindings.copies[copy].lookup].key_table;
                    table_of(codes)?[0]
                }
                Argument::TableWord(table, word) => table_of(&bindings.tables[table])?[word],
                Argument::KeyFirst(key) => bindings.digits()[key].first as u64,
                Argument::KeyNull(key) => bindings.digits()[key].count - 1,
                Argument::Stride(key) => bindings.stride(key),
                Argument::Groups => prepared.groups,
                Argument::Entries => prepared.table_entries(),
                Argument::Values(attribute) => attribute_of(&bindings.attributes[attribute])?.0,
                Argument::Validity(attribute) => attribute_of(&bindings.attributes[attribute])?.1,
                Argument::Scales { .. } => scratch + sent_at.next().unwrap_or(0),
            });
        }
        let launch = Launch {
            grid: prepared.grid,
            block: prepared.plan.threads(),
            shared: prepared.shared_bytes,
            args: &args,
        };

        // arrays share the copied-back memory: without a copy, and without new pages from the system
        let (from, len) = outputs.back;
        let mut back = self.engine.host_pool().take(len)?;
        let to = back.as_mut_slice().as_mut_ptr();
        let sent = parameters.bytes.len();
        let staging = context.staging(&self.engine, sent)?;
        staging[..sent].copy_from_slice(&parameters.bytes);
        let pinned = staging.as_ptr();
        let enqueue = |stream: &mut dyn Stream| -> Result<(Event, Event)> {
            self.engine.wait_for(stream, batch)?;
            // SAFETY: scratch, staging and the buffer are as long as requested; they, the memory that `outputs` names,
            // the tables in `held` and `prepared` and the chunks of `batch` live until the stream is done, which is
            // waited for below. The kernel was generated for these arguments: columns of these traits, tables and
            // outputs of these sizes. `Batch::check` has made sure that the columns are of the pipeline's types and on
            // this engine's device.
            unsafe {
                stream.copy_in(scratch, pinned, sent)?;
                if let Some((address, bytes)) = outputs.clear {
                    stream.fill(address, 0, bytes)?;
                }
                let events = stream.launch_timed(prepared.loaded.kernel.as_ref(), launch)?;
                stream.copy_out(to, from, len)?;
                Ok(events)
            }
        };
        let events = context.finish(enqueue);
        drop((held, held_attributes));
        let events = events?;
        self.engine.arrived(batch);
        self.statistics.kernel += context.between(&events)?;
        self.statistics.launches += 1;
        self.statistics.bytes_returned += len as u64;
        Ok(back)
    }
}

/// Appends the range of integers for each scale in use.
fn scales(
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
