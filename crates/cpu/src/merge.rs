//! Merges the groups of row groups, in their order.
//!
//! Few groups are merged as they come. Many are split by the hashes of their keys into partitions, each of which merges
//! its own, on any thread. If each row group has larger keys than those before, it is a partition.

use std::sync::Arc;

use vectile_pipeline::{Error, GroupTotals, Result, Type};

use crate::clusters::Clusters;
use crate::distinct::{DistinctCounts, DistinctPartition};
use crate::entries::AllEntries;
use crate::group::KeyType;
use crate::partial::{FEW_GROUPS, KeyRange, PARTITIONS, Part, Partial, Totals};
use crate::partition::{OutputKey, OutputTypes, Partition};

/// Groups that are kept until they are merged, unless more were merged before.
const MOST_PENDING: usize = 1 << 20;

/// The groups of all row groups.
#[derive(Default)]
pub(crate) struct Merger {
    keys: Vec<MergedKey>,
    /// True for aggregates whose values are of single precision.
    singles: Vec<bool>,
    /// The aggregates of no rows.
    none: Vec<Totals>,
    groups: Set,
    /// The distinct values of each aggregate that counts them.
    distinct: Vec<DistinctSet>,
}

/// Groups, each in one partition.
#[derive(Default)]
struct Set {
    /// One, or [`PARTITIONS`], or those of clusters.
    partitions: Vec<Partition>,
    /// Set while the keys of row groups ascend.
    clusters: Option<Clusters>,
    /// Groups that are not merged.
    pending: usize,
}

/// Groups by all keys and by a value.
struct DistinctSet {
    /// The type of the value.
    of: KeyType,
    /// The aggregate.
    aggregate: usize,
    groups: Set,
}

enum MergedKey {
    Integers(Type),
    Entries(AllEntries),
}

impl MergedKey {
    fn new(key_type: &KeyType) -> Self {
        match key_type {
            KeyType::Integers(of) => Self::Integers(*of),
            KeyType::Entries(entries) => Self::Entries(AllEntries::new(entries.data_type())),
        }
    }

    /// Replaces the words of key `index` of a row group by those of all row groups.
    fn replace<'p>(
        &mut self,
        of: &KeyType,
        index: usize,
        parts: impl Iterator<Item = &'p mut Part>,
    ) -> Result<()> {
        match (self, of) {
            (Self::Integers(of), KeyType::Integers(other)) if of == other => Ok(()),
            (Self::Entries(all), KeyType::Entries(entries))
                if all.data_type() == entries.data_type() =>
            {
                let words = parts.filter_map(|part| {
                    let (nulls, words) = part.words.split_last_mut()?;
                    Some((words.get_mut(index)?, &nulls[..]))
                });
                all.replace(entries, words, index)
            }
            _ => Err(Error::Internal("keys of another kind".into())),
        }
    }

    fn output(&self) -> Result<OutputKey> {
        Ok(match self {
            Self::Integers(of) => OutputKey::Integers(*of),
            Self::Entries(entries) => OutputKey::Entries(entries.array()?),
        })
    }

    /// The hash of each entry, if the words are numbers of entries.
    fn hashes(&self) -> Option<&[u64]> {
        match self {
            Self::Integers(_) => None,
            Self::Entries(entries) => Some(entries.hashes()),
        }
    }

    /// Estimated bytes.
    fn bytes(&self) -> usize {
        match self {
            Self::Integers(_) => 0,
            Self::Entries(entries) => entries.bytes(),
        }
    }
}

impl Merger {
    /// Adds the groups of the next row group. Few are merged. `distinct` are the aggregates that count distinct values.
    pub fn add(&mut self, partial: Partial, distinct: impl Iterator<Item = usize>) -> Result<()> {
        let Partial {
            keys,
            singles,
            mut parts,
            range,
            distinct: mut values,
            ..
        } = partial;
        if parts.iter().all(|part| part.rows.is_empty()) {
            return Ok(());
        }
        if self.groups.partitions.is_empty() {
            self.keys = keys.iter().map(MergedKey::new).collect();
            self.singles = singles;
            let first = parts.first().into_iter().flat_map(|part| &part.totals);
            self.none = first.map(Totals::none).collect();
            let sets = values.iter().zip(distinct);
            let sets = sets.map(|(values, aggregate)| DistinctSet {
                of: values.of.clone(),
                aggregate,
                groups: Set::default(),
            });
            self.distinct = sets.collect();
        }
        for (index, (key, of)) in self.keys.iter_mut().zip(&keys).enumerate() {
            let of_values = values.iter_mut().flat_map(|values| &mut values.parts);
            key.replace(of, index, parts.iter_mut().chain(of_values))?;
        }
        let of_entries: Vec<_> = self.keys.iter().map(MergedKey::hashes).collect();
        self.groups.add(parts, range, &of_entries)?;
        for (set, values) in self.distinct.iter_mut().zip(values) {
            match (&set.of, &values.of) {
                (KeyType::Integers(of), KeyType::Integers(other)) if of == other => {}
                _ => return Err(Error::Internal("values of another kind".into())),
            }
            set.groups.add(values.parts, None, &of_entries)?;
        }
        Ok(())
    }

    /// True if groups should be merged now, so that they take less memory.
    pub fn is_due(&self) -> bool {
        self.sets().any(Set::is_due)
    }

