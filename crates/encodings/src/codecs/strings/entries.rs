//! Decompression by the entries of `onpair`.

use std::ops::Range;

use crate::codecs::layout::EntriesView;
use crate::codecs::onpair::{BITMAP_BYTES, ENTRY_BYTES, MAX_ENTRIES, Parts, code_bits};
use crate::error::{Result, corrupt, ensure};

const PART: &str = "onpair";
/// Codes decompressed together: they lie within 8 bytes from the start of the first.
const BLOCK: usize = 4;
/// Bytes that a block may write.
const WINDOW: usize = (BLOCK + 1) * ENTRY_BYTES;

/// The bytes of a code. Invariant: `length` is 1 to 16.
#[derive(Clone, Copy, Debug)]
struct Entry {
    bytes: [u8; ENTRY_BYTES],
    length: u32,
}

/// The entries of all codes.
#[derive(Clone, Debug)]
pub(crate) struct Entries {
    entries: Vec<Entry>,
    /// The two earlier entries that each entry after those of bytes concatenates.
    parts: Vec<Parts>,
    code_bits: usize,
}

impl Entries {
    /// Parses `count` entries from their parts.
    pub fn parse(bytes: &[u8], count: usize) -> Result<Self> {
        ensure(count <= MAX_ENTRIES, PART, || {
            format!("{count} entries, at most {MAX_ENTRIES}")
        })?;
        let (bitmap, parts) = bytes
            .split_first_chunk::<BITMAP_BYTES>()
            .ok_or_else(|| corrupt(PART, "a dictionary that ends within its bytes"))?;
        let mut entries = Vec::with_capacity(count);
        for byte in 0..=u8::MAX {
            if bitmap[usize::from(byte / 8)] >> (byte % 8) & 1 == 1 {
                let mut bytes = [0; ENTRY_BYTES];
                bytes[0] = byte;
                entries.push(Entry { bytes, length: 1 });
            }
        }
        let (singles, code_bits) = (entries.len(), code_bits(count));
        let pairs = count.checked_sub(singles);
        let pairs = pairs.ok_or_else(|| {
            corrupt(
                PART,
                format!("{count} entries, of which {singles} are bytes"),
            )
        })?;
        let actual = parts.len();
        ensure(actual == (2 * pairs * code_bits).div_ceil(8), PART, || {
            format!("{actual} bytes for {pairs} pairs of {code_bits} bits each")
        })?;
        let mut pairs_of = Vec::with_capacity(pairs);
        for pair in 0..pairs {
            let codes =
                [2 * pair, 2 * pair + 1].map(|at| code_at(parts, at * code_bits, code_bits));
            let [first, second] = codes.map(|code| entries.get(code).copied());
            let (Some(mut first), Some(second)) = (first, second) else {
                let reason = format!("pair {pair} is made of an entry behind it");
                return Err(corrupt(PART, reason));
            };
            let (at, length) = (first.length as usize, first.length + second.length);
            ensure(length as usize <= ENTRY_BYTES, PART, || {
                format!("an entry of {length} bytes, at most {ENTRY_BYTES}")
            })?;
            first.bytes[at..].copy_from_slice(&second.bytes[..ENTRY_BYTES - at]);
            entries.push(Entry { length, ..first });
            pairs_of.push(codes.map(|code| code as u16));
        }
        Ok(Self {
            entries,
            parts: pairs_of,
            code_bits,
        })
    }

    /// Bits per code.
    pub fn code_bits(&self) -> usize {
        self.code_bits
    }

    /// The number of bytes of each code.
    pub fn lengths(&self) -> impl Iterator<Item = u8> {
        self.entries.iter().map(|entry| entry.length as u8)
    }

    /// The bytes that have codes, in the order of codes.
    pub fn singles(&self) -> impl Iterator<Item = u8> {
        let singles = self
            .entries
            .iter()
            .zip(self.parts.len()..self.entries.len());
        singles.map(|(entry, _)| entry.bytes[0])
    }

    /// The two earlier codes that each later code stands for.
    pub fn parts(&self) -> &[Parts] {
        &self.parts
    }

    /// Upper bound on the bytes per byte of codes.
    pub fn max_growth(&self) -> usize {
        (8 * ENTRY_BYTES).div_ceil(self.code_bits)
    }

