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

use fsst::Compressor;

use crate::error::{Result, corrupt, ensure};

const PART: &str = "fsst";
const VERSION: u64 = 20190218;
const HEADER_BYTES: usize = 17;
const ESCAPE: u8 = 255;
/// Symbols are stored by length in this order.
const LENGTHS: [usize; 8] = [2, 3, 4, 5, 6, 7, 8, 1];

/// A table trained on `samples`, to compress with.
pub(crate) fn train(samples: &Vec<&[u8]>) -> Compressor {
    Compressor::train(samples)
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

    /// Decompresses `codes` to the start of `out` and returns the length. A symbol is written as
    /// 8 bytes whatever its length, so `out` must be 8 bytes longer than the result; what does not
    /// fit, an unknown code and a cut escape are corruption.
    pub fn decompress(&self, codes: &[u8], out: &mut [u8]) -> Result<usize> {
        let mut at = 0;
        let mut rest = codes;
        while let Some((code, behind)) = rest.split_first() {
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
        Ok(at)
    }
}
