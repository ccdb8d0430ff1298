//! Key tables that the device builds from the output of another kernel.

use std::io;
use std::sync::Arc;
use std::thread::{self, available_parallelism};

use arrow::array::{Array, ArrayRef, RecordBatch};
use arrow::compute::concat;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode};
use datafusion::common::{Result, internal_datafusion_err};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::Column;
use datafusion::physical_expr::utils::collect_columns;
use datafusion::physical_expr_common::physical_expr::is_volatile;
use vectile_gpu::{Build, BuildBy, Built, Error};
use vectile_pipeline::{Code, Expr, GroupKey, PayloadColumn, Type};

use super::expression::{Grouping, Lowering};
use super::probe::missing_value;
use crate::error;
use crate::fused::composite_key::CompositeKey;
use crate::fused::fallback_reason::FallbackReason;
use crate::fused::file_rows::FileRows;
use crate::fused::scalar::reinterpret;
use crate::fused::table::{BuiltPayload, PayloadMeaning, Table, Tables};
use crate::stack;

/// Minimum number of rows for each thread.
const MIN_ROWS_PER_THREAD: usize = 1 << 16;

/// The key tables of a build side, as outputs of the kernel from which the device builds them.
#[derive(Clone, Debug)]
pub(crate) struct BuildColumns {
    kernel: Vec<Expr>,
    tables: Vec<BuildTable>,
    /// Columns that are read from files once their values are needed.
    of_files: Vec<Field>,
}

#[derive(Clone, Debug)]
struct BuildTable {
    build: Build,
    payloads: Vec<BuildPayload>,
}

#[derive(Clone, Debug)]
struct BuildPayload {
    /// The columns of the key table that it is computed from, as indices.
    columns: Vec<usize>,
    source: PayloadSource,
    /// The value for unmatched rows, of the payload column's type.
    missing: ArrayRef,
}

/// How the values of a payload column follow from columns of the key table.
#[derive(Clone, Debug)]
enum PayloadSource {
    /// The column itself.
    Column,
    /// The column is a code of a lookup of the building kernel: the index of the lookup, and of the payload column in
    /// it.
    Code(usize, usize),
    /// The column is a row number, and the value is in this column of the files.
    Row(usize),
    /// An expression over the columns, which the CPU evaluates, since it has no kernel.
    Computed(Arc<dyn PhysicalExpr>, SchemaRef),
}

/// The keys of a build side: expressions over its schema, each with the type that it is compared as.
pub(crate) struct BuildKeys<'a> {
    pub(crate) keys: Vec<(&'a Arc<dyn PhysicalExpr>, &'a DataType)>,
    /// True if the keys are packed into one integer.
    pub(crate) is_packed: bool,
}

/// A key table to build; expressions are over the schema of the build side.
pub(crate) struct KeyTableSpec<'a> {
    pub(crate) attributes: &'a [Arc<dyn PhysicalExpr>],
    /// True if rows with equal payloads may share a code.
    pub(crate) is_by_value: bool,
    pub(crate) is_unique: bool,
}