    /// Decompresses the byte `ranges`, which ascend, to the same ranges of `out`; bytes
    /// between them are arbitrary. All codes together yield `bytes` bytes, and `out` is longer by a
    /// block's bytes. Returns the end of the decompressed bytes, which differs if there are fewer.
    /// Codes without an entry are corruption, and so are bytes after the last code.
    pub fn decompress(
        &self,
        codes: &[u8],
        bytes: usize,
        ranges: &[Range<usize>],
        out: &mut [u8],
    ) -> Result<usize> {
        let (mut at, mut bit) = (0, 0);
        for range in ranges {
            while at < range.end.min(bytes) && bit + self.code_bits <= 8 * codes.len() {
                if let Some(block) = codes.get(bit / 8..).and_then(|codes| codes.first_chunk()) {
                    let block = u64::from_le_bytes(*block) >> (bit % 8);
                    let length = match at < range.start {
                        true => self
                            .measure(block)
                            .filter(|length| at + length <= range.start),
                        false => None,
                    };
                    let out = out.get_mut(at..).unwrap_or_default();
                    let length = length.or_else(|| self.write(block, out));
                    if let Some(length) = length.filter(|length| at + length <= bytes) {
                        at += length;
                        bit += BLOCK * self.code_bits;
                        continue;
                    }
                }
                at += self.write_one(code_at(codes, bit, self.code_bits), at, out)?;
                bit += self.code_bits;
            }
        }
        let unread = codes.len() - bit.div_ceil(8);
        ensure(at < bytes || unread == 0, PART, || {
            format!("{unread} bytes behind the codes of {bytes}")
        })?;
        Ok(at)
    }

    /// Checks that strings of `lengths` have codes of their own.
    pub fn check(&self, codes: &[u8], lengths: &[u64]) -> Result<()> {
        let mut bit = 0;
        for length in lengths {
            let mut left = *length;
            while left > 0 {
                let is_there = bit + self.code_bits <= 8 * codes.len();
                let code = code_at(codes, bit, self.code_bits);
                let entry = self.entries.get(code).filter(|_| is_there);
                let rest = entry.and_then(|entry| left.checked_sub(u64::from(entry.length)));
                left = rest.ok_or_else(|| {
                    corrupt(PART, format!("no codes for a string of {length} bytes"))
                })?;
                bit += self.code_bits;
            }
        }
        let unread = codes.len() - bit.div_ceil(8);
        ensure(unread == 0, PART, || {
            format!("{unread} bytes behind the codes of a split")
        })
    }

    /// The codes of a block, which starts at the lowest bit.
    #[inline(always)]
    fn codes(&self, block: u64) -> [usize; BLOCK] {
        let mask = (1 << self.code_bits) - 1;
        let mut rest = block;
        [(); BLOCK].map(|()| {
            let code = rest & mask;
            rest >>= self.code_bits;
            code as usize
        })
    }

    /// The decompressed length of a block; `None` if one of its codes has no entry.
    #[inline(always)]
    fn measure(&self, block: u64) -> Option<usize> {
        let mut sum = 0;
        for code in self.codes(block) {
            sum += self.entries.get(code)?.length as usize;
        }
        Some(sum)
    }

    /// Writes a block to the start of `out`. As [`Entries::measure`], and `None` if there are fewer
    /// bytes than a block may take.
    #[inline(always)]
    fn write(&self, block: u64, out: &mut [u8]) -> Option<usize> {
        let out = out.first_chunk_mut::<WINDOW>()?;
        let mut at = 0;
        for code in self.codes(block) {
            let entry = self.entries.get(code)?;
            // at most 16 bytes for each of 3 codes lie before: the remainder changes nothing, and
            // shows that the slice is in bounds
            let at_most = at % (ENTRY_BYTES * BLOCK);
            out[at_most..at_most + ENTRY_BYTES].copy_from_slice(&entry.bytes);
            at += entry.length as usize;
        }
        Some(at)
    }

    fn write_one(&self, code: usize, at: usize, out: &mut [u8]) -> Result<usize> {
        let entry = self.entries.get(code).ok_or_else(|| {
            let entries = self.entries.len();
            corrupt(PART, format!("code {code} of {entries} entries"))
        })?;
        out.get_mut(at..at + ENTRY_BYTES)
            .ok_or_else(|| corrupt(PART, "more bytes than the lengths say"))?
            .copy_from_slice(&entry.bytes);
        Ok(entry.length as usize)
    }
}

impl EntriesView for Entries {
    fn count(&self) -> usize {
        self.entries.len()
    }

    fn code_bits(&self) -> usize {
        self.code_bits
    }

    fn entry(&self, code: usize) -> &[u8] {
        let entry = self.entries.get(code);
        entry.map_or(&[], |entry| &entry.bytes[..entry.length as usize])
    }
}

