//! `vectile convert`.

use std::fs::File;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema};

use crate::{Workspace, sample};

/// A table with a column of every kind of type, nulls among them, over several vectors.
const TYPES: &str = "
  SELECT value AS i64,
    arrow_cast(value % 7, 'Int8') AS i8,
    arrow_cast(value, 'UInt32') AS u32,
    CASE WHEN value % 3 = 0 THEN NULL ELSE value * 0.01 END AS f64,
    arrow_cast(value * 1.5, 'Float32') AS f32,
    arrow_cast(value, 'Decimal128(20, 3)') AS dec,
    value % 2 = 0 AS flag,
    arrow_cast(arrow_cast(value % 1000, 'Int32'), 'Date32') AS day,
    arrow_cast(value * 1000000, 'Timestamp(Microsecond, Some(\"UTC\"))') AS at,
    CASE WHEN value % 5 = 0 THEN NULL ELSE concat('row ', value, ', \"quoted\"') END AS text,
    arrow_cast(concat('k', value % 4), 'Dictionary(Int32, Utf8)') AS dict,
    arrow_cast(concat('v', value), 'Utf8View') AS view,
    arrow_cast(concat('b', value), 'Binary') AS bin,
    make_array(value, value + 1) AS list,
    named_struct('a', value, 'b', concat('s', value)) AS pair
  FROM range(3000)";

/// A table as `TYPES`, without types that text formats do not distinguish or hold.
const SIMPLE_TYPES: &str = "
  SELECT value AS i64,
    CASE WHEN value % 3 = 0 THEN NULL ELSE value * 0.01 END AS f64,
    value % 2 = 0 AS flag,
    CASE WHEN value % 5 = 0 THEN NULL ELSE concat('row ', value, ', \"quoted\"') END AS text
  FROM range(3000)";

fn schema(workspace: &Workspace, path: &str) -> String {
    let script = format!("DESCRIBE '{path}'");
    workspace.ok(&["sql", "--format", "csv", &script])
}

fn rows(workspace: &Workspace, path: &str) -> serde_json::Value {
    workspace.query(path, "SELECT * FROM t ORDER BY i64")
}

#[test]
fn every_type_survives_the_formats_that_have_it() {
    let w = Workspace::new();
    w.ok(&["sql", TYPES, "-o", "in.vectile"]);
    let expected = rows(&w, "in.vectile");
    assert_eq!(expected.as_array().unwrap().len(), 3000);
    for format in ["parquet", "arrow", "arrows"] {
        let there = format!("there.{format}");
        let back = format!("back_{format}.vectile");
        w.ok(&["convert", "in.vectile", &there, "--quiet"]);
        w.ok(&["convert", &there, &back, "--quiet"]);
        assert_eq!(rows(&w, &back), expected, "{format}");
        assert_eq!(schema(&w, &back), schema(&w, "in.vectile"), "{format}");
    }
}

#[test]
fn values_survive_text_formats() {
    let w = Workspace::new();
    w.ok(&["sql", SIMPLE_TYPES, "-o", "in.vectile"]);
    let expected = rows(&w, "in.vectile");
    for format in [
        "csv",
        "csv.gz",
        "csv.zst",
        "json",
        "jsonl",
        "ndjson.gz",
        "json.zst",
    ] {
        let there = format!("there.{format}");
        let back = format!("back_{format}.vectile");
        w.ok(&["convert", "in.vectile", &there, "--quiet"]);
        w.ok(&["convert", &there, &back, "--quiet"]);
        assert_eq!(rows(&w, &back), expected, "{format}");
    }
}

#[test]
fn printed_json_can_be_read_again() {
    let w = Workspace::new();
    let printed = w.ok(&["sql", "--format", "json", SIMPLE_TYPES]);
    w.write("printed.json", &printed);
    w.ok(&["convert", "printed.json", "t.vectile"]);
    assert_eq!(
        rows(&w, "t.vectile"),
        serde_json::from_str::<serde_json::Value>(&printed).unwrap()
    );
}

#[test]
fn dictionaries_of_several_files_become_one() {
    let w = Workspace::new();
    for (name, values) in [("a", "('x'), ('y')"), ("b", "('z'), ('y')")] {
        let sql = format!(
            "SELECT arrow_cast(column1, 'Dictionary(Int32, Utf8)') AS d FROM (VALUES {values})"
        );
        w.ok(&["sql", &sql, "-o", &format!("{name}.vectile")]);
    }
    w.ok(&["convert", "a.vectile", "b.vectile", "both.arrow", "--quiet"]);
    // files are read in parallel: their rows come in any order
    let read = w.query(
        "both.arrow",
        "SELECT d, arrow_typeof(d) AS t FROM t ORDER BY d",
    );
    let values: Vec<_> = read
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["d"].clone())
        .collect();
    assert_eq!(values, ["x", "y", "y", "z"]);
    assert_eq!(read[0]["t"], "Dictionary(Int32, Utf8)");
}

#[test]
fn the_report_names_columns_encodings_and_sizes() {
    let w = Workspace::new();
    let report = w.ok(&["convert", &sample("weather"), "weather.vectile"]);
    let mut lines = report.lines();
    let header: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!(
        header,
        ["column", "type", "encoding", "arrow", "encoded", "ratio"]
    );
    let year = report
        .lines()
        .find(|line| line.starts_with("year "))
        .unwrap();
    assert!(
        year.contains("Int16") && year.contains("constant"),
        "{year}"
    );
    assert!(report.contains("weather.vectile: 26,115 rows"), "{report}");
    assert_eq!(
        w.ok(&["convert", &sample("weather"), "quiet.vectile", "-q"]),
        ""
    );
}

#[test]
fn the_timing_is_of_every_column_and_of_reading() {
    let w = Workspace::new();
    w.ok(&["sql", SIMPLE_TYPES, "-o", "in.parquet"]);
    let report = w.ok(&["convert", "in.parquet", "out.vectile", "--timing"]);
    for words in [
        "zone maps",
        "i64 ",
        "text ",
        "all columns ",
        "reading took ",
    ] {
        assert!(report.contains(words), "{report}");
    }
    let report = w.ok(&["convert", "in.parquet", "out.csv", "--timing"]);
    assert!(report.contains("out.csv: reading took "), "{report}");
    w.fails(2, &["convert", "in.parquet", "o.vectile", "--timing", "-q"]);
}

#[test]
fn encodings_can_be_pinned() {
    let w = Workspace::new();
    let pins = ["--encoding", "temp=alp", "--encoding", "month=dict"];
    let file = sample("weather");
    let mut args = vec!["convert", file.as_str(), "w.vectile"];
    args.extend(pins);
    w.ok(&args);
    let inspected = w.ok(&["inspect", "w.vectile", "--format", "json"]);
    let inspected: serde_json::Value = serde_json::from_str(&inspected).unwrap();
    for (column, encoding) in [("temp", "alp"), ("month", "dict")] {
        let columns = inspected["columns"].as_array().unwrap();
        let found = columns.iter().find(|c| c["name"] == column).unwrap();
        let used = found["encoding"].as_str().unwrap();
        assert_eq!(used.split('(').next(), Some(encoding), "{column}: {used}");
    }
}

