//! Numbers the groups of a row group.
//!
//! ```text
//!  combinations of keys:  few ─▶ a group each, whether it occurs or not
//!                some per row ─▶ an array from combinations to groups, in the order in which they occur
//!                        more ─▶ a hash table, until rows turn out to have few groups in common:
//!                                then each is a group, and merging finds out which are the same
//! ```
//!
//! Each combination is a new group, without a look at others, as long as they ascend: as in tables sorted by a key.

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::simd::dispatched;
use vectile_pipeline::Result;

use crate::batch::Batch;
use crate::group::{Combination, Combinations, Key};
use crate::reader::Reader;
use crate::runs::{copy_to_runs, firsts_of_runs};
use crate::table::{self, Table};
use crate::vector::{Mask, Vector, count, for_each_row};

/// Up to this many combinations have a group each.
const MOST_DIRECT: u64 = 1 << 12;

/// Up to this many combinations need no hash table, even if there are fewer rows.
const FEW_COMBINATIONS: u64 = 1 << 14;

/// The most combinations for each row that an array is for: an entry takes a quarter of a hash table's.
const COMBINATIONS_PER_ROW: u64 = 4;

/// The numbers of a row group's groups.
pub(crate) struct Numbering {
    form: Form,
    /// True if no combination so far was smaller than the one before. There is no array or table then.
    is_ascending: bool,
}

enum Form {
    /// A combination's number is the group's, of this many.
    Direct(usize),
    Array {
        /// The number of combinations.
        count: usize,
        /// The group of each combination, plus one; 0 for combinations that did not occur.
        groups: Vec<u32>,
        found: Vec<u32>,
    },
    Hashed(Hashed<u64>),
    Wide(Hashed<u128>),
}

/// Fewest rows that tell if rows have few groups in common.
const LEAST_SAMPLE: usize = 1 << 13;

/// The sample is at least one row of so many: rows may be in an order in which groups come again late.
const SAMPLED: usize = 8;

/// If at least one of so many rows in the sample's second half has a new group, numbering takes longer than it saves when
/// groups are merged (measured with groups of five rows in a row group).
const ROWS_PER_NEW_GROUP: usize = 4;

/// Only the first rows of runs are looked at if there are at least so many rows for four runs: others save less than
/// copying numbers is expected to take.
const ROWS_FOR_FOUR_RUNS: usize = 5;

#[derive(Default)]
struct Hashed<T> {
    table: Table,
    /// The combination of each group.
    found: Vec<T>,
    sample: Sample,
}

/// Tells if rows have few groups in common.
#[derive(Default)]
struct Sample {
    /// All rows, or 0 if groups must be different.
    all: usize,
    /// Rows so far.
    rows: usize,
    /// Rows of about the first half of the sample, and their groups.
    half: (usize, usize),
    /// True if the table is no longer used.
    is_distinct: bool,
}

impl Sample {
    /// Counts rows, after which there are `groups` groups. Returns true if the table should be given up.
    fn ends(&mut self, rows: usize, groups: usize) -> bool {
        let before = self.rows;
        self.rows += rows;
        let size = LEAST_SAMPLE.max(self.all / SAMPLED);
        if self.all == 0 || before >= size {
            return false;
        }
        if self.rows < size {
            if self.rows <= size / 2 {
                self.half = (self.rows, groups);
            }
            return false;
        }
        let (rows, before) = self.half;
        self.is_distinct = (groups - before) * ROWS_PER_NEW_GROUP >= self.rows - rows;
        self.is_distinct
    }
}

impl Numbering {
    /// The most combinations of keys for which there is no hash table, if `rows` rows are grouped.
    pub fn few(rows: usize) -> u64 {
        let of_rows = (rows as u64).saturating_mul(COMBINATIONS_PER_ROW);
        // numbers of combinations have 32 bits
        of_rows.clamp(FEW_COMBINATIONS, u32::MAX.into())
    }

    /// No groups yet.
    pub fn new(combinations: Combinations) -> Self {
        let form = match combinations {
            Combinations::Some(count) if count <= MOST_DIRECT => Form::Direct(count as usize),
            Combinations::Some(count) => Form::Array {
                count: count as usize,
                groups: Vec::new(),
                found: Vec::new(),
            },
            Combinations::Long => Form::Hashed(Hashed::default()),
            Combinations::Wide => Form::Wide(Hashed::default()),
        };
        Self {
            form,
            is_ascending: true,
        }
    }

    /// Lets groups come several times, if that is faster: those of `rows` rows are numbered, and merged afterwards.
    pub fn let_repeat(&mut self, rows: usize) {
        match &mut self.form {
            Form::Direct(_) | Form::Array { .. } => {}
            Form::Hashed(hashed) => hashed.sample.all = rows,
            Form::Wide(hashed) => hashed.sample.all = rows,
        }
    }

