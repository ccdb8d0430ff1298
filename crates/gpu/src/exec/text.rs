//! Tests of strings in splits: an automaton over bytes, folded over the symbols that codes stand for.

use std::mem::take;

use vectile_kernels::Symbols;

use crate::plan::Automaton;

/// The code behind which another stands for itself.
const ESCAPE: u8 = 255;
const HEADER_BYTES: usize = 32;
/// Bytes of a symbol.
const SYMBOL_BYTES: usize = 8;

/// The test for chunks that have these symbol tables, as `text.cuh` reads it.
pub(super) fn folded(automaton: &Automaton, symbols: &Symbols) -> Vec<u8> {
    let states = automaton.states();
    let rows = states << symbols.tables();
    let bytes_at = HEADER_BYTES + rows * 512;
    let symbols_at = bytes_at + states * 256;
    let of_states = || (0..states).map(|state| state as u8);
    let accepts = of_states().filter(|state| automaton.accepts(*state));
    let accepts = accepts.fold(0u64, |bits, state| bits | 1 << state);
    let mut out = Vec::with_capacity(symbols_at + symbols.tables() * (SYMBOL_BYTES + 1) * 256);
    let mut words = |words: &[usize]| {
        let words = words.iter().map(|word| *word as u32);
        words.for_each(|word| out.extend(word.to_le_bytes()));
    };
    let is_anywhere = usize::from(automaton.is_anywhere());
    words(&[
        states,
        usize::from(automaton.start()),
        symbols.tables(),
        is_anywhere,
    ]);
    words(&[accepts as u32 as usize, (accepts >> 32) as usize]);
    words(&[bytes_at, symbols_at]);
    for row in 0..rows {
        for code in 0..=u8::MAX {
            let mut walk = Walk {
                automaton,
                symbols,
                state: (row % states) as u8,
                is_first: row / states & 1 != 0,
                is_second: row / states & 2 != 0,
                bytes: 0,
            };
            walk.code(code);
            out.extend(walk.entry().to_le_bytes());
        }
    }
    for state in of_states() {
        out.extend((0..=u8::MAX).map(|byte| automaton.step(state, byte)));
    }
    let all =
        || (0..symbols.tables()).flat_map(|table| (0..=u8::MAX).map(move |code| (table, code)));
    for (table, code) in all() {
        let symbol = symbols.symbol(table, code);
        out.extend((0..SYMBOL_BYTES).map(|byte| symbol.get(byte).copied().unwrap_or(0)));
    }
    out.extend(
        all().map(|(table, code)| symbols.symbol(table, code).len().min(SYMBOL_BYTES) as u8),
    );
    out
}

/// What becomes of a state with a code.
struct Walk<'a> {
    automaton: &'a Automaton,
    symbols: &'a Symbols,
    state: u8,
    /// Whether the next code of the table that was applied first stands for itself.
    is_first: bool,
    /// The same of the second.
    is_second: bool,
    bytes: u16,
}

impl Walk<'_> {
    fn code(&mut self, code: u8) {
        match self.symbols.tables() {
            0 => self.byte(code),
            1 => self.code_of_first(code),
            _ if take(&mut self.is_second) => self.code_of_first(code),
            _ if code == ESCAPE => self.is_second = true,
            _ => {
                let inner = self.symbols.symbol(1, code).iter();
                inner.for_each(|code| self.code_of_first(*code));
            }
        }
    }

    fn code_of_first(&mut self, code: u8) {
        if take(&mut self.is_first) {
            self.byte(code);
        } else if code == ESCAPE {
            self.is_first = true;
        } else {
            let bytes = self.symbols.symbol(0, code).iter();
            bytes.for_each(|byte| self.byte(*byte));
        }
    }

    fn byte(&mut self, byte: u8) {
        self.state = self.automaton.step(self.state, byte);
        self.bytes += 1;
    }

    /// The row of the table that comes next, and bytes.
    fn entry(&self) -> u16 {
        let escapes = usize::from(self.is_first) + 2 * usize::from(self.is_second);
        let row = escapes * self.automaton.states() + usize::from(self.state);
        row as u16 | self.bytes << 8
    }
}
