//! `COPY TO` and `INSERT INTO`.

use std::fs;
use std::path::Path;

use vectile_datafusion::{VectileReadOptions, VectileSessionContextExt};

use crate::support::{Fixture, ROWS};

pub fn files_in(dir: &Path) -> Vec<String> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        match entry.path().is_dir() {
            true => files.extend(files_in(&entry.path())),
            false => files.push(entry.file_name().into_string().unwrap()),
        }
    }
    files
}

#[tokio::test]
async fn copies_to_one_file_or_to_many() {
    let fixture = Fixture::new().await;
    let text = fixture
        .answer(&format!(
            "COPY plain TO '{}' STORED AS VECTILE",
            fixture.path("one.vectile").display()
        ))
        .await;
    assert!(text.contains("10000"), "{text}");
    assert!(fixture.path("one.vectile").is_file());

    fixture
        .run("SET datafusion.execution.minimum_parallel_output_files = 3")
        .await
        .unwrap();
    fixture
        .run("SET datafusion.execution.batch_size = 1000")
        .await
        .unwrap();
    let dir = fixture.path("many");
    fixture
        .run(&format!(
            "COPY (SELECT * FROM packed) TO '{}/' STORED AS VECTILE",
            dir.display()
        ))
        .await
        .unwrap();
    let files = files_in(&dir);
    assert_eq!(files.len(), 3);
    assert!(
        files.iter().all(|file| file.ends_with(".vectile")),
        "{files:?}"
    );
    fixture.register("many", &dir).await;
    assert_eq!(fixture.executed("SELECT * FROM many").await.1, ROWS);
}

/// DataFusion takes `[`, `*` and `?` for those of a glob, and would write to the directory before them.
#[tokio::test]
async fn copies_are_where_they_are_named() {
    let fixture = Fixture::empty();
    for name in ["new[1].vectile", "a*/b?.vectile"] {
        let path = fixture.path(name);
        let copy = format!("COPY (SELECT 1 AS a) TO '{}'", path.display());
        fixture.run(&copy).await.unwrap();
        assert!(path.is_file(), "{name}: {:?}", files_in(fixture.dir.path()));
        for location in [path.as_path(), path.parent().unwrap()] {
            let location = location.to_str().unwrap();
            let read = fixture
                .ctx
                .read_vectile(location, VectileReadOptions::default());
            assert_eq!(read.await.unwrap().count().await.unwrap(), 1, "{location}");
        }
    }
    let path = fixture.path("many[2]");
    let copy = format!(
        "COPY (SELECT 1 AS a) TO '{}/' STORED AS VECTILE",
        path.display()
    );
    fixture.run(&copy).await.unwrap();
    assert_eq!(files_in(&path).len(), 1);
    assert_eq!(files_in(fixture.dir.path()).len(), 3);
}

#[tokio::test]
async fn inserts_make_files_that_the_table_has() {
    let fixture = Fixture::empty();
    let table = |name: &str, glob: &str| {
        let dir = fixture.dir.path().display();
        format!("CREATE EXTERNAL TABLE {name} (a BIGINT) STORED AS VECTILE LOCATION '{dir}/{glob}'")
    };
    fixture.run(&table("some", "new*.vectile")).await.unwrap();
    let error = fixture
        .run("INSERT INTO some VALUES (1)")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("is a glob"), "{error}");
    assert!(files_in(fixture.dir.path()).is_empty());
    fixture
        .run(&table("all_of_them", "*.vectile"))
        .await
        .unwrap();
    fixture
        .run("INSERT INTO all_of_them VALUES (1)")
        .await
        .unwrap();
    let text = fixture.answer("SELECT sum(a) FROM all_of_them").await;
    assert!(text.contains("| 1 "), "{text}");
}

#[tokio::test]
async fn inserts_append_files() {
    let fixture = Fixture::empty();
    let dir = fixture.path("t");
    fs::create_dir(&dir).unwrap();
    let sql = format!(
        "CREATE EXTERNAL TABLE t (a BIGINT, b VARCHAR) STORED AS VECTILE LOCATION '{}/'",
        dir.display()
    );
    fixture.run(&sql).await.unwrap();
    for i in 0..3 {
        let text = fixture
            .answer(&format!("INSERT INTO t VALUES ({i}, 'x'), ({i}, NULL)"))
            .await;
        assert!(text.contains('2'), "{text}");
    }
    let text = fixture
        .answer("SELECT count(*) AS n, count(b) AS b, sum(a) AS s FROM t")
        .await;
    assert!(text.contains("| 6 | 3 | 6 |"), "{text}");
    let error = fixture
        .run("INSERT OVERWRITE t VALUES (1, 'y')")
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("overwriting Vectile tables"),
        "{error}"
    );
}

#[tokio::test]
async fn inserts_into_a_partitioned_tree() {
    let fixture = Fixture::empty();
    let dir = fixture.path("t");
    fs::create_dir(&dir).unwrap();
    let sql = format!(
        "CREATE EXTERNAL TABLE t (a BIGINT, p VARCHAR) STORED AS VECTILE PARTITIONED BY (p) LOCATION '{}/'",
        dir.display()
    );
    fixture.run(&sql).await.unwrap();
    fixture
        .run("INSERT INTO t VALUES (1, 'x'), (2, 'y'), (3, 'x')")
        .await
        .unwrap();
    assert!(dir.join("p=x").is_dir() && dir.join("p=y").is_dir());
    let text = fixture
        .answer("SELECT sum(a) AS s FROM t WHERE p = 'x'")
        .await;
    assert!(text.contains("| 4 |"), "{text}");
}