    /// Number of groups so far; those without rows count too if there are few combinations.
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Direct(groups) => *groups,
            Form::Array { found, .. } => found.len(),
            Form::Hashed(hashed) => hashed.found.len(),
            Form::Wide(hashed) => hashed.found.len(),
        }
    }

    /// True if each group so far has rows.
    pub fn is_exact(&self) -> bool {
        !matches!(self.form, Form::Direct(_))
    }

    /// Bytes that the numbering takes.
    pub fn bytes(&self) -> usize {
        match &self.form {
            Form::Direct(_) => 0,
            Form::Array { groups, found, .. } => size_of_val(&groups[..]) + found.capacity() * 4,
            Form::Hashed(hashed) => hashed.table.bytes() + hashed.found.capacity() * 8,
            Form::Wide(hashed) => hashed.table.bytes() + hashed.found.capacity() * 16,
        }
    }

    /// Numbers the groups of a batch's rows that pass. Other rows have arbitrary numbers of groups.
    pub fn number(
        &mut self,
        keys: &[Key<'_>],
        batch: Batch<'_>,
        mask: &Mask,
        vectors: &[Vector],
        readers: &[Reader<'_>],
        numbers: &mut [u32; VECTOR_LEN],
    ) -> Result<()> {
        numbers.fill(0);
        match &mut self.form {
            Form::Direct(_) => keys
                .iter()
                .try_for_each(|key| key.add_digits(batch, mask, vectors, readers, numbers)),
            Form::Array {
                count,
                groups,
                found,
            } => {
                let mut combinations = [0u32; VECTOR_LEN];
                for key in keys {
                    key.add_digits(batch, mask, vectors, readers, &mut combinations)?;
                }
                let add = |found: &mut Vec<u32>, rows: &Mask, numbers: &mut [u32; VECTOR_LEN]| {
                    if groups.is_empty() {
                        groups.resize(*count, 0);
                        let before = found.iter().zip(1..);
                        before.for_each(|(known, number)| groups[*known as usize] = number);
                    }
                    for_each_row(rows, |row| {
                        let combination = combinations[row];
                        let group = &mut groups[combination as usize];
                        if *group == 0 {
                            found.push(combination);
                            *group = found.len() as u32;
                        }
                        numbers[row] = *group - 1;
                    });
                };
                let is_ascending = &mut self.is_ascending;
                number_runs(&combinations, mask, is_ascending, found, numbers, add);
                Ok(())
            }
            Form::Hashed(hashed) => {
                let combinations = combined(keys, batch, mask, vectors, readers)?;
                hashed.number(&combinations, mask, &mut self.is_ascending, numbers);
                Ok(())
            }
            Form::Wide(hashed) => {
                let combinations = combined(keys, batch, mask, vectors, readers)?;
                hashed.number(&combinations, mask, &mut self.is_ascending, numbers);
                Ok(())
            }
        }
    }

    /// The words of a key in all groups, as [`Key::words`] returns them. `groups` are those with rows.
    pub fn words(
        &self,
        key: &Key<'_>,
        groups: &[usize],
        bit: usize,
        nulls: &mut Vec<u64>,
    ) -> (Vec<u64>, Vec<u64>) {
        match &self.form {
            Form::Direct(_) => {
                let combinations = groups.iter().map(|group| *group as u64);
                key.words(&combinations.collect::<Vec<u64>>(), bit, nulls)
            }
            Form::Array { found, .. } => key.words(found, bit, nulls),
            Form::Hashed(hashed) => key.words(&hashed.found, bit, nulls),
            Form::Wide(hashed) => key.words(&hashed.found, bit, nulls),
        }
    }
}

/// Combinations of groups and of a batch's rows.
struct Combined<'a, T> {
    found: &'a mut Vec<T>,
    rows: &'a [T; VECTOR_LEN],
}

impl<T: Combination> table::Keys for Combined<'_, T> {
    #[inline(always)]
    fn len(&self) -> usize {
        self.found.len()
    }

    #[inline(always)]
    fn is_equal(&self, group: u32, row: usize) -> bool {
        self.found[group as usize] == self.rows[row]
    }

    #[inline(always)]
    fn push(&mut self, row: usize) {
        self.found.push(self.rows[row]);
    }
}

dispatched! {
    fn hash_all<T: Combination>(combinations: &[T; VECTOR_LEN], hashes: &mut [u64; VECTOR_LEN]) {
        for (hash, combination) in hashes.iter_mut().zip(combinations) {
            *hash = combination.hash();
        }
    }
}

