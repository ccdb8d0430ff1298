//! Expansions: the bytes that the codes of compressed strings stand for, on the device, for decoding.

use std::sync::Arc;

use vectile_kernels::Symbols;

use super::tables::kept_on_device;
use super::tokens::Expanded;
use crate::error::Result;
use crate::runtime::{ColumnBatch, DeviceBuffer, Engine, GRANULE};

/// Alignment of a code's bytes.
const WORD: usize = 8;

/// The expansion of each of [`ColumnBatch::symbols`]; `None` where codes are bytes.
pub(super) fn all(
    column_batch: &ColumnBatch,
    engine: &Engine,
) -> Result<Vec<Option<Arc<DeviceBuffer>>>> {
    let all = column_batch.symbols.iter().map(|symbols| {
        let symbols = symbols.as_ref();
        let coded = symbols.filter(|of| of.tables() > 0 || of.entries().is_some());
        coded.map(|of| on_device_of(of, engine)).transpose()
    });
    all.collect()
}

/// The expansion of symbol tables or entries in device memory, copied there on first use. The buffer's length is the
/// expansion's.
fn on_device_of(symbols: &Symbols, engine: &Engine) -> Result<Arc<DeviceBuffer>> {
    engine.copied(symbols.device_copies(), || {
        let expansion = expand(symbols);
        let bytes = expansion.len();
        kept_on_device(engine, bytes, |to| to[..bytes].copy_from_slice(&expansion))
    })
}

/// Serializes an expansion as `decode.cuh` reads it: 256 codes of up to 64 bytes for each escape state, or 4096 codes
/// of 16, so that offsets fit 16 bits.
fn expand(symbols: &Symbols) -> Vec<u8> {
    if let Some(entries) = symbols.entries() {
        // every code of this many bits is in bounds
        let mut strings = entries.strings().to_vec();
        strings.resize(1 << entries.code_bits(), vec![]);
        let strings = strings.into_iter().map(|bytes| (bytes, 0));
        return write(entries.code_bits(), strings.collect());
    }
    let codes = (0..1 << symbols.tables())
        .flat_map(|escapes| (0..=u8::MAX).map(move |code| (escapes, code)));
    let strings = codes.map(|(escapes, code)| {
        let string = Expanded::of(symbols, escapes, code);
        (string.bytes, string.escapes)
    });
    write(8, strings.collect())
}

/// Codes of so many bits that each stand for bytes, with the escape state behind them.
fn write(code_bits: usize, strings: Vec<(Vec<u8>, usize)>) -> Vec<u8> {
    let mut out = [0, code_bits as u64].map(u64::to_le_bytes).concat();
    let start = (out.len() + strings.len() * 4).next_multiple_of(WORD);
    let mut bytes = vec![];
    for (string, escapes) in strings {
        // codes without bytes have offset 0
        let offset = if string.is_empty() {
            0
        } else {
            start + bytes.len()
        };
        let entry = string.len() | escapes << 10 | offset << 13;
        out.extend((entry as u32).to_le_bytes());
        bytes.extend(string);
        bytes.resize(bytes.len().next_multiple_of(WORD), 0);
    }
    out.resize(start, 0);
    out.extend(bytes);
    // kernels read a word behind the last one
    out.extend([0; WORD]);
    // the buffer is no longer, and kernels copy all of it
    out.resize(out.len().next_multiple_of(GRANULE as usize), 0);
    out
}
