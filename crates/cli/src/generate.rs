//! `vectile gen`: benchmark tables, generated in parallel and written as a stream.

use std::io::Write;
use std::sync::Arc;
use std::time::Instant;

use clap::{Args, Subcommand, ValueEnum};
use object_store::ObjectStoreExt;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use vectile_encodings::Compressor;
use vectile_file::WriterOptions;

use crate::compressor::GpuArgs;
use crate::copy::stage;
use crate::error::{CliError, Result};
use crate::format::{FileKind, Format};
use crate::interrupt::Interrupt;
use crate::location::Destination;
use crate::parts::Table;
use crate::progress::Progress;
use crate::text_options::TextArgs;
use crate::writer::{Output, StagedTable, Summary};
use crate::{hits, report, session, ssb, tpcds, tpch};

/// Generate benchmark data
#[derive(Debug, Args)]
pub struct GenArgs {
    #[command(subcommand)]
    benchmark: Benchmark,
}

#[derive(Debug, Subcommand)]
enum Benchmark {
    /// The eight tables of TPC-H, one file each: DIR/lineitem.vectile and so on
    Tpch(TpchArgs),
    /// The five tables of the Star Schema Benchmark, one file each: DIR/lineorder.vectile and so on
    Ssb(SsbArgs),
    /// The 24 tables of TPC-DS, one file each: DIR/store_sales.vectile and so on
    Tpcds(TpcdsArgs),
    /// A wide table of web analytics, skewed and full of text: DIR/hits.vectile
    Hits(HitsArgs),
}