#[test]
fn pins_that_cannot_be_are_errors() {
    let w = Workspace::new();
    let planes = sample("planes");
    let error = w.fails(
        2,
        &["convert", &planes, "p.vectile", "--encoding", "year=zip"],
    );
    assert!(error.contains("zip") && error.contains("alp_rd"), "{error}");
    let error = w.fails(2, &["convert", &planes, "p.vectile", "--encoding", "year"]);
    assert!(error.contains("COLUMN=NAME"), "{error}");
    let error = w.fails(
        2,
        &["convert", &planes, "p.parquet", "--encoding", "year=ffor"],
    );
    assert!(error.contains("--encoding is for Vectile files"), "{error}");
    let error = w.fails(
        1,
        &["convert", &planes, "p.vectile", "--encoding", "nope=ffor"],
    );
    assert!(
        error.contains("no column nope") && error.contains("tailnum"),
        "{error}"
    );
    let error = w.fails(
        1,
        &["convert", &planes, "p.vectile", "--encoding", "model=alp"],
    );
    assert!(error.contains("model") && error.contains("alp"), "{error}");
    assert!(w.files().is_empty(), "{:?}", w.files());
}

/// The error of a conversion with `args`.
fn fails_on_planes(w: &Workspace, code: i32, args: &[&str]) -> String {
    let planes = sample("planes");
    let mut all = vec!["convert", planes.as_str(), "p.vectile"];
    all.extend(args);
    w.fails(code, &all)
}

#[test]
fn row_groups_have_the_requested_rows() {
    let w = Workspace::new();
    let planes = sample("planes");
    w.ok(&["convert", &planes, "p.vectile", "--row-group-rows", "1500"]);
    let inspected = w.ok(&["inspect", "p.vectile", "--format", "json"]);
    let inspected: serde_json::Value = serde_json::from_str(&inspected).unwrap();
    let groups = inspected["row_groups"].as_array().unwrap().iter();
    let rows: Vec<_> = groups
        .map(|group| group["rows"].as_u64().unwrap())
        .collect();
    assert_eq!(rows, [1500, 1500, 322]);
    fails_on_planes(&w, 2, &["--row-group-rows", "0", "--force"]);
    let huge = ["--row-group-rows", "99999999999", "--force"];
    let error = fails_on_planes(&w, 1, &huge);
    assert!(error.contains("16777216"), "{error}");
    let error = w.fails(2, &["convert", &planes, "p.csv", "--row-group-rows", "9"]);
    assert!(error.contains("for Vectile files"), "{error}");
}

#[test]
fn columns_can_have_bloom_filters() {
    let w = Workspace::new();
    let planes = sample("planes");
    let args = ["--bloom", "tailnum,Model", "--bloom-fpp", "0.001"];
    w.ok(&[&["convert", planes.as_str(), "p.vectile"][..], &args].concat());
    let inspected = w.ok(&["inspect", "p.vectile", "--format", "json"]);
    let inspected: serde_json::Value = serde_json::from_str(&inspected).unwrap();
    for column in inspected["columns"].as_array().unwrap() {
        let bytes = column["bloom_filter_bytes"].as_u64().unwrap();
        let name = column["name"].as_str().unwrap();
        assert_eq!(bytes > 0, ["tailnum", "model"].contains(&name), "{name}");
        assert_eq!(column["chunks"][0]["bloom_filter_bytes"], bytes);
    }
    let printed = w.ok(&["inspect", "p.vectile"]);
    assert!(printed.contains("Bloom filters: tailnum "), "{printed}");
    let sql = "EXPLAIN ANALYZE SELECT * FROM t WHERE tailnum = 'N55555'";
    let plan = w.ok(&["sql", "-t", "t=p.vectile", sql]);
    let metric = "row_groups_pruned_by_bloom_filter=1";
    assert!(plan.contains(metric), "{plan}");
    for (code, args, expected) in [
        (1, ["--bloom", "tailnumm"], "did you mean tailnum?"),
        (2, ["--bloom-fpp", "0.1"], "--bloom"),
    ] {
        let error = fails_on_planes(&w, code, &[&args[..], &["--force"]].concat());
        assert!(error.contains(expected), "{error}");
    }
    let args = ["--force", "--bloom", "year", "--bloom-fpp", "2"];
    let error = fails_on_planes(&w, 1, &args);
    assert!(error.contains("between 0 and 1"), "{error}");
    w.write("b.csv", "flag\ntrue\nfalse\n");
    let error = w.fails(1, &["convert", "b.csv", "b.vectile", "--bloom", "flag"]);
    assert!(error.contains("no Bloom filters of Boolean"), "{error}");
    let error = w.fails(2, &["convert", "b.csv", "c.csv", "--bloom", "flag"]);
    assert!(error.contains("--bloom is for Vectile files"), "{error}");
}

/// A table in every format that is read differently, and as two files.
fn in_every_format(w: &Workspace) -> Vec<&'static str> {
    let sql = "
      SELECT value AS i, value % 7 AS \"Mod\", concat('name ', value % 100) AS name,
        CASE WHEN value % 3 > 0 THEN value * 0.5 END AS half
      FROM range(5000)";
    let formats = ["in.vectile", "in.parquet", "in.csv", "in.json", "in.arrow"];
    for format in formats {
        w.ok(&["sql", sql, "-o", format]);
    }
    for (file, test) in [("x=1/a.parquet", "<"), ("x=2/b.vectile", ">=")] {
        std::fs::create_dir_all(w.path("in").join(file).parent().unwrap()).unwrap();
        let sql = format!("SELECT * FROM ({sql}) WHERE i {test} 2000");
        w.ok(&["sql", &sql, "-o", &format!("in/{file}")]);
    }
    formats.into_iter().chain(["in"]).collect()
}

#[test]
fn columns_and_rows_can_be_chosen_and_sorted() {
    let w = Workspace::new();
    for input in in_every_format(&w) {
        let columns = ["--columns", "name,Mod"];
        w.ok(&[
            "convert",
            input,
            "c.vectile",
            "--force",
            columns[0],
            columns[1],
        ]);
        let expected = "SELECT name, \"Mod\" FROM t";
        assert_eq!(
            w.query("c.vectile", "SELECT * FROM t"),
            w.query("in.vectile", expected),
            "{input}"
        );

        let mut args = vec!["convert", input, "w.csv", "--force", "-q"];
        args.extend(["--where", "half > 100 AND \"Mod\" IN (1, 3)"]);
        args.extend(["--sort-by", "mod, i desc", "--columns", "name,i"]);
        w.ok(&args);
        let expected = w.ok(&[
            "sql",
            "--format",
            "csv",
            "SELECT name, i FROM 'in.vectile' WHERE half > 100 AND \"Mod\" IN (1, 3) ORDER BY \"Mod\", i DESC",
        ]);
        assert!(expected.lines().count() > 500);
        let made = std::fs::read_to_string(w.path("w.csv")).unwrap();
        assert_eq!(made, expected, "{input}");
    }
    // a column that only the directories have
    let args = ["--columns", "x", "--where", "x = '2'", "-q"];
    w.ok(&[&["convert", "in", "x.vectile"][..], &args].concat());
    let rows = w.query("x.vectile", "SELECT count(*) AS n, min(x) AS x FROM t");
    assert_eq!(rows, serde_json::json!([{"n": 3000, "x": "2"}]));
}

