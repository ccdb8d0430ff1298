//! Merges the groups of row groups, in their order.
//!
//! Few groups are merged as they come. Many are split by the hashes of their keys into partitions, each of which merges
//! its own, on any thread. If each row group has larger keys than those before, it is a partition.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::row::{OwnedRow, RowConverter, SortField};
use vectile_pipeline::{Error, GroupTotals, Result, Type};

use crate::clusters::Clusters;
use crate::group::KeyType;
use crate::partial::{FEW_GROUPS, PARTITIONS, Part, Partial};
use crate::partition::{OutputKey, OutputTypes, Partition, of_arrow};

/// Groups that are kept until they are merged, unless more were merged before.
const MOST_PENDING: usize = 1 << 20;

/// The groups of all row groups.
#[derive(Default)]
pub(crate) struct Merger {
    keys: Vec<MergedKey>,
    /// True for aggregates whose values are of single precision.
    singles: Vec<bool>,
    /// One, or [`PARTITIONS`], or those of clusters.
    partitions: Vec<Partition>,
    /// Set while the keys of row groups ascend.
    clusters: Option<Clusters>,
    /// Groups that are not merged.
    pending: usize,
}

enum MergedKey {
    Integers(Type),
    Entries {
        converter: RowConverter,
        distinct: HashMap<OwnedRow, u64>,
        /// The entries, in the order in which they came.
        rows: Vec<OwnedRow>,
    },
}

impl MergedKey {
    fn new(key_type: &KeyType) -> Result<Self> {
        Ok(match key_type {
            KeyType::Integers(of) => Self::Integers(*of),
            KeyType::Entries(entries) => Self::Entries {
                converter: RowConverter::new(vec![SortField::new(entries.data_type().clone())])
                    .map_err(of_arrow)?,
                distinct: HashMap::new(),
                rows: Vec::new(),
            },
        })
    }

    /// Replaces the words of key `index` of a row group by those of all row groups.
    fn replace(&mut self, of: &KeyType, index: usize, part: &mut Part) -> Result<()> {
        match (self, of) {
            (Self::Integers(of), KeyType::Integers(other)) if of == other => Ok(()),
            (
                Self::Entries {
                    converter,
                    distinct,
                    rows,
                },
                KeyType::Entries(entries),
            ) => {
                let converted = converter.convert_columns(std::slice::from_ref(entries));
                let converted = converted.map_err(of_arrow)?;
                let mut of_codes = vec![None; converted.num_rows()];
                let nulls = part.words.last().cloned().unwrap_or_default();
                for (group, word) in part.words[index].iter_mut().enumerate() {
                    let is_null = nulls
                        .get(group)
                        .is_some_and(|nulls| nulls >> index & 1 == 1);
                    let Some(code) = of_codes.get_mut(*word as usize).filter(|_| !is_null) else {
                        continue;
                    };
                    *word = *code.get_or_insert_with(|| {
                        let row = converted.row(*word as usize).owned();
                        *distinct.entry(row).or_insert_with_key(|row| {
                            rows.push(row.clone());
                            rows.len() as u64 - 1
                        })
                    });
                }
                Ok(())
            }
            _ => Err(Error::Internal("keys of another kind".into())),
        }
    }

    fn output(&self) -> Result<OutputKey> {
        match self {
            Self::Integers(of) => Ok(OutputKey::Integers(*of)),
            Self::Entries {
                converter, rows, ..
            } => {
                let rows = rows.iter().map(OwnedRow::row);
                let entries = converter.convert_rows(rows).map_err(of_arrow)?;
                match &entries[..] {
                    [entries] => Ok(OutputKey::Entries(entries.clone())),
                    _ => Err(Error::Internal("a key of several columns".into())),
                }
            }
        }
    }

    /// Estimated bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Integers(_) => 0,
            Self::Entries { rows, .. } => {
                let of_row = |row: &OwnedRow| 2 * (size_of_val(row) + row.as_ref().len()) + 16;
                rows.iter().map(of_row).sum()
            }
        }
    }
}

