//! What a pipeline comes to.

use arrow::array::ArrayRef;

/// The result of an aggregate, or of a part of the rows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Total {
    /// Values that went in.
    pub count: u64,
    /// What they came to; `None` if there were none. A count's is its count.
    pub value: Option<Number>,
}

/// The results of some groups: an entry of each array for a group.
#[derive(Clone, Debug)]
pub struct Groups {
    /// How many there are.
    pub count: usize,
    /// Their keys, as [`GroupKey`](super::GroupKey) says.
    pub keys: Vec<ArrayRef>,
    /// What each aggregate came to.
    pub totals: Vec<GroupTotals>,
}

/// What an aggregate came to in each group.
#[derive(Clone, Debug)]
pub struct GroupTotals {
    /// Values that went in.
    pub counts: Vec<u64>,
    /// The values, of which those of groups without any are arbitrary; empty for a count.
    pub values: Numbers,
}

/// Numbers of one kind.
#[derive(Clone, Debug, PartialEq)]
pub enum Numbers {
    /// Exact ones.
    Int(Vec<i128>),
    /// Doubles (of an `F32` too).
    Float(Vec<f64>),
}

/// A number that an aggregate came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An exact one.
    Int(i128),
    /// A double (of an `F32` too).
    Float(f64),
}
