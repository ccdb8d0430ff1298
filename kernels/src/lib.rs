//! Device code of CUDA kernels, and the layout of column chunks that it reads.

mod error;
mod headers;
mod image;
mod shape;
mod types;

pub use error::{Error, Result};
pub use headers::{BANDWIDTH, FLOATS, HASHED, LOOKUPS, SCAN};
pub use image::{Chunk, Image};
pub use shape::{Form, SCALES, SequenceKind, Shape};
pub use types::Type;
