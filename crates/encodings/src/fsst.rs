//! `fsst`: strings as one-byte codes of frequent substrings of 1 to 8 bytes, and the symbol tables
//! that say which. Loses to `dict` where values repeat; random bytes grow, up to twofold.
//!
//! Code 255 is the escape: the next byte stands for itself. A table is stored as the FSST library
//! exports it (version 20190218), so other tools can read it:
//!
//! ```text
//! u64 version << 32 | symbol count << 8 | 1 | u8 0 | u8 number of symbols of length 1, 2, .., 8
//! the bytes of every symbol in code order: by length 2, 3, .., 8, then 1
//! ```

pub(crate) use fsst::Compressor;

use crate::error::{Result, corrupt, ensure};

const PART: &str = "fsst";
const VERSION: u64 = 20190218;
const HEADER_BYTES: usize = 17;
const ESCAPE: u8 = 255;
/// Codes decompressed at once.
const BLOCK: usize = 8;
/// Bytes that a block may write.
const WINDOW: usize = 9 * BLOCK;
/// Bytes that decompression may write behind its result: a block's, and more is faster.
pub(crate) const SLACK: usize = WINDOW;
/// Symbols are stored by length in this order.
const LENGTHS: [usize; 8] = [2, 3, 4, 5, 6, 7, 8, 1];

/// Byte strings one behind another.
#[derive(Default)]
pub(crate) struct Splits {
    pub data: Vec<u8>,
    /// Where each ends in `data`; ascends.
    pub ends: Vec<u64>,
}

impl Splits {
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let split = &self.data[start..*end as usize];
            start = *end as usize;
            split
        })
    }

    /// Each compressed.
    pub fn compress(&self, compressor: &Compressor) -> Self {
        let values: Vec<&[u8]> = self.iter().collect();
        let mut out = Self::default();
        compressor.compress_bulk_into::<{ Compressor::DEFAULT_BULK_LANES }>(
            &values,
            &mut out.data,
            &mut out.ends,
        );
        out
    }
}

/// The exported table of a compressor.
pub(crate) fn export(compressor: &Compressor) -> Vec<u8> {
    let (symbols, lengths) = (compressor.symbol_table(), compressor.symbol_lengths());
    let mut histogram = [0u8; 8];
    for length in lengths.iter().take(symbols.len()) {
        histogram[usize::from(*length).clamp(1, 8) - 1] += 1;
    }
    let mut out = Vec::with_capacity(HEADER_BYTES + symbols.len() * 8);
    out.extend_from_slice(&(VERSION << 32 | (symbols.len() as u64) << 8 | 1).to_le_bytes());
    out.push(0);
    out.extend_from_slice(&histogram);
    for (symbol, length) in symbols.iter().zip(lengths) {
        out.extend_from_slice(&symbol.to_u64().to_le_bytes()[..usize::from(*length)]);
    }
    out
}

/// A parsed table, to decompress with. Invariant: lengths are at most 8, and 0 for unused codes.
#[derive(Clone, Debug)]
pub(crate) struct SymbolTable {
    symbols: Box<[[u8; 8]; 256]>,
    lengths: Box<[u8; 256]>,
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
            lengths: Box::new([0; 256]),
        };
        let mut code = 0;
        for length in LENGTHS {
            for _ in 0..histogram[length - 1] {
                let (symbol, behind) = rest
                    .split_at_checked(length)
                    .ok_or_else(|| corrupt(PART, "a symbol table that ends within a symbol"))?;
                table.symbols[code][..length].copy_from_slice(symbol);
                table.lengths[code] = length as u8;
                rest = behind;
                code += 1;
            }
        }
        ensure(rest.is_empty(), PART, || {
            format!("{} bytes behind the symbols", rest.len())
        })?;
        Ok(table)
    }

    /// Decompresses `codes` to the start of `out`, all of them or at least `enough` bytes, and
    /// returns the length. A symbol is written as 8 bytes whatever its length, so `out` must be
    /// [`SLACK`] bytes longer than the result; what does not fit, an unknown code and a cut escape
    /// are corruption.
    pub fn decompress(&self, codes: &[u8], enough: usize, out: &mut [u8]) -> Result<usize> {
        let (mut at, mut rest) = (0, codes);
        while !rest.is_empty() && at < enough {
            if let Some((block, behind)) = rest.split_first_chunk()
                && let Some(window) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut)
                && let Some(length) = self.decompress_block(*block, window)
            {
                at += length;
                rest = behind;
                continue;
            }
            // an escape, an unknown code, or near an end
            let careful = rest.len().min(BLOCK);
            (at, rest) = self.decompress_codes(rest, careful, at, out)?;
        }
        Ok(at)
    }

    /// Decompresses a block without checks for each code; `None` if one is not a symbol's.
    #[inline(always)]
    fn decompress_block(&self, block: [u8; BLOCK], out: &mut [u8; WINDOW]) -> Option<usize> {
        let mut at = 0;
        let mut absent = 0;
        for code in block {
            let length = self.lengths[usize::from(code)];
            absent |= length.wrapping_sub(1);
            // no more than 8 bytes for each of 7 codes lie before: the remainder changes nothing,
            // and shows that the slice is in bounds
            let at_most = at % (8 * BLOCK);
            out[at_most..at_most + 8].copy_from_slice(&self.symbols[usize::from(code)]);
            at += usize::from(length);
        }
        (absent < 8).then_some(at)
    }

    /// Decompresses at least `count` bytes of `codes` one code after another; returns where the
    /// result ends, and the codes left.
    fn decompress_codes<'a>(
        &self,
        codes: &'a [u8],
        count: usize,
        mut at: usize,
        out: &mut [u8],
    ) -> Result<(usize, &'a [u8])> {
        let mut rest = codes;
        while codes.len() - rest.len() < count
            && let Some((code, behind)) = rest.split_first()
        {
            rest = behind;
            let slot = out
                .get_mut(at..)
                .and_then(|out| out.first_chunk_mut::<8>())
                .ok_or_else(|| corrupt(PART, "more bytes than the lengths say"))?;
            if *code == ESCAPE {
                let (literal, behind) = rest
                    .split_first()
                    .ok_or_else(|| corrupt(PART, "an escape without a byte"))?;
                slot[0] = *literal;
                rest = behind;
                at += 1;
            } else {
                let length = self.lengths[usize::from(*code)];
                if length == 0 {
                    return Err(corrupt(PART, format!("code {code} has no symbol")));
                }
                *slot = self.symbols[usize::from(*code)];
                at += usize::from(length);
            }
        }
        Ok((at, rest))
    }
}
