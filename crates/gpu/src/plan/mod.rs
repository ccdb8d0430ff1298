//! What a kernel computes: a filter over the columns of a table, and what becomes of the rows that
//! pass.
//!
//! Expressions are typed by the machine ([`Type`]); what Arrow's types mean beyond that (scales of
//! decimals, units of timestamps) is made explicit by whoever builds them. Values may be null, with
//! SQL's rules. Whether intermediate results fit 32 or 64 bits is worked out from the data when
//! code is generated.

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
