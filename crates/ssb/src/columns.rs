//! The columns of tables, and arrays of drawn values.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, Int64Array, StringViewArray};

/// Generates the rows of a table in order.
pub(crate) trait Rows: Send {
    /// The columns of the next `units` rows; for `lineorder`, of the lines of the next `units`
    /// orders.
    fn next(&mut self, units: usize) -> Vec<ArrayRef>;
}

/// Keys, dates and small numbers.
pub(crate) fn ints(values: impl IntoIterator<Item = i64>) -> ArrayRef {
    let values = values.into_iter().map(|value| value as i32);
    Arc::new(Int32Array::from_iter_values(values))
}

/// Money, and keys of orders.
pub(crate) fn longs(values: Vec<i64>) -> ArrayRef {
    Arc::new(Int64Array::from(values))
}

/// Text.
pub(crate) fn text(values: impl IntoIterator<Item = impl AsRef<str>>) -> ArrayRef {
    Arc::new(StringViewArray::from_iter_values(values))
}

/// Repeats each value as often as `counts` says.
pub(crate) fn repeated<T: Copy>(values: &[T], counts: &[usize]) -> Vec<T> {
    let mut repeated = Vec::with_capacity(counts.iter().sum());
    for (value, count) in values.iter().zip(counts) {
        repeated.extend(std::iter::repeat_n(*value, *count));
    }
    repeated
}
