//! Strings as tokens: the token numbering, and the kernel that makes tokens of a column's splits.
//!
//! A token stands for some bytes of one string, or marks the end of a string. Codes are tokens themselves; a code in
//! which a string ends has one token for each byte behind which that may be. Where two strings end in a code, and
//! behind an escape, there are tokens of single bytes. No code of an entry has bytes of two strings, so a single token
//! for the end of a string suffices there. A test of strings then needs one load for each token, and neither lengths
//! nor the bytes of codes.

use std::sync::Arc;

use vectile_encodings::VECTOR_LEN;
use vectile_kernels::tokens::{EMPTY_STRING, FIRST_ENDS, HASH_FACTOR, HASH_MIX};
use vectile_kernels::{Entries, SYMBOL_BYTES, Symbols, TokenizeChunk};

use super::tables::on_device;
use crate::error::Result;
use crate::runtime::{
    Batch, ColumnBatch, DeviceBuffer, Engine, Kernel, Launch, Stream, TextTokens,
};

/// The code behind which the next code stands for itself.
const ESCAPE: u8 = 255;

/// Tokens have 12 bits. Codes whose ends have no number left are taken byte by byte.
pub(super) const MOST_TOKENS: usize = 1 << 12;

/// Bytes of a unit of tokens, of all lanes. Kernels read one unit ahead.
const TOKEN_UNIT_BYTES: usize = 3 * 4 * 32;
const WARPS: usize = 8;
/// Bytes of a vocabulary of two tables, a multiple of 8. One of entries takes fewer.
const VOCABULARY_BYTES: usize = 16 + 2 * 512 + 2 * 256 + 2 * 256 * SYMBOL_BYTES;
/// Bytes of a vocabulary with hashes: one of entries takes more.
const HASHED_BYTES: usize = 16 + MOST_TOKENS + MOST_TOKENS * 4;
/// Bytes of the fingerprints of a vector.
pub(super) const PRINTS_BYTES: usize = VECTOR_LEN * 2;

/// The strings of a chunk's tokens.
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

    /// Number of tokens.
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

    /// Serializes the vocabulary for the kernel, with hashes if there is room for them.
    fn write(&self, out: &mut [u8]) {
        let mut bytes: Vec<u8> = match self {
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
        if out.len() >= HASHED_BYTES {
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            let add = |string: &[u8], bytes: &mut Vec<u8>| bytes.extend(hash(string).to_le_bytes());
            match self {
                Self::Symbols(symbols) => {
                    let codes = symbols.codes.iter();
                    codes.for_each(|code| add(&code.bytes, &mut bytes));
                }
                Self::Entries(entries) => {
                    let strings = entries.strings().iter();
                    strings.for_each(|string| add(string, &mut bytes));
                }
            }
        }
        out[..bytes.len()].copy_from_slice(&bytes);
    }
}

/// Polynomial hash; hashes of concatenated strings can be combined: multiply the first by the factor once for each
/// byte of the second, and add the second's hash.
fn hash(string: &[u8]) -> u32 {
    let next = |hash: u32, byte: &u8| {
        let hash = hash.wrapping_mul(HASH_FACTOR);
        hash.wrapping_add(u32::from(*byte) + 1)
    };
    string.iter().fold(0, next)
}

/// Fingerprint of a string, as in [`fingerprints`].
pub(super) fn fingerprint(string: &[u8]) -> u16 {
    (hash(string).wrapping_mul(HASH_MIX) >> 16) as u16
}

/// The strings of symbol table codes.
pub(super) struct SymbolTokens<'a> {
    symbols: &'a Symbols,
    /// The bytes of each code that does not follow an escape.
    pub codes: Vec<Expanded<'a>>,
    /// For each code, the token for a string's end behind its first byte; those for its other bytes follow. `None` if
    /// no numbers were left.
    pub ends: Vec<Option<usize>>,
    /// Number of tokens.
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

    /// Serializes the symbols for the kernel.
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

/// The tokens of a column's strings, made by the kernel [`Tokenize`](crate::runtime::FixedKernel::Tokenize) unless
/// cached.
pub(super) fn tokens(
    column_batch: &ColumnBatch,
    batch: &Batch,
    kernel: &dyn Kernel,
    engine: &Engine,
) -> Result<Arc<TextTokens>> {
    column_batch.text_tokens(|| make(column_batch, batch, kernel, engine))
}

/// Hashes of 16 bits of a column's strings, in the order of `first_vectors`, computed unless cached. They are cheaper
/// to compute than tokens are to read: a test for few strings compares them first.
pub(super) fn fingerprints(
    column_batch: &ColumnBatch,
    batch: &Batch,
    kernel: &dyn Kernel,
    engine: &Engine,
) -> Result<Arc<DeviceBuffer>> {
    column_batch.text_fingerprints(|| {
        let job = TokenizeJob::new(column_batch, kernel, engine, HASHED_BYTES)?;
        let prints = engine.take_to_keep(job.vectors * PRINTS_BYTES)?;
        let mut context = engine.stream_context()?;
        context.finish(|stream| {
            engine.wait_for(stream, batch)?;
            // SAFETY: there is room for each vector, and it lives until `finish` is done.
            unsafe { job.launch(stream, [0, 0, prints.address()]) }
        })?;
        engine.give_back(context);
        Ok(prints)
    })
}

