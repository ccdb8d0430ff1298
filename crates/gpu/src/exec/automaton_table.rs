//! Tests of strings: an automaton over bytes, composed with the bytes that tokens stand for.

use std::sync::Arc;
use std::thread;

use vectile_kernels::Symbols;
use vectile_kernels::tokens::{BYTES, EMPTY_STRING, LAST_BYTES, NOTHING};

use super::tables::kept_on_device;
use super::tokens::{MOST_TOKENS, PRINTS_BYTES, Vocabulary, fingerprint, fingerprints, tokens};
use crate::error::{Error, Result};
use crate::runtime::{Batch, Engine, Kernel, TextTests};
use vectile_pipeline::Automaton;

/// Alignment of tables; their sizes are multiples of it.
const ALIGNMENT: usize = 16;
/// Limit of the bytes of all tables of a column for one automaton. They are in host memory, too, until they are
/// copied.
const MOST_TABLE_BYTES: usize = 1 << 30;
/// Minimum number of symbol tables per thread.
const SHARE: usize = 16;
/// Words of a chunk's test, as `text.cuh` reads it.
const TEST_WORDS: usize = 7 + MOST_FEW / 2;
/// Most strings whose fingerprints a test compares.
const MOST_FEW: usize = 16;
/// Flag in a transition, above the next state: a string that ends in this token passes.
const PASSES: u8 = 128;

/// Builds the tests of a column's strings by an automaton, or returns the cached ones. `kernel` gives the kernel that
/// makes tokens of strings.
pub(super) fn tests(
    automaton: &Automaton,
    column: usize,
    batch: &Batch,
    kernel: impl FnOnce() -> Result<Arc<dyn Kernel>>,
    engine: &Engine,
) -> Result<Arc<TextTests>> {
    let column_batch = &batch.columns()[column];
    column_batch.text_tests(automaton, || {
        let kernel = &*kernel()?;
        let tokens = tokens(column_batch, batch, kernel, engine)?;
        let (few, others) = automaton.few(MOST_FEW).unwrap_or_default();
        let prints = match few.is_empty() {
            true => None,
            false => Some(fingerprints(column_batch, batch, kernel, engine)?),
        };
        let mut few_words = [0; TEST_WORDS - 6];
        few_words[0] = few.len() as u64 | if others { u64::from(u32::MAX) << 32 } else { 0 };
        for (one, string) in few.iter().enumerate() {
            let print = u64::from(fingerprint(string));
            few_words[1 + one / 2] |= (print | print << 16) << (one % 2 * 32);
        }
        let tables = composed_all(automaton, &column_batch.symbols)?;
        let mut end = column_batch.len() * TEST_WORDS * 8;
        end = end.next_multiple_of(ALIGNMENT);
        let starts = tables.iter().map(|table| {
            end += table.bytes.len();
            end - table.bytes.len()
        });
        let starts: Vec<usize> = starts.collect();
        let memory = kept_on_device(engine, end, |to| {
            let (tests, _) = to.as_chunks_mut::<{ TEST_WORDS * 8 }>();
            for (chunk, test) in tests.iter_mut().take(column_batch.len()).enumerate() {
                let symbols = column_batch.dictionary_of[chunk];
                let table = &tables[symbols];
                let first_vector = tokens.first_vectors[chunk] as u64;
                let prints = prints.as_ref().map_or(0, |prints| prints.address());
                let words = [
                    (starts[symbols] - chunk * TEST_WORDS * 8) as u64,
                    tokens.words.address(),
                    tokens.offsets.address() + first_vector * 4,
                    table.bytes.len() as u64 | (table.stride as u64) << 32,
                    u64::from(automaton.start()) | (table.first_end as u64) << 32,
                    prints + first_vector * PRINTS_BYTES as u64,
                ];
                let words = words.into_iter().chain(few_words);
                let words = words.flat_map(u64::to_le_bytes);
                test.iter_mut().zip(words).for_each(|(to, byte)| *to = byte);
            }
            for (table, start) in tables.iter().zip(&starts) {
                to[*start..][..table.bytes.len()].copy_from_slice(&table.bytes);
            }
        })?;
        let test = |chunk: usize| memory.address() + (chunk * TEST_WORDS * 8) as u64;
        let most = tables.iter().map(|table| table.bytes.len()).max();
        Ok(TextTests {
            addresses: (0..column_batch.len()).map(test).collect(),
            table_bytes: most.unwrap_or(0),
            _tokens: tokens,
            _fingerprints: prints,
            _memory: memory,
        })
    })
}

