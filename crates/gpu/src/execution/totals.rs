//! Aggregates: accumulators come back, one for each warp, block or slot, and are combined here.

use std::ops::Range;

use super::launch::{Outputs, Wanted};
use super::{Execution, Prepared, parts, slots_of};
use crate::batch::Batch;
use crate::codegen::{Fold, Outcome, Per, Task};
use crate::engine::Lane;
use crate::error::Result;
use crate::exact::ExactSum;
use crate::ir::{Number, Total, Type};

/// An aggregate so far.
#[derive(Clone, Debug)]
pub(super) struct Part {
    count: u64,
    value: Option<Folded>,
}

/// What accumulators came to.
#[derive(Clone, Debug)]
pub(super) enum Folded {
    Int(i128),
    /// An extreme.
    Float(f64),
    Sum(Box<ExactSum>),
}

impl Folded {
    fn number(&self) -> Number {
        match self {
            Self::Int(value) => Number::Int(*value),
            Self::Float(value) => Number::Float(*value),
            Self::Sum(sum) => Number::Float(sum.value()),
        }
    }
}

impl Execution {
    /// Aggregates more row groups, for [`Output::Aggregates`](crate::ir::Output::Aggregates).
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](crate::Error::Unsupported) with a reason, if there is no kernel for this
    /// pipeline over these chunks; [`Error::Mismatch`](crate::Error::Mismatch), if they are not of the
    /// pipeline's types, or of another engine; those of the driver.
    pub fn aggregate(&mut self, batch: &Batch) -> Result<()> {
        if batch.is_empty() {
            return Ok(());
        }
        self.watch(|this| {
            let prepared = this.prepare(batch, Task::Totals)?;
            let mut lane = this.engine.lane()?;
            for part in parts(batch.rows(), prepared.warps() * prepared.vectors_per_warp()) {
                this.totals_of(&prepared, batch, part, &mut lane)?;
            }
            this.engine.give_back(lane);
            Ok(())
        })
    }

    /// What the accumulators of some groups come to.
    pub(super) fn folded(
        &mut self,
        prepared: &Prepared,
        batch: &Batch,
        part: Range<usize>,
        lane: &mut Lane,
    ) -> Result<Vec<Folded>> {
        let accumulators = &prepared.generated.accumulators;
        let results = match prepared.generated.per {
            Per::Slot => slots_of(&batch.rows()[part.clone()]),
            Per::Block { .. } => prepared.grid as usize,
            Per::Warp => prepared.warps(),
        };
        let out_bytes = results * accumulators.len() * 16;
        let wanted = Wanted {
            bytes: out_bytes,
            ..Wanted::default()
        };
        let back = self.run(prepared, batch, part, lane, wanted, |got| Outputs {
            out: got.bytes,
            back: (got.bytes, out_bytes),
            ..Outputs::default()
        })?;
        let (words, _) = back.as_slice()[..out_bytes].as_chunks::<16>();
        let folded: Vec<Folded> = accumulators
            .iter()
            .enumerate()
            .map(|(i, fold)| fold_words(*fold, words.iter().skip(i).step_by(accumulators.len())))
            .collect();
        Ok(folded)
    }

    fn totals_of(
        &mut self,
        prepared: &Prepared,
        batch: &Batch,
        part: Range<usize>,
        lane: &mut Lane,
    ) -> Result<()> {
        let accumulators = &prepared.generated.accumulators;
        let folded = self.folded(prepared, batch, part, lane)?;
        for (index, result) in prepared.generated.results.iter().enumerate() {
            let new = Part::of(result, &folded);
            let fold = result.value.and_then(|at| accumulators.get(at)).copied();
            match self.results.get_mut(index) {
                Some(old) => old.combine(new, fold.unwrap_or(Fold::Count)),
                None => self.results.push(new),
            }
        }
        Ok(())
    }

    /// The results so far, one for each aggregate; none if no row group was aggregated.
    pub fn totals(&self) -> Vec<Total> {
        self.results.iter().map(Part::total).collect()
    }
}

impl Part {
    /// The result of an aggregate.
    pub fn of(result: &Outcome, folded: &[Folded]) -> Self {
        let count = match folded.get(result.count) {
            Some(Folded::Int(count)) => *count as u64,
            _ => 0,
        };
        let value = match (result.value, count) {
            (None, _) => Some(Folded::Int(i128::from(count))),
            (Some(_), 0) => None,
            (Some(at), _) => folded.get(at).map(|folded| match (result.key, folded) {
                (Some(of), Folded::Int(key)) => Folded::Float(float_of(*key, of)),
                _ => folded.clone(),
            }),
        };
        Self { count, value }
    }

    /// The same for who asked.
    pub fn total(&self) -> Total {
        Total {
            count: self.count,
            value: self.value.as_ref().map(Folded::number),
        }
    }

    fn combine(&mut self, other: Self, fold: Fold) {
        use Folded::{Float, Int, Sum};
        self.count += other.count;
        self.value = match (self.value.take(), other.value) {
            (Some(Int(a)), Some(Int(b))) => Some(Int(match fold {
                Fold::Min => a.min(b),
                Fold::Max => a.max(b),
                Fold::Count | Fold::SumInt | Fold::SumFloat => a.wrapping_add(b),
            })),
            (Some(Float(a)), Some(Float(b))) => Some(Float(match fold {
                Fold::Min if b.total_cmp(&a).is_lt() => b,
                Fold::Max if b.total_cmp(&a).is_gt() => b,
                _ => a,
            })),
            (Some(Sum(mut a)), Some(Sum(b))) => {
                a.merge(&b);
                Some(Sum(a))
            }
            (a, b) => a.or(b),
        };
    }
}

fn fold_words<'a>(fold: Fold, words: impl Iterator<Item = &'a [u8; 16]>) -> Folded {
    let ints = words.map(|word| i128::from_le_bytes(*word));
    match fold {
        Fold::Count | Fold::SumInt => Folded::Int(ints.fold(0, i128::wrapping_add)),
        Fold::SumFloat => {
            let mut sum = Box::<ExactSum>::default();
            ints.for_each(|word| sum.add(f64::from_bits(word as u64)));
            Folded::Sum(sum)
        }
        Fold::Min => Folded::Int(ints.min().unwrap_or(0)),
        Fold::Max => Folded::Int(ints.max().unwrap_or(0)),
    }
}

/// The float with that place in the total order.
pub(super) fn float_of(key: i128, of: Type) -> f64 {
    match of {
        Type::F32 => {
            let key = key as i32;
            f64::from(f32::from_bits(
                (key ^ ((key >> 31) as u32 >> 1) as i32) as u32,
            ))
        }
        _ => {
            let key = key as i64;
            f64::from_bits((key ^ ((key >> 63) as u64 >> 1) as i64) as u64)
        }
    }
}