    fn sets(&self) -> impl Iterator<Item = &Set> {
        let distinct = self.distinct.iter().map(|set| &set.groups);
        std::iter::once(&self.groups).chain(distinct)
    }

    fn sets_mut(&mut self) -> impl Iterator<Item = &mut Set> {
        let distinct = self.distinct.iter_mut().map(|set| &mut set.groups);
        std::iter::once(&mut self.groups).chain(distinct)
    }

    /// Takes the partitions of all groups and distinct values, to merge them. They have to be given back.
    pub fn take(&mut self) -> Vec<Partition> {
        let taken = self.sets_mut().flat_map(|set| {
            set.pending = 0;
            set.partitions.iter_mut().map(std::mem::take)
        });
        taken.collect()
    }

    /// Gives partitions back, in their order.
    pub fn put(&mut self, partitions: Vec<Partition>) {
        let places = self.sets_mut().flat_map(|set| &mut set.partitions);
        let pairs = places.zip(partitions);
        pairs.for_each(|(place, partition)| *place = partition);
    }

    /// True if some aggregate counts distinct values.
    pub fn counts_distinct(&self) -> bool {
        !self.distinct.is_empty()
    }

    /// Takes the distinct values.
    pub fn distinct_values(&mut self) -> Vec<DistinctPartition> {
        let sets = self.distinct.iter_mut().enumerate();
        let all = sets.flat_map(|(index, set)| {
            let partitions = std::mem::take(&mut set.groups.partitions).into_iter();
            let with_values = partitions.filter(|partition| !partition.is_empty());
            with_values.map(move |partition| DistinctPartition { partition, index })
        });
        all.collect()
    }

    /// Adds numbers of distinct values to groups.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`], which would be a bug.
    pub fn add_counts(&mut self, counts: Vec<DistinctCounts>) -> Result<()> {
        let of_entries: Vec<_> = self.keys.iter().map(MergedKey::hashes).collect();
        for counts in counts {
            let missing = || Error::Internal("values of no aggregate".into());
            let set = self.distinct.get(counts.index).ok_or_else(missing)?;
            let part = counts.groups(&self.none, set.aggregate);
            self.groups.add(vec![part], None, &of_entries)?;
        }
        Ok(())
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
        let mut partitions = std::mem::take(&mut self.groups.partitions);
        partitions.retain(|partition| !partition.is_empty());
        for partition in &mut partitions {
            partition.output = Some(Arc::clone(&output));
        }
        Ok(partitions)
    }

    /// Estimated bytes of all groups.
    pub fn bytes(&self) -> usize {
        let of_keys = self.keys.iter().map(MergedKey::bytes).sum::<usize>();
        let partitions = self.sets().flat_map(|set| &set.partitions);
        of_keys + partitions.map(Partition::bytes).sum::<usize>()
    }

    /// The totals of each aggregate, if there is one group.
    pub fn totals(&self) -> Vec<GroupTotals> {
        let merged = self.groups.partitions.first();
        let totals = merged.map(|partition| partition.merged.all_totals(&self.singles));
        totals.unwrap_or_default()
    }
}

impl Set {
    /// Adds the groups of the next row group. Few are merged. Keys with `entry_hashes` are indices of these.
    fn add(
        &mut self,
        mut parts: Vec<Part>,
        range: Option<KeyRange>,
        entry_hashes: &[Option<&[u64]>],
    ) -> Result<()> {
        let count: usize = parts.iter().map(|part| part.rows.len()).sum();
        if count == 0 {
            return Ok(());
        }
        if self.partitions.is_empty() {
            match range {
                Some(_) => self.clusters = Some(Clusters::default()),
                None => self.partitions.push(Partition::default()),
            }
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
            self.scatter(entry_hashes);
        } else if self.partitions.len() == 1 {
            let merged = self.partitions[0].merged.rows.len();
            if parts.len() == 1 && merged + count <= 2 * FEW_GROUPS {
                self.partitions[0].pending.append(&mut parts);
                return self.partitions[0].merge();
            }
            self.scatter(entry_hashes);
        }
        self.pending += count;
        self.push(parts, entry_hashes);
        Ok(())
    }

    /// Splits all groups by the hashes of their keys. Groups of several partitions keep their order.
    fn scatter(&mut self, entry_hashes: &[Option<&[u64]>]) {
        let before = std::mem::take(&mut self.partitions);
        self.partitions.resize_with(PARTITIONS, Partition::default);
        for partition in before {
            for part in std::iter::once(partition.merged).chain(partition.pending) {
                self.pending += part.rows.len();
                self.push(vec![part], entry_hashes);
            }
        }
    }

    /// Gives each partition its groups.
    fn push(&mut self, mut parts: Vec<Part>, entry_hashes: &[Option<&[u64]>]) {
        if parts.len() == 1 {
            let split = |part: Part| part.split(entry_hashes);
            parts = parts.into_iter().flat_map(split).collect();
        }
        let partitions = self.partitions.iter_mut().zip(parts);
        let with_groups = partitions.filter(|(_, part)| !part.rows.is_empty());
        with_groups.for_each(|(partition, part)| partition.pending.push(part));
    }

    /// True if groups should be merged now, so that they take less memory.
    fn is_due(&self) -> bool {
        let merged = self.partitions.iter();
        let merged: usize = merged.map(|partition| partition.merged.rows.len()).sum();
        self.pending > merged.max(MOST_PENDING)
    }
}
