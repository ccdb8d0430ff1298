//! What codes of strings stand for, as `kernels/text/compress.cuh` looks it up.

use crate::error::{Error, Result};

/// Bytes of the longest word.
const MOST_BYTES: usize = 16;
/// Codes have 12 bits.
const MOST_WORDS: usize = 1 << 12;
/// The most keys: with as many words of 16 bytes, all fits 99 KiB of shared memory.
const MOST_KEYS: usize = 1 << 12;

/// Words in the order of their bytes.
pub(super) struct Matcher {
    pub bytes: Vec<u8>,
    /// What tells the kernel where what lies in the bytes.
    pub shape: u64,
}

impl Matcher {
    /// Of what codes stand for, each of which is 1 to 16 bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there are more than codes of 12 bits can name, or if one is longer or empty.
    pub fn of(words: &[Vec<u8>]) -> Result<Self> {
        let longest = words.iter().map(|word| word.len()).max().unwrap_or(0);
        if words.len() > MOST_WORDS || longest > MOST_BYTES || words.iter().any(Vec::is_empty) {
            let count = words.len();
            return Err(Error::Unsupported(format!(
                "{count} words of up to {longest} bytes"
            )));
        }
        // with zeros behind them; of those that are then alike, the shorter one comes first
        let padded = words.iter().enumerate().map(|(code, word)| {
            let mut bytes = [0; MOST_BYTES];
            bytes[..word.len()].copy_from_slice(word);
            (u128::from_be_bytes(bytes), word.len(), code)
        });
        let mut sorted: Vec<(u128, usize, usize)> = padded.collect();
        sorted.sort_unstable();
        let is_long = longest > 8;
        let mut bytes = vec![];
        let highs = sorted.iter().map(|(text, ..)| (text >> 64) as u64);
        bytes.extend(highs.flat_map(u64::to_le_bytes));
        if is_long {
            let lows = sorted.iter().map(|(text, ..)| *text as u64);
            bytes.extend(lows.flat_map(u64::to_le_bytes));
        }
        let order: Vec<usize> = sorted.into_iter().map(|(.., code)| code).collect();
        // the words that begin the last one, each a number that is 1 for the first word
        let mut beginnings: Vec<usize> = vec![];
        for (place, code) in order.iter().enumerate() {
            let word = &words[*code];
            let begins = |number: &usize| word.starts_with(&words[order[number - 1]]);
            while beginnings.pop_if(|number| !begins(number)).is_some() {}
            let parent = beginnings.last().copied().unwrap_or(0);
            let info = (word.len() - 1) | code << 4 | parent << 16;
            bytes.extend((info as u32).to_le_bytes());
            beginnings.push(place + 1);
        }
        let keys = Keys::of(words);
        bytes.extend(
            keys.parts
                .iter()
                .flatten()
                .copied()
                .flat_map(u16::to_le_bytes),
        );
        let mut counts = vec![0u32; keys.count];
        words.iter().for_each(|word| counts[keys.key(word)] += 1);
        let mut before = 0;
        for count in counts {
            bytes.extend((before | count << 16).to_le_bytes());
            before += count;
        }
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        Ok(Self {
            bytes,
            shape: words.len() as u64 | u64::from(is_long) << 32,
        })
    }
}

/// Numbers of the first three bytes of a text: none is below that of a text before it.
struct Keys {
    /// What each byte adds as the first, the second and the third one.
    parts: [[u16; 256]; 3],
    count: usize,
}

impl Keys {
    fn of(words: &[Vec<u8>]) -> Self {
        let mut occurs = [false; 256];
        let bytes = words.iter().flatten();
        bytes.for_each(|byte| occurs[usize::from(*byte)] = true);
        // how many of the bytes that occur are below each
        let mut ranks = [0; 256];
        for byte in 1..256 {
            ranks[byte] = ranks[byte - 1] + usize::from(occurs[byte - 1]);
        }
        let ranks_of = ranks[255] + 1;
        // of the second and the third byte's ranks, so many are told apart
        let second = ranks_of.min(MOST_KEYS / ranks_of);
        let third = match second == ranks_of {
            true => ranks_of.min(MOST_KEYS / (ranks_of * ranks_of)),
            false => 1,
        };
        let mut parts = [[0; 256]; 3];
        for (byte, rank) in ranks.into_iter().enumerate() {
            parts[0][byte] = (rank * second * third) as u16;
            parts[1][byte] = (rank * second / ranks_of * third) as u16;
            parts[2][byte] = (rank * third / ranks_of) as u16;
        }
        Self {
            parts,
            count: ranks_of * second * third,
        }
    }

    fn key(&self, word: &[u8]) -> usize {
        let bytes = word.iter().copied().chain([0, 0]);
        let parts = self.parts.iter().zip(bytes);
        parts
            .map(|(part, byte)| usize::from(part[usize::from(byte)]))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_order() {
        for (step, count) in [(1, 256), (2, 40), (9, 5), (100, 2), (7, 17)] {
            let bytes: Vec<u8> = (0..count).map(|i| (i * step) as u8).collect();
            let mut words: Vec<Vec<u8>> = bytes.iter().map(|byte| vec![*byte]).collect();
            for (i, byte) in bytes.iter().enumerate() {
                let other = bytes[i * 7 % bytes.len()];
                words.push(vec![other, *byte]);
                words.push(vec![*byte, other, *byte, 3]);
            }
            words.sort();
            let keys = Keys::of(&words);
            let of_words: Vec<usize> = words.iter().map(|word| keys.key(word)).collect();
            assert!(of_words.is_sorted() && keys.count <= MOST_KEYS);
            assert!(of_words.iter().all(|key| *key < keys.count));
            let matcher = Matcher::of(&words).unwrap();
            assert_eq!(matcher.bytes.len() % 8, 0);
        }
        let long = [vec![1; MOST_BYTES + 1]];
        for words in [&long[..], &[vec![]], &vec![vec![0]; MOST_WORDS + 1]] {
            assert!(Matcher::of(words).is_err());
        }
    }
}
