//! A scan and the operators above it, as expressions over the table and the tables joined with it.

use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::common::JoinSide;
use datafusion::datasource::physical_plan::{FileScanConfig, FileSource};
use datafusion::datasource::source::DataSourceExec;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{BinaryExpr, CaseExpr, Column, NotExpr};
use datafusion::physical_expr::projection::{ProjectionExpr, ProjectionExprs};
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr::{PhysicalExpr, split_conjunction};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::coalesce_partitions::CoalescePartitionsExec;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::joins::utils::JoinFilter;
use datafusion::physical_plan::joins::{HashJoinExec, JoinOn};
use datafusion::physical_plan::projection::ProjectionExec;
use datafusion::physical_plan::repartition::RepartitionExec;

use super::columns::{columns_from, projected, selected, substituted};
use super::conditional::Conditional;
use super::cross::WithOneRow;
use super::exchange::without_exchange;
use super::join::{Join, JoinKey, JoinKind, KeptRows, KeySource, Sides, key_column};
use super::probe_side::ProbeSide;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::string_id::StringId;
use crate::source::VectileSource;
use crate::stack;
use crate::text::is_text;

/// The rows of a table: joined with others, filtered, projected.
pub(crate) struct Relation {
    pub(crate) config: FileScanConfig,
    pub(crate) source: VectileSource,
    /// The columns of the table, followed by those of the joined tables.
    pub(crate) schema: SchemaRef,
    /// From the table upwards.
    pub(crate) joins: Vec<Join>,
    /// Over `schema`.
    filters: Vec<Arc<dyn PhysicalExpr>>,
    /// The columns of the plan, as expressions over `schema`.
    columns: Vec<ProjectionExpr>,
}

/// The filters of a relation, by the tables that they need.
pub(crate) struct Filters {
    /// Filters over the table alone.
    pub(crate) of_table: Vec<Arc<dyn PhysicalExpr>>,
    /// Filters over columns of joined tables.
    pub(crate) joined: Vec<Arc<dyn PhysicalExpr>>,
}

impl Relation {
    /// The relation that `plan` computes, in any order and partitioning; `None` if `plan` is something else.
    pub(crate) fn of(
        plan: &Arc<dyn ExecutionPlan>,
        probe_side: ProbeSide,
    ) -> Result<Option<Self>, FallbackReason> {
        stack::grown(|| Self::of_operators(plan, probe_side))
    }

    fn of_operators(
        plan: &Arc<dyn ExecutionPlan>,
        probe_side: ProbeSide,
    ) -> Result<Option<Self>, FallbackReason> {
        if let Some(scan) = plan.downcast_ref::<DataSourceExec>() {
            return Self::of_scan(scan);
        }
        let relation = if let Some(projection) = plan.downcast_ref::<ProjectionExec>() {
            match Self::of(projection.input(), probe_side)? {
                Some(relation) => relation.project(projection.projection_expr())?,
                None => return Ok(None),
            }
        } else if let Some(filter) = plan.downcast_ref::<FilterExec>() {
            match Self::of(filter.input(), probe_side)? {
                Some(relation) => relation.filter(filter)?,
                None => return Ok(None),
            }
        } else if let Some(join) = plan.downcast_ref::<HashJoinExec>() {
            let Some(sides) = Sides::of(join, probe_side)? else {
                return Ok(None);
            };
            match Self::of(sides.probe_plan, probe_side)? {
                Some(relation) => relation.join(join, &sides)?,
                None => return Ok(None),
            }
        } else if let Some(join) = WithOneRow::of(plan)? {
            match Self::of(join.probe_plan, probe_side)? {
                Some(relation) => relation.cross_join(&join)?,
                None => return Ok(None),
            }
        } else if let Some(coalesce) = plan.downcast_ref::<CoalescePartitionsExec>() {
            match Self::of(coalesce.input(), probe_side)? {
                Some(relation) => relation,
                None => return Ok(None),
            }
        } else if let Some(repartition) = plan.downcast_ref::<RepartitionExec>() {
            match Self::of(repartition.input(), probe_side)? {
                Some(relation) => relation,
                None => return Ok(None),
            }
        } else {
            return Ok(None);
        };
        match plan.fetch() {
            Some(_) => Err(FallbackReason::Limit),
            None => Ok(Some(relation)),
        }
    }

