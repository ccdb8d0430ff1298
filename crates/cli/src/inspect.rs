//! `vectile inspect`: the content of a Vectile file, its encodings, and their alternatives.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::util::display::{ArrayFormatter, FormatOptions};
use clap::{Args, ValueEnum};
use object_store::ObjectStore;
use serde::Serialize;
use vectile_encodings::{VECTOR_LEN, ZoneMap, alternatives};
use vectile_file::{Compression, Fetch, Metadata, ReadOptions, read_metadata, read_row_group};

use crate::error::{CliError, Result};
use crate::format::Format;
use crate::session;
use crate::source::{Input, InputFile};
use crate::text::{Align, TextTable, bytes, count, ratio};

/// Show schema, row groups and encodings of a Vectile file
///
/// Per column: its encoding, bytes and bits per value, smallest and largest value, and what every
/// other encoding that applies would have taken.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// A Vectile file: a path or a URL
    path: String,
    /// How to print
    #[arg(long, value_enum, default_value_t = InspectFormat::Table)]
    format: InspectFormat,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum InspectFormat {
    /// Tables for people
    Table,
    /// One JSON document; its fields are described in docs/operations.md
    Json,
}

/// Runs `vectile inspect`.
pub async fn run(args: InspectArgs) -> Result<()> {
    let context = session::for_copying()?;
    let input = Input::find(&context, &args.path, Some(Format::Vectile)).await?;
    let file = single_file(&args.path, input)?;
    let report = Report::of(&file)
        .await
        .map_err(|error| error.of_file(&args.path).context("cannot inspect"))?;
    let mut out = std::io::stdout().lock();
    match args.format {
        InspectFormat::Table => report.write(&mut out)?,
        InspectFormat::Json => {
            serde_json::to_writer_pretty(&mut out, &report).map_err(std::io::Error::from)?;
            writeln!(out)?;
        }
    }
    Ok(out.flush()?)
}

fn single_file(path: &str, input: Input) -> Result<InputFile> {
    let mut files = input.files;
    match (files.pop(), files.len()) {
        (Some(file), 0) => Ok(file),
        (_, others) => Err(CliError::failed(format!(
            "{path} has {} files; inspect takes one",
            others + 1
        ))
        .hint("name one of them")),
    }
}

/// Row groups whose values are read to estimate the alternatives: enough to be typical of a large
/// file, and all of a small one.
const SAMPLED_ROW_GROUPS: usize = 4;

/// The full report on a file. In the JSON form, fields may be added, never renamed or removed.
#[derive(Debug, Serialize)]
struct Report {
    file: String,
    format_version: u32,
    bytes: u64,
    footer_bytes: u64,
    rows: u64,
    vector_rows: usize,
    arrow_bytes: u64,
    encoded_bytes: u64,
    /// Row groups from which `alternatives` are estimated, and the rows in them.
    sampled_row_groups: Vec<usize>,
    sampled_rows: u64,
    row_groups: Vec<RowGroupReport>,
    columns: Vec<ColumnReport>,
}

