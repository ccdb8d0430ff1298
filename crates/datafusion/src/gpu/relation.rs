//! A scan and the operators right above it, as expressions over the table.

use std::sync::Arc;

use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs, update_expr};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;

use super::reason::Reason;
use crate::source::VectileSource;

/// The rows of a table that pass filters, projected.
pub(crate) struct Relation {
    pub(crate) config: FileScanConfig,
    pub(crate) source: VectileSource,
    /// Over the table's schema.
    pub(crate) filters: Vec<Arc<dyn PhysicalExpr>>,
    /// What the columns of the plan are, over the table's schema.
    columns: Vec<ProjectionExpr>,
}

impl Relation {
    /// What `plan` computes, in whatever order and partitions; `None` if it is anything else than
    /// such a relation.
    pub(crate) fn of(plan: &Arc<dyn ExecutionPlan>) -> Result<Option<Self>, Reason> {
        if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
            return Self::of_scan(scan);
        }
        let relation = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            match Self::of(projection.input())? {
                Some(relation) => relation.project(projection.projection_expr())?,
                None => return Ok(None),
            }
        } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            match Self::of(filter.input())? {
                Some(relation) => relation.filter(filter)?,
                None => return Ok(None),
            }
        } else if let Some(coalesce) = plan.downcast_ref::<CoalescePartitionsExec>() {
            match Self::of(coalesce.input())? {
                Some(relation) => relation,
                None => return Ok(None),
            }
        } else if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
            match Self::of(repartition.input())? {
                Some(relation) => relation,
                None => return Ok(None),
            }
        } else {
            return Ok(None);
        };
        match plan.fetch() {
            Some(_) => Err(Reason::Limit),
            None => Ok(Some(relation)),
        }
    }

    fn of_scan(scan: &DataSourceExec) -> Result<Option<Self>, Reason> {
        let Some((config, source)) = scan.downcast_to_file_source::<VectileSource>() else {
            return Ok(None);
        };
        if config.limit.is_some() {
            return Err(Reason::Limit);
        }
        let filters = match source.evaluates_filters() {
            true => source.filter().into_iter().collect(),
            false => Vec::new(),
        };
        let columns = source
            .projection()
            .into_iter()
            .flat_map(ProjectionExprs::iter);
        Ok(Some(Self {
            filters,
            columns: columns.cloned().collect(),
            config: config.clone(),
            source: source.clone(),
        }))
    }

    /// `expr`, over the columns of the plan, over the table's schema.
    pub(crate) fn over_table(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Result<Arc<dyn PhysicalExpr>, Reason> {
        let expanded = update_expr(expr, &self.columns, true)?;
        Ok(expanded.unwrap_or_else(|| Arc::clone(expr)))
    }

    fn project(mut self, projection: &ProjectionExprs) -> Result<Self, Reason> {
        let columns = projection.iter().map(|projected| {
            let expr = self.over_table(&projected.expr)?;
            Ok(ProjectionExpr::new(expr, projected.alias.clone()))
        });
        self.columns = columns.collect::<Result<_, Reason>>()?;
        Ok(self)
    }

    fn filter(mut self, filter: &FilterExec) -> Result<Self, Reason> {
        self.filters.push(self.over_table(filter.predicate())?);
        if let Some(kept) = filter.projection() {
            let columns = kept.iter().filter_map(|&column| self.columns.get(column));
            self.columns = columns.cloned().collect();
        }
        Ok(self)
    }
}
