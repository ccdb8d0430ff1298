//! The same SQL over plain Arrow tables and over Vectile files.
//!
//! A sqllogictest file creates its tables in SQL. [`Engine`] runs such a file on DataFusion, either
//! as it is, or so that after each statement every new table is written to Vectile files and
//! replaced by a table over them ([`CompressedTables`]): same name, schema, nullability,
//! constraints and column defaults. All later statements of the file read, and insert into, the
//! Vectile table.
//!
//! [`run_file`] gives one [`Outcome`] per record, so that runs can be compared record by record.

mod compressed;
mod engine;
mod package;
mod run;

pub use compressed::{CompressedTables, Layout};
pub use engine::{Engine, register_vectile};
pub use package::{Sandbox, package_dir};
pub use run::{FileRun, Outcome, Ran, complete_file, run_file, same_rows, statements};
