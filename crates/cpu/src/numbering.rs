//! Numbers the groups of a row group.
//!
//! ```text
//!  combinations of keys:  few ─▶ a group each, whether it occurs or not
//!                some per row ─▶ an array from combinations to groups, in the order in which they occur
//!                        more ─▶ a hash table
//! ```

use vectile_encodings::VECTOR_LEN;
use vectile_pipeline::Result;

use crate::batch::Batch;
use crate::group::{Combination, Combinations, Key};
use crate::reader::Reader;
use crate::table::Table;
use crate::vector::{Mask, Vector, for_each_row};

/// Up to this many combinations have a group each.
const MOST_DIRECT: u64 = 1 << 12;

/// Up to this many combinations need no hash table, even if there are fewer rows.
const FEW_COMBINATIONS: u64 = 1 << 14;

/// The most combinations for each row that an array is for: an entry takes a quarter of a hash table's.
const COMBINATIONS_PER_ROW: u64 = 4;

/// The numbers of a row group's groups.
pub(crate) struct Numbering {
    form: Form,
}

enum Form {
    /// A combination's number is the group's, of this many.
    Direct(usize),
    Array {
        /// The group of each combination, plus one; 0 for combinations that did not occur.
        groups: Vec<u32>,
        found: Vec<u64>,
    },
    Hashed(Hashed<u64>),
    Wide(Hashed<u128>),
}

#[derive(Default)]
struct Hashed<T> {
    table: Table,
    /// The combination of each group.
    found: Vec<T>,
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
                groups: vec![0; count as usize],
                found: Vec::new(),
            },
            Combinations::Long => Form::Hashed(Hashed::default()),
            Combinations::Wide => Form::Wide(Hashed::default()),
        };
        Self { form }
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
            Form::Array { groups, found } => size_of_val(&groups[..]) + found.capacity() * 8,
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
            Form::Array { groups, found } => {
                let mut combinations = [0u32; VECTOR_LEN];
                for key in keys {
                    key.add_digits(batch, mask, vectors, readers, &mut combinations)?;
                }
                for_each_row(mask, |row| {
                    let combination = combinations[row];
                    let group = &mut groups[combination as usize];
                    if *group == 0 {
                        found.push(combination.into());
                        *group = found.len() as u32;
                    }
                    numbers[row] = *group - 1;
                });
                Ok(())
            }
            Form::Hashed(hashed) => hashed.number(keys, batch, mask, vectors, readers, numbers),
            Form::Wide(hashed) => hashed.number(keys, batch, mask, vectors, readers, numbers),
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

impl<T: Combination> Hashed<T> {
    fn number(
        &mut self,
        keys: &[Key<'_>],
        batch: Batch<'_>,
        mask: &Mask,
        vectors: &[Vector],
        readers: &[Reader<'_>],
        numbers: &mut [u32; VECTOR_LEN],
    ) -> Result<()> {
        let mut combinations = [T::default(); VECTOR_LEN];
        for key in keys {
            key.add_digits(batch, mask, vectors, readers, &mut combinations)?;
        }
        let Self { table, found } = self;
        table.reserve(found.len() + VECTOR_LEN, |group| {
            found[group as usize].hash()
        });
        // rows that follow each other often have one key
        let mut last = (T::default(), None);
        for_each_row(mask, |row| {
            let combination = combinations[row];
            if let (key, Some(group)) = last
                && key == combination
            {
                numbers[row] = group;
                return;
            }
            let next = found.len() as u32;
            let is_equal = |group: u32| found[group as usize] == combination;
            let group = table.find_or_add(combination.hash(), next, is_equal);
            if group == next {
                found.push(combination);
            }
            numbers[row] = group;
            last = (combination, Some(group));
        });
        Ok(())
    }
}
