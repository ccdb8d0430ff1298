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

/// The name of the rule.
const RULE: &str = "packed_sorts";

/// The name of DataFusion's last rule.
const CHECK: &str = "SanityCheckPlan";

/// Inserts the rule, unless it is present, behind all rules that know DataFusion's operator.
pub(crate) fn insert_rule(rules: &mut Vec<Rule>) {
    let index_of = |name| rules.iter().position(|rule| rule.name() == name);
    if index_of(RULE).is_none() {
        let end = index_of(CHECK).unwrap_or(rules.len());
        rules.insert(end, Arc::new(PackedSorts));
    }
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
        RULE
    }

    fn schema_check(&self) -> bool {
        true
    }
}
