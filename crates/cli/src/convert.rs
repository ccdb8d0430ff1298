//! `vectile convert`: tables from any format to any other.

use std::collections::HashMap;
use std::io::Write;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow::datatypes::SchemaRef;
use clap::Args;
use datafusion::prelude::SessionContext;
use vectile_encodings::Pin;
use vectile_file::{Compression, WriterOptions};

use crate::arrange::{self, ArrangeArgs};
use crate::columns::{ColumnList, no_column};
use crate::compressor::GpuArgs;
use crate::copy::copy;
use crate::error::{CliError, Result};
use crate::format::{FileKind, Format, all_extensions, known_extension};
use crate::interrupt::Interrupt;
use crate::location::Destination;
use crate::merge::{merge_schemas, with_partitions};
use crate::open_file::{OpenFile, read_in_turn};
use crate::report;
use crate::session;
use crate::source::{Input, InputFile};
use crate::text_options::TextArgs;
use crate::writer::{Output, Summary};

/// Convert tables between Vectile and other formats
///
/// Formats are told by file name: .vectile, .parquet, .orc (to read only), .csv, .json (or .jsonl, .ndjson: one object
/// per line), .arrow (or .feather, .ipc: IPC file), .arrows (IPC stream); CSV and JSON also with
/// .gz, .zst, .bz2, .xz behind. Several inputs to one OUT file are put one after the other, columns
/// matched by name; to an OUT directory each becomes a file of its own.
#[derive(Debug, Args)]
pub struct ConvertArgs {
    /// Files, directories (read recursively), quoted globs, or s3://, gs://, https:// URLs
    #[arg(required = true, value_name = "IN")]
    inputs: Vec<String>,
    /// File, directory (one that exists, or a name ending in '/'), or URL to write
    #[arg(value_name = "OUT")]
    output: String,
    /// Use this encoding for a column of a Vectile OUT instead of choosing; may be repeated
    #[arg(long = "encoding", value_name = "COLUMN=NAME", value_parser = parse_pin, allow_hyphen_values = true)]
    encodings: Vec<(String, Pin)>,
    /// Compress the encoded values of a Vectile OUT as a whole: zstd, or none
    #[arg(long, value_name = "NAME")]
    compression: Option<Compression>,
    /// Rows of a row group of a Vectile OUT
    #[arg(long, value_name = "N")]
    row_group_rows: Option<NonZeroUsize>,
    /// Give these columns of a Vectile OUT a Bloom filter, which rules row groups out for = and IN
    #[arg(long, value_name = "COLUMN,...", allow_hyphen_values = true)]
    bloom: Option<ColumnList>,
    /// How often a Bloom filter may pass a value that is not there
    #[arg(long, value_name = "PROBABILITY", requires = "bloom")]
    bloom_fpp: Option<f64>,
    #[command(flatten)]
    arrange: ArrangeArgs,
    /// Format of the inputs, whatever their names
    #[arg(long, value_name = "FORMAT")]
    from: Option<Format>,
    /// Format to write, whatever the name of OUT
    #[arg(long, value_name = "FORMAT")]
    to: Option<Format>,
    #[command(flatten)]
    text: TextArgs,
    #[command(flatten)]
    gpu: GpuArgs,
    /// Replace files that exist
    #[arg(long)]
    force: bool,
    /// Print what took how long
    #[arg(long, conflicts_with = "quiet")]
    timing: bool,
    /// Print nothing but errors
    #[arg(short, long)]
    quiet: bool,
}

fn parse_pin(text: &str) -> Result<(String, Pin), String> {
    let (column, name) = text.rsplit_once('=').ok_or("expected COLUMN=NAME")?;
    let encoding = name.parse::<Pin>();
    Ok((
        column.to_string(),
        encoding.map_err(|error| error.to_string())?,
    ))
}

