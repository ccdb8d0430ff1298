//! Which rows pass, and what becomes of them.

use std::sync::Arc;

use arrow::datatypes::DataType;
use vectile_encodings::Predicate;

use super::expr::{Arithmetic, Comparison, Expr, Matches, ValueTest};
use super::key_table::KeyTable;
use super::types::{Literal, Type};

/// Which rows pass: those for which it is true. A null row passes no test but
/// [`Predicate::IsNull`].
#[derive(Clone, Debug)]
pub enum Filter {
    /// Every row, or none.
    Constant(bool),
    /// A range, membership or null test of a column, evaluated on its encoded form.
    Column(usize, Predicate),
    /// Any other test of a column that is stored as a dictionary in every row group (else no kernel
    /// is generated), evaluated once for each entry.
    Values(usize, ValueTest),
    /// All pass.
    And(Vec<Filter>),
    /// Some passes.
    Or(Vec<Filter>),
    /// A boolean expression is true.
    Expr(Expr),
    /// The row's key is in one of [`Pipeline::lookups`]; a null is not.
    Found(usize),
    /// The row's key is not there, or null.
    Missing(usize),
}

/// A small table, to be looked up by the values of a column: what a join becomes.
#[derive(Clone, Debug)]
pub struct Lookup {
    /// The column that holds the keys, by its number in [`Pipeline::columns`].
    pub column: usize,
    /// The keys that are there, and the code of each.
    pub codes: Arc<KeyTable>,
}

/// What rows are grouped by.
#[derive(Clone, Debug, PartialEq)]
pub enum GroupKey {
    /// An integer or boolean. Comes back as an array of the Arrow type that a column of its machine
    /// type has: `Int32` for [`Type::I32`] and so on.
    Value(Expr),
    /// A column that is stored as a dictionary in every row group (else no kernel is generated),
    /// text above all. Comes back as an array of the column's type.
    Entry(usize),
    /// The code in one of [`Pipeline::lookups`]; null where the key is not there. Comes back as
    /// `UInt32`.
    Code(usize),
}

/// An aggregate over the rows that pass. Nulls of its argument are left out.
#[derive(Clone, Debug)]
pub enum Aggregate {
    /// The number of rows.
    CountRows,
    /// The number of values.
    Count(Expr),
    /// The sum; of integers exact, modulo 2^128; of floats in doubles.
    Sum(Expr),
    /// The smallest value; floats in their total order.
    Min(Expr),
    /// The largest value; floats in their total order.
    Max(Expr),
}

impl Filter {
    /// Calls `f` with what is computed row by row.
    pub(crate) fn for_exprs(&self, f: &mut impl FnMut(&Expr)) {
        match self {
            Self::Expr(expr) => f(expr),
            Self::And(parts) | Self::Or(parts) => {
                parts.iter().for_each(|part| part.for_exprs(f));
            }
            _ => {}
        }
    }
}

/// Partners that are asked about for a row at most.
fn most_asked(expr: &Expr) -> u64 {
    let mut asked = 0u64;
    expr.for_parts(|part| asked = asked.saturating_add(most_asked(part)));
    match expr {
        Expr::Exists(some) => {
            let most = u64::from(some.matches.most);
            most.saturating_mul(asked.saturating_add(1))
        }
        _ => asked,
    }
}

fn reads_matches(expr: &Expr) -> bool {
    expr.any(&|part| matches!(part, Expr::Match(_) | Expr::Exists(_)))
}

fn int(value: impl Into<i128>) -> Expr {
    Expr::Literal(Literal::Int(value.into(), Type::I128))
}

fn by(operation: Arithmetic, a: Expr, b: Expr) -> Expr {
    Expr::Arithmetic(operation, Box::new(a), Box::new(b))
}

/// How many partners a row has at most, an `I128`: exactly, if its code asks for no others.
fn count_of(of: &Matches) -> Expr {
    let code = match &of.code {
        // of rows some of whose partners meet a condition
        Expr::Case(whens, None) => match &whens[..] {
            [(_, then)] => then,
            _ => &of.code,
        },
        code => code,
    };
    match reads_matches(code) {
        true => int(of.most),
        false => {
            let count = Expr::PayloadOf(Box::new(code.clone()), Arc::clone(&of.count));
            Expr::Cast(Box::new(count), Type::I128)
        }
    }
}

/// How many times a row counts at most for its partners.
fn times_of(of: &Matches) -> Expr {
    let count = count_of(of);
    let some = Expr::Compare(
        Comparison::Greater,
        Box::new(count.clone()),
        Box::new(int(0)),
    );
    let none = int(of.is_outer);
    Expr::Case(vec![(some, count)], Some(Box::new(none)))
}

/// Adds the partners that an expression asks about for a row at most.
fn asks_of(expr: &Expr, asked: &mut Expr) {
    let Expr::Exists(some) = expr else {
        return expr.for_parts(|part| asks_of(part, asked));
    };
    let mut within = 1u64;
    expr.for_parts(|part| within = within.saturating_add(most_asked(part)));
    let own = by(Arithmetic::Multiply, times_of(&some.matches), int(within));
    let before = std::mem::replace(asked, int(0));
    *asked = by(Arithmetic::Add, before, own);
}

impl Aggregate {
    /// What it aggregates; rows are counted by themselves.
    pub(crate) fn argument(&self) -> Option<&Expr> {
        match self {
            Self::CountRows => None,
            Self::Count(expr) | Self::Sum(expr) | Self::Min(expr) | Self::Max(expr) => Some(expr),
        }
    }

