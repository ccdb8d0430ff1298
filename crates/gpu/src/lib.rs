//! Queries over encoded columns in one kernel.

mod bandwidth;
mod batch;
mod cache;
mod codegen;
mod codes;
mod cuda;
mod devices;
mod driver;
mod engine;
mod error;
mod exact;
mod execution;
mod hashed;
mod health;
mod image;
pub mod ir;
mod kernels;
mod memory;
mod nvrtc;
mod shape;

pub use bandwidth::{Bandwidth, measure};
pub use batch::Batch;
pub use cache::{CACHE_VARIABLE, cache_directory};
pub use codes::Codes;
pub use cuda::{Cuda, driver_version};
pub use devices::{DriverInfo, NvrtcInfo, Survey};
pub use driver::{Compiled, DeviceInfo, Driver, Kernel, Launch, Mark, Stream};
pub use engine::{ChunkKey, ChunkRun, Engine, Group, Resident};
pub use error::{Error, Result};
pub use execution::{CancelGuard, Execution, Rows, Statistics};
pub use image::Image;
pub use nvrtc::{Cubin, NVRTC_VARIABLE, Nvrtc, Resources, compile_cubin, nvrtc};
