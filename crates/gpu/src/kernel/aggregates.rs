//! Assigns accumulators to aggregates.

use std::mem::Discriminant;

use super::accumulator::{Accumulator, AccumulatorSlot, Accumulators, ResultSlots};
use super::columns::has_lookups;
use super::plan::{Typed, Valid};
use crate::error::{Error, Result};
use vectile_pipeline::{Aggregate, Expr};

/// Collects accumulators. Aggregates of the same argument share them, as SUM and AVG do.
pub(super) struct Collected<'a> {
    pub all: Vec<AccumulatorSlot>,
    counts: Vec<(Valid, usize)>,
    known: Vec<((Discriminant<Aggregate>, &'a Expr), ResultSlots)>,
    /// Accumulators hold at most 2^`growth` rows or combinations; fewer than 2^32 if it is 32.
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

    /// Adds the accumulators of an aggregate, and returns them.
    pub fn add(&mut self, of: &'a Aggregate, value: &Typed, argument: usize) -> ResultSlots {
        // values of lookups may have no name
        let name = of.argument().filter(|expr| !has_lookups(expr));
        let name = name.map(|expr| (std::mem::discriminant(of), expr));
        let same = self.known.iter().find(|(known, _)| Some(*known) == name);
        if let Some((_, result)) = same {
            return *result;
        }
        if let Aggregate::CountDistinct(_) = of {
            let result = ResultSlots {
                count: self.push(Accumulator::DistinctCount, Some(argument)),
                value: None,
            };
            self.known.extend(name.map(|name| (name, result)));
            return result;
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
        let result = ResultSlots { count, value };
        self.known.extend(name.map(|name| (name, result)));
        result
    }
}

impl Accumulators {
    /// The accumulators of aggregates over `arguments`, in words of memory, of at most 2^`growth` rows.
    pub fn of(arguments: &[Typed], aggregates: &[Aggregate], growth: u32) -> Result<Self> {
        let mut collected = Collected::new(growth);
        let mut arguments = arguments.iter().enumerate();
        let mut results = vec![];
        for aggregate in aggregates {
            let mut result = ResultSlots {
                count: 0,
                value: None,
            };
            if aggregate.argument().is_some() {
                let argument = arguments.next();
                let (argument, value) =
                    argument.ok_or_else(|| Error::Internal("no argument".into()))?;
                result = collected.add(aggregate, value, argument);
            }
            results.push(result);
        }
        let mut all = collected.all;
        for slot in &mut all {
            slot.accumulator = slot.accumulator.in_words();
        }
        Ok(Self { all, results })
    }
}
