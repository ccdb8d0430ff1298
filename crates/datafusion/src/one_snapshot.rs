//! A rule for queries that name a table in memory more than once: they see the rows of one moment, although each scan was
//! planned with those of its own.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::physical_plan::{FileScanConfig, FileScanConfigBuilder};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::ExecutionPlan;

use crate::pushdown::Rule;
use crate::snapshot::Snapshot;
use crate::source::VectileSource;

/// Gives all scans of a table the latest of their snapshots. It is the first rule: later ones decide by the files.
#[derive(Debug)]
struct OneSnapshot;

const NAME: &str = "one_snapshot";

/// The snapshots by the number of their table.
type Snapshots = HashMap<u64, Arc<Snapshot>>;

impl PhysicalOptimizerRule for OneSnapshot {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let mut latest = Snapshots::new();
        let mut differ = false;
        plan.apply(|node| {
            if let Some((_, source)) = scan(node)
                && let Some(snapshot) = source.snapshot()
            {
                let known = latest
                    .entry(snapshot.table)
                    .or_insert_with(|| Arc::clone(snapshot));
                differ |= known.version != snapshot.version;
                if known.version < snapshot.version {
                    *known = Arc::clone(snapshot);
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        match differ {
            false => Ok(plan),
            true => Ok(plan.transform_up(|node| of_latest(node, &latest))?.data),
        }
    }

    fn name(&self) -> &str {
        NAME
    }

    fn schema_check(&self) -> bool {
        true
    }
}

/// The scan of Vectile tables that an operator is.
fn scan(node: &Arc<dyn ExecutionPlan>) -> Option<(&FileScanConfig, &VectileSource)> {
    node.downcast_ref::<DataSourceExec>()?
        .downcast_to_file_source::<VectileSource>()
}

fn of_latest(
    node: Arc<dyn ExecutionPlan>,
    latest: &Snapshots,
) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
    let newer = scan(&node).and_then(|(config, source)| {
        let known = source.snapshot()?;
        let newer = latest.get(&known.table)?;
        (newer.version != known.version).then(|| {
            let source = source.clone().with_snapshot(Some(Arc::clone(newer)));
            let partitions = config.file_groups.len();
            let config = FileScanConfigBuilder::from(config.clone()).with_source(Arc::new(source));
            let config = newer.scanned_by(config, partitions);
            DataSourceExec::from_data_source(config.build()) as _
        })
    });
    Ok(match newer {
        Some(scan) => Transformed::yes(scan),
        None => Transformed::no(node),
    })
}

/// Inserts the rule before all others.
pub(crate) fn insert_rule(rules: &mut Vec<Rule>) {
    rules.retain(|rule| rule.name() != NAME);
    rules.insert(0, Arc::new(OneSnapshot));
}
