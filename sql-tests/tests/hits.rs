//! `hits`, the table of web analytics: its queries over plain Arrow data, over Vectile tables in files and in memory, and
//! on the CPU emulator return the same answers.
//!
//! `hits/q*.tsv` has the answers of plain DataFusion, which are those of DuckDB, too; queries order their rows without
//! ties. `SQL_TESTS_COMPLETE=1 cargo test -p vectile-sql-tests --test hits plain` writes them.
//! `VECTILE_TEST_GPU=1` runs the queries on the GPU.

use std::path::PathBuf;

use datafusion::common::Result;
use datafusion::prelude::SessionContext;
use tempfile::TempDir;
use vectile_hits::{Scale, Table};
use vectile_sql_tests::{
    GpuRun, answer, benchmark_session, move_to_memory, run_benchmark, session_over,
    table_in_memory, test_dir,
};

/// 10 thousand rows.
const SCALE: f64 = 0.01;

const QUERIES: usize = 43;

/// So that there are several row groups and a short last one.
const SMALL_ROW_GROUP: usize = 2048;

#[test]
fn plain() {
    run_benchmark(async {
        let session = in_memory(None)?;
        if std::env::var_os("SQL_TESTS_COMPLETE").is_some() {
            return complete(&session).await;
        }
        compare(&session, None).await
    });
}

#[test]
fn compressed() {
    run_benchmark(async {
        let gpu = GpuRun::from_env()?;
        compare_files("", gpu.clone()).await?;
        compare_files(&small_row_groups(), gpu).await
    });
}

#[test]
fn memory() {
    run_benchmark(async { compare_memory(GpuRun::from_env()?).await });
}

#[test]
fn on_an_emulated_gpu() {
    match GpuRun::on_cpu() {
        Ok(gpu) => run_benchmark(async { compare_files(&small_row_groups(), Some(gpu)).await }),
        Err(error) => eprintln!("skipped: {error}"),
    }
}

#[test]
fn on_an_emulated_gpu_by_the_interpreter() {
    match GpuRun::interpreted() {
        Ok(gpu) => {
            let run = Some(gpu.clone());
            run_benchmark(async {
                compare_files(&small_row_groups(), run.clone()).await?;
                compare_memory(run).await
            });
            assert_eq!(gpu.refused_by_the_interpreter(), 0);
        }
        Err(error) => eprintln!("skipped: {error}"),
    }
}

fn small_row_groups() -> String {
    format!("OPTIONS ('row_group_rows' '{SMALL_ROW_GROUP}')")
}

fn in_memory(gpu: Option<&GpuRun>) -> Result<SessionContext> {
    let session = benchmark_session(gpu)?;
    let scale = Scale::try_from(SCALE).expect("a scale");
    let table = table_in_memory(Table::new(scale).generate(0..u64::MAX))?;
    session.register_table(Table::NAME, table)?;
    Ok(session)
}

async fn compare_files(options: &str, gpu: Option<GpuRun>) -> Result<()> {
    let folder = TempDir::new()?;
    let file = folder.path().join("hits.vectile");
    let copy = format!(
        "COPY hits TO '{}' STORED AS VECTILE {options}",
        file.display()
    );
    in_memory(None)?.sql(&copy).await?.collect().await?;
    let session = session_over(folder.path(), "vectile", &[Table::NAME], gpu.as_ref()).await?;
    compare(&session, gpu).await
}

async fn compare_memory(gpu: Option<GpuRun>) -> Result<()> {
    let session = in_memory(gpu.as_ref())?;
    move_to_memory(&session, SMALL_ROW_GROUP).await?;
    compare(&session, gpu).await
}

async fn compare(session: &SessionContext, gpu: Option<GpuRun>) -> Result<()> {
    let mut different = vec![];
    for query in 1..=QUERIES {
        let expected = std::fs::read_to_string(file(query, "tsv"))?;
        if lines(session, query, gpu.as_ref()).await? != expected {
            different.push(query);
        }
    }
    assert!(different.is_empty(), "other answers: queries {different:?}");
    if let Some(gpu) = gpu {
        println!("{gpu}");
        assert_eq!(gpu.failures(), Vec::<String>::new());
    }
    Ok(())
}

async fn complete(session: &SessionContext) -> Result<()> {
    for query in 1..=QUERIES {
        std::fs::write(file(query, "tsv"), lines(session, query, None).await?)?;
    }
    Ok(())
}

fn file(query: usize, extension: &str) -> PathBuf {
    test_dir()
        .join("hits")
        .join(format!("q{query}.{extension}"))
}

/// The answer, a row in each line, as sqllogictest writes values, with a line of names first.
async fn lines(session: &SessionContext, query: usize, gpu: Option<&GpuRun>) -> Result<String> {
    let sql = std::fs::read_to_string(file(query, "sql"))?;
    let (schema, rows) = answer(session, &sql, gpu).await?;
    let names = schema.fields().iter().map(|field| field.name().as_str());
    let names = names.collect::<Vec<_>>().join("\t");
    let rows = rows.iter().map(|row| row.join("\t"));
    Ok(std::iter::once(names)
        .chain(rows)
        .map(|line| line + "\n")
        .collect())
}
