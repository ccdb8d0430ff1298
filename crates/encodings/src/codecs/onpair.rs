//! `onpair`: strings as codes of 2 to 12 bits of frequent substrings of 1 to 16 bytes, which are built from each other.
//! Loses to `dict` where values repeat, and to `fsst` and `plain` where no substring is frequent.
//!
//! After F. Gargiulo and R. Venturini, "OnPair: Short Strings Compression for Fast Random Access",
//! arXiv 2508.02280. Departures: the entries that pay are chosen on strings that they were not
//! learned from, and so is their number; bytes that do not occur have no entry.
//!
//! An **entry** is a byte that occurs, or the concatenation of two earlier entries. A code is an entry's number:
//!
//! ```text
//! 32 bytes  bit b % 8 of byte b / 8 is set if byte b has an entry; these come first, ascending
//! then      the two parts of each other entry, packed as codes are, from the lowest bit on
//! ```
//!
//! Codes have as many bits as the number of the last entry, 2 at least. No code covers bytes of two strings.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hashbrown::{HashMap, HashSet};

use crate::codecs::fsst::SPLIT_ROWS;
use crate::compressor::{Compressor, Splits, Uncompressed};

/// The most entries: two tokens of 12 bits are reserved for decoders that mark the ends of strings.
pub(crate) const MAX_ENTRIES: usize = (1 << 12) - 2;
/// The longest entry, in bytes.
pub(crate) const ENTRY_BYTES: usize = 16;
/// Bytes of the bitmap of bytes that have entries.
pub(crate) const BITMAP_BYTES: usize = 32;

/// Bytes that entries are learned from; as many more are used to choose among them.
const SAMPLE_BYTES: usize = 1 << 18;
/// Strings are sampled in pieces of this many bytes, so that no single one fills the sample.
const PIECE_BYTES: usize = 1 << 10;
/// The number of entries learned before the best are chosen.
const MAX_LEARNED: usize = 1 << 13;
/// The cost of a code in addition to its bits: decoding time.
const CODE_BITS: f64 = 1.0;

/// The two entries that another one concatenates.
pub(crate) type Parts = [u16; 2];

/// Bits per code for this many entries.
pub(crate) fn code_bits(entries: usize) -> usize {
    let last = entries.saturating_sub(1);
    ((usize::BITS - last.leading_zeros()) as usize).max(2)
}

/// Entries learned from a column: 256 are bytes, and the others follow, the most useful first.
pub(crate) struct Learned {
    parts: Vec<Parts>,
    /// The number of entries that pay, including those of bytes that occur.
    entries: usize,
}

impl Learned {
    /// Learns from some values of a column that is `scale` times as large.
    pub fn of(values: &[&[u8]], scale: f64) -> Self {
        let pieces = || values.iter().flat_map(|value| value.chunks(PIECE_BYTES));
        let bytes: usize = values.iter().map(|value| value.len()).sum();
        let mut learner = Learner::default();
        // of a part of the column, every other piece is used to choose entries
        let is_part = scale > 1.0 || bytes > SAMPLE_BYTES;
        let step = match is_part {
            // a sample may have no bytes
            true => 2 * bytes.div_ceil(2 * SAMPLE_BYTES).max(1),
            false => 1,
        };
        pieces()
            .step_by(step)
            .for_each(|piece| learner.learn(piece));
        let mut uses = vec![0u32; learner.entries()];
        let mut counted = 0;
        for piece in pieces().skip(step / 2).step_by(step) {
            counted += piece.len();
            learner.parse(piece, |code| uses[code] += 1);
        }
        let scale = scale * bytes as f64 / counted.max(1) as f64;
        let occurring = occurring(values.iter().copied());
        let singles = occurring.iter().filter(|occurs| **occurs).count();
        learner.choose(&mut uses, singles, scale)
    }

