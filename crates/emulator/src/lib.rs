//! A CPU that emulates a GPU, for tests: [`CpuDevice`] runs the very CUDA C++ that is generated for a GPU, one fiber
//! per CUDA thread, behind [`vectile_gpu::Driver`].
//!
//! The machine's C++ compiler compiles a kernel between the two of `headers/`, which replace the predefinitions of a
//! CUDA compiler. The result is kept on disk, by the hash of all that. A kernel must
//!
//! - include nothing outside `#ifndef CUCPU`, and have its own typedefs;
//! - take one struct of 64-bit words, by value, and be `extern "C"`;
//! - get dynamic shared memory by `DYN_SHARED(T, name)`, which the emulator defines here;
//! - leave out `__activemask` and inline PTX, and call `__nanosleep` where it spins.
//!
//! Besides wrong answers, the emulator detects lanes that wait for each other forever, masks that do not fit, missing
//! barriers (under some [seed](CpuDevice::with_seed)), copies outside of allocated memory, and, under
//! [sanitizers](run_sanitized_self), each access of a kernel outside of its memory and undefined behaviour. New memory
//! is filled with `0xCD`, and so is shared memory when a block starts.
//!
//! Blocks run one after the other, unless the [seed](CpuDevice::set_seed) makes them take turns. A turn ends where
//! threads meet, end, or use atomics: a block that relies on the absence of another block's writes has another answer
//! under some seed.
//!
//! Races inside one step of a warp are not detected. The emulator says nothing of a GPU's speed; tests should use 10^4
//! to 10^6 values.

mod compile;
mod jobs;
mod memory;
mod record;
mod sanitize;
mod shared;
mod stream;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use vectile_gpu::{Compiled, DeviceInfo, Driver, Error, Result, Stream};

use crate::compile::Compiler;
use crate::memory::Memory;
use crate::shared::{Hook, SHARED_MEMORY, Shared};
use crate::stream::CpuStream;

pub use compile::sanitized;
pub use jobs::{Done, Job, JobKernel, Jobs};
pub use record::Recorder;
pub use sanitize::{run_sanitized_self, sanitized_self};

/// Default bytes of device memory.
const DEFAULT_MEMORY: u64 = 4 << 30;

/// Few, so that grids stay small.
const MULTIPROCESSORS: u32 = 2;

/// The name of queries' kernels.
const GENERATED: &str = "scan";

/// A device that runs kernels on the calling thread.
#[derive(Debug)]
pub struct CpuDevice {
    info: DeviceInfo,
    compiler: Compiler,
    shared: Arc<Shared>,
    compiles: Compiles,
}

/// The kernels that compile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Compiles {
    All,
    /// Those that are the same for every query.
    Fixed,
    None,
}

