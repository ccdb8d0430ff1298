//! A kernel over a fact table and its dimensions: the template made at planning, and the pipeline once the dimensions
//! are read.

use std::sync::Arc;

use datafusion::common::{DataFusionError, Result, internal_datafusion_err, internal_err};
use datafusion::execution::TaskContext;
use datafusion::physical_expr::PhysicalExpr;
use futures::future::try_join_all;
use vectile_encodings::Predicate;
use vectile_pipeline::{
    Aggregate, Exists, Expr, Filter, GroupKey, Literal, Lookup, Matches, Output, PayloadColumn,
    Pipeline, Type,
};
use vectile_pipeline::{Code, KeyTable};

use super::batch_stream::ExecEnvironment;
use super::build_side::{BuildSide, OtherExpr};
use super::metrics::GpuMetrics;
use super::stage::Stage;
use crate::fused::cost_model::{Builds, ColumnId};
use crate::fused::device::Device;
use crate::fused::key_table_cache::KeyTableCache;
use crate::fused::lowering::filters::JoinedFilter;
use crate::fused::lowering::probe::{LookupSpec, placeholder_column};
use crate::fused::pattern::join::{JoinKind, KeptRows, KeySource};
use crate::fused::scalar::value_of;
use crate::fused::table::{Table, Tables};

/// The order of the filters of joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JoinOrder {
    /// The filter that keeps the smallest share of rows comes first: threads of a kernel wait for memory, whatever the
    /// table.
    MostSelective,
    /// The filter that drops the most rows in a unit of time comes first.
    MostDroppedPerTime,
}

/// Expected share of rows that pass a condition of which nothing is known.
const UNKNOWN_SHARE: f64 = 0.5;

/// Time of computing a condition, and of testing text, in that of a lookup of a column in a dense table.
const CONDITION_COST: f64 = 2.0;
const TEXT_COST: f64 = 4.0;

impl JoinOrder {
    /// The rank of a filter that keeps a share of rows.
    fn rank(self, share: f64, cost: f64) -> f64 {
        match self {
            Self::MostSelective => share,
            Self::MostDroppedPerTime => (share - 1.0) / cost,
        }
    }

    /// Filters that are tested before those of joins, and others, which are ranked with them: tests of encoded values take
    /// hardly any time, conditions decode what they read.
    fn ranked(self, filters: Vec<Filter>) -> (Vec<Filter>, Vec<(f64, Filter)>) {
        let (mut first, mut ranked) = (Vec::new(), Vec::new());
        for filter in filters {
            let cost = match (self, &filter) {
                (Self::MostDroppedPerTime, Filter::Expr(_)) => CONDITION_COST,
                (Self::MostDroppedPerTime, Filter::Values(..)) => TEXT_COST,
                _ => {
                    first.push(filter);
                    continue;
                }
            };
            ranked.push((self.rank(UNKNOWN_SHARE, cost), filter));
        }
        (first, ranked)
    }
}

/// The pipeline of a query, without its key tables.
#[derive(Clone, Debug)]
pub(crate) struct StarTemplate {
    /// Has no lookups, and placeholders for payload columns.
    pub(crate) template: Arc<Pipeline>,
    /// Filters that need lookups. Rows have to pass them, too.
    pub(crate) joined_filters: Vec<JoinedFilter>,
    pub(crate) dimensions: Vec<BuildSide>,
    /// Join filters evaluated per match, by dimension: conditions of semi, anti and outer joins.
    pub(crate) conditions: Vec<Option<Expr>>,
    /// The pipeline's lookups.
    pub(crate) lookups: Vec<StarLookup>,
    /// Constants whose values are known at execution.
    pub(crate) parameters: Vec<Arc<dyn PhysicalExpr>>,
}

/// A lookup of the pipeline.
#[derive(Clone, Debug)]
pub(crate) struct StarLookup {
    /// Index of the dimension.
    dimension: usize,
    /// Index of the table within the dimension.
    table: usize,
    key: LookupKey,
}