    /// The dictionary for strings in which only these bytes occur.
    pub fn dictionary(&self, occurring: &[bool; 256]) -> Dictionary {
        let singles: Vec<u8> = (0..=u8::MAX)
            .filter(|byte| occurring[usize::from(*byte)])
            .collect();
        let mut numbers = vec![None; 256 + self.parts.len()];
        for (number, byte) in singles.iter().enumerate() {
            numbers[usize::from(*byte)] = Some(number as u16);
        }
        let most = self.entries.saturating_sub(singles.len());
        let mut parts = vec![];
        for (code, [first, second]) in self.parts.iter().enumerate() {
            let numbers_of = (numbers[usize::from(*first)], numbers[usize::from(*second)]);
            if let (Some(first), Some(second)) = numbers_of
                && parts.len() < most
            {
                numbers[256 + code] = Some((singles.len() + parts.len()) as u16);
                parts.push([first, second]);
            }
        }
        Dictionary { singles, parts }
    }
}

/// The bytes that occur.
pub(crate) fn occurring<'a>(values: impl Iterator<Item = &'a [u8]>) -> [bool; 256] {
    let mut occurring = [false; 256];
    for value in values {
        for byte in value {
            occurring[usize::from(*byte)] = true;
        }
    }
    occurring
}

/// Learns entries: a pair seen side by side for the second time becomes one.
struct Learner {
    /// The node after a node and a byte. The first 256 are those after a single byte.
    next: HashMap<(u32, u8), u32>,
    /// The entry that ends in a node.
    entry_at: Vec<Option<u16>>,
    /// The parts of the entries after those of bytes.
    parts: Vec<Parts>,
    seen: HashSet<Parts>,
}

impl Default for Learner {
    fn default() -> Self {
        Self {
            next: HashMap::new(),
            entry_at: (0..256).map(Some).collect(),
            parts: vec![],
            seen: HashSet::new(),
        }
    }
}

impl Learner {
    fn entries(&self) -> usize {
        256 + self.parts.len()
    }

    /// The longest entry that is a prefix of `text`, which is not empty, and its length.
    fn longest(&self, text: &[u8]) -> (u16, usize) {
        let mut node = u32::from(text[0]);
        let mut longest = (u16::from(text[0]), 1);
        for (len, byte) in (2..=ENTRY_BYTES).zip(&text[1..]) {
            match self.next.get(&(node, *byte)) {
                Some(next) => node = *next,
                None => break,
            }
            if let Some(entry) = self.entry_at[node as usize] {
                longest = (entry, len);
            }
        }
        longest
    }

    fn parse(&self, text: &[u8], mut visit: impl FnMut(usize)) {
        let mut rest = text;
        while !rest.is_empty() {
            let (entry, len) = self.longest(rest);
            visit(usize::from(entry));
            rest = &rest[len..];
        }
    }

    fn learn(&mut self, text: &[u8]) {
        // the previous entry and its length
        let mut last: Option<(u16, usize)> = None;
        let mut at = 0;
        while at < text.len() {
            let (entry, len) = self.longest(&text[at..]);
            at += len;
            let merged = last.and_then(|(first, first_len)| {
                let len = first_len + len;
                let entry = self.merge([first, entry], text.get(at - len..at)?)?;
                Some((entry, len))
            });
            last = Some(merged.unwrap_or((entry, len)));
        }
    }

    /// Creates the entry for a pair seen before whose bytes are `text`, if it is new.
    fn merge(&mut self, parts: Parts, text: &[u8]) -> Option<u16> {
        if text.len() > ENTRY_BYTES || self.entries() >= MAX_LEARNED || self.seen.insert(parts) {
            return None;
        }
        let mut node = u32::from(text[0]);
        for byte in &text[1..] {
            let new = self.entry_at.len() as u32;
            node = *self.next.entry((node, *byte)).or_insert(new);
            if node == new {
                self.entry_at.push(None);
            }
        }
        let slot = &mut self.entry_at[node as usize];
        if slot.is_some() {
            return None;
        }
        let entry = (256 + self.parts.len()) as u16;
        *slot = Some(entry);
        self.parts.push(parts);
        Some(entry)
    }

