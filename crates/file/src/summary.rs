//! What a writer says of its file.

use std::collections::BTreeMap;

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteSummary {
    /// Rows in the file.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Row groups in the file.
    pub row_groups: usize,
    /// One entry per column of the schema.
    pub columns: Vec<ColumnSummary>,
}

/// What was written of one column.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ColumnSummary {
    /// Its name.
    pub name: String,
    /// Bytes of its Arrow arrays.
    pub arrow_bytes: u64,
    /// Bytes of its encoded values and zone maps.
    pub encoded_bytes: u64,
    /// How it was encoded, and how many of the row groups so.
    pub encodings: BTreeMap<String, usize>,
}
