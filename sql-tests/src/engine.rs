//! DataFusion behind the interface of sqllogictest.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use datafusion::common::Result as DataFusionResult;
use datafusion::physical_plan::common::collect;
use datafusion::physical_plan::execute_stream;
use datafusion::prelude::SessionContext;
use datafusion_sqllogictest::{
    DFColumnType, DFOutput, DFSqlLogicTestError, convert_batches, convert_schema_to_types,
    is_spark_path,
};
use sqllogictest::{AsyncDB, DBOutput};
use vectile_datafusion::physical_plan;

use crate::compressed::{CompressedTables, has_tables};
use crate::gpu::{GpuRun, register_vectile};

/// One session; tables are as SQL created them, or Vectile's.
#[derive(Clone)]
pub struct Engine {
    ctx: SessionContext,
    is_spark: bool,
    compressed: Option<Arc<CompressedTables>>,
    read_compressed: Arc<AtomicBool>,
    gpu: Option<GpuRun>,
}

impl Engine {
    /// `relative_path` is the test file's; it determines how results are printed.
    pub fn new(ctx: SessionContext, relative_path: &Path) -> Self {
        Engine {
            ctx,
            is_spark: is_spark_path(relative_path),
            compressed: None,
            read_compressed: Arc::new(AtomicBool::new(false)),
            gpu: None,
        }
    }

    /// Runs queries over Vectile tables on this GPU.
    pub fn with_gpu(mut self, gpu: Option<GpuRun>) -> Self {
        self.gpu = gpu;
        self
    }

    /// Returns true if there are tables before the first statement.
    pub fn has_tables(&self) -> bool {
        has_tables(&self.ctx)
    }

    /// Replaces every table, existing and future ones, by Vectile's.
    pub async fn with_compressed(mut self, tables: CompressedTables) -> DataFusionResult<Self> {
        register_vectile(&self.ctx, self.gpu.as_ref())?;
        tables.replace_in_memory(&self.ctx, "").await?;
        self.compressed = Some(Arc::new(tables));
        Ok(self)
    }

    /// The format that tests substitute for `$FORMAT`, which suites of statements about files
    /// (COPY, INSERT, partitions) use.
    pub(crate) fn format(&self) -> String {
        match &self.compressed {
            Some(tables) => tables.format().to_ascii_uppercase(),
            None => "PARQUET".into(),
        }
    }

    /// Returns true if a statement since the last call read a replaced table.
    pub fn take_read_compressed(&self) -> bool {
        self.read_compressed.swap(false, Ordering::Relaxed)
    }

    async fn query(&self, sql: &str) -> Result<DFOutput, DFSqlLogicTestError> {
        let (state, plan) = self.ctx.sql(sql).await?.into_parts();
        let task = state.task_ctx();
        let plan = match &self.compressed {
            Some(tables) if tables.read_by(&plan)? => {
                self.read_compressed.store(true, Ordering::Relaxed);
                // the second time, the plan comes from the plan cache
                vectile_datafusion::sql(&self.ctx, sql).await?;
                vectile_datafusion::sql(&self.ctx, sql).await?.plan
            }
            _ => physical_plan(&state, &plan).await?,
        };
        let schema = plan.schema();
        let stream = execute_stream(Arc::clone(&plan), task)?;
        let types = convert_schema_to_types(stream.schema().fields());
        let batches = collect(stream).await?;
        if let Some(gpu) = &self.gpu {
            gpu.count(plan.as_ref());
        }
        let rows = convert_batches(&schema, batches, self.is_spark)?;
        Ok(match rows.is_empty() && types.is_empty() {
            true => DBOutput::StatementComplete(0),
            false => DBOutput::Rows { types, rows },
        })
    }
}

#[async_trait]
impl AsyncDB for Engine {
    type Error = DFSqlLogicTestError;
    type ColumnType = DFColumnType;

    async fn run(&mut self, sql: &str) -> Result<DFOutput, DFSqlLogicTestError> {
        let Some(tables) = self.compressed.clone() else {
            return self.query(sql).await;
        };
        match first_word(sql).as_str() {
            "set" | "reset" | "show" => return self.query(sql).await,
            "select" | "with" | "values" => {
                tables.replace_external(&self.ctx).await?;
                return self.query(sql).await;
            }
            "delete" | "update" | "truncate" | "merge" => tables.restore_all(&self.ctx).await?,
            _ => {}
        }
        let output = self.query(sql).await;
        tables.replace_in_memory(&self.ctx, sql).await?;
        output
    }

    async fn shutdown(&mut self) {}

    fn engine_name(&self) -> &str {
        "DataFusion"
    }

    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

/// The first word of a statement in lower case, after comments.
pub(crate) fn first_word(sql: &str) -> String {
    let lines = sql.lines().map(str::trim);
    let mut lines = lines.skip_while(|line| line.is_empty() || line.starts_with("--"));
    let line = lines.next().unwrap_or_default();
    let word = line
        .split(|c: char| !c.is_ascii_alphabetic())
        .find(|word| !word.is_empty());
    word.unwrap_or_default().to_ascii_lowercase()
}
