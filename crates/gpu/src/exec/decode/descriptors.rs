//! Serializes the kernels' descriptors of chunks, parts and columns, with the words that `kernels/orc` reads.

use vectile_encodings::streams::{RunLength, RunStream, StreamValues};
use vectile_kernels::DeviceChunk;

use super::job::{DecodeJob, JobAddresses, Layout, wrong};
use crate::error::Result;

/// Index of the word of a column's descriptor with its chunk's address; the reference of residuals follows.
pub(super) const CHUNK_AT: usize = 7;
const NO_NEXT: (u32, u32) = (u32::MAX, 0);

/// Descriptors for the kernels.
pub(super) struct Descriptors {
    /// Descriptors of chunks and parts.
    pub(super) words: Vec<u64>,
    /// Descriptors of columns.
    pub(super) columns: Vec<u64>,
    pub(super) decodes: Vec<Decode>,
    pub(super) chunks: usize,
}

/// Parts for one launch of `decode_runs`.
pub(super) struct Decode {
    pub(super) encoding: RunLength,
    /// Address of their descriptors, and of the fault flags of each.
    pub(super) descriptors: u64,
    pub(super) parts: usize,
    pub(super) faults: u64,
}

fn pair(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl DecodeJob<'_> {
    /// Writes all descriptors.
    pub(super) fn descriptors(&self, at: &JobAddresses, layout: &Layout) -> Result<Descriptors> {
        let mut words = self.chunk_descriptors(at)?;
        let mut decodes = vec![];
        let mut faults = at.back + layout.faults_at as u64;
        for (encoding, own, parts) in self.part_descriptors(at)? {
            decodes.push(Decode {
                encoding,
                descriptors: at.inputs + (layout.descriptors_at + 8 * words.len()) as u64,
                parts,
                faults,
            });
            faults += 4 * parts as u64;
            words.extend(own);
        }
        Ok(Descriptors {
            words,
            columns: self.column_descriptors(at),
            decodes,
            chunks: layout.chunks,
        })
    }

    /// Descriptors for `inflate`, of each chunk.
    fn chunk_descriptors(&self, at: &JobAddresses) -> Result<Vec<u64>> {
        let mut words = vec![];
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
                words.extend([
                    at.inputs + (stream.input_offset + chunk.bytes.start) as u64,
                    to + before as u64,
                    pair(chunk.bytes.len() as u32, left.min(block) as u32),
                    u64::from(chunk.is_original),
                ]);
            }
        }
        Ok(words)
    }

    /// Descriptors for `decode_runs`, of the parts of all streams, by kernel; and how many parts there are.
    fn part_descriptors(&self, at: &JobAddresses) -> Result<Vec<(RunLength, Vec<u64>, usize)>> {
        let mut kernels: Vec<(RunLength, Vec<u64>, usize)> = vec![];
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
            let (_, words, count) = &mut kernels[index];
            for (number, part) in parts.iter().enumerate() {
                let next = parts.get(number + 1).map(|next| part.meets(next));
                let Some((next_byte, next_values)) = next.unwrap_or(Some(NO_NEXT)) else {
                    return wrong("parts that do not follow each other");
                };
                let bytes = (known as i64 - part.offset as i64) as i32;
                words.extend([
                    from + part.offset as u64,
                    at.scratch + (decoding.values + part.start * decoding.width) as u64,
                    pair(bytes as u32, part.skip as u32),
                    pair(part.count as u32, last as u32),
                    pair(next_byte, next_values),
                ]);
                *count += 1;
            }
        }
        Ok(kernels)
    }

    /// Descriptors for `columns`, of each column.
    fn column_descriptors(&self, at: &JobAddresses) -> Vec<u64> {
        let (mut words, mut first_vector) = (vec![], 0);
        for assembly in &self.columns {
            let values = |index: usize| {
                let decoding = assembly.runs.get(index).map(|number| &self.runs[*number]);
                decoding.map_or(0, |decoding| at.scratch + decoding.values as u64)
            };
            let bytes = assembly
                .bytes
                .map(|number| self.address(&self.streams[number], at));
            let (present, before) = match assembly.present {
                Some((present, before)) => (at.inputs + present as u64, at.inputs + before as u64),
                None => (0, 0),
            };
            let parameter = match &assembly.column.values {
                StreamValues::Decimals { scale, .. } => i64::from(*scale),
                StreamValues::Timestamps { epoch, .. } => *epoch,
                _ => 0,
            };
            words.extend([
                bytes.unwrap_or_else(|| values(0)),
                values(1),
                present,
                before,
                at.back + assembly.bounds as u64,
                at.back + assembly.sample as u64,
                at.back + assembly.wrong as u64,
                0,
                0,
                parameter as u64,
                pair(assembly.kind as u32, assembly.column.rows as u32),
                first_vector as u64,
            ]);
            first_vector += assembly.vectors();
        }
        words
    }
}
