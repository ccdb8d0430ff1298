//! `vectile demo`: the sample tables become Vectile files and answer questions.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use clap::Args;
use datafusion::prelude::SessionContext;
use futures::StreamExt;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use vectile_file::WriterOptions;

use crate::copy::copy;
use crate::error::{CliError, Result};
use crate::format::{FileKind, Format};
use crate::interrupt::Interrupt;
use crate::location::Destination;
use crate::print::PrintFormat;
use crate::progress::Progress;
use crate::report::write_columns;
use crate::session;
use crate::sql;
use crate::text::{Align, TextTable, bytes, count, ratio};
use crate::text_options::TextArgs;
use crate::writer::{Output, Summary};

/// Import the sample data and answer a few questions over it
///
/// The data is nycflights13: every flight that left New York City in 2013, with the airlines,
/// airports, planes and weather. It is part of this program; nothing is fetched.
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// Keep the Vectile files in this directory instead of deleting them at the end
    dir: Option<PathBuf>,
    /// Replace files that exist in DIR
    #[arg(long)]
    force: bool,
}

/// A sample table, as the Parquet file it is shipped as.
struct Sample {
    name: &'static str,
    parquet: &'static [u8],
}

macro_rules! sample {
    ($name:literal) => {
        Sample {
            name: $name,
            parquet: include_bytes!(concat!("../data/nycflights13/", $name, ".parquet")),
        }
    };
}

static SAMPLES: [Sample; 5] = [
    sample!("flights"),
    sample!("airlines"),
    sample!("airports"),
    sample!("planes"),
    sample!("weather"),
];

/// Questions about these tables, and the SQL that answers them.
const QUESTIONS: [(&str, &str); 5] = [
    (
        "Which airlines were late, and how often?",
        "SELECT name, count(*) AS flights,
       round(avg(arr_delay), 1) AS avg_delay,
       round(100.0 * count(*) FILTER (WHERE arr_delay > 30) / count(arr_delay), 1) AS pct_late
FROM flights JOIN airlines USING (carrier)
GROUP BY name HAVING count(*) > 1000
ORDER BY pct_late DESC LIMIT 5",
    ),
    (
        "When is a good time to fly?",
        "SELECT hour, count(*) AS flights, round(avg(dep_delay), 1) AS avg_delay
FROM flights
WHERE dep_delay IS NOT NULL AND hour IN (6, 9, 12, 15, 18, 21)
GROUP BY hour ORDER BY hour",
    ),
    (
        "How far can one get from New York?",
        "SELECT dest, name, max(distance) AS miles, count(*) AS flights
FROM flights JOIN airports ON dest = faa
GROUP BY dest, name ORDER BY miles DESC LIMIT 5",
    ),
    (
        "Does rain delay flights?",
        "SELECT CASE WHEN precip = 0 THEN 'dry' WHEN precip < 0.1 THEN 'wet' ELSE 'pouring' END AS weather,
       count(*) AS flights, round(avg(dep_delay), 1) AS avg_delay,
       count(*) FILTER (WHERE dep_time IS NULL) AS cancelled
FROM flights JOIN weather USING (origin, time_hour)
GROUP BY 1 ORDER BY avg_delay",
    ),
    (
        "Which planes flew most, and who made them?",
        "SELECT tailnum, manufacturer, model, p.year AS built, count(*) AS flights, sum(f.distance) AS miles
FROM flights f JOIN planes p USING (tailnum)
GROUP BY tailnum, manufacturer, model, p.year
ORDER BY flights DESC LIMIT 5",
    ),
];

