//! The tables of a dimension, made on the device of what another kernel leaves there: the build side of a join.
//!
//! The dimension's plan does the same on the CPU. It takes over where the device cannot.

use std::sync::Arc;

use async_trait::async_trait;
use datafusion::common::runtime::SpawnedTask;
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_plan::metrics::ExecutionPlanMetricsSet;
use futures::future::try_join;
use vectile_gpu::Error;
use vectile_gpu::plan::OfGroups;

use super::arrivals::{Arrivals, Environment};
use super::dimension::BuildTables;
use super::load::{Input, decline};
use super::star::Star;
use crate::error;
use crate::gpu::file_rows::FileRows;
use crate::gpu::lowering::build::BuildColumns;
use crate::gpu::table::Table;

/// How the device makes the tables of a dimension.
#[derive(Clone, Debug)]
pub(crate) struct Building {
    pub(crate) input: Input,
    /// The kernel that puts out what tables are made of.
    pub(crate) star: Star,
    pub(crate) columns: BuildColumns,
    /// If it puts out groups: which of them, as what.
    pub(crate) of_groups: Option<OfGroups>,
}

#[async_trait]
impl BuildTables for Building {
    async fn tables(&self, environment: &Environment<'_>) -> Result<Option<Vec<Table>>> {
        let (engine, context) = (&environment.device.engine, environment.context);
        let metrics = ExecutionPlanMetricsSet::new();
        let parts = self.input.open(engine, context, &metrics).await?;
        if parts.is_empty() {
            return Err(unsupported("it has no rows"));
        }
        if let Some(reason) = decline(&parts, engine.memory_limit()) {
            return Err(unsupported(reason));
        }
        let of_files = self.columns.of_files();
        let file_rows = match of_files.fields().is_empty() {
            true => None,
            false => Some(Arc::new(FileRows::new(&parts, &of_files)?)),
        };
        let mut arrivals = Arrivals::new(parts, environment, None);
        let tables = self.star.tables(environment);
        let (tables, ()) = try_join(tables, arrivals.begin()).await?;
        let pipeline = self.star.pipeline(&tables)?;
        let Some(batch) = arrivals.all().await? else {
            return Err(unsupported("its rows do not fit the device together"));
        };
        let mut execution = engine.start(Arc::new(pipeline));
        if !environment.pace.may_compile {
            execution.without_compiler();
        }
        execution.expect_rows(batch.num_rows() as u64);
        // a task that has begun does not end with this future by itself
        let _cancel = execution.cancel_on_drop();
        let (columns, of_groups) = (self.columns.clone(), self.of_groups.clone());
        let task = SpawnedTask::spawn_blocking(move || {
            let builds = columns.builds();
            let built = match of_groups {
                Some(wanted) => {
                    execution.build_of_groups(&batch, &wanted, columns.of_kernel(), &builds)
                }
                None => execution.build(&batch, &builds),
            };
            let built = built.map_err(error::gpu)?;
            let made = built.map(|built| columns.tables(built, &tables, file_rows.as_ref()));
            Ok::<_, DataFusionError>((made.transpose()?, execution.statistics()))
        });
        let (made, statistics) = task.join().await.map_err(error::interrupted).flatten()?;
        environment.metrics.add(&statistics);
        let rows = made.iter().flatten().map(|table| table.codes.len()).max();
        environment.metrics.build_rows.add(rows.unwrap_or_default());
        Ok(made)
    }
}

fn unsupported(reason: impl ToString) -> DataFusionError {
    error::gpu(Error::Unsupported(reason.to_string()))
}