/// Runs `vectile convert`.
pub async fn run(args: ConvertArgs, interrupt: &Interrupt) -> Result<()> {
    let context = session::for_copying()?;
    args.text.apply(&context).await?;
    let mut inputs = Vec::with_capacity(args.inputs.len());
    for text in &args.inputs {
        inputs.push(Input::find(&context, text, args.from).await?);
    }
    let started = Instant::now();
    let conversions = plan(&context, &args, inputs).await?;
    let mut done = Vec::with_capacity(conversions.len());
    for conversion in conversions {
        let name = conversion.output.destination.display.clone();
        let summary = conversion.run(&context, &args, interrupt).await?;
        done.push((name, summary));
    }
    if args.quiet {
        return Ok(());
    }
    let elapsed = started.elapsed();
    let mut out = std::io::stdout().lock();
    if args.timing {
        report::write_times(&mut out, &done)?;
    }
    report::write_summaries(&mut out, &done, elapsed)?;
    Ok(out.flush()?)
}

/// Files to concatenate into one file.
struct Conversion {
    files: Vec<InputFile>,
    output: Output,
}

async fn plan(
    context: &SessionContext,
    args: &ConvertArgs,
    mut inputs: Vec<Input>,
) -> Result<Vec<Conversion>> {
    let out = Destination::parse(context, &args.output).await?;
    for input in &mut inputs {
        input.leave_out(&out);
    }
    if inputs.iter().all(|input| input.files.is_empty()) {
        return Err(CliError::failed("there is no file to read but OUT itself"));
    }
    let mut conversions = match one_file_kind(args, &inputs)? {
        Some(kind) => vec![Conversion {
            files: inputs.into_iter().flat_map(|input| input.files).collect(),
            output: output(args, out, kind)?,
        }],
        None => file_by_file(args, &out, inputs)?,
    };
    for conversion in &mut conversions {
        conversion
            .output
            .destination
            .check_writable(args.force)
            .await?;
    }
    Ok(conversions)
}

/// The kind of OUT if it is a file; `None` if OUT is a directory.
fn one_file_kind(args: &ConvertArgs, inputs: &[Input]) -> Result<Option<FileKind>> {
    let out = &args.output;
    if out.ends_with('/') || std::path::Path::new(out).is_dir() {
        return Ok(None);
    }
    let kind = match args.to {
        Some(format) => Some(FileKind::with_format(out, format)),
        None => FileKind::of_path(out),
    };
    let several = inputs.len() > 1 || inputs.iter().any(Input::is_collection);
    let has_extension = out
        .rsplit('/')
        .next()
        .is_some_and(|name| name.contains('.'));
    match kind {
        Some(_) if several && args.to.is_some() && !has_extension => Ok(None),
        Some(kind) => Ok(Some(kind)),
        None if several && !has_extension => Ok(None),
        None => Err(CliError::Usage(format!(
            "cannot tell the format of OUT '{out}': known are {}; --to names the format, \
             and a directory's name ends in '/'",
            all_extensions()
        ))),
    }
}

fn file_by_file(
    args: &ConvertArgs,
    out: &Destination,
    inputs: Vec<Input>,
) -> Result<Vec<Conversion>> {
    let format = args.to.unwrap_or(Format::Vectile);
    let files: Vec<InputFile> = inputs.into_iter().flat_map(|input| input.files).collect();
    if args.to.is_none() && files.iter().all(|file| file.kind.format == Format::Vectile) {
        return Err(CliError::Usage(
            "the inputs are Vectile files already: say with --to what they should become".into(),
        ));
    }
    let mut conversions: Vec<Conversion> = Vec::with_capacity(files.len());
    let mut taken = HashMap::new();
    for file in files {
        let known = known_extension(&file.relative);
        let stem = file.relative.strip_suffix(known).unwrap_or(&file.relative);
        let name = format!("{stem}.{}", format.extension());
        if let Some(other) = taken.insert(name.clone(), file.display()) {
            return Err(CliError::failed(format!(
                "{other} and {} would both become {name}",
                file.display()
            ))
            .hint("convert them into different directories"));
        }
        let output = output(args, out.join(&name)?, FileKind::plain(format))?;
        // Directories are preserved: partition columns are not repeated in the files.
        let file = InputFile {
            partitions: Vec::new(),
            ..file
        };
        conversions.push(Conversion {
            files: vec![file],
            output,
        });
    }
    Ok(conversions)
}

