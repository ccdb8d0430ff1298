//! Scans and aggregates on the GPU.
//!
//! Imports run from top to bottom:
//!
//! ```text
//!  functions  SQL and calls that load columns and unload them
//!  preload    what these do
//!  rule       finds what can be fused, weighs it up, and says why the rest is not
//!  nodes      what runs
//!    aggregate  a plan node: loads, runs the kernel, builds the states of the aggregates
//!    star       the kernel's pipeline, once the tables it looks up are there
//!      dimension  those tables, made of the small sides of joins
//!      build      the same, made on the device of large ones
//!      cpu        what the CPU does where the device cannot
//!    prepare    a plan node: the CPU's answer, while the GPU is made ready
//!    scan       the filters of a scan, for the stream that otherwise evaluates them itself
//!    arrivals   row groups as a kernel takes them
//!    load       row groups on their way to the device
//!  orc        columns of ORC files, in streams that the device decodes
//!  compressor strings of files that are written
//!  device     the device that queries use
//!    dimension_cache  tables of dimensions, kept beside it
//!    pins       columns that stay there
//!    background what makes it ready once the CPU has answered
//!    costs      what queries may take on either
//!    defects    what becomes of errors that are ours
//!  lowering   expressions as parts of a pipeline
//!    function   aggregate functions, and their states
//!    grouping   the keys of groups
//!    rows       the columns of rows
//!    wanted     groups that the operators above want
//!    again      aggregates over groups
//!    build      tables that the device makes, as outputs of a kernel
//!    lookups    what kernels look up for joins
//!  pattern    what is recognized in a plan
//!    aggregates an aggregate in two steps
//!    relation   a chain of operators above a scan, as expressions over the table
//!      join       what it is joined with, told apart from it
//!      conditional joins with a condition beside their keys
//!    eager      aggregates of what outer joins add, before the join
//!    identity   what a plan reads and computes
//!    files      what is known of the files of a scan
//!  file_rows, packing, reason, scalar, table, types
//! ```

mod background;
mod composite_key;
mod compressor;
mod cost_model;
mod defects;
mod dense_ids;
mod device;
mod dimension_cache;
mod exec;
mod fallback_reason;
mod file_rows;
mod functions;
mod lowering;
mod multimap;
mod orc;
mod pattern;
mod pins;
mod preload;
mod rule;
mod scalar;
mod table;
mod types;

pub use compressor::compressor;
pub(crate) use compressor::counting_compressor;
pub use device::Gpu;
pub(crate) use exec::fused_aggregate::{on_cpu, with_subqueries};
pub(crate) use functions::functions;
pub use functions::{load_columns, unload_columns};
pub use preload::PinnedColumn;
pub(crate) use rule::insert_rules;
