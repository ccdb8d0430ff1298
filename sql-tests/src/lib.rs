//! Runs the same SQL over plain Arrow tables and over Vectile tables, in files and in memory.
//!
//! A sqllogictest file creates its tables in SQL. [`Engine`] runs such a file on DataFusion, either
//! unchanged, or so that after each statement every new table is replaced by a Vectile table over
//! files or in memory ([`CompressedTables`]): same rows, name, schema, nullability,
//! constraints and column defaults. All later statements of the file read, and insert into, the
//! Vectile table.
//!
//! With `VECTILE_TEST_GPU=1`, queries over Vectile tables run on the machine's GPU where they can
//! ([`GpuRun`]).
//!
//! Test programs run on a machine without a checkout or cargo, too: `SQL_TESTS_DIR` then names a
//! copy of this package's folder, and `SQL_TESTS_PACKAGES` one with the packages
//! `datafusion-sqllogictest` and `datafusion-datasource-arrow`.
//!
//! [`run_file`] returns one [`Outcome`] per record, so that runs can be compared record by record.

mod benchmark;
mod compressed;
mod engine;
mod gpu;
mod memory;
mod package;
mod random;
mod run;

pub use benchmark::{
    Rows, answer, benchmark_session, move_to_memory, orc_tables, run_benchmark, session_over,
    table_in_memory,
};
pub use compressed::{CompressedTables, Layout};
pub use engine::Engine;
pub use gpu::{GPU_VARIABLE, GpuRun, OnGpu, register_vectile};
pub use package::{Sandbox, package_dir, test_dir};
pub use random::Random;
pub use run::{FileRun, Outcome, RecordRun, complete_file, run_file, same_rows, statements};
