//! Builds the tables of a build side on the CPU, from the rows of its plan.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef, RecordBatch, UInt32Array, new_empty_array};
use arrow::compute::{CastOptions, and, cast, cast_with_options, filter, is_not_null, take};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Result, internal_err};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlanProperties;
use futures::StreamExt;
use futures::future::try_join_all;
use vectile_gpu::Error;
use vectile_pipeline::{KeyChunks, KeyTable, RowCodes, parallel};

use super::payload::{PayloadCodes, bytes_of};
use super::{BuildKey, BuildLookup, BuildSide, DUPLICATE_KEYS, too_many, unsupported};
use crate::error;
use crate::fused::composite_key::CompositeKey;
use crate::fused::exec::compute;
use crate::fused::exec::cpu_fallback::CpuPlan;
use crate::fused::exec::metrics::GpuMetrics;
use crate::fused::exec::stage::BuildInput;
use crate::fused::key_table_cache::{KeyTableCache, TableKey};
use crate::fused::lowering::probe::{Purpose, missing_value};
use crate::fused::multimap::RowsByKey;
use crate::fused::table::Table;
use crate::stack;

/// Tables of at most so many rows are built in milliseconds.
const FEW_ROWS: usize = 1 << 17;

impl BuildSide {
    /// Builds the tables from the plan's rows, and puts those with a key into a cache. `has_duplicate_keys` is set if the
    /// device found duplicate keys.
    pub(super) async fn tables_of_rows(
        &self,
        cached: Option<(&Arc<KeyTableCache>, Vec<Option<TableKey>>)>,
        has_duplicate_keys: bool,
        metrics: &GpuMetrics,
        context: &Arc<TaskContext>,
    ) -> Result<(Vec<Arc<Table>>, BuildInput)> {
        let consumer = MemoryConsumer::new("VectileGpuLookup");
        let reservation = consumer.register(context.memory_pool());
        let BuildRows {
            batches,
            has_rows,
            has_null,
            read,
        } = self.rows(&reservation, context).await?;
        let rows = batches.iter().map(RecordBatch::num_rows).sum();
        metrics.build_rows.add(rows);
        let threads = context.session_config().target_partitions();
        let threads = parallel::threads_for(rows, threads);
        let (cache, keys) = match cached {
            Some((cache, keys)) => (Some(Arc::clone(cache)), keys),
            None => (None, vec![None; self.lookups.len()]),
        };
        let is_for_device = cache.is_some();
        let this = self.clone();
        let is_short = rows <= FEW_ROWS;
        let build = move || {
            let mut first = this.keys.len();
            let row_keys = this.row_keys(&batches, threads).and_then(|mut keys| {
                keys.list_by_key(has_duplicate_keys)?;
                Ok(keys)
            });
            let mut row_keys = match row_keys {
                Ok(keys) => Ok(keys),
                Err(error) => Err(unsupported_reason(error)?),
            };
            let tables = this.lookups.iter().zip(keys).map(|(lookup, key)| {
                let table = match &mut row_keys {
                    Ok(keys) => {
                        let limits = (&reservation, threads);
                        this.table(&batches, (first, lookup), is_for_device, keys, limits)
                    }
                    Err(reason) => Err(unsupported(reason.clone())),
                };
                first += lookup.payload.len();
                let table = match table {
                    Ok(table) => Ok(Arc::new(table.of_rows(has_rows, has_null))),
                    Err(error) => Err(unsupported_reason(error)?),
                };
                if let (Some(cache), Some(key)) = (&cache, key) {
                    cache.put(key, table.clone());
                }
                table.map_err(unsupported)
            });
            let tables = tables.collect::<Result<Vec<_>>>();
            drop(reservation);
            tables
        };
        // other build sides are read meanwhile
        let build = SpawnedTask::spawn(compute::on_thread(is_short, build));
        let tables = build.join().await.map_err(error::interrupted)??;
        Ok((tables, read))
    }