/// The key of a lookup.
#[derive(Clone, Debug)]
pub(crate) enum LookupKey {
    /// Index of the pipeline's column that holds the keys.
    Column(usize),
    /// Integers and text columns, packed into one integer.
    Computed(Vec<Expr>),
}

impl LookupKey {
    /// The columns of the pipeline that are looked up unchanged, if `found` is how keys are computed.
    pub(crate) fn columns_of(&self, found: &KeySource) -> Vec<usize> {
        match (self, found) {
            (Self::Column(column), _) => vec![*column],
            (Self::Computed(keys), KeySource::Packed(parts)) => {
                let texts = keys
                    .iter()
                    .zip(parts)
                    .filter(|(_, part)| part.text.is_some());
                texts.filter_map(|(key, _)| column_of(key)).collect()
            }
            (Self::Computed(_), KeySource::Column(..)) => Vec::new(),
        }
    }
}

/// The lookup of a text column that is part of a composite key.
fn text_of(key: &Expr, codes: &Arc<KeyTable>) -> Option<Lookup> {
    let (column, key_table) = (column_of(key)?, Arc::clone(codes));
    Some(Lookup { column, key_table })
}

fn is_same(a: &Lookup, b: &Lookup) -> bool {
    a.column == b.column && Arc::ptr_eq(&a.key_table, &b.key_table)
}

fn column_of(key: &Expr) -> Option<usize> {
    match key {
        Expr::Column(column) => Some(*column),
        _ => None,
    }
}

impl StarLookup {
    /// Estimated time of a lookup in a program, in that of a lookup of a column in a dense table.
    fn cost(&self, table: &Table) -> f64 {
        match &self.key {
            LookupKey::Column(_) if table.codes.is_hashed() => 4.0,
            LookupKey::Column(_) => 1.0,
            LookupKey::Computed(parts) => 3.0 + parts.len() as f64,
        }
    }

    /// The lookups `wanted`, of joins by `keys`.
    pub(crate) fn all(wanted: &[LookupSpec], keys: &[LookupKey]) -> Vec<Self> {
        let lookups = wanted.iter().enumerate().map(|(i, of)| {
            let before = wanted.iter().take(i);
            Some(Self {
                dimension: of.join,
                table: before.filter(|other| other.join == of.join).count(),
                key: keys.get(of.join)?.clone(),
            })
        });
        lookups.flatten().collect()
    }
}

impl StarTemplate {
    /// Reads all dimensions concurrently. Returns the table of each lookup, and a stage for each dimension.
    pub(crate) async fn tables(
        &self,
        environment: &ExecEnvironment<'_>,
    ) -> Result<(Tables, Vec<Stage>)> {
        let build_time = environment.metrics.build_time.clone();
        let timer = build_time.timer();
        let dimensions = self.dimensions.iter();
        let tables = dimensions.map(|dimension| dimension.tables(environment));
        let tables = try_join_all(tables).await?;
        timer.done();
        self.by_lookup(tables)
    }

    /// As [`tables`](Self::tables), from the rows of the plans, without a device.
    pub(crate) async fn tables_of_rows(
        &self,
        metrics: &GpuMetrics,
        context: &Arc<TaskContext>,
    ) -> Result<(Tables, Vec<Stage>)> {
        let build_time = metrics.build_time.clone();
        let timer = build_time.timer();
        let dimensions = self.dimensions.iter();
        let tables = dimensions.map(|dimension| dimension.tables_without_device(metrics, context));
        let tables = try_join_all(tables).await?;
        timer.done();
        self.by_lookup(tables)
    }

    /// The table of each lookup, and the stages, from those of each dimension.
    fn by_lookup(&self, tables: Vec<(Vec<Arc<Table>>, Stage)>) -> Result<(Tables, Vec<Stage>)> {
        let (tables, stages): (Vec<Vec<Arc<Table>>>, _) = tables.into_iter().unzip();
        let lookups = self.lookups.iter().map(|lookup| {
            let table = tables
                .get(lookup.dimension)
                .and_then(|of| of.get(lookup.table));
            table.cloned().ok_or_else(missing)
        });
        Ok((lookups.collect::<Result<_>>()?, stages))
    }

