//! Window functions that depend on the position of a row alone: `row_number`, `rank`, `dense_rank`, `lag` and `lead`.
//!
//! DataFusion's `BoundedWindowAggExec` evaluates them one partition and one row after the other, which takes most of a
//! query's time if partitions have few rows. Its input is sorted, so a [`SortedWindowExec`] finds the ends of all
//! partitions of a batch at once, and takes whole columns from there.
//!
//! If a filter keeps the first ranks, a [`FirstRanksExec`] drops other rows before they are sorted.
//!
//! ```text
//!  rule ──┬──▶ exec ────▶ rows ──▶ function
//!         └──▶ ranked ──▶ first_ranks ──▶ first_rows
//! ```

mod aggregate;
mod exec;
mod first_ranks;
mod first_rows;
mod function;
mod ranked;
mod rows;
mod rule;
#[cfg(test)]
mod tests;

pub(crate) use exec::SortedWindowExec;
pub(crate) use first_ranks::FirstRanksExec;
pub(crate) use rule::insert_rule;
