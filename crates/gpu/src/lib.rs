//! Queries over encoded columns in one kernel.
//!
//! ```text
//! plan <- kernel <- emit <- exec      what is asked, what is decided, its text, its run
//!    ^--- runtime <----------'        device, memory, compiler and their caches
//! ```
//!
//! How columns lie on a device, and the device code that reads them, are `vectile-kernels`.

mod emit;
mod error;
mod exec;
mod kernel;
pub mod plan;
mod runtime;

pub use error::{Error, Result};
pub use exec::{
    Assembled, Build, BuildBy, Built, ByteStream, CancelGuard, Compressed, DeflateChunk,
    DeflateChunks, Execution, Rows, RunPart, RunStream, Statistics, StreamColumn, StreamValues,
};
pub use kernel::coded_columns;
pub use plan::KeyTable;
pub use runtime::{
    Bandwidth, Batch, CACHE_VARIABLE, ChunkKey, ChunkRun, Compiled, CopyIn, Cubin, Cuda,
    DeviceInfo, Driver, DriverInfo, Engine, Event, Group, Kernel, Launch, NVRTC_VARIABLE, Nvrtc,
    NvrtcInfo, Resident, Resources, Staging, Stream, Survey, cache_directory, compile_cubin,
    driver_version, is_done_within, keep, kept, lower_priority, measure, nvrtc,
};
pub use vectile_kernels::{DeviceChunk, RunLength};
