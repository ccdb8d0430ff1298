//! Builds a join's tables on the device, from the output of another kernel.
//!
//! If the device cannot, the CPU runs the build side's plan instead.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::future::try_join;
use vectile_gpu::Error;
use vectile_pipeline::PostAggregation;

use super::batch_stream::{BatchStream, ExecEnvironment};
use super::build_side::{BuildTables, Built};
use super::column_loader::missing_bytes;
use super::input::{Input, TableRowGroup, decline};
use super::stage::BuildInput;
use super::star_pipeline::{JoinOrder, StarTemplate};
use crate::error;
use crate::fused::cost_model::ColumnId;
use crate::fused::device::Device;
use crate::fused::file_rows::FileRows;
use crate::fused::lowering::build_output::BuildColumns;
use crate::fused::pattern::files::bytes_of_columns;

/// How the device builds the tables of a build side.
#[derive(Clone, Debug)]
pub(crate) struct DeviceBuild {
    pub(crate) input: Input,
    /// The kernel whose output tables are built from.
    pub(crate) star: StarTemplate,
    /// Alternative outputs: each one is tried if there is no kernel for those before it.
    pub(crate) outputs: Vec<BuildOutput>,
}

/// Output columns of a stage's kernel, and the tables built from them.
#[derive(Clone, Debug)]
pub(crate) struct BuildOutput {
    pub(crate) columns: BuildColumns,
    /// If the kernel puts out groups: which of them, and their columns.
    pub(crate) post_aggregation: Option<PostAggregation>,
}

#[async_trait]
impl BuildTables for DeviceBuild {
    async fn tables(&self, environment: &ExecEnvironment<'_>) -> Result<Built> {
        let (engine, context) = (&environment.device.engine, environment.context);
        let metrics = ExecutionPlanMetricsSet::new();
        let row_groups = self.input.open(engine, context, &metrics).await?;
        if row_groups.is_empty() {
            return Err(unsupported("it has no rows"));
        }
        if let Some(reason) = decline(&row_groups, engine.memory_limit()) {
            return Err(unsupported(reason));
        }
        let file_rows = |output: &BuildOutput| {
            let of_files = output.columns.file_schema();
            let has_some = !of_files.fields().is_empty();
            let of_file = || row_groups.iter().map(TableRowGroup::of_file).collect();
            let rows = has_some.then(|| FileRows::new(of_file(), &of_files));
            Ok::<_, DataFusionError>(rows.transpose()?.map(Arc::new))
        };
        let outputs = self.outputs.iter().cloned();
        let outputs = outputs.map(|output| Ok((file_rows(&output)?, output)));
        let outputs: Vec<_> = outputs.collect::<Result<_>>()?;
        let read = BuildInput {
            rows: row_groups.iter().map(TableRowGroup::rows).sum(),
            bytes: row_groups
                .iter()
                .map(|row_group| row_group.bytes() as usize)
                .sum(),
        };
        let mut batch_stream = BatchStream::new(row_groups, environment, None);
        let tables = self.star.tables(environment);
        let ((tables, stages), ()) = try_join(tables, batch_stream.begin()).await?;
        let pipeline = self.star.pipeline(&tables, JoinOrder::MostSelective)?;
        let Some(batch) = batch_stream.all().await? else {
            return Err(unsupported("its rows do not fit the device together"));
        };
        let pipeline = Arc::new(pipeline);
        let last = outputs.len().saturating_sub(1);
        let mut built_tables = None;
        for (number, (file_rows, output)) in outputs.into_iter().enumerate() {
            let mut execution = engine.start(Arc::clone(&pipeline));
            environment.limits.limit(&mut execution);
            execution.expect_rows(batch.num_rows() as u64);
            // a running task is not cancelled by dropping this future
            let _cancel = execution.cancel_on_drop();
            let (batch, tables) = (batch.clone(), tables.clone());
            let task = SpawnedTask::spawn_blocking(move || {
                let BuildOutput {
                    columns,
                    post_aggregation,
                } = output;
                let builds = columns.builds();
                let built = match post_aggregation {
                    Some(post_aggregation) => execution.build_from_groups(
                        &batch,
                        &post_aggregation,
                        columns.of_kernel(),
                        &builds,
                    ),
                    None => execution.build(&batch, &builds),
                };
                let built = built.map_err(error::gpu)?;
                let built_tables =
                    built.map(|built| columns.tables(built, &tables, file_rows.as_ref()));
                Ok::<_, DataFusionError>((built_tables.transpose()?, execution.statistics()))
            });
            match task.join().await.map_err(error::interrupted).flatten() {
                Ok((tables, statistics)) => {
                    environment.metrics.add(&statistics);
                    built_tables = tables;
                    break;
                }
                Err(error) if number < last && error::is_unsupported(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let rows = built_tables
            .iter()
            .flatten()
            .map(|table| table.codes.len())
            .max();
        environment.metrics.build_rows.add(rows.unwrap_or_default());
        Ok(Built {
            tables: built_tables,
            read,
            stages,
        })
    }

    fn bytes(&self) -> u64 {
        let own = bytes_of_columns(&self.input.config, self.input.columns.len());
        own.saturating_add(self.star.build_bytes())
    }

    fn column_ids(&self) -> Vec<ColumnId> {
        let mut columns = self.input.column_ids();
        columns.extend(self.star.build_columns());
        columns
    }

    async fn missing_bytes(&self, device: &Device, context: &Arc<TaskContext>) -> Result<u64> {
        let metrics = ExecutionPlanMetricsSet::new();
        let row_groups = self.input.open(&device.engine, context, &metrics).await?;
        if decline(&row_groups, device.engine.memory_limit()).is_some() {
            return Ok(0);
        }
        let own = missing_bytes(&device.engine, &row_groups);
        // tables of further joins
        let others = self.star.missing_build_bytes(device, context);
        let (own, others) = try_join(own, others).await?;
        Ok(own.saturating_add(others))
    }

    fn stage(&self) -> String {
        let post_aggregation = self
            .outputs
            .iter()
            .find_map(|of| of.post_aggregation.as_ref());
        let of = match post_aggregation {
            Some(_) => "of groups of",
            None => "of",
        };
        let (columns, joins) = (&self.input, self.star.joins());
        match joins.is_empty() {
            true => format!("{of} [{columns}]"),
            false => format!("{of} [{columns}] with [{joins}]"),
        }
    }
}

fn unsupported(reason: impl ToString) -> DataFusionError {
    error::gpu(Error::Unsupported(reason.to_string()))
}
