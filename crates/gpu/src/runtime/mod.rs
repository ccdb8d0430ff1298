//! A device, and what is cached on it: memory, column chunks, kernels.

mod bandwidth;
mod batch;
mod cache;
mod calls;
mod chunks;
mod copiers;
mod cuda;
mod devices;
mod driver;
mod engine;
mod exit;
mod health;
mod huge;
mod kernels;
mod memory;
mod nvrtc;
mod parcel;
mod priority;

pub use bandwidth::{Bandwidth, measure};
pub use batch::Batch;
pub(crate) use batch::{Stack, TextTests, TextTokens};
pub use cache::{CACHE_VARIABLE, cache_directory, keep, kept};
pub use calls::driver_version;
pub use chunks::{ChunkKey, ChunkRun, Group, Resident};
pub use cuda::Cuda;
pub use devices::{DriverInfo, NvrtcInfo, Survey};
pub use driver::{Compiled, CopyIn, DeviceInfo, Driver, Kernel, Launch, Mark, Stream};
pub use engine::Engine;
pub(crate) use engine::Lane;
pub use exit::is_done_within;
pub(crate) use kernels::Loaded;
pub use memory::Staging;
pub(crate) use memory::{Piece, lock};
pub use nvrtc::{Cubin, NVRTC_VARIABLE, Nvrtc, Resources, compile_cubin, nvrtc};
pub use priority::lower_priority;
