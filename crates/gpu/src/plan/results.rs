//! What a pipeline comes to.

use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::filter;

use crate::error::{Error, Result};

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

impl Groups {
    /// Those groups alone for which `wanted` is true.
    ///
    /// # Errors
    ///
    /// If it is not as long as there are groups.
    pub fn filtered(&self, wanted: &BooleanArray) -> Result<Self> {
        if wanted.len() != self.count {
            let reason = format!("{} of {} groups", wanted.len(), self.count);
            return Err(Error::Internal(reason));
        }
        let of = |error| Error::from(vectile_encodings::Error::from(error));
        let keys = self.keys.iter().map(|key| filter(key, wanted).map_err(of));
        let rows: Vec<usize> = wanted.values().set_indices().collect();
        let totals = self.totals.iter().map(|totals| GroupTotals {
            counts: rows.iter().map(|row| totals.counts[*row]).collect(),
            values: match &totals.values {
                Numbers::Int(all) if all.is_empty() => Numbers::Int(vec![]),
                Numbers::Int(all) => Numbers::Int(rows.iter().map(|row| all[*row]).collect()),
                Numbers::Float(all) => Numbers::Float(rows.iter().map(|row| all[*row]).collect()),
            },
        });
        Ok(Self {
            count: rows.len(),
            totals: totals.collect(),
            keys: keys.collect::<Result<_>>()?,
        })
    }
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
