//! Perfect hash tables of integer keys, indexed by the distance from the smallest key: a bit per integer, and a code.

use super::code_table::{CodeTable, MOST_BYTES, code_bytes};

/// Maximum bits per key of a dense table: as many as a hash table with four slots per key has.
const BITS_PER_KEY: u64 = 256;
/// Maximum range, from the smallest key to the largest, for which a table is dense regardless of the number of keys:
/// its bits take 2 MiB, which fit caches.
const SMALL_RANGE: u64 = 1 << 24;
/// The most integers that are looked at to find out that none of them is a key.
const MOST_EXAMINED: usize = 1 << 17;
/// Maximum range, from the smallest key to the largest, of a dense table in kernels.
pub(super) const MOST_RANGE: u64 = 1 << 31;

/// A dense table of integer keys, indexed by the distance from `first`.
pub struct PerfectHashTable {
    /// The smallest key.
    pub first: i64,
    /// Number of integers from the first key to the last.
    pub range: u64,
    /// A bit per integer of the range: set if it is a key.
    pub bits: Vec<u32>,
    /// The codes of keys.
    pub codes: DenseCodes,
}

/// The codes of a dense table.
pub enum DenseCodes {
    /// A code per integer, if there is more than one code; all ones for integers that are not keys.
    Stored(CodeTable),
    /// A key's code is its rank, the number of smaller keys: per word of the bits, the rank of its first key. That takes a
    /// quarter of a byte for each integer of the range.
    Ranks(Vec<u32>),
}

impl DenseCodes {
    /// Bytes in memory.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Stored(codes) => codes.bytes(),
            Self::Ranks(ranks) => ranks.len() * size_of::<u32>(),
        }
    }
}

impl PerfectHashTable {
    /// Number of words of the bits of a range: one more than it needs.
    pub(super) fn words(range: u64) -> usize {
        range.div_ceil(32) as usize + 1
    }

    /// The code of a key.
    pub fn code(&self, key: i64) -> Option<u32> {
        let index = key.wrapping_sub(self.first) as u64;
        let index = index.min(self.range) as usize;
        let word = self.bits.get(index / 32).copied().unwrap_or_default();
        match (word >> (index % 32) & 1, &self.codes) {
            (0, _) => None,
            (_, DenseCodes::Stored(codes)) => Some(codes.get(index)),
            (_, DenseCodes::Ranks(ranks)) => {
                let smaller = word & ((1 << (index % 32)) - 1);
                Some(ranks[index / 32] + smaller.count_ones())
            }
        }
    }

    /// The table with ranks as codes.
    pub(super) fn with_ranks(mut self) -> Self {
        let mut rank = 0;
        let ranks = self.bits.iter().map(|word| {
            let of_word = rank;
            rank += word.count_ones();
            of_word
        });
        self.codes = DenseCodes::Ranks(ranks.collect());
        self
    }

    /// The keys as ranges of consecutive integers, from the first to the last of each; `None` if there are more than `most`.
    pub(super) fn ranges(&self, most: usize) -> Option<Vec<(i64, i64)>> {
        let key = |index: usize| self.first.wrapping_add_unsigned(index as u64);
        let (mut ranges, mut start) = (Vec::new(), None);
        // no bit is set behind the last key, and there is such a bit
        for (at, word) in self.bits.iter().enumerate() {
            if *word == start.map_or(0, |_| u32::MAX) {
                continue;
            }
            for index in at * 32..at * 32 + 32 {
                match (start, word >> (index % 32) & 1) {
                    (None, 1) => start = Some(index),
                    (Some(first), 0) => {
                        ranges.push((key(first), key(index - 1)));
                        start = None;
                    }
                    _ => {}
                }
            }
            if ranges.len() > most {
                return None;
            }
        }
        Some(ranges)
    }

    /// False if no integer from `low` to `high` is a key; true if some is, or if they are too many to look at.
    pub fn may_have_key_within(&self, low: i64, high: i64) -> bool {
        let last = i128::from(self.first) + i128::from(self.range) - 1;
        let low = i128::from(low).max(self.first.into());
        let high = i128::from(high).min(last);
        if low > high {
            return false;
        }
        let index = |key: i128| (key - i128::from(self.first)) as usize;
        let (first, last) = (index(low), index(high));
        if last - first > MOST_EXAMINED {
            return true;
        }
        let words = self.bits.get(first / 32..=last / 32).unwrap_or_default();
        let mut words = words.iter().enumerate();
        words.any(|(at, word)| {
            let mut word = *word;
            if at == 0 {
                word &= u32::MAX << (first % 32);
            }
            if at == last / 32 - first / 32 {
                word &= u32::MAX >> (31 - last % 32);
            }
            word != 0
        })
    }

    /// Writes the bits in the device's layout and returns the codes, if they have such a layout.
    pub fn write(&self, to: &mut [u8]) -> Option<&CodeTable> {
        let words = to.as_chunks_mut::<4>().0.iter_mut();
        words
            .zip(&self.bits)
            .for_each(|(to, word)| *to = word.to_le_bytes());
        match &self.codes {
            DenseCodes::Stored(codes) => Some(codes),
            DenseCodes::Ranks(_) => None,
        }
    }
}

/// Returns true if keys get a dense table rather than a hash table: a bit for each of `range` integers takes at most
/// the memory of slots for `keys`, or is small in any case. A probe of a dense table reads one bit; a probe of a hash
/// table reads 32 bytes, possibly several times.
pub(super) fn is_dense(range: u64, keys: u64, count: u32) -> bool {
    let width = code_bytes(count) as u64;
    range
        <= keys
            .saturating_mul(BITS_PER_KEY)
            .clamp(SMALL_RANGE, MOST_RANGE)
        && range.saturating_mul(width) <= MOST_BYTES
}
