//! Filters and projects a file without SQL, with a runtime and without: `cargo run --example scan`.

use std::error::Error;
use std::ops::Bound;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, RecordBatch, StringArray};
use futures::TryStreamExt;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use vectile::encodings::Predicate;
use vectile::file::{File, Writer, WriterOptions};
use vectile::scan::{Node, Scan, Test};

fn trips() -> Result<RecordBatch, Box<dyn Error>> {
    let rows = 0..100_000;
    let places = ["Oslo", "Lima", "Pune"];
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone()));
    let names = rows.clone().map(|i| places[i as usize % places.len()]);
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(names));
    let miles = rows.map(|i| (i % 400) as f64 / 4.0);
    let miles: ArrayRef = Arc::new(Float64Array::from_iter_values(miles));
    let columns = [("id", ids), ("place", names), ("miles", miles)];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// The ids and miles of `id >= 50000 AND upper(place) = 'LIMA'`.
fn scan(file: Arc<File>) -> Result<Scan, Box<dyn Error>> {
    let schema = Arc::clone(file.metadata().schema());
    let least: ArrayRef = Arc::new(Int64Array::from(vec![50_000]));
    let is_late = Predicate::Range {
        low: Bound::Included(least),
        high: Bound::Unbounded,
        negated: false,
    };
    // Conditions that are no predicate are tests of the caller, evaluated once per distinct value.
    let is_lima = |rows: &RecordBatch| {
        let places = rows.column(0).as_string::<i32>().iter();
        Ok(places
            .map(|place| place.map(|place| place.to_uppercase() == "LIMA"))
            .collect())
    };
    let is_lima = Test::new(vec![schema.index_of("place")?], &schema, Arc::new(is_lima));
    let filter = Node::all([
        Node::leaf(schema.index_of("id")?, is_late),
        Node::test(is_lima),
    ])?;
    Ok(Scan::new(file)
        .with_filter(filter)?
        .with_columns(&["id", "miles"])?)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = tempfile::tempdir()?;
    let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new_with_prefix(dir.path())?);
    let location = Path::from("trips.vectile");
    let (trips, options) = (trips()?, WriterOptions::default());
    let mut writer = Writer::try_new(
        Arc::clone(&store),
        location.clone(),
        trips.schema(),
        options,
    )?;
    writer.write(&trips).await?;
    writer.finish().await?;
    let object = store.head(&location).await?;
    let file = Arc::new(File::open(store, &object).await?);

    let mut batches = scan(Arc::clone(&file))?.stream();
    let mut rows = 0;
    while let Some(batch) = batches.try_next().await? {
        rows += batch.num_rows();
    }
    println!("{rows} trips of Lima");

    // Without a runtime, the scan runs on a thread of its own.
    let first = scan(file)?.with_limit(3).blocking();
    let first = std::thread::spawn(move || first.collect::<Result<Vec<_>, _>>());
    let first = first.join().map_err(|_| "the thread failed")??;
    println!("{first:?}");
    Ok(())
}