    /// Chooses the entries that pay. `uses` counts them in a sample `scale` times smaller than the column. Among
    /// entries that are not part of another one, the least used is removed first, and its uses become uses of its
    /// parts.
    fn choose(&self, uses: &mut [u32], singles: usize, scale: f64) -> Learned {
        let mut users = vec![0u32; self.entries()];
        let all_parts = || self.parts.iter().flatten().map(|part| usize::from(*part));
        all_parts().for_each(|part| users[part] += 1);
        let unused = (256..self.entries()).filter(|entry| users[*entry] == 0);
        let mut heap: BinaryHeap<_> = unused.map(|entry| Reverse((uses[entry], entry))).collect();
        let mut codes: u64 = uses.iter().map(|uses| u64::from(*uses)).sum();
        let mut dropped = vec![];
        let mut best = (f64::INFINITY, 0);
        loop {
            let pairs = self.parts.len() - dropped.len();
            let entries = pairs + singles;
            let bits = code_bits(entries) as f64;
            let cost = codes as f64 * scale * (bits + CODE_BITS) + 2.0 * bits * pairs as f64;
            if entries <= MAX_ENTRIES && cost < best.0 {
                best = (cost, entries);
            }
            let Some(Reverse((used, entry))) = heap.pop() else {
                break;
            };
            let parts = self.parts[entry - 256];
            dropped.push(entry);
            codes += u64::from(used);
            for part in parts.map(usize::from) {
                uses[part] += used;
                users[part] -= 1;
                if users[part] == 0 && part >= 256 {
                    heap.push(Reverse((uses[part], part)));
                }
            }
        }
        let mut numbers: Vec<u16> = (0..self.entries() as u16).collect();
        for (number, entry) in (256..).zip(dropped.iter().rev()) {
            numbers[*entry] = number;
        }
        let renumbered = dropped.iter().rev();
        let parts =
            renumbered.map(|entry| self.parts[entry - 256].map(|of| numbers[usize::from(of)]));
        Learned {
            parts: parts.collect(),
            entries: best.1,
        }
    }
}

/// The entries of a column.
pub(crate) struct Dictionary {
    singles: Vec<u8>,
    parts: Vec<Parts>,
}

impl Dictionary {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.singles.len() + self.parts.len()
    }

    fn code_bits(&self) -> usize {
        code_bits(self.len())
    }

    /// Serializes the dictionary.
    pub fn export(&self) -> Vec<u8> {
        let mut bitmap = [0; BITMAP_BYTES];
        for byte in &self.singles {
            bitmap[usize::from(byte / 8)] |= 1 << (byte % 8);
        }
        let mut out = bitmap.to_vec();
        let mut packer = Packer::new(self.code_bits());
        self.parts
            .iter()
            .flatten()
            .for_each(|part| packer.push(*part, &mut out));
        packer.finish(&mut out);
        out
    }

    /// The bytes of each entry.
    fn strings(&self) -> Vec<Vec<u8>> {
        let mut strings: Vec<Vec<u8>> = self.singles.iter().map(|byte| vec![*byte]).collect();
        for parts in &self.parts {
            strings.push(parts.map(|part| &strings[usize::from(part)][..]).concat());
        }
        strings
    }

    /// Compresses `values` in splits. Only bytes with entries may occur.
    pub fn compress(&self, values: &[&[u8]], other: Option<&dyn Compressor>) -> Splits {
        let strings = self.strings();
        let of_other = other.and_then(|other| {
            other.compress(&Uncompressed {
                strings: values,
                split_strings: SPLIT_ROWS,
                words: &strings,
                code_bits: self.code_bits(),
                escape: None,
            })
        });
        of_other.unwrap_or_else(|| self.compress_here(values, &Matcher::of(&strings)))
    }

    fn compress_here(&self, values: &[&[u8]], matcher: &Matcher) -> Splits {
        let mut out = Splits::default();
        let padding = [self.singles.first().copied().unwrap_or(0); ENTRY_BYTES];
        let mut walks = [const { Walk::new() }; WALKS];
        for together in values.chunks(SPLIT_ROWS * WALKS) {
            let splits = together.chunks(SPLIT_ROWS);
            for (walk, split) in walks.iter_mut().zip(splits.clone()) {
                walk.start(split, padding);
            }
            while walks
                .iter_mut()
                .fold(false, |goes_on, walk| goes_on | walk.step(matcher))
            {}
            for walk in &walks[..splits.len()] {
                let mut packer = Packer::new(self.code_bits());
                walk.codes
                    .iter()
                    .for_each(|code| packer.push(*code, &mut out.data));
                packer.finish(&mut out.data);
                out.ends.push(out.data.len() as u64);
            }
        }
        out
    }
}

