//! Code for a value, and for a row of a joined table.

use crate::kernel::{Bounds, Typed};
use crate::plan::Type;

/// Code for a value.
#[derive(Clone, Debug)]
pub(super) struct Value {
    pub code: String,
    /// Code for whether it is not null; `None` if it never is.
    pub valid: Option<String>,
    pub of: Type,
    pub bounds: Bounds,
}

/// The row of a joined table that the loop over a list has reached.
pub(super) struct Match {
    pub number: usize,
    /// The name of its place.
    pub place: String,
    /// The name of what says whether there is one; `None` if there always is.
    pub is_there: Option<String>,
}

impl Value {
    /// That of an expression.
    pub fn of(typed: &Typed, code: String, valid: Option<String>) -> Self {
        Self {
            code,
            valid,
            of: typed.of,
            bounds: typed.bounds,
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

    /// Code that is true if it is true, and neither null nor false.
    pub fn truth(&self) -> String {
        match &self.valid {
            Some(valid) => format!("(({}) && ({}))", valid, self.code),
            None => format!("({})", self.code),
        }
    }
}
