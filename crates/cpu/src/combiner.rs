//! Combines rows with their matches: a row comes once for each combination of its matches in all lists.
//!
//! ```text
//! rows ─▶ pairs of list 0 ─▶ conditions ─▶ pairs of list 1 ─▶ conditions ─▶ .. ─▶ output
//! ```
//!
//! Pairs are made a batch at a time, so memory does not depend on the number of matches.

use vectile_encodings::Selection;
use vectile_pipeline::{Error, Expr, Filter, Matches, Result};

use crate::batch::Batch;
use crate::filter::add_tests;
use crate::logic::is_true;
use crate::matches::{Lists, Pairs, rows_of};
use crate::program::{Program, Register};
use crate::row_group::RowGroup;
use crate::vector::{Mask, Vector};

/// Receives batches of combinations, with the mask of those that pass.
pub(crate) type Then<'t> = dyn FnMut(Batch<'_>, &Mask) -> Result<()> + 't;

/// The lists of matches that rows are combined with.
pub(crate) struct Combiner<'a> {
    levels: Vec<Level<'a>>,
}

/// One list of matches.
struct Level<'a> {
    lists: Computed<'a>,
    is_outer: bool,
    pairing: Pairing<'a>,
}

/// Pairs that are made, and which of them are passed on.
struct Pairing<'a> {
    pairs: Pairs,
    /// Conditions on combinations of matches in the lists up to this one.
    conditions: Computed<'a>,
    check: &'a dyn Fn() -> Result<()>,
}

/// A program, and the registers of its results.
struct Computed<'a> {
    program: Program<'a>,
    registers: Vec<Register>,
    vectors: Vec<Vector>,
}

/// The conjuncts of a filter: tests of rows, and conditions on their matches.
///
/// # Errors
///
/// [`Error::Unsupported`] for a conjunct that tests both, other than in an expression.
pub(crate) fn conjuncts(filter: &Filter) -> Result<(Vec<&Filter>, Vec<&Expr>)> {
    let (mut rows, mut conditions) = (Vec::new(), Vec::new());
    let mut left = vec![filter];
    while let Some(filter) = left.pop() {
        let mut reads_matches = false;
        filter.for_exprs(&mut |expr| reads_matches |= expr.last_match().is_some());
        match filter {
            Filter::And(parts) => left.extend(parts.iter().rev()),
            _ if !reads_matches => rows.push(filter),
            Filter::Expr(condition) => conditions.push(condition),
            _ => {
                let reason = "tests of a column beside those of matches in one condition";
                return Err(Error::Unsupported(reason.into()));
            }
        }
    }
    Ok((rows, conditions))
}

impl<'a> Combiner<'a> {
    /// Plans combinations with all `matches` that meet all `conditions`.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for matches that depend on those in another list.
    pub fn new(
        matches: &[Matches],
        conditions: &[&Expr],
        row_group: RowGroup<'a>,
        selection: &Selection,
    ) -> Result<Self> {
        let level_of = |condition: &&&Expr| condition.last_match().unwrap_or_default();
        if conditions.iter().any(|of| level_of(&of) >= matches.len()) {
            let reason = "a condition on matches that there are not";
            return Err(Error::Internal(reason.into()));
        }
        let levels = matches.iter().enumerate().map(|(number, of)| {
            let list = of.list();
            if list.iter().any(|part| part.last_match().is_some()) {
                return Err(Error::Unsupported("matches of matches".into()));
            }
            let of_level = conditions.iter().filter(|of| level_of(of) == number);
            let of_level = of_level.copied();
            let before = Self::program(&matches[..number], row_group);
            let combined = Self::program(&matches[..=number], row_group);
            Ok(Level {
                lists: Computed::new(before, list.iter(), selection)?,
                is_outer: of.is_outer,
                pairing: Pairing {
                    pairs: Pairs::new(number),
                    conditions: Computed::new(combined, of_level, selection)?,
                    check: row_group.check,
                },
            })
        });
        Ok(Self {
            levels: levels.collect::<Result<_>>()?,
        })
    }

