//! Writes the kernel of a plan. Nothing is decided here.
//!
//! ```text
//! struct C0 { .. };                    what column 0 has: widths, encodings, types
//! scan(Args a):
//!   a block takes a run of consecutive vectors, of all row groups together, its warps in turn
//!   for each vector:
//!     u32 m = rows that exist          one word a lane: the selection
//!     m &= ..                          one conjunct after another, on encoded columns
//!     if no row is left: next vector
//!     eight rows a lane at a time: decode what expressions need, compute, accumulate
//!     or, of few rows, each by itself
//!   reduce over the warp, one result a warp
//! ```

mod by_row;
mod expressions;
mod filters;
mod generator;
mod groups;
mod lookups;
mod outputs;
mod threads;
mod value;

pub(crate) use generator::{Layout, NAME, emit};