#[derive(Debug, Args)]
struct TpchArgs {
    /// Scale factor: 1 is 6 million line items; fractions such as 0.01 are fine
    #[arg(long, value_name = "N", value_parser = parse_scale)]
    scale: f64,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct SsbArgs {
    /// Scale factor, a whole number: 1 is 6 million lines of orders
    #[arg(long, value_name = "N")]
    scale: vectile_ssb::Scale,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct TpcdsArgs {
    /// Scale factor: 1 is 2.9 million lines of store sales; fractions down to 0.01 are fine
    #[arg(long, value_name = "N")]
    scale: vectile_tpcds::Scale,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct HitsArgs {
    /// Scale factor: 1 is a million rows; fractions such as 0.01 are fine
    #[arg(long, value_name = "N")]
    scale: vectile_hits::Scale,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct OutputArgs {
    /// Directory or URL to write to; made if it does not exist
    #[arg(long, value_name = "DIR")]
    out: String,
    /// Format of the files (Parquet is compressed with zstd level 3)
    #[arg(long, value_enum, default_value_t = GenFormat::Vectile)]
    format: GenFormat,
    #[command(flatten)]
    gpu: GpuArgs,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum GenFormat {
    /// Encoded columns (.vectile)
    Vectile,
    /// Parquet (.parquet)
    Parquet,
    /// Comma-separated values with a header line (.csv)
    Csv,
}

/// Below this some tables would be empty; above it, keys no longer fit the specification.
const SCALES: std::ops::RangeInclusive<f64> = 0.001..=100_000.0;

fn parse_scale(text: &str) -> Result<f64, String> {
    let scale: f64 = text.parse().map_err(|_| "not a number".to_string())?;
    match SCALES.contains(&scale) {
        true => Ok(scale),
        false => Err(format!(
            "a scale lies between {} and {}",
            SCALES.start(),
            SCALES.end()
        )),
    }
}

/// Tables written at the same time: the largest, which is most of the work, and another.
const TABLES_IN_FLIGHT: usize = 2;

/// Runs `vectile gen`.
pub async fn run(args: GenArgs, interrupt: &Interrupt) -> Result<()> {
    let (name, tables, args) = match args.benchmark {
        Benchmark::Tpch(args) => ("TPC-H", tpch::tables(args.scale), args.output),
        Benchmark::Ssb(args) => ("SSB", ssb::tables(args.scale), args.output),
        Benchmark::Tpcds(args) => ("TPC-DS", tpcds::tables(&args.scale), args.output),
        Benchmark::Hits(args) => ("hits", hits::tables(args.scale), args.output),
    };
    let outputs = outputs(tables, &args).await?;
    let started = Instant::now();
    let rows = outputs.iter().map(|(table, _)| table.rows).sum();
    let progress = Arc::new(Progress::rows(name, Some(rows)));
    let format = args.format.format();
    let compressor = args.gpu.compressor();
    let summaries = generate(outputs, format, compressor, progress, interrupt).await?;
    if args.quiet {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    report::write_summaries(&mut out, &summaries, started.elapsed())?;
    Ok(out.flush()?)
}

async fn outputs(tables: Vec<Table>, args: &OutputArgs) -> Result<Vec<(Table, Destination)>> {
    let context = session::for_copying()?;
    let directory = Destination::parse(&context, &args.out).await?;
    let mut outputs = Vec::with_capacity(tables.len());
    for table in tables {
        let name = format!("{}.{}", table.name, args.format.format().extension());
        let mut destination = directory.join(&name)?;
        destination.check_writable(args.force).await?;
        outputs.push((table, destination));
    }
    Ok(outputs)
}

/// Writes all tables, or none: they get their names when all of them are written.
async fn generate(
    outputs: Vec<(Table, Destination)>,
    format: Format,
    compressor: Option<Arc<dyn Compressor>>,
    progress: Arc<Progress>,
    interrupt: &Interrupt,
) -> Result<Vec<(String, Summary)>> {
    let (interrupt, stop) = interrupt.or_stop();
    let turns = Arc::new(Semaphore::new(TABLES_IN_FLIGHT));
    let mut tasks = JoinSet::new();
    for (table, destination) in outputs {
        let output = Output {
            destination,
            kind: FileKind::plain(format),
            options: WriterOptions::default().with_compressor(compressor.clone()),
            text: TextArgs::default(),
        };
        let (interrupt, progress) = (interrupt.clone(), Arc::clone(&progress));
        let turns = Arc::clone(&turns);
        tasks.spawn(async move {
            let _turn = turns.acquire().await; // held to the end; nobody closes the semaphore
            let batches = table.batches();
            stage(&table.schema, batches, output, &interrupt, &progress).await
        });
    }
    let mut staged: Vec<StagedTable> = Vec::new();
    let mut failure = None;
    while let Some(task) = tasks.join_next().await {
        let task = task.unwrap_or_else(|error| Err(CliError::failed(error.to_string())));
        match task {
            Ok(table) => staged.push(table),
            Err(error) => {
                stop.stop();
                failure.get_or_insert(error);
            }
        }
    }
    match failure {
        None => publish(staged).await,
        Some(error) => {
            abort(staged).await;
            Err(error)
        }
    }
}

/// Gives the files their names. If one fails, those that are new are removed; those that replaced others stay, since
/// these are gone.
async fn publish(mut tables: Vec<StagedTable>) -> Result<Vec<(String, Summary)>> {
    tables.sort_by(|a, b| a.destination().display.cmp(&b.destination().display));
    let mut done = Vec::with_capacity(tables.len());
    let mut new: Vec<Destination> = Vec::new();
    let mut tables = tables.into_iter();
    while let Some(table) = tables.next() {
        let destination = table.destination().clone();
        let is_new = destination.store.head(&destination.path).await.is_err();
        match table.publish().await {
            Ok(summary) => done.push((destination.display.clone(), summary)),
            Err(error) => {
                abort(tables.collect()).await;
                for destination in new {
                    // Report the error that led here instead of this one.
                    drop(destination.store.delete(&destination.path).await);
                }
                return Err(error);
            }
        }
        if is_new {
            new.push(destination);
        }
    }
    Ok(done)
}

async fn abort(tables: Vec<StagedTable>) {
    for table in tables {
        table.abort().await;
    }
}

impl GenFormat {
    fn format(self) -> Format {
        match self {
            GenFormat::Vectile => Format::Vectile,
            GenFormat::Parquet => Format::Parquet,
            GenFormat::Csv => Format::Csv,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales() {
        assert_eq!(parse_scale("0.01"), Ok(0.01));
        assert_eq!(parse_scale("10"), Ok(10.0));
        for bad in ["0", "-1", "nan", "inf", "1e9", "one", ""] {
            assert!(parse_scale(bad).is_err(), "{bad}");
        }
    }
}
