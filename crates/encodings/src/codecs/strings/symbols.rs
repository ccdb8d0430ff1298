//! Decompression by the symbol tables of `fsst`: one, or two applied in sequence.

use std::ops::Range;

use crate::codecs::fsst::{ESCAPE, HEADER_BYTES, VERSION};
use crate::error::{Error, Result, corrupt, ensure};

const PART: &str = "fsst";
/// Codes decompressed together.
const BLOCK: usize = 8;
/// Bytes that a block may write.
const WINDOW: usize = 9 * BLOCK;
/// The longest symbol of a pair of tables.
const PAIR_BYTES: usize = 64;
/// Bytes that a block of such codes may write.
const PAIR_WINDOW: usize = 9 * PAIR_BYTES;
/// Bytes that decompression may write after its result: those of a block, so that the last one needs no special case.
pub(crate) const SLACK: usize = PAIR_WINDOW;
/// The order of lengths in which symbols are stored.
const LENGTHS: [usize; 8] = [2, 3, 4, 5, 6, 7, 8, 1];

/// Symbol tables for decompression.
#[derive(Clone, Debug)]
pub(crate) enum Tables {
    One(SymbolTable),
    Two(Box<SymbolTablePair>),
}

impl Tables {
    /// Upper bound on the bytes per byte of codes.
    pub fn max_growth(&self) -> usize {
        match self {
            Self::One(_) => 8,
            Self::Two(_) => PAIR_BYTES,
        }
    }

    /// The number of tables applied.
    pub fn count(&self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Two(_) => 2,
        }
    }

    /// The symbol of a code in the first or the second applied table; empty if it has none.
    pub fn symbol(&self, table: usize, code: u8) -> &[u8] {
        let table = match (self, table) {
            (Self::One(table), 0) => table,
            (Self::Two(pair), 0) => &pair.first,
            (Self::Two(pair), 1) => &pair.second,
            _ => return &[],
        };
        table.symbol(usize::from(code))
    }

    /// As [`Decompress::decompress`].
    pub fn decompress(
        &self,
        codes: &[u8],
        byte_ranges: &[Range<usize>],
        out: &mut [u8],
    ) -> Result<usize> {
        match self {
            Self::One(table) => table.decompress(codes, byte_ranges, out),
            Self::Two(pair) => pair.decompress(codes, byte_ranges, out),
        }
    }
}

/// The range of all bytes.
pub(crate) const ALL: &[Range<usize>] = std::slice::from_ref(&(0..usize::MAX));

/// Decompression, eight codes at a time if they are symbols.
pub(crate) trait Decompress {
    /// The decompressed length of a block; `None` if one of its codes is not a symbol.
    fn measure(&self, block: [u8; BLOCK]) -> Option<usize>;

    /// Writes a block to the start of `out`. As [`Decompress::measure`], and `None` if there are fewer bytes than a
    /// block may take.
    fn write(&self, block: [u8; BLOCK], out: &mut [u8]) -> Option<usize>;

    /// Writes at least one code, symbol or not, at `at` of `out`; returns the end of its bytes, and the remaining
    /// codes.
    fn write_codes<'a>(
        &self,
        codes: &'a [u8],
        at: usize,
        out: &mut [u8],
    ) -> Result<(usize, &'a [u8])>;

    /// Decompresses the `byte_ranges`, which ascend, to the same ranges of `out`; bytes between them are
    /// arbitrary. Returns the end of the decompressed bytes. Symbols are written as a whole, so `out` must be [`SLACK`]
    /// bytes longer than all decompressed bytes. Bytes that do not fit, an unknown code and a truncated escape are
    /// corruption.
    fn decompress(
        &self,
        codes: &[u8],
        byte_ranges: &[Range<usize>],
        out: &mut [u8],
    ) -> Result<usize> {
        let (mut at, mut rest) = (0, codes);
        for range in byte_ranges {
            while !rest.is_empty() && at < range.end {
                if let Some((block, behind)) = rest.split_first_chunk() {
                    if at < range.start
                        && let Some(length) = self.measure(*block)
                        && at + length <= range.start
                    {
                        (at, rest) = (at + length, behind);
                        continue;
                    }
                    let out = out.get_mut(at..).unwrap_or_default();
                    if let Some(length) = self.write(*block, out) {
                        (at, rest) = (at + length, behind);
                        continue;
                    }
                }
                (at, rest) = self.write_codes(rest, at, out)?;
            }
        }
        Ok(at)
    }
}

