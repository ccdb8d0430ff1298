//! Groups of some rows: their keys and aggregates, column by column.

use vectile_encodings::simd::dispatched;
use vectile_pipeline::{Bounds, GroupTotals, Numbers, Rows, Type};

use crate::group::KeyType;
use crate::primitives::value_of;
use crate::table::{add_words, hashed};

/// The rows of one row group, or its groups and their aggregates.
#[derive(Debug, Default)]
pub struct Partial {
    /// If rows are the output.
    pub(crate) rows: Option<Rows>,
    pub(crate) keys: Vec<KeyType>,
    /// True for aggregates whose values are of single precision.
    pub(crate) singles: Vec<bool>,
    /// All groups; many are split by the hashes of their keys into [`PARTITIONS`] parts.
    pub(crate) parts: Vec<Part>,
    /// The range of the key that ascends from row group to row group, if there is one. There is one part then.
    pub(crate) range: Option<KeyRange>,
    /// The distinct values of each aggregate that counts them.
    pub(crate) distinct: Vec<Distinct>,
}

/// The distinct values of an aggregate: groups by all keys and by the value, which is never null.
#[derive(Debug)]
pub(crate) struct Distinct {
    /// The type of the value.
    pub of: KeyType,
    pub parts: Vec<Part>,
}

/// Number of parts that many groups are split into.
pub(crate) const PARTITIONS: usize = 64;

/// More groups are split.
pub(crate) const FEW_GROUPS: usize = 1 << 12;

impl Partial {
    /// Estimated bytes of the groups.
    pub fn bytes(&self) -> usize {
        let of_distinct = self.distinct.iter().flat_map(|distinct| &distinct.parts);
        let parts = self.parts.iter().chain(of_distinct).map(Part::bytes);
        let entries = self.keys.iter().map(|key| match key {
            KeyType::Entries(entries) => entries.bytes(),
            KeyType::Integers(_) => 0,
        });
        parts.sum::<usize>() + entries.sum::<usize>()
    }
}

/// The smallest and the largest value of a group key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyRange {
    /// The key's index.
    pub key: usize,
    pub first: i64,
    pub last: i64,
}

impl KeyRange {
    /// The range of a key's values in some groups; `None` if there are none, some is null, or they may not fit.
    pub fn of(key: usize, of: Option<&KeyType>, part: &Part) -> Option<Self> {
        let fits = matches!(of, Some(KeyType::Integers(of)) if Bounds::of(*of).within(Bounds::of(Type::I64)));
        let nulls = part.words.last()?;
        if !fits || !nulls.is_empty() {
            return None;
        }
        let words = part.words.get(key).filter(|words| !words.is_empty())?;
        let (first, last) = bounds_of(words);
        Some(Self { key, first, last })
    }
}

dispatched! {
    /// The smallest and the largest word, as integers with a sign.
    fn bounds_of(words: &[u64]) -> (i64, i64) {
        words.iter().fold((i64::MAX, i64::MIN), |(first, last), word| {
            (first.min(*word as i64), last.max(*word as i64))
        })
    }
}

/// Some groups.
#[derive(Clone, Debug, Default)]
pub(crate) struct Part {
    /// Number of rows of each group.
    pub rows: Vec<u64>,
    /// Words of the keys: the lower word of each key, the upper word of each, and a bit for each key that is null. An
    /// upper word that is the sign of the lower one, and no nulls, may be left out in all groups.
    pub words: Vec<Vec<u64>>,
    pub totals: Vec<Totals>,
}

/// The results of an aggregate.
#[derive(Clone, Debug)]
pub(crate) struct Totals {
    /// Number of values of each group; empty if it is the number of rows.
    pub counts: Vec<u64>,
    pub values: TotalValues,
}

/// The values of an aggregate. A group without values has the value that changes no other.
#[derive(Clone, Debug)]
pub(crate) enum TotalValues {
    Count,
    Sum {
        sums: Vec<i64>,
        /// The largest magnitude that a sum may have.
        most: u128,
    },
    WideSum(Vec<i128>),
    FloatSum(Vec<f64>),
    /// The smallest or largest integers, or [ranks](crate::primitives::rank_of) of floats.
    Extreme {
        is_max: bool,
        of: Type,
        values: Vec<i64>,
    },
    WideExtreme {
        is_max: bool,
        values: Vec<i128>,
    },
}

