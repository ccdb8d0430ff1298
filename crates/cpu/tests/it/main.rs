//! Programs over encoded columns.

mod groups;
mod matches;
