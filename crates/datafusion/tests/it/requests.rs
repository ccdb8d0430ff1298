//! Requests to object stores.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::BoxStream;
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use vectile_datafusion::{VectileReadOptions, VectileSessionContextExt};

use crate::support::Fixture;

/// A store in memory that records reads.
#[derive(Debug, Default)]
struct Noting {
    store: InMemory,
    heads: Mutex<Vec<String>>,
    gets: Mutex<Vec<(String, Range<u64>)>>,
    /// Current and maximum number of concurrent reads.
    reads: AtomicUsize,
    most_reads: AtomicUsize,
}

impl Noting {
    /// Returns the reads since the last call: files whose size was requested, and ranges of files.
    fn take(&self) -> (Vec<String>, Vec<(String, Range<u64>)>) {
        let heads = std::mem::take(&mut *self.heads.lock().unwrap());
        let gets = std::mem::take(&mut *self.gets.lock().unwrap());
        (heads, gets)
    }
}

impl fmt::Display for Noting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Noting {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.store.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.store.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let is_head = options.head;
        if !is_head {
            let reads = self.reads.fetch_add(1, Ordering::Relaxed) + 1;
            self.most_reads.fetch_max(reads, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(2)).await;
            self.reads.fetch_sub(1, Ordering::Relaxed);
        }
        let result = self.store.get_opts(location, options).await?;
        match is_head {
            true => self.heads.lock().unwrap().push(location.to_string()),
            false => {
                let get = (location.to_string(), result.range.clone());
                self.gets.lock().unwrap().push(get);
            }
        }
        Ok(result)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

/// A session with such a store behind `mem://test/`.
fn fixture() -> (Fixture, Arc<Noting>) {
    with_store(Fixture::empty())
}

fn with_store(fixture: Fixture) -> (Fixture, Arc<Noting>) {
    let store = Arc::new(Noting::default());
    let url = datafusion::datasource::object_store::ObjectStoreUrl::parse("mem://test").unwrap();
    fixture
        .ctx
        .register_object_store(url.as_ref(), Arc::clone(&store) as Arc<dyn ObjectStore>);
    (fixture, store)
}

fn bytes(gets: &[(String, Range<u64>)]) -> u64 {
    gets.iter().map(|(_, range)| range.end - range.start).sum()
}

#[tokio::test]
async fn a_limit_reads_the_columns_it_needs_of_one_row_group() {
    let (fixture, store) = fixture();
    let columns: Vec<String> = (0..20)
        .map(|i| format!("random() * {} AS c{i}", i + 1))
        .collect();
    let copy = format!(
        "COPY (SELECT {} FROM generate_series(1, 40960)) TO 'mem://test/wide.vectile' \
         STORED AS VECTILE OPTIONS (row_group_rows 4096)",
        columns.join(", ")
    );
    fixture.run(&copy).await.unwrap();
    fixture.run("SET vectile.cache_memory = 0").await.unwrap();
    let options = VectileReadOptions::default();
    let url = "mem://test/wide.vectile";
    fixture
        .ctx
        .register_vectile("wide", url, options)
        .await
        .unwrap();
    store.take();

    fixture.run("SELECT sum(c0 + c1) FROM wide").await.unwrap();
    let (_, gets) = store.take();
    let two_columns = bytes(&gets);
    for (sql, most) in [
        ("SELECT c0, c1 FROM wide LIMIT 10", two_columns / 9),
        ("SELECT * FROM wide LIMIT 10", two_columns * 10 / 9),
        ("SELECT c0, c1 FROM wide LIMIT 5000", two_columns * 2 / 9),
        // When files are split, it is not known that the first rows suffice.
        (
            "SELECT c0, c1 FROM wide WHERE c0 >= 0 LIMIT 10",
            two_columns * 2 / 9,
        ),
    ] {
        fixture.run(sql).await.unwrap();
        let (heads, gets) = store.take();
        assert!(
            bytes(&gets) <= most,
            "{sql}: {} of {most} bytes, {gets:?}",
            bytes(&gets)
        );
        assert_eq!(heads.len(), 1, "{sql}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_gpu_has_many_row_groups_read_at_a_time() {
    let Some(fixture) = Fixture::on_emulator() else {
        return;
    };
    let (fixture, store) = with_store(fixture);
    let copy = "COPY (SELECT value AS v FROM generate_series(1, 81920)) TO 'mem://test/v.vectile' \
                STORED AS VECTILE OPTIONS (row_group_rows 2048)";
    fixture.run(copy).await.unwrap();
    let (url, options) = ("mem://test/v.vectile", VectileReadOptions::default());
    let registered = fixture.ctx.register_vectile("numbers", url, options).await;
    registered.unwrap();
    fixture.run("SET vectile.gpu = 'require'").await.unwrap();
    store.most_reads.store(0, Ordering::Relaxed);
    let answer = fixture.answer("SELECT sum(v) AS s FROM numbers").await;
    assert!(answer.contains("3355484160"), "{answer}");
    // Four for each of the session's two partitions.
    assert_eq!(store.most_reads.load(Ordering::Relaxed), 8);
}

#[tokio::test]
async fn a_filter_of_a_partition_opens_its_files_only() {
    let (fixture, store) = fixture();
    let copy = "COPY (SELECT value AS v, concat('k', value % 10) AS k FROM generate_series(1, 1000)) \
                TO 'mem://test/tree/' STORED AS VECTILE PARTITIONED BY (k)";
    fixture.run(copy).await.unwrap();
    fixture
        .run(
            "CREATE EXTERNAL TABLE tree (v BIGINT, k VARCHAR) STORED AS VECTILE \
             PARTITIONED BY (k) LOCATION 'mem://test/tree/'",
        )
        .await
        .unwrap();
    store.take();
    let answer = fixture
        .answer("SELECT count(*), sum(v) FROM tree WHERE k = 'k3'")
        .await;
    assert!(answer.contains("| 100      | 49800"), "{answer}");
    let (_, gets) = store.take();
    assert!(!gets.is_empty());
    assert!(
        gets.iter().all(|(file, _)| file.contains("k=k3")),
        "{gets:?}"
    );
}
