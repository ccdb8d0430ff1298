//! Deterministic automata over bytes: which strings pass a test.

/// Tells, byte by byte, whether a string passes a test. States are numbers; from one it goes to the next with each
/// byte, and the string passes if the last one accepts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Automaton {
    /// For each state, the next one for each byte.
    next: Vec<[u8; 256]>,
    accepts: Vec<bool>,
    start: u8,
}

impl Automaton {
    /// States that an automaton has at most: kernels have tables of four times as many rows.
    pub const MOST_STATES: usize = 63;

    /// The first state.
    pub fn start(&self) -> u8 {
        self.start
    }

    /// The number of states.
    pub fn states(&self) -> usize {
        self.next.len()
    }

    /// The state after `byte`.
    pub fn step(&self, state: u8, byte: u8) -> u8 {
        let next = self.next.get(usize::from(state));
        next.map_or(0, |next| next[usize::from(byte)])
    }

    /// Whether a string passes that ends in this state.
    pub fn accepts(&self, state: u8) -> bool {
        self.accepts
            .get(usize::from(state))
            .is_some_and(|accepts| *accepts)
    }

    /// Whether a string passes.
    pub fn matches(&self, bytes: &[u8]) -> bool {
        let last = bytes
            .iter()
            .fold(self.start, |state, byte| self.step(state, *byte));
        self.accepts(last)
    }

    /// x
    pub fn is_anywhere(&self) -> bool {
        false
    }
    /// x
    pub fn of_predicate(_: &vectile_encodings::Predicate) -> Option<Self> {
        None
    }
    /// x
    pub fn make(next: Vec<[u8; 256]>, accepts: Vec<bool>, start: u8) -> Self {
        Self {
            next,
            accepts,
            start,
        }
    }
}
