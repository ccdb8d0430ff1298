//! Prints query results on standard output as they arrive: CSV, JSON or a table for people.

use std::io::{self, BufWriter, Stdout, Write};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::json::writer::{JsonFormat, LineDelimited, WriterBuilder as JsonBuilder};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use clap::ValueEnum;
use futures::TryStreamExt;

use crate::copy::Batches;
use crate::error::Result;
use crate::text::{Align, Padded, printable};

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrintFormat {
    /// A table for people
    Table,
    /// Comma-separated values with a header line
    Csv,
    /// A JSON array with one object per row
    Json,
    /// One JSON object per line
    #[value(alias = "ndjson")]
    Jsonl,
}

/// Prints a result; returns its number of rows.
pub async fn print(format: PrintFormat, schema: SchemaRef, mut batches: Batches) -> Result<u64> {
    let mut printer = Printer::new(format, schema)?;
    let mut rows = 0;
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows() as u64;
        printer.write(&batch)?;
    }
    printer.finish()?;
    Ok(rows)
}

type Out = BufWriter<Stdout>;

enum Printer {
    Table(Box<TablePrinter>),
    Csv(Box<arrow::csv::Writer<Out>>),
    Json(arrow::json::Writer<Out, JsonArray>),
    Jsonl(arrow::json::Writer<Out, LineDelimited>),
}

impl Printer {
    fn new(format: PrintFormat, schema: SchemaRef) -> Result<Self> {
        let out = BufWriter::with_capacity(1 << 16, io::stdout());
        let json = JsonBuilder::new().with_explicit_nulls(true);
        Ok(match format {
            PrintFormat::Table => Printer::Table(Box::new(TablePrinter::new(out, schema))),
            PrintFormat::Csv => {
                let mut writer = arrow::csv::WriterBuilder::new()
                    .with_header(true)
                    .build(out);
                // An empty batch, so that a result without rows still has its header line.
                writer.write(&RecordBatch::new_empty(schema))?;
                Printer::Csv(Box::new(writer))
            }
            PrintFormat::Json => Printer::Json(json.build(out)),
            PrintFormat::Jsonl => Printer::Jsonl(json.build(out)),
        })
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match self {
            Printer::Table(printer) => printer.write(batch)?,
            Printer::Csv(writer) => writer.write(batch)?,
            Printer::Json(writer) => writer.write(batch)?,
            Printer::Jsonl(writer) => writer.write(batch)?,
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        let mut out = match self {
            Printer::Table(printer) => printer.finish()?,
            Printer::Csv(writer) => writer.into_inner(),
            Printer::Json(mut writer) => {
                writer.finish()?;
                writer.into_inner()
            }
            Printer::Jsonl(mut writer) => {
                writer.finish()?;
                writer.into_inner()
            }
        };
        Ok(out.flush()?)
    }
}

/// A JSON array with a line per object: one document to a parser, lines to everything else.
#[derive(Debug, Default)]
struct JsonArray;

impl JsonFormat for JsonArray {
    fn start_stream<W: Write>(&self, out: &mut W) -> Result<(), arrow::error::ArrowError> {
        Ok(out.write_all(b"[")?)
    }

    fn start_row<W: Write>(
        &self,
        out: &mut W,
        first: bool,
    ) -> Result<(), arrow::error::ArrowError> {
        Ok(out.write_all(if first { b"" } else { b",\n" })?)
    }

    fn end_stream<W: Write>(&self, out: &mut W) -> Result<(), arrow::error::ArrowError> {
        Ok(out.write_all(b"]\n")?)
    }
}

/// Rows that determine the column widths; wider cells after them overflow.
const ROWS_FOR_WIDTHS: usize = 1000;

struct TablePrinter {
    out: Out,
    schema: SchemaRef,
    waiting: Vec<Vec<String>>,
    widths: Option<Vec<usize>>,
}

impl TablePrinter {
    fn new(out: Out, schema: SchemaRef) -> Self {
        TablePrinter {
            out,
            schema,
            waiting: Vec::new(),
            widths: None,
        }
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.waiting.extend(cells(batch)?);
        if self.widths.is_some() || self.waiting.len() >= ROWS_FOR_WIDTHS {
            self.print_waiting()?;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Out> {
        self.print_waiting()?;
        if let Some(widths) = &self.widths {
            write_rule(&mut self.out, widths)?;
        }
        Ok(self.out)
    }

    fn print_waiting(&mut self) -> Result<()> {
        let rows = std::mem::take(&mut self.waiting);
        let widths = match self.widths.take() {
            Some(widths) => widths,
            None => self.start(&rows)?,
        };
        for row in &rows {
            self.write_row(row, &widths)?;
        }
        self.widths = Some(widths);
        Ok(())
    }

    /// Fixes the widths and writes the header.
    fn start(&mut self, rows: &[Vec<String>]) -> Result<Vec<usize>> {
        let titles: Vec<String> = self
            .schema
            .fields()
            .iter()
            .map(|f| printable(f.name()).into_owned())
            .collect();
        let mut widths: Vec<usize> = titles.iter().map(|title| width(title)).collect();
        for row in rows {
            for (cell, known) in row.iter().zip(&mut widths) {
                *known = width(cell).max(*known);
            }
        }
        write_rule(&mut self.out, &widths)?;
        self.write_row(&titles, &widths)?;
        write_rule(&mut self.out, &widths)?;
        Ok(widths)
    }

    /// A row is as many lines as its tallest cell: query plans have several.
    fn write_row(&mut self, row: &[String], widths: &[usize]) -> Result<()> {
        let height = row
            .iter()
            .map(|cell| cell.lines().count())
            .max()
            .unwrap_or(1)
            .max(1);
        for line in 0..height {
            let fields = self.schema.fields();
            for ((cell, width), field) in row.iter().zip(widths).zip(fields) {
                let text = cell.lines().nth(line).unwrap_or("");
                let align = match field.data_type().is_numeric() {
                    true => Align::Right,
                    false => Align::Left,
                };
                write!(self.out, "| {} ", Padded(text, *width, align))?;
            }
            writeln!(self.out, "|")?;
        }
        Ok(())
    }
}

/// The longest line of a cell, in characters.
fn width(cell: &str) -> usize {
    cell.lines()
        .map(|line| line.chars().count())
        .max()
        .unwrap_or(0)
}

fn write_rule(out: &mut Out, widths: &[usize]) -> Result<()> {
    for width in widths {
        write!(out, "+{}", "-".repeat(width + 2))?;
    }
    Ok(writeln!(out, "+")?)
}

fn cells(batch: &RecordBatch) -> Result<Vec<Vec<String>>> {
    let options = FormatOptions::new().with_null("NULL");
    let columns = batch.columns().iter();
    let formatters = columns.map(|column| ArrayFormatter::try_new(column.as_ref(), &options));
    let formatters = formatters.collect::<Result<Vec<_>, _>>()?;
    let row = |index: usize| {
        let cells = formatters
            .iter()
            .map(|f| Ok(printable(&f.value(index).try_to_string()?).into_owned()));
        cells.collect::<Result<Vec<String>>>()
    };
    (0..batch.num_rows()).map(row).collect()
}
