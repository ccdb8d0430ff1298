//! One run of a fused node as a program on the CPU.
//!
//! ```text
//!  open files, build sides ─▶ row groups, or parts of them ─▶ program ─▶ merged in their order ─▶ rows
//!       └──────────────── an error, or too little memory ─▶ the plan of DataFusion's operators
//! ```

use std::ops::Range;
use std::sync::{Arc, Weak};

use arrow::array::{Array, ArrayRef};
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{Result, ScalarValue};
use datafusion::execution::memory_pool::{MemoryConsumer, MemoryReservation};
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::stream::{StreamExt, TryStreamExt};
use tokio::sync::OnceCell;
use vectile_cpu::{DistinctPartition, Execution, Partial, Partition};
use vectile_encodings::{Column, VECTOR_LEN};
use vectile_pipeline::{Expr, GroupKey, Output, Pipeline};
use vectile_scan::Fetch;

use super::compute;
use super::fused_run::FusedRun;
use super::metrics::GpuMetrics;
use super::operation::{CollectedRows, Operation};
use super::star_pipeline::{JoinOrder, StarTemplate};
use crate::error;
use crate::file::ScanFile;
use crate::fused::table::Tables;
use crate::metrics::ScanMetrics;

/// So many rows, or matches of rows, are computed in milliseconds.
const FEW_ROWS: u64 = 1 << 19;

/// So many bytes of groups are merged in milliseconds.
const FEW_BYTES: usize = 1 << 22;

/// Tasks in which each core merges partitions: a task costs as much as hundreds of groups.
const TASKS_PER_CORE: usize = 4;

/// A row group to read: a file, its columns in the order of the pipeline, and the index of the row group.
type RowGroup = (Arc<ScanFile>, Arc<[usize]>, usize);

impl<O: Operation> FusedRun<O> {
    /// Returns a stream of the rows, or of DataFusion's operators if there is no program, too little memory, or an error
    /// that is no defect.
    pub(super) async fn rows_of_program(self) -> Result<SendableRecordBatchStream> {
        let completed = async {
            let rows = self.computed_by_program().await?;
            self.plan.operation.completed(rows, &self.context).await
        };
        match completed.await {
            Ok(rows) => self.stream(rows),
            // they may not need what a program failed at: it computes rows that a later condition drops
            Err(error) if !error::is_internal(&error) => {
                let reason = error.into();
                GpuMetrics::new(&self.metrics, 0).add_fallback(&reason);
                self.on_cpu(reason, String::new(), None)
            }
            Err(error) => Err(error),
        }
    }

    async fn computed_by_program(&self) -> Result<CollectedRows> {
        let mut row_groups = self.row_groups().await?;
        if row_groups.is_empty() {
            return self.plan.operation.of_no_rows();
        }
        let metrics = GpuMetrics::new(&self.metrics, 0);
        let star = &self.plan.star;
        let (tables, stages) = star.tables_of_rows(&metrics, &self.context).await?;
        metrics.add_stages(stages);
        let before = row_groups.len();
        row_groups.retain(|row_group| may_match(row_group, star, &tables));
        let scan = ScanMetrics::new(&self.metrics, 0);
        let pruned = before - row_groups.len();
        scan.row_groups_pruned_dynamic.add(pruned);
        if row_groups.is_empty() || star.is_empty(&tables) {
            return self.plan.operation.of_no_rows();
        }
        let consumer = MemoryConsumer::new("VectileKeyTables");
        let memory = consumer.register(self.context.memory_pool());
        memory.try_grow(tables.iter().map(|table| table.bytes()).sum())?;
        let mut operation = self.plan.operation.clone();
        loop {
            let attempt = self.attempt_program(operation.clone(), &tables, &row_groups);
            let attempt = attempt.await;
            let has_program = !attempt.as_ref().is_err_and(error::is_unsupported);
            if let Ok((changed, _)) = &attempt {
                operation = changed.clone();
            }
            if !operation.change_for_retry(has_program)? {
                return attempt.map(|(_, rows)| rows);
            }
        }
    }

    /// The row groups that zone maps and Bloom filters leave.
    async fn row_groups(&self) -> Result<Vec<RowGroup>> {
        let input = &self.plan.input;
        let mut row_groups: Vec<RowGroup> = Vec::new();
        for (file, _, left) in input.files(&self.context, &self.metrics).await? {
            let columns: Arc<[usize]> = input.columns_in(&file)?.into();
            let own = left
                .into_iter()
                .filter(|index| file.file.rows(*index) > 0)
                .map(|index| (Arc::clone(&file), Arc::clone(&columns), index));
            row_groups.extend(own);
        }
        Ok(row_groups)
    }

