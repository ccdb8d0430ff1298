//! A scan and the operators above it, as expressions over the table and what it is joined with.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::JoinSide;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, Column};
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs, update_expr};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::{HashJoinExec, JoinOn};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;

use super::exchange::without_exchange;
use super::join::{Join, JoinKind, Sides, key_column};
use crate::gpu::reason::Reason;
use crate::source::VectileSource;

/// The rows of a table, joined with others, that pass filters, projected.
pub(crate) struct Relation {
    pub(crate) config: FileScanConfig,
    pub(crate) source: VectileSource,
    /// The columns of the table, and behind them those of what it is joined with.
    pub(crate) schema: SchemaRef,
    /// From the table upwards.
    pub(crate) joins: Vec<Join>,
    /// Over `schema`.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    /// What the columns of the plan are, over `schema`.
    columns: Vec<ProjectionExpr>,
}

/// The filters of a relation, apart.
pub(crate) struct Filters {
    /// Those of the table alone.
    pub(crate) of_table: Vec<Arc<dyn PhysicalExpr>>,
    /// Those that need what it is joined with.
    pub(crate) joined: Vec<Arc<dyn PhysicalExpr>>,
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
        } else if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let Some(sides) = Sides::of(join)? else {
                return Ok(None);
            };
            match Self::of(sides.fact_plan)? {
                Some(relation) => relation.join(join, &sides)?,
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
            schema: Arc::clone(source.table_schema().table_schema()),
            joins: Vec::new(),
            config: config.clone(),
            source: source.clone(),
        }))
    }

    /// `expr`, over the columns of the plan, over the relation's schema.
    pub(crate) fn over_table(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Result<Arc<dyn PhysicalExpr>, Reason> {
        over(expr, &self.columns)
    }

    /// The filters: all of them have to pass.
    pub(crate) fn filters(&self) -> Filters {
        let columns = self.source.table_schema().table_schema().fields().len();
        let conjuncts = self.filters.iter().flat_map(split_conjunction).cloned();
        let (of_table, joined) = conjuncts.partition(|conjunct| {
            let used = collect_columns(conjunct);
            used.iter().all(|column| column.index() < columns)
        });
        Filters { of_table, joined }
    }

    fn join(mut self, join: &HashJoinExec, sides: &Sides<'_>) -> Result<Self, Reason> {
        let keys = sides.keys.iter();
        let keys =
            keys.map(|(key, of_dimension)| Ok((self.over_table(key)?, Arc::clone(of_dimension))));
        let keys: JoinOn = keys.collect::<Result<_, Reason>>()?;
        let added = match self.dimension_of(&keys) {
            Some(dimension) => self.join_dimension(dimension, join, sides, keys)?,
            None => self.join_table(sides, keys)?,
        };
        self.condition(join, sides, &added)?;
        if sides.kind.adds_columns() {
            let own = std::mem::take(&mut self.columns);
            self.columns = match sides.fact {
                JoinSide::Left => own.into_iter().chain(added).collect(),
                _ => added.into_iter().chain(own).collect(),
            };
        }
        if let Some(kept) = &join.projection {
            let columns = kept.iter().filter_map(|&column| self.columns.get(column));
            self.columns = columns.cloned().collect();
        }
        Ok(self)
    }

    /// The dimension that all keys are columns of, if it is one whose rows all have them.
    fn dimension_of(&self, keys: &JoinOn) -> Option<usize> {
        self.joins.iter().position(|join| {
            let has_key = |key: &Arc<dyn PhysicalExpr>| {
                let columns = collect_columns(key);
                let mut own = columns.iter().map(|column| join.has_column(column.index()));
                !columns.is_empty() && own.all(|own| own)
            };
            join.kind == JoinKind::Inner && keys.iter().all(|(key, _)| has_key(key))
        })
    }

    /// Joins the table with another one by a column, and gives the other's columns. Keys that are of dimensions before it
    /// are compared with what is found.
    fn join_table(
        &mut self,
        sides: &Sides<'_>,
        keys: JoinOn,
    ) -> Result<Vec<ProjectionExpr>, Reason> {
        let own = self.source.table_schema().table_schema().fields().len();
        let is_own = |key: &Arc<dyn PhysicalExpr>| {
            let columns = collect_columns(key);
            columns.iter().all(|column| column.index() < own)
        };
        let (of_table, others) = match keys.len() {
            1 => (keys, vec![]),
            _ => keys.into_iter().partition(|(key, _)| is_own(key)),
        };
        let [(key, dimension_key)] =
            <[_; 1]>::try_from(of_table).map_err(|_| Reason::Join("it has several keys".into()))?;
        if !others.is_empty() && sides.kind != JoinKind::Inner {
            return Err(Reason::Join("it has several keys".into()));
        }
        let (column, _) = key_column(&key, self.source.table_schema().table_schema())?;
        let plan = Arc::clone(without_exchange(sides.dimension_plan));
        let first = self.schema.fields().len();
        let added = columns_from(&plan.schema(), first);
        if sides.kind.adds_columns() {
            self.schema = Arc::new(extended(&self.schema, &plan.schema(), sides.kind));
        }
        for (key, dimension_key) in others {
            // joins and operators do not agree on which floats are equal
            if key.data_type(&self.schema)?.is_floating() {
                return Err(Reason::Join(format!("its key is {key}")));
            }
            let dimension_key = over(&dimension_key, &added)?;
            let equal = BinaryExpr::new(key, Operator::Eq, dimension_key);
            self.filters.push(Arc::new(equal));
        }
        self.joins.push(Join {
            plan,
            key: dimension_key,
            column,
            kind: sides.kind,
            first,
        });
        Ok(added)
    }

    /// Joins a dimension with another table, so that they are one, and gives the other's columns. Those of the dimension
    /// have new numbers then.
    fn join_dimension(
        &mut self,
        dimension: usize,
        join: &HashJoinExec,
        sides: &Sides<'_>,
        keys: JoinOn,
    ) -> Result<Vec<ProjectionExpr>, Reason> {
        let before = self.joins.remove(dimension);
        let keys = keys
            .into_iter()
            .map(|(key, other)| Ok((before.moved(&key, 0)?, other)));
        let plan = before.joined_with(join, sides, keys.collect::<Result<_, Reason>>()?)?;
        let first = self.schema.fields().len();
        for filter in &mut self.filters {
            *filter = before.moved(filter, first)?;
        }
        for column in &mut self.columns {
            column.expr = before.moved(&column.expr, first)?;
        }
        self.schema = Arc::new(extended(&self.schema, &plan.schema(), before.kind));
        let added = match sides.kind.adds_columns() {
            true => columns_from(
                &sides.dimension_plan.schema(),
                first + before.columns().len(),
            ),
            false => Vec::new(),
        };
        self.joins.push(Join {
            plan,
            first,
            ..before
        });
        Ok(added)
    }

    /// Takes over what a join asks for beside its key; `added` are the columns of the other side.
    fn condition(
        &mut self,
        join: &HashJoinExec,
        sides: &Sides<'_>,
        added: &[ProjectionExpr],
    ) -> Result<(), Reason> {
        let Some(filter) = join.filter() else {
            return Ok(());
        };
        let columns = filter.column_indices().iter().map(|place| {
            let of = match place.side == sides.fact {
                true => self.columns.as_slice(),
                false => added,
            };
            let column = of.get(place.index).cloned();
            column.ok_or_else(|| Reason::Failed(format!("there is no column {}", place.index)))
        });
        let columns: Vec<ProjectionExpr> = columns.collect::<Result<_, Reason>>()?;
        self.filters.push(over(filter.expression(), &columns)?);
        Ok(())
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

/// `expr` with the expressions behind its columns in their place.
fn over(
    expr: &Arc<dyn PhysicalExpr>,
    columns: &[ProjectionExpr],
) -> Result<Arc<dyn PhysicalExpr>, Reason> {
    let expanded = update_expr(expr, columns, true)?;
    Ok(expanded.unwrap_or_else(|| Arc::clone(expr)))
}

/// The columns of `schema`, numbered from `first` on.
fn columns_from(schema: &Schema, first: usize) -> Vec<ProjectionExpr> {
    let fields = schema.fields().iter().zip(first..);
    let columns = fields.map(|(field, number)| {
        let column = Column::new(field.name(), number);
        ProjectionExpr::new(Arc::new(column), field.name().clone())
    });
    columns.collect()
}

/// The columns of `schema`, and behind them those of what it is joined with.
fn extended(schema: &Schema, joined: &Schema, kind: JoinKind) -> Schema {
    let joined = joined.fields().iter().map(|field| match kind {
        JoinKind::Outer => Arc::new(field.as_ref().clone().with_nullable(true)),
        _ => Arc::clone(field),
    });
    let fields = schema.fields().iter().cloned().chain(joined);
    Schema::new(fields.collect::<Vec<_>>())
}
