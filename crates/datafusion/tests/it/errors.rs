//! Damaged files, too little memory, cancellation.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use datafusion::arrow::array::{
    ArrayRef, DictionaryArray, Int32Array, LargeStringArray, RecordBatch,
};
use datafusion::error::DataFusionError;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;

use crate::support::{Fixture, ROWS};

/// The error of the file layer below one of DataFusion's.
fn file_error(error: &DataFusionError) -> Option<&vectile_file::Error> {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(current) = cause {
        if let Some(DataFusionError::External(inner)) = current.downcast_ref()
            && let Some(file_error) = inner.downcast_ref()
        {
            return Some(file_error);
        }
        if let Some(file_error) = current.downcast_ref() {
            return Some(file_error);
        }
        cause = current.source();
    }
    None
}

#[tokio::test]
async fn a_damaged_column_is_named() {
    let fixture = Fixture::new().await;
    let path = fixture.path("packed.vectile");
    let mut bytes = fs::read(&path).unwrap();
    // Within the columns of the second row group.
    let store: Arc<dyn object_store::ObjectStore> =
        Arc::new(object_store::local::LocalFileSystem::new());
    let location = object_store::path::Path::from_filesystem_path(&path).unwrap();
    let object = object_store::ObjectStoreExt::head(store.as_ref(), &location)
        .await
        .unwrap();
    let metadata = vectile_file::read_metadata(&store, &object).await.unwrap();
    let name = metadata.schema().index_of("name").unwrap();
    let range = metadata.row_group(1).columns[name].data.clone();
    bytes[(range.start + range.end) as usize / 2] ^= 0x40;
    let damaged = fixture.path("damaged.vectile");
    fs::write(&damaged, bytes).unwrap();
    fixture.register("damaged", &damaged).await;
    assert_eq!(
        fixture.executed("SELECT id, int FROM damaged").await.1,
        ROWS
    );
    for sql in [
        "SELECT name FROM damaged",
        "SELECT id FROM damaged WHERE name = 'apple'",
        "SELECT name FROM damaged WHERE id = 5000",
    ] {
        let error = fixture.run(sql).await.unwrap_err();
        match file_error(&error) {
            Some(vectile_file::Error::Corrupt {
                file,
                row_group,
                column,
                ..
            }) => {
                assert!(file.ends_with("damaged.vectile"));
                assert_eq!(*row_group, Some(1));
                assert_eq!(column.as_deref(), Some("name"));
            }
            _ => panic!("{sql}: {error:?}"),
        }
    }
}

#[tokio::test]
async fn files_that_are_no_tables_are_refused() {
    let fixture = Fixture::new().await;
    let whole = fs::read(fixture.path("packed.vectile")).unwrap();
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("text", b"hello, world".repeat(100)),
        ("cut", whole[..whole.len() - 100].to_vec()),
        ("front", whole[100..].to_vec()),
    ] {
        let path = fixture.path(&format!("{name}-broken.vectile"));
        fs::write(&path, bytes).unwrap();
        let sql = format!(
            "CREATE EXTERNAL TABLE \"{name}\" STORED AS VECTILE LOCATION '{}'",
            path.display()
        );
        let result = match fixture.run(&sql).await {
            Ok(_) => fixture.run(&format!("SELECT * FROM \"{name}\"")).await,
            Err(error) => Err(error),
        };
        // DataFusion itself passes over empty files.
        match result {
            Err(error) => assert!(
                file_error(&error).is_some() || name == "empty",
                "{name}: {error:?}"
            ),
            Ok(batches) => assert!(name == "empty" && batches.is_empty(), "{name}"),
        }
    }
}

#[tokio::test]
async fn memory_comes_from_the_pool() {
    let fixture = Fixture::new().await;
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_limit(1 << 10, 1.0)
        .build_arc()
        .unwrap();
    let ctx = SessionContext::new_with_config_rt(SessionConfig::new(), runtime);
    vectile_datafusion::register(&ctx).unwrap();
    let tight = Fixture {
        ctx,
        dir: tempfile::tempdir().unwrap(),
    };
    tight
        .register("packed", &fixture.path("packed.vectile"))
        .await;
    let error = tight.run("SELECT id, text FROM packed").await.unwrap_err();
    let error = error.find_root().to_string();
    assert!(error.contains("VectileScan"), "{error}");
}

/// 600 rows of the same megabyte, which are small in a file.
async fn wide_rows(fixture: &Fixture) -> std::path::PathBuf {
    let value = LargeStringArray::from(vec!["x".repeat(1 << 20)]);
    let keys = Int32Array::from(vec![0; 600]);
    let wide: ArrayRef = Arc::new(DictionaryArray::new(keys, Arc::new(value)));
    let ids: ArrayRef = Arc::new(Int32Array::from_iter_values(0..600));
    let batch = RecordBatch::try_from_iter([("id", ids), ("wide", wide)]).unwrap();
    fixture.ctx.register_batch("wide_rows", batch).unwrap();
    let path = fixture.path("wide.vectile");
    let copy = format!("COPY wide_rows TO '{}' STORED AS VECTILE", path.display());
    fixture.run(&copy).await.unwrap();
    path
}

async fn with_memory(bytes: usize, path: &std::path::Path) -> Fixture {
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_limit(bytes, 1.0)
        .build_arc()
        .unwrap();
    let config = SessionConfig::new().with_target_partitions(1);
    let ctx = SessionContext::new_with_config_rt(config, runtime);
    vectile_datafusion::register(&ctx).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture { ctx, dir };
    fixture.register("wide", path).await;
    fixture
}

#[tokio::test]
async fn wide_rows_are_decoded_a_few_at_a_time() {
    let fixture = Fixture::empty();
    let path = wide_rows(&fixture).await;
    let tight = with_memory(64 << 20, &path).await;
    for (filter, expected) in [("true", 600), ("id % 2 = 0", 300), ("wide <> 'x'", 600)] {
        let sql = format!("SELECT wide, id FROM wide WHERE {filter}");
        let frame = tight.ctx.sql(&sql).await.unwrap();
        let mut stream = frame.execute_stream().await.unwrap();
        let mut rows = 0;
        while let Some(batch) = stream.next().await {
            let batch = batch.unwrap();
            assert!(batch.num_rows() <= 64, "{} rows at once", batch.num_rows());
            rows += batch.num_rows();
        }
        assert_eq!(rows, expected, "{filter}");
    }
    let limited = tight.run("SELECT wide FROM wide LIMIT 21").await.unwrap();
    assert_eq!(limited.iter().map(RecordBatch::num_rows).sum::<usize>(), 21);
}

/// There is memory for the megabyte in the file, but not for a second one.
#[tokio::test]
async fn a_row_without_memory_for_it_is_an_error() {
    let fixture = Fixture::empty();
    let path = wide_rows(&fixture).await;
    let tight = with_memory(3 << 19, &path).await;
    let error = tight.run("SELECT wide FROM wide").await.unwrap_err();
    let error = error.find_root();
    assert!(
        matches!(error, DataFusionError::ResourcesExhausted(_)),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_stream_stops_the_scan() {
    let fixture = Fixture::new().await;
    for _ in 0..20 {
        let frame = fixture
            .ctx
            .sql("SELECT * FROM packed WHERE int <> 3")
            .await
            .unwrap();
        let mut stream = frame.execute_stream().await.unwrap();
        assert!(stream.next().await.unwrap().is_ok());
        drop(stream);
    }
    let pool = &fixture.ctx.runtime_env().memory_pool;
    for _ in 0..100 {
        if pool.reserved() == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} bytes are still reserved", pool.reserved());
}
