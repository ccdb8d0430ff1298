//! Results of a row group.

use vectile_pipeline::{GroupTotals, Rows};

use crate::group::KeyValues;

/// The rows of one row group, or its groups and their aggregates.
#[derive(Debug, Default)]
pub struct Partial {
    /// If rows are the output.
    pub(crate) rows: Option<Rows>,
    /// Number of groups.
    pub(crate) count: usize,
    pub(crate) keys: Vec<KeyValues>,
    pub(crate) totals: Vec<GroupTotals>,
    /// True for aggregates whose values are of single precision.
    pub(crate) singles: Vec<bool>,
}
