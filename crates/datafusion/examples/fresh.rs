//! How soon appended rows are in the answers of a large table in memory, on a GPU if there is one.
//!
//! ```text
//! cargo run --release -p vectile-datafusion --example fresh -- [--rows 100000000] [--runs 100] [--gpu on|auto|off]
//! ```
//!
//! The table has readings of sensors: a time, a number, a value and a state as text. Its columns are pinned on the GPU.
//! Then a batch of 8192 rows is appended and a query over all rows runs, so many times in turns. A time is that from
//! before the append to the end of the answer, which is checked to have all rows.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{
    AsArray, Float64Array, Int32Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use datafusion::error::{DataFusionError, Result};
use datafusion::prelude::SessionContext;
use futures::TryStreamExt;
use vectile_datafusion::{VectileTable, VectileTableOptions, load_columns, register};

const BATCH_ROWS: usize = 8192;
const STATES: [&str; 5] = ["running", "idle", "stopped", "failed", "unknown"];
const QUERY: &str = "SELECT state, count(*), avg(value), max(at) FROM readings
    WHERE sensor >= 0 GROUP BY state ORDER BY state";

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new(
            "at",
            DataType::Timestamp(TimeUnit::Millisecond, None),
            false,
        ),
        Field::new("sensor", DataType::Int32, false),
        Field::new("value", DataType::Float64, false),
        Field::new("state", DataType::Utf8, false),
    ]))
}

/// Readings number `first` to `first + rows`.
fn readings(first: usize, rows: usize) -> Result<RecordBatch> {
    let numbers = || first..first + rows;
    // as good as random, and the same in each run
    let mixed = |number: usize| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let at = numbers().map(|number| 1_767_225_600_000 + number as i64);
    let sensors = numbers().map(|number| (mixed(number) % 5000) as i32);
    let values = numbers().map(|number| (mixed(number) % 10_000) as f64 / 100.0);
    let states = numbers().map(|number| STATES[mixed(number) % 17 % STATES.len()]);
    Ok(RecordBatch::try_new(
        schema(),
        vec![
            Arc::new(TimestampMillisecondArray::from_iter_values(at)),
            Arc::new(Int32Array::from_iter_values(sensors)),
            Arc::new(Float64Array::from_iter_values(values)),
            Arc::new(StringArray::from_iter_values(states)),
        ],
    )?)
}

fn wrong(what: impl Into<String>) -> DataFusionError {
    DataFusionError::Configuration(what.into())
}

/// The value of an option of the program.
fn option<T: std::str::FromStr>(name: &str, default: T) -> Result<T> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name);
    match (arguments.next(), arguments.next()) {
        (None, _) => Ok(default),
        (_, value) => value
            .and_then(|value| value.parse().ok())
            .ok_or_else(|| wrong(format!("{name} takes a value"))),
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let rows: usize = option("--rows", 100_000_000)?;
    let runs: usize = option("--runs", 100)?;
    let gpu: String = option("--gpu", "on".to_owned())?;
    let ctx = SessionContext::new();
    register(&ctx)?;
    ctx.sql(&format!("SET vectile.gpu = '{gpu}'"))
        .await?
        .collect()
        .await?;
    let table = Arc::new(VectileTable::try_new(
        schema(),
        VectileTableOptions::default(),
    )?);
    ctx.register_table("readings", Arc::clone(&table) as _)?;

    let started = Instant::now();
    let tasks = std::thread::available_parallelism().map_or(1, usize::from);
    let share = rows.div_ceil(tasks);
    let appends = (0..tasks).map(|task| {
        let table = Arc::clone(&table);
        tokio::spawn(async move {
            let (mut first, end) = (task * share, rows.min((task + 1) * share));
            let mut appender = table.appender();
            while first < end {
                let count = (8 * BATCH_ROWS).min(end - first);
                appender.write(readings(first, count)?).await?;
                first += count;
            }
            appender.commit().await
        })
    });
    for append in appends.collect::<Vec<_>>() {
        append
            .await
            .map_err(|error| DataFusionError::External(error.into()))??;
    }
    table.flush().await?;
    let size = table.size();
    println!(
        "{} rows in {} row groups and {} MB, made and encoded in {:.1} s",
        size.rows,
        size.row_groups,
        size.bytes >> 20,
        started.elapsed().as_secs_f64()
    );
    if gpu != "off" {
        match load_columns(&ctx, "readings", &[]).await {
            Ok(columns) => println!(
                "{} MB on the GPU",
                columns.iter().map(|column| column.bytes).sum::<u64>() >> 20
            ),
            Err(error) => println!("no GPU: {}", error.strip_backtrace()),
        }
    }

    let answer = async || {
        let statement = vectile_datafusion::sql(&ctx, QUERY).await?;
        let batches: Vec<RecordBatch> = statement.execute()?.try_collect().await?;
        let counts = batches
            .iter()
            .flat_map(|batch| batch.column(1).as_primitive::<Int64Type>().values());
        Ok::<_, DataFusionError>(counts.sum::<i64>() as usize)
    };
    for _ in 0..5 {
        answer().await?;
    }
    let mut alone = Vec::new();
    for _ in 0..20 {
        let started = Instant::now();
        answer().await?;
        alone.push(started.elapsed().as_secs_f64() * 1e3);
    }
    let mut times = Vec::new();
    let mut expected = rows;
    for _ in 0..runs {
        let batch = readings(expected, BATCH_ROWS)?;
        expected += BATCH_ROWS;
        let started = Instant::now();
        table.append([batch]).await?;
        let counted = answer().await?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
        if counted != expected {
            return Err(wrong(format!(
                "{counted} rows in the answer, not {expected}"
            )));
        }
    }
    alone.sort_by(f64::total_cmp);
    times.sort_by(f64::total_cmp);
    println!(
        "query alone: median {:.2} ms; append and query: median {:.2} ms, 95th percentile {:.2} ms, longest {:.2} ms",
        alone[alone.len() / 2],
        times[times.len() / 2],
        times[times.len() * 95 / 100],
        times[times.len() - 1]
    );
    Ok(())
}