    /// Replaces expressions by `other` of them.
    pub(crate) fn with_exprs(mut self, other: OtherExpr<'_>) -> Result<Self> {
        for parameter in &mut self.parameters {
            *parameter = other(parameter)?;
        }
        let dimensions = self.dimensions.into_iter();
        let dimensions = dimensions.map(|dimension| dimension.with_exprs(other));
        self.dimensions = dimensions.collect::<Result<_>>()?;
        Ok(self)
    }

    /// The build sides whose tables are not in `cache`.
    pub(crate) fn builds(&self, cache: Option<&KeyTableCache>) -> Result<Builds> {
        let dimensions = self.dimensions.iter();
        let builds = dimensions.map(|dimension| dimension.builds(cache));
        builds.sum()
    }

    /// Bytes of the columns from which the device builds tables, as of planning.
    pub(crate) fn build_bytes(&self) -> u64 {
        let dimensions = self.dimensions.iter();
        dimensions.map(BuildSide::bytes).sum()
    }

    /// These columns.
    pub(crate) fn build_columns(&self) -> impl Iterator<Item = ColumnId> {
        let dimensions = self.dimensions.iter();
        dimensions.flat_map(BuildSide::column_ids)
    }

    /// Bytes of these columns that are not on the device, for tables that are not cached.
    pub(crate) async fn missing_build_bytes(
        &self,
        device: &Device,
        context: &Arc<TaskContext>,
    ) -> Result<u64> {
        let dimensions = self.dimensions.iter();
        let bytes = dimensions.map(|dimension| dimension.missing_bytes(device, context));
        Ok(try_join_all(bytes).await?.into_iter().sum())
    }

    /// The joins, for `EXPLAIN`.
    pub(crate) fn joins(&self) -> String {
        let joins = self.dimensions.iter().zip(&self.conditions);
        let joins = joins.map(|(dimension, condition)| {
            let (on, kind, builder) = (dimension.on(), dimension.kind, dimension.builder());
            let condition = condition.as_ref().map_or("", |_| " with a condition");
            format!("{on} ({kind}{condition}{builder})")
        });
        joins.collect::<Vec<_>>().join(", ")
    }

    /// True if some join leaves no row of any table. The pipeline's filter is false then; this only saves running it.
    pub(crate) fn is_empty(&self, tables: &Tables) -> bool {
        let mut lookups = self.lookups.iter().zip(tables);
        lookups.any(|(lookup, table)| {
            let dimension = self.dimensions.get(lookup.dimension);
            dimension.is_some_and(|of| of.kind.leaves_no_rows_with(table))
        })
    }

