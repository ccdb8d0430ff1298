//! Pipelines: the description of what a kernel computes. A pipeline filters the rows of a table and selects,
//! projects or aggregates those that pass.
//!
//! Expressions have machine types ([`Type`]); their builder makes explicit what Arrow types mean beyond that (scales
//! of decimals, units of timestamps). Values may be null, with SQL's rules. The kernel planner derives from the data
//! if intermediate results fit 32 or 64 bits.

mod automaton;
mod code_table;
mod device_key_table;
mod expr;
mod hash_table;
mod key_table;
mod like;
mod payload_column;
mod perfect_hash;
mod pipeline;
mod post_aggregation;
mod regex;
mod results;
mod types;

pub use automaton::Automaton;
pub(crate) use code_table::{CodeTable, code_bytes};
pub(crate) use device_key_table::{DeviceKeyLayout, DeviceKeyTableLayout};
pub use expr::{Arithmetic, Comparison, DatePart, Exists, Expr, Matches, ValueFunction, ValueTest};
pub(crate) use hash_table::HashedKeys;
pub use key_table::KeyTable;
pub(crate) use key_table::{DeviceCopies, for_bytes};
pub use payload_column::PayloadColumn;
pub use pipeline::{Aggregate, Filter, GroupKey, Lookup, Output, Pipeline};
pub use post_aggregation::{FirstGroups, GroupColumn, NestedAggregation, PostAggregation};
pub use results::{GroupTotals, Groups, Number, Numbers, Total};
pub use types::{Literal, Type};
