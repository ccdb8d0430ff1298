//! The pipeline: filter, key table lookups, matches of join keys, and output.

use std::convert::Infallible;
use std::sync::Arc;

use arrow::datatypes::DataType;
use vectile_encodings::Predicate;

use crate::expr::{Code, Expr, Matches, TextFunction, ValueTest};
use crate::join::KeyTable;
use crate::op::{Arithmetic, Comparison};
use crate::types::{Literal, Type};

/// Rows pass if the filter is true for them. A null value passes no test but [`Predicate::IsNull`].
#[derive(Clone, Debug)]
pub enum Filter {
    /// Every row, or none.
    Constant(bool),
    /// A range, membership or null test of a column, evaluated on its encoded form.
    Column(usize, Predicate),
    /// Any other test of a column that is stored as a dictionary in every row group (else no kernel
    /// is generated), evaluated once per dictionary value.
    Values(usize, ValueTest),
    /// All are true.
    And(Vec<Filter>),
    /// At least one is true.
    Or(Vec<Filter>),
    /// A boolean expression is true.
    Expr(Expr),
    /// True if the row's key is in the table of this index in [`Pipeline::lookups`]; false for null.
    Matched(usize),
    /// True if the row's key is not in that table, or null.
    Unmatched(usize),
}

/// A key table that the values of a column are looked up in; a join becomes one.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The column that holds the keys, by its index in [`Pipeline::columns`].
    pub column: usize,
    /// The keys of the table, and the code of each.
    pub key_table: Arc<KeyTable>,
}

/// An expression that rows are grouped by.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupKey {
    /// An integer or boolean. The result is an array of the Arrow type of its machine type: `Int32` for [`Type::I32`]
    /// and so on.
    Value(Expr),
    /// A column that is stored as a dictionary in every row group (else no kernel is generated),
    /// usually text. The result is an array of the column's type.
    DictionaryValue(usize),
    /// The text that is the result of a function for the value of a text column; see [`Expr::Mapped`]. The result is an
    /// array of the function's type.
    Mapped(usize, Arc<dyn TextFunction>),
    /// The row's code in the table of this index in [`Pipeline::lookups`]; null if the key is not in it. The result is
    /// a `UInt32` array.
    Code(usize),
}

/// An aggregate over the rows that pass. It ignores nulls of its argument.
#[derive(Clone, Debug)]
pub enum Aggregate {
    /// The number of rows.
    CountRows,
    /// The number of values.
    Count(Expr),
    /// The number of distinct values, which are integers or booleans. No kernel is generated.
    CountDistinct(Expr),
    /// The sum; of integers exact, modulo 2^128; of floats in doubles.
    Sum(Expr),
    /// The smallest value; floats in their total order.
    Min(Expr),
    /// The largest value; floats in their total order.
    Max(Expr),
}

impl GroupKey {
    /// The column of text that is a key, or that a key is made of.
    fn text_column(&self) -> Option<usize> {
        match self {
            Self::DictionaryValue(column) | Self::Mapped(column, _) => Some(*column),
            Self::Value(_) | Self::Code(_) => None,
        }
    }

    fn replace_text_column(&mut self, of: usize, other: usize) {
        match self {
            Self::DictionaryValue(column) | Self::Mapped(column, _) if *column == of => {
                *column = other;
            }
            _ => {}
        }
    }
}

fn replaced_arguments<E>(
    aggregates: &[Aggregate],
    other: &mut impl FnMut(&Expr) -> Result<Option<Expr>, E>,
) -> Result<Vec<Aggregate>, E> {
    let aggregates = aggregates.iter();
    aggregates
        .map(|of| of.over(&mut |argument| argument.replaced(other)))
        .collect()
}

