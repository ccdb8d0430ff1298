//! Column chunks that are to come to the device together: where their bytes go, and where they come from.

use std::mem;
use std::sync::Arc;

use arrow::buffer::Buffer;

use super::chunks::Hosted;
use super::driver::CopyIn;
use super::memory::{DeviceBuffer, Pool};
use crate::error::Result;
use vectile_kernels::{ChunkInfo, DeviceChunk};

/// Chunks that are to come to the device together.
pub(super) struct TransferBatch {
    /// Bytes that they take there.
    pub bytes: usize,
    /// Addresses to copy to count from the start of these; what is copied is memory of `from`.
    pub copies: Vec<CopyIn>,
    pub from: Vec<Source>,
    /// The chunks, and where they start.
    pub chunks: Vec<(u64, Arc<ChunkInfo>)>,
}

/// Pinned memory that the device copies from.
pub(super) enum Source {
    Hosted { _memory: Arc<Hosted> },
    Staged { _memory: DeviceBuffer },
    Read { _memory: Buffer },
}

impl TransferBatch {
    /// Chunks that lie one after the other in host memory.
    pub fn of_hosted(run: Vec<Arc<Hosted>>) -> Self {
        let start = run.first().map_or(0, |first| first.memory.address());
        let offset = |hosted: &Hosted| hosted.memory.address() - start;
        let bytes = run
            .last()
            .map_or(0, |last| offset(last) as usize + last.chunk.bytes);
        let chunks = run.iter().map(|of| (offset(of), Arc::clone(&of.chunk)));
        Self {
            bytes,
            copies: vec![CopyIn {
                to: 0,
                from: start as *const u8,
                bytes,
            }],
            chunks: chunks.collect(),
            from: run
                .into_iter()
                .map(|hosted| Source::Hosted { _memory: hosted })
                .collect(),
        }
    }

    /// Lays chunks out: first what is put together here, which is copied at once, then bodies that are copied from
    /// where they were read, if that is memory of `staging`, each with what was made to follow it. What is put
    /// together and made is there too; if there is no room, in `host`.
    pub fn lay_out(
        staging: &Arc<Pool>,
        host: &Arc<Pool>,
        chunks: Vec<(Arc<ChunkInfo>, &DeviceChunk)>,
    ) -> Result<Self> {
        let mut end = 0;
        let mut place = |bytes: usize| {
            let start = end;
            end = (end + bytes).next_multiple_of(DeviceChunk::ALIGNMENT);
            start
        };
        let as_read = |chunk: &DeviceChunk| {
            let body = chunk.body_as_read().filter(|body| staging.has(body));
            body.cloned()
        };
        let fronts: Vec<usize> = chunks
            .iter()
            .map(|(_, chunk)| place(chunk.front_bytes()))
            .collect();
        let read: Vec<Option<Buffer>> = chunks.iter().map(|(_, chunk)| as_read(chunk)).collect();
        let mut bodies = vec![0; chunks.len()];
        let each = || chunks.iter().zip(&read).enumerate();
        for (index, ((_, chunk), _)) in each().filter(|(_, (_, read))| read.is_none()) {
            bodies[index] = place(chunk.body_bytes());
        }
        let staged_bytes = place(0);
        for (index, ((_, chunk), _)) in each().filter(|(_, (_, read))| read.is_some()) {
            bodies[index] = place(chunk.body_bytes());
        }
        let bytes = end + DeviceChunk::SLACK_BYTES;
        let made = each().filter(|(_, (_, read))| read.is_some());
        let made: usize = made
            .map(|(_, ((_, chunk), _))| chunk.body_made().len())
            .sum();

        let memory = staging.take(staged_bytes + made);
        let mut memory = memory.or_else(|_| host.take(staged_bytes + made))?;
        let (staged, mut free) = memory.as_mut_slice().split_at_mut(staged_bytes);
        let mut copies = vec![CopyIn {
            to: 0,
            from: staged.as_ptr(),
            bytes: staged_bytes,
        }];
        let mut from = vec![];
        let mut arriving = vec![];
        let places = fronts.into_iter().zip(bodies);
        for (((info, chunk), read), (front, body)) in chunks.into_iter().zip(read).zip(places) {
            let out = staged.get_mut(front..front + chunk.front_bytes());
            chunk.write_front(out.unwrap_or_default(), body - front)?;
            match read {
                Some(read) => {
                    copies.push(CopyIn {
                        to: body as u64,
                        from: read.as_ptr(),
                        bytes: read.len(),
                    });
                    let made = chunk.body_made();
                    if !made.is_empty() {
                        let (out, rest) = mem::take(&mut free).split_at_mut(made.len());
                        out.copy_from_slice(made);
                        copies.push(CopyIn {
                            to: (body + read.len()) as u64,
                            from: out.as_ptr(),
                            bytes: out.len(),
                        });
                        free = rest;
                    }
                    from.push(Source::Read { _memory: read });
                }
                None => {
                    let out = staged.get_mut(body..body + chunk.body_bytes());
                    chunk.write_body(out.unwrap_or_default());
                }
            }
            arriving.push((front as u64, info));
        }
        from.push(Source::Staged { _memory: memory });
        Ok(Self {
            bytes,
            copies,
            from,
            chunks: arriving,
        })
    }
}