#[derive(Debug, Serialize)]
struct RowGroupReport {
    rows: usize,
    vectors: usize,
    offset: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct ColumnReport {
    name: String,
    #[serde(rename = "type")]
    data_type: String,
    nullable: bool,
    /// The encoding of most row groups.
    encoding: String,
    arrow_bytes: u64,
    encoded_bytes: u64,
    zone_map_bytes: u64,
    bloom_filter_bytes: u64,
    bits_per_value: f64,
    nulls: u64,
    /// Smallest and largest value as text; null if there is none, or no order.
    min: Option<String>,
    max: Option<String>,
    /// False if `min` and `max` are only bounds (long strings are cut).
    exact: bool,
    chunks: Vec<ChunkReport>,
    /// Bytes of the sampled row groups, without zone maps.
    sampled_bytes: u64,
    alternatives: Vec<Alternative>,
}

#[derive(Debug, Serialize)]
struct ChunkReport {
    row_group: usize,
    encoding: String,
    /// Compression of the encoded values as a whole.
    compression: String,
    arrow_bytes: u64,
    encoded_bytes: u64,
    zone_map_bytes: u64,
    bloom_filter_bytes: u64,
    offset: u64,
}

#[derive(Debug, Serialize)]
struct Alternative {
    encoding: String,
    /// Estimated bytes for the sampled row groups.
    bytes: u64,
}

impl Report {
    async fn of(file: &InputFile) -> Result<Self> {
        let metadata = read_metadata(&file.store, &file.meta).await?;
        let sampled = sample(metadata.num_row_groups());
        let mut columns = Vec::with_capacity(metadata.schema().fields().len());
        for column in 0..metadata.schema().fields().len() {
            let mut report = ColumnReport::of(&metadata, column)?;
            report.estimate(file, &metadata, column, &sampled).await?;
            columns.push(report);
        }
        let groups = metadata.row_groups();
        let sampled_rows = sampled
            .iter()
            .filter_map(|i| groups.get(*i))
            .map(|g| g.rows as u64);
        Ok(Report {
            file: file.display(),
            format_version: metadata.version(),
            bytes: file.meta.size,
            footer_bytes: metadata.footer_bytes(),
            rows: metadata.num_rows(),
            vector_rows: VECTOR_LEN,
            arrow_bytes: columns.iter().map(|column| column.arrow_bytes).sum(),
            encoded_bytes: columns.iter().map(|column| column.encoded_bytes).sum(),
            sampled_rows: sampled_rows.sum(),
            sampled_row_groups: sampled,
            row_groups: groups.iter().map(RowGroupReport::of).collect(),
            columns,
        })
    }
}

/// Row groups spread evenly over the file, first and last among them.
fn sample(row_groups: usize) -> Vec<usize> {
    match row_groups.checked_sub(1) {
        None => Vec::new(),
        Some(last) if last < SAMPLED_ROW_GROUPS => (0..row_groups).collect(),
        Some(last) => {
            let steps = SAMPLED_ROW_GROUPS - 1;
            (0..=steps).map(|step| last * step / steps).collect()
        }
    }
}

impl RowGroupReport {
    fn of(group: &vectile_file::RowGroup) -> Self {
        RowGroupReport {
            rows: group.rows,
            vectors: group.rows.div_ceil(VECTOR_LEN),
            offset: group.bytes.start,
            bytes: group.bytes.end - group.bytes.start,
        }
    }
}

impl ColumnReport {
    fn of(metadata: &Metadata, column: usize) -> Result<Self> {
        let field = metadata.schema().field(column);
        let groups = metadata.row_groups().iter().enumerate();
        let chunks: Vec<ChunkReport> = groups
            .filter_map(|(index, group)| Some(ChunkReport::of(index, group.columns.get(column)?)))
            .collect();
        let sum = |part: fn(&ChunkReport) -> u64| chunks.iter().map(part).sum::<u64>();
        let (encoded, zones) = (sum(|c| c.encoded_bytes), sum(|c| c.zone_map_bytes));
        let extremes = Extremes::of(metadata.row_group_statistics(column))?;
        Ok(ColumnReport {
            name: field.name().clone(),
            data_type: field.data_type().to_string(),
            nullable: field.is_nullable(),
            encoding: most_frequent(&chunks),
            arrow_bytes: sum(|c| c.arrow_bytes),
            encoded_bytes: encoded,
            zone_map_bytes: zones,
            bloom_filter_bytes: sum(|c| c.bloom_filter_bytes),
            bits_per_value: bits_per_value(encoded, metadata.num_rows()),
            nulls: extremes.nulls,
            min: extremes.min,
            max: extremes.max,
            exact: extremes.exact,
            chunks,
            sampled_bytes: 0,
            alternatives: Vec::new(),
        })
    }