impl Filter {
    fn replaced<E>(
        self,
        other: &mut impl FnMut(&Expr) -> Result<Option<Expr>, E>,
    ) -> Result<Self, E> {
        let mut all = |parts: Vec<Self>| -> Result<Vec<Self>, E> {
            parts
                .into_iter()
                .map(|part| part.replaced(&mut *other))
                .collect()
        };
        Ok(match self {
            Self::And(parts) => Self::And(all(parts)?),
            Self::Or(parts) => Self::Or(all(parts)?),
            Self::Expr(expr) => Self::Expr(expr.replaced(other)?),
            filter => filter,
        })
    }

    /// Calls `f` with each expression that is computed row by row.
    pub fn for_exprs(&self, f: &mut impl FnMut(&Expr)) {
        match self {
            Self::Expr(expr) => f(expr),
            Self::And(parts) | Self::Or(parts) => {
                parts.iter().for_each(|part| part.for_exprs(f));
            }
            _ => {}
        }
    }
}

/// Maximum number of matches for which a row evaluates the [`Exists`](Expr::Exists) of an expression.
fn max_exists_matches(expr: &Expr) -> u64 {
    let mut examined = 0u64;
    expr.for_parts(|part| examined = examined.saturating_add(max_exists_matches(part)));
    match expr {
        Expr::Exists(some) => {
            let most = u64::from(some.matches.max_count);
            most.saturating_mul(examined.saturating_add(1))
        }
        _ => examined,
    }
}

fn reads_matches(expr: &Expr) -> bool {
    expr.any(&|part| matches!(part, Expr::Exists(_)))
        || expr.any_code(&|code| matches!(code, Code::Match(_)))
}

fn int(value: impl Into<i128>) -> Expr {
    Expr::Literal(Literal::Int(value.into(), Type::I128))
}

/// Upper bound of a row's matches, an `I128`; exact if its code reads no other matches.
fn count_of(of: &Matches) -> Expr {
    let code = match &of.code {
        // the code of rows with a match that meets a condition
        Code::If(_, code) => code,
        code => code,
    };
    let count = Expr::Payload(code.clone(), Arc::clone(&of.count));
    match reads_matches(&count) {
        true => int(of.max_count),
        false => Expr::cast(count, Type::I128),
    }
}

/// Upper bound of how many times a row counts for its matches.
fn max_times(of: &Matches) -> Expr {
    let count = count_of(of);
    let some = Expr::compare(Comparison::Greater, count.clone(), int(0));
    let none = int(of.is_outer);
    Expr::case(vec![(some, count)], Some(none))
}

/// Adds to `examined` an upper bound of the matches that an expression examines for a row.
fn add_exists_matches(expr: &Expr, examined: &mut Expr) {
    let Expr::Exists(some) = expr else {
        return expr.for_parts(|part| add_exists_matches(part, examined));
    };
    let mut within = 1u64;
    expr.for_parts(|part| within = within.saturating_add(max_exists_matches(part)));
    let own = Expr::arithmetic(Arithmetic::Multiply, max_times(&some.matches), int(within));
    let before = std::mem::replace(examined, int(0));
    *examined = Expr::arithmetic(Arithmetic::Add, before, own);
}

impl Aggregate {
    /// The aggregated expression; `None` for [`CountRows`](Self::CountRows).
    pub fn argument(&self) -> Option<&Expr> {
        match self {
            Self::CountRows => None,
            Self::Count(expr)
            | Self::CountDistinct(expr)
            | Self::Sum(expr)
            | Self::Min(expr)
            | Self::Max(expr) => Some(expr),
        }
    }

    /// Replaces the argument by the result of `of`.
    ///
    /// # Errors
    ///
    /// The errors of `of`.
    pub fn over<E>(&self, of: &mut impl FnMut(&Expr) -> Result<Expr, E>) -> Result<Self, E> {
        Ok(match self {
            Self::CountRows => Self::CountRows,
            Self::Count(value) => Self::Count(of(value)?),
            Self::CountDistinct(value) => Self::CountDistinct(of(value)?),
            Self::Sum(value) => Self::Sum(of(value)?),
            Self::Min(value) => Self::Min(of(value)?),
            Self::Max(value) => Self::Max(of(value)?),
        })
    }
}

