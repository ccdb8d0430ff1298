//! A writer's summary of its file.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::time::Duration;

/// Size and content of a written file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WriteSummary {
    /// Rows in the file.
    pub rows: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// Row groups in the file.
    pub row_groups: usize,
    /// Time the writer waited for the store.
    pub storing: Duration,
    /// One entry per column of the schema.
    pub columns: Vec<ColumnSummary>,
}

/// Size and encodings of a written column.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ColumnSummary {
    /// Its name.
    pub name: String,
    /// Bytes of its Arrow arrays.
    pub arrow_bytes: u64,
    /// Bytes of its encoded values, zone maps and Bloom filters.
    pub encoded_bytes: u64,
    /// The encodings, with the number of row groups of each.
    pub encodings: BTreeMap<String, usize>,
    /// Time spent on the column.
    pub time: EncodeTime,
}

/// Thread time spent on a column, by step; the sum over threads that ran in parallel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EncodeTime {
    /// Joining the arrays of batches to one.
    pub join: Duration,
    /// Building zone maps and Bloom filters.
    pub zone_maps: Duration,
    /// Choosing an encoding, encoding, checking that a reader will accept it, and compressing.
    pub encode: Duration,
    /// Computing checksums.
    pub checksums: Duration,
}

impl EncodeTime {
    /// The sum of all steps.
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
