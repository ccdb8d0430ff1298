//! What a kernel computes: a filter over the columns of a table, and what becomes of the rows that
//! pass.
//!
//! Expressions are typed by the machine ([`Type`]); what Arrow's types mean beyond that (scales of
//! decimals, units of timestamps) is made explicit by whoever builds them. Values may be null, with
//! SQL's rules. Whether intermediate results fit 32 or 64 bits is worked out from the data when
//! code is generated.

mod attribute;
mod automaton;
mod codes;
mod expr;
mod hashed;
mod like;
mod of_groups;
mod pipeline;
mod regex;
mod results;
mod types;

pub use attribute::Attribute;
pub use automaton::Automaton;
pub use codes::Codes;
pub(crate) use codes::{CodeTable, DeviceCopy, MadePlace, code_bytes, for_bytes};
pub use expr::{Arithmetic, Comparison, DatePart, Expr, ValueFunction, ValueTest};
pub use of_groups::{Again, FirstGroups, GroupColumn, OfGroups};
pub use pipeline::{Aggregate, Filter, GroupKey, Lookup, Output, Pipeline};
pub use results::{GroupTotals, Groups, Number, Numbers, Total};
pub use types::{Literal, Type};
