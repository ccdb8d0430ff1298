//! Expressions, functions and keys as the IR of the kernels; and what kernels give, back as Arrow's.

pub(crate) mod expression;
pub(crate) mod function;
pub(crate) mod grouping;
pub(crate) mod lookups;