    /// Decodes the sampled row groups, one at a time, and sums the size in each encoding.
    async fn estimate(
        &mut self,
        file: &InputFile,
        metadata: &Metadata,
        column: usize,
        sampled: &[usize],
    ) -> Result<()> {
        let mut estimates: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for row_group in sampled {
            let values = read_column(&file.store, metadata, *row_group, column).await?;
            let costs = tokio::task::block_in_place(|| alternatives(values.as_ref()))?;
            for (encoding, bytes) in costs {
                estimates
                    .entry(encoding.to_string())
                    .or_default()
                    .push(bytes);
            }
        }
        // An encoding that does not apply everywhere is not an alternative for the column.
        estimates.retain(|_, bytes| bytes.len() == sampled.len());
        let alternatives = estimates.into_iter().map(|(encoding, bytes)| Alternative {
            encoding,
            bytes: bytes.iter().sum(),
        });
        self.alternatives = alternatives.collect();
        self.alternatives
            .sort_by_key(|alternative| alternative.bytes);
        let chunks = self
            .chunks
            .iter()
            .filter(|chunk| sampled.contains(&chunk.row_group));
        self.sampled_bytes = chunks.map(|chunk| chunk.encoded_bytes).sum();
        Ok(())
    }
}

impl ChunkReport {
    fn of(row_group: usize, chunk: &vectile_file::Chunk) -> Self {
        let bloom = chunk.bloom.as_ref();
        ChunkReport {
            row_group,
            encoding: chunk.encoding.to_string(),
            compression: chunk.compression.to_string(),
            arrow_bytes: chunk.arrow_bytes,
            encoded_bytes: chunk.data.end - chunk.data.start,
            zone_map_bytes: chunk.zones.end - chunk.zones.start,
            bloom_filter_bytes: bloom.map_or(0, |bloom| bloom.bytes.end - bloom.bytes.start),
            offset: chunk.data.start,
        }
    }
}

async fn read_column(
    store: &Arc<dyn ObjectStore>,
    metadata: &Metadata,
    row_group: usize,
    column: usize,
) -> Result<ArrayRef> {
    let fetch = Fetch {
        row_group,
        data: vec![column],
        zones: Vec::new(),
    };
    let location = object_store::path::Path::parse(metadata.file())
        .map_err(|error| CliError::failed(error.to_string()))?;
    let options = ReadOptions::default();
    let mut data = read_row_group(store, &location, metadata, &fetch, &options).await?;
    let values = data.columns.get_mut(column).and_then(Option::take);
    let values = values.ok_or_else(|| CliError::failed(format!("column {column} is missing")))?;
    let decoded = tokio::task::block_in_place(|| values.decode(0..values.len()));
    decoded.map_err(|error| CliError::from(metadata.error(row_group, column, error)))
}

/// A zone map merged to one zone.
struct Extremes {
    min: Option<String>,
    max: Option<String>,
    nulls: u64,
    exact: bool,
}

impl Extremes {
    fn of(zones: &ZoneMap) -> Result<Self> {
        let nulls = zones.null_count.iter().flatten().sum();
        let whole = zones.merge()?;
        let bound = |bounds: &ArrayRef| match whole.has_bounds() {
            true => first_value(bounds),
            false => Ok(None),
        };
        Ok(Extremes {
            min: bound(&whole.min)?,
            max: bound(&whole.max)?,
            nulls,
            exact: whole.exact.iter().flatten().all(|exact| exact),
        })
    }
}

fn first_value(values: &dyn Array) -> Result<Option<String>> {
    if values.is_empty() || values.logical_null_count() > 0 {
        return Ok(None);
    }
    let format = |values: &dyn Array| {
        let options = FormatOptions::default();
        let formatter = ArrayFormatter::try_new(values, &options)?;
        formatter.value(0).try_to_string()
    };
    Ok(Some(match format(values) {
        Ok(text) => text,
        // dates and times beyond the calendar are printed as numbers
        Err(error) => match cast(values, &DataType::Int64) {
            Ok(number) => format(&number)?,
            Err(_) => return Err(error.into()),
        },
    }))
}

fn most_frequent(chunks: &[ChunkReport]) -> String {
    let mut counts = BTreeMap::new();
    for chunk in chunks {
        *counts.entry(chunk.encoding.clone()).or_insert(0_usize) += 1;
    }
    crate::writer::by_frequency(counts)
        .into_iter()
        .next()
        .unwrap_or_default()
}

fn bits_per_value(bytes: u64, rows: u64) -> f64 {
    match rows {
        0 => 0.0,
        rows => (bytes as f64 * 8.0 / rows as f64 * 100.0).round() / 100.0,
    }
}

impl Report {
    fn write(&self, out: &mut dyn Write) -> Result<()> {
        writeln!(
            out,
            "{}: format version {}, {} rows in {} row groups, {} ({} of Arrow memory, {})\n",
            self.file,
            self.format_version,
            count(self.rows),
            self.row_groups.len(),
            bytes(self.bytes),
            bytes(self.arrow_bytes),
            ratio(self.arrow_bytes, self.bytes),
        )?;
        let blooms = self
            .columns
            .iter()
            .filter(|column| column.bloom_filter_bytes > 0);
        let blooms: Vec<String> = blooms
            .map(|column| format!("{} {}", column.name, bytes(column.bloom_filter_bytes)))
            .collect();
        if !blooms.is_empty() {
            writeln!(out, "Bloom filters: {}\n", blooms.join(", "))?;
        }
        self.columns_table().write(out)?;
        writeln!(
            out,
            "\nBytes by encoding, estimated from {} rows (* is the one in use):\n",
            count(self.sampled_rows)
        )?;
        self.alternatives_table().write(out)?;
        writeln!(out)?;
        self.row_groups_table().write(out)?;
        Ok(())
    }