/// The result for the rows that pass.
#[derive(Clone, Debug)]
pub enum Output {
    /// A mask of the rows that pass.
    Selection,
    /// These expressions for each row, in row order. A column of text or binary may be one, but only unchanged.
    Rows(Vec<Expr>),
    /// One result per aggregate.
    Aggregates(Vec<Aggregate>),
    /// One result per aggregate and group. A group is the rows with equal keys; null is a key like any other.
    Groups(Vec<GroupKey>, Vec<Aggregate>),
}

/// The computation of one kernel.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// The types of the columns, which expressions and filters refer to by index.
    pub columns: Vec<DataType>,
    /// The key tables, which filters, expressions and group keys refer to by index.
    pub lookups: Vec<Lookup>,
    /// Rows that pass count once per combination of their matches in these. Only for outputs that aggregate.
    pub matches: Vec<Matches>,
    /// The rows that pass; conjuncts that read [`Code::Match`] select combinations of matches.
    pub filter: Filter,
    /// The result for these rows.
    pub output: Output,
}

impl Pipeline {
    /// Upper bound of the combinations of matches of a row.
    pub fn most_combinations(&self) -> u64 {
        let most = self.matches.iter().map(|of| u64::from(of.max_count.max(1)));
        most.fold(1, u64::saturating_mul)
    }

    /// Bits of [`most_combinations`](Self::most_combinations), so that kernels differ by few values; 0 if a row counts
    /// once.
    pub fn combination_bits(&self) -> u32 {
        match self.most_combinations() {
            1 => 0,
            most => u64::BITS - most.leading_zeros(),
        }
    }

    /// Upper bound of the matches and combinations of matches that a row examines.
    pub fn most_matches(&self) -> u64 {
        let mut examined = 1u64;
        self.for_exprs(&mut |expr| examined = examined.saturating_add(max_exists_matches(expr)));
        self.most_combinations().saturating_mul(examined)
    }

    /// A pipeline whose only aggregate is an upper bound of the matches, and combinations of them, that all rows of
    /// `self` examine. It has no matches itself.
    pub fn counting_matches(&self) -> Self {
        let mut examined = int(1);
        self.for_exprs(&mut |expr| add_exists_matches(expr, &mut examined));
        let times = self.matches.iter().map(max_times);
        let times = times.reduce(|a, b| Expr::arithmetic(Arithmetic::Multiply, a, b));
        // a row is also examined once before its matches are combined
        let all = match times {
            Some(times) => Expr::arithmetic(
                Arithmetic::Multiply,
                Expr::arithmetic(Arithmetic::Add, times, int(1)),
                examined,
            ),
            None => examined,
        };
        let reads = |filter: &Filter| {
            let mut reads = false;
            filter.for_exprs(&mut |expr| reads |= reads_matches(expr));
            reads
        };
        let filter = match &self.filter {
            Filter::And(parts) => {
                Filter::And(parts.iter().filter(|part| !reads(part)).cloned().collect())
            }
            filter if reads(filter) => Filter::Constant(true),
            filter => filter.clone(),
        };
        Self {
            columns: self.columns.clone(),
            lookups: self.lookups.clone(),
            matches: vec![],
            filter,
            output: Output::Aggregates(vec![Aggregate::Sum(all)]),
        }
    }

    /// Calls `f` with each expression that is computed row by row.
    fn for_exprs(&self, f: &mut impl FnMut(&Expr)) {
        self.filter.for_exprs(f);
        self.matches.iter().for_each(|of| of.code.for_exprs(f));
        let (keys, aggregates, rows) = match &self.output {
            Output::Selection => Default::default(),
            Output::Rows(rows) => (&[][..], &[][..], &rows[..]),
            Output::Aggregates(aggregates) => (&[][..], &aggregates[..], &[][..]),
            Output::Groups(keys, aggregates) => (&keys[..], &aggregates[..], &[][..]),
        };
        rows.iter().for_each(&mut *f);
        let arguments = aggregates.iter().filter_map(Aggregate::argument);
        arguments.for_each(&mut *f);
        for key in keys {
            if let GroupKey::Value(value) = key {
                f(value);
            }
        }
    }

