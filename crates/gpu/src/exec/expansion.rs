//! What the codes of compressed strings stand for, also on the device, where kernels decode by it.

use std::sync::Arc;

use vectile_kernels::Symbols;

use super::answers::Answers;
use super::tables::on_device;
use super::tokens::Expanded;
use crate::error::Result;
use crate::runtime::{Engine, Piece, Stack, lock};

/// The bytes of a code lie at multiples of it.
const WORD: usize = 8;

/// What the strings of a column's chunks are decoded with.
pub(super) fn all(stack: &Stack, engine: &Engine) -> Result<Answers> {
    let (mut places, mut kept) = (vec![], vec![]);
    for symbols in &stack.symbols {
        match symbols {
            Some(symbols) if symbols.tables() > 0 || symbols.entries().is_some() => {
                let piece = on_device_of(symbols, engine)?;
                places.push(piece.address());
                kept.push(piece);
            }
            _ => places.push(0),
        }
    }
    Ok(Answers::of_expansions(places, kept, stack))
}

/// The expansion of symbol tables or entries, in device memory: copied there at first.
fn on_device_of(symbols: &Symbols, engine: &Engine) -> Result<Arc<Piece>> {
    let mut known = lock(symbols.device_copy());
    let copy = known.clone().and_then(|copy| copy.downcast::<Piece>().ok());
    if let Some(piece) = copy.filter(|piece| piece.is_of(engine.pool())) {
        return Ok(piece);
    }
    let expansion = expand(symbols);
    let piece = on_device(engine, expansion.len(), |to| {
        to[..expansion.len()].copy_from_slice(&expansion);
    })?;
    let piece = Arc::new(piece);
    *known = Some(Arc::clone(&piece) as _);
    Ok(piece)
}

/// What codes stand for, as `decode.cuh` reads it: 256 codes of up to 64 bytes for each way to be within an escape, or
/// 4096 codes of 16, so that places fit 16 bits.
fn expand(symbols: &Symbols) -> Vec<u8> {
    if let Some(entries) = symbols.entries() {
        // every code of as many bits is in bounds
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

/// Codes of so many bits that each stand for bytes, with the escapes behind them.
fn write(code_bits: usize, strings: Vec<(Vec<u8>, usize)>) -> Vec<u8> {
    let mut out = (code_bits as u64).to_le_bytes().to_vec();
    let start = (out.len() + strings.len() * 4).next_multiple_of(WORD);
    let mut bytes = vec![];
    for (string, escapes) in strings {
        let place = (start + bytes.len()) / WORD;
        let entry = place | string.len() << 16 | escapes << 24;
        out.extend((entry as u32).to_le_bytes());
        bytes.extend(string);
        bytes.resize(bytes.len().next_multiple_of(WORD), 0);
    }
    out.resize(start, 0);
    out.extend(bytes);
    // kernels read a word behind the last one
    out.extend([0; WORD]);
    out
}
