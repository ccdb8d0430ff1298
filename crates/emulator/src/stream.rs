//! A synchronous stream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use vectile_gpu::{Event, Kernel, Launch, Result, Stream};

use crate::compile::CpuKernel;
use crate::shared::{SHARED_MEMORY, Shared, driver_error};

/// Each call does its work on the calling thread before it returns. So streams of one thread are also ordered among
/// each other.
#[derive(Debug)]
pub(crate) struct CpuStream {
    shared: Arc<Shared>,
}

impl CpuStream {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Fails unless these bytes are device memory.
    fn check(&self, call: &'static str, address: u64, bytes: usize) -> Result<()> {
        if self.shared.device.contains(address, bytes) {
            return Ok(());
        }
        let reason = format!("{bytes} bytes at {address:#x} are not all allocated");
        Err(driver_error(call, reason))
    }
}

impl Stream for CpuStream {
    unsafe fn copy_in(&mut self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        if let Some(hook) = self.shared.before_copy.get() {
            (hook.0)();
        }
        self.shared.enter("copy_in")?;
        self.check("copy_in", to, bytes)?;
        // SAFETY: the caller vouches for both ranges; they cannot overlap, one being the device's.
        unsafe { std::ptr::copy_nonoverlapping(from, to as *mut u8, bytes) };
        Ok(())
    }

    unsafe fn copy_out(&mut self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
        self.shared.enter("copy_out")?;
        self.check("copy_out", from, bytes)?;
        // SAFETY: the caller vouches for both ranges; they cannot overlap, one being the device's.
        unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to, bytes) };
        Ok(())
    }

    unsafe fn fill(&mut self, to: u64, byte: u8, bytes: usize) -> Result<()> {
        self.shared.enter("fill")?;
        self.check("fill", to, bytes)?;
        // SAFETY: the caller vouches for the range.
        unsafe { std::ptr::write_bytes(to as *mut u8, byte, bytes) };
        Ok(())
    }

    unsafe fn launch(&mut self, kernel: &dyn Kernel, launch: Launch<'_>) -> Result<()> {
        if let Some(hook) = self.shared.before_launch.get() {
            (hook.0)();
        }
        self.shared.enter("launch")?;
        let Launch {
            grid,
            block,
            shared,
            ..
        } = launch;
        let fits = grid > 0
            && (32..=1024).contains(&block)
            && block.is_multiple_of(32)
            && shared <= SHARED_MEMORY;
        if !fits {
            let reason = format!("a grid of {grid} blocks of {block} threads with {shared} bytes");
            return Err(driver_error("launch", reason));
        }
        let Some(kernel) = kernel.as_any().downcast_ref::<CpuKernel>() else {
            return Err(driver_error("launch", "a kernel of another device"));
        };
        let seed = self.shared.seed.load(Ordering::Relaxed);
        // SAFETY: the caller vouches for the same.
        unsafe { kernel.run(launch, seed) }.map_err(|reason| driver_error("launch", reason))
    }

    fn mark(&mut self) -> Result<Event> {
        Ok(Event(Box::new(Instant::now())))
    }

    fn wait(&mut self, _mark: &Event) -> Result<()> {
        Ok(())
    }

    fn synchronize(&mut self) -> Result<()> {
        self.shared.enter("synchronize")
    }

    fn elapsed(&mut self, from: &Event, to: &Event) -> Result<f64> {
        let at = |mark: &Event| mark.0.downcast_ref::<Instant>().copied();
        let (Some(from), Some(to)) = (at(from), at(to)) else {
            return Err(driver_error("elapsed", "a mark of another device"));
        };
        Ok(to.duration_since(from).as_secs_f64() * 1e3)
    }
}