fn output(args: &ConvertArgs, destination: Destination, kind: FileKind) -> Result<Output> {
    let of_vectile = [
        ("--encoding", !args.encodings.is_empty()),
        ("--row-group-rows", args.row_group_rows.is_some()),
        ("--bloom", args.bloom.is_some()),
        ("--compression", args.compression.is_some()),
    ];
    if kind.format != Format::Vectile
        && let Some((option, _)) = of_vectile.iter().find(|(_, is_given)| *is_given)
    {
        return Err(CliError::Usage(format!(
            "{option} is for Vectile files; OUT is of another format"
        )));
    }
    let mut options = WriterOptions::default()
        .with_pins(args.encodings.iter().cloned())
        .with_compression(args.compression.unwrap_or_default())
        .with_compressor(args.gpu.compressor());
    if let Some(rows) = args.row_group_rows {
        options = options.with_row_group_rows(rows.get());
    }
    if let Some(fpp) = args.bloom_fpp {
        options = options.with_bloom_filter_fpp(fpp);
    }
    Ok(Output {
        destination,
        kind,
        options,
        text: args.text.clone(),
    })
}

impl Conversion {
    async fn run(
        mut self,
        context: &SessionContext,
        args: &ConvertArgs,
        interrupt: &Interrupt,
    ) -> Result<Summary> {
        let mut opened = Vec::with_capacity(self.files.len());
        for file in self.files {
            opened.push(OpenFile::open(context, file).await?);
        }
        let schemas: Vec<_> = opened
            .iter()
            .map(|open| {
                (
                    open.file.display(),
                    with_partitions(&open.file, &open.schema),
                )
            })
            .collect();
        let merged = merge_schemas(&schemas)?;
        let is_text = |open: &OpenFile| matches!(open.file.kind.format, Format::Csv | Format::Json);
        let is_text = opened.iter().any(is_text);
        args.text.check(context, &merged, is_text)?;
        let arrangement = args.arrange.of(context, &merged)?;
        let schema = Arc::clone(&arrangement.schema);
        check_pins(&self.output.options.pins, &schema)?;
        if let Some(columns) = &args.bloom {
            let columns = columns.indices("--bloom", &schema)?.into_iter();
            let names = columns.map(|column| schema.field(column).name());
            self.output.options = self.output.options.with_bloom_filters(names);
        }
        for open in &mut opened {
            open.narrow(context, &arrangement.read)?;
            if let Some(condition) = arrangement.condition_of_rows() {
                open.prune(context, &arrangement.read, condition).await?;
            }
        }
        let rows = opened.iter().map(|open| open.rows).sum();
        let batches = read_in_turn(context.clone(), opened, Arc::clone(&arrangement.read));
        let arranging = session::for_arranging(arrange::SORT_BYTES)?;
        let name = self.output.destination.display.clone();
        let arranged = arrangement.apply(&arranging, batches, &name, rows).await?;
        let (batches, progress) = (arranged.batches, arranged.progress);
        let summary = copy(&schema, batches, self.output, interrupt, &progress).await?;
        let Some(reading) = arranged.reading else {
            return Ok(summary);
        };
        let reading = Duration::from_nanos(reading.load(Ordering::Relaxed)).min(summary.reading);
        Ok(Summary {
            reading,
            arranging: summary.reading - reading,
            ..summary
        })
    }
}

fn check_pins(pins: &HashMap<String, Pin>, schema: &SchemaRef) -> Result<()> {
    match pins.keys().find(|column| schema.index_of(column).is_err()) {
        Some(missing) => Err(no_column("--encoding", schema, missing)),
        None => Ok(()),
    }
}
