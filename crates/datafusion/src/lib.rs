//! Vectile tables in DataFusion.
//!
//! [`register`] (or [`with_vectile`](VectileSessionStateBuilderExt::with_vectile) on a
//! `SessionStateBuilder`) teaches a session `CREATE EXTERNAL TABLE ... STORED AS VECTILE`,
//! `COPY ... TO` and `INSERT INTO`; [`register_vectile`](VectileSessionContextExt::register_vectile)
//! adds a table without SQL. Tables are DataFusion's listing tables, so files, directories, globs,
//! partitioned trees and object stores work as they do for Parquet. `STORED AS ORC` reads ORC files in the same way,
//! and [`register_format`] adds formats of your own.
//!
//! DataFusion caches directory listings without expiry. Files that a session writes as Vectile appear at once. For
//! files written by other processes, set `datafusion.runtime.list_files_cache_ttl` to a few seconds.
//!
//! With the feature `parquet`, `SET vectile.parquet = on` makes tables of Parquet files tables of Vectile's scans: filters
//! on packed columns, fused queries and devices, as for its own files.
//!
//! The feature `gpu`, which is on by default, puts aggregates and filters on CUDA devices.
//!
//! A scan evaluates the query's filters on the encoded columns and decodes only matching rows. [`VectileSource`]
//! documents which operations it takes over; `EXPLAIN` shows how each conjunct is evaluated.

mod chunk_cache;
mod container;
mod dml;
mod error;
mod expression;
#[cfg_attr(
    not(feature = "gpu"),
    allow(dead_code, reason = "only devices read columns themselves")
)]
mod file;
mod filters;
mod footer;
mod format;
mod fresh;
#[cfg(feature = "gpu")]
mod fused;
mod limits;
mod listing;
mod lower;
mod memory;
mod merge;
mod metrics;
mod nullable;
mod one_snapshot;
mod opener;
mod options;
mod order;
#[cfg(feature = "parquet")]
mod parquet;
mod partitions;
mod plan_cache;
mod projection;
mod pruning;
mod pushdown;
mod register;
mod sanity;
#[cfg_attr(
    not(feature = "gpu"),
    allow(dead_code, reason = "only devices select rows")
)]
mod selector;
#[cfg(feature = "gpu")]
mod shared;
mod sink;
mod snapshot;
mod sort;
mod source;
mod stack;
mod statistics;
mod table;
mod text;
mod whole_scan;
mod windows;

pub use container::{ContainerFileFormat, ContainerFileFormatFactory};
pub use format::{EXTENSION, VectileFormat, VectileFormatFactory};
#[cfg(feature = "gpu")]
pub use fused::{Gpu, PinnedColumn, compressor, load_columns, unload_columns};
pub use merge::{MergeError, common_type, merge_schemas};
pub use options::{
    FuseMode, GpuKernels, GpuMode, GpuTuning, ParquetMode, TableOptions, VectileOptions,
};
#[cfg(feature = "parquet")]
pub use parquet::{PARQUET_RULE, without_float_statistics};
pub use partitions::{PartitionedTable, TableFactory, partition_value};
pub use plan_cache::{PlannedStatement, execute_definition, physical_plan, plan_statement, sql};
#[cfg(feature = "gpu")]
pub use register::register_with_gpu;
pub use register::{
    VectileReadOptions, VectileSessionContextExt, VectileSessionStateBuilderExt, register,
    register_format,
};
pub use sink::VectileSink;
pub use source::VectileSource;
pub use table::{Appender, Removed, Replaced, TableSize, VectileTable, VectileTableOptions};
