//! Checks the device's results: intact streams, and the chunk layout that fits the values.

use arrow::array::{ArrayData, ArrayRef, UInt64Array, make_array};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::compute::take;
use vectile_encodings::streams::{PageCompression, StreamColumn, StreamValues};
use vectile_kernels::{ColumnKind, DeviceChunk, Inflated, SAMPLE_ROWS, UnwrittenValues};
use vectile_pipeline::Type;

use super::job::{ColumnAssembly, DecodeJob, unwritten};
use super::layout::wrong;
use crate::error::Result;
use crate::runtime::DeviceBuffer;

impl DecodeJob<'_> {
    /// Checks that all chunks were inflated, to as many bytes as columns need. `results` has an [`Inflated`] for
    /// each chunk.
    pub(super) fn check_inflated(&self, results: &[u8]) -> Result<()> {
        let results = results.as_chunks::<{ Inflated::BYTES }>().0;
        for stream in &self.streams {
            let mut bytes = match &stream.stream.deflated {
                None => stream.stream.bytes.len(),
                Some(_) => 0,
            };
            for chunk in stream.chunks.clone() {
                let Inflated { written, error } = Inflated::of_bytes(results[chunk]);
                let written = written as usize;
                let block = stream
                    .stream
                    .deflated
                    .as_ref()
                    .map_or(0, |deflated| deflated.block_bytes);
                let is_last = chunk + 1 == stream.chunks.end;
                if error != 0 || (!is_last && written != block) {
                    return wrong("damaged chunks, or some that are not full");
                }
                bytes += written;
            }
            let ColumnAssembly { column, .. } = &self.columns[stream.column];
            let needed = match &column.values {
                StreamValues::Floats(_) => {
                    column.values() * column.data_type.primitive_width().unwrap_or(0)
                }
                StreamValues::Strings { lengths, .. } => lengths.iter().sum::<u64>() as usize,
                _ => 0,
            };
            if bytes < needed {
                return wrong("fewer bytes than values");
            }
        }
        let of_streams = self.streams.last().map_or(0, |stream| stream.chunks.end);
        let mut results = results.iter().skip(of_streams);
        for by in [PageCompression::Deflate, PageCompression::Snappy] {
            for paged in &self.paged {
                paged.check_inflated(by, &mut results)?;
            }
        }
        Ok(())
    }

    /// Lays out the chunks from the bounds in `results`, and allocates their memory.
    pub(super) fn lay_out(&mut self, results: &[u8]) -> Result<Vec<(DeviceChunk, DeviceBuffer)>> {
        let mut chunks = vec![];
        for assembly in &mut self.columns {
            if let Some(chunk) = assembly.chunk.take() {
                chunks.push(chunk);
                continue;
            }
            if results[assembly.wrong..assembly.wrong + 4] != [0; 4] {
                return wrong("values of more than 64 bits");
            }
            let column = assembly.column;
            let bounds = &results[assembly.bounds..assembly.bounds + assembly.vectors() * 16];
            let bounds: Vec<i64> = words_of(bounds).collect();
            let bounds = bounds.as_chunks::<2>().0.iter();
            let bounds: Vec<(i64, i64)> = bounds.map(|[low, high]| (*low, *high)).collect();
            let own = bounds.iter().filter(|(low, high)| low <= high);
            let own = own
                .copied()
                .reduce(|(a, b), (low, high)| (a.min(low), b.max(high)));
            let sample = words_of(&results[assembly.sample..assembly.sample + SAMPLE_ROWS * 8]);
            let sample: Vec<i64> = sample.collect();
            let entries = match &column.values {
                StreamValues::Codes { entries, .. } => Some(entries),
                StreamValues::Pages(pages) => pages.entries.as_ref(),
                _ => None,
            };
            let chunk = match (assembly.kind, entries) {
                (ColumnKind::Floats | ColumnKind::Doubles, _) => {
                    unwritten(column, UnwrittenValues::Floats, None)?
                }
                (_, Some(entries)) => {
                    if own.is_some_and(|(low, high)| low < 0 || high >= entries.len() as i64) {
                        return wrong("numbers beyond a dictionary");
                    }
                    let sample = sample_of_entries(column, &sample, entries)?;
                    let values = UnwrittenValues::Codes(&bounds, entries);
                    unwritten(column, values, Some(sample))?
                }
                _ => {
                    let range = Type::of(&column.data_type).and_then(Type::range);
                    let (least, most) = range.unwrap_or_default();
                    if own.is_some_and(|(low, high)| {
                        i128::from(low) < least || i128::from(high) > most
                    }) {
                        return wrong("numbers beyond the type");
                    }
                    let sample = sample_of(column, &sample);
                    unwritten(column, UnwrittenValues::Integers(&bounds), sample)?
                }
            };
            let memory = self.engine.room_for(chunk.info().bytes)?;
            chunks.push((chunk, memory));
        }
        Ok(chunks)
    }
}

/// Consecutive words.
fn words_of(bytes: &[u8]) -> impl Iterator<Item = i64> {
    let words = bytes.as_chunks::<8>().0.iter();
    words.map(|word| i64::from_le_bytes(*word))
}

/// The rows of a sample.
fn sample_rows(rows: usize) -> impl Iterator<Item = usize> {
    let count = SAMPLE_ROWS.min(rows);
    (0..count).map(move |index| index * rows / count)
}

/// The null values of a sample.
fn sample_nulls(column: &StreamColumn) -> Option<NullBuffer> {
    let nulls = column.nulls.as_ref()?;
    Some(
        sample_rows(column.rows)
            .map(|row| nulls.is_valid(row))
            .collect::<Vec<bool>>()
            .into(),
    )
}

/// A sample as an array of the column's type, from integers that the device decoded; `None` for booleans.
fn sample_of(column: &StreamColumn, values: &[i64]) -> Option<ArrayRef> {
    let width = column.data_type.primitive_width()?;
    let length = sample_rows(column.rows).count();
    let values = values.iter().take(length);
    let bytes: Vec<u8> = values
        .flat_map(|value| i128::from(*value).to_le_bytes().into_iter().take(width))
        .collect();
    let data = ArrayData::builder(column.data_type.clone())
        .len(length)
        .add_buffer(Buffer::from_vec(bytes))
        .nulls(sample_nulls(column))
        .align_buffers(true)
        .build();
    data.ok().map(make_array)
}

/// Entries of a sample, by their numbers.
fn sample_of_entries(
    column: &StreamColumn,
    numbers: &[i64],
    entries: &ArrayRef,
) -> Result<ArrayRef> {
    let length = sample_rows(column.rows).count();
    let numbers = numbers.iter().take(length).map(|number| *number as u64);
    let numbers = UInt64Array::new(numbers.collect(), sample_nulls(column));
    Ok(take(entries, &numbers, None).map_err(vectile_encodings::Error::from)?)
}
