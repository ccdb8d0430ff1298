//! The Star Schema Benchmark: the 13 queries over Vectile files give the known answers of scale 1.
//!
//! `ssb/q*.csv` has the answers in the order that the queries ask for, which has no ties. They are
//! those of DuckDB over the same tables. `VECTILE_TEST_GPU=1` runs the queries on the GPU.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use arrow::datatypes::{Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::{TryStreamExt, stream};
use tempfile::TempDir;
use vectile_sql_tests::{GpuRun, Rows, answer, benchmark_session, session_over, test_dir};
use vectile_ssb::{Scale, Table};

const QUERIES: [&str; 13] = [
    "1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "3.4", "4.1", "4.2", "4.3",
];

#[test]
fn the_answers_are_the_known_ones() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(32 << 20)
        .enable_all()
        .build()
        .expect("a runtime");
    runtime
        .block_on(runtime.spawn(compare()))
        .expect("no panic")
        .expect("all queries run");
}

async fn compare() -> Result<()> {
    let folder = TempDir::new()?;
    for table in Table::ALL {
        write(table, folder.path()).await?;
    }
    let gpu = GpuRun::from_env()?;
    let names = Table::ALL.map(Table::name);
    let session = session_over(folder.path(), "vectile", &names, gpu.as_ref()).await?;
    for query in QUERIES {
        let file = test_dir().join("ssb").join(format!("q{query}"));
        let sql = std::fs::read_to_string(file.with_added_extension("sql"))?;
        let expected = std::fs::read_to_string(file.with_added_extension("csv"))?;
        let (schema, rows) = answer(&session, &sql, gpu.as_ref()).await?;
        assert_eq!(csv(&schema, &rows), expected, "query {query}");
        println!("query {query}: {} rows agree", rows.len());
    }
    if let Some(gpu) = gpu {
        println!("{gpu}");
        assert_eq!(gpu.failures(), Vec::<String>::new());
    }
    Ok(())
}

/// As `vectile sql --format csv` prints it; no value has a comma.
fn csv(schema: &Schema, rows: &Rows) -> String {
    let names = schema.fields().iter().map(|field| field.name().as_str());
    let header = names.collect::<Vec<_>>().join(",");
    let rows = rows.iter().map(|row| row.join(","));
    std::iter::once(header)
        .chain(rows)
        .map(|line| line + "\n")
        .collect()
}

async fn write(table: Table, folder: &Path) -> Result<()> {
    let ctx = benchmark_session(None)?;
    let name = table.name();
    let generated = Generated(table, table.schema());
    let streaming = StreamingTable::try_new(table.schema(), vec![Arc::new(generated)])?;
    ctx.register_table(name, Arc::new(streaming))?;
    let file = folder.join(format!("{name}.vectile"));
    let sql = format!("COPY {name} TO '{}' STORED AS vectile", file.display());
    ctx.sql(&sql).await?.collect().await?;
    Ok(())
}

/// A table that is never in memory as a whole.
struct Generated(Table, SchemaRef);

impl PartitionStream for Generated {
    fn schema(&self) -> &SchemaRef {
        &self.1
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let Generated(table, schema) = self;
        let batches = stream::iter(table.generate(Scale::MIN, 0..u64::MAX)).err_into();
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), batches))
    }
}

impl fmt::Debug for Generated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
