//! A pipeline under way: kernels for the chunks at hand, launches, results.
//!
//! [`prepare`](Execution::prepare) makes a kernel for some row groups, [`launch`] runs it over a part
//! of them; [`totals`] and [`rows`] make results of what comes back.

mod accumulator;
mod answers;
mod automaton_table;
mod compress;
mod decode;
mod distinct;
mod exact;
mod execution;
mod expansion;
mod group_table;
mod groups;
mod join_build;
mod launch;
mod matcher;
mod parameters;
mod places;
mod post_aggregation;
mod rows;
mod streams;
mod strings;
mod tables;
mod tokens;
mod totals;

pub use compress::Compressed;
pub use decode::Assembled;
pub use execution::{CancelGuard, Execution, Statistics};
pub use join_build::{Build, BuildBy, Built};
pub use rows::Rows;
pub use streams::{
    ByteStream, DeflateChunk, DeflateChunks, RunPart, RunStream, StreamColumn, StreamValues,
};
