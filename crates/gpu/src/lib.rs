//! Runs a query over encoded columns as one kernel: generated for it, or the interpreter of its program.
//!
//! ```text
//! kernel <- emit <- program <- exec   kernel plan, CUDA text, program of the interpreter, execution
//!    ^------- runtime <-------'       device, memory, compiler and their caches
//! ```
//!
//! `vectile-pipeline` defines what a query computes; `vectile-kernels` defines the layout of columns on a device and the
//! device code that reads them.

mod emit;
mod error;
mod exec;
mod kernel;
mod program;
mod runtime;

pub use error::{Error, Result};
pub use exec::{Assembled, Build, BuildBy, Built, CancelGuard, Compressed, Execution, Statistics};
pub use kernel::coded_columns;
pub use runtime::{
    ArchiveError, Bandwidth, Batch, CACHE_VARIABLE, ChunkKey, ChunkRun, Compiled, CopyIn, Cubin,
    Cuda, DeviceInfo, Driver, DriverInfo, Engine, Event, Group, Kernel, Launch, NVRTC_VARIABLE,
    Nvrtc, NvrtcInfo, Precompiled, Resident, Resources, Staging, Stream, Survey, Target, Tier,
    cache_directory, compile_cubin, driver_version, is_done_within, keep, kept, lower_priority,
    measure, nvrtc, precompile,
};
pub use vectile_kernels::DeviceChunk;