#[tokio::test]
async fn options_choose_row_groups_and_encodings() {
    let fixture = Fixture::new().await;
    let path = fixture.path("pinned.vectile");
    let sql = format!(
        "COPY (SELECT id, name FROM plain) TO '{}' STORED AS VECTILE \
         OPTIONS (row_group_rows 1024, 'encoding.id' 'plain', 'encoding.name' 'fsst')",
        path.display()
    );
    fixture.run(&sql).await.unwrap();
    let store: std::sync::Arc<dyn object_store::ObjectStore> =
        std::sync::Arc::new(object_store::local::LocalFileSystem::new());
    let location = object_store::path::Path::from_filesystem_path(&path).unwrap();
    let object = object_store::ObjectStoreExt::head(store.as_ref(), &location)
        .await
        .unwrap();
    let metadata = vectile_file::read_metadata(&store, &object).await.unwrap();
    assert_eq!(metadata.num_row_groups(), ROWS.div_ceil(1024));
    for group in metadata.row_groups() {
        assert!(
            group.columns[0].encoding.starts_with("plain"),
            "{}",
            group.columns[0].encoding
        );
        assert!(
            group.columns[1].encoding.contains("fsst"),
            "{}",
            group.columns[1].encoding
        );
    }
    for (options, message) in [
        ("squeeze 'zstd'", "there is no option 'squeeze'"),
        ("compression 'brotli'", "option 'compression'"),
        ("'encoding.nope' 'fsst'", "there is no column 'nope'"),
        ("bloom_filter 'id,nope'", "there is no column 'nope'"),
        ("bloom_filter 'id', bloom_filter_fpp 2", "between 0 and 1"),
        (
            "replace true, bloom_filter 'flag'",
            "no Bloom filters of Boolean",
        ),
        ("'encoding.id' 'zip'", "encoding.id"),
    ] {
        let sql = format!(
            "COPY plain TO '{}' STORED AS VECTILE OPTIONS ({options})",
            path.display()
        );
        let error = fixture.run(&sql).await.unwrap_err();
        assert!(error.to_string().contains(message), "{error}");
    }
}

#[tokio::test]
async fn a_query_that_fails_leaves_no_file() {
    let fixture = Fixture::new().await;
    let path = fixture.path("failed.vectile");
    let sql = format!(
        "COPY (SELECT id, 1 / (id - 9000) AS x FROM plain) TO '{}' STORED AS VECTILE OPTIONS (row_group_rows 1024)",
        path.display()
    );
    let error = fixture.run(&sql).await.unwrap_err();
    assert!(error.to_string().contains("Divide by zero"), "{error}");
    assert!(!path.exists());
}

#[tokio::test]
async fn a_session_sees_what_it_writes() {
    let fixture = Fixture::empty();
    let dir = fixture.path("t");
    fs::create_dir(&dir).unwrap();
    let copy = |name: &str, rows: usize, options: &str| {
        format!(
            "COPY (SELECT value AS a FROM generate_series(1, {rows})) TO '{}' STORED AS VECTILE {options}",
            dir.join(name).display()
        )
    };
    fixture.run(&copy("1.vectile", 10, "")).await.unwrap();
    fixture.register("t", &dir).await;
    let count = async || {
        fixture
            .answer("SELECT count(*) AS n, sum(a) AS s FROM t")
            .await
    };
    assert!(count().await.contains("| 10 | 55 |"));
    fixture.run(&copy("2.vectile", 1, "")).await.unwrap();
    assert!(count().await.contains("| 11 | 56 |"));
    let sql = copy("1.vectile", 3, "OPTIONS (replace true)");
    fixture.run(&sql).await.unwrap();
    assert!(count().await.contains("| 4 | 7 |"));
}

#[tokio::test]
async fn copies_replace_a_file_only_with_the_option() {
    let fixture = Fixture::empty();
    let path = fixture.path("t.vectile");
    let copy = |rows: &str, options: &str| {
        let path = path.display();
        format!("COPY ({rows}) TO '{path}' STORED AS VECTILE {options}")
    };
    fixture.run(&copy("SELECT 1 AS a", "")).await.unwrap();
    let before = fs::read(&path).unwrap();
    let error = fixture.run(&copy("SELECT 2 AS a", "")).await.unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("exists") && message.contains("replace"),
        "{message}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    let sql = copy("SELECT 2 AS a", "OPTIONS (replace true)");
    fixture.run(&sql).await.unwrap();
    fixture.register("t", &path).await;
    let text = fixture.answer("SELECT a FROM t").await;
    assert!(text.contains("| 2 |"), "{text}");
    // A file may be replaced by a query over itself.
    let sql = copy("SELECT a + 1 AS a FROM t", "OPTIONS (replace true)");
    fixture.run(&sql).await.unwrap();
    let text = fixture.answer("SELECT a FROM t").await;
    assert!(text.contains("| 3 |"), "{text}");
}
