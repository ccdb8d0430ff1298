//! Strings as tokens: what codes stand for, numbered, and the kernel that makes tokens of a column's splits.
//!
//! A token stands for some bytes of one string, or says that a string ends in it. Codes are tokens as they are; a code
//! in which a string ends has one for each byte behind which that may be. Where two strings end in a code, and behind
//! an escape, there are tokens of single bytes. No code of an entry has bytes of two strings, so one more token says that
//! a string ends. So a test of strings needs one load for each token, and neither lengths nor what codes stand for.

use std::sync::Arc;

use vectile_encodings::VECTOR_LEN;
use vectile_kernels::{Entries, SYMBOL_BYTES, Symbols};

use super::tables::{on_device, write_words};
use crate::error::Result;
use crate::runtime::{Batch, Engine, Kernel, Launch, Stack, Stream, TextTokens};

/// The code behind which another stands for itself.
const ESCAPE: u8 = 255;

// The numbers of tokens, those of `tokens.cuh`: 256 codes, 256 bytes, nothing, an empty string, 256 last bytes, ends
// in codes.
pub(super) const BYTES: usize = 256;
pub(super) const NOTHING: usize = 512;
pub(super) const EMPTY_STRING: usize = 513;
pub(super) const LAST_BYTES: usize = 514;
const FIRST_ENDS: usize = 770;
/// Tokens have 12 bits. Codes whose ends have no number left are taken byte by byte.
pub(super) const MOST_TOKENS: usize = 1 << 12;

/// Bytes that the tokens of all lanes take at least, and what is read ahead.
const PLACE_BYTES: usize = 3 * 4 * 32;
/// Words of a chunk for the kernel.
const CHUNK_WORDS: usize = 3;
const WARPS: usize = 8;
/// Bytes of a vocabulary of two tables, a multiple of 8. One of entries takes fewer.
const VOCABULARY_BYTES: usize = 16 + 2 * 512 + 2 * 256 + 2 * 256 * SYMBOL_BYTES;

/// What the tokens of a chunk stand for.
pub(super) enum Vocabulary<'a> {
    /// Codes of symbol tables, or bytes.
    Symbols(SymbolTokens<'a>),
    /// Codes of entries, then nothing, then the end of a string.
    Entries(&'a Entries),
}

impl<'a> Vocabulary<'a> {
    pub fn of(symbols: &'a Symbols) -> Self {
        match symbols.entries() {
            Some(entries) => Self::Entries(entries),
            None => Self::Symbols(SymbolTokens::of(symbols)),
        }
    }

    /// How many tokens there are.
    pub fn tokens(&self) -> usize {
        match self {
            Self::Symbols(symbols) => symbols.tokens,
            Self::Entries(entries) => entries.strings().len() + 2,
        }
    }

    /// The first token in which a string ends.
    pub fn first_end(&self) -> usize {
        match self {
            Self::Symbols(_) => EMPTY_STRING,
            Self::Entries(entries) => entries.strings().len() + 1,
        }
    }

    /// As the kernel reads it.
    fn write(&self, out: &mut [u8]) {
        let bytes = match self {
            Self::Symbols(symbols) => symbols.bytes(),
            Self::Entries(entries) => {
                let words = [0, entries.strings().len(), entries.code_bits(), 0];
                let words = words
                    .into_iter()
                    .flat_map(|word| (word as u32).to_le_bytes());
                let lengths = entries.strings().iter().map(|string| string.len() as u8);
                words.chain(lengths).collect()
            }
        };
        out[..bytes.len()].copy_from_slice(&bytes);
    }
}

/// What the codes of symbol tables stand for.
pub(super) struct SymbolTokens<'a> {
    symbols: &'a Symbols,
    /// What each code stands for that is not behind an escape.
    pub codes: Vec<Expanded<'a>>,
    /// Of each code, the token of a string's end behind its first byte, before those of its other bytes.
    pub ends: Vec<Option<usize>>,
    /// How many tokens there are.
    tokens: usize,
}

impl<'a> SymbolTokens<'a> {
    fn of(symbols: &'a Symbols) -> Self {
        let codes = (0..=u8::MAX).map(|code| Expanded::of(symbols, 0, code));
        let codes: Vec<Expanded> = codes.collect();
        let mut tokens = FIRST_ENDS;
        let ends = codes.iter().map(|code| {
            let first = tokens;
            let fits = first + code.bytes.len() <= MOST_TOKENS && !code.bytes.is_empty();
            if fits {
                tokens += code.bytes.len();
            }
            fits.then_some(first)
        });
        Self {
            symbols,
            ends: ends.collect(),
            codes,
            tokens,
        }
    }

    /// As the kernel reads them.
    fn bytes(&self) -> Vec<u8> {
        let tables = self.symbols.tables();
        let mut bytes = Vec::with_capacity(VOCABULARY_BYTES);
        bytes.extend((tables as u32).to_le_bytes());
        bytes.resize(16, 0);
        for code in &self.codes {
            let word = code.bytes.len() as u16 | (code.escapes as u16) << 8;
            bytes.extend(word.to_le_bytes());
        }
        for ends in &self.ends {
            bytes.extend((ends.unwrap_or(0) as u16).to_le_bytes());
        }
        let all = || {
            (0..2).flat_map(|table| (0..=u8::MAX).map(move |code| self.symbols.symbol(table, code)))
        };
        bytes.extend(all().map(|symbol| symbol.len() as u8));
        for symbol in all() {
            let mut padded = [0; SYMBOL_BYTES];
            padded[..symbol.len()].copy_from_slice(symbol);
            bytes.extend(padded);
        }
        bytes
    }
}

