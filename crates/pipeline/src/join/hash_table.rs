//! Hash tables for integer keys whose range is too large for a bit each. Kernels read the same layout
//! (`kernels/hashed.cuh`).
//!
//! ```text
//! slot      64 bits: a key, or the empty value, an integer that is no key
//! bucket    4 slots, 32 bytes: one memory transaction. Slots are filled in order
//! table     2^n buckets. A key is in the bucket that it hashes to or, if that is full, in one of the
//!           following ones, with wrap-around
//! ```
//!
//! At most half of the slots are taken, so 19 of 20 keys are in their own bucket, and as many probes read one bucket.
//! A key is within [`MOST_PROBES`] buckets. `probes` is the maximum that occurs in a table; kernels stop there.

use std::sync::OnceLock;

use vectile_encodings::{VECTOR_LEN, dispatched};

use super::hash_filter::HashFilter;
use crate::error::{Error, Result};

/// Slots of a bucket. `hashed.cuh` has the same.
pub(super) const BUCKET: usize = 4;
/// Minimum slots per key.
const SLOTS_PER_KEY: usize = 2;
/// Maximum buckets that a probe reads. Half full tables need a few for any keys; more means that keys were crafted to
/// collide. `build.cuh` has the same.
pub(super) const MOST_PROBES: u32 = 32;
/// Maximum slots per key of a table that grows to reduce probes.
const MOST_SLOTS_PER_KEY: usize = 32;
/// Maximum slots: 2 GiB. Slot indices have 32 bits in kernels.
const MOST_SLOTS: usize = 1 << 28;

/// A set of integers, each in a slot.
pub struct HashedKeys {
    /// The number of buckets is a power of two.
    pub(super) slots: Vec<i64>,
    pub(super) empty: i64,
    /// Maximum buckets that a probe for a key reads.
    pub(super) probes: u32,
    pub(super) len: usize,
    /// Made at the first use.
    pub(super) filter: OnceLock<Option<HashFilter>>,
}

impl HashedKeys {
    /// Maximum buckets that a probe reads.
    pub const MOST_PROBES: u32 = MOST_PROBES;

    /// Number of slots for `keys` keys.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there are too many.
    pub fn slots_for(keys: usize) -> Result<usize> {
        let slots = keys.checked_mul(SLOTS_PER_KEY).ok_or_else(too_many)?;
        let slots = slots.checked_next_power_of_two().ok_or_else(too_many)?;
        match slots.max(BUCKET) {
            slots if slots > MOST_SLOTS => Err(too_many()),
            slots => Ok(slots),
        }
    }

    /// Creates a table from slots that a device has filled.
    pub fn of_slots(slots: Vec<i64>, empty: i64, probes: u32) -> Result<Self> {
        let len = slots.iter().filter(|slot| **slot != empty).count();
        match slots.len() >= BUCKET && slots.len().is_power_of_two() {
            true => Ok(Self {
                slots,
                empty,
                probes,
                len,
                filter: OnceLock::new(),
            }),
            false => Err(Error::Internal(format!("{} slots", slots.len()))),
        }
    }

