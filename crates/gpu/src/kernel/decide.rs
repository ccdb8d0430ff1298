//! Decides about a kernel.

use super::bindings::Bindings;
use super::columns::{columns_by_row, columns_of_filter, push};
use super::plan::{KernelPlan, OutputPlan, Registers, Total};
use super::planner::{Planner, SHARED_BYTES};
use super::tables::Facts;
use super::task::{Per, Task};
use crate::error::{Error, Result};
use crate::layout::{Form, Shape};
use crate::plan::{Filter, Output, Pipeline};

/// Warps of a block, where shared memory allows it.
const WARPS: u32 = 8;
/// Warps of a block whose threads have accumulators in shared memory: small blocks fill it better.
const THREAD_WARPS: u32 = 4;
/// Warps of a block that has a multiprocessor for itself, as many as registers allow.
const LARGE_WARPS: u32 = 28;

/// Plans the kernel for `task` over columns of these shapes, and what it is told.
pub(crate) fn plan(
    pipeline: &Pipeline,
    shapes: &[Shape],
    facts: &Facts,
    task: Task,
) -> Result<(KernelPlan, Bindings)> {
    let mut planner = Planner::new(pipeline, shapes, facts, task)?;
    let mut grouped = None;
    let mut output = match (&pipeline.output, task) {
        (_, Task::Masks) => OutputPlan::Masks,
        (Output::Rows(exprs), Task::Values) => planner.rows(exprs, false)?,
        (Output::Rows(exprs), Task::AllValues) => planner.rows(exprs, true)?,
        (Output::Aggregates(aggregates), Task::Totals) => planner.totals(aggregates)?,
        (Output::Groups(keys, aggregates), Task::Groups) => {
            grouped = Some((planner.groups(keys, aggregates)?, aggregates));
            OutputPlan::Masks
        }
        _ => {
            let reason = "a task that the pipeline does not have";
            return Err(Error::Unsupported(reason.into()));
        }
    };
    let is_sparse = planner.is_sparse;
    let is_wide = grouped.as_ref().is_some_and(|(groups, _)| groups.is_wide());
    // with the registers that any of it takes, large blocks have too few warps
    planner.may_be_large = is_sparse && !is_wide && !planner.has_hashed();
    let (mut opened, mut fetched, mut conjuncts) = (vec![], vec![], vec![]);
    if !matches!(task, Task::Values | Task::AllValues) {
        let ordered = planner.in_order();
        for conjunct in &ordered {
            columns_of_filter(conjunct, &mut opened);
            if let Filter::Found(lookup) | Filter::Missing(lookup) = conjunct {
                push(pipeline.lookups[*lookup].column, &mut opened);
            }
        }
        if !planner.tables.is_empty() {
            let later = opened.iter().skip(1).copied();
            // vectors of plain values are too large for that
            fetched = later
                .filter(|column| !shapes[*column].has(Form::Plain))
                .collect();
            let by_row = columns_by_row(pipeline, task).into_iter();
            by_row.for_each(|column| push(column, &mut opened));
        }
        for conjunct in ordered {
            conjuncts.push(planner.test(conjunct)?);
            planner.is_filtered = true;
        }
    }
    if let Some((grouped, aggregates)) = grouped {
        output = OutputPlan::Groups(planner.place_groups(grouped, aggregates)?);
    }
    let is_large = planner.is_large();
    let per = planner.per;
    let (warp_bytes, block_bytes) = (planner.warp_bytes, planner.bindings.block_bytes);
    let mut warps = match per {
        Per::Block { .. } => THREAD_WARPS,
        Per::Warp | Per::Slot => WARPS,
    };
    while warps > 1 && warps * warp_bytes > SHARED_BYTES.saturating_sub(block_bytes) {
        warps /= 2;
    }
    if is_large {
        warps = LARGE_WARPS;
    }
    let plan = KernelPlan {
        task,
        opened,
        fetched,
        conjuncts,
        bitmaps: vec![false; planner.bindings.code_tests.len()],
        has_block: planner.has_block(),
        warp_bytes,
        warps,
        is_large,
        registers: match is_sparse && !is_wide && !is_large {
            true if planner.has_hashed() => Registers::Hashed,
            true => Registers::Sparse,
            false if matches!(per, Per::Block { .. }) => Registers::Threads,
            false => Registers::Plain,
        },
        per: match sums_floats(&output) {
            true => Per::Slot,
            false => per,
        },
        output,
        columns: planner.columns,
        tables: planner.tables,
    };
    Ok((plan, planner.bindings))
}

/// Whether totals are of floats: the order of additions matters then.
fn sums_floats(output: &OutputPlan) -> bool {
    let OutputPlan::Totals { loops, .. } = output else {
        return false;
    };
    let mut totals = loops.iter().flat_map(|(_, totals)| totals);
    totals.any(|(_, total)| *total == Total::SumFloat)
}
