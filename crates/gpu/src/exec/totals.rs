//! Aggregates: accumulators are copied back, one set for each warp, block or slot, and combined here.

use std::ops::Range;

use super::accumulator::{AccumulatorState, PartialResult};
use super::execution::{Execution, Prepared, parts, slots_of};
use super::launch::{Outputs, ScratchRequest};
use crate::error::{Error, Result};
use crate::kernel::{AccumulationScope, AccumulatorSlot, OutputPlan, Task};
use crate::runtime::{Batch, StreamContext};
use vectile_pipeline::Total;

impl Execution {
    /// Aggregates more row groups, for [`Output::Aggregates`](vectile_pipeline::Output::Aggregates).
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
            let batch = &this.with_codes(batch.clone())?;
            let prepared = this.prepare(batch, Task::Totals)?;
            let mut context = this.engine.stream_context()?;
            for part in parts(batch.rows(), prepared.warps() * prepared.vectors_per_warp()) {
                this.totals_of(&prepared, batch, part, &mut context)?;
            }
            this.engine.give_back(context);
            Ok(())
        })
    }

    /// Runs the kernel over some row groups, and combines the states of each accumulator.
    pub(super) fn states(
        &mut self,
        prepared: &Prepared,
        all: &[AccumulatorSlot],
        batch: &Batch,
        part: Range<usize>,
        context: &mut StreamContext,
    ) -> Result<Vec<AccumulatorState>> {
        let width = all.len();
        let results = match prepared.plan.per {
            AccumulationScope::Slot => slots_of(&batch.rows()[part.clone()]),
            AccumulationScope::Block { .. } => prepared.grid as usize,
            AccumulationScope::Warp => prepared.warps(),
        };
        let out_bytes = results * width * 16;
        let request = ScratchRequest {
            bytes: out_bytes,
            ..ScratchRequest::default()
        };
        let back = self.run(prepared, batch, part, context, request, |scratch| Outputs {
            out: scratch.bytes,
            back: (scratch.bytes, out_bytes),
            ..Outputs::default()
        })?;
        let (words, _) = back.as_slice()[..out_bytes].as_chunks::<16>();
        let all = all.iter().enumerate();
        let states = all.map(|(i, added)| {
            AccumulatorState::of(added.accumulator, words.iter().skip(i).step_by(width))
        });
        Ok(states.collect())
    }

    fn totals_of(
        &mut self,
        prepared: &Prepared,
        batch: &Batch,
        part: Range<usize>,
        context: &mut StreamContext,
    ) -> Result<()> {
        let OutputPlan::Totals { accumulators, .. } = &prepared.plan.output else {
            return Err(Error::Internal("no totals".into()));
        };
        let states = self.states(prepared, &accumulators.all, batch, part, context)?;
        for (index, result) in accumulators.results.iter().enumerate() {
            let new = PartialResult::of(result, &states);
            match self.results.get_mut(index) {
                Some(old) => old.merge(new),
                None => self.results.push(new),
            }
        }
        Ok(())
    }

    /// The results so far, one for each aggregate; empty if no row group was aggregated.
    pub fn totals(&self) -> Vec<Total> {
        self.results.iter().map(PartialResult::total).collect()
    }
}
