//! A rule for `DELETE` and `UPDATE`. DataFusion 55.2 passes to a table the filters that it finds in the optimized plan. If
//! a filter is always false, or has become a join with a subquery, it finds none, and all rows are changed.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Result, not_impl_err};
use datafusion::logical_expr::dml::WriteOp;
use datafusion::logical_expr::{DmlStatement, Filter, LogicalPlan, lit};
use datafusion::optimizer::{OptimizerConfig, OptimizerRule};

/// Restores filters that are always false, and refuses statements whose rows no filter of the table says.
#[derive(Debug)]
pub(crate) struct ChangedRows;

impl OptimizerRule for ChangedRows {
    fn name(&self) -> &str {
        "changed_rows"
    }

    fn supports_rewrite(&self) -> bool {
        true
    }

    fn rewrite(
        &self,
        plan: LogicalPlan,
        _: &dyn OptimizerConfig,
    ) -> Result<Transformed<LogicalPlan>> {
        let LogicalPlan::Dml(statement) = plan else {
            return Ok(Transformed::no(plan));
        };
        if !matches!(statement.op, WriteOp::Delete | WriteOp::Update) {
            return Ok(Transformed::no(LogicalPlan::Dml(statement)));
        }
        let (mut is_empty, mut is_filtered) = (false, false);
        statement.input.apply(|node| {
            match node {
                LogicalPlan::EmptyRelation(_) => is_empty = true,
                LogicalPlan::Filter(_) => is_filtered = true,
                LogicalPlan::Projection(_)
                | LogicalPlan::SubqueryAlias(_)
                | LogicalPlan::TableScan(_) => {}
                _ => {
                    return not_impl_err!(
                        "{} of rows that a filter of this table alone does not select: DataFusion 55.2 would change all rows",
                        statement.op
                    );
                }
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !is_empty || is_filtered {
            return Ok(Transformed::no(LogicalPlan::Dml(statement)));
        }
        let none = Filter::try_new(lit(false), Arc::clone(&statement.input))?;
        let input = Arc::new(LogicalPlan::Filter(none));
        Ok(Transformed::yes(LogicalPlan::Dml(DmlStatement {
            input,
            ..statement
        })))
    }
}
