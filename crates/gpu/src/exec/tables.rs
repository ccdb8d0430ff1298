//! Key tables that kernels look up: on the device, or built for the current dictionaries and sent along with a launch.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;

use super::parameters::Parameters;
use crate::error::Result;
use crate::kernel::{TABLE_WORDS, TablePlan, TableSource};
use crate::runtime::{Batch, ColumnBatch, DeviceBuffer, Engine, Entries};
use vectile_pipeline::join::{CodeTable, DictionaryCodes};
use vectile_pipeline::{KeyTable, PayloadColumn, Pipeline};

/// The codes of dictionaries with as many values stay on the device.
const MOST_SENT: usize = 1 << 12;

/// A lookup's table for each row group.
pub(super) struct LookupTables {
    /// One for each dictionary, and one for values without a dictionary.
    unique: Vec<LookupTable>,
    /// For each row group, its index in `unique`.
    of_group: Arc<[usize]>,
}

/// A key table on the device.
pub(super) struct DeviceTable {
    /// Words for kernels: bits, codes, first key, number of slots; for a hash table keys, codes, the empty slot, its
    /// size.
    pub words: [u64; TABLE_WORDS],
    /// Keeps the table alive.
    pub memory: Arc<DeviceBuffer>,
}

enum LookupTable {
    Device(DeviceTable),
    /// For the codes of a dictionary.
    Sent {
        bits: Vec<u32>,
        codes: CodeTable,
        len: usize,
    },
}

/// Offsets of a table that is sent along.
#[derive(Clone, Copy, Default)]
pub(super) struct SentTableOffsets {
    bits: u64,
    codes: u64,
}

/// Writes words in the kernels' byte order.
pub(super) fn write_words(words: &[u64], to: &mut [u8]) {
    let words_out = to.as_chunks_mut::<8>().0.iter_mut().zip(words);
    words_out.for_each(|(to, word)| *to = word.to_le_bytes());
}

/// Allocates device memory with the bytes that `write` writes.
pub(super) fn on_device(
    engine: &Engine,
    bytes: usize,
    write: impl FnOnce(&mut [u8]),
) -> Result<DeviceBuffer> {
    let buffer = engine.take(bytes)?;
    fill(engine, &buffer, bytes, write)?;
    Ok(buffer)
}

/// As [`on_device`], for memory that is kept between queries.
pub(super) fn kept_on_device(
    engine: &Engine,
    bytes: usize,
    write: impl FnOnce(&mut [u8]),
) -> Result<DeviceBuffer> {
    let buffer = engine.take_to_keep(bytes)?;
    fill(engine, &buffer, bytes, write)?;
    Ok(buffer)
}

fn fill(
    engine: &Engine,
    buffer: &DeviceBuffer,
    bytes: usize,
    write: impl FnOnce(&mut [u8]),
) -> Result<()> {
    let mut host = engine.host_pool().take(bytes)?;
    write(host.as_mut_slice());
    let mut context = engine.stream_context()?;
    let from = host.as_slice().as_ptr();
    // SAFETY: both have these bytes, and live until the stream is done.
    context.finish(|stream| unsafe { stream.copy_in(buffer.address(), from, bytes) })?;
    engine.give_back(context);
    Ok(())
}

/// Offset of the validity bytes behind so many values.
pub(super) fn validity_at(values: usize, width: usize) -> usize {
    (values * width).next_multiple_of(256)
}

/// A payload column on the device.
pub(super) struct DevicePayload {
    /// Address of the values.
    pub values: u64,
    /// Address of their validity, a byte each.
    pub validity: u64,
    /// Keeps both alive.
    pub memory: Arc<DeviceBuffer>,
}

impl DevicePayload {
    /// The column on the device, copied on first use.
    pub fn of(attribute: &PayloadColumn, engine: &Engine) -> Result<Self> {
        let width = match attribute.data_type() {
            DataType::Boolean => 1,
            other => other.primitive_width().unwrap_or(0),
        };
        let validity_at = validity_at(attribute.len(), width);
        let buffer = engine.copied(attribute.device_copies(), || {
            let values = attribute.values()?;
            kept_on_device(engine, validity_at + values.len(), |to| {
                let (to, valid) = to.split_at_mut(validity_at);
                write_values(&values, to);
                match values.nulls() {
                    None => valid[..values.len()].fill(1),
                    Some(nulls) => {
                        let valid = valid.iter_mut().zip(nulls);
                        valid.for_each(|(to, is_valid)| *to = is_valid.into());
                    }
                }
            })
        })?;
        Ok(Self {
            values: buffer.address(),
            validity: buffer.address() + validity_at as u64,
            memory: buffer,
        })
    }
}

/// Writes values as kernels read them: booleans in a byte each.
fn write_values(values: &ArrayRef, to: &mut [u8]) {
    if let Some(booleans) = values.as_boolean_opt() {
        let bytes = to.iter_mut().zip(booleans.values());
        bytes.for_each(|(to, value)| *to = value.into());
        return;
    }
    let data = values.to_data();
    let width = data.data_type().primitive_width().unwrap_or(0);
    if let Some(buffer) = data.buffers().first() {
        let bytes = &buffer[data.offset() * width..(data.offset() + data.len()) * width];
        to[..bytes.len()].copy_from_slice(bytes);
    }
}

