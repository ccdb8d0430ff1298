//! A hash table of groups: from keys, which are stored elsewhere, to the numbers of groups.
//!
//! A slot of 64 bits has the group's number plus one below, and the low half of the hash above; 0 is empty. Slots are
//! probed one after the other, from that of the hash's upper bits. At most half of them are taken.

use vectile_encodings::VECTOR_LEN;
use vectile_encodings::simd::dispatched;

use crate::vector::{Mask, for_each_row};

/// Fewest slots.
const LEAST: usize = 1 << 10;

/// The keys of groups, by their numbers, and those of rows that are to be numbered.
pub(crate) trait Keys {
    /// Number of groups.
    fn len(&self) -> usize;

    /// True if a row has the key of a group.
    fn is_equal(&self, group: u32, row: usize) -> bool;

    /// Adds a group with the key of a row.
    fn push(&mut self, row: usize);
}

/// Numbers of groups, by the hashes of their keys.
#[derive(Debug)]
pub(crate) struct Table {
    /// A power of two of them.
    slots: Vec<u64>,
    /// Bits of a hash below those that are a slot's index.
    shift: u32,
}

impl Default for Table {
    fn default() -> Self {
        Self::with_slots(LEAST)
    }
}

impl Table {
    fn with_slots(slots: usize) -> Self {
        Self {
            slots: vec![0; slots],
            shift: u64::BITS - slots.trailing_zeros(),
        }
    }

    /// Makes room for more groups than the `groups` there are. `hash` returns the hash of a group's key.
    pub fn reserve(&mut self, groups: usize, more: usize, hash: impl Fn(usize) -> u64) {
        if (groups + more) * 2 <= self.slots.len() {
            return;
        }
        // fourfold: all groups move once for three times as many
        *self = Self::of(groups, groups + 2 * more, hash);
    }

    /// A table of the first `groups` groups with room for `more`. `hash` is as in [`reserve`](Self::reserve).
    pub fn of(groups: usize, more: usize, hash: impl Fn(usize) -> u64) -> Self {
        let slots = ((groups + more) * 2).next_power_of_two();
        let mut table = Self::with_slots(slots.max(LEAST));
        let mask = table.slots.len() - 1;
        for group in 0..groups {
            let hash = hash(group);
            let mut at = (hash >> table.shift) as usize;
            while table.slots[at & mask] != 0 {
                at += 1;
            }
            table.slots[at & mask] = slot_of(hash, group);
        }
        table
    }

    /// Numbers the groups of the rows of `mask`, whose keys have these `hashes`. Groups that are missing are added.
    /// [`reserve`](Self::reserve) must have made room.
    ///
    /// First, each row takes the better of the two slots at its hash, without branches, so that the processor looks up
    /// many rows at once. Only rows with another key, most of which are of a new group, are probed one by one.
    pub fn number(
        &mut self,
        keys: &mut impl Keys,
        mask: &Mask,
        hashes: &[u64; VECTOR_LEN],
        numbers: &mut [u32; VECTOR_LEN],
    ) {
        let mut rows = [0u16; VECTOR_LEN];
        let mut count = list(mask, &mut rows);
        if let Some(last) = keys.len().checked_sub(1) {
            let most = self.slots.len() - 1;
            let mut missing = 0;
            for at in 0..count {
                // remainders spare checks of indices
                let row = usize::from(rows[at]) % VECTOR_LEN;
                let hash = hashes[row];
                let slot = (hash >> self.shift) as usize;
                let (first, second) = (self.slots[slot & most], self.slots[(slot + 1) & most]);
                let found = if has_tag(first, hash) { first } else { second };
                // any group will do for an empty slot
                let number = number_of(found).min(last as u32);
                numbers[row] = number;
                rows[missing % VECTOR_LEN] = row as u16;
                missing += usize::from(!keys.is_equal(number, row));
            }
            count = missing;
        }
        for row in &rows[..count] {
            let row = usize::from(*row);
            numbers[row] = self.find_or_add(hashes[row], row, keys);
        }
    }