/// The tokens of a column's strings, made by the kernel [`Tokenize`](crate::runtime::FixedKernel::Tokenize) if they are not there.
pub(super) fn tokens(
    stack: &Stack,
    batch: &Batch,
    kernel: &dyn Kernel,
    engine: &Engine,
) -> Result<Arc<TextTokens>> {
    stack.text_tokens(|| make(stack, batch, kernel, engine))
}

fn make(stack: &Stack, batch: &Batch, kernel: &dyn Kernel, engine: &Engine) -> Result<TextTokens> {
    let mut first_vectors = vec![0; stack.len()];
    let (mut vectors, mut words) = (0, vec![]);
    let has_text = |chunk: &usize| stack.symbols[stack.dictionary_of[*chunk]].is_some();
    let chunks = (0..stack.len()).filter(has_text).count();
    let vocabulary_at = |index: usize| chunks * CHUNK_WORDS * 8 + index * VOCABULARY_BYTES;
    for chunk in (0..stack.len()).filter(has_text) {
        first_vectors[chunk] = vectors;
        let vocabulary = vocabulary_at(stack.dictionary_of[chunk]) as u64;
        words.extend([vectors as u64, stack.addresses[chunk], vocabulary]);
        vectors += stack.rows[chunk].div_ceil(VECTOR_LEN);
    }
    let given = on_device(engine, vocabulary_at(stack.symbols.len()), |to| {
        for (index, symbols) in stack.symbols.iter().enumerate() {
            if let Some(symbols) = symbols {
                Vocabulary::of(symbols).write(&mut to[vocabulary_at(index)..]);
            }
        }
        write_words(&words, to);
    })?;

    let threads = WARPS as u32 * 32;
    let resident = kernel.resident_blocks(threads, 0).max(1);
    let resident = resident.saturating_mul(engine.device().multiprocessors.max(1));
    // of a batch without strings behind one with them, there are no vectors, but a launch has a block
    let needed = vectors.div_ceil(WARPS).max(1);
    let needed = needed.try_into().unwrap_or(u32::MAX);
    let (given, chunks) = (given.address(), chunks as u64);
    let launch = |stream: &mut dyn Stream, places: u64, to: u64| {
        let launch = Launch {
            grid: resident.min(needed),
            block: threads,
            shared: 0,
            args: &[vectors as u64, given, chunks, places, to],
        };
        // SAFETY: the arguments are those of tokens.cuh: chunks of a stack, which were checked before they were copied
        // to the device, with their vocabularies; a place for each vector; and no words, or those that the places say.
        // All of it lives until `finish` is done.
        unsafe { stream.launch(kernel, launch) }
    };
    let bytes = (vectors + 1) * 4;
    let on_device = engine.take(bytes)?;
    let mut places = engine.host_pool().take(bytes)?;
    let mut lane = engine.lane()?;
    lane.finish(|stream| {
        engine.wait_for(stream, batch)?;
        launch(stream, on_device.address(), 0)?;
        let to = places.as_mut_slice().as_mut_ptr();
        // SAFETY: both are as long, and live until the stream is done.
        unsafe { stream.copy_out(to, on_device.address(), bytes) }
    })?;
    let mut count = 0u32;
    let all = places.as_mut_slice().as_chunks_mut::<4>().0;
    for place in all.iter_mut().take(vectors + 1) {
        let own = u32::from_le_bytes(*place);
        *place = count.to_le_bytes();
        count = count.saturating_add(own);
    }
    let end = all.get(vectors).map_or(0, |end| u32::from_le_bytes(*end)) as usize;
    let words = engine.take((end + 1) * PLACE_BYTES)?;
    lane.finish(|stream| {
        // SAFETY: as above.
        unsafe { stream.copy_in(on_device.address(), places.as_slice().as_ptr(), bytes) }?;
        launch(stream, on_device.address(), words.address())
    })?;
    engine.give_back(lane);
    Ok(TextTokens {
        words,
        places: on_device,
        first_vectors,
    })
}

/// What a code stands for.
pub(super) struct Expanded<'a> {
    symbols: &'a Symbols,
    pub bytes: Vec<u8>,
    /// A bit if the next code of the table that was applied first stands for itself, another if that of the second
    /// does.
    pub escapes: usize,
}

impl<'a> Expanded<'a> {
    /// That of a code within `escapes`.
    pub fn of(symbols: &'a Symbols, escapes: usize, code: u8) -> Self {
        let mut string = Self {
            symbols,
            bytes: vec![],
            escapes,
        };
        string.add(symbols.tables(), code);
        string
    }

    /// Adds a code of the table that was applied as the first, or as the second; a byte, if it was none.
    fn add(&mut self, table: usize, code: u8) {
        let Some(below) = table.checked_sub(1) else {
            return self.bytes.push(code);
        };
        let bit = 1 << below;
        if self.escapes & bit != 0 {
            self.escapes ^= bit;
            self.add(below, code);
        } else if code == ESCAPE {
            self.escapes ^= bit;
        } else {
            let inner = self.symbols.symbol(below, code).iter();
            inner.for_each(|code| self.add(below, *code));
        }
    }
}
