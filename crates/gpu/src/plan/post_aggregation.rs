//! Computations over groups, before they leave the device.

use super::expr::Expr;
use super::pipeline::Aggregate;
use super::types::Type;

/// A computation over groups: some of them are wanted, or they are grouped again. Expressions are over
/// [`columns`](Self::columns).
#[derive(Clone, Debug, Default)]
pub struct PostAggregation {
    /// What [`Expr::Column`] numbers.
    pub columns: Vec<GroupColumn>,
    /// Only groups are wanted for which all of these are true.
    pub conditions: Vec<Expr>,
    /// If only the first ones are wanted. There may come more, so that others need not be known.
    pub first: Option<FirstGroups>,
    /// If they are grouped again.
    pub again: Option<NestedAggregation>,
}

/// A column of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupColumn {
    /// A key, by its number, as this type. One that is a code or an entry of dictionaries has no values here: it may be
    /// grouped by, as an `I64`.
    Key(usize, Type),
    /// How many values an aggregate counted, by its number; an `I64`.
    Count(usize),
    /// What an aggregate came to, as this type. Null where nothing was counted.
    Value(usize, Type),
}

/// The first groups in the order of a value.
#[derive(Clone, Debug)]
pub struct FirstGroups {
    /// The value.
    pub by: Expr,
    /// Its type.
    pub of: Type,
    /// Whether the largest come first.
    pub descending: bool,
    /// Whether nulls come before all others.
    pub nulls_first: bool,
    /// How many are wanted. Others that are equal to the last one are, too.
    pub count: usize,
}

/// How groups are grouped again.
#[derive(Clone, Debug)]
pub struct NestedAggregation {
    /// Integers, or keys as they are.
    pub keys: Vec<Expr>,
    /// Over the groups that have these keys.
    pub aggregates: Vec<Aggregate>,
}