impl CpuDevice {
    /// A device with 4 GiB of memory, whose threads run in order.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] without a C++ compiler (`CXX`, or else `c++`), and on machines other
    /// than Linux on x86-64.
    pub fn new() -> Result<Self> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(Error::Unavailable(
                "kernels run on the CPU under Linux on x86-64 only".into(),
            ));
        }
        Ok(Self {
            info: DeviceInfo {
                ordinal: 0,
                name: "CPU emulator".into(),
                capability: (0, 0),
                memory: DEFAULT_MEMORY,
                multiprocessors: MULTIPROCESSORS,
                shared_memory: SHARED_MEMORY,
                is_emulated: true,
            },
            compiler: Compiler::new()?,
            compiles: Compiles::All,
            shared: Arc::new(Shared {
                device: Memory::new(DEFAULT_MEMORY),
                host: Memory::new(u64::MAX),
                seed: AtomicU64::new(0),
                calls_to_fault: AtomicU64::new(0),
                is_lost: AtomicBool::new(false),
                calls: AtomicU64::new(0),
                before_launch: OnceLock::new(),
                before_copy: OnceLock::new(),
            }),
        })
    }

    /// Sets the bytes of device memory: [`Driver::allocate`] fails beyond them.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.info.memory = bytes;
        self.shared.device.set_limit(bytes);
        self
    }

    /// Sets the number of multiprocessors, two by default.
    #[must_use]
    pub fn with_multiprocessors(mut self, count: u32) -> Self {
        self.info.multiprocessors = count;
        self
    }

    /// Behaves as a GPU: an internal error is a warning, and the CPU takes over.
    #[must_use]
    pub fn as_a_gpu(mut self) -> Self {
        self.info.is_emulated = false;
        self
    }

    /// Uses a compiler that fails for every kernel.
    #[must_use]
    pub fn with_broken_compiler(mut self) -> Self {
        self.compiles = Compiles::None;
        self
    }

    /// Has kernels that are the same for every query, but no compiler for others: like a GPU without NVRTC.
    #[must_use]
    pub fn without_compiler(mut self) -> Self {
        self.compiles = Compiles::Fixed;
        self
    }

    /// Sets the order of threads, see [`CpuDevice::set_seed`].
    #[must_use]
    pub fn with_seed(self, seed: u64) -> Self {
        self.set_seed(seed);
        self
    }

    /// Compiles kernels in half of the time, without optimization. They run slower: this is for tests of many kernels
    /// over few rows.
    #[must_use]
    pub fn without_optimization(mut self) -> Self {
        self.compiler.optimises = false;
        self
    }

    /// Uses this folder for compiled kernels, instead of `cpu-kernels` beside the running program (which for tests is
    /// in cargo's target folder). Code is loaded from it: other users must not be able to write to it.
    #[must_use]
    pub fn with_cache(mut self, folder: impl AsRef<Path>) -> Self {
        self.compiler.cache = PathBuf::from(folder.as_ref());
        self
    }

    /// Sets the order in which threads of a block run from the next launch on. 0: in order; 1: in reverse; any other:
    /// a random order, which changes at each barrier or warp operation, and up to four blocks take turns of random
    /// length. The same seed gives the same order.
    pub fn set_seed(&self, seed: u64) {
        self.shared.seed.store(seed, Ordering::Relaxed);
    }

    /// Makes the `n`-th following call that allocates, copies, fills, launches or synchronizes fail once, with
    /// [`Error::Driver`]; 0 cancels that. Raising `n` until no fault happens visits every call of a driver that can
    /// fail.
    pub fn fail_after(&self, n: u64) {
        self.shared.calls_to_fault.store(n, Ordering::Relaxed);
    }

    /// Returns true if the fault of [`CpuDevice::fail_after`] is still to come.
    pub fn fault_pending(&self) -> bool {
        self.shared.calls_to_fault.load(Ordering::Relaxed) > 0
    }

    /// Makes every following call of these kinds fail, with [`Error::Lost`].
    pub fn lose(&self) {
        self.shared.is_lost.store(true, Ordering::Relaxed);
    }

    /// Number of calls of these kinds so far.
    pub fn calls(&self) -> u64 {
        self.shared.calls.load(Ordering::Relaxed)
    }

    /// Calls `hook` before each launch, on its thread.
    #[must_use]
    pub fn before_launch(self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        let _ = self.shared.before_launch.set(Hook(Box::new(hook)));
        self
    }

    /// Calls `hook` before each copy to the device, on its thread.
    #[must_use]
    pub fn before_copy(self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        let _ = self.shared.before_copy.set(Hook(Box::new(hook)));
        self
    }

    /// Bytes of allocated device memory: 0 once everything is freed.
    pub fn allocated_bytes(&self) -> u64 {
        self.shared.device.allocated_bytes()
    }

    /// Bytes allocated by [`Driver::allocate_host`].
    pub fn allocated_host_bytes(&self) -> u64 {
        self.shared.host.allocated_bytes()
    }
}

impl Driver for CpuDevice {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn free_memory(&self) -> Result<u64> {
        Ok(self.shared.device.free_bytes())
    }

    fn compile(&self, source: &str, name: &str) -> Result<Compiled> {
        if let Some(found) = self.find(source, name)? {
            return Ok(found);
        }
        match self.compiles {
            Compiles::None => Err(Error::Compile {
                log: format!("{name} is not compiled"),
            }),
            Compiles::Fixed | Compiles::All => self.compiler.compile(source, name),
        }
    }

    fn find(&self, source: &str, name: &str) -> Result<Option<Compiled>> {
        match self.compiles {
            Compiles::Fixed if name == GENERATED => Err(Error::NoCompiler("there is none".into())),
            Compiles::Fixed => {
                let embedded = self.compiler.compile(source, name)?;
                let is_found = true;
                Ok(Some(Compiled {
                    is_found,
                    ..embedded
                }))
            }
            Compiles::All | Compiles::None => Ok(None),
        }
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.shared.enter("allocate")?;
        self.shared.device.allocate(bytes)
    }

    unsafe fn free(&self, address: u64) {
        self.shared.device.free(address);
    }

    fn allocate_host(&self, bytes: usize) -> Result<*mut u8> {
        self.shared.enter("allocate_host")?;
        let address = self.shared.host.allocate(bytes)? as *mut u8;
        // SAFETY: `bytes` of memory that is not shared yet.
        unsafe { address.write_bytes(0, bytes) };
        Ok(address)
    }

    unsafe fn free_host(&self, address: *mut u8) {
        self.shared.host.free(address as u64);
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(Box::new(CpuStream::new(Arc::clone(&self.shared))))
    }
}
