//! Counts distinct values: groups by all keys and the value are merged, and each then counts for its keys.
//!
//! ```text
//!  keys, value ─▶ partitions by their hashes ─▶ number of values for each combination of keys ─▶ groups by keys
//! ```

use vectile_pipeline::Result;

use crate::partial::{Part, Totals};
use crate::partition::Partition;

/// Some of the distinct values of an aggregate.
pub struct DistinctPartition {
    pub(crate) partition: Partition,
    /// The aggregate's index among those that count distinct values.
    pub(crate) index: usize,
}

/// Numbers of distinct values.
pub struct DistinctCounts {
    /// Groups by keys: their numbers of rows are those of values.
    pub(crate) part: Part,
    pub(crate) index: usize,
}

impl DistinctPartition {
    /// Estimated bytes.
    pub fn bytes(&self) -> usize {
        self.partition.bytes()
    }

    /// Counts the values.
    ///
    /// # Errors
    ///
    /// Those of [`Partition::merge`].
    pub fn counts(mut self) -> Result<DistinctCounts> {
        self.partition.merge()?;
        let values = self.partition.merged;
        let keys = values.num_keys().saturating_sub(1);
        let count = values.rows.len();
        let mut words = values.words;
        // the lower words of the keys and of the value, the upper words, and the bits of nulls
        for column in [2 * keys + 1, keys] {
            if column < words.len() {
                words.remove(column);
            }
        }
        let part = match keys {
            0 => Part {
                rows: vec![count as u64],
                words: vec![Vec::new()],
                totals: Vec::new(),
            },
            _ => {
                let mut by_keys = Partition::default();
                by_keys.push(Part {
                    rows: vec![1; count],
                    words,
                    totals: Vec::new(),
                });
                by_keys.merge()?;
                by_keys.merged
            }
        };
        Ok(DistinctCounts {
            part,
            index: self.index,
        })
    }
}

impl DistinctCounts {
    /// The counts as groups whose aggregates have the values `none`, and no rows, but for the number of values of aggregate
    /// `at`.
    pub(crate) fn groups(self, none: &[Totals], at: usize) -> Part {
        let Part { rows, words, .. } = self.part;
        let mut totals = none.to_vec();
        let groups = rows.len();
        if let Some(totals) = totals.get_mut(at) {
            totals.counts = rows;
        }
        Part {
            rows: vec![0; groups],
            words,
            totals,
        }
    }
}