/// The length of codes without a symbol: so large that the sum of a block's lengths shows it.
const ABSENT: u32 = 1 << 16;

type Lengths = Box<[u32; 256]>;

/// The decompressed length of a block; `None` if one of its codes has no symbol.
#[inline(always)]
fn measure(block: [u8; BLOCK], lengths: &[u32; 256]) -> Option<usize> {
    let mut sum = 0;
    for code in block {
        sum += lengths[usize::from(code)];
    }
    (sum < ABSENT).then_some(sum as usize)
}

/// A parsed table for decompression. Invariant: lengths are 1 to 8, or [`ABSENT`] for unused codes.
#[derive(Clone, Debug)]
pub(crate) struct SymbolTable {
    symbols: Box<[[u8; 8]; 256]>,
    lengths: Lengths,
}

impl SymbolTable {
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        let (header, mut rest) = bytes
            .split_first_chunk::<HEADER_BYTES>()
            .ok_or_else(|| corrupt(PART, "a symbol table without a header"))?;
        let [
            v0,
            v1,
            v2,
            v3,
            v4,
            v5,
            v6,
            v7,
            zero_terminated,
            histogram @ ..,
        ] = *header;
        let word = u64::from_le_bytes([v0, v1, v2, v3, v4, v5, v6, v7]);
        let count = (word >> 8 & 0xFF) as usize;
        let known = word >> 32 == VERSION && word & 0xFF == 1 && zero_terminated == 0;
        ensure(known, PART, || {
            format!("a symbol table header of {word:#018x}")
        })?;
        let total: usize = histogram.iter().map(|n| usize::from(*n)).sum();
        ensure(total == count, PART, || {
            format!("{total} symbols of all lengths, {count} in all")
        })?;

        let mut table = Self {
            symbols: Box::new([[0; 8]; 256]),
            lengths: Box::new([ABSENT; 256]),
        };
        let mut code = 0;
        for length in LENGTHS {
            for _ in 0..histogram[length - 1] {
                let (symbol, behind) = rest
                    .split_at_checked(length)
                    .ok_or_else(|| corrupt(PART, "a symbol table that ends within a symbol"))?;
                table.symbols[code][..length].copy_from_slice(symbol);
                table.lengths[code] = length as u32;
                rest = behind;
                code += 1;
            }
        }
        ensure(rest.is_empty(), PART, || {
            format!("{} bytes behind the symbols", rest.len())
        })?;
        Ok(table)
    }

    /// The symbol of a code; empty if it has none.
    fn symbol(&self, code: usize) -> &[u8] {
        match (self.symbols.get(code), self.lengths.get(code)) {
            (Some(symbol), Some(length)) => symbol.get(..*length as usize).unwrap_or_default(),
            _ => &[],
        }
    }
}

impl Decompress for SymbolTable {
    #[inline(always)]
    fn measure(&self, block: [u8; BLOCK]) -> Option<usize> {
        measure(block, &self.lengths)
    }

    #[inline(always)]
    fn write(&self, block: [u8; BLOCK], out: &mut [u8]) -> Option<usize> {
        let out = out.first_chunk_mut::<WINDOW>()?;
        let mut at = 0;
        for code in block {
            // at most 8 bytes for each of 7 codes lie before: the remainder changes nothing, and shows that the slice
            // is in bounds
            let at_most = at % (8 * BLOCK);
            out[at_most..at_most + 8].copy_from_slice(&self.symbols[usize::from(code)]);
            at += self.lengths[usize::from(code)] as usize;
        }
        (at < ABSENT as usize).then_some(at)
    }

    /// Writes up to and including the first escape.
    fn write_codes<'a>(
        &self,
        codes: &'a [u8],
        mut at: usize,
        out: &mut [u8],
    ) -> Result<(usize, &'a [u8])> {
        let mut rest = codes;
        while let Some((code, behind)) = rest.split_first() {
            rest = behind;
            let slot = out.get_mut(at..).and_then(|out| out.first_chunk_mut());
            let slot: &mut [u8; 8] = slot.ok_or_else(too_long)?;
            if *code == ESCAPE {
                let (literal, behind) = rest.split_first().ok_or_else(cut)?;
                slot[0] = *literal;
                return Ok((at + 1, behind));
            }
            let length = self.lengths[usize::from(*code)];
            ensure(length < ABSENT, PART, || {
                format!("code {code} has no symbol")
            })?;
            *slot = self.symbols[usize::from(*code)];
            at += length as usize;
        }
        Ok((at, rest))
    }
}

