//! A pipeline under way: kernels for the chunks at hand, launches, results.
//!
//! [`prepare`](Execution::prepare) makes a kernel for some row groups, [`launch`] runs it over a part
//! of them; [`totals`] and [`rows`] make results of what comes back.

mod accumulator;
mod answers;
mod assemble;
mod build;
mod compress;
mod distinct;
mod exact;
mod execution;
mod expansion;
mod group_table;
mod groups;
mod launch;
mod matcher;
mod post_aggregation;
mod parameters;
mod places;
mod rows;
mod streams;
mod strings;
mod tables;
mod text;
mod tokens;
mod totals;

pub use assemble::Assembled;
pub use build::{Build, BuildBy, Built};
pub use compress::Compressed;
pub use execution::{CancelGuard, Execution, Statistics};
pub use rows::Rows;
pub use streams::{
    ByteStream, DeflateChunk, DeflateChunks, RunPart, RunStream, StreamColumn, StreamValues,
};