    pub(super) fn empty(slots: usize, empty: i64) -> Result<Self> {
        let slots = slots.max(BUCKET);
        if slots > MOST_SLOTS {
            return Err(too_many());
        }
        Ok(Self {
            slots: vec![empty; slots],
            empty,
            probes: 1,
            len: 0,
            filter: OnceLock::new(),
        })
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// All slots.
    pub fn slots(&self) -> &[i64] {
        &self.slots
    }

    /// The value of a slot without a key.
    pub fn empty_slot(&self) -> i64 {
        self.empty
    }

    /// The [`size_word`] of the table.
    pub fn size_word(&self) -> u64 {
        size_word(self.slots.len(), self.probes)
    }

    /// Writes the slots in the device's layout.
    pub fn write(&self, to: &mut [u8]) {
        let words = to.as_chunks_mut::<8>().0.iter_mut();
        let slots = words.zip(&self.slots);
        slots.for_each(|(to, slot)| *to = slot.to_le_bytes());
    }

    /// The slot index of a key, if it is in the table.
    pub fn slot_index(&self, key: i64) -> Option<usize> {
        self.slot_index_of_hash(key, hash_of(key))
    }

    /// As [`slot_index`](Self::slot_index), with the hash of the key.
    #[inline]
    pub fn slot_index_of_hash(&self, key: i64, hash: u64) -> Option<usize> {
        if key == self.empty {
            return None;
        }
        let buckets = self.slots.as_chunks::<BUCKET>().0;
        let mut bucket = hash as usize & self.mask();
        for _ in 0..self.probes {
            let slots = buckets.get(bucket)?;
            // without a branch for each slot: a processor cannot predict which of them has the key
            let is_key = (0..BUCKET).map(|slot| usize::from(slots[slot] == key) << slot);
            let is_key = is_key.sum::<usize>();
            if is_key != 0 {
                return Some(bucket * BUCKET + is_key.trailing_zeros() as usize);
            }
            if slots[BUCKET - 1] == self.empty {
                return None;
            }
            bucket = (bucket + 1) & self.mask();
        }
        None
    }

    /// Hashes of keys.
    pub fn hashes(keys: &[i64; VECTOR_LEN], hashes: &mut [u64; VECTOR_LEN]) {
        hashes_of(keys, hashes);
    }

    /// A filter of hashes, unless there are too many keys.
    pub fn filter(&self) -> Option<&HashFilter> {
        let keys = || self.slots.iter().filter(|slot| **slot != self.empty);
        let filter = || HashFilter::new(self.len, keys().map(|key| hash_of(*key)));
        self.filter.get_or_init(filter).as_ref()
    }

    /// Reads the buckets of the hashes whose bit is set, so that they are in the processor's caches. Returns a word that
    /// depends on all of them.
    pub fn touch(&self, hashes: &[u64; VECTOR_LEN], mask: &[u64; VECTOR_LEN / 64]) -> i64 {
        // reads without branches wait for memory together
        let rows = hashes.as_chunks::<64>().0.iter().zip(mask);
        let rows = rows.filter(|(_, bits)| **bits != 0);
        let hashes = rows.flat_map(|(hashes, _)| hashes);
        let slots = hashes.map(|hash| self.slots[(*hash as usize & self.mask()) * BUCKET]);
        slots.fold(0, |all, slot| all ^ slot)
    }

    fn mask(&self) -> usize {
        self.slots.len() / BUCKET - 1
    }

    /// The index of the slot that has the key or, if there is none, of the slot for it, and the number of buckets read;
    /// `None` if all slots of `probes` buckets are taken.
    fn search(&self, key: i64, probes: u32) -> Option<(usize, u32)> {
        let mut bucket = hash_of(key) as usize & self.mask();
        for probe in 1..=probes {
            let first = bucket * BUCKET;
            let slots = &self.slots[first..first + BUCKET];
            let found = slots
                .iter()
                .position(|slot| *slot == key || *slot == self.empty);
            if let Some(slot) = found {
                return Some((first + slot, probe));
            }
            bucket = (bucket + 1) & self.mask();
        }
        None
    }

    /// Inserts a key, and returns its slot index.
    pub(super) fn insert(&mut self, key: i64) -> Result<usize> {
        if (self.len + 1) * SLOTS_PER_KEY > self.slots.len() && self.slot_index(key).is_none() {
            self.grow()?;
        }
        loop {
            if let Some(slot_index) = self.try_insert(key) {
                return Ok(slot_index);
            }
            self.grow()?;
        }
    }

    /// Inserts a key, and returns its slot index; `None` if there is no free slot within [`MOST_PROBES`] buckets.
    fn try_insert(&mut self, key: i64) -> Option<usize> {
        let (slot_index, probes) = self.search(key, MOST_PROBES)?;
        if self.slots[slot_index] == self.empty {
            self.slots[slot_index] = key;
            self.probes = self.probes.max(probes);
            self.len += 1;
        }
        Some(slot_index)
    }

    /// Grows to at least twice as many slots.
    fn grow(&mut self) -> Result<()> {
        let mut slots = self.slots.len();
        'larger: loop {
            slots *= 2;
            if slots > (self.len + 1).saturating_mul(MOST_SLOTS_PER_KEY).max(64) {
                return Err(Error::Unsupported("keys whose hashes collide".into()));
            }
            let mut larger = Self::empty(slots, self.empty)?;
            for key in self.slots.iter().filter(|key| **key != self.empty) {
                if larger.try_insert(*key).is_none() {
                    continue 'larger;
                }
            }
            *self = larger;
            return Ok(());
        }
    }
}

/// The size of a hash table of `slots` slots as kernels read it: the number of buckets minus one in the low 32 bits, the
/// maximum number of buckets that a probe reads in the high 32 bits.
pub fn size_word(slots: usize, probes: u32) -> u64 {
    (slots / BUCKET - 1) as u64 | u64::from(probes) << 32
}

dispatched! {
    fn hashes_of(keys: &[i64; VECTOR_LEN], hashes: &mut [u64; VECTOR_LEN]) {
        let pairs = hashes.iter_mut().zip(keys);
        pairs.for_each(|(hash, key)| *hash = hash_of(*key));
    }
}

/// The hash function of `hash.cuh`.
#[inline(always)]
pub(super) fn hash_of(key: i64) -> u64 {
    const FACTOR: u64 = 0xd6e8_feb8_6659_fd93;
    let mut x = key as u64;
    for _ in 0..2 {
        x = (x ^ x >> 32).wrapping_mul(FACTOR);
    }
    x ^ x >> 32
}