    /// Computes the rows of all row groups once.
    async fn attempt_program(
        &self,
        operation: O,
        tables: &Tables,
        row_groups: &[RowGroup],
    ) -> Result<(O, CollectedRows)> {
        let plan = &self.plan;
        let mut pipeline = plan.star.pipeline(tables, JoinOrder::MostDroppedPerTime)?;
        operation.replace_outputs(&plan.operation, &mut pipeline.output);
        let ascending = ascending_key(&pipeline, row_groups);
        let pipeline = Arc::new(pipeline);
        let reservation =
            MemoryConsumer::new("VectileProgram").register(self.context.memory_pool());
        // groups of one row group, and of all together
        let merged = reservation.new_empty();
        let partials = parts_of(row_groups).into_iter().map(|part| {
            let Part {
                row_group: (file, columns, index),
                rows,
                read: once,
            } = part;
            let memory = reservation.new_empty();
            let pipeline = Arc::clone(&pipeline);
            let task = SpawnedTask::spawn(async move {
                let share = rows.len() as f64 / file.file.rows(index) as f64;
                let bytes = file.file.data_bytes(index, &columns) as f64 * share;
                memory.try_grow(bytes as usize)?;
                let read = once
                    .get_or_try_init(|| read(&file, index, &columns))
                    .await?;
                let read = Arc::clone(read);
                drop(once);
                // a blocking task is not cancelled by dropping this future
                let wanted = Arc::new(());
                let is_wanted = Arc::downgrade(&wanted);
                let examined = (rows.len() as u64).saturating_mul(pipeline.most_matches());
                let is_short = examined <= FEW_ROWS;
                let computed = move || {
                    let partial = computed(&pipeline, &read, rows, ascending, &memory, &is_wanted)?;
                    drop(read);
                    // until it is merged
                    memory.try_resize(partial.bytes())?;
                    Ok((partial, memory))
                };
                let computed = compute::on_thread(is_short, computed).await;
                drop(wanted);
                computed
            });
            async move { task.join().await.map_err(error::interrupted).flatten() }
        });
        // more than there are cores: a part may take longer than those that follow it
        let mut partials = futures::stream::iter(partials).buffered(2 * self.cores().max(1));
        let mut execution = Execution::new(Arc::clone(&pipeline));
        while let Some((partial, memory)) = partials.try_next().await? {
            execution.add(partial).map_err(error::gpu)?;
            drop(memory);
            merged.try_resize(execution.merged_bytes())?;
            if execution.is_due() {
                let merge = |mut partition: Partition| {
                    partition.merge().map_err(error::gpu)?;
                    Ok(partition)
                };
                let partitions = execution.partitions();
                let partitions = self.of_each(partitions, Partition::bytes, merge).await?;
                execution.put_partitions(partitions);
                merged.try_resize(execution.merged_bytes())?;
            }
        }
        if execution.counts_distinct() {
            let values = execution.distinct_values();
            let counts = |values: DistinctPartition| values.counts().map_err(error::gpu);
            let counts = self
                .of_each(values, DistinctPartition::bytes, counts)
                .await?;
            execution.add_counts(counts).map_err(error::gpu)?;
            merged.try_resize(execution.merged_bytes())?;
        }
        let groups = match &pipeline.output {
            Output::Groups(..) => {
                let partitions = execution.finish().map_err(error::gpu)?;
                let planned = operation.clone();
                let needed = move |partition: Partition| {
                    let mut groups = [partition.groups().map_err(error::gpu)?];
                    planned.drop_unneeded(&mut groups)?;
                    let [groups] = groups;
                    Ok(groups)
                };
                self.of_each(partitions, Partition::bytes, needed).await?
            }
            _ => Vec::new(),
        };
        operation.collected(&execution, groups, tables, &self.context)
    }

    /// The results of `of_each` for each partition, in order. The cores share the partitions. `bytes` are those of one.
    async fn of_each<P: Send + 'static, T: Send + 'static>(
        &self,
        partitions: Vec<P>,
        bytes: fn(&P) -> usize,
        of_each: impl Fn(P) -> Result<T> + Clone + Send + 'static,
    ) -> Result<Vec<T>> {
        let cores = self.cores().max(1);
        let of_task = partitions.len().div_ceil(TASKS_PER_CORE * cores);
        let mut rest = partitions.into_iter();
        let mut tasks = Vec::new();
        loop {
            let own: Vec<P> = rest.by_ref().take(of_task).collect();
            if own.is_empty() {
                break;
            }
            let of_each = of_each.clone();
            let is_short = own.iter().map(bytes).sum::<usize>() <= FEW_BYTES;
            let results = move || own.into_iter().map(of_each).collect::<Result<Vec<T>>>();
            tasks.push(async move {
                let task = async move { compute::on_thread(is_short, results).await };
                let task = SpawnedTask::spawn(task);
                task.join().await.map_err(error::interrupted).flatten()
            });
        }
        let results = futures::stream::iter(tasks).buffered(cores);
        let results: Vec<Vec<T>> = results.try_collect().await?;
        Ok(results.into_iter().flatten().collect())
    }
}

/// False if zone maps show that no row has a match in some table in which it needs one.
fn may_match(row_group: &RowGroup, star: &StarTemplate, tables: &Tables) -> bool {
    star.needed_matches(tables).all(|(column, table)| {
        let bounds = bounds_of(row_group, column);
        bounds.is_none_or(|(least, greatest)| table.may_have_key_within(&least, &greatest))
    })
}

