//! What a writer says of its file.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

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
    /// How long the writer waited for the store.
    pub storing: Duration,
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
    /// Bytes of its encoded values, zone maps and Bloom filters.
    pub encoded_bytes: u64,
    /// How it was encoded, and how many of the row groups so.
    pub encodings: BTreeMap<String, usize>,
    /// What that took.
    pub time: EncodeTime,
}

/// How long a column kept threads busy, by what they did; of several at the same time, the sum.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncodeTime {
    /// Made one array of those in batches.
    pub join: Duration,
    /// Made zone maps and Bloom filters.
    pub zone_maps: Duration,
    /// Chose an encoding, encoded, checked that a reader will accept it, and compressed.
    pub encode: Duration,
    /// Computed checksums.
    pub checksums: Duration,
}

impl EncodeTime {
    /// All of it.
    pub fn total(&self) -> Duration {
        self.join + self.zone_maps + self.encode + self.checksums
    }
}

impl AddAssign for EncodeTime {
    fn add_assign(&mut self, other: Self) {
        self.join += other.join;
        self.zone_maps += other.zone_maps;
        self.encode += other.encode;
        self.checksums += other.checksums;
    }
}
