//! The rule that replaces DataFusion's operator.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use super::exec::PackedSortExec;
use crate::options::{FuseMode, VectileOptions};
use crate::pushdown::Rule;
use crate::sanity;

/// Inserts the rule.
pub(crate) fn insert_rule(rules: &mut Vec<Rule>) {
    sanity::insert_before(rules, Arc::new(PackedSorts));
}

/// Replaces sorts by keys that may fit into an integer.
#[derive(Debug)]
struct PackedSorts;

impl PhysicalOptimizerRule for PackedSorts {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        config: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        if VectileOptions::of(config).fuse == FuseMode::Off {
            return Ok(plan);
        }
        plan.transform_up(|node| {
            Ok(match PackedSortExec::instead_of(&node)? {
                Some(sort) => Transformed::yes(Arc::new(sort) as _),
                None => Transformed::no(node),
            })
        })
        .data()
    }

    fn name(&self) -> &str {
        "packed_sorts"
    }

    fn schema_check(&self) -> bool {
        true
    }
}
