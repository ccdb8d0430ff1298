//! Expressions, evaluated per row.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};

use crate::join::{KeyTable, PayloadColumn};
use crate::text::Automaton;
use crate::types::{Literal, Type};

/// A comparison of two values of one type; floats compare in their total order, as in arrow-rs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Comparison {
    /// `=`
    Equal,
    /// `<>`
    NotEqual,
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

/// Arithmetic on two values of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// `+`
    Add,
    /// `-`
    Subtract,
    /// `*`
    Multiply,
    /// `/`; integers only by a constant other than 0 and -1, rounding towards zero.
    Divide,
    /// `%`; restricted like [`Divide`](Self::Divide).
    Remainder,
}

/// A part of a date, from days since 1970-01-01 (proleptic Gregorian calendar); an `I32`. Null outside the
/// years that arrow-rs supports, -262143 to 262142.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DatePart {
    /// The year.
    Year,
    /// 1 to 4.
    Quarter,
    /// 1 to 12.
    Month,
    /// 1 to 31.
    Day,
    /// Sunday is 0.
    DayOfWeek,
    /// 1 to 366.
    DayOfYear,
}

/// An expression, evaluated per row.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A column, by its index in [`Pipeline::columns`](crate::Pipeline::columns).
    Column(usize),
    /// A constant. It is an argument of the kernel: pipelines that differ only in constants share a kernel.
    Literal(Literal),
    /// A constant of this type that is not known yet, by its index among parameters. A literal must replace it before
    /// the pipeline runs: no kernel is generated for it.
    Parameter(usize, Type),
    /// Compares two values of one type.
    Compare(Comparison, Box<Expr>, Box<Expr>),
    /// True if all are (three-valued).
    And(Vec<Expr>),
    /// True if any is (three-valued).
    Or(Vec<Expr>),
    /// The negation (three-valued).
    Not(Box<Expr>),
    /// True if the value is null; never null itself. A column may be of any type here, as its values are not read.
    IsNull(Box<Expr>),
    /// Arithmetic on two values of one type; the result has the same type. Integers wrap around, except
    /// `I128` (decimals, whose overflow is an error in DataFusion): there the data must rule overflow out, or no kernel
    /// is generated. Floats are rounded after each operation.
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    /// `0 - x`, with the overflow rules of [`Expr::Arithmetic`].
    Negate(Box<Expr>),
    /// Conversion that cannot fail: integers to wider integers or to narrower ones if the data fit
    /// (else no kernel is generated), integers and floats to floats, to the nearest.
    Cast(Box<Expr>, Type),
    /// The value of the first condition that is true, else the default (null without one).
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
    /// A part of a date in days.
    DatePart(DatePart, Box<Expr>),
    /// True if a column's value passes a test; null for null. Restricted like
    /// [`Filter::Values`](crate::Filter::Values).
    Values(usize, ValueTest),
    /// The payload of a row's key in one of [`Pipeline::lookups`](crate::Pipeline::lookups): the value of the key's
    /// code. Null if the key is not in the table.
    Payload(usize, Arc<PayloadColumn>),
    /// The code of a row's key in one of [`Pipeline::lookups`](crate::Pipeline::lookups), a `U32`. Null if the key is
    /// not in the table.
    Code(usize),
    /// The code of a computed integer key in a table, a `U32`. Null if the key is null or not in the table.
    Probe(Box<Expr>, Arc<KeyTable>),
    /// The payload of a computed code. Null if the code is null.
    PayloadOf(Box<Expr>, Arc<PayloadColumn>),
    /// Index of the current match, a `U32`, among the matches of all codes. The number selects an element of
    /// [`Pipeline::matches`](crate::Pipeline::matches) or the enclosing [`Exists`]. Null if the row has no match.
    Match(usize),
    /// True if any match of the row meets a condition. Never null.
    Exists(Box<Exists>),
    /// A sum divided by a count, rounded towards zero; null if the count is 0. The sum is an integer of any type, the
    /// count a non-negative `I64`.
    Average(Box<Expr>, Box<Expr>),
    /// A double rounded to the nearest integer, an `I128`; ties round away from zero. Its operands (integers and
    /// constants) must guarantee that its absolute value is at most this bound.
    Rounded(Box<Expr>, i128),
    /// The dense id of a text or binary column's value within the batch. Only as an output from which
    /// tables are built.
    DenseId(usize),
    /// The row's index in the batch, an `I64`. Only as an output from which tables are built.
    RowNumber,
}

/// A row's matches in a build table with duplicate keys: an offset and a count per code.
#[derive(Clone, Debug, PartialEq)]
pub struct Matches {
    /// The code of the row's key, a `U32`; null if the row has no match.
    pub code: Expr,
    /// Per code, the offset of its first match, a `UInt32`. Matches of a code are consecutive; [`Expr::Match`] is their
    /// index.
    pub offset: Arc<PayloadColumn>,
    /// Per code, the number of its matches, a `UInt32`.
    pub count: Arc<PayloadColumn>,
    /// The maximum of `count`.
    pub max_count: u32,
    /// True if a row without a match counts once (outer join). Rows with matches count once per match.
    pub is_outer: bool,
}

/// EXISTS over a row's matches: the row counts once, regardless of how many meet the condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Exists {
    /// The row's matches. `is_outer` is ignored.
    pub matches: Matches,
    /// The number of [`Expr::Match`] in the condition: unique for each `Exists`, and not an index of
    /// [`Pipeline::matches`](crate::Pipeline::matches).
    pub number: usize,
    /// The condition on a match, a boolean.
    pub condition: Expr,
}

