//! Runs pipelines on the CPU, over vectors of 1024 rows of encoded columns.
//!
//! ```text
//! execution ──▶ filter ──▶ program ──▶ logic ──▶ primitives ──▶ vector
//!     │                       │
//!     ├──▶ combiner ──────────┤
//!     ├──▶ numbering ──▶ group └──▶ lookup, matches, reader ──▶ batch
//!     ├──▶ accumulator ──▶ masked
//!     ├──▶ partial ──▶ merge ──▶ distinct ──▶ partition
//!     └──▶ rows
//! ```
//!
//! The expressions of a pipeline become a program for each row group: a list of instructions, each of which computes a
//! vector from earlier ones. Integers are computed in 64 bits if the bounds of the row group's columns allow it. It runs
//! over whole vectors, or, if few rows pass the filter, over batches of these rows. Rows with several matches in a build
//! table are combined with them in batches, too: a batch then has a row once for each match.
//!
//! # Example
//!
//! `SELECT sum(price * quantity) WHERE quantity < 3`:
//!
//! ```
//! use std::sync::Arc;
//!
//! use arrow::array::{ArrayRef, Int64Array};
//! use arrow::datatypes::DataType;
//! use vectile_cpu::Execution;
//! use vectile_encodings::{Column, EncodeOptions, encode};
//! use vectile_pipeline::{
//!     Aggregate, Arithmetic, Comparison, Expr, Filter, Literal, Number, Output, Pipeline, Type,
//! };
//!
//! let encoded = |values: Vec<i64>| {
//!     let array: ArrayRef = Arc::new(Int64Array::from(values));
//!     let bytes = encode(&array, &EncodeOptions::default())?;
//!     Column::parse(bytes.into(), array.data_type(), array.len())
//! };
//! let columns = [encoded(vec![10, 20, 30, 40])?, encoded(vec![1, 2, 3, 4])?];
//!
//! let (price, quantity) = (Expr::Column(0), Expr::Column(1));
//! let three = Expr::Literal(Literal::Int(3, Type::I64));
//! let amount = Expr::arithmetic(Arithmetic::Multiply, price, quantity.clone());
//! let pipeline = Arc::new(Pipeline {
//!     columns: vec![DataType::Int64; 2],
//!     lookups: vec![],
//!     matches: vec![],
//!     filter: Filter::Expr(Expr::compare(Comparison::Less, quantity, three)),
//!     output: Output::Aggregates(vec![Aggregate::Sum(amount)]),
//! });
//! let mut execution = Execution::new(Arc::clone(&pipeline));
//! execution.add(Execution::run(&pipeline, &columns, 0..4, None, &mut |_| Ok(()))?)?;
//! assert_eq!(execution.totals()?[0].value, Some(Number::Int(50)));
//! # Ok::<(), vectile_pipeline::Error>(())
//! ```

mod accumulator;
mod batch;
mod clusters;
mod combiner;
mod distinct;
mod entries;
mod execution;
mod filter;
mod gather;
mod group;
mod logic;
mod lookup;
mod masked;
mod matches;
mod memory;
mod merge;
mod numbering;
mod partial;
mod partition;
mod primitives;
mod program;
mod reader;
mod row_group;
mod rows;
mod runs;
mod table;
mod vector;

pub use distinct::{DistinctCounts, DistinctPartition};
pub use execution::Execution;
pub use partial::Partial;
pub use partition::Partition;
