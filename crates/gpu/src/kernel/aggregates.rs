//! Which accumulators aggregates need.

use std::mem::Discriminant;

use super::accumulator::{Accumulator, AccumulatorSlot, Accumulators, ResultSlots};
use super::columns::has_lookups;
use super::plan::{Typed, Valid};
use crate::error::{Error, Result};
use crate::plan::{Aggregate, Expr};

/// Accumulators in the making. What is asked twice, as sums and averages do, is accumulated once.
pub(super) struct Collected<'a> {
    pub all: Vec<AccumulatorSlot>,
    counts: Vec<(Valid, usize)>,
    known: Vec<((Discriminant<Aggregate>, &'a Expr), ResultSlots)>,
    /// They are made for 2^`growth` rows, or combinations, at most; for fewer if it is 32.
    growth: u32,
}

impl<'a> Collected<'a> {
    pub fn new(growth: u32) -> Self {
        Self {
            all: vec![AccumulatorSlot {
                accumulator: Accumulator::count(growth),
                argument: None,
            }],
            counts: vec![],
            known: vec![],
            growth,
        }
    }

    pub fn push(&mut self, accumulator: Accumulator, argument: Option<usize>) -> usize {
        self.all.push(AccumulatorSlot {
            accumulator,
            argument,
        });
        self.all.len() - 1
    }

    /// Adds what an aggregate of an argument needs.
    pub fn add(&mut self, of: &'a Aggregate, value: &Typed, argument: usize) -> ResultSlots {
        // of what is looked up, not all values have a name
        let name = of.argument().filter(|expr| !has_lookups(expr));
        let name = name.map(|expr| (std::mem::discriminant(of), expr));
        let same = self.known.iter().find(|(known, _)| Some(*known) == name);
        if let Some((_, outcome)) = same {
            return *outcome;
        }
        let count = match value.valid {
            None => 0,
            Some(valid) => match self.counts.iter().find(|(known, _)| *known == valid) {
                Some((_, count)) => *count,
                None => {
                    let count = self.push(Accumulator::count(self.growth), Some(argument));
                    self.counts.push((valid, count));
                    count
                }
            },
        };
        let accumulator = Accumulator::of(of, value.of, value.bounds, self.growth);
        let value = accumulator.map(|accumulator| self.push(accumulator, Some(argument)));
        let outcome = ResultSlots { count, value };
        self.known.extend(name.map(|name| (name, outcome)));
        outcome
    }
}

impl Accumulators {
    /// Those of aggregates over `arguments`, in words of memory, of 2^`growth` rows at most.
    pub fn of(arguments: &[Typed], aggregates: &[Aggregate], growth: u32) -> Result<Self> {
        let mut collected = Collected::new(growth);
        let mut arguments = arguments.iter().enumerate();
        let mut results = vec![];
        for aggregate in aggregates {
            let mut outcome = ResultSlots {
                count: 0,
                value: None,
            };
            if aggregate.argument().is_some() {
                let argument = arguments.next();
                let (argument, value) =
                    argument.ok_or_else(|| Error::Internal("no argument".into()))?;
                outcome = collected.add(aggregate, value, argument);
            }
            results.push(outcome);
        }
        let mut all = collected.all;
        for added in &mut all {
            added.accumulator = added.accumulator.in_words();
        }
        Ok(Self { all, results })
    }
}
