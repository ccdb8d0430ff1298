//! Sorts by keys that fit into an integer.
//!
//! DataFusion's `SortExec` sorts each batch by itself, with one comparison of a key after the other, and merges the
//! batches, of which a partition of a million rows has more than a hundred. Keys are mostly numbers, dates, and text of
//! few values: all keys of a row and its number, packed into one integer, are sorted at once. A [`PackedSortExec`] does
//! so, and gives its rows to DataFusion's operator if the keys or the memory don't suffice.
//!
//! ```text
//!  rule ──▶ exec ──┬──▶ order ──▶ codes
//!                  └──▶ general
//! ```

mod codes;
mod exec;
mod general;
mod order;
mod rule;
#[cfg(test)]
mod tests;

pub(crate) use exec::PackedSortExec;
pub(crate) use rule::insert_rule;
