//! Expressions, evaluated per row, and the codes that they are made of.

use std::any::Any;
use std::sync::Arc;
use std::{fmt, ops};

use arrow::array::{ArrayRef, BooleanArray};
use arrow::datatypes::DataType;
use vectile_encodings::Automaton;

use crate::join::{KeyTable, PayloadColumn};
use crate::op::{Arithmetic, Comparison, DatePart, Op};
use crate::types::{Literal, Type};

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
    /// An operator and its operands.
    Op(Op, Vec<Expr>),
    /// True if a column's value passes a test; null for null. Restricted like
    /// [`Filter::Values`](crate::Filter::Values).
    Values(usize, ValueTest),
    /// The result of a function for the value of a text column; null for null. A kernel looks it up by dictionary codes:
    /// text is only counted, compared and tested for null. No program is generated.
    Mapped(usize, Arc<dyn TextFunction>),
    /// The value that a payload column has for a code. Null if the row has no code.
    Payload(Code, Arc<PayloadColumn>),
    /// True if the row has no code. Never null.
    Unmatched(Code),
    /// The number of a code, a `U32`, as an output or as a part of a composite key; null if the row has no code. It is
    /// not the value of a payload.
    Id(Code),
    /// True if any match of the row meets a condition. Never null.
    Exists(Box<Exists>),
    /// The dense id of a text or binary column's value within the batch. Only as an output from which
    /// tables are built.
    DenseId(usize),
    /// The row's index in the batch, an `I64`. Only as an output from which tables are built.
    RowNumber,
}

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

/// A row's matches in a build table with duplicate keys: an offset and a count per code.
#[derive(Clone, Debug, PartialEq)]
pub struct Matches {
    /// The code of the row's key.
    pub code: Code,
    /// Per code, the offset of its first match, a `UInt32`. Matches of a code are consecutive; [`Code::Match`] is their
    /// index.
    pub offset: Arc<PayloadColumn>,
    /// Per code, the number of its matches, a `UInt32`.
    pub count: Arc<PayloadColumn>,
    /// The maximum of `count`.
    pub max_count: u32,
    /// True if a row without a match counts once (outer join). Rows with matches count once per match.
    pub is_outer: bool,
}

impl Matches {
    /// Offset and count of a row's matches; null if it has none.
    pub fn list(&self) -> [Expr; 2] {
        [&self.offset, &self.count].map(|of| Expr::Payload(self.code.clone(), Arc::clone(of)))
    }
}

/// EXISTS over a row's matches: the row counts once, regardless of how many meet the condition.
#[derive(Clone, Debug, PartialEq)]
pub struct Exists {
    /// The row's matches. `is_outer` is ignored.
    pub matches: Matches,
    /// The number of [`Code::Match`] in the condition: unique for each `Exists`, and not an index of
    /// [`Pipeline::matches`](crate::Pipeline::matches).
    pub number: usize,
    /// The condition on a match, a boolean.
    pub condition: Expr,
}

/// Operators with their operands.
impl Expr {
    /// [`Op::Compare`].
    pub fn compare(comparison: Comparison, a: Self, b: Self) -> Self {
        Self::Op(Op::Compare(comparison), vec![a, b])
    }

    /// [`Op::And`].
    pub fn and(parts: Vec<Self>) -> Self {
        Self::Op(Op::And, parts)
    }

    /// [`Op::Or`].
    pub fn or(parts: Vec<Self>) -> Self {
        Self::Op(Op::Or, parts)
    }

    /// [`Op::IsNull`].
    pub fn is_null(part: Self) -> Self {
        Self::Op(Op::IsNull, vec![part])
    }

    /// [`Op::Arithmetic`].
    pub fn arithmetic(operation: Arithmetic, a: Self, b: Self) -> Self {
        Self::Op(Op::Arithmetic(operation), vec![a, b])
    }

    /// [`Op::Negate`].
    pub fn negate(part: Self) -> Self {
        Self::Op(Op::Negate, vec![part])
    }

    /// [`Op::Cast`].
    pub fn cast(part: Self, to: Type) -> Self {
        Self::Op(Op::Cast(to), vec![part])
    }

    /// [`Op::Case`].
    pub fn case(whens: Vec<(Self, Self)>, otherwise: Option<Self>) -> Self {
        let operands = whens.into_iter().flat_map(|(when, then)| [when, then]);
        Self::Op(Op::Case, operands.chain(otherwise).collect())
    }

    /// [`Op::DatePart`].
    pub fn date_part(part: DatePart, date: Self) -> Self {
        Self::Op(Op::DatePart(part), vec![date])
    }

    /// [`Op::FloorDivide`].
    pub fn floor_divide(part: Self, divisor: i64) -> Self {
        Self::Op(Op::FloorDivide(divisor), vec![part])
    }

    /// [`Op::Average`].
    pub fn average(sum: Self, count: Self) -> Self {
        Self::Op(Op::Average, vec![sum, count])
    }

    /// [`Op::Rounded`].
    pub fn rounded(part: Self, most: i128) -> Self {
        Self::Op(Op::Rounded(most), vec![part])
    }
}

/// [`Op::Not`].
impl ops::Not for Expr {
    type Output = Self;