    /// Runs the plan and evaluates keys and payload expressions.
    async fn rows(
        &self,
        reservation: &MemoryReservation,
        context: &Arc<TaskContext>,
    ) -> Result<BuildRows> {
        let rows = Arc::new(AtomicUsize::new(0));
        let has_rows = Arc::new(AtomicBool::new(false));
        let has_null = Arc::new(AtomicBool::new(false));
        let mut this = self.clone();
        if !self.rules.is_empty() {
            let cpu = CpuPlan::new(Arc::clone(&self.plan), Arc::clone(&self.rules), |_| false);
            this.plan = cpu.optimized(context.session_config().options(), false)?;
        }
        let partitions = 0..this.plan.output_partitioning().partition_count();
        let tasks = partitions.map(|partition| {
            let (this, rows) = (this.clone(), Arc::clone(&rows));
            let (has_rows, has_null) = (Arc::clone(&has_rows), Arc::clone(&has_null));
            let (reservation, context) = (reservation.new_empty(), Arc::clone(context));
            let task = SpawnedTask::spawn(async move {
                let schema = this.schema()?;
                let mut stream = this.plan.execute(partition, context)?;
                let mut batches = Vec::new();
                while let Some(batch) = stream.next().await {
                    let batch = batch?;
                    has_rows.fetch_or(batch.num_rows() > 0, Ordering::Relaxed);
                    let (batch, any_null) = this.evaluate(&schema, &batch)?;
                    has_null.fetch_or(any_null, Ordering::Relaxed);
                    let before = rows.fetch_add(batch.num_rows(), Ordering::Relaxed);
                    if before + batch.num_rows() > this.most_rows {
                        return Err(unsupported(too_many(this.most_rows)));
                    }
                    reservation.try_grow(batch.get_array_memory_size())?;
                    batches.push(batch);
                }
                Ok((batches, reservation))
            });
            async move { task.join().await.map_err(error::interrupted).flatten() }
        });
        let mut all = Vec::new();
        for (batches, of_partition) in try_join_all(tasks).await? {
            reservation.grow(of_partition.free());
            all.extend(batches);
        }
        let [has_rows, has_null] = [has_rows, has_null].map(|any| any.load(Ordering::Relaxed));
        Ok(BuildRows {
            batches: all,
            has_rows,
            has_null,
            read: BuildInput::by(&this.plan)?,
        })
    }

    /// Schema of the batches that [`Self::evaluate`] returns.
    fn schema(&self) -> Result<SchemaRef> {
        let schema = self.plan.schema();
        let keys = self.keys.iter();
        let keys = keys.map(|key| Field::new("key", key.data_type.clone(), true));
        let mut fields: Vec<Field> = keys.collect();
        for expr in self.payload() {
            fields.push(Field::new("attribute", expr.data_type(&schema)?, true));
        }
        Ok(Arc::new(Schema::new(fields)))
    }

    /// Evaluates keys and, behind them, payload expressions for rows that may match. Also returns true if a key is null
    /// in some row.
    fn evaluate(&self, schema: &SchemaRef, batch: &RecordBatch) -> Result<(RecordBatch, bool)> {
        let rows = batch.num_rows();
        // An operation that fails on a row may be one that the join filters out.
        let evaluate = |expr: &Arc<dyn PhysicalExpr>| {
            let values = stack::evaluated(expr, batch).and_then(|values| values.into_array(rows));
            values.map_err(|error| unsupported(error.strip_backtrace()))
        };
        // A value outside the type has no match, but it is not null: NOT IN tells them apart.
        let options = CastOptions {
            safe: true,
            ..CastOptions::default()
        };
        let (mut columns, mut present, mut has_null) = (Vec::new(), None, false);
        for key in &self.keys {
            let values = evaluate(&key.expr)?;
            has_null |= values.logical_null_count() > 0;
            let values = cast_with_options(&values, &key.data_type, &options)?;
            if values.null_count() > 0 {
                let own = is_not_null(&values)?;
                present = Some(match present {
                    Some(others) => and(&others, &own)?,
                    None => own,
                });
            }
            columns.push(values);
        }
        for expr in self.payload() {
            columns.push(evaluate(expr)?);
        }
        if let Some(present) = present {
            for column in &mut columns {
                *column = filter(column, &present)?;
            }
        }
        let batch = RecordBatch::try_new(Arc::clone(schema), columns)?;
        Ok((batch, has_null))
    }

    /// True if all keys are among `payload`, so that rows with distinct keys differ in them.
    fn are_all_different(&self, payload: &[Arc<dyn PhysicalExpr>]) -> bool {
        let is_among = |key: &BuildKey| payload.contains(&key.expr);
        self.has_columns && self.keys.iter().all(is_among)
    }

