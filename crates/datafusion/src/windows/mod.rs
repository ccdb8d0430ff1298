//! Window functions that depend on the position of a row alone: `row_number`, `rank`, `dense_rank`, `lag` and `lead`.
//!
//! DataFusion's `BoundedWindowAggExec` evaluates them one partition and one row after the other, which takes most of a
//! query's time if partitions have few rows. Its input is sorted, so a [`PositionWindowExec`] finds the ends of all
//! partitions of a batch at once, and takes whole columns from there.
//!
//! ```text
//!  rule, exec ──▶ rows ──▶ function
//! ```

mod exec;
mod function;
mod rows;
mod rule;

pub(crate) use rule::insert_rule;