    fn of_scan(scan: &DataSourceExec) -> Result<Option<Self>, FallbackReason> {
        let Some((config, source)) = scan.downcast_to_file_source::<VectileSource>() else {
            return Ok(None);
        };
        if config.limit.is_some() {
            return Err(FallbackReason::Limit);
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

    /// Rewrites `expr` over the columns of the plan to one over the relation's schema.
    pub(crate) fn over_table(
        &self,
        expr: &Arc<dyn PhysicalExpr>,
    ) -> Result<Arc<dyn PhysicalExpr>, FallbackReason> {
        substituted(expr, &self.columns)
    }

    /// The columns of the plan, as expressions over the relation's schema.
    pub(crate) fn columns(&self) -> &[ProjectionExpr] {
        &self.columns
    }

    /// The filters, all of which rows must pass.
    pub(crate) fn filters(&self) -> Filters {
        let columns = self.source.table_schema().table_schema().fields().len();
        let conjuncts = self.filters.iter().flat_map(split_conjunction).cloned();
        let (of_table, joined) = conjuncts.partition(|conjunct| {
            let used = collect_columns(conjunct);
            used.iter().all(|column| column.index() < columns)
        });
        Filters { of_table, joined }
    }

    fn join(mut self, join: &HashJoinExec, sides: &Sides<'_>) -> Result<Self, FallbackReason> {
        let keys = sides.keys.iter();
        let keys = keys.map(|(key, build)| Ok((self.over_table(key)?, Arc::clone(build))));
        let keys: JoinOn = keys.collect::<Result<_, FallbackReason>>()?;
        if !sides.is_mark {
            self.make_inner(sides.kind, &keys);
        }
        let is_conditional = join.filter().is_some() && !sides.kind.is_inner();
        let added = match self
            .join_with_keys(&keys)
            .filter(|_| !is_conditional && !sides.is_mark)
        {
            None if sides.is_mark => vec![self.mark(join, sides, keys)?],
            Some(index) => self.join_build_side(index, join, sides, keys)?,
            None if sides.kind.is_outer() => {
                let added = self.join_table(sides.build_plan, sides.kind, keys)?;
                match self.condition(join.filter(), sides.probe, &added)? {
                    Some(condition) => {
                        if let Some(join) = self.joins.last_mut() {
                            join.condition = Some(Arc::clone(&condition));
                        }
                        only_where(&condition, added)?
                    }
                    None => added,
                }
            }
            None => match Conditional::of(join, sides)? {
                Some(conditional) => {
                    self.join_conditional(conditional, sides, keys)?;
                    Vec::new()
                }
                None => {
                    let added = self.join_table(sides.build_plan, sides.kind, keys)?;
                    if is_conditional {
                        self.read_matches(join, sides, &added)?;
                    }
                    added
                }
            },
        };
        if sides.kind.is_inner() {
            let condition = self.condition(join.filter(), sides.probe, &added)?;
            self.filters.extend(condition);
        }
        if sides.is_mark {
            self.columns.extend(added);
        } else if sides.kind.properties().adds_columns {
            self.add_columns(added, sides.probe);
        }
        if let Some(kept) = &join.projection {
            self.columns = selected(kept, &self.columns);
        }
        Ok(self)
    }

    fn cross_join(mut self, join: &WithOneRow<'_>) -> Result<Self, FallbackReason> {
        let added = self.join_table(join.build_plan, JoinKind::Inner, WithOneRow::keys())?;
        let condition = self.condition(join.filter, join.probe, &added)?;
        self.filters.extend(condition);
        self.add_columns(added, join.probe);
        if let Some(kept) = join.projection {
            self.columns = selected(kept, &self.columns);
        }
        Ok(self)
    }

    /// Adds the columns of a build side; `probe` is the side of the join that the other columns are of.
    fn add_columns(&mut self, added: Vec<ProjectionExpr>, probe: JoinSide) {
        let own = std::mem::take(&mut self.columns);
        self.columns = match probe {
            JoinSide::Left => own.into_iter().chain(added).collect(),
            _ => added.into_iter().chain(own).collect(),
        };
    }

    /// Makes kernels evaluate the filter of the last join, a semi or anti join, per match.
    fn read_matches(
        &mut self,
        join: &HashJoinExec,
        sides: &Sides<'_>,
        added: &[ProjectionExpr],
    ) -> Result<(), FallbackReason> {
        let condition = self.condition(join.filter(), sides.probe, added)?;
        if let Some(last) = self.joins.last_mut() {
            self.schema = Arc::new(extended(&self.schema, &last.plan.schema(), last.kind));
            last.condition = condition;
        }
        Ok(())
    }

    /// Makes inner joins of outer ones that have a key of a join of this kind: if it keeps rows with a match, it drops
    /// those whose key is null, as it is where the outer join had no match.
    fn make_inner(&mut self, kind: JoinKind, keys: &JoinOn) {
        if kind.properties().kept != KeptRows::Matched {
            return;
        }
        let is_key = |join: &Join| {
            let mut columns = keys
                .iter()
                .filter_map(|(key, _)| key.downcast_ref::<Column>());
            columns.any(|column| join.has_column(column.index()))
        };
        for join in &mut self.joins {
            if join.kind.is_outer() && join.condition.is_none() && is_key(join) {
                join.kind = JoinKind::Inner;
            }
        }
    }

    /// The join whose build side has all of `keys`, if it is an inner join.
    fn join_with_keys(&self, keys: &JoinOn) -> Option<usize> {
        self.joins.iter().position(|join| {
            let has_key = |key: &Arc<dyn PhysicalExpr>| {
                let columns = collect_columns(key);
                let mut own = columns.iter().map(|column| join.has_column(column.index()));
                !columns.is_empty() && own.all(|own| own)
            };
            join.kind.is_inner() && keys.iter().all(|(key, _)| has_key(key))
        })
    }

    /// Joins the table with another one, and returns the other's columns. If exactly one of several keys is computed
    /// from the table alone, only that key is looked up, and filters compare the others; otherwise all keys are looked
    /// up.
    fn join_table(
        &mut self,
        plan: &Arc<dyn ExecutionPlan>,
        kind: JoinKind,
        keys: JoinOn,
    ) -> Result<Vec<ProjectionExpr>, FallbackReason> {
        let own = self.source.table_schema().table_schema().fields().len();
        let is_own = |key: &Arc<dyn PhysicalExpr>| {
            let columns = collect_columns(key);
            columns.iter().all(|column| column.index() < own)
        };
        let keys = keys.into_iter().map(|(key, other)| {
            let key = self.as_own(key);
            let is_computed = is_text(&key.data_type(&self.schema)?)
                && key_column(&key, self.source.table_schema().table_schema())?.is_none();
            Ok(
                match is_computed && is_text(&other.data_type(&plan.schema())?) {
                    true => (StringId::of(&key), StringId::of(&other)),
                    false => (key, other),
                },
            )
        });
        let keys: JoinOn = keys.collect::<Result<_, FallbackReason>>()?;
        let of_table = keys.iter().filter(|(key, _)| is_own(key)).count();
        let (looked_up, compared) = match of_table == 1 && kind.is_inner() {
            true => keys.into_iter().partition(|(key, _)| is_own(key)),
            false => (keys, vec![]),
        };
        let plan = Arc::clone(without_exchange(plan));
        let first = self.schema.fields().len();
        let added = columns_from(&plan.schema(), first);
        let keys = looked_up
            .into_iter()
            .map(|(probe, build)| JoinKey { probe, build });
        let join = Join {
            plan,
            keys: keys.collect(),
            kind,
            first,
            condition: None,
        };
        let key_source =
            join.key_source(&self.schema, self.source.table_schema().table_schema())?;
        if kind.properties().is_null_aware && matches!(key_source, KeySource::Packed(_)) {
            return Err(FallbackReason::Join(
                "it is aware of nulls, of a computed key".into(),
            ));
        }
        if kind.properties().adds_columns {
            self.schema = Arc::new(extended(&self.schema, &join.plan.schema(), kind));
        }
        for (key, dimension_key) in compared {
            // Joins and operators do not agree on which floats are equal.
            if key.data_type(&self.schema)?.is_floating() {
                return Err(FallbackReason::Join(format!("its key is {key}")));
            }
            let dimension_key = substituted(&dimension_key, &added)?;
            let equal = BinaryExpr::new(key, Operator::Eq, dimension_key);
            self.filters.push(Arc::new(equal));
        }
        self.joins.push(join);
        Ok(added)
    }

    /// The probe side's expression that equals `key` in all rows, if `key` is a key column of a build side and both
    /// have the same type; otherwise `key`.
    fn as_own(&self, key: Arc<dyn PhysicalExpr>) -> Arc<dyn PhysicalExpr> {
        let equal = self.joins.iter().find_map(|join| {
            let column = key.downcast_ref::<Column>()?;
            let index = column.index().checked_sub(join.first)?;
            let is_key = |of: &&JoinKey| {
                let own = of.build.downcast_ref::<Column>();
                own.is_some_and(|own| own.index() == index)
            };
            let joined = join.kind.is_inner() && join.has_column(column.index());
            let equal = &join.keys.iter().find(is_key).filter(|_| joined)?.probe;
            let types = [&key, equal].map(|expr| expr.data_type(&self.schema));
            match types {
                [Ok(of), Ok(other)] if of == other => Some(Arc::clone(equal)),
                _ => None,
            }
        });
        equal.unwrap_or(key)
    }

    /// The column of a mark join, which is true for rows with a match.
    fn mark(
        &mut self,
        join: &HashJoinExec,
        sides: &Sides<'_>,
        keys: JoinOn,
    ) -> Result<ProjectionExpr, FallbackReason> {
        let conditional = Conditional::of_mark(join, sides)?;
        let (added, condition) = self.look_up(&conditional, JoinKind::Outer, keys)?;
        let is_unmet = conditional.is_unmet(&added, condition)?;
        let is_met = Arc::new(NotExpr::new(is_unmet));
        Ok(ProjectionExpr::new(is_met, "mark"))
    }

    /// Joins the table with a build side with unique keys. Returns its columns, and the condition over both sides.
    fn look_up(
        &mut self,
        conditional: &Conditional,
        kind: JoinKind,
        keys: JoinOn,
    ) -> Result<(Vec<ProjectionExpr>, Arc<dyn PhysicalExpr>), FallbackReason> {
        let probe = keys.into_iter().map(|(probe, _)| probe);
        let keys = probe.zip(conditional.keys.iter().cloned()).collect();
        let added = self.join_table(&conditional.plan, kind, keys)?;
        let condition = conditional.condition(&self.columns, &added)?;
        Ok((added, condition))
    }

    /// Joins the table with a build side with unique keys, and adds a filter that drops or keeps rows by the condition.
    fn join_conditional(
        &mut self,
        conditional: Conditional,
        sides: &Sides<'_>,
        keys: JoinOn,
    ) -> Result<(), FallbackReason> {
        let kind = sides.kind.before_filter();
        let (added, condition) = self.look_up(&conditional, kind, keys)?;
        self.filters.push(match kind.is_outer() {
            true => conditional.is_unmet(&added, condition)?,
            false => condition,
        });
        Ok(())
    }

    /// Joins the build side of a join with another table, so that both become one build side, and returns the other's
    /// columns. The columns of the build side get new indices.
    fn join_build_side(
        &mut self,
        index: usize,
        join: &HashJoinExec,
        sides: &Sides<'_>,
        keys: JoinOn,
    ) -> Result<Vec<ProjectionExpr>, FallbackReason> {
        let before = self.joins.remove(index);
        let keys = keys
            .into_iter()
            .map(|(key, other)| Ok((before.renumbered(&key, 0)?, other)));
        let plan = before.joined_with(join, sides, keys.collect::<Result<_, FallbackReason>>()?)?;
        let first = self.schema.fields().len();
        for filter in &mut self.filters {
            *filter = before.renumbered(filter, first)?;
        }
        for column in &mut self.columns {
            column.expr = before.renumbered(&column.expr, first)?;
        }
        for join in &mut self.joins {
            for key in &mut join.keys {
                key.probe = before.renumbered(&key.probe, first)?;
            }
            if let Some(condition) = &mut join.condition {
                *condition = before.renumbered(condition, first)?;
            }
        }
        self.schema = Arc::new(extended(&self.schema, &plan.schema(), before.kind));
        let added = match sides.kind.properties().adds_columns {
            true => columns_from(&sides.build_plan.schema(), first + before.columns().len()),
            false => Vec::new(),
        };
        self.joins.push(Join {
            plan,
            first,
            ..before
        });
        Ok(added)
    }

    /// A join filter, over the relation's schema; `added` are the columns of the build side, and `probe` is the other one.
    fn condition(
        &self,
        filter: Option<&JoinFilter>,
        probe: JoinSide,
        added: &[ProjectionExpr],
    ) -> Result<Option<Arc<dyn PhysicalExpr>>, FallbackReason> {
        let Some(filter) = filter else {
            return Ok(None);
        };
        let columns = filter.column_indices().iter().map(|used| {
            let of = match used.side == probe {
                true => self.columns.as_slice(),
                false => added,
            };
            let column = of.get(used.index).cloned();
            column
                .ok_or_else(|| FallbackReason::Defect(format!("there is no column {}", used.index)))
        });
        let columns: Vec<ProjectionExpr> = columns.collect::<Result<_, FallbackReason>>()?;
        substituted(filter.expression(), &columns).map(Some)
    }

    fn project(mut self, projection: &ProjectionExprs) -> Result<Self, FallbackReason> {
        self.columns = projected(projection.iter(), &self.columns)?;
        Ok(self)
    }

    fn filter(mut self, filter: &FilterExec) -> Result<Self, FallbackReason> {
        self.filters.push(self.over_table(filter.predicate())?);
        if let Some(kept) = filter.projection() {
            self.columns = selected(kept, &self.columns);
        }
        Ok(self)
    }
}

/// Makes columns that an outer join adds null where its filter is not true.
fn only_where(
    condition: &Arc<dyn PhysicalExpr>,
    added: Vec<ProjectionExpr>,
) -> Result<Vec<ProjectionExpr>, FallbackReason> {
    let added = added.into_iter().map(|column| {
        let branches = vec![(Arc::clone(condition), column.expr)];
        Ok(ProjectionExpr {
            expr: Arc::new(CaseExpr::try_new(None, branches, None)?),
            alias: column.alias,
        })
    });
    added.collect()
}

/// The columns of `schema`, followed by those of a joined table.
fn extended(schema: &Schema, joined: &Schema, kind: JoinKind) -> Schema {
    let joined = joined.fields().iter().map(|field| match kind.is_outer() {
        true => Arc::new(field.as_ref().clone().with_nullable(true)),
        false => Arc::clone(field),
    });
    let fields = schema.fields().iter().cloned().chain(joined);
    Schema::new(fields.collect::<Vec<_>>())
}
