//! Regular expressions as automata, which match what the crate `regex` does, by the automata of its makers.

use regex_automata::dfa::Automaton as _;
use regex_automata::dfa::dense::{Builder, Config};
use regex_automata::util::{start, syntax};
use regex_automata::{Anchored, MatchKind};

use super::automaton::Automaton;

/// Bytes that an automaton may take before it is minimized, and what makes it.
const MOST_BYTES: usize = 1 << 20;

impl Automaton {
    /// The strings of UTF-8 in which a regular expression finds something. `None` also if it is none, or looks at
    /// words of all alphabets.
    pub fn regex(pattern: &str, ignores_case: bool) -> Option<Self> {
        let config = Config::new()
            .match_kind(MatchKind::All)
            .dfa_size_limit(Some(MOST_BYTES))
            .determinize_size_limit(Some(MOST_BYTES));
        let syntax = syntax::Config::new().case_insensitive(ignores_case);
        let mut builder = Builder::new();
        let dfa = builder.configure(config).syntax(syntax).build(pattern);
        let dfa = dfa.ok()?;
        let start = start::Config::new().anchored(Anchored::No);
        let start = dfa.start_state(&start).ok()?;
        // Once something is found, what follows does not matter. States say so a byte late.
        let unless_found = |state| (!dfa.is_match_state(state)).then_some(state);
        let step = |state: &Option<_>, byte| unless_found(dfa.next_state((*state)?, byte));
        Self::build(Some(start), step, |state| {
            state.is_none_or(|state| dfa.is_match_state(dfa.next_eoi_state(state)))
        })
    }
}