impl Part {
    /// Number of keys.
    pub fn num_keys(&self) -> usize {
        self.words.len() / 2
    }

    /// True if a key is null in a group.
    fn is_null(&self, key: usize, group: usize) -> bool {
        let nulls = self.words.last().and_then(|nulls| nulls.get(group));
        nulls.is_some_and(|nulls| nulls >> key & 1 == 1)
    }

    /// The word that a column has in a group, where it may be left out.
    fn left_out(&self, column: usize, group: usize) -> u64 {
        let keys = self.num_keys();
        match self.words.get(column.wrapping_sub(keys)) {
            Some(low) if (keys..2 * keys).contains(&column) => (low[group] as i64 >> 63) as u64,
            _ => 0,
        }
    }

    /// Fills a column of words that was left out.
    pub fn fill(&mut self, column: usize) {
        if self.words[column].is_empty() {
            let words = 0..self.rows.len();
            self.words[column] = words.map(|group| self.left_out(column, group)).collect();
        }
    }

    /// The hashes of the keys of some groups. They do not depend on what is left out.
    pub fn hashes(
        &self,
        groups: std::ops::Range<usize>,
        entry_hashes: &[Option<&[u64]>],
        hashes: &mut [u64],
    ) {
        hashes.fill(0);
        let keys = self.num_keys();
        for (column, words) in self.words.iter().enumerate() {
            let Some(words) = words.get(groups.clone()) else {
                continue;
            };
            match entry_hashes.get(column).copied().flatten() {
                Some(of_entries) => {
                    let pairs = hashes.iter_mut().zip(words).enumerate();
                    pairs.for_each(|(index, (hash, word))| {
                        let is_null = self.is_null(column, groups.start + index);
                        let of_entry = of_entries.get(*word as usize).filter(|_| !is_null);
                        *hash = hashed(*hash, of_entry.copied().unwrap_or_default());
                    });
                }
                None if column < keys => add_words(hashes, words),
                None => {
                    let pairs = hashes.iter_mut().zip(words).enumerate();
                    pairs.for_each(|(index, (hash, word))| {
                        if *word != self.left_out(column, groups.start + index) {
                            *hash = hashed(*hash, word ^ column as u64);
                        }
                    });
                }
            }
        }
    }

    /// The hash of a group's keys.
    pub fn hash(&self, group: usize) -> u64 {
        let keys = self.num_keys();
        let mut hash = 0;
        for (column, words) in self.words.iter().enumerate() {
            match words.get(group) {
                Some(word) if column < keys => hash = hashed(hash, *word),
                Some(word) if *word != self.left_out(column, group) => {
                    hash = hashed(hash, word ^ column as u64);
                }
                _ => {}
            }
        }
        hash
    }

    /// Splits the groups by the hashes of their keys, if they are many.
    pub fn in_parts(self, entry_hashes: &[Option<&[u64]>]) -> Vec<Self> {
        match self.rows.len() <= FEW_GROUPS {
            true => vec![self],
            false => self.split(entry_hashes),
        }
    }

    /// Splits the groups by the hashes of their keys. The words of a key with `entry_hashes` are indices of these, as
    /// they may still be replaced by others.
    pub fn split(self, entry_hashes: &[Option<&[u64]>]) -> Vec<Self> {
        let mut hashes = vec![0; self.rows.len()];
        self.hashes(0..self.rows.len(), entry_hashes, &mut hashes);
        let of = hashes.iter().map(|hash| (hash % PARTITIONS as u64) as u8);
        let of: Vec<u8> = of.collect();
        drop(hashes);
        let scatter = Scatter::new(&of);
        let mut parts: Vec<Self> = scatter
            .column(self.rows)
            .map(|rows| Self {
                rows,
                words: Vec::new(),
                totals: Vec::new(),
            })
            .collect();
        for words in self.words {
            let all = parts.iter_mut().zip(scatter.column(words));
            all.for_each(|(part, words)| part.words.push(words));
        }
        for Totals { counts, values } in self.totals {
            let counts = scatter.column(counts);
            let all = parts.iter_mut().zip(counts.zip(values.split(&scatter)));
            all.for_each(|(part, (counts, values))| part.totals.push(Totals { counts, values }));
        }
        parts
    }

