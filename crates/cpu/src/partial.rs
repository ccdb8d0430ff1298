//! Results of a row group.

use vectile_pipeline::GroupTotals;

use crate::group::KeyValues;

/// The groups of one row group, and their aggregates.
#[derive(Debug, Default)]
pub struct Partial {
    /// Number of groups.
    pub(crate) count: usize,
    pub(crate) keys: Vec<KeyValues>,
    pub(crate) totals: Vec<GroupTotals>,
    /// True for aggregates whose values are of single precision.
    pub(crate) singles: Vec<bool>,
}
