//! Code for values and for matches.

use crate::kernel::Typed;
use vectile_pipeline::{Bounds, Type};

/// Code for a value.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub code: String,
    /// Code for its validity flag; `None` if it is never null.
    pub valid: Option<String>,
    pub of: Type,
    pub bounds: Bounds,
}

/// The current match of a loop over a list of matches.
pub(super) struct Match {
    pub number: usize,
    /// The name of its index.
    pub index: String,
    /// The name of the flag that there is a match; `None` if there always is.
    pub is_matched: Option<String>,
}

impl Value {
    /// The value of an expression.
    pub fn of(typed: &Typed, code: String, valid: Option<String>) -> Self {
        Self {
            code,
            valid,
            of: typed.of,
            bounds: typed.bounds,
        }
    }

    /// A part of a row's key, by its index.
    pub fn of_key_part(part: usize) -> Self {
        Self {
            code: format!("g{part}"),
            valid: None,
            of: Type::U64,
            bounds: Bounds(0, u64::MAX.into()),
        }
    }

    /// The C++ type it is computed in.
    pub fn name(&self) -> &'static str {
        match self.of {
            Type::F32 => "float",
            Type::F64 => "double",
            _ => self.bounds.name(),
        }
    }

    /// Code for a condition that holds if the value is true, and neither null nor false.
    pub fn truth(&self) -> String {
        match &self.valid {
            Some(valid) => format!("(({}) && ({}))", valid, self.code),
            None => format!("({})", self.code),
        }
    }
}