#[test]
fn nulls_sort_as_requested() {
    let w = Workspace::new();
    w.write("in.csv", "a,b\n1,x\n,y\n3,z\n");
    for (order, expected) in [
        ("a", "xzy"),
        ("a desc", "yzx"),
        ("a NULLS FIRST", "yxz"),
        ("a DESC NULLS LAST, b", "zxy"),
    ] {
        let args = ["--sort-by", order, "--columns", "b", "--force", "-q"];
        w.ok(&[&["convert", "in.csv", "out.csv"][..], &args].concat());
        let made = std::fs::read_to_string(w.path("out.csv")).unwrap();
        let made: String = made.lines().skip(1).collect();
        assert_eq!(made, expected, "{order}");
    }
}

#[test]
fn types_survive_sorting_and_timing_says_how_long_it_took() {
    let w = Workspace::new();
    w.ok(&["sql", TYPES, "-o", "in.vectile"]);
    let args = ["--sort-by", "i8 desc, i64", "--timing"];
    let report = w.ok(&[&["convert", "in.vectile", "sorted.vectile"][..], &args].concat());
    assert!(report.contains("filtering and sorting "), "{report}");
    let schemas = ["sorted.vectile", "in.vectile"].map(|path| schema(&w, path));
    assert_eq!(schemas[0], schemas[1]);
    assert_eq!(rows(&w, "sorted.vectile"), rows(&w, "in.vectile"));
    let first = w.query("sorted.vectile", "SELECT i64 FROM t LIMIT 3");
    assert_eq!(
        first,
        serde_json::json!([{"i64": 6}, {"i64": 13}, {"i64": 20}])
    );
}

#[test]
fn choices_that_cannot_be_are_errors() {
    let w = Workspace::new();
    for (code, option, value, expected) in [
        (1, "--columns", "tailnumm", "did you mean tailnum?"),
        (1, "--sort-by", "Yaer desc", "did you mean year?"),
        (1, "--columns", "nope", "columns are tailnum, year"),
        (2, "--columns", "year,year", "twice"),
        (2, "--columns", "year,,type", "name is missing"),
        (2, "--sort-by", "year desc first", "NULLS FIRST|LAST"),
        (1, "--where", "yeer > 2000", "yeer"),
        (1, "--where", "year >", "--where 'year >'"),
        (1, "--where", "year + 1", "it is Int64, not true or false"),
        (1, "--where", "count(*) > 1", "--where"),
        (1, "--where", "year = 2000 ORDER BY year", "--where"),
        (1, "--where", "year IN (SELECT 2000)", "--where"),
        (1, "--where", "model = 1.5x", "--where"),
    ] {
        let error = fails_on_planes(&w, code, &[option, value]);
        assert!(error.contains(expected), "{option} {value}: {error}");
    }
    assert!(w.files().is_empty(), "{:?}", w.files());
}

#[test]
fn several_inputs_become_one_file_in_order() {
    let w = Workspace::new();
    w.write("b.csv", "x,name\n1,one\n2,two\n");
    w.write("a.csv", "name,x,extra\nthree,3,true\n");
    w.ok(&["convert", "b.csv", "a.csv", "all.vectile"]);
    let expected = serde_json::json!([
        {"x": 1, "name": "one", "extra": null},
        {"x": 2, "name": "two", "extra": null},
        {"x": 3, "name": "three", "extra": true},
    ]);
    assert_eq!(w.query("all.vectile", "SELECT * FROM t"), expected);
}

#[test]
fn inputs_that_do_not_fit_together_are_an_error() {
    let w = Workspace::new();
    w.write("a.csv", "x\n1\n");
    w.write("b.csv", "x\nword\n");
    let error = w.fails(1, &["convert", "a.csv", "b.csv", "all.vectile"]);
    assert!(
        error.contains("column x") && error.contains("b.csv"),
        "{error}"
    );
    assert_eq!(w.files(), ["a.csv", "b.csv"]);
}

#[test]
fn a_late_value_of_another_type_is_no_surprise() {
    let w = Workspace::new();
    let mut csv = "x\n".to_string();
    csv.extend((0..5000).map(|row| format!("{row}\n")));
    csv.push_str("word\n");
    w.write("late.csv", &csv);
    w.ok(&["convert", "late.csv", "late.vectile"]);
    let last = w.query("late.vectile", "SELECT max(x) AS m, count(*) AS n FROM t");
    assert_eq!(last, serde_json::json!([{"m": "word", "n": 5001}]));
}

#[test]
fn directories_become_directories() {
    let w = Workspace::new();
    w.write("in/year=2013/a.csv", "x\n1\n");
    w.write("in/year=2014/b.csv", "x\n2\n");
    w.write("in/_SUCCESS", "");
    w.write("in/notes.txt", "not a table");
    let report = w.ok(&["convert", "in", "out/"]);
    assert!(report.contains("2 files: 2 rows"), "{report}");
    let made: Vec<_> = w
        .files()
        .into_iter()
        .filter(|f| f.starts_with("out"))
        .collect();
    assert_eq!(made, ["out/year=2013/a.vectile", "out/year=2014/b.vectile"]);
    let rows = w.query("out", "SELECT x, year FROM t ORDER BY x");
    assert_eq!(
        rows,
        serde_json::json!([{"x": 1, "year": "2013"}, {"x": 2, "year": "2014"}])
    );
}

#[test]
fn a_partitioned_tree_in_one_file_keeps_its_partition_columns() {
    let w = Workspace::new();
    w.write("in/year=2013/a.csv", "x\n1\n");
    w.write("in/year=__HIVE_DEFAULT_PARTITION__/b.csv", "x\n2\n");
    w.ok(&["convert", "in", "all.vectile"]);
    let rows = w.query("all.vectile", "SELECT * FROM t ORDER BY x");
    assert_eq!(
        rows,
        serde_json::json!([{"x": 1, "year": "2013"}, {"x": 2, "year": null}])
    );
}