    /// The columns of the pipeline, and the tables of `tables`, in which a row must have a match to remain.
    pub(crate) fn needed_matches<'a>(
        &'a self,
        tables: &'a Tables,
    ) -> impl Iterator<Item = (usize, &'a Arc<KeyTable>)> {
        let lookups = self.lookups.iter().zip(tables);
        lookups.filter_map(|(lookup, table)| {
            let dimension = self.dimensions.get(lookup.dimension)?;
            let is_needed = dimension.kind.properties().kept == KeptRows::Matched;
            match lookup.key {
                LookupKey::Column(column) if is_needed => Some((column, &table.codes)),
                _ => None,
            }
        })
    }

    /// The pipeline over `tables`, one for each lookup.
    pub(crate) fn pipeline(&self, tables: &Tables, order: JoinOrder) -> Result<Pipeline> {
        let parameters = self.parameters.iter().map(value_of);
        let filler = TemplateFiller {
            tables,
            lookups: &self.lookups,
            parameters: parameters.collect::<Result<_>>()?,
            multimap_dimensions: self.multimap_dimensions(tables),
            existence_test: None,
            texts: self.texts(tables),
        };
        // Kernels evaluate conjuncts one by one, so none may be nested in another.
        let filters = match filler.filter(&self.template.filter)? {
            Filter::And(filters) => filters,
            filter => vec![filter],
        };
        let (mut filters, mut ranked) = order.ranked(filters);
        ranked.extend(self.join_filters(&filler, order)?);
        ranked.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        filters.extend(ranked.into_iter().flat_map(|(_, filter)| match filter {
            Filter::And(parts) => parts,
            filter => vec![filter],
        }));
        filters.extend(self.match_filters(&filler)?);
        for filter in &self.joined_filters {
            filters.push(filler.joined(filter)?);
        }
        filters.retain(|filter| !matches!(filter, Filter::Constant(true)));
        let filter = match filters.len() {
            _ if self.is_empty(tables) => Filter::Constant(false),
            0 => Filter::Constant(true),
            1 => filters.swap_remove(0),
            _ => Filter::And(filters),
        };
        let lookups = self.lookups.iter().zip(tables);
        let lookups = lookups.filter_map(|(lookup, table)| match lookup.key {
            LookupKey::Column(column) => Some(Lookup {
                column,
                key_table: Arc::clone(&table.codes),
            }),
            LookupKey::Computed(_) => None,
        });
        let combined = filler.multimap_dimensions.iter().copied();
        let combined = combined.filter(|dimension| !self.only_tests_existence(*dimension));
        let matches = combined.map(|dimension| {
            let is_outer = self.is_outer(dimension);
            match self.condition(dimension).filter(|_| is_outer) {
                Some(condition) => filler.matches_meeting(dimension, condition),
                None => filler.matches(dimension, is_outer),
            }
        });
        Ok(Pipeline {
            columns: self.template.columns.clone(),
            lookups: lookups.chain(filler.texts.iter().cloned()).collect(),
            matches: matches.collect::<Result<_>>()?,
            filter,
            output: filler.output(&self.template.output)?,
        })
    }
}

impl StarTemplate {
    /// The join filter of a dimension, evaluated per match.
    fn condition(&self, dimension: usize) -> Option<&Expr> {
        self.conditions.get(dimension).and_then(Option::as_ref)
    }

    fn is_outer(&self, dimension: usize) -> bool {
        let dimension = self.dimensions.get(dimension);
        dimension.is_some_and(|of| of.kind.is_outer())
    }

    /// True if the join only tests for a match that meets its condition, instead of combining rows with their matches.
    fn only_tests_existence(&self, dimension: usize) -> bool {
        self.condition(dimension).is_some() && !self.is_outer(dimension)
    }

    /// Filters over the matches of outer joins with a condition.
    fn match_filters(&self, filler: &TemplateFiller<'_>) -> Result<Vec<Filter>> {
        let outer = filler.multimap_dimensions.iter().copied();
        let outer = outer.filter(|dimension| self.is_outer(*dimension));
        let conditions = outer.filter_map(|of| Some((of, self.condition(of)?)));
        let filters = conditions.map(|(dimension, condition)| {
            let is_none = Expr::Unmatched(Code::Match(filler.number(dimension)?));
            let condition = filler.expr(condition)?;
            Ok(Filter::Expr(Expr::or(vec![is_none, condition])))
        });
        filters.collect()
    }

    /// The dimensions with duplicate keys: first those that rows are combined with, then those only tested for a match.
    fn multimap_dimensions(&self, tables: &Tables) -> Vec<usize> {
        let lookups = self.lookups.iter().zip(tables);
        let multimap_dimensions = lookups.filter(|(_, table)| table.multimap.is_some());
        let mut multimap_dimensions: Vec<usize> = multimap_dimensions
            .map(|(lookup, _)| lookup.dimension)
            .collect();
        multimap_dimensions.sort_unstable_by_key(|of| (self.only_tests_existence(*of), *of));
        multimap_dimensions.dedup();
        multimap_dimensions
    }

    /// The distinct lookups of text in composite keys. Lookups of a dimension share them.
    fn texts(&self, tables: &Tables) -> Vec<Lookup> {
        let mut all: Vec<Lookup> = Vec::new();
        for (lookup, table) in self.lookups.iter().zip(tables) {
            let (LookupKey::Computed(keys), Some(packing)) = (&lookup.key, &table.packing) else {
                continue;
            };
            let texts = packing.texts();
            for text in texts.filter_map(|(part, codes)| text_of(keys.get(part)?, codes)) {
                if !all.iter().any(|other| is_same(other, &text)) {
                    all.push(text);
                }
            }
        }
        all
    }

