//! Copies plans so that scalar subqueries have results of their own.
//!
//! An operator stores the result of a subquery in a slot that it shares with the expressions above it. If only the
//! operator were copied, it would share the slot with the original plan, which may be running.

use std::sync::Arc;

use datafusion::common::Result;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::physical_planning_context::ScalarSubqueryResults;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::ProjectionExpr;
use datafusion::physical_expr::scalar_subquery::ScalarSubqueryExpr;
use datafusion::physical_plan::filter::{FilterExec, FilterExecBuilder};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::scalar_subquery::{ScalarSubqueryExec, ScalarSubqueryLink};
use datafusion::physical_plan::{ChildrenPropertiesMode, ExecutionPlan, ReplaceChildrenOptions};

#[cfg(feature = "gpu")]
use crate::fused;
use crate::source::{VectileSource, scan_of};

type Plan = Arc<dyn ExecutionPlan>;
type Expr = Arc<dyn PhysicalExpr>;

/// Copies `plan`. Returns `None` if an operator other than filters, projections, scans and fused nodes uses the result
/// of a subquery.
pub(super) fn with_own_subqueries(plan: &Plan) -> Result<Option<Plan>> {
    match has_subqueries(plan) {
        true => SubqueryCopier::default().copy(plan),
        false => Ok(Some(Arc::clone(plan))),
    }
}

fn has_subqueries(plan: &Plan) -> bool {
    plan.is::<ScalarSubqueryExec>() || plan.children().into_iter().any(has_subqueries)
}

/// Result slots of the original plan, each with that of the copy.
#[derive(Clone, Default)]
struct SubqueryCopier {
    results: Vec<(ScalarSubqueryResults, ScalarSubqueryResults)>,
}

impl SubqueryCopier {
    /// Copies `plan`; see [`with_own_subqueries`].
    fn copy(&self, plan: &Plan) -> Result<Option<Plan>> {
        if let Some(exec) = plan.downcast_ref::<ScalarSubqueryExec>() {
            let own = ScalarSubqueryResults::new(exec.subqueries().len());
            let mut inner = self.clone();
            inner.results.push((exec.results().clone(), own.clone()));
            let mut links = Vec::new();
            for link in exec.subqueries() {
                let Some(plan) = inner.copy(&link.plan)? else {
                    return Ok(None);
                };
                let index = link.index;
                links.push(ScalarSubqueryLink { plan, index });
            }
            let input = inner.copy(exec.input())?;
            return Ok(input.map(|input| Arc::new(ScalarSubqueryExec::new(input, links, own)) as _));
        }
        let mut children = Vec::new();
        for child in plan.children() {
            match self.copy(child)? {
                Some(child) => children.push(child),
                None => return Ok(None),
            }
        }
        #[cfg(feature = "gpu")]
        if let Some(node) = fused::as_fused(plan) {
            let Some(cpu) = self.copy(node.cpu())? else {
                return Ok(None);
            };
            let copy = node.with_exprs(children, cpu, &|expr| self.expr(expr));
            return copy.map(Some);
        }
        if let Some(filter) = plan.downcast_ref::<FilterExec>()
            && let [input] = &children[..]
        {
            let filter = FilterExecBuilder::from(filter)
                .with_predicate(self.expr(filter.predicate())?)
                .with_input(Arc::clone(input));
            return Ok(Some(Arc::new(filter.build()?)));
        }
        if let Some(projection) = plan.downcast_ref::<ProjectionExec>()
            && let [input] = &children[..]
        {
            let exprs = projection.expr().iter().map(|projected| {
                let expr = self.expr(&projected.expr)?;
                Ok(ProjectionExpr::new(expr, projected.alias.clone()))
            });
            let exprs: Vec<ProjectionExpr> = exprs.collect::<Result<_>>()?;
            let projection = ProjectionExec::try_new(exprs, Arc::clone(input))?;
            return Ok(Some(Arc::new(projection)));
        }
        if let Some(scan) = plan.downcast_ref::<DataSourceExec>()
            && let Some((config, source)) = scan.downcast_to_file_source::<VectileSource>()
        {
            let copy = source.clone().with_predicate(|expr| self.expr(expr))?;
            let copy = scan_of(config, copy);
            return Ok((!self.uses_results_of_original(&copy)?).then_some(copy));
        }
        if self.uses_results_of_original(plan)? {
            return Ok(None);
        }
        let options = ReplaceChildrenOptions::new(ChildrenPropertiesMode::Keep);
        Arc::clone(plan)
            .replace_children(children, options)
            .map(Some)
    }

    /// Replaces result slots in `expr` by those of the copy.
    fn expr(&self, expr: &Expr) -> Result<Expr> {
        let copied = Arc::clone(expr).transform_up(|expr| {
            let subquery = expr.downcast_ref::<ScalarSubqueryExpr>();
            let own = subquery.and_then(|subquery| {
                let mut results = self.results.iter();
                results.find(|(of, _)| of == subquery.results())
            });
            Ok(match subquery.zip(own) {
                // no other function returns these
                #[allow(deprecated)]
                Some((of, (_, own))) => {
                    let (data_type, index) = (of.data_type().clone(), of.index());
                    let own = own.clone();
                    let copy = ScalarSubqueryExpr::new(data_type, of.nullable(), index, own);
                    Transformed::yes(Arc::new(copy) as Expr)
                }
                None => Transformed::no(expr),
            })
        });
        copied.data()
    }

    /// True if an expression of the operator `plan` uses a result slot of the original plan.
    fn uses_results_of_original(&self, plan: &Plan) -> Result<bool> {
        let mut uses_results = false;
        plan.apply_expressions(&mut |expr| {
            expr.apply(|expr| {
                let subquery = expr.downcast_ref::<ScalarSubqueryExpr>();
                let mut results = self.results.iter();
                uses_results |= subquery
                    .is_some_and(|subquery| results.any(|(of, _)| of == subquery.results()));
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(uses_results)
    }
}