fn make(
    column_batch: &ColumnBatch,
    batch: &Batch,
    kernel: &dyn Kernel,
    engine: &Engine,
) -> Result<TextTokens> {
    let job = TokenizeJob::new(column_batch, kernel, engine, VOCABULARY_BYTES)?;
    let vectors = job.vectors;
    let bytes = (vectors + 1) * 4;
    let on_device = engine.take_to_keep(bytes)?;
    let mut offsets = engine.host_pool().take(bytes)?;
    let mut context = engine.stream_context()?;
    context.finish(|stream| {
        engine.wait_for(stream, batch)?;
        let to = offsets.as_mut_slice().as_mut_ptr();
        // SAFETY: there is a word for each vector; both buffers have these bytes, and live until `finish` is done.
        unsafe {
            job.launch(stream, [on_device.address(), 0, 0])?;
            stream.copy_out(to, on_device.address(), bytes)
        }
    })?;
    let mut count = 0u32;
    let all = offsets.as_mut_slice().as_chunks_mut::<4>().0;
    for offset in all.iter_mut().take(vectors + 1) {
        let own = u32::from_le_bytes(*offset);
        *offset = count.to_le_bytes();
        count = count.saturating_add(own);
    }
    let end = all.get(vectors).map_or(0, |end| u32::from_le_bytes(*end)) as usize;
    let words = engine.take_to_keep((end + 1) * TOKEN_UNIT_BYTES)?;
    context.finish(|stream| {
        // SAFETY: as above; there is room for as many words as the offsets say.
        unsafe {
            stream.copy_in(on_device.address(), offsets.as_slice().as_ptr(), bytes)?;
            job.launch(stream, [on_device.address(), words.address(), 0])
        }
    })?;
    engine.give_back(context);
    Ok(TextTokens {
        words,
        offsets: on_device,
        first_vectors: job.first_vectors,
    })
}

/// Arguments of the kernel for a column.
struct TokenizeJob<'a> {
    kernel: &'a dyn Kernel,
    engine: &'a Engine,
    /// The first vector of each chunk; and the number of all vectors.
    first_vectors: Vec<usize>,
    vectors: usize,
    chunks: usize,
    /// Descriptors of chunks, then their vocabularies.
    inputs: DeviceBuffer,
}

impl<'a> TokenizeJob<'a> {
    /// Prepares the arguments, with vocabularies of `vocabulary_bytes` each.
    fn new(
        column_batch: &ColumnBatch,
        kernel: &'a dyn Kernel,
        engine: &'a Engine,
        vocabulary_bytes: usize,
    ) -> Result<Self> {
        let mut first_vectors = vec![0; column_batch.len()];
        let (mut vectors, mut descriptors) = (0, vec![]);
        let has_text =
            |chunk: &usize| column_batch.symbols[column_batch.dictionary_of[*chunk]].is_some();
        let chunks = (0..column_batch.len()).filter(has_text).count();
        let vocabulary_at = |index: usize| chunks * TokenizeChunk::BYTES + index * vocabulary_bytes;
        for chunk in (0..column_batch.len()).filter(has_text) {
            first_vectors[chunk] = vectors;
            let vocabulary = vocabulary_at(column_batch.dictionary_of[chunk]) as u64;
            let descriptor = TokenizeChunk {
                first_vector: vectors as u64,
                address: column_batch.addresses[chunk],
                vocabulary,
            };
            descriptors.extend(descriptor.to_bytes());
            vectors += column_batch.rows[chunk].div_ceil(VECTOR_LEN);
        }
        let inputs = on_device(engine, vocabulary_at(column_batch.symbols.len()), |to| {
            for (index, symbols) in column_batch.symbols.iter().enumerate() {
                if let Some(symbols) = symbols {
                    let to = &mut to[vocabulary_at(index)..][..vocabulary_bytes];
                    Vocabulary::of(symbols).write(to);
                }
            }
            to[..descriptors.len()].copy_from_slice(&descriptors);
        })?;
        Ok(Self {
            kernel,
            engine,
            first_vectors,
            vectors,
            chunks,
            inputs,
        })
    }

    /// Launches the kernel. `to` holds its last arguments, each an address or 0: of the offset of each vector's
    /// tokens, of the tokens, which were counted before, and of fingerprints.
    ///
    /// # Safety
    ///
    /// The memory is as long as `tokens.cuh` requires, and lives until the stream has passed this point.
    unsafe fn launch(&self, stream: &mut dyn Stream, to: [u64; 3]) -> Result<()> {
        let threads = WARPS as u32 * 32;
        let resident = self.kernel.resident_blocks(threads, 0).max(1);
        let resident = resident.saturating_mul(self.engine.device().multiprocessors.max(1));
        // a batch without strings after one with them has no vectors, but a launch needs a block
        let needed = self.vectors.div_ceil(WARPS).max(1);
        let [offsets, tokens, prints] = to;
        let launch = Launch {
            grid: resident.min(needed.try_into().unwrap_or(u32::MAX)),
            block: threads,
            shared: 0,
            args: &[
                self.vectors as u64,
                self.inputs.address(),
                self.chunks as u64,
                offsets,
                tokens,
                prints,
            ],
        };
        // SAFETY: as the caller says; the chunks were checked before they were copied to the device, with their
        // vocabularies.
        unsafe { stream.launch(self.kernel, launch) }
    }
}

/// The bytes of a code.
pub(super) struct Expanded<'a> {
    symbols: &'a Symbols,
    pub bytes: Vec<u8>,
    /// Bit 0 is set if the next code of the table applied first stands for itself, bit 1 for the second table.
    pub escapes: usize,
}

impl<'a> Expanded<'a> {
    /// Expands a code that follows `escapes`.
    pub fn of(symbols: &'a Symbols, escapes: usize, code: u8) -> Self {
        let mut string = Self {
            symbols,
            bytes: vec![],
            escapes,
        };
        string.add(symbols.tables(), code);
        string
    }

    /// Appends a code of the table applied first (1) or second (2), or a byte (0).
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