/// The code that starts at a bit; zeros beyond the end.
#[inline]
pub(super) fn code_at(codes: &[u8], bit: usize, code_bits: usize) -> usize {
    let bytes = codes.get(bit / 8..).unwrap_or_default();
    let word = match bytes.first_chunk::<4>() {
        Some(bytes) => u32::from_le_bytes(*bytes),
        None => {
            let mut word = [0; 4];
            word[..bytes.len()].copy_from_slice(bytes);
            u32::from_le_bytes(word)
        }
    };
    (word >> (bit % 8)) as usize & ((1 << code_bits) - 1)
}

#[cfg(test)]
mod tests {
    use super::super::symbols::ALL;
    use super::*;

    /// The two bytes, and pairs.
    fn dictionary(pairs: &[[u8; 2]]) -> Vec<u8> {
        let mut out = vec![0; BITMAP_BYTES];
        out[12] = 0b110; // a and b
        let bits = code_bits(2 + pairs.len());
        let mut word = 0u64;
        for (i, part) in pairs.iter().flatten().enumerate() {
            word |= u64::from(*part) << (i * bits);
        }
        out.extend(&word.to_le_bytes()[..(2 * bits * pairs.len()).div_ceil(8)]);
        out
    }

    fn entries(pairs: &[[u8; 2]]) -> Result<Entries> {
        Entries::parse(&dictionary(pairs), 2 + pairs.len())
    }

    fn is_corrupt<T: std::fmt::Debug>(result: Result<T>, reason: &str) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }

    #[test]
    fn entries_concatenate_earlier_ones() {
        let parsed = entries(&[[0, 1], [2, 2], [3, 3], [4, 4]]).unwrap();
        let strings: Vec<&[u8]> = (0..7).map(|code| parsed.entry(code)).collect();
        let long = b"abababababababab";
        assert_eq!(
            strings,
            [b"a", b"b", &long[..2], &long[..4], &long[..8], long, b""]
        );
        is_corrupt(entries(&[[0, 2]]), "an entry behind it");
        is_corrupt(
            entries(&[[0, 1], [2, 2], [3, 3], [4, 4], [5, 0]]),
            "an entry of 17 bytes",
        );
        let bytes = dictionary(&[[0, 1], [2, 2]]);
        is_corrupt(Entries::parse(&bytes[..31], 4), "ends within its bytes");
        is_corrupt(Entries::parse(&bytes[..32], 4), "0 bytes for 2 pairs");
        is_corrupt(Entries::parse(&bytes, 1), "1 entries, of which 2 are bytes");
        is_corrupt(Entries::parse(&bytes, 4095), "4095 entries, at most 4094");
    }

    #[test]
    fn damaged_codes_are_errors_or_bytes() {
        // codes of 3 bits; 6 and 7 have no entries
        let parsed = entries(&[[0, 1], [2, 2], [3, 3], [4, 4]]).unwrap();
        let codes: Vec<u8> = (0..4000u32)
            .map(|i| (i.wrapping_mul(2654435761) >> 13) as u8)
            .collect();
        for len in 0..100 {
            let codes = &codes[len * 7..len * 8];
            for bytes in [0, 1, 17, len * 3, len * 40] {
                for range in [0..usize::MAX, 5..9, bytes / 2..bytes, bytes..usize::MAX] {
                    let mut out = vec![0; bytes + WINDOW];
                    if let Ok(end) = parsed.decompress(codes, bytes, &[range], &mut out) {
                        assert!(end < bytes + ENTRY_BYTES);
                    }
                }
                let _ = parsed.check(codes, &[bytes as u64]);
            }
        }
        // ab, abab, a, a, a
        let codes = [0b00_011_010, 0];
        for lengths in [&[2, 4, 1][..], &[6, 1], &[2, 5, 0], &[0, 7, 1, 1], &[9]] {
            parsed.check(&codes, lengths).unwrap();
        }
        for lengths in [&[1, 5, 1][..], &[4, 4], &[7, 20]] {
            is_corrupt(parsed.check(&codes, lengths), "no codes for a string");
        }
        is_corrupt(parsed.check(&codes, &[1, 1]), "no codes");
        is_corrupt(parsed.check(&codes, &[]), "2 bytes behind the codes");
        is_corrupt(parsed.check(&[0b111], &[1]), "no codes");
        let mut out = [0; 200];
        is_corrupt(
            parsed.decompress(&codes, 2, ALL, &mut out),
            "1 bytes behind",
        );
        is_corrupt(
            parsed.decompress(&[0b111], 1, ALL, &mut out),
            "code 7 of 6 entries",
        );
    }
}
