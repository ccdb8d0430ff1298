//! Queries over encoded columns in one kernel.
//!
//! ```text
//! plan <- layout <- kernel <- emit <- exec      what is asked, how columns lie, what is decided, its text, its run
//!              ^--- runtime <----------'        device, memory, compiler and their caches
//! ```

mod emit;
mod error;
mod exec;
mod kernel;
mod layout;
pub mod plan;
mod runtime;

pub use error::{Error, Result};
pub use exec::{CancelGuard, Execution, Rows, Statistics};
pub use layout::Image;
pub use plan::Codes;
pub use runtime::{
    Bandwidth, Batch, CACHE_VARIABLE, ChunkKey, ChunkRun, Compiled, Cubin, Cuda, DeviceInfo,
    Driver, DriverInfo, Engine, Group, Kernel, Launch, Mark, NVRTC_VARIABLE, Nvrtc, NvrtcInfo,
    Resident, Resources, Stream, Survey, cache_directory, compile_cubin, driver_version, measure,
    nvrtc,
};