    fn columns_table(&self) -> TextTable {
        let mut table = TextTable::new(&[
            ("column", Align::Left),
            ("type", Align::Left),
            ("encoding", Align::Left),
            ("bytes", Align::Right),
            ("bits/value", Align::Right),
            ("ratio", Align::Right),
            ("nulls", Align::Right),
            ("min", Align::Left),
            ("max", Align::Left),
        ]);
        for column in &self.columns {
            table.row(vec![
                column.name.clone(),
                column.data_type.clone(),
                column.encodings(),
                bytes(column.encoded_bytes),
                format!("{:.2}", column.bits_per_value),
                ratio(column.arrow_bytes, column.encoded_bytes),
                count(column.nulls),
                shortened(column.min.as_deref()),
                shortened(column.max.as_deref()),
            ]);
        }
        table
    }

    /// A column of the table per encoding; marks the one chosen for most rows.
    fn alternatives_table(&self) -> TextTable {
        let all = self.columns.iter().flat_map(|column| &column.alternatives);
        let names: BTreeSet<&str> = all
            .map(|alternative| alternative.encoding.as_str())
            .collect();
        let mut headers = vec![("column", Align::Left), ("stored", Align::Right)];
        headers.extend(names.iter().map(|name| (*name, Align::Right)));
        let mut table = TextTable::new(&headers);
        for column in &self.columns {
            let mut cells = vec![column.name.clone(), bytes(column.sampled_bytes)];
            cells.extend(names.iter().map(|name| column.alternative(name)));
            table.row(cells);
        }
        table
    }

    fn row_groups_table(&self) -> TextTable {
        let mut table = TextTable::new(&[
            ("row group", Align::Right),
            ("rows", Align::Right),
            ("offset", Align::Right),
            ("bytes", Align::Right),
        ]);
        for (index, group) in self.row_groups.iter().enumerate() {
            table.row(vec![
                index.to_string(),
                count(group.rows as u64),
                count(group.offset),
                bytes(group.bytes),
            ]);
        }
        table
    }
}

impl ColumnReport {
    fn encodings(&self) -> String {
        let different: BTreeSet<&str> = self.chunks.iter().map(|c| c.encoding.as_str()).collect();
        let encoding = match different.len() {
            0 | 1 => self.encoding.clone(),
            several => format!("{} (and {} more)", self.encoding, several - 1),
        };
        let none = Compression::None.to_string();
        match self.chunks.iter().find(|c| c.compression != none) {
            Some(chunk) => format!("{encoding} + {}", chunk.compression),
            None => encoding,
        }
    }

    fn alternative(&self, encoding: &str) -> String {
        let known = self.alternatives.iter().find(|a| a.encoding == encoding);
        let chosen = self.encoding.split('(').next() == Some(encoding);
        match known {
            Some(alternative) if chosen => format!("*{}", bytes(alternative.bytes)),
            Some(alternative) => bytes(alternative.bytes),
            None => "-".to_string(),
        }
    }
}

/// Longer values would make the table wider than the screen.
const LONGEST_VALUE: usize = 24;

fn shortened(value: Option<&str>) -> String {
    match value {
        None => "-".to_string(),
        Some(text) if text.chars().count() <= LONGEST_VALUE => text.to_string(),
        Some(text) => {
            let start: String = text.chars().take(LONGEST_VALUE - 1).collect();
            format!("{start}…")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_spread_over_the_file() {
        assert_eq!(sample(0), Vec::<usize>::new());
        assert_eq!(sample(4), vec![0, 1, 2, 3]);
        assert_eq!(sample(23), vec![0, 7, 14, 22]);
    }

    #[test]
    fn values_beyond_the_calendar_are_numbers() {
        use arrow::array::{Date32Array, TimestampSecondArray};
        let first = |values: &dyn Array| first_value(values).unwrap().unwrap();
        assert_eq!(first(&Date32Array::from(vec![0])), "1970-01-01");
        assert_eq!(first(&Date32Array::from(vec![-97_000_000])), "-97000000");
        let seconds = TimestampSecondArray::from(vec![i64::MAX]);
        assert_eq!(first(&seconds), i64::MAX.to_string());
    }

    #[test]
    fn long_values_are_cut() {
        assert_eq!(shortened(None), "-");
        assert_eq!(shortened(Some("short")), "short");
        assert_eq!(
            shortened(Some(&"x".repeat(50))).chars().count(),
            LONGEST_VALUE
        );
    }
}