/// Values that names of directories escape.
#[test]
fn partition_values_survive_writing_and_reading() {
    const ROWS: &str =
        "(1, 'a', 1, true, 1.5, DATE '2024-01-02'), (2, NULL, NULL, NULL, NULL, NULL),
        (3, '', 0, false, 0.0, DATE '1970-01-01'), (4, 'x/y', 5, true, -0.0, DATE '1960-12-31'),
        (5, '100% \u{dc}=1', -7, false, 1e300, DATE '9999-12-31'), (6, '%2F', 9, NULL, NULL, NULL)";
    const COLUMNS: &str = "n BIGINT, s VARCHAR, i INT, b BOOLEAN, f DOUBLE, d DATE";
    let w = Workspace::new();
    for format in ["vectile", "parquet", "csv", "arrow"] {
        let script = format!(
            "CREATE TABLE t ({COLUMNS}) AS VALUES {ROWS};
             COPY t TO '{format}/' STORED AS {format} PARTITIONED BY (s, i, b, f, d);
             CREATE EXTERNAL TABLE p ({COLUMNS}) STORED AS {format} PARTITIONED BY (s, i, b, f, d)
               LOCATION '{format}/';
             INSERT INTO p SELECT n + 10, s, i, b, f, d FROM t;
             CREATE TABLE twice AS SELECT * FROM t UNION ALL SELECT n + 10, s, i, b, f, d FROM t;
             SELECT count(*) AS rows, count(p.s) AS texts, count(p.d) AS dates FROM twice
               JOIN p ON p.n = twice.n AND (p.s IS NOT DISTINCT FROM twice.s)
               AND (p.i IS NOT DISTINCT FROM twice.i) AND (p.b IS NOT DISTINCT FROM twice.b)
               AND (p.f IS NOT DISTINCT FROM twice.f) AND (p.d IS NOT DISTINCT FROM twice.d);
             SELECT count(*) AS everything, count(s) AS s, count(i) AS i, count(d) AS d FROM p;
             SELECT count(*) AS nulls, sum(n) AS n FROM p WHERE s IS NULL;
             SELECT count(*) AS others, sum(n) AS n FROM p WHERE NOT i = 5;
             SELECT count(*) AS others, sum(n) AS n FROM p WHERE s <> 'a' AND d > DATE '1965-01-01';
             SELECT count(*) AS one, sum(n) AS n FROM p WHERE s = 'x/y';
             SELECT count(*) AS empty, sum(n) AS n FROM p WHERE s = '' AND i = 0"
        );
        let lines = w.ok(&["sql", "--format", "csv", &script]);
        let answers: Vec<&str> = lines.lines().filter(|line| line.contains(',')).collect();
        let expected = "rows,texts,dates 12,10,8 everything,s,i,d 12,10,10,8 nulls,n 2,14 others,n 8,70 \
                        others,n 4,36 one,n 2,18 empty,n 2,16";
        assert_eq!(answers.join(" "), expected, "{format}: {lines}");
        let one = format!("{format}.vectile");
        w.ok(&["convert", format, &one, "--quiet"]);
        let converted = w.query(
            &one,
            "SELECT s, i, d FROM t WHERE n IN (2, 3, 5, 6) ORDER BY n",
        );
        let expected = serde_json::json!([
            {"s": null, "i": null, "d": null}, {"s": "", "i": "0", "d": "1970-01-01"},
            {"s": "100% \u{dc}=1", "i": "-7", "d": "9999-12-31"}, {"s": "%2F", "i": "9", "d": null}
        ]);
        assert_eq!(converted, expected, "{format}");
        // types that no statement can name
        let inferred = w.query(
            format,
            "SELECT n, s FROM t WHERE s IS NULL OR i = '5' ORDER BY n",
        );
        let expected = serde_json::json!([
            {"n": 2, "s": null}, {"n": 4, "s": "x/y"}, {"n": 12, "s": null}, {"n": 14, "s": "x/y"}
        ]);
        assert_eq!(inferred, expected, "{format}");
    }
    let null = "COPY (SELECT 1 AS n, '__HIVE_DEFAULT_PARTITION__' AS s) TO 'no/' STORED AS vectile
                PARTITIONED BY (s)";
    assert!(w.fails(1, &["sql", null]).contains("means null"));
    let kept = "COPY (SELECT 1 AS n, CAST(NULL AS VARCHAR) AS s) TO 'no/' STORED AS parquet
                PARTITIONED BY (s) OPTIONS ('execution.keep_partition_by_columns' true)";
    assert!(
        w.fails(1, &["sql", kept])
            .contains("keep_partition_by_columns")
    );
}

#[test]
fn globs_choose_files() {
    let w = Workspace::new();
    w.write("in/a1.csv", "x\n1\n");
    w.write("in/a2.csv", "x\n2\n");
    w.write("in/b1.csv", "x\n4\n");
    w.ok(&["convert", "in/a*.csv", "a.vectile"]);
    assert_eq!(
        w.query("a.vectile", "SELECT sum(x) AS s FROM t"),
        serde_json::json!([{"s": 3}])
    );
}

#[test]
fn a_star_stands_for_a_part_of_a_name() {
    let w = Workspace::new();
    w.write("in/a.csv", "x\n1\n");
    w.write("in/k=1/b.csv", "x\n2\n");
    w.write("in/k=1/c/d.csv", "x\n4\n");
    w.write("in/e/f.csv", "x\n8\n");
    w.write("in/e/g/h.csv", "x\n16\n");
    w.write("in[1]/a.csv", "x\n32\n");
    for (glob, sum) in [
        ("in/*.csv", 3),
        ("in/*/*.csv", 8 + 4),
        ("in/e/*.csv", 8),
        ("in/?/f*", 8),
        ("in/**/*.csv", 31),
        ("in/**/h.csv", 16),
        ("in[1]/*.csv", 32),
    ] {
        w.ok(&["convert", glob, "out.vectile", "--force", "--columns", "x"]);
        let sum = serde_json::json!([{"s": sum}]);
        let query = "SELECT sum(x) AS s FROM t";
        assert_eq!(w.query("out.vectile", query), sum, "{glob}");
        // Partitions of different depths do not form a table.
        if !["in/*.csv", "in/*/*.csv", "in/**/*.csv"].contains(&glob) {
            assert_eq!(w.query(glob, query), sum, "{glob}");
            let sql = format!("CREATE EXTERNAL TABLE t STORED AS CSV LOCATION '{glob}'; {query}");
            let printed = w.ok(&["sql", "--format", "jsonl", &sql]);
            assert_eq!(printed.trim(), sum[0].to_string(), "{glob}");
        }
    }
    let error = w.fails(1, &["sql", "-t", "t=in/*.csv", "SELECT 1"]);
    assert!(error.contains("further directories"), "{error}");
    let error = w.fails(1, &["convert", "in/*/*/*/*.csv", "out.vectile", "--force"]);
    assert!(error.contains("no such file"), "{error}");
}

/// Names that other programs interpret as globs, URLs, escapes or paths, and letters in two forms.
const NAMES: [&str; 12] = [
    "Z\u{fc}rich",
    "Zu\u{308}rich",
    " a b ",
    "50%",
    "%20",
    r"a\b",
    "new[1]",
    "wh?t*",
    "a#1b",
    "a:b",
    "{x}~|^`",
    "it\"s",
];

