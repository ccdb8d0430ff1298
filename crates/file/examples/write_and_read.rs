//! Writes a table to a local directory and reads one of its columns back.
//!
//! ```sh
//! cargo run -p vectile-file --example write_and_read
//! ```

use std::error::Error;
use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, Int64Array, RecordBatch, StringArray};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use vectile_file::{Fetch, ReadOptions, Writer, WriterOptions, read_metadata, read_row_group};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(folder.path())?);
    let location = Path::from("trips.vectile");

    write(&store, &location).await?;
    read(&store, &location).await
}

/// Writes batches of any size; the writer forms row groups of them.
async fn write(store: &Arc<dyn ObjectStore>, location: &Path) -> Result<(), Box<dyn Error>> {
    let schema = trips(0..0)?.schema();
    let options = WriterOptions::default().with_row_group_rows(100_000);
    let mut writer = Writer::try_new(Arc::clone(store), location.clone(), schema, options)?;
    for start in (0..250_000).step_by(10_000) {
        writer.write(&trips(start..start + 10_000)?).await?;
    }
    let summary = writer.finish().await?;

    println!("{} rows in {} bytes", summary.rows, summary.bytes);
    for column in &summary.columns {
        let ratio = column.arrow_bytes as f64 / column.encoded_bytes as f64;
        println!(
            "  {:7} {ratio:5.1} : 1  {:?}",
            column.name, column.encodings
        );
    }
    Ok(())
}

/// Reads one column. The footer has the ranges of all chunks, so nothing else is read.
async fn read(store: &Arc<dyn ObjectStore>, location: &Path) -> Result<(), Box<dyn Error>> {
    let object = store.head(location).await?;
    let metadata = read_metadata(store, &object).await?;
    let miles = metadata.schema().index_of("miles")?;
    let mut total = 0.0;
    for (row_group, group) in metadata.row_groups().iter().enumerate() {
        let fetch = Fetch {
            row_group,
            data: vec![miles],
            zones: vec![],
        };
        let options = ReadOptions::default();
        let data = read_row_group(store, location, &metadata, &fetch, &options).await?;
        let Some(column) = &data.columns[miles] else {
            return Err("the column was not read".into());
        };
        let values = column.decode(0..group.rows)?;
        let sum = arrow::compute::sum(values.as_any().downcast_ref::<Float64Array>().unwrap());
        total += sum.unwrap_or_default();
        println!("row group {row_group}: read {} bytes", data.bytes_read);
    }
    println!("{total} miles of trips");
    assert_eq!(total, 3_118_750.0);
    Ok(())
}

/// Some trips: an id, a distance and a borough.
fn trips(ids: std::ops::Range<i64>) -> Result<RecordBatch, Box<dyn Error>> {
    let boroughs = ["Bronx", "Brooklyn", "Manhattan", "Queens", "Staten Island"];
    let miles = ids.clone().map(|id| (id % 500) as f64 / 20.0);
    let names = ids.clone().map(|id| boroughs[(id % 7 % 5) as usize]);
    Ok(RecordBatch::try_from_iter([
        (
            "id",
            Arc::new(Int64Array::from_iter_values(ids.clone())) as ArrayRef,
        ),
        ("miles", Arc::new(Float64Array::from_iter_values(miles))),
        ("borough", Arc::new(StringArray::from_iter_values(names))),
    ])?)
}
