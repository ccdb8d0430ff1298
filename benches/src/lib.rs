//! Shared code of the benchmarks: TPC-H data as files, sessions with equal settings, timing and
//! tables.

pub mod compare;
pub mod data;
pub mod report;
pub mod session;

/// The error of a benchmark: printed and done.
pub type Error = Box<dyn std::error::Error + Send + Sync>;
/// The result of a benchmark's steps.
pub type Result<T, E = Error> = std::result::Result<T, E>;