#[test]
fn names_stay_as_they_are() {
    let w = Workspace::new();
    for (i, name) in NAMES.iter().enumerate() {
        w.write(
            &format!("in/{name}/{name}.csv"),
            &format!("x\n{}\n", 1 << i),
        );
    }
    let sum = serde_json::json!([{"s": (1 << NAMES.len()) - 1, "n": NAMES.len()}]);
    let query = "SELECT sum(x) AS s, count(*) AS n FROM t";
    for (format, out) in [("vectile", "out[1]"), ("parquet", r"o\u%t?")] {
        for _ in 0..2 {
            w.ok(&[
                "convert",
                "in",
                &format!("{out}/"),
                "--force",
                "--to",
                format,
            ]);
            let mut expected: Vec<_> = NAMES
                .iter()
                .map(|name| format!("{out}/{name}/{name}.{format}"))
                .collect();
            expected.sort();
            let mut files = w.files();
            files.retain(|file| file.starts_with(out));
            assert_eq!(files, expected);
        }
        assert_eq!(w.query(out, query), sum, "{format}");
    }
    w.ok(&["convert", "out[1]", "all.vectile"]);
    assert_eq!(w.query("all.vectile", query), sum);
    for name in NAMES {
        w.ok(&[
            "convert",
            &format!("in/{name}/{name}.csv"),
            &format!("{name}.parquet"),
        ]);
        assert!(w.path(&format!("{name}.parquet")).is_file(), "{name}");
    }
}

/// SQL writes to the location that a statement names, and reads from it.
#[test]
fn names_in_statements_stay_as_they_are() {
    let w = Workspace::new();
    let mut script = String::new();
    let mut expected = Vec::new();
    for (i, name) in NAMES.iter().enumerate() {
        for format in ["vectile", "parquet"] {
            script += &format!(
                "COPY (SELECT {i} AS x) TO '{name}.{format}';
                 CREATE EXTERNAL TABLE {format}{i} STORED AS {format} LOCATION '{name}.{format}';
                 CREATE EXTERNAL TABLE d{format}{i} (x BIGINT) STORED AS {format} LOCATION 'd/{name}.{format}/';
                 INSERT INTO d{format}{i} SELECT x + 100 FROM {format}{i};
                 COPY (SELECT {i} + 200 AS x) TO 'd/{name}.{format}/' STORED AS {format};
                 COPY (SELECT x FROM d{format}{i} UNION ALL SELECT x FROM '{name}.{format}') TO '{name}.{i}.csv';\n"
            );
            expected.extend([format!("{name}.{format}")]);
        }
        expected.push(format!("{name}.{i}.csv"));
    }
    w.write("script.sql", &script);
    w.ok(&["sql", "-f", "script.sql", "--format", "csv"]);
    expected.push("script.sql".into());
    let mut files = w.files();
    let in_directories = files.extract_if(.., |file| file.starts_with("d/"));
    assert_eq!(in_directories.count(), 4 * NAMES.len());
    expected.sort();
    assert_eq!(files, expected);
    for (i, name) in NAMES.iter().enumerate() {
        let written = std::fs::read_to_string(w.path(&format!("{name}.{i}.csv"))).unwrap();
        let mut rows: Vec<_> = written.lines().skip(1).map(String::from).collect();
        rows.sort();
        let mut expected = [i, i + 100, i + 200].map(|x| x.to_string());
        expected.sort();
        assert_eq!(rows, expected, "{name}");
    }
}

#[test]
fn formats_can_be_named() {
    let w = Workspace::new();
    w.write("table.data", "x\n1\n");
    w.ok(&[
        "convert",
        "table.data",
        "out.bin",
        "--from",
        "csv",
        "--to",
        "vectile",
    ]);
    w.ok(&["convert", "out.bin", "back.csv", "--from", "vectile"]);
    assert_eq!(
        std::fs::read_to_string(w.path("back.csv")).unwrap(),
        "x\n1\n"
    );
    let error = w.fails(2, &["convert", "table.data", "out", "--from", "csv"]);
    assert!(error.contains("--to names the format"), "{error}");
    let error = w.fails(1, &["convert", "table.data", "out.vectile"]);
    assert!(
        error.contains("no file of a known format") && error.contains("--from"),
        "{error}"
    );
}

#[test]
fn files_are_replaced_only_by_force() {
    let w = Workspace::new();
    w.write("in.csv", "x\n1\n");
    w.write("out.vectile", "precious");
    let error = w.fails(1, &["convert", "in.csv", "out.vectile"]);
    assert!(
        error.contains("already exists") && error.contains("--force"),
        "{error}"
    );
    assert_eq!(
        std::fs::read_to_string(w.path("out.vectile")).unwrap(),
        "precious"
    );
    w.ok(&["convert", "in.csv", "out.vectile", "--force"]);
    assert_eq!(
        w.query("out.vectile", "SELECT x FROM t"),
        serde_json::json!([{"x": 1}])
    );
}

#[test]
fn failures_leave_nothing_and_say_why() {
    let w = Workspace::new();
    w.write("file.csv", "x\n1\n");
    w.write(
        "broken.parquet",
        "this is not Parquet, whatever its name says",
    );
    w.write("broken.vectile", "nor is this Vectile");
    let before = w.files();
    let error = w.fails(1, &["convert", "missing.csv", "out.vectile"]);
    assert!(
        error.contains("missing.csv") && error.contains("no such file"),
        "{error}"
    );
    let error = w.fails(1, &["convert", "broken.parquet", "out.vectile"]);
    assert!(error.contains("broken.parquet"), "{error}");
    let error = w.fails(1, &["convert", "broken.vectile", "out.parquet"]);
    assert!(error.contains("broken.vectile"), "{error}");
    let error = w.fails(1, &["convert", "file.csv", "file.csv/out.vectile"]);
    assert!(
        error.contains("cannot write file.csv/out.vectile"),
        "{error}"
    );
    let error = w.fails(1, &["convert", "file.csv", "nostore://bucket/out.vectile"]);
    assert!(error.contains("nostore"), "{error}");
    assert_eq!(w.files(), before);
}

#[test]
fn types_that_a_format_lacks_are_an_error() {
    let w = Workspace::new();
    w.ok(&["sql", TYPES, "-o", "in.vectile"]);
    let error = w.fails(1, &["convert", "in.vectile", "out.csv"]);
    assert!(
        error.contains("cannot write out.csv") && error.contains("JSON"),
        "{error}"
    );
    assert_eq!(w.files(), ["in.vectile"]);
}

#[test]
fn bad_usage_is_exit_code_2() {
    let w = Workspace::new();
    for args in [
        &["convert"][..],
        &["convert", "only-one"],
        &["convert", "a.csv", "b.vectile", "--to", "xml"],
        &["nonsense"],
        &[],
    ] {
        let run = w.run(args);
        assert_eq!(run.code, 2, "{run:?}");
        assert!(run.stderr.contains("--help"), "{run:?}");
    }
    assert_eq!(w.run(&["--help"]).code, 0);
    assert!(w.ok(&["--version"]).starts_with("vectile "));
}

