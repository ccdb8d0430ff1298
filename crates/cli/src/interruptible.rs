//! Joins that end on cancellation. Cancelling a query drops tasks that wait; but a join may compute for minutes without
//! waiting: on rows of which its filter keeps none, or that an aggregate consumes at once.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Schema};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::{DataFusionError, Result};
use datafusion::logical_expr::ColumnarValue;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_plan::coop::CooperativeExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{
    CrossJoinExec, HashJoinExec, NestedLoopJoinExec, NestedLoopJoinExecBuilder, SortMergeJoinExec,
};
use datafusion::physical_plan::{ExecutionPlan, PhysicalExpr};

use crate::error::CliError;

/// Ends the joins of every statement planned so far.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicU64>);

impl Cancel {
    /// Ends the joins.
    pub fn cancel(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Makes joins yield after some batches, and their filters fail once cancelled.
#[derive(Debug)]
pub struct InterruptibleJoins(pub Cancel);

impl PhysicalOptimizerRule for InterruptibleJoins {
    fn optimize(
        &self,
        plan: Arc<dyn ExecutionPlan>,
        _: &ConfigOptions,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        Ok(self.rewrite(plan)?.data)
    }

    fn name(&self) -> &str {
        "interruptible_joins"
    }

    fn schema_check(&self) -> bool {
        true
    }
}

impl InterruptibleJoins {
    fn rewrite(&self, plan: Arc<dyn ExecutionPlan>) -> Result<Transformed<Arc<dyn ExecutionPlan>>> {
        // The GPU's pipelines were compiled from the plan as it is.
        if ["FusedAggregateExec", "FusedJoinExec"].contains(&plan.name()) {
            return Ok(Transformed::no(plan));
        }
        let plan = plan.map_children(|child| self.rewrite(child))?;
        plan.transform_parent(|node| {
            Ok(match self.interruptible(&node)? {
                Some(join) => Transformed::yes(Arc::new(CooperativeExec::new(join)) as _),
                None => Transformed::no(node),
            })
        })
    }

    fn interruptible(
        &self,
        node: &Arc<dyn ExecutionPlan>,
    ) -> Result<Option<Arc<dyn ExecutionPlan>>> {
        if let Some(join) = node.downcast_ref::<HashJoinExec>() {
            return match join.filter() {
                Some(filter) => join
                    .builder()
                    .with_filter(Some(self.filter(filter)))
                    .build_exec()
                    .map(Some),
                None => Ok(Some(Arc::clone(node))),
            };
        }
        if let Some(join) = node.downcast_ref::<NestedLoopJoinExec>() {
            let filter = join.filter().map(|filter| self.filter(filter));
            let join = NestedLoopJoinExecBuilder::from(join).with_filter(filter);
            return Ok(Some(Arc::new(join.build()?)));
        }
        if let Some(join) = node.downcast_ref::<SortMergeJoinExec>() {
            return Ok(Some(Arc::new(SortMergeJoinExec::try_new(
                Arc::clone(join.left()),
                Arc::clone(join.right()),
                join.on().to_vec(),
                join.filter().as_ref().map(|filter| self.filter(filter)),
                join.join_type(),
                join.sort_options().to_vec(),
                join.null_equality(),
            )?)));
        }
        let is_cross = node.downcast_ref::<CrossJoinExec>().is_some();
        Ok(is_cross.then(|| Arc::clone(node)))
    }

    fn filter(&self, filter: &JoinFilter) -> JoinFilter {
        let expression = Interruptible {
            inner: Arc::clone(filter.expression()),
            planned: self.0.count(),
            cancel: self.0.clone(),
        };
        JoinFilter::new(
            Arc::new(expression),
            filter.column_indices().to_vec(),
            Arc::clone(filter.schema()),
        )
    }
}

/// An expression that fails once cancelled.
#[derive(Debug)]
struct Interruptible {
    inner: Arc<dyn PhysicalExpr>,
    cancel: Cancel,
    /// The count of `cancel` when the statement was planned.
    planned: u64,
}

impl PhysicalExpr for Interruptible {
    fn data_type(&self, schema: &Schema) -> Result<DataType> {
        self.inner.data_type(schema)
    }

    fn nullable(&self, schema: &Schema) -> Result<bool> {
        self.inner.nullable(schema)
    }

    fn evaluate(&self, batch: &RecordBatch) -> Result<ColumnarValue> {
        match self.cancel.count() == self.planned {
            true => self.inner.evaluate(batch),
            false => Err(DataFusionError::External(Box::new(CliError::Interrupted))),
        }
    }

    fn children(&self) -> Vec<&Arc<dyn PhysicalExpr>> {
        vec![&self.inner]
    }

    fn with_new_children(
        self: Arc<Self>,
        mut children: Vec<Arc<dyn PhysicalExpr>>,
    ) -> Result<Arc<dyn PhysicalExpr>> {
        Ok(Arc::new(Interruptible {
            inner: children.pop().unwrap_or_else(|| Arc::clone(&self.inner)),
            cancel: self.cancel.clone(),
            planned: self.planned,
        }))
    }

    fn fmt_sql(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt_sql(f)
    }
}

impl fmt::Display for Interruptible {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl PartialEq for Interruptible {
    fn eq(&self, other: &Self) -> bool {
        self.inner.eq(&other.inner)
    }
}

impl Eq for Interruptible {}

impl Hash for Interruptible {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.inner.hash(state);
    }
}
