//! The steps of an automaton over codes: a code leads from one state to the next as its bytes do.

use crate::codecs::fsst::ESCAPE;
use crate::codecs::strings::entries::Entries;
use crate::codecs::strings::symbols::SymbolTable;
use crate::text::Automaton;

/// The most codes of a vocabulary.
const CODES: usize = 1 << 12;
/// Bytes between the states of a code. Not a power of two, so that they do not share few lines of the nearest cache.
const STRIDE: usize = CODES + 64;
/// The length of a code that has no bytes: longer than any, so that it does not end a string that the code begins.
const ABSENT: u8 = u8::MAX;

/// For each state, the next one for each code, and the bytes of each code.
///
/// A vocabulary with escapes has two states for each of the automaton's: the second one is that after an escape, in
/// which codes are bytes.
pub(super) struct CodeTable {
    next: Vec<[u8; STRIDE]>,
    lengths: Box<[u8; CODES]>,
    accepts: Vec<bool>,
    code_bits: usize,
    has_escapes: bool,
}

impl CodeTable {
    /// The state of a walk at the start of a string.
    pub const START: u8 = 0;

    /// The steps of codes of entries.
    pub fn of_entries(automaton: &Automaton, entries: &Entries) -> Self {
        let mut table = Self::new(automaton, automaton.states(), entries.code_bits());
        for (slot, length) in table.lengths.iter_mut().zip(entries.lengths()) {
            *slot = length;
        }
        let mut code = 0;
        for byte in entries.singles() {
            for (state, next) in table.states() {
                next[code] = automaton.step(state, byte);
            }
            code += 1;
        }
        for [first, second] in entries.parts() {
            for state in 0..automaton.states() {
                let between = table.step(state as u8, usize::from(*first));
                table.next[state][code] = table.step(between, usize::from(*second));
            }
            code += 1;
        }
        table
    }

    /// The steps of codes of symbols.
    pub fn of_symbols(automaton: &Automaton, symbols: &SymbolTable) -> Self {
        let states = automaton.states();
        let mut table = Self::new(automaton, 2 * states, 8);
        table.has_escapes = true;
        for code in (0..=u8::MAX).filter(|code| *code != ESCAPE) {
            let (code, symbol) = (usize::from(code), symbols.symbol(usize::from(code)));
            if symbol.is_empty() {
                continue;
            }
            table.lengths[code] = symbol.len() as u8;
            for (state, next) in table.states().take(states) {
                let bytes = symbol.iter();
                next[code] = bytes.fold(state, |state, byte| automaton.step(state, *byte));
            }
        }
        table.lengths[usize::from(ESCAPE)] = 0;
        for state in 0..states {
            table.next[state][usize::from(ESCAPE)] = (states + state) as u8;
            for byte in 0..=u8::MAX {
                table.next[states + state][usize::from(byte)] = automaton.step(state as u8, byte);
            }
        }
        table
    }

    /// A table of `states` states, in which no code has a next state but [`dead`](Self::dead).
    fn new(automaton: &Automaton, states: usize, code_bits: usize) -> Self {
        let accepts = (0..automaton.states()).map(|state| automaton.accepts(state as u8));
        Self {
            next: vec![[states as u8; STRIDE]; states + 1],
            lengths: Box::new([ABSENT; CODES]),
            accepts: accepts.collect(),
            code_bits,
            has_escapes: false,
        }
    }

    fn states(&mut self) -> impl Iterator<Item = (u8, &mut [u8; STRIDE])> {
        (0..self.dead()).zip(&mut self.next)
    }

    /// The state behind a code without bytes, from which none leads to another.
    pub fn dead(&self) -> u8 {
        (self.next.len() - 1) as u8
    }

    /// The state after `code`.
    #[inline(always)]
    pub fn step(&self, state: u8, code: usize) -> u8 {
        self.next[usize::from(state)][code % CODES]
    }

    /// The number of bytes of `code`, unless it is one after an escape; 0 for an escape.
    #[inline(always)]
    pub fn length(&self, code: usize) -> u8 {
        self.lengths[code % CODES]
    }

    /// Returns true if strings that end in this state pass.
    pub fn accepts(&self, state: u8) -> bool {
        self.accepts
            .get(usize::from(state))
            .is_some_and(|accepts| *accepts)
    }

    /// Bits per code.
    pub fn code_bits(&self) -> usize {
        self.code_bits
    }

    /// Returns true if a code after an [`ESCAPE`] is a byte.
    pub fn has_escapes(&self) -> bool {
        self.has_escapes
    }
}
