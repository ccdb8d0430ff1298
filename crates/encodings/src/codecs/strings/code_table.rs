//! The steps of an automaton over codes: a code leads from one state to the next as its bytes do.

use crate::codecs::strings::entries::Entries;
use crate::text::Automaton;

/// The most codes of a vocabulary.
const CODES: usize = 1 << 12;
/// The length of a code without an entry: not 0, so that a walk takes no string's end for that of the next one.
const ABSENT: u8 = u8::MAX;

/// For each state, the next one for each code, and the bytes of each code.
pub(super) struct CodeTable {
    next: Vec<[u8; CODES]>,
    lengths: Box<[u8; CODES]>,
    accepts: Vec<bool>,
    code_bits: usize,
}

impl CodeTable {
    /// The state of a walk at the start of a string.
    pub const START: u8 = 0;

    /// The steps of an automaton.
    pub fn of(automaton: &Automaton, entries: &Entries) -> Self {
        let mut table = Self::new(automaton, entries.code_bits());
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

    /// A table without codes: all lead to the state [`dead`](Self::dead).
    fn new(automaton: &Automaton, code_bits: usize) -> Self {
        let states = automaton.states();
        let accepts = (0..states).map(|state| automaton.accepts(state as u8));
        Self {
            next: vec![[states as u8; CODES]; states + 1],
            lengths: Box::new([ABSENT; CODES]),
            accepts: accepts.collect(),
            code_bits,
        }
    }

    fn states(&mut self) -> impl Iterator<Item = (u8, &mut [u8; CODES])> {
        (0..self.dead()).zip(&mut self.next)
    }

    /// The state after a code without an entry, from which no code leads to another state.
    pub fn dead(&self) -> u8 {
        (self.next.len() - 1) as u8
    }

    /// The state after `code`.
    #[inline(always)]
    pub fn step(&self, state: u8, code: usize) -> u8 {
        self.next[usize::from(state)][code % CODES]
    }

    /// The number of bytes of `code`.
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
}