/// Runs `vectile demo`.
pub async fn run(args: DemoArgs, interrupt: &Interrupt) -> Result<()> {
    let scratch = tempfile::tempdir()?;
    let dir = args.dir.as_deref().unwrap_or(scratch.path());
    let dir = dir
        .to_str()
        .ok_or_else(|| CliError::failed("the directory's name is not UTF-8"))?;
    let started = Instant::now();
    let imported = import(dir, args.force, interrupt).await?;
    write_import(&imported)?;
    say(format_args!(
        "\nImported in {:.2} s.\n",
        started.elapsed().as_secs_f64()
    ))?;
    interrupt.or(ask(dir)).await?;
    match &args.dir {
        Some(dir) => say(format_args!(
            "\nThe tables are in {0}. Ask on:\n  vectile sql -t flights={0}/flights.vectile \"SELECT count(*) FROM flights\"\n",
            dir.display()
        )),
        None => say(format_args!(
            "\nTo keep the tables and ask more of them:\n  vectile demo DIR\n  vectile sql -t flights=DIR/flights.vectile\n"
        )),
    }
}

/// Turns every sample into a Vectile file in `dir`.
async fn import(
    dir: &str,
    force: bool,
    interrupt: &Interrupt,
) -> Result<Vec<(&'static Sample, Summary)>> {
    let context = session::for_copying()?;
    let directory = Destination::parse(&context, dir).await?;
    let mut imported = Vec::with_capacity(SAMPLES.len());
    for sample in &SAMPLES {
        let mut destination = directory.join(&format!("{}.vectile", sample.name))?;
        destination.check_writable(force).await?;
        let bytes = Bytes::from_static(sample.parquet);
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes)?;
        let rows = u64::try_from(reader.metadata().file_metadata().num_rows()).ok();
        let schema = Arc::clone(reader.schema());
        let batches = reader.build()?.map(|batch| batch.map_err(CliError::from));
        let batches = futures::stream::iter(batches).boxed();
        let output = Output {
            destination,
            kind: FileKind::plain(Format::Vectile),
            options: WriterOptions::default(),
            text: TextArgs::default(),
        };
        let progress = Progress::rows(sample.name, rows);
        let summary = copy(&schema, batches, output, interrupt, &progress).await?;
        imported.push((sample, summary));
    }
    Ok(imported)
}

/// The columns of the first, large table, then a line per table.
fn write_import(imported: &[(&Sample, Summary)]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if let Some((sample, summary)) = imported.first() {
        writeln!(out, "The columns of {}:\n", sample.name)?;
        write_columns(&mut out, &summary.columns)?;
        writeln!(out)?;
    }
    let mut table = TextTable::new(&[
        ("table", Align::Left),
        ("rows", Align::Right),
        ("arrow", Align::Right),
        ("parquet, zstd", Align::Right),
        ("vectile", Align::Right),
        ("ratio to arrow", Align::Right),
    ]);
    for (sample, summary) in imported {
        table.row(vec![
            sample.name.to_string(),
            count(summary.rows),
            bytes(summary.arrow_bytes),
            bytes(sample.parquet.len() as u64),
            bytes(summary.bytes),
            ratio(summary.arrow_bytes, summary.bytes),
        ]);
    }
    table.write(&mut out)?;
    Ok(out.flush()?)
}

async fn ask(dir: &str) -> Result<()> {
    let context = session::for_sql()?;
    for sample in &SAMPLES {
        let path = format!("{}/{}.vectile", dir.trim_end_matches('/'), sample.name);
        sql::register_table(&context, sample.name, &path).await?;
    }
    for (question, query) in QUESTIONS {
        answer(&context, question, query).await?;
    }
    Ok(())
}

async fn answer(context: &SessionContext, question: &str, query: &str) -> Result<()> {
    say(format_args!("-- {question}\n{query};\n\n"))?;
    sql::run_and_print(context, query, PrintFormat::Table).await?;
    say(format_args!("\n"))
}

fn say(text: std::fmt::Arguments<'_>) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_fmt(text)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_whole() {
        let rows = SAMPLES.iter().map(|sample| {
            let bytes = Bytes::from_static(sample.parquet);
            let reader = ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap();
            (sample.name, reader.metadata().file_metadata().num_rows())
        });
        let expected = [
            ("flights", 336_776),
            ("airlines", 16),
            ("airports", 1458),
            ("planes", 3322),
            ("weather", 26_115),
        ];
        assert_eq!(rows.collect::<Vec<_>>(), expected);
    }
}
