//! A Bloom filter with one hash function (B. Bloom, 1970): a bit shows of most keys that they are not in a table.

/// The most keys with a filter, whose bits fit the second cache of a core.
const MOST_KEYS: usize = 1 << 18;
/// Bits for each key, at least: one of this many other keys passes, at most.
const BITS_A_KEY: usize = 8;
const FEWEST_BITS: usize = 64;

/// A bit for each value of the upper bits of a hash, set if a key has them.
pub struct HashFilter {
    words: Vec<u32>,
    shift: u32,
}

impl HashFilter {
    /// The filter of at most `keys` hashes; `None` for too many.
    pub(super) fn new(keys: usize, hashes: impl Iterator<Item = u64>) -> Option<Self> {
        let bits = Self::bits(keys)?;
        let shift = u64::BITS - bits.trailing_zeros();
        let mut words = vec![0u32; bits / 32];
        for hash in hashes {
            let bit = (hash >> shift) as usize;
            words[bit / 32] |= 1 << (bit % 32);
        }
        Some(Self { words, shift })
    }

    fn bits(keys: usize) -> Option<usize> {
        let bits = (keys * BITS_A_KEY).next_power_of_two();
        (keys <= MOST_KEYS).then_some(bits.max(FEWEST_BITS))
    }

    /// All bits.
    pub fn words(&self) -> &[u32] {
        &self.words
    }

    /// The index of a hash's bit is the hash shifted right by this.
    pub fn shift(&self) -> u32 {
        self.shift
    }
}