/// Transitions of an automaton over the tokens of a chunk; empty for chunks without symbols.
#[derive(Clone, Default)]
struct TransitionTable {
    /// For each state and token, the next state, and [`PASSES`].
    bytes: Vec<u8>,
    /// Bytes of a state.
    stride: usize,
    /// The first token in which a string ends.
    first_end: usize,
}

/// Composes the automaton with each symbol table, on all cores. The result is empty for `None`.
fn composed_all(
    automaton: &Automaton,
    symbols: &[Option<Arc<Symbols>>],
) -> Result<Vec<TransitionTable>> {
    let most = automaton.states() * stride(MOST_TOKENS);
    let most = most.saturating_mul(symbols.iter().flatten().count());
    if most > MOST_TABLE_BYTES {
        let reason = format!("tables of up to {most} bytes for a test of text");
        return Err(Error::Unsupported(reason));
    }
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let share = symbols.len().div_ceil(cores).max(SHARE);
    let fold = |symbols: &Option<Arc<Symbols>>| match symbols {
        Some(symbols) => composed(automaton, symbols),
        None => TransitionTable::default(),
    };
    let mut all = vec![TransitionTable::default(); symbols.len()];
    thread::scope(|scope| {
        for (to, from) in all.chunks_mut(share).zip(symbols.chunks(share)) {
            let work = move || {
                to.iter_mut()
                    .zip(from)
                    .for_each(|(to, from)| *to = fold(from))
            };
            // if no thread starts, the calling thread does the work below
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
    });
    let missing = all.iter_mut().zip(symbols);
    let missing = missing.filter(|(to, _)| to.bytes.is_empty());
    missing.for_each(|(to, from)| *to = fold(from));
    Ok(all)
}

/// Bytes of a state, so that neighbouring states begin in different banks of shared memory.
fn stride(tokens: usize) -> usize {
    tokens.next_multiple_of(4) + if tokens % 128 > 124 { 4 } else { 0 }
}

fn composed(automaton: &Automaton, symbols: &Symbols) -> TransitionTable {
    let vocabulary = Vocabulary::of(symbols);
    let stride = stride(vocabulary.tokens());
    let mut bytes = vec![0; (automaton.states() * stride).next_multiple_of(ALIGNMENT)];
    let last = |state: u8| automaton.start() | if automaton.accepts(state) { PASSES } else { 0 };
    let rows = bytes.chunks_exact_mut(stride).take(automaton.states());
    let first_end = vocabulary.first_end();
    let vocabulary = match vocabulary {
        Vocabulary::Symbols(symbols) => symbols,
        Vocabulary::Entries(entries) => {
            for (state, row) in (0u8..).zip(rows) {
                let step = |state, byte: &u8| automaton.step(state, *byte);
                let strings = entries.strings().iter();
                let next = strings.map(|string| string.iter().fold(state, step));
                let next = next.chain([state, last(state)]);
                row.iter_mut().zip(next).for_each(|(to, next)| *to = next);
            }
            return TransitionTable {
                bytes,
                stride,
                first_end,
            };
        }
    };
    for (state, row) in (0u8..).zip(rows) {
        row[NOTHING] = state;
        row[EMPTY_STRING] = last(state);
        for byte in 0..=u8::MAX {
            let next = automaton.step(state, byte);
            row[BYTES + usize::from(byte)] = next;
            row[LAST_BYTES + usize::from(byte)] = last(next);
        }
        for (code, string) in vocabulary.codes.iter().enumerate() {
            let step = |state, byte: &u8| automaton.step(state, *byte);
            let mut state = state;
            for (index, byte) in string.bytes.iter().enumerate() {
                state = automaton.step(state, *byte);
                if let Some(first) = vocabulary.ends[code] {
                    // bytes behind the string's end belong to the next string
                    let rest = &string.bytes[index + 1..];
                    let next = rest.iter().fold(automaton.start(), step);
                    row[first + index] = next | last(state) & PASSES;
                }
            }
            row[code] = state;
        }
    }
    TransitionTable {
        bytes,
        stride,
        first_end,
    }
}