/// Splits that are compressed together, because each waits for memory.
const WALKS: usize = 4;

/// A split being compressed.
struct Walk<'a> {
    /// Its strings, padded so that a match never reads beyond the end.
    text: Vec<u8>,
    /// Offset of the next byte to match.
    at: usize,
    /// Remaining bytes of the current string.
    left: usize,
    /// The strings after it.
    behind: &'a [&'a [u8]],
    codes: Vec<u16>,
}

impl<'a> Walk<'a> {
    const fn new() -> Self {
        Self {
            text: vec![],
            at: 0,
            left: 0,
            behind: &[],
            codes: vec![],
        }
    }

    fn start(&mut self, split: &'a [&'a [u8]], padding: [u8; ENTRY_BYTES]) {
        self.text.clear();
        split
            .iter()
            .for_each(|value| self.text.extend_from_slice(value));
        self.text.extend(padding);
        self.codes.clear();
        (self.at, self.left, self.behind) = (0, 0, split);
    }

    /// Emits one code; `false` at the end.
    #[inline(always)]
    fn step(&mut self, matcher: &Matcher) -> bool {
        while self.left == 0 {
            let Some((next, behind)) = self.behind.split_first() else {
                return false;
            };
            (self.left, self.behind) = (next.len(), behind);
        }
        let Some(text) = self.text.get(self.at..).and_then(|text| text.first_chunk()) else {
            return false;
        };
        let (code, len) = matcher.longest(text, self.left);
        self.codes.push(code);
        self.at += len;
        self.left -= len;
        true
    }
}

/// Packs codes from the lowest bit on.
struct Packer {
    code_bits: usize,
    word: u64,
    bits: usize,
}

impl Packer {
    fn new(code_bits: usize) -> Self {
        Self {
            code_bits,
            word: 0,
            bits: 0,
        }
    }

    fn push(&mut self, code: u16, out: &mut Vec<u8>) {
        self.word |= u64::from(code) << self.bits;
        self.bits += self.code_bits;
        if self.bits >= 32 {
            out.extend_from_slice(&(self.word as u32).to_le_bytes());
            self.word >>= 32;
            self.bits -= 32;
        }
    }

    fn finish(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.word.to_le_bytes()[..self.bits.div_ceil(8)]);
    }
}

/// Finds the longest entry that is a prefix of a text: it is a prefix of the last entry that does not order after the
/// text.
struct Matcher {
    /// The bytes of each entry as a number, padded with zeros. They ascend.
    texts: Vec<u128>,
    /// Per length, the longest entry of at most that length that is a prefix of this one.
    prefixes: Vec<[Match; ENTRY_BYTES]>,
    key: Key,
    /// The number of entries before those of each key.
    starts: Vec<u16>,
}

/// A number of at most 18 bits for the first three bytes of a text, in which only bytes with entries occur. It orders
/// as texts do; some neighbours in the third byte share one.
struct Key {
    /// The number of smaller bytes with entries, per byte.
    ranks: [u32; 256],
    rank_bits: u32,
    /// Bits of the third byte.
    third_bits: u32,
}

impl Key {
    const MOST_BITS: u32 = 18;

