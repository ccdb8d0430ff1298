//! A hash table of groups: from keys, which are stored elsewhere, to the numbers of groups.
//!
//! A slot of 64 bits has the group's number plus one below, and the low half of the hash above; 0 is empty. Slots are
//! probed one after the other, from that of the hash's upper bits. At most half of them are taken.

/// Fewest slots.
const LEAST: usize = 1 << 10;

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

    /// Makes room for `groups` groups. `hash` returns the hash of a group's key.
    pub fn reserve(&mut self, groups: usize, hash: impl Fn(u32) -> u64) {
        if groups * 2 <= self.slots.len() {
            return;
        }
        // fourfold: all groups move once for three times as many
        let mut larger = Self::with_slots((groups * 2).next_power_of_two() * 2);
        let mask = larger.slots.len() - 1;
        for slot in self.slots.iter().filter(|slot| **slot != 0) {
            let mut at = (hash(number_of(*slot)) >> larger.shift) as usize;
            while larger.slots[at & mask] != 0 {
                at += 1;
            }
            larger.slots[at & mask] = *slot;
        }
        *self = larger;
    }

    /// The number of the group with a key of this hash for which `is_equal` is true; if there is none, adds one with
    /// the number `next`. [`reserve`](Self::reserve) must have made room.
    #[inline(always)]
    pub fn find_or_add(&mut self, hash: u64, next: u32, is_equal: impl Fn(u32) -> bool) -> u32 {
        let mask = self.slots.len() - 1;
        let mut at = (hash >> self.shift) as usize;
        loop {
            let slot = &mut self.slots[at & mask];
            if *slot == 0 {
                *slot = hash << 32 | u64::from(next + 1);
                return next;
            }
            if *slot >> 32 == hash & u64::from(u32::MAX) && is_equal(number_of(*slot)) {
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

fn number_of(slot: u64) -> u32 {
    (slot as u32).wrapping_sub(1)
}

/// Adds a word to a hash.
#[inline(always)]
pub(crate) fn hashed(hash: u64, word: u64) -> u64 {
    let product = u128::from(hash ^ word ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
    (product >> 64) as u64 ^ product as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_one_number_each() {
        let keys: Vec<u64> = (0..20_000).map(|key| key * 0x1_0000_0001 % 6_007).collect();
        // few hashes, so that keys of other hashes are in the way
        for most in [u64::MAX, 100] {
            let hash = |key: u64| hashed(0, key) % most;
            let (mut table, mut found) = (Table::default(), Vec::new());
            for key in &keys {
                table.reserve(found.len() + 1, |number| hash(found[number as usize]));
                let next = found.len() as u32;
                let number =
                    table.find_or_add(hash(*key), next, |number| found[number as usize] == *key);
                if number == next {
                    found.push(*key);
                }
                assert_eq!(found[number as usize], *key);
            }
            let mut distinct = keys.clone();
            distinct.sort_unstable();
            distinct.dedup();
            found.sort_unstable();
            assert_eq!(found, distinct);
        }
    }
}