/// The combinations of a batch's rows.
fn combined<T: Combination>(
    keys: &[Key<'_>],
    batch: Batch<'_>,
    mask: &Mask,
    vectors: &[Vector],
    readers: &[Reader<'_>],
) -> Result<[T; VECTOR_LEN]> {
    let mut combinations = [T::default(); VECTOR_LEN];
    for key in keys {
        key.add_digits(batch, mask, vectors, readers, &mut combinations)?;
    }
    Ok(combinations)
}

/// Numbers the rows of `mask`, of which only the first of each run is looked at. Unless combinations ascend, `add` numbers
/// rows and adds the combinations of new groups to `found`.
fn number_runs<T: Combination>(
    combinations: &[T; VECTOR_LEN],
    mask: &Mask,
    is_ascending: &mut bool,
    found: &mut Vec<T>,
    numbers: &mut [u32; VECTOR_LEN],
    add: impl FnOnce(&mut Vec<T>, &Mask, &mut [u32; VECTOR_LEN]),
) {
    let firsts = firsts_of_runs(combinations, mask);
    let has_runs = count(&firsts) * ROWS_FOR_FOUR_RUNS <= count(mask) * 4;
    let rows = if has_runs { &firsts } else { mask };
    *is_ascending = *is_ascending && add_ascending(combinations, rows, found, numbers);
    if !*is_ascending {
        add(found, rows, numbers);
    }
    if has_runs {
        copy_to_runs(&firsts, numbers);
    }
}

/// Numbers rows whose combinations ascend from the last one of `found` on. Otherwise adds none, and returns false.
fn add_ascending<T: Combination>(
    combinations: &[T; VECTOR_LEN],
    rows: &Mask,
    found: &mut Vec<T>,
    numbers: &mut [u32; VECTOR_LEN],
) -> bool {
    let before = found.len();
    let mut is_ascending = true;
    for_each_row(rows, |row| {
        let combination = combinations[row];
        match found.last() {
            Some(last) if *last == combination => {}
            last => {
                is_ascending &= last.is_none_or(|last| *last < combination);
                found.push(combination);
            }
        }
        numbers[row] = found.len() as u32 - 1;
    });
    if !is_ascending {
        found.truncate(before);
    }
    is_ascending
}

impl<T: Combination> Hashed<T> {
    fn number(
        &mut self,
        combinations: &[T; VECTOR_LEN],
        mask: &Mask,
        is_ascending: &mut bool,
        numbers: &mut [u32; VECTOR_LEN],
    ) {
        let Self {
            table,
            found,
            sample,
        } = self;
        let was_ascending = *is_ascending;
        let is_distinct = sample.is_distinct;
        let add = |found: &mut Vec<T>, rows: &Mask, numbers: &mut [u32; VECTOR_LEN]| {
            if is_distinct {
                return for_each_row(rows, |row| {
                    numbers[row] = found.len() as u32;
                    found.push(combinations[row]);
                });
            }
            if was_ascending {
                *table = Table::of(found.len(), VECTOR_LEN, |group| found[group].hash());
            }
            table.reserve(found.len(), VECTOR_LEN, |group| found[group].hash());
            let mut hashes = [0; VECTOR_LEN];
            hash_all(combinations, &mut hashes);
            let mut keys = Combined {
                found,
                rows: combinations,
            };
            table.number(&mut keys, rows, &hashes, numbers);
        };
        number_runs(combinations, mask, is_ascending, found, numbers, add);
        if sample.ends(count(mask), found.len()) {
            *table = Table::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns true if `all` rows with random keys below `keys` are taken for distinct, and how many rows tell.
    fn is_distinct(all: usize, keys: u64) -> (bool, usize) {
        let mut sample = Sample {
            all,
            ..Sample::default()
        };
        let mut found = std::collections::HashSet::new();
        let mut state = 1u64;
        for _ in 0..all.div_ceil(VECTOR_LEN) {
            for _ in 0..VECTOR_LEN {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                found.insert((state >> 20) % keys);
            }
            if sample.ends(VECTOR_LEN, found.len()) {
                return (true, sample.rows);
            }
        }
        (false, sample.rows)
    }

    #[test]
    fn rows_with_few_groups_in_common_are_recognized() {
        let all = 1 << 18;
        for keys in [1 << 40, all as u64, all as u64 / 4] {
            assert_eq!(is_distinct(all, keys), (true, all / SAMPLED));
        }
        for keys in [1, 100, 1 << 12] {
            assert_eq!(is_distinct(all, keys), (false, all));
        }
        // too few to tell, or groups must be different
        assert!(!is_distinct(LEAST_SAMPLE - 1024, 1 << 40).0);
        let mut sample = Sample::default();
        assert!(!sample.ends(1 << 20, 1 << 20));
    }
}
