//! The Star Schema Benchmark: the 13 queries over Vectile files return the known answers of scale 1, and over Vectile
//! tables in memory and ORC files those of Parquet.
//!
//! `ssb/q*.csv` has the answers in the order of the queries, which has no ties. They are those of DuckDB over the same
//! tables. `VECTILE_TEST_GPU=1` runs the queries on the GPU.

use std::fmt;
use std::ops::Range;
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
use vectile_sql_tests::{
    GpuRun, Rows, answer, benchmark_session, move_to_memory, orc_tables, run_benchmark,
    session_over, test_dir,
};
use vectile_ssb::{Scale, Table};

const QUERIES: [&str; 13] = [
    "1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "3.4", "4.1", "4.2", "4.3",
];

/// Orders of `lineorder` in ORC files, which one thread writes, and in memory: a tenth of all.
const FEW_ORDERS: u64 = 150_000;

/// So that `lineorder` has several row groups of them in memory.
const SMALL_ROW_GROUP: usize = 1 << 16;

#[test]
fn the_answers_are_the_known_ones() {
    run_benchmark(compare());
}

#[test]
fn the_answers_in_memory_and_over_orc_files_are_those_of_parquet() {
    run_benchmark(compare_with_parquet());
}

async fn compare() -> Result<()> {
    let folder = TempDir::new()?;
    for table in Table::ALL {
        write(table, 0..u64::MAX, folder.path(), "vectile").await?;
    }
    let gpu = GpuRun::from_env()?;
    let names = Table::ALL.map(Table::name);
    let session = session_over(folder.path(), "vectile", &names, gpu.as_ref()).await?;
    for query in QUERIES {
        let (sql, expected) = (text(query, "sql")?, text(query, "csv")?);
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

async fn compare_with_parquet() -> Result<()> {
    let folder = TempDir::new()?;
    for table in Table::ALL {
        let rows = match table {
            Table::Lineorder => 0..FEW_ORDERS,
            _ => 0..u64::MAX,
        };
        write(table, rows, folder.path(), "parquet").await?;
    }
    let gpu = GpuRun::from_env()?;
    let names = Table::ALL.map(Table::name);
    let parquet = session_over(folder.path(), "parquet", &names, None).await?;
    let memory = session_over(folder.path(), "parquet", &names, gpu.as_ref()).await?;
    move_to_memory(&memory, SMALL_ROW_GROUP).await?;
    let mut sessions = vec![("in memory", memory)];
    if let Some(orc) = orc_tables(folder.path())? {
        let orc = session_over(&orc, "orc", &names, gpu.as_ref()).await?;
        sessions.push(("orc", orc));
    }
    for query in QUERIES {
        let sql = text(query, "sql")?;
        let (_, mut expected) = answer(&parquet, &sql, None).await?;
        // Ties in a query's own order may appear in any order.
        expected.sort_unstable();
        for (tables, session) in &sessions {
            let (_, mut rows) = answer(session, &sql, gpu.as_ref()).await?;
            rows.sort_unstable();
            assert_eq!(rows, expected, "query {query}, {tables}");
        }
        println!("query {query}: {} rows agree", expected.len());
    }
    if let Some(gpu) = gpu {
        println!("{gpu}");
        assert_eq!(gpu.failures(), Vec::<String>::new());
    }
    Ok(())
}

/// A query, or its answer.
fn text(query: &str, extension: &str) -> Result<String> {
    let file = test_dir().join("ssb").join(format!("q{query}.{extension}"));
    Ok(std::fs::read_to_string(file)?)
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

async fn write(table: Table, rows: Range<u64>, folder: &Path, format: &str) -> Result<()> {
    let ctx = benchmark_session(None)?;
    let name = table.name();
    let generated = Generated(table, rows, table.schema());
    let streaming = StreamingTable::try_new(table.schema(), vec![Arc::new(generated)])?;
    ctx.register_table(name, Arc::new(streaming))?;
    let file = folder.join(format!("{name}.{format}"));
    let sql = format!("COPY {name} TO '{}' STORED AS {format}", file.display());
    ctx.sql(&sql).await?.collect().await?;
    Ok(())
}

/// A table that is never in memory as a whole.
struct Generated(Table, Range<u64>, SchemaRef);

impl PartitionStream for Generated {
    fn schema(&self) -> &SchemaRef {
        &self.2
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let Generated(table, rows, schema) = self;
        let batches = stream::iter(table.generate(Scale::MIN, rows.clone())).err_into();
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(schema), batches))
    }
}

impl fmt::Debug for Generated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