    /// The filters of all joins, and the rank of each: the least one is tested first.
    fn join_filters(
        &self,
        filler: &TemplateFiller<'_>,
        order: JoinOrder,
    ) -> Result<Vec<(f64, Filter)>> {
        let mut filters = Vec::new();
        for (number, dimension) in self.dimensions.iter().enumerate() {
            let is_its = |lookup: &StarLookup| lookup.dimension == number;
            let lookup = self.lookups.iter().position(is_its).ok_or_else(missing)?;
            let table = filler.tables.get(lookup).ok_or_else(missing)?;
            let cost = |lookup: usize| self.lookups.get(lookup).map_or(1.0, |of| of.cost(table));
            let only_tests_existence = self.only_tests_existence(number);
            let filter = match self.condition(number).filter(|_| only_tests_existence) {
                Some(condition) => {
                    Some(filler.conditional_join_filter(dimension.kind, lookup, condition)?)
                }
                None => filler.join_filter(dimension.kind, lookup)?,
            };
            if let Some(filter) = filter {
                let share = dimension.share_kept(table.codes.len());
                filters.push((order.rank(share, cost(lookup)), filter));
            }
        }
        Ok(filters)
    }
}

fn missing() -> DataFusionError {
    internal_datafusion_err!("a lookup without a table")
}

/// Fills the template: replaces placeholders by payload columns and parameters by values.
struct TemplateFiller<'a> {
    tables: &'a Tables,
    lookups: &'a [StarLookup],
    parameters: Vec<Literal>,
    /// The dimensions with duplicate keys, in the order of the pipeline's matches.
    multimap_dimensions: Vec<usize>,
    /// The dimension of an outer join whose condition is tested over its matches before rows are combined with them.
    existence_test: Option<usize>,
    /// Lookups of text in composite keys, behind those of columns.
    texts: Vec<Lookup>,
}