    /// The same over another argument, which `of` says.
    ///
    /// # Errors
    ///
    /// Those of `of`.
    pub fn over<E>(&self, of: &mut impl FnMut(&Expr) -> Result<Expr, E>) -> Result<Self, E> {
        Ok(match self {
            Self::CountRows => Self::CountRows,
            Self::Count(value) => Self::Count(of(value)?),
            Self::Sum(value) => Self::Sum(of(value)?),
            Self::Min(value) => Self::Min(of(value)?),
            Self::Max(value) => Self::Max(of(value)?),
        })
    }
}

/// What becomes of the rows that pass.
#[derive(Clone, Debug)]
pub enum Output {
    /// Which they are.
    Selection,
    /// Values of each, in the order of the rows. A column of text or binary may be one of them, by itself.
    Rows(Vec<Expr>),
    /// One result for each aggregate.
    Aggregates(Vec<Aggregate>),
    /// One result for each aggregate and group: the rows that have the same keys, where null is a
    /// key like any other.
    Groups(Vec<GroupKey>, Vec<Aggregate>),
}

/// What a kernel computes.
#[derive(Clone, Debug)]
pub struct Pipeline {
    /// The columns that expressions and filters number.
    pub columns: Vec<DataType>,
    /// The tables that filters, expressions and keys look up, by number.
    pub lookups: Vec<Lookup>,
    /// Rows that pass count once for each combination of their partners in these; only where they are
    /// aggregated.
    pub matches: Vec<Matches>,
    /// Which rows pass; those of its conjuncts that ask for [`Expr::Match`] say which combinations.
    pub filter: Filter,
    /// What becomes of them.
    pub output: Output,
}

impl Pipeline {
    /// How many times a row counts at most.
    pub(crate) fn most_combinations(&self) -> u64 {
        let most = self.matches.iter().map(|of| u64::from(of.most.max(1)));
        most.fold(1, u64::saturating_mul)
    }

    /// Bits of that, so that few kernels differ by it; none if a row counts once.
    pub(crate) fn combination_bits(&self) -> u32 {
        match self.most_combinations() {
            1 => 0,
            most => u64::BITS - most.leading_zeros(),
        }
    }

    /// How many partners, or combinations of them, are looked at for a row at most.
    pub(crate) fn most_matches(&self) -> u64 {
        let mut asked = 1u64;
        self.for_exprs(&mut |expr| asked = asked.saturating_add(most_asked(expr)));
        self.most_combinations().saturating_mul(asked)
    }

    /// Counts the partners, and combinations of them, that are looked at, as the sum that is its only aggregate: those of
    /// all rows, and at least as many. Its own rows have no partners.
    pub(crate) fn counting(&self) -> Self {
        let mut asked = int(1);
        self.for_exprs(&mut |expr| asks_of(expr, &mut asked));
        let times = self.matches.iter().map(times_of);
        let times = times.reduce(|a, b| by(Arithmetic::Multiply, a, b));
        // a row asks before it is combined, too
        let all = match times {
            Some(times) => by(
                Arithmetic::Multiply,
                by(Arithmetic::Add, times, int(1)),
                asked,
            ),
            None => asked,
        };
        let asks = |filter: &Filter| {
            let mut asks = false;
            filter.for_exprs(&mut |expr| asks |= reads_matches(expr));
            asks
        };
        let filter = match &self.filter {
            Filter::And(parts) => {
                Filter::And(parts.iter().filter(|part| !asks(part)).cloned().collect())
            }
            filter if asks(filter) => Filter::Constant(true),
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
        self.matches.iter().for_each(|of| f(&of.code));
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

    /// The columns whose values are keys: of groups, if they are entries of dictionaries, of lookups, and of tables that
    /// are made of what is put out.
    pub fn key_columns(&self) -> impl Iterator<Item = usize> {
        let (keys, outputs) = match &self.output {
            Output::Groups(keys, _) => (keys.as_slice(), [].as_slice()),
            Output::Rows(outputs) => ([].as_slice(), outputs.as_slice()),
            _ => Default::default(),
        };
        let keys = keys.iter().filter_map(|key| match key {
            GroupKey::Entry(column) => Some(*column),
            GroupKey::Value(_) | GroupKey::Code(_) => None,
        });
        let numbered = outputs.iter().filter_map(|output| match output {
            Expr::Numbered(column) => Some(*column),
            _ => None,
        });
        let lookups = self.lookups.iter().map(|lookup| lookup.column);
        keys.chain(numbered).chain(lookups)
    }

    /// With another column for the keys of one. Filter and expressions read it as before.
    pub(crate) fn with_other_keys(mut self, of: usize, other: usize) -> Self {
        match &mut self.output {
            Output::Groups(keys, _) => {
                let keys = keys.iter_mut();
                keys.filter(|key| **key == GroupKey::Entry(of))
                    .for_each(|key| *key = GroupKey::Entry(other));
            }
            Output::Rows(outputs) => {
                let outputs = outputs.iter_mut();
                outputs
                    .filter(|output| **output == Expr::Numbered(of))
                    .for_each(|output| *output = Expr::Numbered(other));
            }
            _ => {}
        }
        let lookups = self.lookups.iter_mut().filter(|lookup| lookup.column == of);
        lookups.for_each(|lookup| lookup.column = other);
        self
    }

    /// The column of an output that is one of strings: there is no machine type for it.
    pub(crate) fn strings(&self, output: &Expr) -> Option<usize> {
        let Expr::Column(column) = output else {
            return None;
        };
        let of = self.columns.get(*column)?;
        Type::of(of).is_none().then_some(*column)
    }
}
