//! Kernel planning: [`plan`] turns a pipeline, the traits of its columns and known facts about the data into a
//! [`KernelPlan`]. All decisions are made here, before any text is emitted.
//!
//! Integers are computed in the narrowest of 32, 64 and 128 bits that the bounds of the columns allow, rounded out to
//! powers of two. Constants are arguments: a kernel depends only on the number of bits of a constant.

mod accumulator;
mod aggregates;
mod bindings;
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
pub(crate) use bindings::{Bindings, Grouping};
pub use columns::coded_columns;
pub(crate) use decide::plan;
pub(crate) use plan::{
    AccumulatorLocation, ColumnPlan, Combined, Field, GroupsPlan, KernelPlan, KeySource, ListPlan,
    Node, OutputPlan, RangeTest, Registers, RowLoop, SparseAccess, Strategy, TablePlan, Test,
    ThreadsPlan, Typed,
};
pub(crate) use tables::{Facts, TableSource};
pub(crate) use task::{
    AccumulationScope, Argument, CodeTest, DictionaryTest, FIXED_ARGUMENTS, GROUP_WORDS,
    SLOT_VECTORS, TABLE_WORDS, Task,
};
