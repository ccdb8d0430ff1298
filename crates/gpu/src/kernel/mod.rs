//! What is decided about a kernel before any of it is written.

mod bounds;
mod columns;
mod groups;
mod tables;
mod task;

pub(crate) use bounds::{Bounds, add, product, sub};
pub(crate) use columns::{
    argument_of, columns_by_row, columns_of_expr, columns_of_filter, is_float, lookups_of_expr,
    loops, name_of, push,
};
pub(crate) use groups::{Digit, GroupFold, Grouping, SHARED_TABLE, Spot};
pub(crate) use tables::{Facts, TableSource, TableUse, tables_of};
pub(crate) use task::{
    Argument, CodeTest, EntryTest, FIXED_ARGUMENTS, Fold, GROUP_WORDS, Outcome, Per, SLOT_VECTORS,
    TABLE_WORDS, Task,
};
