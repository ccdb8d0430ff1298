//! Regular expressions as automata. They match the same strings as the crate `regex`, whose `regex-automata` builds
//! them.

use regex_automata::dfa::Automaton as _;
use regex_automata::dfa::dense::{Builder, Config};
use regex_automata::nfa::thompson::{self, WhichCaptures};
use regex_automata::util::{start, syntax};
use regex_automata::{Anchored, MatchKind};

use super::automaton::Automaton;

/// Maximum bytes of an automaton before it is minimized, and of each step of its construction.
const MOST_BYTES: usize = 1 << 20;

impl Automaton {
    /// Accepts the UTF-8 strings in which a regular expression has a match. `None` also if the pattern is invalid, or
    /// uses Unicode word boundaries.
    pub fn regex(pattern: &str, ignores_case: bool) -> Option<Self> {
        let nfa_config = thompson::Config::new()
            .which_captures(WhichCaptures::None)
            .nfa_size_limit(Some(MOST_BYTES));
        let syntax = syntax::Config::new().case_insensitive(ignores_case);
        let mut compiler = thompson::Compiler::new();
        let nfa = compiler.configure(nfa_config).syntax(syntax).build(pattern);
        let nfa = nfa.ok()?;
        // Empty matches count between characters only, but an ASCII word boundary may lie within one.
        if nfa.has_empty() && nfa.look_set_any().contains_word_ascii() {
            return None;
        }
        let config = Config::new()
            .match_kind(MatchKind::All)
            .dfa_size_limit(Some(MOST_BYTES))
            .determinize_size_limit(Some(MOST_BYTES));
        let dfa = Builder::new().configure(config).build_from_nfa(&nfa).ok()?;
        let start = start::Config::new().anchored(Anchored::No);
        let start = dfa.start_state(&start).ok()?;
        // After a match, the rest of the string does not matter. States report a match one byte late.
        let unless_found = |state| (!dfa.is_match_state(state)).then_some(state);
        let step = |state: &Option<_>, byte| unless_found(dfa.next_state((*state)?, byte));
        Self::build(Some(start), step, |state| {
            state.is_none_or(|state| dfa.is_match_state(dfa.next_eoi_state(state)))
        })
    }
}
