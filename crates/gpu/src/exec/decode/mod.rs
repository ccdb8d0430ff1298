//! Decodes columns on the device from the streams or pages of a file: inflates, decodes, packs. `kernels/inflate`,
//! `kernels/orc` and `kernels/parquet` are the device's side.
//!
//! ```text
//! host     streams, descriptors                             fronts of chunks
//!             │                                    ▲             │
//! device      └▶ inflate ─▶ decode ─▶ bounds ──────┘             └▶ pack ─▶ chunks
//! ```
//!
//! The host waits once in between, because the widths of residuals follow from the bounds. Streams that kernels find
//! damaged, or that do not match their column, produce no chunk: the caller then decodes them on a CPU, which reports
//! the fault and its position.

mod descriptors;
mod job;
mod kernels;
mod layout;
mod pages;
mod results;

use std::sync::Arc;
use std::time::Duration;

use vectile_encodings::streams::StreamColumn;
use vectile_kernels::{ColumnsStep, DeviceChunk};

use super::offsets::OffsetAllocator;
use super::streams;
use crate::error::{Error, Result};
use crate::runtime::{ChunkKey, DeviceBuffer, Engine, Resident, StreamContext};
use descriptors::Descriptors;
use job::{ColumnAssembly, DecodeJob, JobInputs, masks};
use kernels::Launches;
use layout::{JobAddresses, Layout, wrong};

/// Limit of the scratch bytes of columns that are decoded together; a single column may take more.
const MOST_SCRATCH: usize = 1 << 30;

/// Columns decoded from streams.
#[derive(Debug, Default)]
pub struct Assembled {
    /// The chunks, in order: `None` if streams are damaged, or have what kernels do not decode. A CPU may decode them,
    /// or reports the fault.
    pub chunks: Vec<Option<Arc<Resident>>>,
    /// Bytes copied to the device for them.
    pub sent: usize,
    /// Run time of kernels, by the device's clock.
    pub kernel: Duration,
}

impl Engine {
    /// Decodes columns from streams and keeps their chunks, as [`Engine::load_all`] does. Blocks until they are on the
    /// device.
    ///
    /// # Errors
    ///
    /// [`OutOfMemory`](crate::Error::OutOfMemory) if chunks in use leave no room;
    /// [`NotCompiled`](crate::Error::NotCompiled) if a kernel is neither loaded nor on disk and `may_compile` is
    /// false; those of the driver.
    pub fn assemble_all(
        &self,
        columns: &[(ChunkKey, StreamColumn)],
        may_compile: bool,
    ) -> Result<Assembled> {
        self.health().watch(|| {
            let mut all = Assembled::default();
            let mut rest = columns;
            while !rest.is_empty() {
                let mut bytes = 0usize;
                let fits = rest.iter().take_while(|(_, column)| {
                    bytes = bytes.saturating_add(streams::scratch_bytes(column));
                    bytes <= MOST_SCRATCH
                });
                let (portion, others) = rest.split_at(fits.count().max(1));
                self.assemble(portion, may_compile, &mut all)?;
                rest = others;
            }
            Ok(all)
        })
    }

    /// Decodes columns together; if that fails, each by itself.
    fn assemble(
        &self,
        columns: &[(ChunkKey, StreamColumn)],
        may_compile: bool,
        all: &mut Assembled,
    ) -> Result<()> {
        match self.assemble_at_once(columns, may_compile, all) {
            Err(Error::Unsupported(_) | Error::Encoding(_)) if columns.len() > 1 => {
                let mut columns = columns.chunks(1);
                columns.try_for_each(|column| self.assemble(column, may_compile, all))
            }
            Err(Error::Unsupported(_) | Error::Encoding(_)) => {
                all.chunks.push(None);
                Ok(())
            }
            chunks => {
                all.chunks.extend(chunks?.into_iter().map(Some));
                Ok(())
            }
        }
    }

    fn assemble_at_once(
        &self,
        columns: &[(ChunkKey, StreamColumn)],
        may_compile: bool,
        all: &mut Assembled,
    ) -> Result<Vec<Arc<Resident>>> {
        let own: Vec<&StreamColumn> = columns.iter().map(|(_, column)| column).collect();
        let keys: Vec<ChunkKey> = columns.iter().map(|(key, _)| key.clone()).collect();
        let mut job = DecodeJob::new(self, own)?;
        let chunks = job.run(may_compile);
        all.sent += job.sent;
        all.kernel += job.kernel;
        Ok(self.keep_built(&keys, chunks?))
    }
}

