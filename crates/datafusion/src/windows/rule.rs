//! The rule that replaces DataFusion's operator, and drops rows that a filter by rank refuses before they are sorted.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::exec::SortedWindowExec;
use super::ranked::with_fewer_rows;
use crate::options::{FuseMode, VectileOptions};
use crate::pushdown::Rule;
use crate::sanity;

/// Inserts the rule.
pub(crate) fn insert_rule(rules: &mut Vec<Rule>) {
    sanity::insert_before(rules, Arc::new(SortedWindows));
}

/// Replaces windows over sorted rows, and drops rows below those whose first ranks are kept.
#[derive(Debug)]
struct SortedWindows;

impl PhysicalOptimizerRule for SortedWindows {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if VectileOptions::of(config).fuse == FuseMode::Off {
            return Ok(plan);
        }
        plan.transform_up(|node| {
            if let Some(window) = SortedWindowExec::instead_of(&node)? {
                return Ok(Transformed::yes(Arc::new(window) as _));
            }
            Ok(match with_fewer_rows(&node)? {
                Some(filter) => Transformed::yes(filter),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "sorted_windows"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
