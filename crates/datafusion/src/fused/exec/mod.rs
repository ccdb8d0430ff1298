//! Execution: the fused aggregate node, filters of scans, and their shared input.

pub(crate) mod auto;
mod batch_stream;
pub(crate) mod build_side;
pub(crate) mod column_loader;
pub(crate) mod cpu_fallback;
pub(crate) mod device_build;
pub(crate) mod fused_aggregate;
pub(crate) mod metrics;
pub(crate) mod prewarm;
pub(crate) mod scan;
mod stage;
pub(crate) mod star_pipeline;