/// Two symbol tables combined: the bytes of a code of the second one after both are undone, so that strings are
/// decompressed in one step. Invariant: lengths are 1 to 64, or [`ABSENT`] for codes that are unused or have no bytes
/// of their own (they end within an escape).
#[derive(Clone, Debug)]
pub(crate) struct SymbolTablePair {
    first: SymbolTable,
    second: SymbolTable,
    symbols: Box<[[u8; PAIR_BYTES]; 256]>,
    lengths: Lengths,
}

impl SymbolTablePair {
    /// Combines the table that was applied `first` with the one applied `second`.
    pub fn new(first: SymbolTable, second: SymbolTable) -> Self {
        let mut symbols = Box::new([[0; PAIR_BYTES]; 256]);
        let mut lengths = Box::new([ABSENT; 256]);
        for (code, (symbol, length)) in symbols.iter_mut().zip(lengths.iter_mut()).enumerate() {
            let mut out = [0; PAIR_BYTES + SLACK];
            let codes = second.symbol(code);
            if !codes.is_empty()
                && let Ok(bytes) = first.decompress(codes, ALL, &mut out)
            {
                symbol.copy_from_slice(&out[..PAIR_BYTES]);
                *length = bytes as u32;
            }
        }
        Self {
            first,
            second,
            symbols,
            lengths,
        }
    }

    /// Writes one code in two steps, and further ones while they end within an escape.
    fn write_special<'a>(
        &self,
        codes: &'a [u8],
        mut at: usize,
        out: &mut [u8],
    ) -> Result<(usize, &'a [u8])> {
        let (mut rest, mut escaped) = (codes, false);
        loop {
            let (code, mut behind) = rest.split_first().ok_or_else(cut)?;
            let mut inner = self.second.symbol(usize::from(*code));
            if *code == ESCAPE {
                (inner, behind) = behind.split_at_checked(1).ok_or_else(cut)?;
            }
            ensure(!inner.is_empty(), PART, || {
                format!("code {code} has no symbol")
            })?;
            rest = behind;
            for code in inner {
                let string = match (escaped, *code) {
                    (true, _) => std::slice::from_ref(code),
                    (false, ESCAPE) => &[],
                    (false, code) => self.first.symbol(usize::from(code)),
                };
                let is_escape = !escaped && *code == ESCAPE;
                ensure(is_escape || !string.is_empty(), PART, || {
                    format!("code {code} has no symbol")
                })?;
                escaped = is_escape;
                out.get_mut(at..at + string.len())
                    .ok_or_else(too_long)?
                    .copy_from_slice(string);
                at += string.len();
            }
            if !escaped {
                return Ok((at, rest));
            }
        }
    }
}

impl Decompress for SymbolTablePair {
    #[inline(always)]
    fn measure(&self, block: [u8; BLOCK]) -> Option<usize> {
        measure(block, &self.lengths)
    }

    #[inline(always)]
    fn write(&self, block: [u8; BLOCK], out: &mut [u8]) -> Option<usize> {
        /// Most symbols are at most this long.
        const SHORT: usize = 16;
        let out = out.first_chunk_mut::<PAIR_WINDOW>()?;
        let mut at = 0;
        for code in block.map(usize::from) {
            let (symbol, length) = (&self.symbols[code], self.lengths[code] as usize);
            let at_most = at % (PAIR_BYTES * BLOCK);
            out[at_most..at_most + SHORT].copy_from_slice(&symbol[..SHORT]);
            if length > SHORT {
                out[at_most..at_most + PAIR_BYTES].copy_from_slice(symbol);
            }
            at += length;
        }
        (at < ABSENT as usize).then_some(at)
    }

    /// Writes up to and including the first code without a symbol.
    fn write_codes<'a>(
        &self,
        codes: &'a [u8],
        mut at: usize,
        out: &mut [u8],
    ) -> Result<(usize, &'a [u8])> {
        let mut rest = codes;
        while let Some((code, behind)) = rest.split_first() {
            let length = self.lengths[usize::from(*code)];
            if length == ABSENT {
                return self.write_special(rest, at, out);
            }
            rest = behind;
            out.get_mut(at..at + PAIR_BYTES)
                .ok_or_else(too_long)?
                .copy_from_slice(&self.symbols[usize::from(*code)]);
            at += length as usize;
        }
        Ok((at, rest))
    }
}

