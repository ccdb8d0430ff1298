//! Groups of row groups with ascending keys, such as those of rows that were inserted by that key.
//!
//! ```text
//!  row group 0: keys 1..=70 ─▶ a partition without key 70 ─┐
//!                              a partition of key 70        ├─▶ no group is in two partitions
//!  row group 1: keys 70..=99 ─▶ a partition without key 70 ─┘
//! ```
//!
//! Groups of different row groups are different but for the last key of one, which may be the first of the next. So
//! nothing is hashed.

use crate::partial::{KeyRange, Part, TotalValues};
use crate::partition::Partition;

/// Partitions of groups with ascending keys.
#[derive(Default)]
pub(crate) struct Clusters {
    last: Option<KeyRange>,
    /// The partition of the latest row group.
    latest: usize,
    /// A key that several row groups have, and its partition.
    shared: Option<(i64, usize)>,
}

impl Clusters {
    /// Adds the groups of the next row group. Gives them back if their keys do not follow those before.
    pub fn add(
        &mut self,
        mut part: Part,
        range: KeyRange,
        partitions: &mut Vec<Partition>,
    ) -> Result<(), Part> {
        if let Some(last) = self.last {
            if last.key != range.key || range.first < last.last {
                return Err(part);
            }
            if range.first == last.last {
                let own = part.take(range.key, range.first);
                let shared = match self.shared {
                    Some((key, partition)) if key == range.first => partition,
                    _ => {
                        let before = partitions.get_mut(self.latest);
                        let before = before.map(|latest| latest.take(range.key, range.first));
                        partitions.push(Partition::of(before.unwrap_or_default()));
                        partitions.len() - 1
                    }
                };
                self.shared = Some((range.first, shared));
                if let Some(partition) = partitions.get_mut(shared) {
                    partition.push(own);
                }
            }
        }
        self.last = Some(range);
        if !part.rows.is_empty() {
            self.latest = partitions.len();
            partitions.push(Partition::of(part));
        }
        Ok(())
    }
}

impl Part {
    /// Takes the groups with a value of a key. The others change their order.
    pub fn take(&mut self, key: usize, value: i64) -> Self {
        let words = self.words.get(key).into_iter().flatten().enumerate();
        let found = words.filter(|(_, word)| **word == value as u64);
        let mut found: Vec<usize> = found.map(|(group, _)| group).collect();
        // from the last on, so that those to be taken keep their places
        found.reverse();
        let mut taken = Self {
            rows: taken(&mut self.rows, &found),
            ..Self::default()
        };
        for words in &mut self.words {
            taken.words.push(self::taken(words, &found));
        }
        for totals in &mut self.totals {
            let mut own = totals.none();
            own.counts = self::taken(&mut totals.counts, &found);
            match (&mut own.values, &mut totals.values) {
                (
                    TotalValues::Sum { sums, most },
                    TotalValues::Sum {
                        sums: all,
                        most: of_all,
                    },
                ) => {
                    *sums = self::taken(all, &found);
                    *most = *of_all;
                }
                (TotalValues::WideSum(own), TotalValues::WideSum(all)) => {
                    *own = self::taken(all, &found);
                }
                (TotalValues::FloatSum(own), TotalValues::FloatSum(all)) => {
                    *own = self::taken(all, &found);
                }
                (TotalValues::Extreme { values, .. }, TotalValues::Extreme { values: all, .. }) => {
                    *values = self::taken(all, &found);
                }
                (
                    TotalValues::WideExtreme { values, .. },
                    TotalValues::WideExtreme { values: all, .. },
                ) => *values = self::taken(all, &found),
                _ => {}
            }
            taken.totals.push(own);
        }
        taken
    }
}

/// Takes the values at descending indices of a column, which may be left out.
fn taken<T>(column: &mut Vec<T>, indices: &[usize]) -> Vec<T> {
    let there = indices.iter().filter(|index| **index < column.len());
    let there: Vec<usize> = there.copied().collect();
    there
        .into_iter()
        .map(|index| column.swap_remove(index))
        .collect()
}
