//! Damaged files, too little memory, cancellation.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

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
            && let Some(found) = inner.downcast_ref()
        {
            return Some(found);
        }
        if let Some(found) = current.downcast_ref() {
            return Some(found);
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
async fn what_is_no_table_is_refused() {
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
