//! Layout of the device memory of a decoding job, and the columns it decodes.

use std::ops::Range;
use std::time::Duration;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use vectile_encodings::VECTOR_LEN;
use vectile_encodings::streams::{
    ByteStream, PageCompression, RunStream, StreamColumn, StreamValues,
};
use vectile_kernels::{
    ColumnKind, DataPage, DecodePart, DecodedColumn, DeviceChunk, InflateChunk, SAMPLE_ROWS,
    Unwritten, UnwrittenValues,
};

use super::layout::{COPY_BYTES, JobAddresses, Layout, SLACK_BYTES};
use super::pages::PagedColumn;
use crate::error::Result;
use crate::exec::offsets::OffsetAllocator;
use crate::exec::streams;
use crate::runtime::{DeviceBuffer, Engine};

const MASK_BYTES: usize = VECTOR_LEN / 8;

/// Bytes to copy to the device, by their offset in the job's inputs.
#[derive(Default)]
pub(super) struct JobInputs<'a> {
    pub(super) offsets: OffsetAllocator,
    /// Bytes that are gathered first, and copied at once.
    pub(super) together: Vec<(usize, &'a [u8])>,
    /// Bytes that the device copies from where they were read.
    pub(super) as_read: Vec<(usize, &'a [u8])>,
}

impl<'a> JobInputs<'a> {
    fn next(&mut self, bytes: &[u8]) -> usize {
        self.offsets.next(bytes.len() + 2 * SLACK_BYTES) + SLACK_BYTES
    }

    fn add(&mut self, bytes: &'a [u8]) -> usize {
        let at = self.next(bytes);
        self.together.push((at, bytes));
        at
    }

    fn add_as_read(&mut self, bytes: &'a [u8]) -> usize {
        let at = self.next(bytes);
        self.as_read.push((at, bytes));
        at
    }
}

/// Location of a stream's inflated bytes.
#[derive(Clone, Debug)]
pub(super) enum StreamSource {
    /// Uncompressed input, from this offset on.
    Inputs(usize),
    /// In scratch memory, from this offset on.
    Scratch(usize),
    /// In the body of the column's chunk.
    Body,
}

/// A stream to inflate.
pub(super) struct StreamInflation<'a> {
    pub(super) column: usize,
    pub(super) stream: &'a ByteStream,
    /// Offset of its bytes in the inputs; true if the device copies them from where they were read.
    pub(super) input_offset: usize,
    pub(super) is_as_read: bool,
    pub(super) source: StreamSource,
    /// Indices of its chunks among those of all streams.
    pub(super) chunks: Range<usize>,
}

/// A stream of runs to decode.
pub(super) struct Decoding<'a> {
    pub(super) runs: &'a RunStream,
    /// Index of the stream with its bytes.
    pub(super) inflating: usize,
    pub(super) width: usize,
    /// Offset of its values in scratch memory.
    pub(super) values: usize,
}

/// A column to build.
pub(super) struct ColumnAssembly<'a> {
    pub(super) column: &'a StreamColumn,
    pub(super) kind: ColumnKind,
    /// Indices of its streams of runs.
    pub(super) runs: Vec<usize>,
    /// Index of the stream with its bytes, for floats and strings.
    pub(super) bytes: Option<usize>,
    /// Index among the columns in pages.
    pub(super) pages: Option<usize>,
    /// Offsets in the inputs: the bits of present rows, and the number of values before each vector.
    pub(super) present: Option<(usize, usize)>,
    /// Offsets in the results: bounds, sample, and a word that is not 0 if a value is wrong.
    pub(super) bounds: usize,
    pub(super) sample: usize,
    pub(super) wrong: usize,
    /// For strings, the chunk, into whose body the bytes are inflated, and its memory.
    pub(super) chunk: Option<(DeviceChunk, DeviceBuffer)>,
}

/// Columns to build together.
pub(super) struct DecodeJob<'a> {
    pub(super) engine: &'a Engine,
    pub(super) streams: Vec<StreamInflation<'a>>,
    pub(super) runs: Vec<Decoding<'a>>,
    pub(super) paged: Vec<PagedColumn<'a>>,
    pub(super) columns: Vec<ColumnAssembly<'a>>,
    pub(super) kernel: Duration,
    pub(super) sent: usize,
}