    /// The keys of rows. Returns an error if there can be no table for them.
    fn row_keys(&self, rows: &[RecordBatch], threads: usize) -> Result<RowKeys> {
        let keys = self.keys.iter().enumerate();
        let mut parts = keys.map(|(column, key)| {
            let chunks = rows.iter().filter_map(|batch| batch.columns().get(column));
            let mut chunks: Vec<ArrayRef> = chunks.cloned().collect();
            if chunks.is_empty() {
                chunks.push(new_empty_array(&key.data_type));
            }
            chunks
        });
        let (packing, chunks) = match self.is_packed {
            true => {
                let parts: Vec<Vec<ArrayRef>> = parts.collect();
                let (packing, chunks) = CompositeKey::of(&parts, threads)?;
                (Some(packing), chunks)
            }
            false => match parts.next() {
                Some(chunks) => (None, chunks),
                None => return internal_err!("a build side without a key"),
            },
        };
        Ok(RowKeys {
            packing,
            keys: KeyChunks::new(&chunks, threads).map_err(error::gpu)?,
            chunks,
            rows_by_key: None,
        })
    }

    /// Builds the table of a lookup whose payload is in the columns of `rows` from the given one on. A device has less
    /// memory, so that values which occur several times have one code there; elsewhere finding them costs more. The
    /// reservation grows before the table is built.
    fn table(
        &self,
        rows: &[RecordBatch],
        (first, lookup): (usize, &BuildLookup),
        is_for_device: bool,
        row_keys: &mut RowKeys,
        (reservation, threads): (&MemoryReservation, usize),
    ) -> Result<Table> {
        let payload = &lookup.payload;
        let packing = row_keys.packing.clone();
        if !self.has_columns {
            let codes = row_keys.table(RowCodes::Set, reservation)?;
            return Ok(Table::new(codes.map_err(error::gpu)?, packing, Vec::new()));
        }
        let schema = self.plan.schema();
        let types = payload.iter().map(|expr| expr.data_type(&schema));
        let types: Vec<DataType> = types.collect::<Result<_>>()?;
        let columns = || (first..first + payload.len(), &types[..]);
        let codes_of = |is_by_row| PayloadCodes::new(rows, columns(), is_by_row);
        let values_of = |codes: PayloadCodes, order: Option<UInt32Array>| {
            reservation.try_grow(bytes_of(rows, columns().0))?;
            let values = codes.values(rows, columns(), threads)?.into_iter();
            let values = values.zip(payload).zip(types.iter());
            let values = values.map(|((values, expr), of)| {
                let mut values = cast(&values, of)?;
                if let Some(order) = &order {
                    values = take(&values, order, None)?;
                }
                Ok((values, cast(&missing_value(expr, &schema)?, of)?))
            });
            values.collect::<Result<Vec<_>>>()
        };
        if row_keys.rows_by_key.is_none() {
            let is_by_row = match lookup.purpose {
                Purpose::Rows => true,
                Purpose::Values if !is_for_device => true,
                Purpose::Values | Purpose::Groups => self.are_all_different(payload),
            };
            let codes = codes_of(is_by_row)?;
            let error = match row_keys.table(codes.of_rows(is_for_device), reservation)? {
                Ok(table) => return Ok(Table::new(table, packing, values_of(codes, None)?)),
                Err(error) => error,
            };
            row_keys.list_by_key(self.may_repeat)?;
            if row_keys.rows_by_key.is_none() {
                return Err(error::gpu(error));
            }
        }
        let rows_by_key = row_keys.rows_by_key.as_ref();
        let rows_by_key = rows_by_key.ok_or_else(|| unsupported(DUPLICATE_KEYS))?;
        // groups need codes by value; other lookups index values by the row's position in the list
        let is_by_value = lookup.purpose == Purpose::Groups;
        let codes = codes_of(!is_by_value)?;
        let (multimap, order) = match is_by_value {
            true => (rows_by_key.with(codes.of_rows(is_for_device)), None),
            false => (rows_by_key.coded_by_index(), Some(rows_by_key.rows())),
        };
        let keys = Arc::clone(&rows_by_key.codes);
        let table = Table::new(keys, packing, values_of(codes, order)?);
        Ok(table.with_multimap(Some(multimap)))
    }
}

/// The join keys of rows, none of which is null.
struct RowKeys {
    packing: Option<CompositeKey>,
    /// The keys of each batch. Composite keys are packed.
    chunks: Vec<ArrayRef>,
    keys: KeyChunks,
    /// Rows by key, shared by all lookups of the build side. Computed lazily.
    rows_by_key: Option<RowsByKey>,
}

