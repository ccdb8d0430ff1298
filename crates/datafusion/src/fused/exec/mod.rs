//! Execution: the fused nodes, filters of scans, and their shared input.

pub(crate) mod auto;
mod batch_stream;
pub(crate) mod build_side;
pub(crate) mod column_loader;
mod compute;
pub(crate) mod cpu_fallback;
mod cpu_run;
pub(crate) mod device_build;
pub(crate) mod fused_aggregate;
pub(crate) mod fused_exec;
pub(crate) mod fused_join;
pub(crate) mod fused_nodes;
pub(crate) mod fused_plan;
mod fused_run;
pub(crate) mod grouping_sets;
pub(crate) mod input;
pub(crate) mod metrics;
pub(crate) mod operation;
pub(crate) mod prewarm;
pub(crate) mod scan;
mod stage;
pub(crate) mod star_pipeline;