    fn of(strings: &[Vec<u8>]) -> Self {
        let occurring = occurring(strings.iter().map(|string| &string[..]));
        let mut ranks = [0; 256];
        let mut rank = 0;
        for (own, occurs) in ranks.iter_mut().zip(occurring) {
            *own = rank;
            rank += u32::from(occurs);
        }
        let rank_bits = u32::BITS - rank.leading_zeros();
        Self {
            ranks,
            rank_bits,
            third_bits: rank_bits.min((Self::MOST_BITS).saturating_sub(2 * rank_bits)),
        }
    }

    fn keys(&self) -> usize {
        1 << (2 * self.rank_bits + self.third_bits)
    }

    #[inline(always)]
    fn get(&self, text: &[u8; ENTRY_BYTES]) -> usize {
        let rank = |at: usize| self.ranks[usize::from(text[at])];
        let third = rank(2) >> (self.rank_bits - self.third_bits);
        ((rank(0) << self.rank_bits | rank(1)) << self.third_bits | third) as usize
    }
}

/// A code, shifted left by 4, plus the length of its entry minus one.
#[derive(Clone, Copy)]
struct Match(u16);

impl Match {
    fn new(code: u16, len: usize) -> Self {
        Self(code << 4 | (len - 1) as u16)
    }

    fn code(self) -> u16 {
        self.0 >> 4
    }

    fn len(self) -> usize {
        usize::from(self.0 % 16) + 1
    }
}

impl Matcher {
    fn of(strings: &[Vec<u8>]) -> Self {
        let mut order: Vec<u16> = (0..strings.len() as u16).collect();
        order.sort_unstable_by_key(|code| &strings[usize::from(*code)]);
        let mut texts = Vec::with_capacity(strings.len());
        let mut prefixes: Vec<[Match; ENTRY_BYTES]> = Vec::with_capacity(strings.len());
        let key = Key::of(strings);
        let mut starts = vec![0; key.keys() + 1];
        let mut before: &[u8] = &[];
        for code in order {
            let string = &strings[usize::from(code)];
            let shared = string.iter().zip(before).take_while(|(a, b)| a == b);
            let mut own = [Match::new(code, string.len()); ENTRY_BYTES];
            if let (Some(last), shared @ 1..) = (prefixes.last(), shared.count()) {
                own[..shared].copy_from_slice(&last[..shared]);
                own[shared..string.len() - 1].fill(last[shared - 1]);
            }
            prefixes.push(own);
            let mut bytes = [0; ENTRY_BYTES];
            bytes[..string.len()].copy_from_slice(string);
            texts.push(u128::from_be_bytes(bytes));
            starts[key.get(&bytes) + 1] += 1;
            before = string;
        }
        let mut sum = 0;
        for start in &mut starts {
            sum += *start;
            *start = sum;
        }
        Self {
            texts,
            prefixes,
            key,
            starts,
        }
    }

