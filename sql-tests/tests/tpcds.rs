//! TPC-DS: tables and queries over Vectile tables, in files and in memory, and on the CPU emulator return the answers of
//! plain Arrow data.
//!
//! The texts of the 99 queries belong to the TPC, whose licence keeps them out of open source. `SQL_TESTS_TPCDS` names
//! a folder with them, one file each; without it, only columns are compared. `VECTILE_TEST_GPU=1` runs the queries on
//! the GPU.

use std::path::{Path, PathBuf};
use std::time::Instant;

use datafusion::common::Result;
use datafusion::prelude::SessionContext;
use tempfile::TempDir;
use vectile_sql_tests::{
    GpuRun, Rows, answer, benchmark_session, move_to_memory, run_benchmark, session_over,
    table_in_memory, test_dir,
};
use vectile_tpcds::{Scale, Table};

/// 24 thousand lines of `store_sales`; the 1.9 million rows of `customer_demographics` are there at any scale.
const SCALE: f64 = 0.01;

/// So that larger tables have several row groups and a short last one.
const SMALL_ROW_GROUP: usize = 4096;

#[test]
fn compressed() {
    run_benchmark(async { compare_files("", GpuRun::from_env()?).await });
}

#[test]
fn compressed_in_small_row_groups() {
    run_benchmark(async { compare_files(&small_row_groups(), GpuRun::from_env()?).await });
}

#[test]
fn memory() {
    run_benchmark(async {
        let gpu = GpuRun::from_env()?;
        let session = in_memory(gpu.as_ref())?;
        move_to_memory(&session, SMALL_ROW_GROUP).await?;
        compare_tables(&in_memory(None)?, &session, gpu).await
    });
}

#[test]
fn on_an_emulated_gpu() {
    match GpuRun::on_cpu() {
        Ok(gpu) => run_benchmark(async { compare_files(&small_row_groups(), Some(gpu)).await }),
        Err(error) => eprintln!("skipped: {error}"),
    }
}

fn small_row_groups() -> String {
    format!("OPTIONS ('row_group_rows' '{SMALL_ROW_GROUP}')")
}

async fn compare_files(options: &str, gpu: Option<GpuRun>) -> Result<()> {
    let plain = in_memory(None)?;
    let folder = TempDir::new()?;
    let mut names = vec![];
    for table in Table::all() {
        let name = table.name();
        let file = folder.path().join(format!("{name}.vectile"));
        let copy = format!(
            "COPY {name} TO '{}' STORED AS VECTILE {options}",
            file.display()
        );
        plain.sql(&copy).await?.collect().await?;
        names.push(name);
    }
    let session = session_over(folder.path(), "vectile", &names, gpu.as_ref()).await?;
    compare_tables(&plain, &session, gpu).await
}

async fn compare_tables(
    plain: &SessionContext,
    session: &SessionContext,
    gpu: Option<GpuRun>,
) -> Result<()> {
    for table in Table::all() {
        let sql = extremes(table);
        let (_, expected) = answer(plain, &sql, None).await?;
        let (_, rows) = answer(session, &sql, gpu.as_ref()).await?;
        assert_eq!(rows, expected, "{}", table.name());
    }
    let Some(queries) = queries()? else {
        println!("no queries: SQL_TESTS_TPCDS names no folder");
        return Ok(());
    };
    let faults = compare(plain, session, &queries, gpu.as_ref()).await?;
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    if let Some(gpu) = gpu {
        println!("{gpu}");
        assert_eq!(gpu.failures(), Vec::<String>::new());
    }
    Ok(())
}

#[test]
fn on_an_emulated_gpu_by_the_interpreter() {
    match GpuRun::interpreted() {
        Ok(gpu) => {
            let run = Some(gpu.clone());
            run_benchmark(async { compare_files(&small_row_groups(), run).await });
            // groups of more columns than a warp has lanes
            assert!(gpu.refused_by_the_interpreter() <= 3);
        }
        Err(error) => eprintln!("skipped: {error}"),
    }
}

fn in_memory(gpu: Option<&GpuRun>) -> Result<SessionContext> {
    let session = benchmark_session(gpu)?;
    let scale = Scale::try_from(SCALE).expect("a scale");
    for table in Table::all() {
        let rows = table_in_memory(table.generate(&scale, 0..u64::MAX))?;
        session.register_table(table.name(), rows)?;
    }
    Ok(session)
}

/// A query for the number of values, the least and the largest one of each column.
fn extremes(table: &Table) -> String {
    let schema = table.schema();
    let of_column = |name: &String| format!("count({name}), min({name}), max({name})");
    let columns = schema.fields().iter().map(|field| of_column(field.name()));
    let columns: Vec<String> = columns.collect();
    format!(
        "SELECT count(*), {} FROM {}",
        columns.join(", "),
        table.name()
    )
}

/// The faults found. Queries that plain DataFusion does not answer are no faults, but printed.
async fn compare(
    plain: &SessionContext,
    session: &SessionContext,
    queries: &[(String, String)],
    gpu: Option<&GpuRun>,
) -> Result<Vec<String>> {
    let mut faults = vec![];
    for (name, sql) in queries {
        let start = Instant::now();
        let mut expected = match answer(plain, sql, None).await {
            Ok((_, rows)) => rows,
            Err(error) => {
                println!("{name}: plain DataFusion fails: {error}");
                continue;
            }
        };
        match answer(session, sql, gpu).await {
            Ok((_, mut rows)) => {
                // Ties in a query's own order may appear in any order.
                rows.sort_unstable();
                expected.sort_unstable();
                match agree(&rows, &expected) {
                    true => println!("{name}: {} rows agree, {:?}", rows.len(), start.elapsed()),
                    false => faults.push(format!("{name}: other rows")),
                }
            }
            Err(error) => faults.push(format!("{name}: {error}")),
        }
    }
    Ok(faults)
}

/// True if rows are equal but for the last digits of floats, which depend on the order of additions.
fn agree(rows: &Rows, expected: &Rows) -> bool {
    let is_close = |(a, b): (&String, &String)| {
        a == b
            || match (a.parse::<f64>(), b.parse::<f64>()) {
                (Ok(a), Ok(b)) => (a - b).abs() <= 1e-9 * b.abs(),
                _ => false,
            }
    };
    let same_row =
        |(a, b): (&Vec<String>, &Vec<String>)| a.len() == b.len() && a.iter().zip(b).all(is_close);
    rows.len() == expected.len() && rows.iter().zip(expected).all(same_row)
}

/// Names and texts of the queries in the folder; a file with two of them has two.
fn queries() -> Result<Option<Vec<(String, String)>>> {
    let Some(folder) = std::env::var_os("SQL_TESTS_TPCDS") else {
        return Ok(None);
    };
    let mut files: Vec<PathBuf> = vec![];
    for entry in std::fs::read_dir(test_dir().join(folder))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            files.push(path);
        }
    }
    files.sort_by_key(|path| number(path));
    let mut queries = vec![];
    for file in files {
        let text = std::fs::read_to_string(&file)?;
        let texts = text
            .split(';')
            .map(str::trim)
            .filter(|text| !text.is_empty());
        let name = file.file_stem().unwrap_or_default().to_string_lossy();
        queries.extend(texts.map(|text| (name.to_string(), text.to_string())));
    }
    Ok(Some(queries))
}

/// The digits in a file's name.
fn number(path: &Path) -> u32 {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_default()
}
