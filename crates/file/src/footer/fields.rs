//! Checked fields of row groups and chunks that all versions have.

use std::sync::Arc;

use crate::error::{FilePosition, Result};
use crate::metadata::MAX_ROW_GROUP_ROWS;

/// The name of an encoding, by its index.
pub(super) fn encoding(
    names: &[Arc<str>],
    number: u64,
    position: FilePosition<'_>,
) -> Result<Arc<str>> {
    let name = usize::try_from(number)
        .ok()
        .and_then(|number| names.get(number));
    let none = || position.corrupt(format!("no encoding has the number {number}"));
    name.map(Arc::clone).ok_or_else(none)
}

/// The number of rows of a row group, checked.
pub(super) fn rows(rows: u64, position: FilePosition<'_>) -> Result<usize> {
    usize::try_from(rows)
        .ok()
        .filter(|rows| (1..=MAX_ROW_GROUP_ROWS).contains(rows))
        .ok_or_else(|| {
            let reason = format!("{rows} rows; 1 to {MAX_ROW_GROUP_ROWS} are allowed");
            position.corrupt(reason)
        })
}
