//! Lowers DataFusion expressions, aggregate functions and keys to a pipeline, and turns kernel results into Arrow
//! arrays.

mod arithmetic;
mod average;
mod bits;
pub(crate) mod build_output;
mod decimal;
pub(crate) mod expression;
mod factor;
pub(crate) mod filters;
pub(crate) mod function;
pub(crate) mod group_key;
pub(crate) mod group_pruning;
pub(crate) mod join_filter;
pub(crate) mod nested_aggregate;
pub(crate) mod output_rows;
pub(crate) mod payload_values;
mod post_aggregation;
pub(crate) mod probe;
mod text_function;
mod text_in_list;
mod value_test;
mod variance;