    /// A program over rows that are combined with `matches`.
    pub fn program(matches: &[Matches], row_group: RowGroup<'a>) -> Program<'a> {
        let matches = matches.iter().enumerate();
        matches.fold(Program::new(row_group), |program, (number, of)| {
            program.with_matches(number, of, of.is_outer)
        })
    }

    /// Calls `then` with batches of combinations of the batch's rows of `mask`, and of rows that were added before. Rows
    /// are kept until there are enough, or [`finish`](Self::finish) is called.
    pub fn add(&mut self, batch: Batch<'_>, mask: &Mask, then: &mut Then<'_>) -> Result<()> {
        add(&mut self.levels, batch, mask, then)
    }

    /// Calls `then` with the rest.
    pub fn finish(&mut self, then: &mut Then<'_>) -> Result<()> {
        let mut levels = &mut self.levels[..];
        while let Some((level, rest)) = levels.split_first_mut() {
            level.pairing.pass(rest, then)?;
            levels = rest;
        }
        Ok(())
    }

    /// True if each row comes once.
    pub fn is_empty(&self) -> bool {
        self.levels.is_empty()
    }
}

fn add(levels: &mut [Level<'_>], batch: Batch<'_>, mask: &Mask, then: &mut Then<'_>) -> Result<()> {
    match levels.split_first_mut() {
        Some((level, rest)) => level.add(batch, mask, rest, then),
        None => then(batch, mask),
    }
}

impl Level<'_> {
    /// Pairs the rows of a batch with their matches. Full batches of pairs are passed on to the levels behind.
    fn add(
        &mut self,
        batch: Batch<'_>,
        mask: &Mask,
        rest: &mut [Level<'_>],
        then: &mut Then<'_>,
    ) -> Result<()> {
        self.lists.run(batch, mask)?;
        let [first, count] = self.lists.registers[..] else {
            return Err(Error::Internal("a list without a count".into()));
        };
        let vectors = &self.lists.vectors;
        let lists = Lists::new(&vectors[first], &vectors[count], mask)?;
        let pairing = &mut self.pairing;
        for row in rows_of(if self.is_outer { mask } else { &lists.some }) {
            let mut codes = lists.codes(row);
            if codes.is_empty() {
                pairing.pairs.add_unmatched(batch, row);
                pairing.pass_full(rest, then)?;
            }
            while !codes.is_empty() {
                codes.start += pairing.pairs.add(batch, row, codes.clone());
                pairing.pass_full(rest, then)?;
            }
        }
        Ok(())
    }
}

impl Pairing<'_> {
    fn pass_full(&mut self, rest: &mut [Level<'_>], then: &mut Then<'_>) -> Result<()> {
        match self.pairs.is_full() {
            true => self.pass(rest, then),
            false => Ok(()),
        }
    }

    /// Passes on the pairs that meet the conditions.
    fn pass(&mut self, rest: &mut [Level<'_>], then: &mut Then<'_>) -> Result<()> {
        if self.pairs.is_empty() {
            return Ok(());
        }
        (self.check)()?;
        let (batch, mut mask) = self.pairs.batch();
        self.conditions.run(batch, &mask)?;
        for register in &self.conditions.registers {
            let met = is_true(&self.conditions.vectors[*register])?;
            mask.iter_mut()
                .zip(met)
                .for_each(|(mask, met)| *mask &= met);
        }
        if mask.iter().any(|word| *word != 0) {
            add(rest, batch, &mask, then)?;
        }
        self.pairs.clear();
        Ok(())
    }
}

impl<'a> Computed<'a> {
    /// Adds `exprs` to a program.
    fn new<'e>(
        mut program: Program<'a>,
        exprs: impl Iterator<Item = &'e Expr>,
        selection: &Selection,
    ) -> Result<Self> {
        let mut registers = Vec::new();
        for expr in exprs {
            add_tests(&mut program, expr, selection)?;
            registers.push(program.add(expr)?);
        }
        Ok(Self {
            vectors: program.vectors(),
            registers,
            program,
        })
    }

    fn run(&mut self, batch: Batch<'_>, mask: &Mask) -> Result<()> {
        self.program.run(batch, mask, &mut self.vectors)
    }
}