    /// The columns whose values are keys, or stand for something else: group keys that are dictionary values, keys of
    /// lookups, keys of tables that are built from the output, and arguments of functions of text. A column may occur several
    /// times.
    pub fn key_columns(&self) -> Vec<usize> {
        let mut columns: Vec<usize> = self.lookups.iter().map(|lookup| lookup.column).collect();
        if let Output::Groups(keys, _) = &self.output {
            columns.extend(keys.iter().filter_map(GroupKey::text_column));
        }
        if let Output::Rows(outputs) = &self.output {
            columns.extend(outputs.iter().filter_map(|output| match output {
                Expr::DenseId(column) => Some(*column),
                _ => None,
            }));
        }
        self.for_exprs(&mut |expr| expr.add_mapped_columns(&mut columns));
        columns
    }

    /// Returns true if a key or an expression is a function of text.
    pub fn has_text_functions(&self) -> bool {
        let mut columns = vec![];
        self.for_exprs(&mut |expr| expr.add_mapped_columns(&mut columns));
        let is_mapped = |key: &GroupKey| matches!(key, GroupKey::Mapped(..));
        let of_keys = matches!(&self.output, Output::Groups(keys, _) if keys.iter().any(is_mapped));
        of_keys || !columns.is_empty()
    }

    /// Replaces column `of` by `other` as a key. Filter and expressions still read `of`.
    pub fn with_key_column(mut self, of: usize, other: usize) -> Self {
        if let Output::Groups(keys, _) = &mut self.output {
            keys.iter_mut()
                .for_each(|key| key.replace_text_column(of, other));
        }
        let lookups = self.lookups.iter_mut().filter(|lookup| lookup.column == of);
        lookups.for_each(|lookup| lookup.column = other);
        self.replaced(&mut |expr| {
            Ok::<_, Infallible>(match expr {
                Expr::DenseId(column) if *column == of => Some(Expr::DenseId(other)),
                Expr::Mapped(column, function) if *column == of => {
                    Some(Expr::Mapped(other, Arc::clone(function)))
                }
                _ => None,
            })
        })
        .unwrap_or_else(|never| match never {})
    }

    /// Replaces subexpressions for which `other` returns another one, as [`Expr::replaced`].
    ///
    /// # Errors
    ///
    /// The errors of `other`.
    pub fn replaced<E>(
        self,
        other: &mut impl FnMut(&Expr) -> Result<Option<Expr>, E>,
    ) -> Result<Self, E> {
        let matches = self.matches.into_iter().map(|of| {
            let code = of.code.replaced(other)?;
            Ok(Matches { code, ..of })
        });
        let matches = matches.collect::<Result<_, E>>()?;
        let filter = self.filter.replaced(other)?;
        let output = match self.output {
            Output::Selection => Output::Selection,
            Output::Rows(rows) => {
                let rows = rows.iter().map(|row| row.replaced(other));
                Output::Rows(rows.collect::<Result<_, E>>()?)
            }
            Output::Aggregates(aggregates) => {
                Output::Aggregates(replaced_arguments(&aggregates, other)?)
            }
            Output::Groups(keys, aggregates) => {
                let keys = keys.into_iter().map(|key| match key {
                    GroupKey::Value(expr) => Ok(GroupKey::Value(expr.replaced(other)?)),
                    key => Ok(key),
                });
                let keys = keys.collect::<Result<_, E>>()?;
                Output::Groups(keys, replaced_arguments(&aggregates, other)?)
            }
        };
        Ok(Self {
            matches,
            filter,
            output,
            ..self
        })
    }

    /// The column's index if an output is a string column, which has no machine type.
    pub fn strings(&self, output: &Expr) -> Option<usize> {
        let Expr::Column(column) = output else {
            return None;
        };
        let of = self.columns.get(*column)?;
        Type::of(of).is_none().then_some(*column)
    }
}
