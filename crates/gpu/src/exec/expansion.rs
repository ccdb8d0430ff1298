//! What the codes of compressed strings stand for, also on the device, where kernels decode by it.

use std::sync::Arc;

use vectile_kernels::Symbols;

use super::answers::Answers;
use super::tables::on_device;
use super::tokens::Expanded;
use crate::error::Result;
use crate::runtime::{Engine, Piece, Stack, lock};

/// Codes of a symbol table.
const CODES: usize = 256;
/// The bytes of a code lie at multiples of it.
const WORD: usize = 8;

/// What the strings of a column's chunks are decoded with.
pub(super) fn all(stack: &Stack, engine: &Engine) -> Result<Answers> {
    let (mut places, mut kept) = (vec![], vec![]);
    for symbols in &stack.symbols {
        match symbols {
            Some(symbols) if symbols.tables() > 0 => {
                let piece = on_device_of(symbols, engine)?;
                places.push(piece.address());
                kept.push(piece);
            }
            _ => places.push(0),
        }
    }
    Ok(Answers::of_expansions(places, kept, stack))
}

/// The expansion of symbol tables, in device memory: copied there at first.
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

/// What codes stand for, as `decode.cuh` reads it: of up to 64 bytes, so that places fit 16 bits.
fn expand(symbols: &Symbols) -> Vec<u8> {
    let (mut entries, mut bytes) = (vec![], vec![]);
    let escapes = 0..1 << symbols.tables();
    let start = escapes.len() * CODES * 4;
    for escapes in escapes {
        for code in 0..=u8::MAX {
            let string = Expanded::of(symbols, escapes, code);
            let place = (start + bytes.len()) / WORD;
            let entry = place | string.bytes.len() << 16 | string.escapes << 24;
            entries.extend((entry as u32).to_le_bytes());
            bytes.extend(string.bytes);
            bytes.resize(bytes.len().next_multiple_of(WORD), 0);
        }
    }
    // kernels read a word behind the last one
    bytes.extend([0; WORD]);
    entries.extend(bytes);
    entries
}
