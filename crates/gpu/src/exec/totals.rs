//! Aggregates: accumulators come back, one for each warp, block or slot, and are combined here.

use std::ops::Range;

use super::execution::{Execution, Prepared, parts, slots_of};
use super::folded::{Folded, Part, fold_words};
use super::launch::{Outputs, Wanted};
use crate::error::Result;
use crate::kernel::{Fold, Per, Task};
use crate::plan::Total;
use crate::runtime::{Batch, Lane};

impl Execution {
    /// Aggregates more row groups, for [`Output::Aggregates`](crate::plan::Output::Aggregates).
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
        let accumulators = &prepared.loaded.layout.accumulators;
        let results = match prepared.plan.per {
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
        let accumulators = &prepared.loaded.layout.accumulators;
        let folded = self.folded(prepared, batch, part, lane)?;
        for (index, result) in prepared.loaded.layout.results.iter().enumerate() {
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
