//! TPC-H: the 22 queries over Vectile tables, in files and in memory, and over ORC files return exactly the answers of
//! DataFusion over Parquet.
//!
//! The queries are those of the specification with its validation parameters. All their columns are integers, decimals,
//! dates and text, so answers have no rounding errors. `VECTILE_TEST_GPU=1` runs them on the GPU.

use std::path::Path;
use std::sync::Arc;

use datafusion::catalog::MemTable;
use datafusion::common::Result;
use tempfile::TempDir;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};
use vectile_sql_tests::{
    GpuRun, answer, benchmark_session, move_to_memory, orc_tables, run_benchmark, session_over,
    table_in_memory, test_dir,
};

/// 600 thousand rows in the largest table.
const SCALE: f64 = 0.1;

/// For small groups: about 40 of them in the largest table.
const SMALL_ROW_GROUP: usize = 16_384;

const TABLES: [&str; 8] = [
    "region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem",
];

#[test]
fn the_answers_are_those_of_parquet() {
    run_benchmark(compare());
}

async fn compare() -> Result<()> {
    let folder = TempDir::new()?;
    let small = format!("OPTIONS ('row_group_rows' '{SMALL_ROW_GROUP}')");
    let copies = [
        ("parquet", ""),
        ("vectile", ""),
        ("vectile", small.as_str()),
    ];
    write_tables(folder.path(), &copies).await?;

    let mut sessions = vec![];
    let gpu = GpuRun::from_env()?;
    for (number, (format, options)) in copies.iter().enumerate() {
        let folder = folder.path().join(number.to_string());
        let session = session_over(&folder, format, &TABLES, gpu.as_ref()).await?;
        sessions.push((session, format!("{format} {options}")));
    }
    let parquet = folder.path().join("0");
    let memory = session_over(&parquet, "parquet", &TABLES, gpu.as_ref()).await?;
    move_to_memory(&memory, SMALL_ROW_GROUP).await?;
    sessions.push((memory, "in memory".to_owned()));
    let orc = match orc_tables(&parquet)? {
        Some(folder) => Some(session_over(&folder, "orc", &TABLES, gpu.as_ref()).await?),
        None => None,
    };
    for number in 1..=22 {
        let sql = query(number)?;
        let (expected_schema, mut expected) = answer(&sessions[0].0, &sql, None).await?;
        // Ties in a query's own order may appear in any order.
        expected.sort_unstable();
        assert!(!expected.is_empty(), "query {number} has no rows");
        for (session, tables) in &sessions[1..] {
            let (schema, mut rows) = answer(session, &sql, gpu.as_ref()).await?;
            rows.sort_unstable();
            assert_eq!(schema, expected_schema, "query {number}, {tables}");
            assert_eq!(rows, expected, "query {number}, {tables}");
        }
        if let Some(session) = &orc {
            // whose text has another type
            let (_, mut rows) = answer(session, &sql, gpu.as_ref()).await?;
            rows.sort_unstable();
            assert_eq!(rows, expected, "query {number}, orc");
        }
        println!("query {number}: {} rows agree", expected.len());
    }
    if let Some(gpu) = gpu {
        println!("{gpu}");
        assert_eq!(gpu.failures(), Vec::<String>::new());
    }
    Ok(())
}

/// Writes all tables once per copy, into the folders `0`, `1`, ...
async fn write_tables(folder: &Path, copies: &[(&str, &str)]) -> Result<()> {
    for table in TABLES {
        let ctx = benchmark_session(None)?;
        ctx.register_table(table, generate(table)?)?;
        for (number, (format, options)) in copies.iter().enumerate() {
            let file = folder
                .join(number.to_string())
                .join(format!("{table}.{format}"));
            let sql = format!(
                "COPY {table} TO '{}' STORED AS {format} {options}",
                file.display()
            );
            ctx.sql(&sql).await?.collect().await?;
        }
    }
    Ok(())
}

fn generate(table: &str) -> Result<Arc<MemTable>> {
    match table {
        "region" => table_in_memory(RegionArrow::new(RegionGenerator::new(SCALE, 1, 1))),
        "nation" => table_in_memory(NationArrow::new(NationGenerator::new(SCALE, 1, 1))),
        "supplier" => table_in_memory(SupplierArrow::new(SupplierGenerator::new(SCALE, 1, 1))),
        "customer" => table_in_memory(CustomerArrow::new(CustomerGenerator::new(SCALE, 1, 1))),
        "part" => table_in_memory(PartArrow::new(PartGenerator::new(SCALE, 1, 1))),
        "partsupp" => table_in_memory(PartSuppArrow::new(PartSuppGenerator::new(SCALE, 1, 1))),
        "orders" => table_in_memory(OrderArrow::new(OrderGenerator::new(SCALE, 1, 1))),
        _ => table_in_memory(LineItemArrow::new(LineItemGenerator::new(SCALE, 1, 1))),
    }
}

fn query(number: usize) -> Result<String> {
    let folder = test_dir().join("tpch");
    Ok(std::fs::read_to_string(
        folder.join(format!("q{number}.sql")),
    )?)
}
