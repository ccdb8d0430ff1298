//! Fused pipelines as data: what one pass over the columns of a table computes. A pipeline filters rows, looks their
//! keys up in build tables, and selects, projects or aggregates those that pass.
//!
//! This crate knows neither SQL nor a device. Lowering produces pipelines from plans; engines run them.
//!
//! Expressions have machine types ([`Type`]); their builder makes explicit what Arrow types mean beyond that (scales
//! of decimals, units of timestamps). Values may be null, with SQL's rules.
//!
//! ```text
//! post_aggregation ──▶ pipeline ──▶ expr ──▶ op, join, types
//! results                           domain ──▶ bounds; parallel
//! ```
//!
//! # Example
//!
//! `SELECT sum(price * (1 - discount)) WHERE quantity < 24`, where prices and discounts are integers:
//!
//! ```
//! use arrow::datatypes::DataType;
//! use vectile_pipeline::{Aggregate, Arithmetic, Comparison, Expr, Filter, Literal, Output, Pipeline, Type};
//!
//! let column = Expr::Column;
//! let int = |value| Expr::Literal(Literal::Int(value, Type::I64));
//! let rest = Expr::arithmetic(Arithmetic::Subtract, int(100), column(1));
//! let revenue = Expr::arithmetic(Arithmetic::Multiply, column(0), rest);
//! let pipeline = Pipeline {
//!     columns: vec![DataType::Int64; 3],
//!     lookups: vec![],
//!     matches: vec![],
//!     filter: Filter::Expr(Expr::compare(Comparison::Less, column(2), int(24))),
//!     output: Output::Aggregates(vec![Aggregate::Sum(revenue)]),
//! };
//! // each row counts once: no key of it has several matches
//! assert_eq!(pipeline.most_combinations(), 1);
//! ```

mod bounds;
mod domain;
mod error;
mod expr;
pub mod join;
mod op;
pub mod parallel;
mod pipeline;
mod post_aggregation;
mod results;
mod types;

pub use bounds::{Bounds, KNOWN_DAYS};
pub use domain::Domain;
pub use error::{Error, Result};
pub use expr::{Code, Exists, Expr, Matches, TextFunction, ValueFunction, ValueTest};
pub use join::{KeyChunks, KeyTable, PayloadColumn, RowCodes};
pub use op::{Arithmetic, Comparison, DatePart, Op};
pub use pipeline::{Aggregate, Filter, GroupKey, Lookup, Output, Pipeline};
pub use post_aggregation::{GroupColumn, NestedAggregation, PostAggregation, TopK};
pub use results::{GroupTotals, Groups, Number, Numbers, Rows, Total};
pub use types::{Literal, Type};
pub use vectile_encodings::Automaton;
