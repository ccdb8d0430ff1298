//! The kernels that decode columns, and their launches.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

use vectile_kernels::{ColumnsStep, INFLATE_WARP_BYTES, decode_runs_warp_bytes};

use super::descriptors::{Decode, Descriptors};
use crate::error::{Error, Result};
use crate::runtime::{Engine, FixedKernel, Kernel, Launch, Stream};

const WARPS: u32 = 4;

/// The kernels of a job.
pub(super) struct Launches<'a> {
    engine: &'a Engine,
    chunks: usize,
    inflate: Option<Arc<dyn Kernel>>,
    decode: Vec<Arc<dyn Kernel>>,
    columns: Arc<dyn Kernel>,
}

/// Compiles kernels at the same time.
fn compile(engine: &Engine, needed: &[FixedKernel]) -> Result<Vec<Arc<dyn Kernel>>> {
    thread::scope(|scope| {
        let compile = |kernel| move || engine.fixed_kernel(kernel, true);
        let spawn = |kernel: &FixedKernel| {
            let thread = thread::Builder::new().spawn_scoped(scope, compile(*kernel));
            (*kernel, thread.ok())
        };
        let threads: Vec<_> = needed.iter().map(spawn).collect();
        let compiled = threads.into_iter().map(|(kernel, thread)| {
            match thread.map(ScopedJoinHandle::join) {
                Some(Ok(compiled)) => compiled,
                Some(Err(panic)) => resume_unwind(panic),
                // if no thread starts, it is compiled now
                None => engine.fixed_kernel(kernel, true),
            }
        });
        compiled.collect()
    })
}

impl<'a> Launches<'a> {
    pub(super) fn new(
        engine: &'a Engine,
        may_compile: bool,
        descriptors: &Descriptors,
    ) -> Result<Self> {
        let inflate = (descriptors.chunks > 0).then_some(FixedKernel::Inflate);
        let decode = descriptors.decodes.iter();
        let decode = decode.map(|of| FixedKernel::DecodeRuns(of.encoding));
        let needed = inflate.into_iter().chain(decode);
        let needed: Vec<FixedKernel> = needed.chain([FixedKernel::Columns]).collect();
        let there = |kernel: &FixedKernel| engine.fixed_kernel(*kernel, false);
        let kernels: Vec<_> = match needed.iter().map(there).collect() {
            Err(Error::NotCompiled) if may_compile => compile(engine, &needed)?,
            loaded => loaded?,
        };
        let mut kernels = kernels.into_iter();
        let inflate = inflate.and_then(|_| kernels.next());
        Ok(Self {
            engine,
            chunks: descriptors.chunks,
            inflate,
            columns: kernels.next_back().ok_or(Error::NotCompiled)?,
            decode: kernels.collect(),
        })
    }

    /// # Safety
    ///
    /// As [`Stream::launch`].
    unsafe fn launch(
        &self,
        stream: &mut dyn Stream,
        kernel: &dyn Kernel,
        warps: usize,
        shared: u32,
        args: &[u64],
    ) -> Result<()> {
        if warps == 0 {
            return Ok(());
        }
        let block = WARPS * 32;
        let resident = kernel.resident_blocks(block, shared).max(1);
        let resident = resident.saturating_mul(self.engine.device().multiprocessors.max(1));
        let needed = warps
            .div_ceil(WARPS as usize)
            .try_into()
            .unwrap_or(u32::MAX);
        let grid = resident.min(needed);
        let launch = Launch {
            grid,
            block,
            shared,
            args,
        };
        // SAFETY: as the caller says.
        unsafe { stream.launch(kernel, launch) }
    }

    /// # Safety
    ///
    /// As [`Stream::launch`].
    pub(super) unsafe fn inflate(
        &self,
        stream: &mut dyn Stream,
        descriptors: u64,
        results: u64,
    ) -> Result<()> {
        let Some(kernel) = &self.inflate else {
            return Ok(());
        };
        let args = [descriptors, self.chunks as u64, results];
        let shared = WARPS * INFLATE_WARP_BYTES;
        // SAFETY: as the caller says.
        unsafe { self.launch(stream, &**kernel, self.chunks, shared, &args) }
    }

    /// # Safety
    ///
    /// As [`Stream::launch`].
    pub(super) unsafe fn decode(
        &self,
        stream: &mut dyn Stream,
        all: &[Decode],
        inflated: u64,
    ) -> Result<()> {
        for (kernel, of) in self.decode.iter().zip(all) {
            let args = [of.descriptors, of.parts as u64, of.faults, inflated];
            let shared = WARPS * decode_runs_warp_bytes(of.encoding);
            // SAFETY: as the caller says.
            unsafe { self.launch(stream, &**kernel, of.parts, shared, &args) }?;
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As [`Stream::launch`].
    pub(super) unsafe fn columns(
        &self,
        stream: &mut dyn Stream,
        step: ColumnsStep,
        [at, count, vectors]: [u64; 3],
    ) -> Result<()> {
        let args = [step as u64, at, count, vectors];
        // SAFETY: as the caller says.
        unsafe { self.launch(stream, &*self.columns, vectors as usize, 0, &args) }
    }
}
