//! How column chunks lie on a device, and what kernels have to know of them.

mod image;
mod shape;

pub(crate) use image::Chunk;
pub use image::Image;
pub(crate) use shape::{Form, SCALES, SequenceKind, Shape};
