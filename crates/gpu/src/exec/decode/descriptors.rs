//! The kernels' descriptors of chunks, parts and columns.

use vectile_encodings::streams::{PageCompression, RunLength, RunStream, StreamValues};
use vectile_kernels::{DecodePart, DecodedColumn, DeviceChunk, InflateChunk, Inflated};

use super::job::DecodeJob;
use super::layout::{JobAddresses, Layout, wrong};
use crate::error::Result;

const NO_NEXT: (u32, u32) = (u32::MAX, 0);

/// Descriptors for the kernels.
pub(super) struct Descriptors {
    /// Descriptors of chunks, parts and pages.
    pub(super) bytes: Vec<u8>,
    pub(super) columns: Vec<DecodedColumn>,
    pub(super) decodes: Vec<Decode>,
    pub(super) deflated: Inflation,
    pub(super) snappy: Inflation,
    pub(super) pages: PageDecode,
}

/// Chunks for one launch of a kernel that inflates.
pub(super) struct Inflation {
    /// Address of their descriptors, and of the result of each.
    pub(super) descriptors: u64,
    pub(super) chunks: usize,
    pub(super) results: u64,
}

/// Pages for one launch of `decode_pages`.
pub(super) struct PageDecode {
    /// Address of their descriptors, and of the fault of each.
    pub(super) descriptors: u64,
    pub(super) pages: usize,
    pub(super) faults: u64,
}

/// Parts for one launch of `decode_runs`.
pub(super) struct Decode {
    pub(super) encoding: RunLength,
    /// Address of their descriptors, and of the fault flags of each.
    pub(super) descriptors: u64,
    pub(super) parts: usize,
    pub(super) faults: u64,
}

impl Descriptors {
    /// Descriptors of columns as the kernel reads them.
    pub(super) fn column_bytes(&self) -> Vec<u8> {
        let columns = self.columns.iter();
        columns.flat_map(|column| column.to_bytes()).collect()
    }
}