    /// The number of the group with the key of a row, which is added if it is missing.
    fn find_or_add(&mut self, hash: u64, row: usize, keys: &mut impl Keys) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = (hash >> self.shift) as usize;
        loop {
            let slot = &mut self.slots[at & mask];
            if *slot == 0 {
                let next = keys.len() as u32;
                *slot = slot_of(hash, keys.len());
                keys.push(row);
                return next;
            }
            if has_tag(*slot, hash) && keys.is_equal(number_of(*slot), row) {
                return number_of(*slot);
            }
            at += 1;
        }
    }

    /// Bytes of the slots.
    pub fn bytes(&self) -> usize {
        size_of_val(&self.slots[..])
    }
}

/// Lists the rows of a mask, and returns how many they are.
fn list(mask: &Mask, rows: &mut [u16; VECTOR_LEN]) -> usize {
    let mut count = 0;
    for_each_row(mask, |row| {
        rows[count % VECTOR_LEN] = row as u16;
        count += 1;
    });
    count
}

fn slot_of(hash: u64, group: usize) -> u64 {
    hash << 32 | (group as u64 + 1)
}

fn number_of(slot: u64) -> u32 {
    (slot as u32).wrapping_sub(1)
}

/// True if a slot has the lower half of this hash.
#[inline(always)]
fn has_tag(slot: u64, hash: u64) -> bool {
    slot >> 32 == hash & u64::from(u32::MAX)
}

/// Adds a word to a hash. Products of 64 bits are vectors in registers, those of 128 bits are not.
#[inline(always)]
pub(crate) fn hashed(hash: u64, word: u64) -> u64 {
    let product = (hash ^ word ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd6e8_feb8_6659_fd93);
    let product = (product ^ product >> 32).wrapping_mul(0xd6e8_feb8_6659_fd93);
    product ^ product >> 32
}

dispatched! {
    /// Adds a word to each hash.
    pub(crate) fn add_words(hashes: &mut [u64], words: &[u64]) {
        hashes.iter_mut().zip(words).for_each(|(hash, word)| *hash = hashed(*hash, *word));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vector::first_rows;

    struct Found<'a> {
        found: Vec<u64>,
        rows: &'a [u64],
    }

    impl Keys for Found<'_> {
        fn len(&self) -> usize {
            self.found.len()
        }

        fn is_equal(&self, group: u32, row: usize) -> bool {
            self.found[group as usize] == self.rows[row]
        }

        fn push(&mut self, row: usize) {
            self.found.push(self.rows[row]);
        }
    }

    #[test]
    fn keys_have_one_number_each() {
        let keys: Vec<u64> = (0..20_000).map(|key| key * 0x1_0000_0001 % 6_007).collect();
        // few hashes, so that keys of other hashes are in the way
        for most in [u64::MAX, 100] {
            let hash = |key: u64| hashed(0, key) % most;
            let (mut table, mut found) = (Table::default(), Vec::new());
            for rows in keys.chunks(VECTOR_LEN) {
                table.reserve(found.len(), rows.len(), |group| hash(found[group]));
                let (mut hashes, mut numbers) = ([0; VECTOR_LEN], [0; VECTOR_LEN]);
                let pairs = hashes.iter_mut().zip(rows);
                pairs.for_each(|(of, key)| *of = hash(*key));
                let mut both = Found { found, rows };
                table.number(&mut both, &first_rows(rows.len()), &hashes, &mut numbers);
                found = both.found;
                for (number, key) in numbers.iter().zip(rows) {
                    assert_eq!(found[*number as usize], *key);
                }
            }
            // in the order in which they came
            let mut seen = std::collections::HashSet::new();
            let first: Vec<u64> = keys
                .iter()
                .copied()
                .filter(|key| seen.insert(*key))
                .collect();
            assert_eq!(found, first);
        }
    }
}