impl RowKeys {
    /// Lists rows by key, if `may_repeat` and some keys are duplicate.
    fn list_by_key(&mut self, may_repeat: bool) -> Result<()> {
        if may_repeat {
            self.rows_by_key = RowsByKey::of(&self.chunks)?;
        }
        Ok(())
    }

    /// The table of the keys, or why there is none. Its memory is reserved before it is built.
    fn table(
        &self,
        codes: RowCodes<'_>,
        reservation: &MemoryReservation,
    ) -> Result<vectile_pipeline::Result<KeyTable>> {
        // if there are too many keys for a table, building it says so
        reservation.try_grow(KeyTable::bytes_of(&self.keys, codes).unwrap_or(0))?;
        Ok(KeyTable::build(&self.keys, codes))
    }
}

/// Rows of a build side.
struct BuildRows {
    /// One result of [`BuildSide::evaluate`] for each batch.
    batches: Vec<RecordBatch>,
    /// True if the plan has any row, with or without a key.
    has_rows: bool,
    /// True if a key is null in some row.
    has_null: bool,
    read: BuildInput,
}

/// The reason of an [`Error::Unsupported`]; returns other errors.
fn unsupported_reason(error: DataFusionError) -> Result<String> {
    match &error {
        DataFusionError::External(external) => match external.downcast_ref() {
            Some(Error::Unsupported(reason)) => Ok(reason.clone()),
            _ => Err(error),
        },
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Float64Array, Int32Array, Int64Array, StringArray};
    use arrow::datatypes::Int64Type;
    use datafusion::datasource::memory::MemorySourceConfig;
    use datafusion::physical_expr::expressions::Column;
    use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
    use datafusion::prelude::SessionContext;

    use super::*;
    use crate::fused::pattern::join::{Join, JoinKey, JoinKind, KeySource};

    fn build_side(
        kind: JoinKind,
        columns: Vec<(&str, ArrayRef)>,
        key_type: DataType,
        lookups: &[&[usize]],
    ) -> BuildSide {
        let columns = columns
            .into_iter()
            .map(|(name, values)| (name, values, true));
        let rows = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
        let schema = rows.schema();
        // In two partitions of half of the rows each.
        let half = rows.num_rows() / 2;
        let halves = [(0, half), (half, rows.num_rows() - half)];
        let halves = halves.map(|(start, count)| vec![rows.slice(start, count)]);
        let column = |i: &usize| Arc::new(Column::new(schema.field(*i).name(), *i)) as Arc<_>;
        let join = Join {
            plan: MemorySourceConfig::try_new_exec(&halves, Arc::clone(&schema), None).unwrap(),
            keys: vec![JoinKey {
                probe: column(&0),
                build: column(&0),
            }],
            kind,
            first: 0,
            condition: None,
        };
        let lookups = lookups.iter().map(|payload| BuildLookup {
            payload: payload.iter().map(column).collect(),
            purpose: Purpose::Groups,
        });
        let key_source = KeySource::Column(0, key_type);
        BuildSide::new(&join, &key_source, lookups.collect(), 100).unwrap()
    }

    async fn tables(build_side: &BuildSide) -> Result<Vec<Arc<Table>>> {
        let metrics = GpuMetrics::new(&ExecutionPlanMetricsSet::new(), 0);
        let context = SessionContext::new().task_ctx();
        let tables = build_side.tables_of_rows(None, false, &metrics, &context);
        let tables = tables.await.map(|(tables, _)| tables);
        assert_eq!(context.memory_pool().reserved(), 0);
        tables
    }

    fn numbers(values: Vec<Option<i32>>) -> ArrayRef {
        Arc::new(Int32Array::from(values))
    }

    #[tokio::test]
    async fn codes_follow_the_payload_of_each_lookup() {
        let keys = numbers(vec![Some(1), Some(2), None, Some(4), Some(5), Some(6)]);
        let text = StringArray::from(vec![Some("a"), Some("b"), Some("c"), None, Some("a"), None]);
        let long = Int64Array::from(vec![7, 7, 9, 7, 8, 8]);
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("key", keys),
            ("text", Arc::new(text)),
            ("long", Arc::new(long)),
        ];
        let lookups: [&[usize]; 3] = [&[1, 2], &[2], &[]];
        let build_side = build_side(JoinKind::Inner, columns, DataType::Int32, &lookups);
        let tables = tables(&build_side).await.unwrap();
        let counts: Vec<u32> = tables.iter().map(|table| table.codes.count()).collect();
        assert_eq!(counts, [5, 2, 1]);
        assert!(tables.iter().all(|table| table.codes.len() == 5));
        let [texts, longs] = [0, 1].map(|number| tables[0].all_values(number));
        let texts: Vec<_> = texts.as_string::<i32>().iter().collect();
        assert_eq!(texts, [Some("a"), Some("b"), None, Some("a"), None, None]);
        assert!(longs.is_null(5));
        let longs = tables[1].payload_column(0).unwrap();
        let longs = longs.values().unwrap();
        assert_eq!(longs.as_primitive::<Int64Type>().values(), &[7, 8]);
    }

    #[tokio::test]
    async fn duplicate_keys_are_allowed_for_semi_joins_only() {
        let columns = || vec![("key", numbers(vec![Some(1), Some(2), Some(1), None]))];
        for kind in [JoinKind::Inner, JoinKind::Outer] {
            let build_side = build_side(kind, columns(), DataType::Int32, &[&[]]);
            let error = tables(&build_side).await.unwrap_err().to_string();
            assert!(error.contains("duplicate join keys"), "{error}");
        }
        for kind in [JoinKind::Semi, JoinKind::Anti] {
            let build_side = build_side(kind, columns(), DataType::Int32, &[&[]]);
            let tables = tables(&build_side).await.unwrap();
            assert_eq!((tables[0].codes.len(), tables[0].width()), (2, 0));
        }
    }

    #[tokio::test]
    async fn build_sides_may_be_empty() {
        let columns = vec![("key", numbers(vec![])), ("value", numbers(vec![]))];
        let build_side = build_side(JoinKind::Inner, columns, DataType::Int32, &[&[1], &[]]);
        let tables = tables(&build_side).await.unwrap();
        assert!(tables.iter().all(|table| table.codes.is_empty()));
        assert_eq!(tables[0].all_values(0).len(), 1);
    }

    #[tokio::test]
    async fn keys_beyond_the_other_type_have_no_match() {
        let keys = Int64Array::from(vec![1, i64::MAX, -3]);
        let columns: Vec<(&str, ArrayRef)> = vec![("key", Arc::new(keys))];
        let build_side = build_side(JoinKind::Inner, columns, DataType::Int32, &[&[]]);
        assert_eq!(tables(&build_side).await.unwrap()[0].codes.len(), 2);
    }

    #[tokio::test]
    async fn floats_are_kept_as_they_are() {
        let floats = Float64Array::from(vec![0.0, -0.0, f64::NAN]);
        let keys = numbers(vec![Some(1), Some(2), Some(3)]);
        let columns: Vec<(&str, ArrayRef)> = vec![("key", keys), ("float", Arc::new(floats))];
        let build_side = build_side(JoinKind::Inner, columns, DataType::Int32, &[&[1]]);
        assert_eq!(tables(&build_side).await.unwrap()[0].codes.count(), 3);
    }

    #[tokio::test]
    async fn too_many_rows_fall_back_to_the_cpu() {
        let keys = numbers((0..200).map(Some).collect());
        let rows = RecordBatch::try_from_iter_with_nullable([("key", keys, true)]).unwrap();
        let schema = rows.schema();
        let plan = MemorySourceConfig::try_new_exec(&[vec![rows]], schema, None).unwrap();
        let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new("key", 0));
        let join = Join {
            plan,
            keys: vec![JoinKey {
                probe: Arc::clone(&key),
                build: key,
            }],
            kind: JoinKind::Semi,
            first: 0,
            condition: None,
        };
        let key_source = KeySource::Column(0, DataType::Int32);
        let keys = || BuildLookup {
            payload: vec![],
            purpose: Purpose::Groups,
        };
        // At planning, if the number of rows is known,
        let build_side = BuildSide::new(&join, &key_source, vec![keys()], 100).unwrap();
        let reason = build_side.check_rows(None).unwrap_err();
        assert!(
            reason.to_string().contains("max_build_rows = 100"),
            "{reason}"
        );
        // else when the plan runs.
        let mut build_side = BuildSide::new(&join, &key_source, vec![keys()], 200).unwrap();
        build_side.most_rows = 100;
        let error = tables(&build_side).await.unwrap_err().to_string();
        assert!(error.contains("max_build_rows = 100"), "{error}");
    }
}
