//! Tests of strings in splits: an automaton over bytes, folded over the symbols that codes stand for.

use std::sync::Arc;
use std::thread;

use vectile_kernels::{SYMBOL_BYTES, Symbols};

use super::tables::on_device;
use crate::error::{Error, Result};
use crate::plan::Automaton;
use crate::runtime::{Engine, Stack, TextTests};

/// The code behind which another stands for itself.
const ESCAPE: u8 = 255;
const HEADER_WORDS: usize = 12;
/// What tests lie at multiples of.
const ALIGNMENT: usize = 256;
/// Bytes of all tests of a column by one automaton. They are on the host, too, until they have been copied.
const MOST_TABLE_BYTES: usize = 1 << 30;
/// Symbol tables that a thread folds at least.
const SHARE: usize = 16;
/// Bytes that a code of two tables stands for, at most.
const MOST_BYTES: usize = 64;

/// The tests of a column's strings by an automaton.
pub(super) fn tests(
    automaton: &Automaton,
    stack: &Stack,
    engine: &Engine,
) -> Result<Arc<TextTests>> {
    stack.text_tests(automaton, || {
        let symbols = stack.symbols.iter().flatten();
        let most: usize = symbols.map(|symbols| most_bytes(automaton, symbols)).sum();
        if most > MOST_TABLE_BYTES {
            let reason = format!("tables of {most} bytes for a test of text");
            return Err(Error::Unsupported(reason));
        }
        let folded = folded_all(automaton, &stack.symbols);
        let mut places = vec![];
        let bytes = folded.iter().fold(0, |start, folded| {
            places.push(start as u64);
            start + folded.len().next_multiple_of(ALIGNMENT)
        });
        let memory = on_device(engine, bytes.max(ALIGNMENT), |to| {
            for (folded, start) in folded.iter().zip(&places) {
                to[*start as usize..][..folded.len()].copy_from_slice(folded);
            }
        })?;
        places
            .iter_mut()
            .for_each(|place| *place += memory.address());
        Ok(TextTests {
            places,
            _memory: memory,
        })
    })
}

/// The automaton folded over each of several symbol tables, on all cores; nothing where there are none.
fn folded_all(automaton: &Automaton, symbols: &[Option<Arc<Symbols>>]) -> Vec<Vec<u8>> {
    let cores = thread::available_parallelism().map_or(1, usize::from);
    let share = symbols.len().div_ceil(cores).max(SHARE);
    let fold = |symbols: &Option<Arc<Symbols>>| match symbols {
        Some(symbols) => folded(automaton, symbols),
        None => vec![],
    };
    let mut all = vec![vec![]; symbols.len()];
    thread::scope(|scope| {
        for (to, from) in all.chunks_mut(share).zip(symbols.chunks(share)) {
            let work = move || {
                to.iter_mut()
                    .zip(from)
                    .for_each(|(to, from)| *to = fold(from))
            };
            // what has no thread is done below
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
    });
    let missing = all.iter_mut().zip(symbols);
    let missing = missing.filter(|(to, _)| to.is_empty());
    missing.for_each(|(to, from)| *to = fold(from));
    all
}

/// More bytes than [`folded`] takes.
fn most_bytes(automaton: &Automaton, symbols: &Symbols) -> usize {
    let (states, tables) = (automaton.states(), symbols.tables());
    let of_state = (512 << tables) + 2048 + 256;
    states * of_state + (tables * (SYMBOL_BYTES + 1) + MOST_BYTES) * 256 + ALIGNMENT
}

/// The test for chunks that have these symbol tables, as `text.cuh` reads it.
fn folded(automaton: &Automaton, symbols: &Symbols) -> Vec<u8> {
    let (states, tables) = (automaton.states(), symbols.tables());
    let rows = states << tables;
    let codes = || 0..=u8::MAX;
    let of_states = || (0..states).map(|state| state as u8);

    let mut entries = Vec::with_capacity(rows * 512);
    let (mut ends, mut behind) = (vec![], vec![]);
    for escapes in 0..1 << tables {
        let strings: Vec<Expanded> = codes()
            .map(|code| Expanded::of(symbols, escapes, code))
            .collect();
        for state in of_states() {
            for string in &strings {
                let (mut state, mut passing) = (state, 0u64);
                for (place, byte) in string.bytes.iter().enumerate() {
                    state = automaton.step(state, *byte);
                    passing |= u64::from(automaton.accepts(state)) << (place % MOST_BYTES);
                }
                let row = string.escapes * states + usize::from(state);
                let entry = row as u16 | (string.bytes.len() as u16) << 8;
                entries.extend(entry.to_le_bytes());
                if escapes == 0 {
                    ends.extend(passing.to_le_bytes());
                }
            }
        }
        for string in strings.iter().filter(|_| escapes == 0) {
            behind.extend((1..=MOST_BYTES).map(|end| {
                let rest = string.bytes.get(end..).unwrap_or_default().iter();
                let step = |state, byte: &u8| automaton.step(state, *byte);
                let state = rest.fold(automaton.start(), step);
                (string.escapes * states + usize::from(state)) as u8
            }));
        }
    }
    let steps = of_states().flat_map(|state| codes().map(move |byte| automaton.step(state, byte)));
    let all = || (0..tables).flat_map(|table| codes().map(move |code| symbols.symbol(table, code)));
    let padded = |symbol: &[u8]| {
        let mut bytes = [0; SYMBOL_BYTES];
        bytes[..symbol.len()].copy_from_slice(symbol);
        bytes
    };
    let lengths = all().map(|symbol| symbol.len() as u8);

    let accepts = of_states().filter(|state| automaton.accepts(*state));
    let accepts = accepts.fold(0u64, |bits, state| bits | 1 << state);
    let mut places = [HEADER_WORDS * 4 + entries.len(); 4];
    places[1] += ends.len();
    places[2] = places[1] + states * 256;
    places[3] = places[2] + tables * (SYMBOL_BYTES + 1) * 256;
    let [ends_at, steps_at, symbols_at, behind_at] = places;
    let header: [usize; HEADER_WORDS] = [
        states,
        automaton.start().into(),
        tables,
        automaton.is_anywhere().into(),
        accepts as u32 as usize,
        (accepts >> 32) as usize,
        steps_at,
        symbols_at,
        ends_at,
        behind_at,
        // entries lie at a multiple of 16
        0,
        0,
    ];
    let mut out = Vec::with_capacity(behind_at + behind.len());
    out.extend(header.iter().flat_map(|word| (*word as u32).to_le_bytes()));
    out.extend(entries);
    out.extend(ends);
    out.extend(steps);
    out.extend(all().flat_map(padded));
    out.extend(lengths);
    out.extend(behind);
    debug_assert!(out.len() <= most_bytes(automaton, symbols));
    out
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
