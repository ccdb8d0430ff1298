//! Claim: selective filters over lineitem, on one, three and ten columns, beside Parquet.
//!
//! `cargo run --release --bin filters -- [SCALE [RUNS]]`, default 1 5. The filter is on
//! `l_partkey`, whose values are uniform and unordered, so that nothing is pruned; the columns are
//! those returned (summed or measured, so that all of their values are needed).

use std::time::Instant;

use vectile_benches::report::{Times, print_table};
use vectile_benches::{Result, data, session};

const COLUMNS: [&str; 10] = [
    "sum(l_extendedprice)",
    "sum(l_quantity)",
    "min(l_shipdate)",
    "max(l_receiptdate)",
    "sum(l_discount)",
    "sum(l_tax)",
    "max(l_shipmode)",
    "min(l_returnflag)",
    "sum(l_orderkey)",
    "sum(length(l_comment))",
];

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let scale: f64 = args.first().map_or(Ok(1.0), |s| s.parse())?;
    let runs: usize = args.get(1).map_or(Ok(5), |s| s.parse())?;
    let folder = data::tpch(scale).await?;
    let engines = [
        session::vectile(&folder).await?,
        session::parquet(&folder, false).await?,
        session::parquet(&folder, true).await?,
    ];
    println!(
        "lineitem at scale {scale}, {} threads, {runs} runs, hot files; ms: median (least-most)\n",
        session::partitions()
    );
    let mut rows = vec![];
    for selectivity in [0.001, 0.01, 0.1] {
        for columns in [1, 3, 10] {
            let keys = (200_000.0 * scale * selectivity) as u64;
            let sql = format!(
                "SELECT {} FROM lineitem WHERE l_partkey <= {keys}",
                COLUMNS[..columns].join(", ")
            );
            let mut times = vec![Times::default(); engines.len()];
            let expected = session::run(&engines[0], &sql).await?;
            for ctx in &engines[1..] {
                assert_eq!(session::run(ctx, &sql).await?, expected, "{sql}");
            }
            for _ in 0..runs {
                for (ctx, times) in engines.iter().zip(&mut times) {
                    let start = Instant::now();
                    session::run(ctx, &sql).await?;
                    times.push(start.elapsed());
                }
            }
            let mut row = vec![format!(
                "{}% of rows, {columns} columns",
                selectivity * 100.0
            )];
            row.extend(times.iter().map(Times::show));
            row.extend(
                times[1..]
                    .iter()
                    .map(|t| format!("{:.2}", t.median() / times[0].median())),
            );
            rows.push(row);
        }
    }
    print_table(
        &[
            "",
            "Vectile",
            "Parquet",
            "Parquet, pushdown",
            "ratio",
            "ratio, pushdown",
        ],
        &rows,
    );
    Ok(())
}