#[test]
fn columns_may_be_named_as_numbers() {
    let w = Workspace::new();
    w.write("t.csv", "-97.1\n0.5\n1.25\n");
    let report = w.ok(&["convert", "t.csv", "t.vectile", "--encoding", "-97.1=alp"]);
    assert!(report.contains("alp"), "{report}");
}

/// Two columns of one name and type, in formats that can hold that.
#[test]
fn columns_of_one_name_are_refused() {
    let w = Workspace::new();
    let field = Field::new("a", DataType::Int64, true);
    let schema = Arc::new(Schema::new(vec![field.clone(), field]));
    let column = |values: Vec<i64>| Arc::new(Int64Array::from(values)) as ArrayRef;
    let columns = vec![column(vec![1, 2]), column(vec![3, 4])];
    let batch = RecordBatch::try_new(Arc::clone(&schema), columns).unwrap();
    let create = |name| File::create(w.path(name)).unwrap();

    let parquet = parquet::arrow::ArrowWriter::try_new(create("t.parquet"), schema.clone(), None);
    let mut parquet = parquet.unwrap();
    parquet.write(&batch).unwrap();
    parquet.close().unwrap();
    let mut file = arrow::ipc::writer::FileWriter::try_new(create("t.arrow"), &schema).unwrap();
    file.write(&batch).unwrap();
    file.finish().unwrap();
    let stream = arrow::ipc::writer::StreamWriter::try_new(create("t.arrows"), &schema);
    let mut stream = stream.unwrap();
    stream.write(&batch).unwrap();
    stream.finish().unwrap();

    for name in ["t.parquet", "t.arrow", "t.arrows"] {
        let error = w.fails(1, &["convert", name, "t.vectile"]);
        assert!(
            error.contains(name) && error.contains("several columns of the name a"),
            "{error}"
        );
    }
    assert_eq!(w.files(), ["t.arrow", "t.arrows", "t.parquet"]);
}

#[test]
fn integers_beside_floats_stay_exact() {
    let w = Workspace::new();
    w.write("float.csv", "x\n0.5\n");
    w.write("fits.csv", "x\n-9007199254740992\n");
    w.write("large.csv", "x\n1\n9007199254740993\n");
    w.ok(&["convert", "fits.csv", "float.csv", "t.vectile"]);
    assert_eq!(
        w.query("t.vectile", "SELECT x FROM t"),
        serde_json::json!([{"x": -9007199254740992.0}, {"x": 0.5}])
    );
    let error = w.fails(1, &["convert", "float.csv", "large.csv", "u.vectile"]);
    for part in ["large.csv", "column x", "9007199254740993", "Float64"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!w.files().contains(&"u.vectile".to_string()));
}