    fn not(self) -> Self {
        Self::Op(Op::Not, vec![self])
    }
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
        Ok(match self {
            Self::Column(_)
            | Self::Values(..)
            | Self::Mapped(..)
            | Self::Literal(_)
            | Self::DenseId(_)
            | Self::RowNumber
            | Self::Parameter(..) => self.clone(),
            Self::Op(op, parts) => {
                let parts = parts.iter().map(|part| part.replaced(other));
                Self::Op(*op, parts.collect::<Result<_, E>>()?)
            }
            Self::Payload(code, values) => Self::Payload(code.replaced(other)?, Arc::clone(values)),
            Self::Unmatched(code) => Self::Unmatched(code.replaced(other)?),
            Self::Id(code) => Self::Id(code.replaced(other)?),
            Self::Exists(some) => {
                let matches = Matches {
                    code: some.matches.code.replaced(other)?,
                    ..some.matches.clone()
                };
                Self::Exists(Box::new(Exists {
                    matches,
                    number: some.number,
                    condition: some.condition.replaced(other)?,
                }))
            }
        })
    }

    /// Returns true if `is_such` holds for the expression or any part of it.
    pub fn any(&self, is_such: &impl Fn(&Self) -> bool) -> bool {
        let mut any = is_such(self);
        self.for_parts(|part| any = any || part.any(is_such));
        any
    }

    /// Returns true if `is_such` holds for a code of the expression, or of any part of it.
    pub fn any_code(&self, is_such: &impl Fn(&Code) -> bool) -> bool {
        let mut any = false;
        self.visit_codes(&mut |code| any = any || is_such(code));
        any
    }

    /// Calls `f` with each code of the expression and of its parts, from left to right.
    pub fn visit_codes(&self, f: &mut impl FnMut(&Code)) {
        match self {
            Self::Payload(code, _) | Self::Unmatched(code) | Self::Id(code) => code.visit(f),
            Self::Exists(some) => {
                some.matches.code.visit(f);
                some.condition.visit_codes(f);
            }
            Self::Op(_, parts) => parts.iter().for_each(|part| part.visit_codes(f)),
            Self::Column(_)
            | Self::Values(..)
            | Self::Mapped(..)
            | Self::Literal(_)
            | Self::DenseId(_)
            | Self::RowNumber
            | Self::Parameter(..) => {}
        }
    }

    /// Adds the columns that are arguments of functions of text.
    pub(crate) fn add_mapped_columns(&self, columns: &mut Vec<usize>) {
        match self {
            Self::Mapped(column, _) => columns.push(*column),
            _ => self.for_parts(|part| part.add_mapped_columns(columns)),
        }
    }

    /// The largest number of a [`Code::Match`] in the expression that is not of an [`Exists`] within it.
    pub fn last_match(&self) -> Option<usize> {
        fn add_own(expr: &Expr, own: &mut Vec<usize>) {
            if let Expr::Exists(some) = expr {
                own.push(some.number);
            }
            expr.for_parts(|part| add_own(part, own));
        }
        // an EXISTS shares its number with no other matches of a pipeline
        let (mut own, mut last) = (vec![], None);
        add_own(self, &mut own);
        self.visit_codes(&mut |code| match code {
            Code::Match(number) if !own.contains(number) => last = last.max(Some(*number)),
            _ => {}
        });
        last
    }

    /// The column that this expression tests for nulls, if it is such a test: it does not read the column's values.
    pub fn null_tested_column(&self) -> Option<usize> {
        match self {
            Self::Op(Op::IsNull, operands) => match operands[..] {
                [Self::Column(column)] => Some(column),
                _ => None,
            },
            _ => None,
        }
    }

    /// Calls `f` with each direct operand, and with the expressions that codes are computed from.
    pub fn for_parts<'a>(&'a self, mut f: impl FnMut(&'a Self)) {
        match self {
            Self::Column(_)
            | Self::Values(..)
            | Self::Mapped(..)
            | Self::Literal(_)
            | Self::DenseId(_)
            | Self::RowNumber
            | Self::Parameter(..) => {}
            Self::Op(_, parts) => parts.iter().for_each(f),
            Self::Payload(code, _) | Self::Unmatched(code) | Self::Id(code) => {
                code.for_exprs(&mut f);
            }
            Self::Exists(some) => {
                some.matches.code.for_exprs(&mut f);
                f(&some.condition);
            }
        }
    }
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

/// A deterministic function of the values of one text column.
pub trait TextFunction: fmt::Debug + Send + Sync {
    /// The type of its results.
    fn data_type(&self) -> &DataType;

    /// Computes the result for each value, none of which is null. A result may be null.
    ///
    /// # Errors
    ///
    /// Those of the function.
    fn evaluate(&self, values: &ArrayRef) -> vectile_encodings::Result<ArrayRef>;

    /// Returns true if each result is the value.
    fn is_identity(&self) -> bool;

    /// Returns true if `other` has the same results.
    fn is_same(&self, other: &dyn TextFunction) -> bool;

    /// For [`is_same`](Self::is_same).
    fn as_any(&self) -> &dyn Any;
}

impl PartialEq for dyn TextFunction {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other)
    }
}

/// The function of a [`ValueTest`].
pub type ValueFunction = dyn Fn(&ArrayRef) -> vectile_encodings::Result<BooleanArray> + Send + Sync;

impl fmt::Debug for ValueTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ValueTest")
    }
}