impl DeviceTable {
    /// The table of integer keys on the device, copied on first use.
    pub fn of(codes: &KeyTable, engine: &Engine) -> Result<Self> {
        let (codes_at, bytes) = codes.table_bytes()?;
        let buffer = engine.copied(codes.device_copies(), || {
            codes.fetch()?;
            kept_on_device(engine, bytes, |to| codes.write_table(codes_at, to))
        })?;
        let (keys, [third, fourth]) = (buffer.address(), codes.table_words());
        Ok(Self {
            words: [keys, keys + codes_at as u64, third, fourth],
            memory: buffer,
        })
    }
}

impl LookupTables {
    /// The tables of one lookup.
    pub fn of(
        of: &TablePlan,
        pipeline: &Pipeline,
        entries: &[Arc<Entries>],
        batch: &Batch,
        engine: &Engine,
    ) -> Result<Self> {
        match of.source {
            TableSource::Lookup(lookup) => {
                let column_batch = &batch.columns()[of.column];
                Self::of_lookup(column_batch, &pipeline.lookups[lookup].key_table, engine)
            }
            TableSource::Entries(index) => {
                let entries = &entries[index];
                let tables = entries.numbers.iter();
                let tables = tables.map(|codes| LookupTable::kept(codes, entries.count(), engine));
                Ok(Self {
                    unique: tables.collect::<Result<_>>()?,
                    of_group: Arc::clone(&entries.of_group),
                })
            }
        }
    }

    fn of_lookup(column_batch: &ColumnBatch, codes: &KeyTable, engine: &Engine) -> Result<Self> {
        let unique = column_batch.dictionaries.iter().map(|dictionary| {
            let coded = dictionary.as_ref().filter(|dictionary| dictionary.is_coded);
            match coded {
                Some(coded) => match codes.codes_of_dictionary(&coded.entries) {
                    Some(known) => LookupTable::kept(known, codes.count(), engine),
                    None => LookupTable::of_codes(&codes.codes_of(&coded.entries)?, codes.count()),
                },
                None => Ok(LookupTable::Device(DeviceTable::of(codes, engine)?)),
            }
        });
        Ok(Self {
            unique: unique.collect::<Result<_>>()?,
            of_group: Arc::clone(&column_batch.dictionary_of),
        })
    }

    /// Appends the tables that some groups need, each once. Returns the offsets of each.
    pub fn append(&self, part: Range<usize>, parameters: &mut Parameters) -> Vec<SentTableOffsets> {
        let mut offsets = vec![None; self.unique.len()];
        for &index in &self.of_group[part] {
            let (LookupTable::Sent { bits, codes, .. }, None) =
                (&self.unique[index], offsets[index])
            else {
                continue;
            };
            let bits_at = parameters.next_offset();
            bits.iter()
                .for_each(|word| parameters.bytes.extend(word.to_le_bytes()));
            let codes_at = parameters.next_offset();
            let end = parameters.bytes.len() + codes.bytes();
            parameters.bytes.resize(end, 0);
            codes.write(&mut parameters.bytes[codes_at as usize..]);
            offsets[index] = Some(SentTableOffsets {
                bits: bits_at,
                codes: codes_at,
            });
        }
        offsets.into_iter().map(Option::unwrap_or_default).collect()
    }

    /// The words of a group, with tables at `offsets` from `start`.
    pub fn words(
        &self,
        group: usize,
        offsets: &[SentTableOffsets],
        start: u64,
    ) -> [u64; TABLE_WORDS] {
        let index = self.of_group[group];
        match &self.unique[index] {
            LookupTable::Device(table) => table.words,
            LookupTable::Sent { len, .. } => {
                let SentTableOffsets { bits, codes } = offsets[index];
                [start + bits, start + codes, 0, *len as u64]
            }
        }
    }
}

impl LookupTable {
    /// The codes of a dictionary: on the device if they are many, else to be sent along.
    fn kept(codes: &DictionaryCodes, count: u32, engine: &Engine) -> Result<Self> {
        let of = codes.codes();
        if of.len() < MOST_SENT {
            return Self::of_codes(of, count);
        }
        let codes_at = (bits_words(of.len()) * 4).next_multiple_of(256);
        let memory = engine.copied(codes.device_copies(), || {
            let table = CodeTable::from_codes(of, count)?;
            kept_on_device(engine, codes_at + table.bytes().max(1), |to| {
                let (bits, codes) = to.split_at_mut(codes_at);
                let words = bits.as_chunks_mut::<4>().0.iter_mut().zip(bits_of(of));
                words.for_each(|(to, word)| *to = word.to_le_bytes());
                table.write(codes);
            })
        })?;
        let bits = memory.address();
        Ok(Self::Device(DeviceTable {
            words: [bits, bits + codes_at as u64, 0, of.len() as u64],
            memory,
        }))
    }

    fn of_codes(codes: &[Option<u32>], count: u32) -> Result<Self> {
        Ok(Self::Sent {
            bits: bits_of(codes),
            codes: CodeTable::from_codes(codes, count)?,
            len: codes.len(),
        })
    }
}

/// Words of the bits of so many codes.
fn bits_words(codes: usize) -> usize {
    codes.div_ceil(32) + 1
}

/// A bit for each dictionary value that has a code.
fn bits_of(codes: &[Option<u32>]) -> Vec<u32> {
    let mut bits = vec![0; bits_words(codes.len())];
    let matched = codes.iter().enumerate().filter(|(_, code)| code.is_some());
    matched.for_each(|(code, _)| bits[code / 32] |= 1 << (code % 32));
    bits
}
