//! What runs: an aggregate as a plan node, the filters of a scan, and what both read.

pub(crate) mod aggregate;
mod arrivals;
pub(crate) mod auto;
pub(crate) mod build;
pub(crate) mod cpu;
pub(crate) mod dimension;
pub(crate) mod load;
pub(crate) mod metrics;
pub(crate) mod prepare;
pub(crate) mod scan;
mod stage;
pub(crate) mod star;