fn cut() -> Error {
    corrupt(PART, "an escape without a byte")
}

fn too_long() -> Error {
    corrupt(PART, "more bytes than the lengths say")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codecs::fsst::Table;
    use crate::compressor::Splits;

    /// Words, and occasionally a byte without a symbol.
    fn text(seed: u64, rare: u64) -> Vec<u8> {
        let words = [
            "carefully ",
            "final ",
            "deposits ",
            "sleep. ",
            "furiously ",
            "even ",
        ];
        let mut state = seed;
        let mut out = vec![];
        while out.len() < 2000 {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            let random = state >> 33;
            out.extend_from_slice(words[random as usize % words.len()].as_bytes());
            if (random / 8).is_multiple_of(rare) {
                out.extend(
                    [b'!' + (random % 90) as u8, 255, 0]
                        .iter()
                        .take(random as usize % 4),
                );
            }
        }
        out
    }

    /// Tables, the first trained on a prefix alone, so that the rest has bytes without a symbol; and the texts
    /// compressed by both.
    fn compressed(texts: &[Vec<u8>]) -> (SymbolTablePair, Splits) {
        let texts: Vec<&[u8]> = texts.iter().map(|text| &text[..]).collect();
        let first = Table::train(&[&texts[0][..200]]);
        let once = first.compress(&texts, 1, None);
        let once: Vec<&[u8]> = once.iter().collect();
        let second = Table::train(&once);
        let parse = |table: &Table| SymbolTable::parse(&table.export()).unwrap();
        let pair = SymbolTablePair::new(parse(&first), parse(&second));
        (pair, second.compress(&once, 1, None))
    }

    #[test]
    fn a_pair_undoes_both_tables() {
        for rare in [2, 20, 1000] {
            let texts: Vec<Vec<u8>> = (0..100).map(|seed| text(seed, rare)).collect();
            let (pair, twice) = compressed(&texts);
            let specials = pair.lengths.iter().zip(pair.second.lengths.iter());
            let specials = specials.filter(|(pair, second)| **pair == ABSENT && **second < ABSENT);
            assert!(specials.count() > 0, "no code ends within an escape");
            for (text, codes) in texts.iter().zip(twice.iter()) {
                let mut out = vec![0; text.len() + SLACK];
                let end = pair.decompress(codes, ALL, &mut out).unwrap();
                assert_eq!(&out[..end], text);
                for step in [40, 300, 5000] {
                    let ranges: Vec<_> = (7..text.len() - 20)
                        .step_by(step)
                        .map(|i| i..i + 20)
                        .collect();
                    out.fill(0);
                    let end = pair.decompress(codes, &ranges, &mut out).unwrap();
                    assert!(end <= text.len() && ranges.last().is_some_and(|last| end >= last.end));
                    for range in ranges {
                        assert_eq!(out[range.clone()], text[range]);
                    }
                }
                let cut = &codes[..codes.len() - 1];
                let short = pair.decompress(cut, ALL, &mut out);
                assert!(short.is_err() || short.is_ok_and(|end| end < text.len()));
            }
        }
    }

    #[test]
    fn damaged_codes_are_errors_or_bytes() {
        let texts: Vec<Vec<u8>> = (0..100).map(|seed| text(seed, 5)).collect();
        let (pair, _) = compressed(&texts);
        let codes: Vec<u8> = (0..4000u32)
            .map(|i| (i.wrapping_mul(2654435761) >> 13) as u8)
            .collect();
        let mut out = vec![0; 3000];
        assert!(pair.decompress(&codes, ALL, &mut out).is_err());
        for len in 0..200 {
            let codes = &codes[len * 7..len * 8];
            let mut inner = vec![0; codes.len() * 8 + SLACK];
            let in_two_steps = pair
                .second
                .decompress(codes, ALL, &mut inner)
                .and_then(|n| {
                    let mut out = vec![0; n * 8 + SLACK];
                    let end = pair.first.decompress(&inner[..n], ALL, &mut out)?;
                    Ok(out[..end].to_vec())
                });
            let mut out = vec![0; codes.len() * PAIR_BYTES + SLACK];
            let in_one = pair.decompress(codes, ALL, &mut out);
            match in_two_steps {
                Ok(bytes) => assert_eq!(&out[..in_one.unwrap()], bytes),
                Err(_) => assert!(in_one.is_err()),
            }
        }
    }
}
