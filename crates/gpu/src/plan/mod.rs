//! What a kernel computes: a filter over the columns of a table, and what becomes of the rows that
//! pass.
//!
//! Expressions are typed by the machine ([`Type`]); what Arrow's types mean beyond that (scales of
//! decimals, units of timestamps) is made explicit by whoever builds them. Values may be null, with
//! SQL's rules. Whether intermediate results fit 32 or 64 bits is worked out from the data when
//! code is generated.

mod attribute;
mod automaton;
mod code_table;
mod codes;
mod dense;
mod expr;
mod hashed;
mod like;
mod made;
mod post_aggregation;
mod pipeline;
mod regex;
mod results;
mod types;

pub use attribute::PayloadColumn;
pub use automaton::Automaton;
pub(crate) use code_table::{CodeTable, code_bytes};
pub use codes::KeyTable;
pub(crate) use codes::{DeviceCopies, for_bytes};
pub use expr::{
    Arithmetic, Comparison, DatePart, Expr, Matches, Exists, ValueFunction, ValueTest,
};
pub(crate) use hashed::HashedKeys;
pub(crate) use made::{DeviceKeyTableLayout, DeviceKeyLayout};
pub use post_aggregation::{NestedAggregation, FirstGroups, GroupColumn, PostAggregation};
pub use pipeline::{Aggregate, Filter, GroupKey, Lookup, Output, Pipeline};
pub use results::{GroupTotals, Groups, Number, Numbers, Total};
pub use types::{Literal, Type};
