//! Finds the longest word that a string begins with: the tables that `kernels/text/compress.cuh` reads.

use std::mem;

use vectile_kernels::word_hash;

use crate::error::{Error, Result};

/// Bytes of the longest word.
const MOST_BYTES: usize = 16;
/// Codes have 12 bits.
const MOST_WORDS: usize = 1 << 12;
/// Numbers of slots, as powers of two.
const LEAST_BITS: u32 = 11;
const MOST_BITS: u32 = 15;
/// Limit of the entries that are moved to make room for one.
const MOST_MOVES: usize = 500;

/// Words in the order of their bytes.
pub(super) struct Matcher {
    pub bytes: Vec<u8>,
    /// Sizes from which the kernel computes offsets in `bytes`.
    pub shape: u32,
}

impl Matcher {
    /// The tables of the words of codes, each of 1 to 16 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there are more words than codes of 12 bits, if one is longer or empty, or if too many
    /// have the same hash.
    pub fn of(words: &[Vec<u8>]) -> Result<Self> {
        let longest = words.iter().map(|word| word.len()).max().unwrap_or(0);
        let count = words.len();
        if count > MOST_WORDS || longest > MOST_BYTES || words.iter().any(Vec::is_empty) {
            let reason = format!("{count} words of up to {longest} bytes");
            return Err(Error::Unsupported(reason));
        }
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|code| &words[*code]);
        let is_long = longest > 8;
        let mut bytes = vec![];
        for code in &order {
            let text = padded(&words[*code]);
            bytes.extend_from_slice(&text[..if is_long { 16 } else { 8 }]);
        }
        align(&mut bytes);

        let sorted: Vec<&[u8]> = order.iter().map(|code| &words[*code][..]).collect();
        let prefixes = prefixes(&sorted);
        let slots = (LEAST_BITS..=MOST_BITS).find_map(|bits| slots(&prefixes, bits));
        let slots = slots.ok_or_else(|| {
            let count = prefixes.len();
            Error::Unsupported(format!("{count} beginnings of words"))
        })?;
        bytes.extend(slots.iter().flat_map(|entry| entry.to_le_bytes()));

        // the words that are prefixes of the last one, as indices + 1
        let mut parents: Vec<usize> = vec![];
        for (index, (word, code)) in sorted.iter().zip(&order).enumerate() {
            let begins = |number: &usize| word.starts_with(sorted[number - 1]);
            while parents.pop_if(|number| !begins(number)).is_some() {}
            let parent = parents.last().copied().unwrap_or(0);
            let info = (word.len() - 1) | code << 4 | parent << 16;
            bytes.extend((info as u32).to_le_bytes());
            parents.push(index + 1);
        }
        align(&mut bytes);
        let mut singles = [u16::MAX; 256];
        for (code, word) in words.iter().enumerate() {
            if let [byte] = word[..] {
                singles[usize::from(byte)] = (code << 4) as u16;
            }
        }
        bytes.extend(singles.iter().flat_map(|single| single.to_le_bytes()));
        let shift = 32 - slots.len().ilog2();
        Ok(Self {
            bytes,
            shape: count as u32 | shift << 16 | u32::from(is_long) << 24,
        })
    }
}

fn padded(word: &[u8]) -> [u8; MOST_BYTES] {
    let mut text = [0; MOST_BYTES];
    text[..word.len()].copy_from_slice(word);
    text
}

/// Pads to 16 bytes, the unit in which the next array is read.
fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(16), 0);
}

/// The hashes of the prefixes that a binary search for the length of words probes, and the first word with each
/// prefix.
fn prefixes(words: &[&[u8]]) -> Vec<(u32, usize)> {
    let mut prefixes = vec![];
    // for each length, the first word with this word's prefix, unless that prefix was added already
    let mut firsts = [None; MOST_BYTES + 1];
    let mut before = &[][..];
    for (index, word) in words.iter().enumerate() {
        let same = before.iter().zip(*word).take_while(|(a, b)| a == b).count();
        firsts[same + 1..].fill(Some(index));
        let mut length = 1;
        for step in [8, 4, 2, 1] {
            if length + step <= word.len() {
                length += step;
                if let Some(first) = firsts[length].take() {
                    prefixes.push((hash(&word[..length]), first));
                }
            }
        }
        before = word;
    }
    prefixes
}

