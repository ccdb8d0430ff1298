//! Tables of ORC files, compared with the same rows in memory.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::ipc::reader::FileReader;
use datafusion::error::DataFusionError;
use vectile_orc::Error;

use crate::support::{Fixture, metric};

pub fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../orc/tests/data")
        .join(name)
}

/// The rows of an Arrow file.
fn rows(name: &str) -> RecordBatch {
    let reader = FileReader::try_new(fs::File::open(data(name)).unwrap(), None).unwrap();
    let schema = reader.schema();
    let batches: Vec<RecordBatch> = reader.map(Result::unwrap).collect();
    concat_batches(&schema, &batches).unwrap()
}

impl Fixture {
    pub async fn create(&self, table: &str, path: &Path, rest: &str) {
        let path = path.display();
        self.run(&format!(
            "CREATE EXTERNAL TABLE {table} STORED AS ORC {rest} LOCATION '{path}'"
        ))
        .await
        .unwrap();
    }
}

/// The rows of `scan` as `packed` in an ORC file, and as `plain` in memory.
async fn fixture() -> Fixture {
    let fixture = Fixture::empty();
    fixture
        .create("packed", &data("scan.stripes.orc"), "")
        .await;
    fixture
        .ctx
        .register_batch("plain", rows("scan.arrow"))
        .unwrap();
    fixture
}

#[tokio::test]
async fn queries_have_the_answers_of_the_rows() {
    let fixture = fixture().await;
    for sql in [
        "SELECT * FROM {t} ORDER BY id",
        "SELECT count(*), count(price), sum(id), min(name), max(name) FROM {t}",
        "SELECT name, flag, id + 1 FROM {t} WHERE id BETWEEN 1990 AND 2010 ORDER BY id",
        "SELECT id FROM {t} WHERE key = 39595",
        "SELECT id FROM {t} WHERE key IN (39595, 1, 7919) ORDER BY id",
        "SELECT count(*) FROM {t} WHERE nan > 1e9",
        "SELECT count(*) FROM {t} WHERE price IS NULL",
        "SELECT count(*) FROM {t} WHERE late IS NOT NULL AND day < DATE '1970-02-20'",
        "SELECT id FROM {t} WHERE name LIKE 'name 99%' ORDER BY id",
        "SELECT id FROM {t} WHERE moment >= TIMESTAMP '1970-05-01T00:00:00' ORDER BY id LIMIT 3",
        "SELECT id FROM {t} WHERE amount = 12.34",
        "SELECT flag, sum(amount), avg(price) FROM {t} GROUP BY flag ORDER BY flag",
        "SELECT id FROM {t} ORDER BY key DESC LIMIT 7",
        "SELECT count(*) FROM {t} a JOIN {t} b ON a.id = b.key WHERE b.id < 100",
    ] {
        fixture.same(sql).await;
    }
    assert_eq!(fixture.executed("SELECT id FROM packed LIMIT 5").await.1, 5);
    assert_eq!(
        fixture.executed("SELECT id FROM packed LIMIT 2500").await.1,
        2500
    );
}

/// Answers from statistics equal answers from the rows.
#[tokio::test]
async fn statistics_claim_no_more_than_the_rows_have() {
    let fixture = fixture().await;
    for column in [
        "id", "key", "name", "day", "price", "nan", "amount", "moment", "flag", "late",
    ] {
        fixture
            .same(&format!(
                "SELECT min({column}), max({column}), count({column}) FROM {{t}}"
            ))
            .await;
    }
    let plan = fixture
        .plan("SELECT min(id), max(name), count(*) FROM packed")
        .await;
    assert!(plan.contains("PlaceholderRowExec"), "{plan}");
    // Statistics leave out NaN.
    let plan = fixture.plan("SELECT max(nan) FROM packed").await;
    assert!(!plan.contains("PlaceholderRowExec"), "{plan}");
}

#[tokio::test]
async fn every_type_can_be_queried() {
    let fixture = Fixture::empty();
    let expected = rows("types.arrow");
    for name in [
        "types.v1-none.orc",
        "types.v1-zlib.orc",
        "types.v2-zstd-dictionary.orc",
        "types.v2-lz4.orc",
    ] {
        fixture.create("types", &data(name), "").await;
        for (index, field) in expected.schema().fields().iter().enumerate() {
            let sql = format!("SELECT \"{}\" FROM types", field.name());
            let actual = fixture.run(&sql).await.unwrap();
            let actual = concat_batches(&actual[0].schema(), &actual).unwrap();
            let expected = expected.column(index);
            let same = |expected: &ArrayRef| actual.column(0) == expected;
            // Field names of maps differ, and unions have no casts.
            let expected = cast(expected, actual.column(0).data_type());
            let expected =
                expected.unwrap_or_else(|_| Arc::clone(rows("types.arrow").column(index)));
            let has_nan = field.name().starts_with("double");
            assert!(same(&expected) || has_nan, "{name}, {field}");
        }
        fixture.run("DROP TABLE types").await.unwrap();
    }
}