fn too_many() -> Error {
    Error::Unsupported("more keys than a table has room for".into())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array};

    use super::super::hash_build::{hashed_set, hashed_table};
    use super::super::key_chunks::{KeyChunks, KeyKind, RowCodes};
    use super::*;

    fn chunk(keys: &[i64]) -> KeyChunks {
        let keys: ArrayRef = Arc::new(Int64Array::from(keys.to_vec()));
        KeyChunks::new(&[keys], 1).unwrap()
    }

    fn set(keys: &[i64]) -> HashedKeys {
        match chunk(keys).kind {
            KeyKind::Integers(chunks) => hashed_set(&chunks).unwrap(),
            KeyKind::Bytes(_) => panic!("text"),
        }
    }

    /// The table of distinct keys, in parts of `threads` threads.
    fn table(keys: &[i64], threads: usize) -> Result<HashedKeys> {
        let KeyKind::Integers(chunks) = chunk(keys).kind else {
            panic!("text");
        };
        let table = hashed_table::<()>(&chunks, (RowCodes::One, 1), threads)?;
        Ok(table.unwrap().0)
    }

    /// The inverse of `hash_of`: each of its steps has one.
    fn key_of(hash: u64) -> i64 {
        // Newton's iteration, modulo 2^64
        let factor = 0xd6e8_feb8_6659_fd93u64;
        let inverse = (0..6).fold(1u64, |x, _| {
            x.wrapping_mul(2u64.wrapping_sub(factor.wrapping_mul(x)))
        });
        let mut x = hash ^ hash >> 32;
        for _ in 0..2 {
            x = x.wrapping_mul(inverse);
            x ^= x >> 32;
        }
        assert_eq!(hash_of(x as i64), hash);
        x as i64
    }

    #[test]
    fn keys_have_slots_of_their_own_and_others_none() {
        let keys: Vec<i64> = (0..5000)
            .map(|i: i64| i.wrapping_mul(0x5851_f42d_4c95_7f2d))
            .collect();
        for table in [
            set(&keys),
            table(&keys, 1).unwrap(),
            table(&keys, 3).unwrap(),
        ] {
            assert_eq!(table.len(), keys.len());
            assert!(table.slots().len() >= SLOTS_PER_KEY * keys.len());
            assert!(table.slots().len().is_power_of_two());
            assert!(table.probes < 8);
            let mut slots: Vec<usize> = keys
                .iter()
                .map(|key| table.slot_index(*key).unwrap())
                .collect();
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), keys.len());
            assert!(
                keys.iter()
                    .all(|key| table.slot_index(key ^ 1 << 50).is_none())
            );
            assert_eq!(table.slot_index(table.empty_slot()), None);
        }
    }

    #[test]
    fn the_empty_slot_is_no_key() {
        let all = [i64::MIN, i64::MAX];
        let cases: [&[i64]; 6] = [
            &[],
            &[7],
            &[i64::MIN],
            &[i64::MAX],
            &all,
            &[i64::MAX, i64::MIN + 1, i64::MIN, i64::MIN + 3, i64::MIN + 1],
        ];
        for keys in cases {
            let table = set(keys);
            let empty = table.empty_slot();
            assert!(!keys.contains(&empty), "{keys:?}");
            assert_eq!(table.slot_index(empty), None);
            assert!(keys.iter().all(|key| table.slot_index(*key).is_some()));
        }
        let last = set(cases[5]);
        assert_eq!((last.len(), last.empty_slot()), (4, i64::MIN + 2));
    }

    #[test]
    fn duplicates_take_one_slot() {
        let keys: Vec<i64> = (0..10_000).map(|i| (i % 3) << 40).collect();
        let table = set(&keys);
        assert_eq!((table.len(), table.slots().len()), (3, 8));
    }

    #[test]
    fn full_buckets_overflow_into_the_next() {
        // all in the last of 8 buckets; then in the first, around the end
        let keys: Vec<i64> = (0..10).map(|i| key_of(i << 40 | 7)).collect();
        let table = table(&keys, 2).unwrap();
        assert_eq!((table.slots().len(), table.probes), (32, 3));
        assert_eq!(table.size_word(), 7 | 3 << 32);
        let slots: Vec<_> = keys.iter().map(|key| table.slot_index(*key)).collect();
        let expected = [28, 29, 30, 31, 0, 1, 2, 3, 4, 5];
        assert_eq!(slots, expected.map(Some));
        assert_eq!(table.slot_index(key_of(99 << 40 | 7)), None);
    }

    #[test]
    fn keys_that_collide_get_a_larger_table_or_none() {
        let near: Vec<i64> = (0..300).map(|i| key_of(i << 8)).collect();
        let large = table(&near, 1).unwrap();
        assert!(large.slots().len() > 1024 && large.probes <= MOST_PROBES);
        assert!(near.iter().all(|key| large.slot_index(*key).is_some()));
        let far: Vec<i64> = (0..300).map(|i| key_of(i << 40)).collect();
        let error = table(&far, 1).err().unwrap();
        assert!(matches!(error, Error::Unsupported(_)), "{error}");
    }

    #[test]
    fn too_many_keys_are_no_table() {
        for expected in [MOST_SLOTS, usize::MAX / 2, usize::MAX] {
            let error = HashedKeys::slots_for(expected).unwrap_err();
            assert!(matches!(error, Error::Unsupported(_)), "{error}");
        }
    }
}
