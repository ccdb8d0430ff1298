//! Turns expressions, functions and keys into parts of a pipeline, and what kernels give into Arrow arrays.

pub(crate) mod again;
mod average;
pub(crate) mod build;
pub(crate) mod conditions;
mod decimal;
pub(crate) mod expression;
pub(crate) mod filters;
pub(crate) mod function;
pub(crate) mod grouping;
mod listed;
pub(crate) mod lookups;
mod post_aggregation;
pub(crate) mod rows;
mod text;
mod variance;
pub(crate) mod wanted;
