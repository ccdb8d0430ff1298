//! Removes old row groups: by age, or by what their zone maps say of all their rows.

use std::sync::Arc;
use std::time::Duration;

use datafusion::common::{DFSchema, Result};
use datafusion::logical_expr::Expr;
use datafusion::logical_expr::execution_props::ExecutionProps;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::simplify::SimplifyContext;
use datafusion::optimizer::simplify_expressions::ExprSimplifier;
use datafusion::physical_expr::create_physical_expr;
use vectile_scan::Role;

use super::contents::Contents;
use super::row_groups::Sealed;
use crate::filters::filters;
use crate::snapshot::segment_of;

/// What was removed from a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removed {
    /// Row groups.
    pub row_groups: usize,
    /// Their rows.
    pub rows: usize,
}

impl Removed {
    fn of(removed: &[Sealed]) -> Self {
        Self {
            row_groups: removed.len(),
            rows: removed.iter().map(|of| of.row_group.rows()).sum(),
        }
    }
}

/// Removes the encoded row groups whose newest row was appended longer ago than `age`.
pub(super) async fn remove_older_than(contents: &Contents, age: Duration) -> Removed {
    let _changing = contents.change().await;
    Removed::of(&contents.remove(|sealed| sealed.newest.elapsed() > age))
}

/// Removes the encoded row groups of which all rows pass `filter`, by their zone maps.
pub(super) async fn remove_row_groups(contents: &Contents, filter: &Expr) -> Result<Removed> {
    let schema = DFSchema::try_from(Arc::clone(&contents.settings.schema))?;
    let context = SimplifyContext::builder()
        .with_schema(Arc::new(schema.clone()))
        .with_current_time();
    let simplifier = ExprSimplifier::new(context.build());
    let filter = simplifier.simplify(simplifier.coerce(filter.clone(), &schema)?)?;
    let (props, planning) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    let filter = create_physical_expr(&filter, &schema, &props, &planning)?;
    let _changing = contents.change().await;
    let all = contents.row_groups().sealed().to_vec();
    let mut passing = Vec::new();
    for sealed in all {
        let Some(segment) = segment_of(&sealed.file) else {
            continue;
        };
        let (filters, _) = filters(Some(&filter), segment, Role::Exact)?;
        if filters.cover(0) {
            passing.push(sealed.row_group);
        }
    }
    let removed = contents.remove(|sealed| {
        let mut passing = passing.iter();
        passing.any(|row_group| Arc::ptr_eq(row_group, &sealed.row_group))
    });
    Ok(Removed::of(&removed))
}
