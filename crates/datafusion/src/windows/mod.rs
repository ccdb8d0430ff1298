//! Window functions over sorted rows: `row_number`, `rank`, `dense_rank`, `lag`, `lead`, `first_value`, `last_value`, and
//! aggregates over the usual frames.
//!
//! DataFusion's operators evaluate them one partition and one row after the other, which takes most of a query's time if
//! partitions have few rows. Their input is sorted, so a [`SortedWindowExec`] finds the ends of all partitions of a batch at
//! once, and takes whole columns from there.
//!
//! If a filter keeps the first ranks, a [`FirstRanksExec`] drops other rows before they are sorted.
//!
//! ```text
//!  rule ──┬──▶ exec ────▶ rows ──▶ function ──▶ aggregate ──▶ frame
//!         └──▶ ranked ──▶ first_ranks ──▶ first_rows
//! ```

mod aggregate;
mod exec;
mod first_ranks;
mod first_rows;
mod frame;
mod function;
mod ranked;
mod rows;
mod rule;
#[cfg(test)]
mod tests;

pub(crate) use exec::SortedWindowExec;
pub(crate) use first_ranks::FirstRanksExec;
pub(crate) use rule::insert_rule;
