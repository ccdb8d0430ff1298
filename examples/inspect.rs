//! Prints a file's metadata without decoding it: `cargo run --example inspect [FILE]`.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use vectile::file::{Writer, WriterOptions, read_metadata};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
    let dir = tempfile::tempdir()?;
    let path = match std::env::args().nth(1) {
        Some(path) => PathBuf::from(path),
        None => write_sample(&store, dir.path().join("sample.vectile")).await?,
    };

    let object = store.head(&Path::from_filesystem_path(path)?).await?;
    let metadata = read_metadata(&store, &object).await?;
    println!("{} rows, {} bytes", metadata.num_rows(), object.size);
    for (i, group) in metadata.row_groups().iter().enumerate() {
        println!("row group {i}: {} rows", group.rows);
        for (field, chunk) in metadata.schema().fields().iter().zip(&group.columns) {
            let bytes = chunk.data.end - chunk.data.start;
            println!(
                "  {} {}: {bytes} bytes, {}",
                field.name(),
                field.data_type(),
                chunk.encoding
            );
        }
    }
    Ok(())
}

async fn write_sample(
    store: &Arc<dyn ObjectStore>,
    path: PathBuf,
) -> Result<PathBuf, Box<dyn Error>> {
    let ids: ArrayRef = Arc::new(Int64Array::from_iter_values(0..5_000));
    let names = ["ash", "birch", "elm"];
    let names: ArrayRef = Arc::new(StringArray::from_iter_values(
        (0..5_000).map(|i| names[i % 3]),
    ));
    let batch = RecordBatch::try_from_iter([("id", ids), ("name", names)])?;
    // The file does not exist yet, so its location is taken from the directory's.
    let directory = Path::from_filesystem_path(path.parent().unwrap_or(&path))?;
    let location = directory.join("sample.vectile");
    let options = WriterOptions::default();
    let mut writer = Writer::try_new(Arc::clone(store), location, batch.schema(), options)?;
    writer.write(&batch).await?;
    writer.finish().await?;
    Ok(path)
}
