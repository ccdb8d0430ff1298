//! Execution of a pipeline: kernels for the current row groups, launches, results.
//!
//! [`prepare`](Execution::prepare) makes a kernel for some row groups, [`launch`] runs it over a part of them;
//! [`totals`] and [`rows`] turn the copied-back bytes into results.

mod accumulator;
mod automaton_table;
mod build_kernel;
mod code_tests;
mod compress;
mod decode;
mod distinct;
mod exact;
mod execution;
mod expansion;
mod group_table;
mod grouping_sets;
mod groups;
mod join_build;
mod launch;
mod matcher;
mod offsets;
mod parameters;
mod post_aggregation;
mod rows;
mod streams;
mod strings;
mod tables;
mod text_functions;
mod tokens;
mod totals;

pub use compress::Compressed;
pub use decode::Assembled;
pub use execution::{CancelGuard, Execution, Statistics};
pub use join_build::{Build, BuildBy, Built};
