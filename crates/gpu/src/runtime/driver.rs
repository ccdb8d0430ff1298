//! Interface of the engine to a device: memory, streams, compiling and launching kernels.
//!
//! [`Cuda`](crate::Cuda) is the real one. Tests emulate a device on a CPU behind the same trait, which runs the same
//! generated kernels.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use crate::error::Result;

/// Description of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its number, from 0.
    pub ordinal: usize,
    /// Its name, such as `NVIDIA H200`.
    pub name: String,
    /// Compute capability, such as `(9, 0)`.
    pub capability: (u32, u32),
    /// Bytes of memory.
    pub memory: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Bytes of shared memory that one block can have.
    pub shared_memory: u32,
    /// True for a CPU that emulates a device, in tests. Internal errors are then returned instead of leaving the work
    /// to the CPU.
    pub is_emulated: bool,
}

/// A kernel ready to be launched.
pub trait Kernel: Any + fmt::Debug + Send + Sync {
    /// For the driver to downcast its own kernels.
    fn as_any(&self) -> &dyn Any;

    /// Number of blocks with that many threads and bytes of dynamic shared memory that a multiprocessor runs at once;
    /// at least 1.
    fn resident_blocks(&self, threads: u32, shared: u32) -> u32;
}

/// A kernel and its origin.
#[derive(Debug)]
pub struct Compiled {
    /// The kernel.
    pub kernel: Arc<dyn Kernel>,
    /// True if it was found, embedded or on disk, instead of being compiled.
    pub is_found: bool,
}

/// A device. Calls may come from any thread; they block: do not call from an async runtime's threads.
pub trait Driver: fmt::Debug + Send + Sync {
    /// The device's description.
    fn info(&self) -> &DeviceInfo;

    /// Bytes of memory that are free now.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn free_memory(&self) -> Result<u64>;

    /// Loads the kernel of that name in CUDA C++, which is compiled unless [`Driver::find`] finds it.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`](crate::Error::Compile) with the compiler's log;
    /// [`Error::NoCompiler`](crate::Error::NoCompiler).
    fn compile(&self, source: &str, name: &str) -> Result<Compiled>;

    /// As [`Driver::compile`], but only what is embedded in Vectile or on disk: `None` if a compiler is necessary.
    ///
    /// # Errors
    ///
    /// [`Error::NoCompiler`](crate::Error::NoCompiler) if one is necessary and there is none; errors of the driver.
    fn find(&self, _source: &str, _name: &str) -> Result<Option<Compiled>> {
        Ok(None)
    }

    /// True if a compiler has to run before that kernel is loaded: NVRTC, or the driver's for PTX. There is nothing to
    /// gain from compiling others ahead. May read files.
    fn needs_compiler(&self, _source: &str, _name: &str) -> bool {
        false
    }

    /// Allocates `bytes > 0` of device memory. Returns its address, a multiple of 256.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
    fn allocate(&self, bytes: usize) -> Result<u64>;

    /// Frees device memory.
    ///
    /// # Safety
    ///
    /// `address` came from [`Driver::allocate`] of this driver, is freed once, and nothing under way on a stream uses
    /// it.
    unsafe fn free(&self, address: u64);

    /// Allocates `bytes > 0` of zeroed host memory that the device copies from at full speed, at a multiple of 256.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn allocate_host(&self, bytes: usize) -> Result<*mut u8>;

    /// Frees host memory.
    ///
    /// # Safety
    ///
    /// As [`Driver::free`], for [`Driver::allocate_host`].
    unsafe fn free_host(&self, address: *mut u8);

    /// A new stream: its work runs in order, concurrently with other streams.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    fn stream(&self) -> Result<Box<dyn Stream>>;
}

/// Configuration and arguments of a launch.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    /// Number of blocks.
    pub grid: u32,
    /// Threads of a block, a multiple of 32.
    pub block: u32,
    /// Bytes of dynamic shared memory of a block.
    pub shared: u32,
    /// The kernel's only parameter, a struct of as many 64-bit words.
    pub args: &'a [u64],
}

/// A copy from host memory to the device.
#[derive(Clone, Copy, Debug)]
pub struct CopyIn {
    /// Address on the device.
    pub to: u64,
    /// Address on the host.
    pub from: *const u8,
    /// Number of bytes.
    pub bytes: usize,
}

/// Work for a device, in order.
pub trait Stream: Send {
    /// Copies host memory to the device.
    ///
    /// # Safety
    ///
    /// Both ranges are valid, and stay so and unchanged until the stream has passed this point.
    unsafe fn copy_in(&mut self, to: u64, from: *const u8, bytes: usize) -> Result<()>;

    /// Makes several copies, in any order.
    ///
    /// # Safety
    ///
    /// As [`Stream::copy_in`] for each copy; no two of them write the same bytes.
    unsafe fn copy_in_all(&mut self, copies: &[CopyIn]) -> Result<()> {
        copies.iter().try_for_each(|copy| {
            // SAFETY: as the caller says.
            unsafe { self.copy_in(copy.to, copy.from, copy.bytes) }
        })
    }

    /// Copies device memory to the host.
    ///
    /// # Safety
    ///
    /// As [`Stream::copy_in`].
    unsafe fn copy_out(&mut self, to: *mut u8, from: u64, bytes: usize) -> Result<()>;

    /// Fills device memory with a byte.
    ///
    /// # Safety
    ///
    /// The range is valid and stays so until the stream has passed this point.
    unsafe fn fill(&mut self, to: u64, byte: u8, bytes: usize) -> Result<()>;

    /// Launches a kernel.
    ///
    /// # Safety
    ///
    /// The arguments are those that the kernel expects, and the memory they name is valid and stays so until the
    /// stream has passed this point.
    unsafe fn launch(&mut self, kernel: &dyn Kernel, launch: Launch<'_>) -> Result<()>;

    /// Launches a kernel. Returns the events before and after it.
    ///
    /// # Safety
    ///
    /// As [`Stream::launch`].
    unsafe fn launch_timed(
        &mut self,
        kernel: &dyn Kernel,
        launch: Launch<'_>,
    ) -> Result<(Event, Event)> {
        let start = self.mark()?;
        // SAFETY: as the caller says.
        unsafe { self.launch(kernel, launch) }?;
        Ok((start, self.mark()?))
    }

    /// Records an event at the present point of the stream, for [`Stream::wait`] and [`Stream::elapsed`].
    fn mark(&mut self) -> Result<Event>;

    /// Makes later work wait until another stream of the device has passed `mark`.
    fn wait(&mut self, mark: &Event) -> Result<()>;

    /// Blocks the calling thread until all work so far is done.
    fn synchronize(&mut self) -> Result<()>;

    /// Milliseconds between two events of this stream, both passed.
    fn elapsed(&mut self, from: &Event, to: &Event) -> Result<f64>;
}

/// A point of a stream.
pub struct Event(pub Box<dyn Any + Send + Sync>);

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Event")
    }
}
