//! Writes Arrow batches to a Vectile file, and prints the chosen encodings: `cargo run --example
//! write`.

use std::error::Error;
use std::sync::Arc;

use arrow::array::{ArrayRef, Date32Array, Float64Array, RecordBatch, StringArray};
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use vectile::encodings::Encoding;
use vectile::file::{Writer, WriterOptions};

fn batch(day: i32) -> Result<RecordBatch, Box<dyn Error>> {
    let places = ["Oslo", "Lima", "Pune"];
    let rows = 0..10_000;
    let days: ArrayRef = Arc::new(Date32Array::from_iter_values(rows.clone().map(|_| day)));
    let names = rows.clone().map(|i: i32| places[i as usize % places.len()]);
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(names));
    let degrees = rows.map(|i| f64::from(i % 400) / 10.0 - 10.0);
    let degrees: ArrayRef = Arc::new(Float64Array::from_iter_values(degrees));
    Ok(RecordBatch::try_from_iter([
        ("day", days),
        ("place", names),
        ("degrees", degrees),
    ])?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(dir.path())?);

    let options = WriterOptions::default()
        .with_row_group_rows(1 << 16)
        .with_pins([("place", Encoding::Dict)]);
    let location = Path::from("weather.vectile");
    let mut writer = Writer::try_new(store, location, batch(0)?.schema(), options)?;
    for day in 0..30 {
        writer.write(&batch(day)?).await?;
    }
    let summary = writer.finish().await?;

    println!(
        "{} rows in {} row groups, {} bytes",
        summary.rows, summary.row_groups, summary.bytes
    );
    for column in summary.columns {
        let ratio = column.arrow_bytes as f64 / column.encoded_bytes as f64;
        println!("{:8} {ratio:6.1}x  {:?}", column.name, column.encodings);
    }
    Ok(())
}
