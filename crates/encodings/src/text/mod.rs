//! Tests of text as automata over its bytes.

mod automaton;
mod like;
mod regex;

pub use automaton::Automaton;
