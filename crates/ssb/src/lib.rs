//! The five tables of the Star Schema Benchmark (O'Neil, O'Neil, Chen, revision 3) as Arrow record
//! batches, made on the random streams of `tpchgen`.
//!
//! Rows are those of the reference generator when it generates one table per run, which published
//! answers assume; with several tables in one run, they share random streams, and the rows differ.
//!
//! Any range of a table is generated independently, so parts can be generated in parallel:
//!
//! ```
//! use arrow::array::AsArray;
//! use arrow::datatypes::Int64Type;
//! use vectile_ssb::{Scale, Table};
//!
//! let scale: Scale = "1".parse()?;
//! assert_eq!(Table::Lineorder.units(scale), 1_500_000); // orders, of 1 to 7 lines
//!
//! let mut orders = Table::Lineorder.generate(scale, 0..100);
//! let lines = orders.next().expect("100 orders make one batch")?;
//! assert!(orders.next().is_none());
//! let price = lines["lo_extendedprice"].as_primitive::<Int64Type>();
//! assert_eq!(price.value(0), 2_116_823); // cents
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod columns;
mod date;
mod lineorder;
mod part;
mod party;
mod scale;
mod stream;
mod table;

pub use scale::{Scale, ScaleError};
pub use table::{Batches, Table};