impl BuildColumns {
    /// Lowers key tables with the keys `keys`. `over` rewrites an expression over `schema`, that of the build side, to
    /// one over the table that the kernel reads.
    pub(crate) fn lower(
        keys: &BuildKeys<'_>,
        tables: &[KeyTableSpec<'_>],
        schema: &Schema,
        over: impl Fn(&Arc<dyn PhysicalExpr>) -> Result<Arc<dyn PhysicalExpr>, FallbackReason>,
        lowering: &mut Lowering<'_>,
    ) -> Result<Self, FallbackReason> {
        let mut built = Self {
            kernel: Vec::new(),
            tables: Vec::new(),
            of_files: Vec::new(),
        };
        let mut outputs = Vec::new();
        for (key, key_type) in &keys.keys {
            // A cast key may be no value of the other type.
            if &key.data_type(schema)? != *key_type {
                return Err(FallbackReason::Join(format!("its key is {key}")));
            }
            let value = lowering.value(&over(key)?)?;
            outputs.push(built.output(value));
        }
        for table in tables {
            // If the payload includes a unique key, each row has distinct values.
            let has_key = |payload| keys.keys.iter().any(|(key, _)| *key == payload);
            let is_each_row =
                table.is_unique && keys.keys.len() == 1 && table.attributes.iter().any(has_key);
            let is_by_value = table.is_by_value && !is_each_row;
            let (mut columns, mut payloads) = (Vec::new(), Vec::new());
            for payload in table.attributes {
                let expr = over(payload)?;
                let (outputs, source) = match is_by_value {
                    true => by_value(&expr, lowering)?,
                    false => built.by_row(&expr, lowering)?,
                };
                let first = columns.len();
                columns.extend(outputs.into_iter().map(|output| built.output(output)));
                payloads.push(BuildPayload {
                    columns: (first..columns.len()).collect(),
                    source,
                    missing: missing_value(payload, schema)?,
                });
            }
            let by = match (columns.is_empty(), is_by_value) {
                (true, _) => BuildBy::Nothing,
                (false, true) => BuildBy::Values(columns),
                (false, false) => BuildBy::ValuesOrRows(columns),
            };
            let build = Build {
                keys: outputs.clone(),
                is_packed: keys.is_packed,
                by,
                is_unique: table.is_unique,
            };
            built.tables.push(BuildTable { build, payloads });
        }
        Ok(built)
    }

    /// Lowers a payload column that may differ in each row. Returns outputs, and how its values follow from them.
    fn by_row(
        &mut self,
        expr: &Arc<dyn PhysicalExpr>,
        lowering: &mut Lowering<'_>,
    ) -> Result<(Vec<Expr>, PayloadSource), FallbackReason> {
        let mut trial = lowering.clone();
        let reason = match trial.value(expr) {
            Ok(value) => {
                *lowering = trial;
                return Ok((vec![value], PayloadSource::Column));
            }
            Err(reason) => reason,
        };
        if let Some(column) = lowering.text_of_table(expr) {
            let of_files = &mut self.of_files;
            let known = of_files.iter().position(|known| known == column);
            if known.is_none() {
                of_files.push(column.clone());
            }
            let number = known.unwrap_or(of_files.len() - 1);
            return Ok((vec![Expr::RowNumber], PayloadSource::Row(number)));
        }
        let mut trial = lowering.clone();
        if let Ok((code, Some((lookup, column)))) = trial.row_column(expr) {
            *lowering = trial;
            return Ok((vec![code], PayloadSource::Code(lookup, column)));
        }
        computed(expr, lowering).map_err(|_| reason)
    }

    /// The index of an output, which is added unless it is there.
    fn output(&mut self, expr: Expr) -> usize {
        let known = self.kernel.iter().position(|known| *known == expr);
        known.unwrap_or_else(|| {
            self.kernel.push(expr);
            self.kernel.len() - 1
        })
    }

    /// The outputs of the kernel.
    pub(crate) fn of_kernel(&self) -> &[Expr] {
        &self.kernel
    }

    /// The columns that are read from files once their values are needed.
    pub(crate) fn file_schema(&self) -> SchemaRef {
        Arc::new(Schema::new(self.of_files.clone()))
    }

    /// The tables that the device builds from the outputs.
    pub(crate) fn builds(&self) -> Vec<Build> {
        let tables = self.tables.iter();
        tables.map(|table| table.build.clone()).collect()
    }

    /// The key tables that the device has built. `tables` are those that the building kernel has looked up, and `rows`
    /// has columns of files. Blocks.
    pub(crate) fn tables(
        &self,
        built: Vec<Built>,
        tables: &Tables,
        rows: Option<&Arc<FileRows>>,
    ) -> Result<Vec<Table>> {
        let key_tables = self.tables.iter().zip(built);
        let key_tables = key_tables.map(|(table, built)| table.of(built, tables, rows));
        key_tables.collect()
    }
}

impl BuildTable {
    fn of(&self, built: Built, tables: &Tables, rows: Option<&Arc<FileRows>>) -> Result<Table> {
        let packing = self.build.is_packed;
        let packing = packing.then(|| CompositeKey::of_bounds(&built.digits));
        let payloads = self.payloads.iter();
        let payloads = payloads.map(|payload| payload.of(&built.attributes, tables, rows));
        let table = Table::of_device(built.codes, packing, payloads.collect::<Result<_>>()?);
        let has_rows = table.has_rows || built.has_null;
        Ok(table.of_rows(has_rows, built.has_null))
    }
}

impl BuildPayload {
    /// The payload column, from columns with values, codes or row numbers.
    fn of(
        &self,
        columns: &[Arc<PayloadColumn>],
        tables: &Tables,
        rows: Option<&Arc<FileRows>>,
    ) -> Result<BuiltPayload> {
        let mut own = self
            .columns
            .iter()
            .filter_map(|&column| columns.get(column));
        let (of_codes, meaning) = match &self.source {
            PayloadSource::Computed(expr, schema) => {
                let values = own.map(|column| column.values().map_err(error::gpu));
                let values = values.collect::<Result<Vec<_>>>()?;
                let computed = PayloadColumn::new(evaluated(expr, schema, &values)?);
                (Some(computed), PayloadMeaning::Values)
            }
            PayloadSource::Column => (own.next().cloned(), PayloadMeaning::Values),
            PayloadSource::Code(lookup, column) => {
                let table = tables.get(*lookup).cloned();
                let table = table.ok_or_else(|| internal_datafusion_err!("no lookup"))?;
                (
                    own.next().cloned(),
                    PayloadMeaning::KeyTable(table, *column),
                )
            }
            PayloadSource::Row(column) => {
                let rows = rows.cloned();
                let rows = rows.ok_or_else(|| internal_datafusion_err!("no rows of files"))?;
                (own.next().cloned(), PayloadMeaning::Rows(rows, *column))
            }
        };
        Ok(BuiltPayload {
            of_codes: of_codes.ok_or_else(|| internal_datafusion_err!("no such column"))?,
            missing: Arc::clone(&self.missing),
            meaning,
        })
    }
}

/// Lowers a payload column by whose values codes are assigned. Returns outputs, and how its values follow from them.
fn by_value(
    expr: &Arc<dyn PhysicalExpr>,
    lowering: &mut Lowering<'_>,
) -> Result<(Vec<Expr>, PayloadSource), FallbackReason> {
    if let Some(join) = lowering.lookups.join_of(expr)
        && lowering.lookups.is_outer(join)
    {
        // An unmatched row, which has no code, may have the same value as a matched one.
        let of = Type::of(&lowering.type_of(expr)?);
        return match of.is_some_and(|of| !of.is_float()) {
            true => Ok((vec![lowering.value(expr)?], PayloadSource::Column)),
            false => Err(FallbackReason::GroupKey(expr.to_string())),
        };
    }
    Ok(match lowering.group_key(expr)? {
        Grouping::Key(GroupKey::Value(value)) => (vec![value], PayloadSource::Column),
        Grouping::Key(GroupKey::DictionaryValue(column))
            if lowering.text_of_table(expr).is_some() =>
        {
            (vec![Expr::DenseId(column)], PayloadSource::Column)
        }
        Grouping::Key(_) => return Err(FallbackReason::GroupKey(expr.to_string())),
        Grouping::PayloadColumn { lookup, column } => (
            vec![Expr::Id(Code::Lookup(lookup))],
            PayloadSource::Code(lookup, column),
        ),
    })
}

/// Lowers the columns of an expression that has no kernel, so that the CPU can evaluate it over them.
fn computed(
    expr: &Arc<dyn PhysicalExpr>,
    lowering: &mut Lowering<'_>,
) -> Result<(Vec<Expr>, PayloadSource), FallbackReason> {
    let mut used: Vec<Column> = collect_columns(expr).into_iter().collect();
    used.sort_by_key(Column::index);
    if used.is_empty() || is_volatile(expr) {
        return Err(FallbackReason::Expr(expr.to_string()));
    }
    let outputs = used.iter().map(|column| {
        let column: Arc<dyn PhysicalExpr> = Arc::new(column.clone());
        lowering.value(&column)
    });
    let outputs = outputs.collect::<Result<_, FallbackReason>>()?;
    let fields = used.iter().map(|column| {
        let field = lowering.field(column.index())?;
        Ok::<_, FallbackReason>(field.clone().with_nullable(true))
    });
    let schema = Schema::new(fields.collect::<Result<Vec<_>, FallbackReason>>()?);
    let own = Arc::clone(expr).transform(|part| {
        let index = part.downcast_ref::<Column>();
        let index = index.and_then(|column| used.iter().position(|used| used == column));
        Ok(match index {
            Some(index) => {
                let column = Column::new(schema.field(index).name(), index);
                Transformed::yes(Arc::new(column) as Arc<dyn PhysicalExpr>)
            }
            None => Transformed::no(part),
        })
    });
    Ok((
        outputs,
        PayloadSource::Computed(own.data()?, Arc::new(schema)),
    ))
}

/// Evaluates an expression over columns of machine types; with many rows, on several threads.
fn evaluated(
    expr: &Arc<dyn PhysicalExpr>,
    schema: &SchemaRef,
    columns: &[ArrayRef],
) -> Result<ArrayRef> {
    let typed = columns.iter().zip(schema.fields());
    let typed = typed.map(|(values, field)| reinterpret(values, field.data_type()));
    let batch = RecordBatch::try_new(Arc::clone(schema), typed.collect::<Result<_>>()?)?;
    let of = |batch: RecordBatch| {
        let values = stack::evaluated(expr, &batch)?;
        values.into_array(batch.num_rows())
    };
    let rows = batch.num_rows();
    let threads = available_parallelism().map_or(1, usize::from);
    let each = rows.div_ceil(threads).max(MIN_ROWS_PER_THREAD);
    let values = match rows <= each {
        true => of(batch),
        false => thread::scope(|scope| {
            let parts = (0..rows).step_by(each).map(|first| {
                let part = batch.slice(first, each.min(rows - first));
                thread::Builder::new().spawn_scoped(scope, || of(part))
            });
            let parts: Vec<_> = parts.collect::<io::Result<_>>()?;
            let parts = parts.into_iter().map(|part| {
                let ended = |_| internal_datafusion_err!("a thread that panicked");
                part.join().map_err(ended).flatten()
            });
            let parts: Vec<ArrayRef> = parts.collect::<Result<_>>()?;
            let parts: Vec<&dyn Array> = parts.iter().map(AsRef::as_ref).collect();
            Ok(concat(&parts)?)
        }),
    };
    // A row that fails may be one that the join would drop, so the query need not fail.
    values.map_err(|error| error::gpu(Error::Unsupported(error.strip_backtrace())))
}
