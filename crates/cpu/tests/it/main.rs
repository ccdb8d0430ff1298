//! Programs over encoded columns.

mod groups;
mod lookups;
mod matches;