#[test]
fn of_several_conversions_to_one_file_one_succeeds() {
    let w = Workspace::new();
    for (name, format) in [("a", "vectile"), ("b", "parquet")] {
        let out = format!("{name}.{format}");
        let flights = sample("weather");
        let running: Vec<_> = (0..4)
            .map(|_| {
                let mut command = w.command();
                command.args(["convert", "-q", &flights, &out]);
                command
                    .stderr(std::process::Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        let mut successes = 0;
        for child in running {
            let output = child.wait_with_output().unwrap();
            let error = String::from_utf8(output.stderr).unwrap();
            match output.status.success() {
                true => successes += 1,
                false => assert!(error.contains("--force") && error.contains(&out), "{error}"),
            }
        }
        assert_eq!(successes, 1, "{out}");
        let count = w.query(&out, "SELECT count(*) AS n FROM t");
        assert_eq!(count, serde_json::json!([{"n": 26115}]));
    }
    assert_eq!(w.files(), ["a.vectile", "b.parquet"]);
}

#[test]
fn a_conversion_does_not_read_what_it_wrote_before() {
    let w = Workspace::new();
    w.write("in/a.csv", "x\n1\n");
    w.write("in/deep/b.csv", "x\n2\n");
    let sum = serde_json::json!([{"s": 3, "n": 2}]);
    for _ in 0..2 {
        w.ok(&["convert", "--force", "in", "in/all.vectile"]);
        assert_eq!(
            w.query("in/all.vectile", "SELECT sum(x) AS s, count(*) AS n FROM t"),
            sum
        );
    }
    std::fs::remove_file(w.path("in/all.vectile")).unwrap();
    for _ in 0..2 {
        w.ok(&["convert", "--force", "in", "in/out/"]);
    }
    w.ok(&["convert", "--force", "in/**/*.csv", "in/glob.csv"]);
    w.ok(&["convert", "--force", "in/**/*.csv", "in/glob.csv"]);
    assert_eq!(
        w.files(),
        [
            "in/a.csv",
            "in/deep/b.csv",
            "in/glob.csv",
            "in/out/a.vectile",
            "in/out/deep/b.vectile"
        ]
    );
    assert_eq!(
        std::fs::read_to_string(w.path("in/glob.csv")).unwrap(),
        "x\n1\n2\n"
    );
    // If the output is named as an input it is one, and a directory may be converted in place.
    w.ok(&[
        "convert",
        "--force",
        "in/glob.csv",
        "in/a.csv",
        "in/glob.csv",
    ]);
    assert_eq!(
        std::fs::read_to_string(w.path("in/glob.csv")).unwrap(),
        "x\n1\n2\n1\n"
    );
    w.ok(&["convert", "--force", "--to", "vectile", "in/out", "in/out"]);
    let error = w.fails(1, &["convert", "--force", "in/glo*.csv", "in/glob.csv"]);
    assert!(error.contains("no file to read but OUT"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_link_leads_to_the_file_that_is_replaced() {
    let w = Workspace::new();
    w.write("in.csv", "x\n1\n");
    w.write("real/data.vectile", "old");
    std::os::unix::fs::symlink("real/data.vectile", w.path("link.vectile")).unwrap();
    std::os::unix::fs::symlink("nothing.vectile", w.path("lost.vectile")).unwrap();
    w.fails(1, &["convert", "in.csv", "link.vectile"]);
    w.ok(&["convert", "--force", "in.csv", "link.vectile"]);
    assert!(w.path("link.vectile").is_symlink());
    let one = serde_json::json!([{"x": 1}]);
    assert_eq!(w.query("real/data.vectile", "SELECT * FROM t"), one);
    for force in ["--force", "--quiet"] {
        let error = w.fails(1, &["convert", force, "in.csv", "lost.vectile"]);
        assert!(error.contains("lost.vectile leads to no file"), "{error}");
    }
    assert!(w.path("lost.vectile").is_symlink());
}

#[test]
fn damaged_inputs_are_errors_without_a_panic() {
    let w = Workspace::new();
    w.ok(&["sql", TYPES, "-o", "t.arrow"]);
    let mut bytes = std::fs::read(w.path("t.arrow")).unwrap();
    // The position in the footer of the last batch's length.
    let end = bytes.len();
    let footer_len = i32::from_le_bytes(bytes[end - 10..end - 6].try_into().unwrap()) as usize;
    bytes[end - 10 - footer_len..end - 10].fill(0xff);
    std::fs::write(w.path("t.arrow"), &bytes).unwrap();
    let error = w.fails(1, &["convert", "t.arrow", "t.vectile"]);
    assert!(
        error.contains("t.arrow") && error.contains("damaged"),
        "{error}"
    );
    assert!(!error.contains("panicked"), "{error}");
    assert_eq!(w.files(), ["t.arrow"]);
}

#[test]
fn parquet_gets_the_types_that_it_has() {
    let w = Workspace::new();
    let sql = "SELECT arrow_cast(value, 'Timestamp(Second, None)') AS at,
        arrow_cast(arrow_cast(value, 'Int32'), 'Time32(Second)') AS t,
        arrow_cast(arrow_cast(value * 86400000, 'Int64'), 'Date64') AS d FROM range(3)";
    w.ok(&["sql", sql, "-o", "in.vectile"]);
    w.ok(&["convert", "in.vectile", "there.parquet"]);
    // Reads as a program that ignores Arrow's schema does.
    let options = parquet::arrow::arrow_reader::ArrowReaderOptions::new();
    let reader = parquet::arrow::arrow_reader::ArrowReaderMetadata::load(
        &File::open(w.path("there.parquet")).unwrap(),
        options.with_skip_arrow_metadata(true),
    );
    let reader = reader.unwrap();
    let types: Vec<_> = reader
        .schema()
        .fields()
        .iter()
        .map(|f| f.data_type())
        .collect();
    let expected = ["Timestamp(ms)", "Time32(ms)", "Date32"];
    assert_eq!(
        types.iter().map(|t| t.to_string()).collect::<Vec<_>>(),
        expected
    );
    w.ok(&["convert", "there.parquet", "back.vectile"]);
    let all = |path| {
        w.query(
            path,
            "SELECT at::text AS at, t::text AS t, d::date::text AS d FROM t",
        )
    };
    assert_eq!(all("back.vectile"), all("in.vectile"));
}

#[test]
fn files_of_conversions_and_of_queries_are_one_table() {
    let w = Workspace::new();
    w.write("in.csv", "x,s\n1,one\n");
    w.ok(&["convert", "in.csv", "t/a.vectile"]);
    let copy = "COPY (SELECT arrow_cast(2, 'Int32') AS x, arrow_cast('two', 'Utf8View') AS s) \
                TO 't/b.vectile'";
    w.ok(&["sql", copy]);
    let rows = serde_json::json!([{"x": 1, "s": "one"}, {"x": 2, "s": "two"}]);
    assert_eq!(w.query("t", "SELECT * FROM t ORDER BY x"), rows);
    w.ok(&["convert", "t", "all.vectile"]);
    assert_eq!(w.query("all.vectile", "SELECT * FROM t ORDER BY x"), rows);
}

#[test]
fn tables_pass_over_the_names_that_conversions_do() {
    let w = Workspace::new();
    w.write("t/a.csv", "x\n1\n");
    w.write("t/_old.csv", "x\n2\n");
    w.write("t/.b.csv", "y\nword\n");
    w.write("t/_temporary/c.csv", "x\n4\n");
    for table in ["t", "t/"] {
        let sum = w.query(table, "SELECT sum(x) AS s FROM t");
        assert_eq!(sum, serde_json::json!([{"s": 1}]));
    }
    let named = w.query("t/_old.csv", "SELECT sum(x) AS s FROM t");
    assert_eq!(named, serde_json::json!([{"s": 2}]));
    w.ok(&["convert", "t", "all.vectile"]);
    let sum = w.query("all.vectile", "SELECT sum(x) AS s FROM t");
    assert_eq!(sum, serde_json::json!([{"s": 1}]));
}

#[test]
fn nan_survives_parquet_and_is_larger_than_numbers() {
    let w = Workspace::new();
    let rows = "SELECT arrow_cast(column1, 'Float64') AS x, column2 AS n FROM
                (VALUES ('3', 1), ('NaN', 2), ('3', 3))";
    w.ok(&["sql", rows, "-o", "in.parquet"]);
    w.ok(&["convert", "in.parquet", "out.vectile", "--quiet"]);
    let texts = "SELECT CAST(x AS VARCHAR) AS x FROM t ORDER BY n";
    let expected = serde_json::json!([{"x": "3.0"}, {"x": "NaN"}, {"x": "3.0"}]);
    assert_eq!(w.query("out.vectile", texts), expected);
    let chosen = ["--where", "x > 100", "--quiet"];
    w.ok(&[&["convert", "in.parquet", "nan.vectile"], &chosen[..]].concat());
    let count = "SELECT count(*) AS c FROM t";
    assert_eq!(w.query("nan.vectile", count), serde_json::json!([{"c": 1}]));
}

/// The types and the rows of a file as a table, and after its conversion.
fn types_and_rows(w: &Workspace, file: &str, options: &[&str]) -> String {
    const SCRIPT: &str = "SELECT column_name, data_type FROM information_schema.columns \
                          WHERE table_name = 't'; SELECT * FROM t";
    let table = format!("t={file}");
    let sql = ["sql", "--format", "json", "-t", &table, SCRIPT];
    let answer = w.ok(&[&sql[..], options].concat());
    w.ok(&[&["convert", file, "same.arrow", "--force", "-q"], options].concat());
    let sql = ["sql", "--format", "json", "-t", "t=same.arrow", SCRIPT];
    assert_eq!(
        w.ok(&sql).replace("Utf8View", "Utf8"),
        answer.replace("Utf8View", "Utf8"),
        "{file}"
    );
    answer
        .replace("\"column_name\":", "")
        .replace("\"data_type\":", "")
}

#[test]
fn values_of_text_files_stay_what_they_are() {
    let w = Workspace::new();
    let big = "9007199254740993";
    w.write(
        "t.csv",
        &format!(
            "zip,n,u,big,x,day,f,flag\n01234,1,1,-1,{big},2024-02-01,1.50,true\n\
             5,2,18446744073709551615,18446744073709551616,0.5,2024-13-01,7,false\n"
        ),
    );
    let read = types_and_rows(&w, "t.csv", &[]);
    for part in [
        r#""zip","Utf8""#,
        r#""n","Int64""#,
        r#""u","UInt64""#,
        r#""big","Decimal128(38, 0)""#,
        r#""x","Utf8""#,
        r#""day","Utf8""#,
        r#""f","Float64""#,
        r#""flag","Boolean""#,
        r#""zip":"01234""#,
        "18446744073709551615",
        "18446744073709551616",
        big,
        r#""day":"2024-13-01""#,
    ] {
        assert!(read.contains(part), "{part}: {read}");
    }
    let given = ["--schema", "n VARCHAR, x DECIMAL(20, 1)"];
    let read = types_and_rows(&w, "t.csv", &given);
    for part in [r#""n":"1""#, "9007199254740993.0", r#""Decimal128(20, 1)""#] {
        assert!(read.contains(part), "{part}: {read}");
    }
    w.write(
        "t.json",
        "{\"u\":18446744073709551615,\"d\":-5,\"s\":{\"l\":[1,18446744073709551615]},\"f\":1.5}\n\
         {\"u\":1,\"d\":123456789012345678901234567890,\"s\":{\"l\":[]},\"f\":9007199254740992}\n",
    );
    let read = types_and_rows(&w, "t.json", &[]);
    for part in [
        r#""u","UInt64""#,
        r#""d","Decimal128(38, 0)""#,
        "18446744073709551615",
        "123456789012345678901234567890",
        r#""f","Float64""#,
        r#"[1,18446744073709551615]"#,
    ] {
        assert!(read.contains(part), "{part}: {read}");
    }
    w.write(
        "bad.json",
        &format!("{{\"s\":{{\"x\":0.5}}}}\n{{\"s\":{{\"x\":{big}}}}}\n"),
    );
    for command in [
        &["convert", "bad.json", "out.arrow"][..],
        &["sql", "SELECT * FROM 'bad.json'"],
        &[
            "sql",
            "CREATE EXTERNAL TABLE t STORED AS JSON LOCATION 'bad.json'",
        ],
    ] {
        let error = w.fails(1, command);
        assert!(
            error.contains("bad.json") && error.contains("column x") && error.contains(big),
            "{error}"
        );
    }
    let sql =
        "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 't.csv'; SELECT zip, u FROM t WHERE n = 1";
    assert!(w.ok(&["sql", "--format", "csv", sql]).contains("01234,1"));
    w.fails(
        2,
        &["convert", "t.csv", "out.arrow", "--schema", "n NONSENSE"],
    );
    w.fails(
        2,
        &["convert", "t.csv", "out.arrow", "--csv-delimiter", "ab"],
    );
    let missing = ["convert", "t.csv", "out.arrow", "--schema", "m INT"];
    assert!(w.fails(1, &missing).contains("columns are zip"));
}

#[test]
fn csv_can_tell_nulls_from_empty_text() {
    let w = Workspace::new();
    let rows = "SELECT * FROM (VALUES ('', 1), (NULL, 2), ('a;b', NULL)) AS v(s, n)";
    let options = [
        "--csv-null",
        "\\N",
        "--csv-delimiter",
        ";",
        "--csv-no-header",
    ];
    w.ok(&[&["sql", rows, "-o", "t.csv"], &options[..]].concat());
    let text = std::fs::read_to_string(w.path("t.csv")).unwrap();
    assert_eq!(text, ";1\n\\N;2\n\"a;b\";\\N\n");
    let read = types_and_rows(&w, "t.csv", &options);
    for part in [
        r#""column_2","Int64""#,
        r#""column_1":"","#,
        r#""column_1":"a;b""#,
    ] {
        assert!(read.contains(part), "{part}: {read}");
    }
    w.ok(&[&["convert", "t.csv", "again.csv", "-q"], &options[..]].concat());
    for (value, text) in [
        ("'NA'", "NA"),
        ("arrow_cast('NA', 'Dictionary(Int32, Utf8)')", "NA"),
        ("999", "999"),
        ("DATE '1970-01-01'", "1970-01-01"),
    ] {
        let sql = format!("SELECT {value} AS s");
        let error = w.fails(1, &["sql", &sql, "-o", "u.csv", "--csv-null", text]);
        let expected = format!("column s has the text '{text}'");
        assert!(error.contains(&expected), "{error}");
    }
    let other = "SELECT 999.0 AS f, true AS b, '9999' AS s, X'00FF' AS x";
    w.ok(&["sql", other, "-o", "u.csv", "--csv-null", "999"]);
    assert_eq!(std::fs::read_to_string(w.path("again.csv")).unwrap(), text);
    w.write("none.csv", "a,b\nNA,1\nNA,2\n");
    let none = types_and_rows(&w, "none.csv", &["--csv-null", "NA"]);
    assert!(none.contains(r#""a","Null""#), "{none}");
    assert!(none.contains(r#""a":null,"b":2"#), "{none}");
    let sql = "CREATE EXTERNAL TABLE t STORED AS CSV LOCATION 't.csv' OPTIONS (has_header false, delimiter ';',
               null_regex '^\\\\N$'); SELECT count(column_1) AS texts, count(column_2) AS numbers FROM t";
    assert!(w.ok(&["sql", "--format", "csv", sql]).contains("2,2"));
}

#[test]
fn line_ends_in_quotes_are_part_of_values() {
    let w = Workspace::new();
    let lines = (0..5000).map(|i| format!("\"x\ny\",{i}\n"));
    w.write("t.csv", &format!("s,i\n{}", lines.collect::<String>()));
    let sum = "SELECT count(*) AS c, sum(i) AS i, min(length(s)) AS l FROM t";
    let expected = serde_json::json!([{"c": 5000, "i": 12_497_500, "l": 3}]);
    assert_eq!(w.query("t.csv", sum), expected);
    w.ok(&["convert", "t.csv", "t.vectile", "-q"]);
    assert_eq!(w.query("t.vectile", sum), expected);
}

#[test]
fn compressed_arrays_of_json_are_read() {
    let w = Workspace::new();
    let lines = "{\"a\":1,\"b\":[\"],\"]}\n{\"a\":2.5,\"b\":[]}\n";
    w.write("lines.json", lines);
    // ` [{"a":1,"b":["],"]}, {"a":2.5,"b":[]}]`
    let array = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\x53\x88\xae\x56\x4a\x54\xb2\x32\xd4\x51\x4a\x52\xb2\x8a\x56\x8a\xd5\x51\x8a\xad\xd5\x51\x00\x8b\x19\xe9\x99\x42\x44\x63\x6b\x63\xb9\x00\x4e\xe0\x60\xc3\x28\x00\x00\x00";
    std::fs::write(w.path("array.json.gz"), array).unwrap();
    let rows = "SELECT a, b FROM t ORDER BY a";
    let expected = w.query("lines.json", rows);
    assert_eq!(w.query("array.json.gz", rows), expected);
    w.ok(&["convert", "array.json.gz", "array.vectile", "-q"]);
    assert_eq!(w.query("array.vectile", rows), expected);
}

#[test]
fn orc_files_are_read_and_not_written() {
    let w = Workspace::new();
    let orc = format!(
        "{}/../orc/tests/data/scan.stripes.orc",
        env!("CARGO_MANIFEST_DIR")
    );
    w.ok(&["convert", &orc, "out.vectile"]);
    assert_eq!(schema(&w, &orc), schema(&w, "out.vectile"));
    for sql in [
        "SELECT * FROM t ORDER BY id",
        "SELECT count(*), sum(amount), max(name) FROM t WHERE day >= DATE '1970-02-01'",
    ] {
        assert_eq!(w.query(&orc, sql), w.query("out.vectile", sql));
    }
    for args in [
        ["convert", "out.vectile", "back.orc"],
        ["sql", "SELECT 1 AS a", "-oback.orc"],
    ] {
        let error = w.fails(1, &args);
        assert!(
            error.contains("ORC files are read and not written"),
            "{error}"
        );
    }
    assert!(!w.path("back.orc").exists());
}