    /// The code of the longest entry that is a prefix of the first `left` bytes of `text`, and its length. The first
    /// byte has an entry.
    #[inline(always)]
    fn longest(&self, text: &[u8; ENTRY_BYTES], left: usize) -> (u16, usize) {
        let key = self.key.get(text);
        let text = u128::from_be_bytes(*text);
        let start = usize::from(self.starts[key]);
        let same_key = &self.texts[start..usize::from(self.starts[key + 1])];
        let last = start + same_key.partition_point(|entry| *entry <= text) - 1;
        let shared = ((self.texts[last] ^ text).leading_zeros() / 8) as usize;
        let longest = self.prefixes[last][shared.min(left) - 1];
        (longest.code(), longest.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codecs::layout::EntriesView;
    use crate::codecs::strings::Entries;

    /// Lines of a few words, of random bytes, or of few bytes, and nothing.
    fn lines(kind: u64, count: u64) -> Vec<Vec<u8>> {
        let words = [
            "carefully ",
            "final ",
            "deposits ",
            "sleep. ",
            "\0",
            "\0\0é",
        ];
        let mut state = kind + 1;
        let mut next = move || {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            state >> 33
        };
        let line = |_| -> Vec<u8> {
            let len = next() % 40;
            match kind % 3 {
                0 => (0..len / 4)
                    .flat_map(|_| words[next() as usize % 6].bytes())
                    .collect(),
                1 => (0..len).map(|_| next() as u8).collect(),
                _ => (0..len).map(|_| b"ab\0"[next() as usize % 3]).collect(),
            }
        };
        (0..count).map(line).collect()
    }

    fn slices(lines: &[Vec<u8>]) -> Vec<&[u8]> {
        lines.iter().map(|line| &line[..]).collect()
    }

    /// Entries are learned from the first lines, so that other lines have bytes that these lack.
    #[test]
    fn codes_stand_for_what_was_compressed() {
        for (kind, count, learned, scale) in [
            (0, 2000, 2000, 1.0),
            (1, 700, 20, 35.0),
            (2, 100, 50, 2.0),
            (0, 3, 0, 1.0),
            (0, 3, 0, 2.0),
            (1, 33, 33, 1.0),
        ] {
            let lines = lines(kind, count);
            let values = slices(&lines);
            let entries = Learned::of(&values[..learned], scale);
            let dictionary = entries.dictionary(&occurring(values.iter().copied()));
            let strings = dictionary.strings();
            let parsed = Entries::parse(&dictionary.export(), dictionary.len()).unwrap();
            for (code, string) in strings.iter().enumerate() {
                assert_eq!(parsed.entry(code), string);
                assert!((1..=ENTRY_BYTES).contains(&string.len()));
            }
            let splits = dictionary.compress(&values, None);
            assert_eq!(splits.len(), values.len().div_ceil(SPLIT_ROWS));
            for (codes, lines) in splits.iter().zip(lines.chunks(SPLIT_ROWS)) {
                let lengths: Vec<u64> = lines.iter().map(|line| line.len() as u64).collect();
                parsed.check(codes, &lengths).unwrap();
                let text = lines.concat();
                let mut out = vec![0; text.len() + 100];
                let all = std::slice::from_ref(&(0..usize::MAX));
                let end = parsed.decompress(codes, text.len(), all, &mut out).unwrap();
                assert_eq!(out[..end], text);
            }
        }
    }

    #[test]
    fn matches_are_the_longest() {
        for kind in 0..3 {
            let lines = lines(kind, 500);
            let values = slices(&lines);
            let dictionary = Learned::of(&values, 1.0).dictionary(&[true; 256]);
            let strings = dictionary.strings();
            let matcher = Matcher::of(&strings);
            let text = lines.concat();
            for (at, text) in text.windows(ENTRY_BYTES).enumerate() {
                for left in [1, 1 + at % ENTRY_BYTES, ENTRY_BYTES] {
                    let (code, len) = matcher.longest(text.first_chunk().unwrap(), left);
                    assert_eq!(strings[usize::from(code)], text[..len]);
                    let matching = strings
                        .iter()
                        .filter(|string| text[..left].starts_with(string));
                    assert_eq!(matching.map(|string| string.len()).max(), Some(len));
                }
            }
        }
    }

    /// 16 codes of 4 bits for text that no pair makes smaller; and no more entries than codes can number.
    #[test]
    fn there_are_as_many_entries_as_pay() {
        let digits: Vec<Vec<u8>> = lines(1, 3000)
            .iter()
            .map(|line| {
                line.iter()
                    .map(|byte| b"0123456789abcdef"[usize::from(byte % 16)])
                    .collect()
            })
            .collect();
        let learned = Learned::of(&slices(&digits), 20.0);
        assert!([16, 256].contains(&learned.entries), "{}", learned.entries);
        for kind in 0..3 {
            let lines = lines(kind, 20_000);
            let values = slices(&lines);
            let dictionary = Learned::of(&values, 1e9).dictionary(&occurring(values.into_iter()));
            assert!(dictionary.len() <= MAX_ENTRIES && dictionary.code_bits() <= 12);
        }
    }
}
