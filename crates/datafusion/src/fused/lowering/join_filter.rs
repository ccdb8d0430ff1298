//! Join filters beside the key equality, which kernels evaluate per match.

use vectile_pipeline::Expr;

use super::expression::Lowering;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::pattern::join::Join;

/// Lowers the filter of each join, in the order of `joins`. An element is `None` if the join has no filter, or if it is
/// an outer join whose filter has no kernel. Such a filter matters only for probe rows with several matches, so that
/// the build side must have unique keys then.
pub(crate) fn of(
    joins: &[Join],
    lowering: &mut Lowering<'_>,
) -> Result<Vec<Option<Expr>>, FallbackReason> {
    let conditions = joins.iter().map(|join| {
        let Some(condition) = &join.condition else {
            return Ok(None);
        };
        if join.reads_matches() {
            return lowering.value(condition).map(Some);
        }
        Ok(lowering.try_lower(|trial| trial.value(condition)))
    });
    conditions.collect()
}
