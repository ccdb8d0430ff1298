//! The final report of a conversion.

use std::io::{self, Write};
use std::time::Duration;

use vectile_file::EncodeTime;

use crate::text::{Align, TextTable, bytes, count, rate, ratio};
use crate::writer::{ColumnSummary, Summary};

/// Prints the written files: the columns of a single Vectile file, else a line per file; then totals.
pub fn write_summaries(
    out: &mut dyn Write,
    files: &[(String, Summary)],
    elapsed: Duration,
) -> io::Result<()> {
    match files {
        [(_, summary)] if !summary.columns.is_empty() => write_columns(out, &summary.columns)?,
        [_] => (),
        files => write_files(out, files)?,
    }
    writeln!(out, "{}", total(files, elapsed))
}

/// Type, encodings and sizes per column.
pub fn write_columns(out: &mut dyn Write, columns: &[ColumnSummary]) -> io::Result<()> {
    let mut table = TextTable::new(&[
        ("column", Align::Left),
        ("type", Align::Left),
        ("encoding", Align::Left),
        ("arrow", Align::Right),
        ("encoded", Align::Right),
        ("ratio", Align::Right),
    ]);
    for column in columns {
        table.row(vec![
            column.name.clone(),
            column.data_type.clone(),
            column.encodings.join(" | "),
            bytes(column.arrow_bytes),
            bytes(column.encoded_bytes),
            ratio(column.arrow_bytes, column.encoded_bytes),
        ]);
    }
    table.write(out)
}

/// Seconds per column and step of encoding, of all threads together; then those of reading and storing.
pub fn write_times(out: &mut dyn Write, files: &[(String, Summary)]) -> io::Result<()> {
    let seconds = |time: Duration| format!("{:.2}", time.as_secs_f64());
    let row = |name: &str, time: &EncodeTime| {
        let steps = [time.join, time.zone_maps, time.encode, time.checksums];
        let steps = steps.into_iter().chain([time.total()]).map(seconds);
        [name.to_string()].into_iter().chain(steps).collect()
    };
    for (name, summary) in files {
        let mut table = TextTable::new(&[
            ("seconds", Align::Left),
            ("join", Align::Right),
            ("zone maps", Align::Right),
            ("encode", Align::Right),
            ("checksums", Align::Right),
            ("all", Align::Right),
        ]);
        let mut all = EncodeTime::default();
        for column in &summary.columns {
            all += column.time;
            table.row(row(&column.name, &column.time));
        }
        if !summary.columns.is_empty() {
            table.row(row("all columns", &all));
            table.write(out)?;
        }
        let (reading, storing) = (seconds(summary.reading), seconds(summary.storing));
        write!(out, "{name}: reading took {reading} s, ")?;
        if !summary.arranging.is_zero() {
            let arranging = seconds(summary.arranging);
            write!(out, "filtering and sorting {arranging} s, ")?;
        }
        writeln!(out, "waiting for the store {storing} s")?;
    }
    Ok(())
}

/// Sizes per file.
pub fn write_files(out: &mut dyn Write, files: &[(String, Summary)]) -> io::Result<()> {
    let mut table = TextTable::new(&[
        ("file", Align::Left),
        ("rows", Align::Right),
        ("arrow", Align::Right),
        ("file size", Align::Right),
        ("ratio", Align::Right),
    ]);
    for (name, summary) in files {
        table.row(vec![
            name.clone(),
            count(summary.rows),
            bytes(summary.arrow_bytes),
            bytes(summary.bytes),
            ratio(summary.arrow_bytes, summary.bytes),
        ]);
    }
    table.write(out)
}

fn total(files: &[(String, Summary)], elapsed: Duration) -> String {
    let sum = |part: fn(&Summary) -> u64| files.iter().map(|(_, summary)| part(summary)).sum();
    let (arrow, written) = (sum(|s| s.arrow_bytes), sum(|s| s.bytes));
    let what = match files {
        [(name, _)] => name.clone(),
        files => format!("{} files", files.len()),
    };
    format!(
        "{what}: {} rows, {} of Arrow memory in {} ({}), {:.2} s, {}",
        count(sum(|s| s.rows)),
        bytes(arrow),
        bytes(written),
        ratio(arrow, written),
        elapsed.as_secs_f64(),
        rate(arrow, elapsed),
    )
}
