//! Files that a query leaves when its store fails, and errors of a scan whose file changes.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use datafusion::error::DataFusionError;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::execution::runtime_env::RuntimeEnvBuilder;
use datafusion::physical_plan::ExecutionPlanProperties;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use vectile_datafusion::register;

use crate::support::Fixture;

/// A store in memory that fails after a number of completed uploads.
#[derive(Debug)]
struct Full {
    objects: InMemory,
    completions: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct FullUpload {
    upload: Box<dyn MultipartUpload>,
    completions: Arc<AtomicUsize>,
}

impl Full {
    fn after(completions: usize) -> Self {
        Self {
            objects: InMemory::new(),
            completions: Arc::new(completions.into()),
        }
    }
}

impl Display for Full {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("Full")
    }
}

#[async_trait]
impl MultipartUpload for FullUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let left = |left: usize| left.checked_sub(1);
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        match self.completions.fetch_update(set, get, left) {
            Ok(_) => self.upload.complete().await,
            Err(_) => Err(Error::Generic {
                store: "Full",
                source: "no space left".into(),
            }),
        }
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

#[async_trait]
impl ObjectStore for Full {
    async fn put_opts(
        &self,
        at: &Path,
        data: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.objects.put_opts(at, data, options).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Ok(Box::new(FullUpload {
            upload: self.objects.put_multipart_opts(at, options).await?,
            completions: Arc::clone(&self.completions),
        }))
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        self.objects.get_opts(at, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.objects.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.objects.copy_opts(from, to, options).await
    }
}

async fn objects(store: &Full) -> usize {
    store.list(None).count().await
}

#[tokio::test]
async fn all_files_of_a_statement_appear_or_none() {
    let config = SessionConfig::new()
        .with_target_partitions(2)
        .with_batch_size(100);
    let fixture = Fixture::with_config(config);
    for (table, partitioned, completions) in [
        (
            "CREATE EXTERNAL TABLE t (a BIGINT, p BIGINT) STORED AS VECTILE",
            "",
            2,
        ),
        (
            "CREATE EXTERNAL TABLE t (a BIGINT, p BIGINT) STORED AS VECTILE PARTITIONED BY (p)",
            "PARTITIONED BY (p)",
            30,
        ),
    ] {
        let store = Arc::new(Full::after(completions));
        let url = ObjectStoreUrl::parse("full://lake").unwrap();
        fixture
            .ctx
            .register_object_store(url.as_ref(), Arc::clone(&store) as _);
        fixture
            .run(&format!("{table} LOCATION 'full://lake/t/'"))
            .await
            .unwrap();
        let rows = "SELECT value AS a, value % 40 AS p FROM generate_series(1, 10000)";
        for sql in [
            format!("INSERT INTO t {rows}"),
            format!("COPY ({rows}) TO 'full://lake/t/' STORED AS VECTILE {partitioned}"),
        ] {
            store.completions.store(completions, Ordering::SeqCst);
            let error = fixture.run(&sql).await.unwrap_err();
            assert!(error.to_string().contains("no space left"), "{error}");
            assert_eq!(objects(&store).await, 0, "{sql}");
        }
        store.completions.store(1000, Ordering::SeqCst);
        fixture.run(&format!("INSERT INTO t {rows}")).await.unwrap();
        assert!(objects(&store).await > completions);
        let text = fixture.answer("SELECT count(*) FROM t").await;
        assert!(text.contains("| 10000 "), "{text}");
        fixture.run("DROP TABLE t").await.unwrap();
    }
}

#[tokio::test]
async fn writers_take_their_memory_from_the_pool() {
    let limit = 4 << 20;
    let runtime = RuntimeEnvBuilder::new()
        .with_memory_limit(limit, 1.0)
        .build_arc()
        .unwrap();
    let config = SessionConfig::new().with_target_partitions(2);
    let ctx = SessionContext::new_with_config_rt(config, runtime);
    register(&ctx).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let fixture = Fixture { ctx, dir };
    // 8 MB of values that do not compress: row groups have to end early.
    let rows = "SELECT random() AS a, random() AS b FROM generate_series(1, 500000)";
    let one = fixture.path("one.vectile");
    let sql = format!("COPY ({rows}) TO '{}' STORED AS VECTILE", one.display());
    fixture.run(&sql).await.unwrap();
    // So little memory does not suffice for 400 files at once.
    let many = fixture.path("many");
    let rows = "SELECT random() AS a, repeat('x', 500) AS b, value % 400 AS p FROM generate_series(1, 100000)";
    let sql = format!(
        "COPY ({rows}) TO '{}/' STORED AS VECTILE PARTITIONED BY (p)",
        many.display()
    );
    let error = fixture.run(&sql).await.unwrap_err().to_string();
    assert!(error.contains("VectileSink"), "{error}");
    assert_eq!(fixture.ctx.runtime_env().memory_pool.reserved(), 0);
    assert!(crate::write::files_in(&many).is_empty());
}

/// Two files of different rows, and the first of them as the table `t`.
async fn two_versions(row_groups: usize) -> Fixture {
    let config = SessionConfig::new()
        .with_target_partitions(1)
        .with_batch_size(1024);
    let fixture = Fixture::with_config(config);
    for (name, offset) in [("t", 0), ("new", 1_000_000)] {
        let path = fixture.path(&format!("{name}.vectile"));
        let rows = row_groups * 1024;
        let sql = format!(
            "COPY (SELECT value + {offset} AS a FROM generate_series(1, {rows})) TO '{}' \
             STORED AS VECTILE OPTIONS (row_group_rows 1024)",
            path.display()
        );
        fixture.run(&sql).await.unwrap();
    }
    fixture.register("t", &fixture.path("t.vectile")).await;
    fixture
}

fn is_changed(error: &DataFusionError) -> bool {
    error.to_string().contains("changed while it was read")
}

/// A file that is renamed over stays open, so that the scan ends as it began; after a write in place it fails.
#[tokio::test]
async fn a_file_replaced_while_it_is_scanned_is_read_as_one_version_or_not_at_all() {
    type Replace = fn(&FilePath, &FilePath);
    let by_name: Replace = |old, new| fs::rename(new, old).unwrap();
    let in_place: Replace = |old, new| assert!(fs::copy(new, old).unwrap() > 0);
    for (verify, replace, fails) in [
        (true, by_name, false),
        (false, by_name, false),
        (true, in_place, true),
        (false, in_place, true),
    ] {
        let fixture = two_versions(50).await;
        let sql = format!("SET vectile.verify_checksums = {verify}");
        fixture.run(&sql).await.unwrap();
        let frame = fixture.ctx.sql("SELECT a FROM t").await.unwrap();
        let plan = frame.create_physical_plan().await.unwrap();
        assert_eq!(plan.output_partitioning().partition_count(), 1);
        let mut stream = plan.execute(0, fixture.ctx.task_ctx()).unwrap();
        let mut rows = stream.next().await.unwrap().unwrap().num_rows();
        replace(&fixture.path("t.vectile"), &fixture.path("new.vectile"));
        let mut end = None;
        while let Some(batch) = stream.next().await {
            match batch {
                Ok(batch) => {
                    let values = batch.column(0);
                    let values = datafusion::arrow::array::AsArray::as_primitive::<
                        datafusion::arrow::datatypes::Int64Type,
                    >(values);
                    assert!(values.values().iter().all(|&value| value < 1_000_000));
                    rows += batch.num_rows();
                }
                Err(error) => end = Some(error),
            }
        }
        match end {
            Some(error) => assert!(fails && is_changed(&error), "{error}"),
            None => {
                assert!(!fails, "the scan noticed nothing");
                assert_eq!(rows, 50 * 1024);
            }
        }
        // The next query reads the new version.
        let text = fixture.answer("SELECT min(a) FROM t").await;
        assert!(text.contains("1000001"), "{text}");
    }
}

#[tokio::test]
async fn a_file_replaced_after_it_was_listed_is_an_error_once() {
    let fixture = two_versions(3).await;
    let frame = fixture.ctx.sql("SELECT a FROM t").await.unwrap();
    let plan = frame.create_physical_plan().await.unwrap();
    fs::rename(fixture.path("new.vectile"), fixture.path("t.vectile")).unwrap();
    let collected = datafusion::physical_plan::collect(plan, fixture.ctx.task_ctx()).await;
    let error = collected.unwrap_err();
    assert!(is_changed(&error), "{error}");
    let text = fixture.answer("SELECT min(a) FROM t").await;
    assert!(text.contains("1000001"), "{text}");
}
