//! What codes of strings stand for, as `kernels/text/compress.cuh` looks it up.

use crate::error::{Error, Result};

/// Bytes of the longest word.
const MOST_BYTES: usize = 16;
/// Codes have 12 bits.
const MOST_WORDS: usize = 1 << 12;
/// Bits of the ranks of two bytes together.
const PAIR_BITS: u32 = 13;

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
        let pairs = Pairs::of(words);
        bytes.extend(pairs.ranks);
        let mut starts = vec![0u16; (1 << pairs.bits()) + 1];
        for code in order {
            starts[pairs.key(&words[code]) + 1] += 1;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        bytes.extend(starts.into_iter().flat_map(u16::to_le_bytes));
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        let shape = words.len() as u64
            | u64::from(pairs.second_bits) << 16
            | u64::from(pairs.dropped_bits) << 24
            | u64::from(is_long) << 32;
        Ok(Self { bytes, shape })
    }
}

/// Numbers of the first two bytes of a text: the more, the further behind it is.
struct Pairs {
    /// Of each byte, how many bytes of words are below it.
    ranks: [u8; 256],
    rank_bits: u32,
    second_bits: u32,
    /// Of a second byte's rank.
    dropped_bits: u32,
}

impl Pairs {
    fn of(words: &[Vec<u8>]) -> Self {
        let mut occurs = [false; 256];
        words
            .iter()
            .flatten()
            .for_each(|byte| occurs[usize::from(*byte)] = true);
        let mut ranks = [0; 256];
        let mut rank = 0u8;
        for byte in 1..256 {
            rank += u8::from(occurs[byte - 1]);
            ranks[byte] = rank;
        }
        let rank_bits = u8::BITS - rank.leading_zeros();
        let second_bits = rank_bits.min(PAIR_BITS - rank_bits);
        Self {
            ranks,
            rank_bits,
            second_bits,
            dropped_bits: rank_bits - second_bits,
        }
    }

    fn bits(&self) -> u32 {
        self.rank_bits + self.second_bits
    }

    fn key(&self, word: &[u8]) -> usize {
        let rank = |at: usize| usize::from(self.ranks[usize::from(*word.get(at).unwrap_or(&0))]);
        rank(0) << self.second_bits | rank(1) >> self.dropped_bits
    }
}
