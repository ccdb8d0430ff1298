//! Scans, aggregates and joins on the GPU.
//!
//! Imports run from top to bottom:
//!
//! ```text
//!  functions  load and unload columns: table functions and Rust calls
//!  preload    implements these
//!  optimizer  finds fusible parts of plans, decides by cost, and reports why others are not fused
//!    aggregate, join, scan  a file for each operator
//!    relation, build        what they have in common: the relation below, and tables of build sides
//!  exec       execution
//!    prewarm          node of a CPU plan during which the GPU is prepared
//!    fused_aggregate  FusedAggregateExec: groups, states and results
//!    fused_join       FusedJoinExec: rows
//!      fused_exec       the node, its properties and statistics
//!      fused_run        one run: decides between CPU and GPU, loads columns, runs the kernel
//!      fused_plan       the plan: scan, joins, operation, CPU plan
//!      operation        how aggregates and joins differ
//!    star_pipeline    the kernel's pipeline, once its key tables are built
//!      build_side       key tables of a join's build side
//!      device_build     builds large ones on the device
//!      cpu_fallback     the CPU plan if the device fails
//!    scan             filters of a scan, for the stream that otherwise evaluates them
//!    batch_stream     batches of row groups for a kernel
//!    column_loader    loads columns of row groups to the device
//!    input            the row groups that a kernel reads
//!    auto             decides between CPU and GPU at execution
//!    stage, metrics   statistics for EXPLAIN ANALYZE
//!  compressor compresses strings of written files
//!  device     the device that queries use
//!    key_table_cache  caches key tables of dimensions
//!    pins             columns pinned on the device
//!    background       prepares the device while the CPU runs queries
//!    cost_model       estimates times on CPU and GPU
//!    readiness        queries for which the device was not ready
//!    defects          handles errors that are defects of Vectile
//!  lowering   expressions as parts of a pipeline
//!    function         aggregate functions and their states
//!    group_key        grouping keys
//!    output_rows      columns of output rows
//!    group_pruning    groups that the operators above need
//!    nested_aggregate aggregates over groups
//!    build_output     tables built on the device, as outputs of a kernel
//!    probe            lookups of a kernel, for joins
//!  pattern    recognizes parts of plans
//!    aggregates       an aggregate in two steps
//!    relation         a chain of operators above a scan, as expressions over the table
//!      join             the joins of a relation
//!      conditional      joins with a condition beside their keys
//!      cross            joins with one row
//!    eager            eager aggregation below outer joins
//!    fingerprint      identity of a plan: what it reads and computes
//!    files            metadata of a scan's files
//!  multimap, dense_ids, composite_key, table, file_rows, string_id, fallback_reason, scalar, types
//! ```

mod background;
mod composite_key;
mod compressor;
mod cost_model;
mod defects;
mod dense_ids;
mod device;
mod exec;
mod fallback_reason;
mod file_rows;
mod functions;
mod key_table_cache;
mod lowering;
mod multimap;
mod optimizer;
mod pattern;
mod pins;
mod preload;
mod readiness;
mod scalar;
mod string_id;
mod table;
mod types;

pub use compressor::compressor;
pub(crate) use compressor::counting_compressor;
pub use device::Gpu;
pub(crate) use exec::fused_nodes::as_fused;
pub(crate) use exec::prewarm::{PrewarmExec, is_current};
pub(crate) use functions::functions;
pub use functions::{load_columns, unload_columns};
pub(crate) use optimizer::insert_rules;
pub use preload::PinnedColumn;
