//! Computations over groups on the device, before the groups are copied back.

use crate::expr::Expr;
use crate::pipeline::Aggregate;
use crate::types::Type;

/// Prunes groups (conditions, top-k) or aggregates them into coarser groups. Expressions read
/// [`columns`](Self::columns).
#[derive(Clone, Debug, Default)]
pub struct PostAggregation {
    /// The columns that [`Expr::Column`] indexes.
    pub columns: Vec<GroupColumn>,
    /// Keeps only groups for which all of these are true.
    pub conditions: Vec<Expr>,
    /// Keeps the first groups of an order. The result may have further groups; the caller cuts them off.
    pub top_k: Option<TopK>,
    /// Aggregates the groups into coarser ones.
    pub nested: Option<NestedAggregation>,
}

/// A column of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupColumn {
    /// A key, by its index, as this type. A key that is a code or a dictionary value can only be grouped by, as an
    /// `I64`: its value is not known here.
    Key(usize, Type),
    /// The number of values of an aggregate, by its index; an `I64`.
    Count(usize),
    /// The value of an aggregate, by its index, as this type. Null if its count is 0.
    Value(usize, Type),
}

/// The first groups in the order of a value.
#[derive(Clone, Debug)]
pub struct TopK {
    /// The value.
    pub by: Expr,
    /// Its type.
    pub of: Type,
    /// True if the largest come first.
    pub descending: bool,
    /// True if nulls come before all others.
    pub nulls_first: bool,
    /// Number of groups to keep. Ties with the last one are kept, too.
    pub count: usize,
}

/// Aggregates groups into coarser groups.
#[derive(Clone, Debug)]
pub struct NestedAggregation {
    /// Integers, or unchanged group keys.
    pub keys: Vec<Expr>,
    /// Aggregates over the groups with equal keys.
    pub aggregates: Vec<Aggregate>,
}
