//! Shared code of the benchmark tests: sessions over files, and answers as text.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use arrow::array::RecordBatchReader;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::MemTable;
use datafusion::common::{DataFusionError, Result};
use datafusion::physical_plan::collect;
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion_sqllogictest::convert_batches;

use crate::compressed::{CompressedTables, Layout};
use crate::gpu::{GpuRun, register_vectile};
use crate::package::test_dir;

/// The rows of an answer, as text.
pub type Rows = Vec<Vec<String>>;

/// Runs a benchmark test on threads with large stacks: plans are deep.
///
/// # Panics
///
/// If the test panics or returns an error.
pub fn run_benchmark(test: impl Future<Output = Result<()>> + Send + 'static) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(32 << 20)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime
        .block_on(runtime.spawn(test))
        .expect("no panic")
        .expect("all queries run");
}

/// A table in memory with all rows of a reader.
pub fn table_in_memory(rows: impl RecordBatchReader) -> Result<Arc<MemTable>> {
    let schema = rows.schema();
    let batches: Vec<_> = rows.collect::<std::result::Result<_, _>>()?;
    Ok(Arc::new(MemTable::try_new(schema, vec![batches])?))
}

/// A session with the settings of every benchmark session, for any files.
pub fn benchmark_session(gpu: Option<&GpuRun>) -> Result<SessionContext> {
    let ctx = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(4));
    register_vectile(&ctx, gpu)?;
    Ok(ctx)
}

/// A session with these tables, each over the file of its name.
pub async fn session_over(
    folder: &Path,
    format: &str,
    tables: &[&str],
    gpu: Option<&GpuRun>,
) -> Result<SessionContext> {
    let ctx = benchmark_session(gpu)?;
    for table in tables {
        let file = folder.join(format!("{table}.{format}"));
        let sql = format!(
            "CREATE EXTERNAL TABLE {table} STORED AS {format} LOCATION '{}'",
            file.display()
        );
        ctx.sql(&sql).await?;
    }
    Ok(ctx)
}

/// Replaces the tables of a session, which are not Vectile's, by Vectile's in memory with rows in several states.
/// Aggregates run as programs on the CPU, where no GPU runs them.
pub async fn move_to_memory(ctx: &SessionContext, row_group_rows: usize) -> Result<()> {
    let layout = Layout::from_env()
        .in_memory()
        .with_option("row_group_rows", &row_group_rows.to_string());
    let tables = CompressedTables::try_new(layout)?;
    tables.replace_in_memory(ctx, "").await?;
    tables.replace_external(ctx).await?;
    ctx.sql("SET vectile.fuse = 'on'").await?.collect().await?;
    Ok(())
}

/// Converts the Parquet files of a folder to ORC files in a subfolder; `None` without Python and
/// pyarrow.
pub fn orc_tables(folder: &Path) -> Result<Option<PathBuf>> {
    let orc = folder.join("orc");
    let script = test_dir().join("../crates/orc/tests/data/write.py");
    let skipped = |what: &str| {
        println!("no ORC files: {what}");
        Ok(None)
    };
    if !script.exists() {
        return skipped("the script that writes them is missing");
    }
    let written = Command::new("python3")
        .arg(script)
        .args(["convert".as_ref(), folder, orc.as_path()])
        .output();
    match written {
        Ok(output) if output.status.success() => Ok(Some(orc)),
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(error.contains("ModuleNotFoundError"), "{error}");
            skipped("pyarrow is missing")
        }
        Err(_) => skipped("python3 is missing"),
    }
}

/// The answer to a query, counted in `gpu` if there is one.
pub async fn answer(
    ctx: &SessionContext,
    sql: &str,
    gpu: Option<&GpuRun>,
) -> Result<(SchemaRef, Rows)> {
    let frame = ctx.sql(sql).await?;
    let schema = Arc::new(frame.schema().as_arrow().clone());
    let task = Arc::new(frame.task_ctx());
    let plan = frame.create_physical_plan().await?;
    let batches = collect(Arc::clone(&plan), task).await?;
    if let Some(gpu) = gpu {
        gpu.count(plan.as_ref());
    }
    // Batches may be stricter about nulls than the plan is.
    let of_batches = batches
        .first()
        .map_or_else(|| Arc::clone(&schema), |batch| batch.schema());
    let rows = convert_batches(&of_batches, batches, false);
    let rows = rows.map_err(|error| DataFusionError::External(Box::new(error)))?;
    Ok((schema, rows))
}
