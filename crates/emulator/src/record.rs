//! Records the kernels of queries as text, without running them.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};

use vectile_gpu::{Compiled, DeviceInfo, Driver, Kernel, Result, Stream};

use crate::{CpuDevice, GENERATED};

/// A device that records the sources it should compile. Kernels of queries are not compiled: their launches fail.
#[derive(Debug)]
pub struct Recorder {
    device: CpuDevice,
    info: DeviceInfo,
    sources: Mutex<Vec<String>>,
}

impl Recorder {
    /// A device with the memory of this one.
    pub fn new(device: CpuDevice) -> Self {
        let info = device.info().clone();
        Self {
            device,
            info,
            sources: Mutex::default(),
        }
    }

    /// Sets the number of multiprocessors and the bytes of shared memory, on which kernels depend.
    #[must_use]
    pub fn with_size(mut self, multiprocessors: u32, shared_memory: u32) -> Self {
        self.info.multiprocessors = multiprocessors;
        self.info.shared_memory = shared_memory;
        self
    }

    /// The sources of the kernels that were compiled since the last call.
    pub fn take(&self) -> Vec<String> {
        let sources = self.sources.lock();
        std::mem::take(&mut sources.unwrap_or_else(PoisonError::into_inner))
    }
}

#[derive(Debug)]
struct NoKernel;

impl Kernel for NoKernel {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn resident_blocks(&self, _threads: u32, _shared: u32) -> u32 {
        1
    }
}

impl Driver for Recorder {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn free_memory(&self) -> Result<u64> {
        self.device.free_memory()
    }

    fn compile(&self, source: &str, name: &str) -> Result<Compiled> {
        let sources = self.sources.lock();
        sources
            .unwrap_or_else(PoisonError::into_inner)
            .push(source.into());
        // other kernels are launched, because later kernels depend on their results
        if name != GENERATED {
            return self.device.compile(source, name);
        }
        Ok(Compiled {
            kernel: Arc::new(NoKernel),
            is_found: false,
        })
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.device.allocate(bytes)
    }

    unsafe fn free(&self, address: u64) {
        // SAFETY: as the caller says.
        unsafe { self.device.free(address) }
    }

    fn allocate_host(&self, bytes: usize) -> Result<*mut u8> {
        self.device.allocate_host(bytes)
    }

    unsafe fn free_host(&self, address: *mut u8) {
        // SAFETY: as the caller says.
        unsafe { self.device.free_host(address) }
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        self.device.stream()
    }
}