#[tokio::test]
async fn directories_globs_and_partitions() {
    let fixture = Fixture::empty();
    for (year, name) in [("2013", "a.orc"), ("2013", "b.orc"), ("2014", "a.orc")] {
        let folder = fixture.path("t").join(format!("year={year}"));
        fs::create_dir_all(&folder).unwrap();
        fs::copy(data("scan.stripes.orc"), folder.join(name)).unwrap();
    }
    fixture
        .create("parts", &fixture.path("t"), "PARTITIONED BY (year)")
        .await;
    let answer = fixture
        .answer("SELECT year, count(*), sum(id) FROM parts GROUP BY year ORDER BY year")
        .await;
    assert!(answer.contains("| 2013 | 12000 "), "{answer}");
    assert!(answer.contains("| 2014 | 6000 "), "{answer}");
    let (plan, rows) = fixture
        .executed("SELECT * FROM parts WHERE year = '2014' AND id < 10")
        .await;
    assert_eq!((rows, metric(&plan, "rows_decoded")), (10, 10));
    fixture
        .create("folder", &fixture.path("t/year=2013/"), "")
        .await;
    fixture
        .create("globbed", &fixture.path("t/year=2013/a*.orc"), "")
        .await;
    for (table, count) in [("folder", "12000"), ("globbed", "6000")] {
        let answer = fixture
            .answer(&format!("SELECT count(id + 1) FROM {table}"))
            .await;
        assert!(answer.contains(count), "{answer}");
    }
}

#[tokio::test]
async fn only_needed_data_is_read() {
    let fixture = fixture().await;
    let (plan, rows) = fixture
        .executed("SELECT id FROM packed WHERE id >= 5990")
        .await;
    assert_eq!(rows, 10);
    assert_eq!(metric(&plan, "row_groups_pruned_statistics"), 2);
    assert_eq!(metric(&plan, "vectors_pruned_statistics"), 1);
    let bytes = metric(&plan, "bytes_scanned");
    assert!((100..20_000).contains(&bytes), "{bytes}");
    let (plan, rows) = fixture
        .executed("SELECT * FROM packed WHERE key = 39595")
        .await;
    assert_eq!(
        (rows, metric(&plan, "row_groups_pruned_by_bloom_filter")),
        (1, 2)
    );
    let plan = fixture.plan("SELECT id FROM packed WHERE id >= 5990").await;
    assert!(
        plan.contains("file_type=orc") && plan.contains("predicate=id"),
        "{plan}"
    );
}

#[tokio::test]
async fn errors_name_the_location() {
    let fixture = Fixture::empty();
    let mut bytes = fs::read(data("scan.stripes.orc")).unwrap();
    // The first values of the first stripe: an integer run without an end.
    let metadata = fixture_metadata(&data("scan.stripes.orc")).await.unwrap();
    let stream = metadata.stripes()[0]
        .streams
        .iter()
        .find(|stream| stream.column == 1 && stream.kind == vectile_orc::StreamKind::Data);
    let range = stream.unwrap().bytes.clone();
    bytes[range.start as usize..range.end as usize].fill(0xff);
    let path = fixture.path("t.orc");
    fs::write(&path, bytes).unwrap();
    fixture.create("broken", &path, "").await;
    let error = fixture.run("SELECT id FROM broken").await.unwrap_err();
    let DataFusionError::External(error) = error.find_root() else {
        panic!("{error}");
    };
    let error = error.downcast_ref::<Error>().unwrap();
    assert!(matches!(error, Error::Corrupt { .. }), "{error}");
    let message = error.to_string();
    assert!(
        message.contains("t.orc, stripe 0, column 'id', stream DATA: "),
        "{message}"
    );
    let error = fixture
        .run("INSERT INTO broken VALUES (1)")
        .await
        .unwrap_err();
    assert!(!error.to_string().is_empty());
    fs::write(&path, "no ORC file").unwrap();
    let create = format!(
        "CREATE EXTERNAL TABLE other STORED AS ORC LOCATION '{}'",
        path.display()
    );
    let error = fixture.run(&create).await.unwrap_err().to_string();
    assert!(error.contains("t.orc is not an ORC file"), "{error}");
}

/// The metadata at the end of a file; `None` if it cannot be read.
pub async fn fixture_metadata(path: &Path) -> Option<vectile_orc::Metadata> {
    use object_store::{ObjectStore, ObjectStoreExt, local::LocalFileSystem};
    let store: Arc<dyn ObjectStore> = Arc::new(LocalFileSystem::new());
    let location = object_store::path::Path::from_filesystem_path(path).unwrap();
    let meta = store.head(&location).await.unwrap();
    vectile_orc::read_metadata(&store, &meta).await.ok()
}

/// The CPU decodes the columns; on the device they are like any others.
#[tokio::test]
async fn kernels_read_columns_of_orc_files() {
    let Some(fixture) = Fixture::on_emulator() else {
        return;
    };
    fixture
        .create("packed", &data("scan.stripes.orc"), "")
        .await;
    fixture
        .ctx
        .register_batch("plain", rows("scan.arrow"))
        .unwrap();
    fixture.run("SET vectile.gpu = 'require'").await.unwrap();
    for sql in [
        "SELECT count(*) a, sum(id) b, min(price) c, max(amount) d, sum(amount) e FROM {t} WHERE id % 3 = 1",
        "SELECT day, sum(key) a, count(late) b FROM {t} WHERE price > 100 GROUP BY day ORDER BY day",
        "SELECT id, price FROM {t} WHERE key < 1000 ORDER BY id",
    ] {
        fixture.same_rows(sql).await;
    }
    let (plan, _) = fixture
        .executed("SELECT sum(key) FROM packed WHERE id % 3 = 1")
        .await;
    assert!(metric(&plan, "bytes_cached") > 0);
}

impl Fixture {
    /// Like [`Fixture::same`], for queries with a table that cannot be on the GPU.
    async fn same_rows(&self, sql: &str) {
        let packed = self.answer(&sql.replace("{t}", "packed")).await;
        self.run("SET vectile.gpu = 'off'").await.unwrap();
        let plain = self.answer(&sql.replace("{t}", "plain")).await;
        self.run("SET vectile.gpu = 'require'").await.unwrap();
        assert_eq!(packed, plain, "{sql}");
    }
}