/// Hashes a prefix of 2 bytes or more.
fn hash(prefix: &[u8]) -> u32 {
    let text = padded(prefix);
    let whole = (prefix.len() - 1) / 4;
    let (chunks, _) = text.as_chunks::<4>();
    let mut hash = 0u32;
    for (chunk, factor) in chunks
        .iter()
        .zip([word_hash::FIRST, word_hash::SECOND, word_hash::THIRD])
        .take(whole)
    {
        hash = hash.wrapping_add(u32::from_le_bytes(*chunk).wrapping_mul(factor));
        hash ^= hash >> 16;
    }
    let last = u32::from_le_bytes(chunks[whole]);
    let last = match prefix.len() - whole * 4 {
        4 => last,
        some => last << (32 - some * 8) | some as u32,
    };
    hash.wrapping_add(last.wrapping_mul(word_hash::LAST))
}

/// The two candidate slots of a hash.
fn slots_of(hash: u32, bits: u32) -> [usize; 2] {
    [hash, hash.wrapping_mul(word_hash::OTHER)].map(|hash| (hash >> (32 - bits)) as usize)
}

/// The part of a hash that an entry stores: the bits above the lowest 12.
fn stored_hash(hash: u32) -> u32 {
    (hash ^ hash << 12) & !4095
}

/// Inserts prefixes as entries in one of their two slots each; `None` if there are too few slots.
fn slots(prefixes: &[(u32, usize)], bits: u32) -> Option<Vec<u32>> {
    let mut slots = vec![None; 1 << bits];
    for prefix in prefixes {
        let mut displaced = Some(*prefix);
        let [mut index, _] = slots_of(prefix.0, bits);
        for _ in 0..MOST_MOVES {
            mem::swap(&mut slots[index], &mut displaced);
            let Some((hash, _)) = displaced else { break };
            let [first, second] = slots_of(hash, bits);
            index = if index == first { second } else { first };
        }
        if displaced.is_some() {
            return None;
        }
    }
    let entry = |(hash, word)| stored_hash(hash) | word as u32;
    let entries = slots.into_iter().map(|index| index.map_or(0, entry));
    Some(entries.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_may_be_the_same() {
        // a test of compression has these
        assert_eq!(hash(b"final"), hash(b"f%\xb1\xf0\0"));
    }

    #[test]
    fn every_prefix_has_a_slot() {
        for (step, count) in [(1, 256), (2, 40), (9, 5), (100, 2), (7, 17)] {
            let bytes: Vec<u8> = (0..count).map(|i| (i * step) as u8).collect();
            let mut words: Vec<Vec<u8>> = bytes.iter().map(|byte| vec![*byte]).collect();
            for (i, byte) in bytes.iter().enumerate() {
                let other = bytes[i * 7 % bytes.len()];
                words.push(vec![other, *byte, 0]);
                words.push(vec![*byte, other, *byte, 3, 0, 0, *byte, 1, 2]);
            }
            words.sort();
            words.dedup();
            let sorted: Vec<&[u8]> = words.iter().map(|word| &word[..]).collect();
            let prefixes = prefixes(&sorted);
            let bits = (LEAST_BITS..=MOST_BITS).find(|bits| slots(&prefixes, *bits).is_some());
            let bits = bits.unwrap();
            let slots = slots(&prefixes, bits).unwrap();
            for word in sorted.iter().filter(|word| word.len() > 1) {
                let hash = hash(word);
                let mut candidates = slots_of(hash, bits).into_iter().map(|index| slots[index]);
                let is_it = |entry: u32| {
                    let index = (entry & 4095) as usize;
                    entry & !4095 == stored_hash(hash) && sorted[index].starts_with(word)
                };
                assert!(candidates.any(is_it), "{word:?}");
            }
            assert_eq!(Matcher::of(&words).unwrap().bytes.len() % 16, 0);
        }
        let long = [vec![1; MOST_BYTES + 1]];
        for words in [&long[..], &[vec![]], &vec![vec![0]; MOST_WORDS + 1]] {
            assert!(Matcher::of(words).is_err());
        }
    }
}
