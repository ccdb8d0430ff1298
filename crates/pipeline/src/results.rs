//! Results of pipelines.

use arrow::array::{ArrayRef, BooleanArray};
use arrow::compute::filter;

use crate::error::{Error, Result};

/// The result of an aggregate, over all rows or some.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Total {
    /// Number of values that were aggregated.
    pub count: u64,
    /// The aggregate's value; `None` if no values were aggregated. The value of a count is the count.
    pub value: Option<Number>,
}

/// The selected rows of a row group.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// Number of selected rows.
    pub count: usize,
    /// An array for each expression, of the Arrow type of its machine type (`I128`: Decimal128(38, 0)), or of the type
    /// of a column of strings. Empty if the row group has no rows.
    pub columns: Vec<ArrayRef>,
}

/// The results of some groups: each array has one element per group.
#[derive(Clone, Debug)]
pub struct Groups {
    /// Number of groups.
    pub count: usize,
    /// Their keys, of the types that [`GroupKey`](crate::GroupKey) defines.
    pub keys: Vec<ArrayRef>,
    /// The results of each aggregate.
    pub totals: Vec<GroupTotals>,
}

impl Groups {
    /// Keeps the groups for which `mask` is true.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if `mask` does not have one element per group.
    pub fn filtered(&self, mask: &BooleanArray) -> Result<Self> {
        if mask.len() != self.count {
            let reason = format!("{} of {} groups", mask.len(), self.count);
            return Err(Error::Internal(reason));
        }
        let of = |error| Error::from(vectile_encodings::Error::from(error));
        let keys = self.keys.iter().map(|key| filter(key, mask).map_err(of));
        let rows: Vec<usize> = mask.values().set_indices().collect();
        let totals = self.totals.iter().map(|totals| {
            Ok(GroupTotals {
                counts: rows.iter().map(|row| totals.counts[*row]).collect(),
                values: match &totals.values {
                    Numbers::Int(all) if all.is_empty() => Numbers::Int(vec![]),
                    Numbers::Int(all) => Numbers::Int(rows.iter().map(|row| all[*row]).collect()),
                    Numbers::Float(all) => {
                        Numbers::Float(rows.iter().map(|row| all[*row]).collect())
                    }
                    Numbers::Text(all) => Numbers::Text(filter(all, mask).map_err(of)?),
                },
            })
        });
        Ok(Self {
            count: rows.len(),
            totals: totals.collect::<Result<_>>()?,
            keys: keys.collect::<Result<_>>()?,
        })
    }
}

/// The results of one aggregate, one per group.
#[derive(Clone, Debug)]
pub struct GroupTotals {
    /// Number of values that were aggregated.
    pub counts: Vec<u64>,
    /// The aggregate's values; arbitrary for groups whose count is 0. Empty for a count.
    pub values: Numbers,
}

impl GroupTotals {
    /// The results of a single group.
    pub fn of_one(total: &Total) -> Self {
        Self {
            counts: vec![total.count],
            values: match total.value {
                Some(Number::Float(value)) => Numbers::Float(vec![value]),
                Some(Number::Int(value)) => Numbers::Int(vec![value]),
                None => Numbers::Int(vec![0]),
            },
        }
    }
}

/// Values of one kind.
#[derive(Clone, Debug)]
pub enum Numbers {
    /// Exact ones.
    Int(Vec<i128>),
    /// Doubles (of an `F32` too).
    Float(Vec<f64>),
    /// Text, of the type of the aggregate's argument.
    Text(ArrayRef),
}

/// The value of an aggregate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An exact one.
    Int(i128),
    /// A double (of an `F32` too).
    Float(f64),
}
