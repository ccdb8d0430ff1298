//! Vectile tables in DataFusion, beside the same data in memory.

mod dynamic;
mod errors;
mod explain;
mod faults;
mod filters;
mod gpu;
mod gpu_auto;
mod gpu_joins;
mod gpu_plans;
mod gpu_preload;
mod gpu_stages;
mod gpu_text;
mod gpu_variances;
mod known_differences;
mod orc;
mod orc_gpu;
mod plan_cache;
mod projection;
mod pushdown;
mod requests;
mod ssb;
mod statistics;
mod sums;
mod support;
mod tables;
mod write;