impl Merger {
    /// Adds the groups of the next row group. Few are merged.
    pub fn add(&mut self, partial: Partial) -> Result<()> {
        let count = partial.count();
        let Partial {
            keys,
            singles,
            mut parts,
            range,
            ..
        } = partial;
        if count == 0 {
            return Ok(());
        }
        if self.partitions.is_empty() {
            self.keys = keys.iter().map(MergedKey::new).collect::<Result<_>>()?;
            self.singles = singles;
            match range {
                Some(_) => self.clusters = Some(Clusters::default()),
                None => self.partitions.push(Partition::default()),
            }
        }
        for (index, (key, of)) in self.keys.iter_mut().zip(&keys).enumerate() {
            let mut parts = parts.iter_mut();
            parts.try_for_each(|part| key.replace(of, index, part))?;
        }
        if let (Some(clusters), Some(range), 1) = (&mut self.clusters, range, parts.len())
            && let Some(part) = parts.pop()
        {
            match clusters.add(part, range, &mut self.partitions) {
                Ok(()) => return Ok(()),
                Err(part) => parts.push(part),
            }
        }
        if self.clusters.take().is_some() {
            self.scatter();
        } else if self.partitions.len() == 1 {
            let merged = self.partitions[0].merged.rows.len();
            if parts.len() == 1 && merged + count <= 2 * FEW_GROUPS {
                self.partitions[0].pending.append(&mut parts);
                return self.partitions[0].merge();
            }
            self.scatter();
        }
        self.pending += count;
        self.push(parts);
        Ok(())
    }

    /// Splits all groups by the hashes of their keys. Groups of several partitions keep their order.
    fn scatter(&mut self) {
        let before = std::mem::take(&mut self.partitions);
        self.partitions.resize_with(PARTITIONS, Partition::default);
        for partition in before {
            for part in std::iter::once(partition.merged).chain(partition.pending) {
                self.pending += part.rows.len();
                self.push(vec![part]);
            }
        }
    }

    /// Gives each partition its groups.
    fn push(&mut self, mut parts: Vec<Part>) {
        if parts.len() == 1 {
            parts = parts.into_iter().flat_map(Part::split).collect();
        }
        let partitions = self.partitions.iter_mut().zip(parts);
        let with_groups = partitions.filter(|(_, part)| !part.rows.is_empty());
        with_groups.for_each(|(partition, part)| partition.pending.push(part));
    }

    /// True if groups should be merged now, so that they take less memory.
    pub fn is_due(&self) -> bool {
        let merged = self.partitions.iter();
        let merged: usize = merged.map(|partition| partition.merged.rows.len()).sum();
        self.pending > merged.max(MOST_PENDING)
    }

    /// Takes the partitions, to merge them. They have to be given back.
    pub fn take(&mut self) -> Vec<Partition> {
        self.pending = 0;
        std::mem::take(&mut self.partitions)
    }

    /// Gives partitions back.
    pub fn put(&mut self, partitions: Vec<Partition>) {
        self.partitions = partitions;
    }

    /// Takes the partitions with groups, which are complete.
    pub fn finish(&mut self) -> Result<Vec<Partition>> {
        let output = Arc::new(OutputTypes {
            keys: self
                .keys
                .iter()
                .map(MergedKey::output)
                .collect::<Result<_>>()?,
            singles: self.singles.clone(),
        });
        let mut partitions = self.take();
        partitions.retain(|partition| !partition.is_empty());
        for partition in &mut partitions {
            partition.output = Some(Arc::clone(&output));
        }
        Ok(partitions)
    }

    /// Estimated bytes of all groups.
    pub fn bytes(&self) -> usize {
        let of_keys = self.keys.iter().map(MergedKey::bytes).sum::<usize>();
        of_keys + self.partitions.iter().map(Partition::bytes).sum::<usize>()
    }

    /// The totals of each aggregate, if there is one group.
    pub fn totals(&self) -> Vec<GroupTotals> {
        let merged = self.partitions.first().map(|partition| &partition.merged);
        let totals = merged.map(|merged| merged.all_totals(&self.singles));
        totals.unwrap_or_default()
    }
}
