//! Expressions: a value for each row.

use std::fmt;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray};

use super::automaton::Automaton;
use super::key_table::KeyTable;
use super::payload_column::PayloadColumn;
use super::types::{Literal, Type};

/// How two values of one type compare; floats in their total order, as arrow-rs does.
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
    /// `%`; as division.
    Remainder,
}

/// A part of a date, from days since 1970-01-01 (proleptic Gregorian calendar); an `I32`. Null beyond the
/// years that arrow-rs knows, -262143 to 262142.
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

/// A value for each row.
#[derive(Clone, Debug, PartialEq)]
pub enum Expr {
    /// A column, by its number in [`Pipeline::columns`](super::Pipeline::columns).
    Column(usize),
    /// The same for every row. An argument of the kernel: another one is no other kernel.
    Literal(Literal),
    /// A constant of this type that is not known yet, by its number among such. There is no kernel for it: a literal takes
    /// its place before the pipeline runs.
    Parameter(usize, Type),
    /// Compares two values of one type.
    Compare(Comparison, Box<Expr>, Box<Expr>),
    /// All are true (three-valued).
    And(Vec<Expr>),
    /// Some is true (three-valued).
    Or(Vec<Expr>),
    /// Neither (three-valued).
    Not(Box<Expr>),
    /// Whether it is null; never null itself. Of a column, of which the values are not read, it may be of any type.
    IsNull(Box<Expr>),
    /// Arithmetic on two values of one type, which is the result's. Integers wrap around, but for
    /// `I128` (decimals, whose overflow is an error for DataFusion): there the data must rule
    /// overflow out, or no kernel is generated. Floats are rounded after each operation.
    Arithmetic(Arithmetic, Box<Expr>, Box<Expr>),
    /// `0 - x`, as [`Expr::Arithmetic`].
    Negate(Box<Expr>),
    /// Conversion that cannot fail: integers to wider integers or to narrower ones if the data fit
    /// (else no kernel is generated), integers and floats to floats, to the nearest.
    Cast(Box<Expr>, Type),
    /// The value behind the first condition that is true, else the last one (or null).
    Case(Vec<(Expr, Expr)>, Option<Box<Expr>>),
    /// A part of a date in days.
    DatePart(DatePart, Box<Expr>),
    /// Whether a value of a column passes a test; null where it is null. As [`Filter::Values`](super::Filter::Values) has it.
    Values(usize, ValueTest),
    /// What the key that a row has in one of [`Pipeline::lookups`](super::Pipeline::lookups) stands for: the value of the
    /// key's code. Null where the key is not there.
    Payload(usize, Arc<PayloadColumn>),
    /// The code of the key that a row has in one of [`Pipeline::lookups`](super::Pipeline::lookups), a `U32`. Null where
    /// the key is not there.
    Code(usize),
    /// The code that a computed key, an integer, has in a table, a `U32`. Null where the key is null or not there.
    Probe(Box<Expr>, Arc<KeyTable>),
    /// The value of a code, which an expression gives. Null where the code is.
    PayloadOf(Box<Expr>, Arc<PayloadColumn>),
    /// Which partner is at hand, of those of that number in [`Pipeline::matches`](super::Pipeline::partners) or of the
    /// [`Exists`] around it: its place among all, a `U32`. Null if the row has none.
    Match(usize),
    /// Whether some partner of the row meets a condition. Never null.
    Exists(Box<Exists>),
    /// The sum of some values over their number, rounded towards zero; null where that is 0. The number is an `I64` that is
    /// not negative, the sum an integer of any type.
    Average(Box<Expr>, Box<Expr>),
    /// A double as the nearest integer, an `I128`; of two that are as near, the one farther from zero. What it is computed of
    /// must rule out that it is more than this, or less than its negative: integers, and constants.
    Rounded(Box<Expr>, i128),
    /// A column of text or binary, as the number that its value has among all of the batch: only as an output of which
    /// [`Build`](crate::Build) makes tables.
    Numbered(usize),
    /// The row's number in the batch, an `I64`: only as such an output, too.
    RowNumber,
}

/// Those that a row has in a table where a key may be there more than once.
#[derive(Clone, Debug, PartialEq)]
pub struct Matches {
    /// The code of the row's key, a `U32`; null if it has no partner.
    pub code: Expr,
    /// Of each code, where its partners begin: a `UInt32`. They lie one behind the other, as
    /// [`Expr::Match`] numbers them.
    pub first: Arc<PayloadColumn>,
    /// Of each code, how many there are: a `UInt32`.
    pub count: Arc<PayloadColumn>,
    /// Partners of the code that has most of them.
    pub most: u32,
    /// Whether a row without a partner counts once, where rows count once for each of them.
    pub is_outer: bool,
}

/// A question about partners of a row, which count once however many there are: that of `EXISTS`.
#[derive(Clone, Debug, PartialEq)]
pub struct Exists {
    /// Those that the row has. Whether a row without any counts does not matter.
    pub matches: Matches,
    /// The number by which the condition asks for [`Expr::Match`]: beyond those of
    /// [`Pipeline::matches`](super::Pipeline::partners), and another one for each such question.
    pub number: usize,
    /// What one of them has to meet, a boolean.
    pub condition: Expr,
}

impl Expr {
    /// The same with others in the place of the parts of which `other` says one; it is not asked about their parts.
    ///
    /// # Errors
    ///
    /// Those of `other`.
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
            | Self::Numbered(_)
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

    /// Whether it, or some part of it, is such an expression.
    pub(crate) fn any(&self, is_such: &impl Fn(&Self) -> bool) -> bool {
        let mut any = is_such(self);
        self.for_parts(|part| any = any || part.any(is_such));
        any
    }

    /// Calls `f` with each of the values that it is made of.
    pub(crate) fn for_parts<'a>(&'a self, mut f: impl FnMut(&'a Self)) {
        match self {
            Self::Column(_)
            | Self::Values(..)
            | Self::Literal(_)
            | Self::Payload(..)
            | Self::Code(_)
            | Self::Match(_)
            | Self::Numbered(_)
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

/// A deterministic test of one column's values: an entry for each, null counts as false. Nulls are
/// not asked about.
#[derive(Clone)]
pub struct ValueTest {
    function: Arc<ValueFunction>,
    pub(crate) automaton: Option<Arc<Automaton>>,
}

impl ValueTest {
    /// The test that `function` does.
    pub fn new(function: Arc<ValueFunction>) -> Self {
        Self {
            function,
            automaton: None,
        }
    }

    /// Which values pass.
    ///
    /// # Errors
    ///
    /// Those of the function.
    pub fn evaluate(&self, values: &ArrayRef) -> vectile_encodings::Result<BooleanArray> {
        (self.function)(values)
    }

    /// The same of text, which `automaton` tells byte by byte: then it need not be in dictionaries.
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

/// What a [`ValueTest`] does.
pub type ValueFunction = dyn Fn(&ArrayRef) -> vectile_encodings::Result<BooleanArray> + Send + Sync;

impl fmt::Debug for ValueTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueTest")
    }
}