impl TemplateFiller<'_> {
    fn payload(&self, lookup: usize, placeholder: &PayloadColumn) -> Result<Expr> {
        let table = self.tables.get(lookup);
        let values = table.zip(placeholder_column(placeholder));
        let values = values.and_then(|(table, column)| table.payload_column(column));
        let values = values.ok_or_else(missing)?;
        Ok(Expr::Payload(self.code(lookup)?, values))
    }

    /// The code of a lookup's match.
    fn code(&self, lookup: usize) -> Result<Code> {
        let of = self.lookups.get(lookup).ok_or_else(missing)?;
        let table = self.tables.get(lookup).ok_or_else(missing)?;
        let Some(multimap) = &table.multimap else {
            return self.code_of_key(lookup);
        };
        Ok(multimap.code(self.number(of.dimension)?))
    }

    /// Index of the matches of a dimension with duplicate keys.
    fn number(&self, dimension: usize) -> Result<usize> {
        let mut dimensions = self.multimap_dimensions.iter();
        let number = dimensions.position(|other| *other == dimension);
        let number = number.ok_or_else(missing)?;
        Ok(match self.existence_test == Some(dimension) {
            true => self.multimap_dimensions.len() + number,
            false => number,
        })
    }

    /// True for rows with a match that meets the condition.
    fn exists(&self, dimension: usize, condition: &Expr) -> Result<Expr> {
        Ok(Expr::Exists(Box::new(Exists {
            matches: self.matches(dimension, false)?,
            number: self.number(dimension)?,
            condition: self.expr(condition)?,
        })))
    }

    /// The matches of an outer join, only for rows with a match that meets its condition.
    fn matches_meeting(&self, dimension: usize, condition: &Expr) -> Result<Matches> {
        let existence_test = Self {
            existence_test: Some(dimension),
            multimap_dimensions: self.multimap_dimensions.clone(),
            parameters: self.parameters.clone(),
            texts: self.texts.clone(),
            ..*self
        };
        let some = existence_test.exists(dimension, condition)?;
        let matches = self.matches(dimension, true)?;
        Ok(Matches {
            code: Code::If(Box::new(some), Box::new(matches.code)),
            ..matches
        })
    }

    /// The matches of rows in a dimension with duplicate keys.
    fn matches(&self, dimension: usize, is_outer: bool) -> Result<Matches> {
        let mut lookups = self.lookups.iter();
        let lookup = lookups.position(|lookup| lookup.dimension == dimension);
        let lookup = lookup.ok_or_else(missing)?;
        let table = self.tables.get(lookup).ok_or_else(missing)?;
        let multimap = table.multimap.as_ref().ok_or_else(missing)?;
        Ok(multimap.matches(self.code_of_key(lookup)?, is_outer))
    }

    /// Number of lookups by a column. Those of text in composite keys come behind.
    fn columns(&self) -> usize {
        let by_column = |lookup: &&StarLookup| matches!(lookup.key, LookupKey::Column(_));
        self.lookups.iter().filter(by_column).count()
    }

    /// The code of a lookup's key. Composite keys are probed by an expression and have no index in the pipeline's
    /// lookups.
    fn code_of_key(&self, lookup: usize) -> Result<Code> {
        let of = self.lookups.get(lookup).ok_or_else(missing)?;
        let LookupKey::Computed(keys) = &of.key else {
            let before = self.lookups.iter().take(lookup);
            let before = before.filter(|other| matches!(other.key, LookupKey::Column(_)));
            return Ok(Code::Lookup(before.count()));
        };
        let table = self.tables.get(lookup).ok_or_else(missing)?;
        let packing = table.packing.as_ref().ok_or_else(missing)?;
        let mut keys = self.exprs(keys)?;
        for (part, codes) in packing.texts() {
            let key = keys.get_mut(part).ok_or_else(missing)?;
            let text = text_of(key, codes).ok_or_else(missing)?;
            let number = self.texts.iter().position(|other| is_same(other, &text));
            let code = Code::Lookup(self.columns() + number.ok_or_else(missing)?);
            *key = Expr::Id(code);
        }
        let key = packing.expr(keys)?;
        Ok(Code::Probe(Box::new(key), Arc::clone(&table.codes)))
    }

    /// The filter of a join without a condition; `None` if it keeps all rows.
    fn join_filter(&self, kind: JoinKind, lookup: usize) -> Result<Option<Filter>> {
        let (matched, unmatched) = match self.code_of_key(lookup)? {
            Code::Lookup(number) => (Filter::Matched(number), Filter::Unmatched(number)),
            code => {
                let is_unmatched = Expr::Unmatched(code);
                (
                    Filter::Expr(!is_unmatched.clone()),
                    Filter::Expr(is_unmatched),
                )
            }
        };
        let properties = kind.properties();
        Ok(match properties.kept {
            KeptRows::Matched => Some(matched),
            KeptRows::Unmatched if properties.is_null_aware => {
                let of = self.lookups.get(lookup).ok_or_else(missing)?;
                let table = self.tables.get(lookup).ok_or_else(missing)?;
                match of.key {
                    // an empty set contains not even null
                    LookupKey::Column(_) if !table.has_rows => None,
                    LookupKey::Column(column) => Some(Filter::And(vec![
                        Filter::Column(column, Predicate::IsNotNull),
                        unmatched,
                    ])),
                    LookupKey::Computed(_) => return internal_err!("NOT IN of a computed key"),
                }
            }
            KeptRows::Unmatched => Some(unmatched),
            KeptRows::All => None,
        })
    }

    /// The filter of a semi or anti join with a condition on both sides.
    fn conditional_join_filter(
        &self,
        kind: JoinKind,
        lookup: usize,
        condition: &Expr,
    ) -> Result<Filter> {
        let of = self.lookups.get(lookup).ok_or_else(missing)?;
        let table = self.tables.get(lookup).ok_or_else(missing)?;
        let some = match table.multimap {
            Some(_) => self.exists(of.dimension, condition)?,
            None => {
                let condition = self.expr(condition)?;
                let code = self.code_of_key(lookup)?;
                let has_match = !Expr::Unmatched(code);
                let truth = |of: bool| Expr::Literal(Literal::Int(of.into(), Type::Bool));
                let is_met = (Expr::and(vec![has_match, condition]), truth(true));
                Expr::case(vec![is_met], Some(truth(false)))
            }
        };
        let properties = kind.properties();
        Ok(match (properties.kept, self.join_filter(kind, lookup)?) {
            (KeptRows::Matched, Some(found)) if !properties.adds_columns => {
                Filter::And(vec![found, Filter::Expr(some)])
            }
            (KeptRows::Unmatched, _) if !properties.is_null_aware => Filter::Expr(!some),
            _ => return internal_err!("a condition of a join of kind {kind}"),
        })
    }

    fn expr(&self, expr: &Expr) -> Result<Expr> {
        expr.replaced(&mut |part| {
            Ok(match part {
                Expr::Payload(Code::Lookup(lookup), placeholder) => {
                    Some(self.payload(*lookup, placeholder)?)
                }
                Expr::Parameter(number, _) => {
                    let value = self.parameters.get(*number).copied();
                    Some(Expr::Literal(value.ok_or_else(missing)?))
                }
                Expr::Unmatched(Code::Lookup(lookup)) => Some(Expr::Unmatched(self.code(*lookup)?)),
                Expr::Id(Code::Lookup(lookup)) => Some(Expr::Id(self.code(*lookup)?)),
                _ => None,
            })
        })
    }

    fn exprs(&self, exprs: &[Expr]) -> Result<Vec<Expr>> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn filter(&self, filter: &Filter) -> Result<Filter> {
        Ok(match filter {
            Filter::And(all) => Filter::And(self.filters(all)?),
            Filter::Or(some) => Filter::Or(self.filters(some)?),
            Filter::Expr(expr) => Filter::Expr(self.expr(expr)?),
            Filter::Constant(_)
            | Filter::Column(..)
            | Filter::Values(..)
            | Filter::Matched(_)
            | Filter::Unmatched(_) => filter.clone(),
        })
    }

    /// A filter over joined tables: as one expression if it reads one of several matches.
    fn joined(&self, filter: &JoinedFilter) -> Result<Filter> {
        let in_parts = self.filter(&filter.in_parts)?;
        match &filter.whole {
            Some(whole) if !self.multimap_dimensions.is_empty() => {
                let whole = self.expr(whole)?;
                Ok(
                    match whole.any_code(&|code| matches!(code, Code::Match(_))) {
                        true => Filter::Expr(whole),
                        false => in_parts,
                    },
                )
            }
            _ => Ok(in_parts),
        }
    }

    fn filters(&self, filters: &[Filter]) -> Result<Vec<Filter>> {
        filters.iter().map(|filter| self.filter(filter)).collect()
    }

    fn output(&self, output: &Output) -> Result<Output> {
        Ok(match output {
            Output::Selection => Output::Selection,
            Output::Rows(values) => Output::Rows(self.exprs(values)?),
            Output::Aggregates(aggregates) => Output::Aggregates(self.aggregates(aggregates)?),
            Output::Groups(keys, aggregates) => {
                let keys = keys.iter().map(|key| match key {
                    GroupKey::Value(value) => Ok(GroupKey::Value(self.expr(value)?)),
                    GroupKey::DictionaryValue(_) | GroupKey::Mapped(..) => Ok(key.clone()),
                    GroupKey::Code(lookup) => Ok(match self.code(*lookup)? {
                        Code::Lookup(number) => GroupKey::Code(number),
                        code => GroupKey::Value(Expr::Id(code)),
                    }),
                });
                let keys = keys.collect::<Result<_>>()?;
                Output::Groups(keys, self.aggregates(aggregates)?)
            }
        })
    }

    fn aggregates(&self, aggregates: &[Aggregate]) -> Result<Vec<Aggregate>> {
        let aggregates = aggregates.iter();
        let aggregates = aggregates.map(|aggregate| aggregate.over(&mut |value| self.expr(value)));
        aggregates.collect()
    }
}