/// The bounds of a column of the pipeline by the zone maps, an array of one value each. They may be null.
fn bounds_of((file, columns, at): &RowGroup, column: usize) -> Option<(ArrayRef, ArrayRef)> {
    let zones = file.file.row_group_zones(*columns.get(column)?)?;
    let bound = |of: &ArrayRef| (*at < of.len()).then(|| of.slice(*at, 1));
    bound(&zones.min).zip(bound(&zones.max))
}

/// Fewest rows of row groups, on average, for which their groups are worth to be kept apart.
const APART: usize = 1 << 16;

/// The index of a group key, a column, of which each row group seems to have no smaller value than those before.
fn ascending_key(pipeline: &Pipeline, row_groups: &[RowGroup]) -> Option<usize> {
    let Output::Groups(keys, _) = &pipeline.output else {
        return None;
    };
    let rows = row_groups.iter().map(|(file, _, at)| file.file.rows(*at));
    if row_groups.len() < 2 || rows.sum::<usize>() / row_groups.len() < APART {
        return None;
    }
    keys.iter().position(|key| match key {
        GroupKey::Value(Expr::Column(column)) => is_ascending(*column, row_groups),
        _ => false,
    })
}

fn is_ascending(column: usize, row_groups: &[RowGroup]) -> bool {
    let mut last: Option<ScalarValue> = None;
    row_groups.iter().all(|row_group| {
        let value = |of: ArrayRef| {
            let value = ScalarValue::try_from_array(&of, 0).ok();
            value.filter(|value| !value.is_null())
        };
        let bounds = bounds_of(row_group, column);
        let Some((low, high)) = bounds.and_then(|(low, high)| value(low).zip(value(high))) else {
            return false;
        };
        let follows = last.as_ref().is_none_or(|last| *last <= low);
        last = Some(high);
        follows
    })
}

/// Fewer row groups are computed in parts, of at least so many rows, so that all threads have some. Sums of floats are
/// those of parts, so these do not depend on the number of threads.
const FEW_ROW_GROUPS: usize = 8;
const LEAST_PART_ROWS: usize = 32 * VECTOR_LEN;

/// Some rows of a row group.
struct Part {
    row_group: RowGroup,
    rows: Range<usize>,
    /// The columns, which the first part of the row group reads for all.
    read: Arc<OnceCell<Arc<Vec<Column>>>>,
}

/// The parts in which row groups are computed, in order.
fn parts_of(row_groups: &[RowGroup]) -> Vec<Part> {
    let parts_of_each = FEW_ROW_GROUPS.div_ceil(row_groups.len().max(1));
    let mut parts = Vec::with_capacity(row_groups.len());
    for row_group in row_groups {
        let (file, _, index) = row_group;
        let rows = file.file.rows(*index);
        let of_part = rows.div_ceil(parts_of_each).next_multiple_of(VECTOR_LEN);
        let of_part = of_part.max(LEAST_PART_ROWS);
        let read = Arc::new(OnceCell::new());
        parts.extend((0..rows).step_by(of_part).map(|first| Part {
            row_group: row_group.clone(),
            rows: first..rows.min(first + of_part),
            read: Arc::clone(&read),
        }));
    }
    parts
}

/// Reads the columns of a row group.
async fn read(file: &ScanFile, row_group: usize, columns: &[usize]) -> Result<Arc<Vec<Column>>> {
    let fetch = Fetch {
        row_group,
        data: columns.to_vec(),
        ..Fetch::default()
    };
    let mut read = file
        .file
        .fetch(&fetch)
        .await
        .map_err(|error| file.error(error))?;
    file.metrics.bytes_scanned.add(read.bytes_read as usize);
    file.metrics.bytes_cached.add(read.bytes_cached as usize);
    let column = |column: &usize| {
        let values = read.columns.get_mut(*column).and_then(|slot| slot.clone());
        values.ok_or_else(|| error::missing_column(*column))
    };
    columns
        .iter()
        .map(column)
        .collect::<Result<_>>()
        .map(Arc::new)
}

/// Runs the program over rows of a row group, whose memory grows by that of its groups. Blocks; a run over many matches
/// ends early once nothing else holds `is_wanted`.
fn computed(
    pipeline: &Pipeline,
    columns: &[Column],
    rows: Range<usize>,
    ascending: Option<usize>,
    memory: &MemoryReservation,
    is_wanted: &Weak<()>,
) -> Result<Partial> {
    let own = memory.size();
    let mut refused = None;
    let mut reserve = |bytes| {
        if is_wanted.strong_count() == 0 {
            let reason = "a query that was cancelled";
            return Err(vectile_pipeline::Error::Unsupported(reason.into()));
        }
        memory.try_resize(own + bytes).map_err(|error| {
            let reason = error.strip_backtrace();
            refused = Some(error);
            vectile_pipeline::Error::Unsupported(reason)
        })
    };
    let partial = Execution::run(pipeline, columns, rows, ascending, &mut reserve);
    match refused {
        Some(error) => Err(error),
        None => partial.map_err(error::gpu),
    }
}