impl DecodeJob<'_> {
    /// Writes all descriptors.
    pub(super) fn descriptors(&self, at: &JobAddresses, layout: &Layout) -> Result<Descriptors> {
        let start = at.inputs + layout.descriptors_at as u64;
        let mut bytes = self.chunk_descriptors(at)?;
        let deflated = Inflation {
            descriptors: start,
            chunks: layout.deflated,
            results: at.inflated,
        };
        let snappy = Inflation {
            descriptors: start + (layout.deflated * InflateChunk::BYTES) as u64,
            chunks: layout.snappy,
            results: at.inflated + (layout.deflated * Inflated::BYTES) as u64,
        };
        let mut decodes = vec![];
        let mut faults = at.back + layout.faults_at as u64;
        for (encoding, own, parts) in self.part_descriptors(at)? {
            decodes.push(Decode {
                encoding,
                descriptors: start + bytes.len() as u64,
                parts,
                faults,
            });
            faults += 4 * parts as u64;
            bytes.extend(own);
        }
        let pages = PageDecode {
            descriptors: start + bytes.len() as u64,
            pages: layout.pages,
            faults,
        };
        for paged in &self.paged {
            paged.write_pages(at, &mut bytes);
        }
        Ok(Descriptors {
            bytes,
            columns: self.column_descriptors(at),
            decodes,
            deflated,
            snappy,
            pages,
        })
    }

    /// Descriptors of each chunk for the kernels that inflate: of Deflate, then of Snappy.
    fn chunk_descriptors(&self, at: &JobAddresses) -> Result<Vec<u8>> {
        let mut bytes = vec![];
        for stream in &self.streams {
            let to = self.address(stream, at);
            let block = stream
                .stream
                .deflated
                .as_ref()
                .map_or(0, |deflated| deflated.block_bytes);
            // the body of strings has room for these bytes only
            let most = match &self.columns[stream.column].chunk {
                Some((chunk, _)) => {
                    chunk.info().bytes - chunk.front_bytes() - DeviceChunk::SLACK_BYTES
                }
                None => stream.stream.room(),
            };
            for (number, chunk) in stream.stream.chunks().iter().enumerate() {
                let before = number * block;
                let Some(left) = most.checked_sub(before) else {
                    return wrong("more blocks of text than lengths say");
                };
                let chunk = InflateChunk {
                    from: at.inputs + (stream.input_offset + chunk.bytes.start) as u64,
                    to: to + before as u64,
                    bytes: chunk.bytes.len() as u32,
                    room: left.min(block) as u32,
                    is_original: u32::from(chunk.is_original),
                    unused: 0,
                };
                bytes.extend(chunk.to_bytes());
            }
        }
        for by in [PageCompression::Deflate, PageCompression::Snappy] {
            for paged in &self.paged {
                paged.write_chunks(by, at, &mut bytes);
            }
        }
        Ok(bytes)
    }

    /// Descriptors for `decode_runs`, of the parts of all streams, by kernel; and how many parts there are.
    fn part_descriptors(&self, at: &JobAddresses) -> Result<Vec<(RunLength, Vec<u8>, usize)>> {
        let mut kernels: Vec<(RunLength, Vec<u8>, usize)> = vec![];
        for decoding in &self.runs {
            let RunStream {
                encoding,
                parts,
                stream,
            } = decoding.runs;
            let inflating = &self.streams[decoding.inflating];
            let from = self.address(inflating, at);
            // the result of the last chunk says how many bytes it has
            let (known, last) = match &stream.deflated {
                None => (stream.bytes.len(), 0),
                Some(deflated) => {
                    let before = deflated.chunks.len().saturating_sub(1) * deflated.block_bytes;
                    let last = if deflated.chunks.is_empty() {
                        0
                    } else {
                        inflating.chunks.end
                    };
                    (before, last)
                }
            };
            let index = match kernels.iter().position(|(of, ..)| of == encoding) {
                Some(index) => index,
                None => {
                    kernels.push((*encoding, vec![], 0));
                    kernels.len() - 1
                }
            };
            let (_, bytes, count) = &mut kernels[index];
            for (number, part) in parts.iter().enumerate() {
                let next = parts.get(number + 1).map(|next| part.meets(next));
                let Some((next_byte, next_values)) = next.unwrap_or(Some(NO_NEXT)) else {
                    return wrong("parts that do not follow each other");
                };
                let part = DecodePart {
                    from: from + part.offset as u64,
                    to: at.scratch + (decoding.values + part.start * decoding.width) as u64,
                    bytes: (known as i64 - part.offset as i64) as i32,
                    skip: part.skip as u32,
                    count: part.count as u32,
                    last: last as u32,
                    next_byte,
                    next_values,
                };
                bytes.extend(part.to_bytes());
                *count += 1;
            }
        }
        Ok(kernels)
    }

    /// Descriptors for `columns`, of each column.
    fn column_descriptors(&self, at: &JobAddresses) -> Vec<DecodedColumn> {
        let (mut columns, mut first_vector) = (vec![], 0);
        for assembly in &self.columns {
            let values = |index: usize| {
                let decoding = assembly.runs.get(index).map(|number| &self.runs[*number]);
                decoding.map_or(0, |decoding| at.scratch + decoding.values as u64)
            };
            let bytes = assembly
                .bytes
                .map(|number| self.address(&self.streams[number], at));
            let paged = assembly
                .pages
                .map(|number| at.scratch + self.paged[number].values as u64);
            let (present, before) = match assembly.present {
                Some((present, before)) => (at.inputs + present as u64, at.inputs + before as u64),
                None => (0, 0),
            };
            let parameter = match &assembly.column.values {
                StreamValues::Decimals { scale, .. } => i64::from(*scale),
                StreamValues::Timestamps { epoch, .. } => *epoch,
                _ => 0,
            };
            columns.push(DecodedColumn {
                values: bytes.or(paged).unwrap_or_else(|| values(0)),
                others: values(1),
                present,
                before,
                bounds: at.back + assembly.bounds as u64,
                sample: at.back + assembly.sample as u64,
                fault: at.back + assembly.wrong as u64,
                // known once bounds are
                chunk: 0,
                reference: 0,
                parameter,
                kind: assembly.kind as u32,
                rows: assembly.column.rows as u32,
                first_vector: first_vector as u32,
                unused: 0,
            });
            first_vector += assembly.vectors();
        }
        columns
    }
}