impl<'a> DecodeJob<'a> {
    pub(super) fn new(engine: &'a Engine, columns: Vec<&'a StreamColumn>) -> Result<Self> {
        columns
            .iter()
            .try_for_each(|column| streams::check(column))?;
        let mut job = Self {
            engine,
            streams: vec![],
            runs: vec![],
            paged: vec![],
            columns: vec![],
            kernel: Duration::ZERO,
            sent: 0,
        };
        for column in columns {
            job.add(column)?;
        }
        Ok(job)
    }

    pub(super) fn add(&mut self, column: &'a StreamColumn) -> Result<()> {
        let number = self.columns.len();
        let kind = match &column.values {
            StreamValues::Integers(_) | StreamValues::Codes { .. } => ColumnKind::Integers,
            StreamValues::Bits(_) => ColumnKind::Bits,
            StreamValues::Bytes(_) => ColumnKind::Bytes,
            StreamValues::Decimals { .. } => ColumnKind::Decimals,
            StreamValues::Timestamps { .. } => ColumnKind::Timestamps,
            StreamValues::Floats(_) if column.data_type == DataType::Float32 => ColumnKind::Floats,
            StreamValues::Pages(_) => match column.data_type {
                DataType::Float32 => ColumnKind::Floats,
                DataType::Float64 => ColumnKind::Doubles,
                _ => ColumnKind::Integers,
            },
            StreamValues::Floats(_) => ColumnKind::Doubles,
            StreamValues::Strings { .. } if column.data_type == DataType::Utf8 => ColumnKind::Text,
            StreamValues::Strings { .. } => ColumnKind::Binary,
        };
        let mut runs = vec![];
        for (stream, width) in streams::runs(column).into_iter().flatten() {
            runs.push(self.runs.len());
            let inflating = self.inflate(number, &stream.stream);
            self.runs.push(Decoding {
                runs: stream,
                inflating,
                width,
                values: 0,
            });
        }
        let pages = match &column.values {
            StreamValues::Pages(pages) => {
                self.paged
                    .push(PagedColumn::new(self.engine, column, pages));
                Some(self.paged.len() - 1)
            }
            _ => None,
        };
        let mut chunk = None;
        let bytes = match &column.values {
            StreamValues::Floats(bytes) => Some(self.inflate(number, bytes)),
            StreamValues::Strings { bytes, lengths } => {
                let own = unwritten(column, UnwrittenValues::Strings(lengths), None)?;
                let memory = self.engine.room_for(own.info().bytes)?;
                chunk = Some((own, memory));
                Some(self.inflate(number, bytes))
            }
            _ => None,
        };
        self.columns.push(ColumnAssembly {
            column,
            kind,
            runs,
            bytes,
            pages,
            present: None,
            bounds: 0,
            sample: 0,
            wrong: 0,
            chunk,
        });
        Ok(())
    }

    pub(super) fn inflate(&mut self, column: usize, stream: &'a ByteStream) -> usize {
        let before = self.streams.last().map_or(0, |stream| stream.chunks.end);
        let bytes = stream.bytes.as_slice();
        self.streams.push(StreamInflation {
            column,
            stream,
            input_offset: 0,
            is_as_read: bytes.len() >= COPY_BYTES && self.engine.is_staged(bytes),
            source: StreamSource::Body,
            chunks: before..before + stream.chunks().len(),
        });
        self.streams.len() - 1
    }