impl Expr {
    /// Replaces, from the root down, each subexpression for which `other` returns another one. `other` is not called
    /// for the parts of a replaced subexpression.
    ///
    /// # Errors
    ///
    /// The errors of `other`.
    pub fn replaced<E>(
        &self,
        other: &mut impl FnMut(&Self) -> Result<Option<Self>, E>,
    ) -> Result<Self, E> {
        if let Some(other) = other(self)? {
            return Ok(other);
        }
        let mut one = |part: &Self| part.replaced(other);
        let boxed = |part: Self| Box::new(part);
        Ok(match self {
            Self::Column(_)
            | Self::Values(..)
            | Self::Literal(_)
            | Self::Payload(..)
            | Self::Code(_)
            | Self::Match(_)
            | Self::DenseId(_)
            | Self::RowNumber
            | Self::Parameter(..) => self.clone(),
            Self::Average(sum, count) => Self::Average(boxed(one(sum)?), boxed(one(count)?)),
            Self::Rounded(part, most) => Self::Rounded(boxed(one(part)?), *most),
            Self::Compare(op, a, b) => Self::Compare(*op, boxed(one(a)?), boxed(one(b)?)),
            Self::Arithmetic(op, a, b) => Self::Arithmetic(*op, boxed(one(a)?), boxed(one(b)?)),
            Self::And(parts) => Self::And(parts.iter().map(one).collect::<Result<_, E>>()?),
            Self::Or(parts) => Self::Or(parts.iter().map(one).collect::<Result<_, E>>()?),
            Self::Not(part) => Self::Not(boxed(one(part)?)),
            Self::IsNull(part) => Self::IsNull(boxed(one(part)?)),
            Self::Negate(part) => Self::Negate(boxed(one(part)?)),
            Self::Cast(part, to) => Self::Cast(boxed(one(part)?), *to),
            Self::DatePart(of, part) => Self::DatePart(*of, boxed(one(part)?)),
            Self::Probe(part, codes) => Self::Probe(boxed(one(part)?), Arc::clone(codes)),
            Self::PayloadOf(part, values) => Self::PayloadOf(boxed(one(part)?), Arc::clone(values)),
            Self::Exists(some) => {
                let matches = Matches {
                    code: one(&some.matches.code)?,
                    ..some.matches.clone()
                };
                Self::Exists(Box::new(Exists {
                    matches,
                    number: some.number,
                    condition: one(&some.condition)?,
                }))
            }
            Self::Case(whens, otherwise) => {
                let mut cases = vec![];
                for (when, then) in whens {
                    cases.push((one(when)?, one(then)?));
                }
                let otherwise = otherwise.as_deref().map(one).transpose()?;
                Self::Case(cases, otherwise.map(boxed))
            }
        })
    }

    /// Returns true if `is_such` holds for the expression or any part of it.
    pub fn any(&self, is_such: &impl Fn(&Self) -> bool) -> bool {
        let mut any = is_such(self);
        self.for_parts(|part| any = any || part.any(is_such));
        any
    }

    /// Calls `f` with each direct operand.
    pub fn for_parts<'a>(&'a self, mut f: impl FnMut(&'a Self)) {
        match self {
            Self::Column(_)
            | Self::Values(..)
            | Self::Literal(_)
            | Self::Payload(..)
            | Self::Code(_)
            | Self::Match(_)
            | Self::DenseId(_)
            | Self::RowNumber
            | Self::Parameter(..) => {}
            Self::Compare(_, a, b) | Self::Arithmetic(_, a, b) | Self::Average(a, b) => {
                [a, b].into_iter().for_each(|part| f(part))
            }
            Self::And(parts) | Self::Or(parts) => parts.iter().for_each(f),
            Self::Not(part)
            | Self::IsNull(part)
            | Self::Negate(part)
            | Self::Cast(part, _)
            | Self::Rounded(part, _)
            | Self::DatePart(_, part)
            | Self::Probe(part, _)
            | Self::PayloadOf(part, _) => f(part),
            Self::Exists(some) => {
                f(&some.matches.code);
                f(&some.condition);
            }
            Self::Case(whens, otherwise) => {
                for (when, then) in whens {
                    f(when);
                    f(then);
                }
                otherwise.iter().for_each(|part| f(part));
            }
        }
    }
}

/// A deterministic test of one column's values. The function returns one boolean per value; null counts as false. It
/// is not called with nulls.
#[derive(Clone)]
pub struct ValueTest {
    function: Arc<ValueFunction>,
    automaton: Option<Arc<Automaton>>,
}

impl ValueTest {
    /// Creates a test from `function`.
    pub fn new(function: Arc<ValueFunction>) -> Self {
        Self {
            function,
            automaton: None,
        }
    }

    /// Evaluates the test for each value.
    ///
    /// # Errors
    ///
    /// The errors of the function.
    pub fn evaluate(&self, values: &ArrayRef) -> vectile_encodings::Result<BooleanArray> {
        (self.function)(values)
    }

    /// The equivalent automaton over the bytes of text, if there is one.
    pub fn automaton(&self) -> Option<&Arc<Automaton>> {
        self.automaton.as_ref()
    }

    /// Adds an equivalent automaton over the bytes of text. With one, the column need not be stored as dictionaries.
    pub fn with_automaton(mut self, automaton: Option<Arc<Automaton>>) -> Self {
        self.automaton = automaton;
        self
    }
}

/// Tests are equal if they are the same function.
impl PartialEq for ValueTest {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.function, &other.function)
    }
}

/// The function of a [`ValueTest`].
pub type ValueFunction = dyn Fn(&ArrayRef) -> vectile_encodings::Result<BooleanArray> + Send + Sync;

impl fmt::Debug for ValueTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueTest")
    }
}
