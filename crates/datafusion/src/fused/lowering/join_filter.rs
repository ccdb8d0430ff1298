//! Conditions of joins beside their keys, which kernels ask of each partner.

use vectile_gpu::plan::Expr;

use super::expression::Lowering;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::pattern::join::Join;

/// That of each join that has one. `None` stands for that of an outer join which has no kernel: it matters only where a row
/// has several partners, which the dimension must not have then.
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
        Ok(lowering.if_lowered(|trial| trial.value(condition)))
    });
    conditions.collect()
}
