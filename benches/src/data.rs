//! TPC-H tables as Vectile and as Parquet files, generated once and kept in a folder.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use object_store::local::LocalFileSystem;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use tpchgen::generators::*;
use tpchgen_arrow::*;
use vectile_file::{Writer, WriterOptions};

use crate::Result;

/// The tables.
pub const TABLES: [&str; 8] = [
    "customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier",
];

/// The folder of the data: `$VECTILE_BENCH_DATA`, or `target/bench-data`.
pub fn folder() -> PathBuf {
    std::env::var_os("VECTILE_BENCH_DATA").map_or_else(|| "target/bench-data".into(), PathBuf::from)
}

/// All batches of a table at a scale.
pub fn batches(table: &str, scale: f64) -> (SchemaRef, Box<dyn Iterator<Item = RecordBatch>>) {
    macro_rules! rows {
        ($arrow:ident, $generator:ident) => {{
            let rows = $arrow::new($generator::new(scale, 1, 1)).with_batch_size(8192);
            (
                $arrow::schema_ref(),
                Box::new(rows.map(|batch| batch.expect("generated rows"))),
            )
        }};
    }
    match table {
        "customer" => rows!(CustomerArrow, CustomerGenerator),
        "lineitem" => rows!(LineItemArrow, LineItemGenerator),
        "nation" => rows!(NationArrow, NationGenerator),
        "orders" => rows!(OrderArrow, OrderGenerator),
        "part" => rows!(PartArrow, PartGenerator),
        "partsupp" => rows!(PartSuppArrow, PartSuppGenerator),
        "region" => rows!(RegionArrow, RegionGenerator),
        _ => rows!(SupplierArrow, SupplierGenerator),
    }
}

/// The files of one scale; generates missing ones.
pub async fn tpch(scale: f64) -> Result<PathBuf> {
    let folder = folder().join(format!("tpch-{scale}"));
    std::fs::create_dir_all(&folder)?;
    let folder = folder.canonicalize()?;
    for table in TABLES {
        let parquet = folder.join(format!("{table}.parquet"));
        if !parquet.exists() {
            eprintln!("generating {}", parquet.display());
            let (schema, rows) = batches(table, scale);
            write_parquet(&parquet, schema, rows)?;
        }
        let vectile = folder.join(format!("{table}.vectile"));
        if !vectile.exists() {
            eprintln!("generating {}", vectile.display());
            let (schema, rows) = batches(table, scale);
            write_vectile(&vectile, schema, rows).await?;
        }
    }
    Ok(folder)
}

/// Writes Parquet with the defaults of the `parquet` crate and zstd(3).
pub fn write_parquet(
    path: &Path,
    schema: SchemaRef,
    rows: impl Iterator<Item = RecordBatch>,
) -> Result<()> {
    let properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(3)?))
        .build();
    let part = path.with_extension("part");
    let mut writer = ArrowWriter::try_new(File::create(&part)?, schema, Some(properties))?;
    for batch in rows {
        writer.write(&batch)?;
    }
    writer.close()?;
    Ok(std::fs::rename(part, path)?)
}

/// Writes Vectile with default settings.
pub async fn write_vectile(
    path: &Path,
    schema: SchemaRef,
    rows: impl Iterator<Item = RecordBatch>,
) -> Result<()> {
    let store = Arc::new(LocalFileSystem::new());
    let location = object_store::path::Path::from_absolute_path(path)?;
    let mut writer = Writer::try_new(store, location, schema, WriterOptions::default())?;
    for batch in rows {
        writer.write(&batch).await?;
    }
    writer.finish().await?;
    Ok(())
}