    /// Estimated bytes.
    pub fn bytes(&self) -> usize {
        let of_totals = self.totals.iter().map(|totals| {
            let values = match &totals.values {
                TotalValues::Count => 0,
                TotalValues::Sum { sums: values, .. } | TotalValues::Extreme { values, .. } => {
                    values.capacity() * 8
                }
                TotalValues::FloatSum(values) => values.capacity() * 8,
                TotalValues::WideSum(values) | TotalValues::WideExtreme { values, .. } => {
                    values.capacity() * 16
                }
            };
            values + totals.counts.capacity() * 8
        });
        let words = self.words.iter().map(Vec::capacity).sum::<usize>();
        of_totals.sum::<usize>() + (words + self.rows.capacity()) * 8
    }

    /// The results of an aggregate.
    pub fn group_totals(&self, totals: &Totals, is_single: bool) -> GroupTotals {
        let counts = match totals.counts.is_empty() {
            true => &self.rows,
            false => &totals.counts,
        };
        let ints = |values: &[i64]| values.iter().map(|value| i128::from(*value)).collect();
        let mut values = match &totals.values {
            TotalValues::Count => Numbers::Int(Vec::new()),
            TotalValues::Sum { sums, .. } => Numbers::Int(ints(sums)),
            TotalValues::WideSum(values) | TotalValues::WideExtreme { values, .. } => {
                Numbers::Int(values.clone())
            }
            TotalValues::FloatSum(sums) => Numbers::Float(sums.clone()),
            TotalValues::Extreme { of, values, .. } => match of.is_float() {
                true => Numbers::Float(values.iter().map(|rank| value_of(*rank)).collect()),
                false => Numbers::Int(ints(values)),
            },
        };
        if let (Numbers::Float(values), true) = (&mut values, is_single) {
            // makes NaNs quiet, as a conversion to single precision and back does
            let each = values.iter_mut();
            each.for_each(|value| *value = f64::from(*value as f32));
        }
        GroupTotals {
            counts: counts.clone(),
            values,
        }
    }
}

/// The groups of each part.
struct Scatter {
    /// The groups of the first part, then of the next.
    groups: Vec<u32>,
    /// The end of each part among them.
    ends: [usize; PARTITIONS],
}

impl Scatter {
    /// `of` has the part of each group.
    fn new(of: &[u8]) -> Self {
        let mut ends = [0; PARTITIONS];
        of.iter().for_each(|part| ends[usize::from(*part)] += 1);
        let mut before = 0;
        for end in &mut ends {
            before += std::mem::replace(end, before);
        }
        let mut groups = vec![0; of.len()];
        for (group, part) in of.iter().enumerate() {
            let end = &mut ends[usize::from(*part)];
            groups[*end] = group as u32;
            *end += 1;
        }
        Self { groups, ends }
    }

    /// The parts of a column, which may be left out.
    fn column<T: Copy>(&self, column: Vec<T>) -> impl Iterator<Item = Vec<T>> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let groups = self.groups[start..*end].iter();
            start = *end;
            match column.is_empty() {
                true => Vec::new(),
                false => groups.map(|group| column[*group as usize]).collect(),
            }
        })
    }
}

impl TotalValues {
    fn split(self, scatter: &Scatter) -> Vec<Self> {
        match self {
            Self::Count => vec![Self::Count; PARTITIONS],
            Self::Sum { sums, most } => {
                let parts = scatter.column(sums);
                parts.map(|sums| Self::Sum { sums, most }).collect()
            }
            Self::WideSum(sums) => scatter.column(sums).map(Self::WideSum).collect(),
            Self::FloatSum(sums) => scatter.column(sums).map(Self::FloatSum).collect(),
            Self::Extreme { is_max, of, values } => scatter
                .column(values)
                .map(|values| Self::Extreme { is_max, of, values })
                .collect(),
            Self::WideExtreme { is_max, values } => scatter
                .column(values)
                .map(|values| Self::WideExtreme { is_max, values })
                .collect(),
        }
    }
}
