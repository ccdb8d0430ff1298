//! The kernels that decode columns, and their launches.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{self, ScopedJoinHandle};

use vectile_kernels::{
    ColumnsStep, INFLATE_SNAPPY_WARP_BYTES, INFLATE_WARP_BYTES, decode_runs_warp_bytes,
};

use super::descriptors::{Descriptors, Inflation};
use crate::error::{Error, Result};
use crate::runtime::{Engine, FixedKernel, Kernel, Launch, Stream};

const WARPS: u32 = 4;

/// The kernels of a job. There are only those that it needs.
pub(super) struct Launches<'a> {
    engine: &'a Engine,
    inflate: Option<Arc<dyn Kernel>>,
    snappy: Option<Arc<dyn Kernel>>,
    pages: Option<Arc<dyn Kernel>>,
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
        let optional = [
            (descriptors.deflated.chunks, FixedKernel::Inflate),
            (descriptors.snappy.chunks, FixedKernel::InflateSnappy),
            (descriptors.pages.pages, FixedKernel::DecodePages),
        ];
        let is_needed = optional.map(|(count, _)| count > 0);
        let optional = optional.into_iter().filter(|(count, _)| *count > 0);
        let decode = descriptors.decodes.iter();
        let decode = decode.map(|of| FixedKernel::DecodeRuns(of.encoding));
        let needed = optional.map(|(_, kernel)| kernel).chain(decode);
        let needed: Vec<FixedKernel> = needed.chain([FixedKernel::Columns]).collect();
        let there = |kernel: &FixedKernel| engine.fixed_kernel(*kernel, false);
        let kernels: Vec<_> = match needed.iter().map(there).collect() {
            Err(Error::NotCompiled) if may_compile => compile(engine, &needed)?,
            loaded => loaded?,
        };
        let mut kernels = kernels.into_iter();
        let [inflate, snappy, pages] =
            is_needed.map(|is_needed| is_needed.then(|| kernels.next()).flatten());
        Ok(Self {
            engine,
            inflate,
            snappy,
            pages,
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

    /// Inflates chunks, then decodes runs and pages.
    ///
    /// # Safety
    ///
    /// As [`Stream::launch`].
    pub(super) unsafe fn decode(&self, stream: &mut dyn Stream, all: &Descriptors) -> Result<()> {
        let inflated = all.deflated.results;
        // SAFETY: as the caller says.
        unsafe {
            self.inflate(
                stream,
                self.inflate.as_ref(),
                &all.deflated,
                INFLATE_WARP_BYTES,
            )?;
            self.inflate(
                stream,
                self.snappy.as_ref(),
                &all.snappy,
                INFLATE_SNAPPY_WARP_BYTES,
            )?;
            for (kernel, of) in self.decode.iter().zip(&all.decodes) {
                let args = [of.descriptors, of.parts as u64, of.faults, inflated];
                let shared = WARPS * decode_runs_warp_bytes(of.encoding);
                self.launch(stream, &**kernel, of.parts, shared, &args)?;
            }
            if let Some(kernel) = &self.pages {
                let of = &all.pages;
                let args = [of.descriptors, of.pages as u64, of.faults];
                self.launch(stream, &**kernel, of.pages, 0, &args)?;
            }
        }
        Ok(())
    }

    /// # Safety
    ///
    /// As [`Stream::launch`].
    unsafe fn inflate(
        &self,
        stream: &mut dyn Stream,
        kernel: Option<&Arc<dyn Kernel>>,
        of: &Inflation,
        warp_bytes: u32,
    ) -> Result<()> {
        let Some(kernel) = kernel else {
            return Ok(());
        };
        let args = [of.descriptors, of.chunks as u64, of.results];
        // SAFETY: as the caller says.
        unsafe { self.launch(stream, &**kernel, of.chunks, WARPS * warp_bytes, &args) }
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
