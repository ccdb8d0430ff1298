//! Claim: TPC-H and the sample data take no more bytes than Parquet with zstd(3).
//!
//! `cargo run --release --bin size -- [SCALE [TEXTS]]`, default 1. Sizes are of whole files and, per
//! column, of its chunks with their statistics. `TEXTS` is a folder of text files, such as those of
//! [dbtext](https://github.com/cwida/fsst/tree/master/paper/dbtext), each of which becomes a table of its lines.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::{ArrayRef, RecordBatch, StringArray};
use object_store::ObjectStore;
use object_store::ObjectStoreExt;
use object_store::local::LocalFileSystem;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::reader::{FileReader, SerializedFileReader};
use vectile_benches::report::print_table;
use vectile_benches::{Result, data};

#[tokio::main]
async fn main() -> Result<()> {
    let scale: f64 = std::env::args().nth(1).map_or(Ok(1.0), |s| s.parse())?;
    let tpch = data::tpch(scale).await?;
    let mut all = Totals::default();
    println!("## TPC-H at scale {scale}\n");
    for table in data::TABLES {
        all.add(compare(table, &tpch).await?);
    }
    println!("## nycflights13\n");
    let mut own = Totals::default();
    let sample = sample_data().await?;
    for table in ["flights", "weather", "planes", "airports", "airlines"] {
        let sizes = compare(table, &sample).await?;
        all.add(sizes);
        own.add(sizes);
    }
    own.print("nycflights13");
    all.print("TPC-H and nycflights13");
    let Some(texts) = std::env::args().nth(2) else {
        return Ok(());
    };
    println!("\n## {texts}\n");
    let (folder, tables) = text_tables(Path::new(&texts)).await?;
    let mut own = Totals::default();
    for table in tables {
        own.add(compare(&table, &folder).await?);
    }
    own.print(&texts);
    Ok(())
}

/// Bytes of several tables, as Vectile and as Parquet.
#[derive(Default)]
struct Totals(u64, u64);

impl Totals {
    fn add(&mut self, (vectile, parquet): (u64, u64)) {
        self.0 += vectile;
        self.1 += parquet;
    }

    fn print(&self, of: &str) {
        println!(
            "{of}: Vectile {}, Parquet zstd(3) {}, ratio {:.3}",
            mb(self.0),
            mb(self.1),
            self.0 as f64 / self.1 as f64
        );
    }
}

/// Writes a table of the lines of each file in `texts`, by both writers; returns their names.
async fn text_tables(texts: &Path) -> Result<(PathBuf, Vec<String>)> {
    let folder = data::folder().join("texts");
    std::fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    let mut names = Vec::new();
    for entry in std::fs::read_dir(texts)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        let name = name.to_string_lossy().into_owned();
        if name == "LICENSE" || !path.is_file() {
            continue;
        }
        let bytes = std::fs::read(&path)?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let lines: ArrayRef = Arc::new(StringArray::from(lines));
        let lines = RecordBatch::try_from_iter([("text", lines)])?;
        let file = folder.join(&name);
        let batches = || std::iter::once(lines.clone());
        data::write_parquet(&file.with_extension("parquet"), lines.schema(), batches())?;
        let vectile = file.with_extension("vectile");
        data::write_vectile(&vectile, lines.schema(), batches()).await?;
        names.push(name);
    }
    names.sort();
    Ok((folder, names))
}

/// The sample tables, rewritten by both writers from the shipped Parquet files.
async fn sample_data() -> Result<PathBuf> {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/nycflights13");
    let folder = data::folder().join("nycflights13");
    std::fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    for entry in std::fs::read_dir(shipped)? {
        let path = entry?.path();
        if path.extension().is_none_or(|e| e != "parquet") {
            continue;
        }
        let rows = || -> Result<_> {
            Ok(ParquetRecordBatchReaderBuilder::try_new(File::open(&path)?)?.build()?)
        };
        let schema = arrow::array::RecordBatchReader::schema(&rows()?);
        let name = folder.join(path.file_name().unwrap_or_default());
        data::write_parquet(&name, Arc::clone(&schema), rows()?.map_while(Result::ok))?;
        data::write_vectile(
            &name.with_extension("vectile"),
            schema,
            rows()?.map_while(Result::ok),
        )
        .await?;
    }
    Ok(folder)
}

fn mb(bytes: u64) -> String {
    format!("{:.2} MB", bytes as f64 / 1e6)
}

async fn compare(table: &str, folder: &Path) -> Result<(u64, u64)> {
    let vectile = folder.join(format!("{table}.vectile"));
    let parquet = folder.join(format!("{table}.parquet"));
    let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
    let object = store
        .head(&object_store::path::Path::from_absolute_path(&vectile)?)
        .await?;
    let metadata = vectile_file::read_metadata(&store, &object).await?;

    let mut parquet_columns = BTreeMap::<String, u64>::new();
    for group in SerializedFileReader::new(File::open(&parquet)?)?
        .metadata()
        .row_groups()
    {
        for column in group.columns() {
            let name = column
                .column_path()
                .parts()
                .first()
                .cloned()
                .unwrap_or_default();
            *parquet_columns.entry(name).or_default() += column.compressed_size() as u64;
        }
    }
    let mut rows = vec![];
    for (i, field) in metadata.schema().fields().iter().enumerate() {
        let chunks: Vec<_> = metadata
            .row_groups()
            .iter()
            .map(|group| &group.columns[i])
            .collect();
        let bytes: u64 = chunks.iter().map(|chunk| chunk.encoded_bytes()).sum();
        let arrow: u64 = chunks.iter().map(|chunk| chunk.arrow_bytes).sum();
        let theirs = parquet_columns.get(field.name()).copied().unwrap_or(0);
        let encoding = chunks.first().map_or("", |chunk| &chunk.encoding);
        rows.push(vec![
            field.name().clone(),
            encoding.to_string(),
            mb(arrow),
            mb(bytes),
            mb(theirs),
            format!("{:.2}", bytes as f64 / theirs as f64),
        ]);
    }
    let sizes = (
        std::fs::metadata(&vectile)?.len(),
        std::fs::metadata(&parquet)?.len(),
    );
    rows.push(vec![
        "whole file".into(),
        String::new(),
        String::new(),
        mb(sizes.0),
        mb(sizes.1),
        format!("{:.2}", sizes.0 as f64 / sizes.1 as f64),
    ]);
    println!("### {table}\n");
    print_table(
        &["column", "encoding", "Arrow", "Vectile", "Parquet", "ratio"],
        &rows,
    );
    println!();
    Ok(sizes)
}
