//! Codes of rows: small numbers that identify the payloads of a key.

use std::sync::Arc;

use crate::expr::Expr;
use crate::join::{KeyTable, PayloadColumn};

/// How a row gets a code of a build table. A row without a match has none.
///
/// A code is no value: it says neither that a payload is null nor that two payloads differ. A payload column turns it
/// into one ([`Expr::Payload`]), and [`Expr::Unmatched`] asks if there is any.
#[derive(Clone, Debug, PartialEq)]
pub enum Code {
    /// The code of a row's key in one of [`Pipeline::lookups`](crate::Pipeline::lookups).
    Lookup(usize),
    /// The code of a computed integer key in a table. A null key has none.
    Probe(Box<Expr>, Arc<KeyTable>),
    /// Index of the current match, among the matches of all codes. The number selects an element of
    /// [`Pipeline::matches`](crate::Pipeline::matches) or the enclosing [`Exists`](crate::Exists).
    Match(usize),
    /// The code that a column of codes (`UInt32`) has for another code.
    Listed(Box<Code>, Arc<PayloadColumn>),
    /// A code for rows for which a boolean is true.
    If(Box<Expr>, Box<Code>),
}

impl Code {
    /// Replaces expressions within the code, as [`Expr::replaced`].
    ///
    /// # Errors
    ///
    /// The errors of `other`.
    pub fn replaced<E>(
        &self,
        other: &mut impl FnMut(&Expr) -> Result<Option<Expr>, E>,
    ) -> Result<Self, E> {
        Ok(match self {
            Self::Lookup(_) | Self::Match(_) => self.clone(),
            Self::Probe(key, table) => Self::Probe(key.replaced(other)?.into(), Arc::clone(table)),
            Self::Listed(code, codes) => {
                Self::Listed(code.replaced(other)?.into(), Arc::clone(codes))
            }
            Self::If(condition, code) => {
                let condition = condition.replaced(other)?;
                Self::If(condition.into(), code.replaced(other)?.into())
            }
        })
    }

    /// Calls `f` with this code, then with those that it is made of and those in its expressions.
    pub fn visit(&self, f: &mut impl FnMut(&Self)) {
        f(self);
        match self {
            Self::Lookup(_) | Self::Match(_) => {}
            Self::Probe(key, _) => key.visit_codes(f),
            Self::Listed(code, _) => code.visit(f),
            Self::If(condition, code) => {
                condition.visit_codes(f);
                code.visit(f);
            }
        }
    }

    /// Calls `f` with each expression that the code is computed from.
    pub fn for_exprs<'a>(&'a self, f: &mut impl FnMut(&'a Expr)) {
        match self {
            Self::Lookup(_) | Self::Match(_) => {}
            Self::Probe(key, _) => f(key),
            Self::Listed(code, _) => code.for_exprs(f),
            Self::If(condition, code) => {
                f(condition);
                code.for_exprs(f);
            }
        }
    }
}