    /// Assigns offsets to inputs, scratch memory and results.
    pub(super) fn arrange<'b>(
        &mut self,
        masks: &'b [Option<(Vec<u8>, Vec<u8>)>],
        inputs: &mut JobInputs<'b>,
    ) -> Layout
    where
        'a: 'b,
    {
        let (mut scratch, mut back) = (OffsetAllocator::default(), OffsetAllocator::default());
        let parts = self.runs.iter().map(|decoding| decoding.runs.parts.len());
        let parts: usize = parts.sum();
        let in_pages = |by| -> usize {
            let paged = self.paged.iter();
            paged.map(|paged| paged.compressed(by).count()).sum()
        };
        let in_streams = self.streams.last().map_or(0, |stream| stream.chunks.end);
        let deflated = in_streams + in_pages(PageCompression::Deflate);
        let snappy = in_pages(PageCompression::Snappy);
        let pages = self.paged.iter().map(|paged| paged.pages.pages.len()).sum();
        let chunks = deflated + snappy;
        let descriptors_at = inputs.offsets.next(
            chunks * InflateChunk::BYTES + parts * DecodePart::BYTES + pages * DataPage::BYTES,
        );
        let columns_at = inputs
            .offsets
            .next(self.columns.len() * DecodedColumn::BYTES);
        for (assembly, masks) in self.columns.iter_mut().zip(masks) {
            let own = masks.as_ref();
            assembly.present =
                own.map(|(present, before)| (inputs.add(present), inputs.add(before)));
        }
        for stream in self.streams.iter_mut().filter(|stream| !stream.is_as_read) {
            stream.input_offset = inputs.add(stream.stream.bytes.as_slice());
        }
        for paged in &mut self.paged {
            paged.dictionary_offset = inputs.add(paged.dictionary());
            if !paged.is_as_read {
                paged.input_offset = inputs.add(paged.pages.bytes.as_slice());
            }
        }
        let together = inputs.offsets.bytes();
        for stream in self.streams.iter_mut().filter(|stream| stream.is_as_read) {
            stream.input_offset = inputs.add_as_read(stream.stream.bytes.as_slice());
        }
        for paged in self.paged.iter_mut().filter(|paged| paged.is_as_read) {
            paged.input_offset = inputs.add_as_read(paged.pages.bytes.as_slice());
        }
        for stream in &mut self.streams {
            let is_of_strings = self.columns[stream.column].chunk.is_some();
            stream.source = match &stream.stream.deflated {
                _ if is_of_strings => StreamSource::Body,
                None => StreamSource::Inputs(stream.input_offset),
                Some(_) => {
                    let room = scratch.next(stream.stream.room() + 2 * SLACK_BYTES);
                    StreamSource::Scratch(room + SLACK_BYTES)
                }
            };
        }
        for decoding in &mut self.runs {
            decoding.values = scratch.next(decoding.runs.values() * decoding.width + SLACK_BYTES);
        }
        for paged in &mut self.paged {
            paged.arrange(&mut scratch);
        }
        let inflated_at = back.next(chunks * 8);
        let faults_at = back.next((parts + pages) * 4);
        let wrong_at = back.next(self.columns.len() * 4);
        for (number, assembly) in self.columns.iter_mut().enumerate() {
            assembly.bounds = back.next(assembly.vectors() * 16);
            assembly.sample = back.next(SAMPLE_ROWS * 8);
            assembly.wrong = wrong_at + number * 4;
        }
        Layout {
            together,
            inputs: inputs.offsets.bytes(),
            scratch: scratch.bytes(),
            back: back.bytes(),
            deflated,
            snappy,
            parts,
            pages,
            descriptors_at,
            columns_at,
            inflated_at,
            faults_at,
            wrong_at,
        }
    }

    /// The address of a stream's inflated bytes.
    pub(super) fn address(&self, stream: &StreamInflation<'_>, at: &JobAddresses) -> u64 {
        match stream.source {
            StreamSource::Inputs(offset) => at.inputs + offset as u64,
            StreamSource::Scratch(offset) => at.scratch + offset as u64,
            StreamSource::Body => {
                let chunk = self.columns[stream.column].chunk.as_ref();
                chunk.map_or(0, |(chunk, memory)| {
                    memory.address() + chunk.front_bytes() as u64
                })
            }
        }
    }
}

impl ColumnAssembly<'_> {
    pub(super) fn vectors(&self) -> usize {
        self.column.rows.div_ceil(VECTOR_LEN)
    }
}

pub(super) fn unwritten(
    column: &StreamColumn,
    values: UnwrittenValues<'_>,
    sample: Option<ArrayRef>,
) -> Result<DeviceChunk> {
    Ok(DeviceChunk::of_unwritten(Unwritten {
        data_type: &column.data_type,
        rows: column.rows,
        nulls: column.nulls.as_ref(),
        values,
        sample,
    })?)
}

/// A bit for each row of whole vectors that is set if the row has a value, and how many values precede each vector.
pub(super) fn masks(column: &StreamColumn) -> Option<(Vec<u8>, Vec<u8>)> {
    let nulls = column.nulls.as_ref()?;
    let vectors = column.rows.div_ceil(VECTOR_LEN);
    let bits = nulls.inner().sliced();
    let mut present = vec![0; vectors * MASK_BYTES];
    let bytes = column.rows.div_ceil(8);
    present[..bytes].copy_from_slice(&bits[..bytes]);
    if let Some(last) = present.get_mut(column.rows / 8) {
        *last &= !(u8::MAX << (column.rows % 8));
    }
    let mut sum = 0u32;
    let before = present.chunks(MASK_BYTES).flat_map(|mask| {
        let before = sum;
        sum += mask.iter().map(|byte| byte.count_ones()).sum::<u32>();
        before.to_le_bytes()
    });
    let before = before.collect();
    Some((present, before))
}