impl DecodeJob<'_> {
    /// Inflates, decodes, and packs.
    fn run(&mut self, may_compile: bool) -> Result<Vec<Arc<Resident>>> {
        let mut context = self.engine.stream_context()?;
        let chunks = self.run_on(&mut context, may_compile)?;
        self.engine.give_back(context);
        Ok(chunks)
    }

    fn run_on(
        &mut self,
        context: &mut StreamContext,
        may_compile: bool,
    ) -> Result<Vec<Arc<Resident>>> {
        let masks = self.columns.iter().map(|assembly| masks(assembly.column));
        let masks: Vec<Option<(Vec<u8>, Vec<u8>)>> = masks.collect();
        let mut inputs = JobInputs::default();
        let layout = self.arrange(&masks, &mut inputs);
        let there = self
            .engine
            .take(layout.inputs + layout.scratch + layout.back)?;
        let at = JobAddresses::new(there.address(), &layout);
        let mut descriptors = self.descriptors(&at, &layout)?;
        let launches = Launches::new(self.engine, may_compile, &descriptors)?;
        let results = self.decode(context, &launches, &inputs, &layout, &at, &descriptors)?;
        let chunks = self.lay_out(&results.as_slice()[..layout.back])?;
        self.pack(context, &launches, &chunks, &layout, &at, &mut descriptors)?;
        let residents = chunks.into_iter().map(|(chunk, memory)| {
            Resident::in_memory(Arc::new(memory), 0, self.engine.info_of(&chunk))
        });
        Ok(residents.collect())
    }

    /// Inflates, decodes, and computes bounds. Returns the results, which report no fault.
    fn decode(
        &mut self,
        context: &mut StreamContext,
        launches: &Launches<'_>,
        inputs: &JobInputs<'_>,
        layout: &Layout,
        at: &JobAddresses,
        descriptors: &Descriptors,
    ) -> Result<DeviceBuffer> {
        let mut pinned = self.engine.pinned(layout.together)?;
        let host = pinned.as_mut_slice();
        for (at, bytes) in &inputs.together {
            host[*at..*at + bytes.len()].copy_from_slice(bytes);
        }
        let columns = descriptors.column_bytes();
        for (at, bytes) in [
            (layout.descriptors_at, &descriptors.bytes),
            (layout.columns_at, &columns),
        ] {
            host[at..at + bytes.len()].copy_from_slice(bytes);
        }
        let from = pinned.as_slice();
        let mut results = self.engine.host_pool().take(layout.back)?;
        let to = results.as_mut_slice().as_mut_ptr();
        let columns = self.columns_of(at, layout);
        let events = context.finish(|stream| {
            // SAFETY: all ranges are those of the layout, as long as the descriptors say, and live until `finish` is
            // done, as do streams, which the job borrows. Bytes of streams may be any: kernels read none outside of
            // streams, and write none outside of the room for blocks and values.
            unsafe {
                stream.copy_in(at.inputs, from.as_ptr(), layout.together)?;
                for (offset, bytes) in &inputs.as_read {
                    stream.copy_in(at.inputs + *offset as u64, bytes.as_ptr(), bytes.len())?;
                }
                for (to, bytes) in self.uncompressed_bodies(from) {
                    stream.copy_in(to, bytes.as_ptr(), bytes.len())?;
                }
                stream.fill(at.back, 0, layout.back)?;
                let start = stream.mark()?;
                launches.decode(stream, descriptors)?;
                launches.columns(stream, ColumnsStep::Bounds, columns)?;
                let end = stream.mark()?;
                stream.copy_out(to, at.back, layout.back)?;
                Ok((start, end))
            }
        })?;
        self.kernel += context.between(&events)?;
        self.sent += layout.inputs;
        let chunks = layout.deflated + layout.snappy;
        self.check_inflated(&results.as_slice()[layout.inflated_at..][..chunks * 8])?;
        let faults = &results.as_slice()[layout.faults_at..][..(layout.parts + layout.pages) * 4];
        match faults.iter().all(|byte| *byte == 0) {
            true => Ok(results),
            false => wrong(
                "damaged runs or pages, nulls where none are known, or numbers of more than 64 bits",
            ),
        }
    }

    /// Writes fronts, and packs values behind them.
    fn pack(
        &mut self,
        context: &mut StreamContext,
        launches: &Launches<'_>,
        chunks: &[(DeviceChunk, DeviceBuffer)],
        layout: &Layout,
        at: &JobAddresses,
        descriptors: &mut Descriptors,
    ) -> Result<()> {
        let mut offsets = OffsetAllocator::default();
        let fronts = chunks
            .iter()
            .map(|(chunk, _)| offsets.next(chunk.front_bytes()));
        let fronts: Vec<usize> = fronts.collect();
        for (column, (chunk, memory)) in descriptors.columns.iter_mut().zip(chunks) {
            column.chunk = memory.address();
            column.reference = chunk.reference() as u64;
        }
        let descriptors = descriptors.column_bytes();
        let descriptors_at = offsets.next(descriptors.len());
        let mut pinned = self.engine.pinned(offsets.bytes())?;
        let host = pinned.as_mut_slice();
        for ((chunk, _), front) in chunks.iter().zip(&fronts) {
            let bytes = chunk.front_bytes();
            chunk.write_front(&mut host[*front..*front + bytes], bytes)?;
        }
        host[descriptors_at..descriptors_at + descriptors.len()].copy_from_slice(&descriptors);
        let from = pinned.as_slice();
        let wrong_bytes = self.columns.len() * 4;
        let mut results = self.engine.host_pool().take(wrong_bytes)?;
        let to = results.as_mut_slice().as_mut_ptr();
        let columns = self.columns_of(at, layout);
        let events = context.finish(|stream| {
            // SAFETY: as in `decode`; chunks have as many bytes as their fronts say.
            unsafe {
                for ((chunk, memory), front) in chunks.iter().zip(&fronts) {
                    let front = &from[*front..*front + chunk.front_bytes()];
                    stream.copy_in(memory.address(), front.as_ptr(), front.len())?;
                }
                stream.copy_in(
                    columns[0],
                    from[descriptors_at..].as_ptr(),
                    descriptors.len(),
                )?;
                let start = stream.mark()?;
                launches.columns(stream, ColumnsStep::Pack, columns)?;
                let end = stream.mark()?;
                stream.copy_out(to, at.back + layout.wrong_at as u64, wrong_bytes)?;
                Ok((start, end))
            }
        })?;
        self.kernel += context.between(&events)?;
        self.sent += offsets.bytes();
        match results.as_slice()[..wrong_bytes]
            .iter()
            .all(|byte| *byte == 0)
        {
            true => Ok(()),
            false => wrong("text that is not UTF-8"),
        }
    }

    /// Arguments of the kernel `columns`: address of the descriptors, number of columns, number of vectors.
    fn columns_of(&self, at: &JobAddresses, layout: &Layout) -> [u64; 3] {
        let vectors: usize = self.columns.iter().map(ColumnAssembly::vectors).sum();
        let offset = at.inputs + layout.columns_at as u64;
        [offset, self.columns.len() as u64, vectors as u64]
    }

    /// Uncompressed bytes of strings, each with the address they are copied to.
    fn uncompressed_bodies<'b>(&'b self, from: &'b [u8]) -> Vec<(u64, &'b [u8])> {
        let streams = self
            .streams
            .iter()
            .filter(|stream| stream.stream.deflated.is_none());
        let bodies = streams.filter_map(|stream| {
            let (chunk, memory) = self.columns[stream.column].chunk.as_ref()?;
            let most = chunk.info().bytes - chunk.front_bytes() - DeviceChunk::SLACK_BYTES;
            let bytes = stream.stream.bytes.len().min(most);
            let to = memory.address() + chunk.front_bytes() as u64;
            let body = match stream.is_as_read {
                true => stream.stream.bytes.get(..bytes)?,
                false => from.get(stream.input_offset..stream.input_offset + bytes)?,
            };
            Some((to, body)).filter(|_| bytes > 0)
        });
        bodies.collect()
    }
}
