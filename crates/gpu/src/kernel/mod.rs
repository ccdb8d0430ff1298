//! What is decided about a kernel before any of it is written: [`plan`] makes a [`KernelPlan`] of a pipeline, of the
//! traits of its columns and of what is known of the data.
//!
//! Integers are computed in the narrowest of 32, 64 and 128 bits that the data allow, by the bounds of
//! the columns rounded out to powers of two. Constants are arguments, so that another constant is no
//! other kernel: only how many bits it has matters.

mod accumulator;
mod aggregates;
mod bindings;
mod bounds;
mod columns;
mod decide;
mod filters;
mod groups;
mod lookups;
mod loops;
mod outputs;
mod plan;
mod planner;
#[cfg(test)]
pub(crate) mod samples;
mod tables;
mod task;
mod threads;
mod tiles;
mod values;

pub(crate) use accumulator::{Accumulator, AccumulatorSlot, Accumulators, ResultSlots};
pub(crate) use bindings::Bindings;
pub(crate) use bounds::Bounds;
pub use columns::coded_columns;
pub(crate) use decide::plan;
pub(crate) use plan::{
    Combined, Field, GroupsPlan, Kept, KernelPlan, KeySource, ListPlan, Node, OutputPlan,
    RangeTest, Registers, RowLoop, SparseAccess, Strategy, TablePlan, Test, ThreadsPlan, Typed,
};
pub(crate) use tables::{Facts, TableSource};
pub(crate) use task::{
    AccumulationScope, Argument, CodeTest, EntryTest, FIXED_ARGUMENTS, GROUP_WORDS, SLOT_VECTORS,
    TABLE_WORDS, Task,
};
pub(crate) use values::KNOWN_DAYS;
