//! Appends to a table in memory while queries run: how many rows a second come in, and what that costs the queries.
//!
//! ```text
//! cargo run --release -p vectile-datafusion --example append -- [--scale 1] [--rate 1000000] [--seconds 3]
//! ```
//!
//! The rows are `lineitem` of TPC-H, in batches of 8192. The first half is there at the start, and the second is appended
//! at a rate of so many rows a second while four queries run in turns. Each is timed alone before and after, too: as the
//! table grows meanwhile, the mean of both is what it is compared with. At the end the table is copied to a file, whose
//! size is compared with the table's memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use tpchgen::generators::LineItemGenerator;
use tpchgen_arrow::LineItemArrow;
use vectile_datafusion::{VectileTable, VectileTableOptions, register};

const BATCH_ROWS: usize = 8192;

const QUERIES: [(&str, &str); 4] = [
    (
        "pricing summary (Q1)",
        "SELECT l_returnflag, l_linestatus, sum(l_quantity), sum(l_extendedprice),
                sum(l_extendedprice * (1 - l_discount)), sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)),
                avg(l_quantity), avg(l_extendedprice), avg(l_discount), count(*)
         FROM lineitem WHERE l_shipdate <= date '1998-09-02'
         GROUP BY l_returnflag, l_linestatus ORDER BY l_returnflag, l_linestatus",
    ),
    (
        "revenue (Q6)",
        "SELECT sum(l_extendedprice * l_discount) FROM lineitem
         WHERE l_shipdate >= date '1994-01-01' AND l_shipdate < date '1995-01-01'
           AND l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
    ),
    (
        "groups by text",
        "SELECT l_shipmode, count(*), max(l_receiptdate) FROM lineitem WHERE l_commitdate < l_receiptdate
         GROUP BY l_shipmode ORDER BY l_shipmode",
    ),
    (
        "top ten rows",
        "SELECT * FROM lineitem ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber LIMIT 10",
    ),
];

/// What the program was asked for.
struct Options {
    scale: f64,
    rate: f64,
    seconds: f64,
}

fn options() -> Result<Options> {
    let mut options = Options {
        scale: 1.0,
        rate: 1e6,
        seconds: 3.0,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse().ok());
        let value = value.ok_or_else(|| wrong(format!("{name} takes a number")))?;
        match name.as_str() {
            "--scale" => options.scale = value,
            "--rate" => options.rate = value,
            "--seconds" => options.seconds = value,
            _ => return Err(wrong(format!("there is no option {name}"))),
        }
    }
    Ok(options)
}

fn wrong(what: String) -> DataFusionError {
    DataFusionError::Configuration(what)
}

/// The median time of each query, run in turns until `is_over`, each once at least. Milliseconds.
async fn times(ctx: &SessionContext, is_over: impl Fn() -> bool) -> Result<Vec<f64>> {
    let mut times = vec![Vec::new(); QUERIES.len()];
    loop {
        for ((_, query), times) in QUERIES.iter().zip(&mut times) {
            let started = Instant::now();
            let statement = vectile_datafusion::sql(ctx, query).await?;
            let rows: Vec<RecordBatch> = statement.execute()?.try_collect().await?;
            times.push(started.elapsed().as_secs_f64() * 1e3);
            assert!(rows.iter().map(RecordBatch::num_rows).sum::<usize>() > 0);
        }
        if is_over() {
            return Ok(times.into_iter().map(median).collect());
        }
    }
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

async fn alone(ctx: &SessionContext, seconds: f64) -> Result<Vec<f64>> {
    let started = Instant::now();
    times(ctx, || started.elapsed().as_secs_f64() > seconds).await
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = options()?;
    let generated = LineItemArrow::new(LineItemGenerator::new(options.scale, 1, 1));
    let generated = generated.with_batch_size(BATCH_ROWS);
    let batches: Vec<RecordBatch> = generated.collect::<Result<_, _>>()?;
    let schema = batches.first().map(RecordBatch::schema);
    let schema = schema.ok_or_else(|| wrong("no rows at this scale".into()))?;
    let (first, second) = batches.split_at(batches.len() / 2);

    let ctx = SessionContext::new();
    register(&ctx)?;
    let table = Arc::new(VectileTable::try_new(
        schema,
        VectileTableOptions::default(),
    )?);
    ctx.register_table("lineitem", Arc::clone(&table) as _)?;
    table.append(first.to_vec()).await?;
    table.flush().await?;
    alone(&ctx, 0.0).await?;
    let before = alone(&ctx, options.seconds).await?;

    let is_over = Arc::new(AtomicBool::new(false));
    let appending = {
        let (table, second, is_over) = (Arc::clone(&table), second.to_vec(), Arc::clone(&is_over));
        tokio::spawn(async move {
            let started = Instant::now();
            let mut rows = 0;
            for batch in second {
                rows += batch.num_rows();
                table.append([batch]).await?;
                let due = Duration::from_secs_f64(rows as f64 / options.rate);
                tokio::time::sleep(due.saturating_sub(started.elapsed())).await;
            }
            is_over.store(true, Ordering::Relaxed);
            Ok::<_, DataFusionError>(rows as f64 / started.elapsed().as_secs_f64())
        })
    };
    let during = times(&ctx, || is_over.load(Ordering::Relaxed)).await?;
    let rate = appending
        .await
        .map_err(|error| DataFusionError::External(error.into()))??;
    table.flush().await?;
    let after = alone(&ctx, options.seconds).await?;

    println!(
        "{} rows, appended at {:.2} million rows a second",
        table.size().rows,
        rate / 1e6
    );
    println!(
        "{:<22}{:>12}{:>12}{:>12}{:>8}",
        "query, ms", "alone, half", "alone, all", "appending", "ratio"
    );
    for (((name, _), during), (before, after)) in QUERIES
        .iter()
        .zip(during)
        .zip(before.into_iter().zip(after))
    {
        let ratio = 2.0 * during / (before + after);
        println!("{name:<22}{before:>12.1}{after:>12.1}{during:>12.1}{ratio:>8.2}");
    }

    let file = std::env::temp_dir().join(format!("append-{}.vectile", std::process::id()));
    let copy = format!("COPY lineitem TO '{}' STORED AS VECTILE", file.display());
    ctx.sql(&copy).await?.collect().await?;
    let of_file = std::fs::metadata(&file)?.len();
    std::fs::remove_file(&file)?;
    let of_table = table.size().bytes;
    let ratio = of_table as f64 / of_file as f64;
    println!("memory {of_table} bytes, file {of_file} bytes: {ratio:.3} times");
    Ok(())
}
