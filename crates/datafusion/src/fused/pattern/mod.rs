//! Recognizes tables, joins and aggregates in a physical plan.

pub(crate) mod aggregates;
pub(crate) mod columns;
mod conditional;
mod cross;
pub(crate) mod eager;
pub(crate) mod exchange;
pub(crate) mod files;
pub(crate) mod fingerprint;
pub(crate) mod join;
pub(crate) mod probe_side;
pub(crate) mod reduction;
pub(crate) mod relation;
pub(crate) mod union;
