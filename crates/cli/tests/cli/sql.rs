//! `vectile sql`.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::{Run, Workspace, sample, union, write_arrow};

const TWO_ROWS: &str = "SELECT * FROM (VALUES (1, 'a,b', NULL), (2, NULL, 2.5)) t(n, s, f)";

#[test]
fn results_print_in_every_format() {
    let w = Workspace::new();
    let print = |format: &str| w.ok(&["sql", "--format", format, TWO_ROWS]);
    assert_eq!(print("csv"), "n,s,f\n1,\"a,b\",\n2,,2.5\n");
    assert_eq!(
        print("json"),
        "[{\"n\":1,\"s\":\"a,b\",\"f\":null},\n{\"n\":2,\"s\":null,\"f\":2.5}]\n"
    );
    assert_eq!(
        print("jsonl"),
        "{\"n\":1,\"s\":\"a,b\",\"f\":null}\n{\"n\":2,\"s\":null,\"f\":2.5}\n"
    );
    let table = "\
+---+------+------+
| n | s    |    f |
+---+------+------+
| 1 | a,b  | NULL |
| 2 | NULL |  2.5 |
+---+------+------+
";
    assert_eq!(print("table"), table);
    assert_eq!(w.ok(&["sql", TWO_ROWS]), table, "the default");
}

#[test]
fn empty_results_still_have_a_shape() {
    let w = Workspace::new();
    let sql = "SELECT 1 AS a, 'x' AS b WHERE false";
    assert_eq!(w.ok(&["sql", "--format", "csv", sql]), "a,b\n");
    assert_eq!(w.ok(&["sql", "--format", "json", sql]), "[]\n");
    assert_eq!(w.ok(&["sql", "--format", "jsonl", sql]), "");
    assert_eq!(
        w.ok(&["sql", sql]),
        "+---+---+\n| a | b |\n+---+---+\n+---+---+\n"
    );
}

#[test]
fn special_values_in_json() {
    let w = Workspace::new();
    let sql = "SELECT 'NaN'::double AS nan, 1.10::decimal(5, 2) AS d, 9007199254740993 AS big,
        arrow_cast('ab', 'Binary') AS bin, DATE '2013-01-02' AS day,
        TIMESTAMP '2013-01-02T03:04:05.678' AS at, [1, NULL] AS list, {'k': 'v'} AS s";
    let printed = w.ok(&["sql", "--format", "json", sql]);
    assert_eq!(
        printed,
        "[{\"nan\":null,\"d\":1.10,\"big\":9007199254740993,\"bin\":\"6162\",\"day\":\"2013-01-02\",\
         \"at\":\"2013-01-02T03:04:05.678\",\"list\":[1,null],\"s\":{\"k\":\"v\"}}]\n"
    );
}

#[test]
fn scripts_run_in_order() {
    let w = Workspace::new();
    let planes = sample("planes");
    w.write(
        "script.sql",
        &format!(
            "-- a comment; with a semicolon
             CREATE EXTERNAL TABLE planes STORED AS PARQUET LOCATION '{planes}';
             COPY planes TO 'planes.vectile' STORED AS VECTILE;
             CREATE EXTERNAL TABLE v STORED AS VECTILE LOCATION 'planes.vectile';
             SET datafusion.execution.batch_size = 100;
             SELECT count(*) AS n FROM v"
        ),
    );
    let expected = "[{\"count\":3322}]\n[{\"n\":3322}]\n";
    assert_eq!(
        w.ok(&["sql", "--format", "json", "-f", "script.sql"]),
        expected
    );
}

#[test]
fn tables_in_memory_are_encoded() {
    let w = Workspace::new();
    let planes = sample("planes");
    w.ok(&["convert", &planes, "planes.vectile"]);
    let create = "CREATE TABLE planes AS SELECT * FROM 'planes.vectile'";
    let script = format!(
        "SET vectile.memory_tables = true;
         {create};
         CREATE TABLE twice AS SELECT * FROM planes;
         INSERT INTO twice SELECT * FROM 'planes.vectile';
         COPY twice TO 'twice.vectile';
         SELECT count(*) AS n FROM twice;
         TRUNCATE TABLE twice;
         EXPLAIN INSERT INTO twice SELECT * FROM 'planes.vectile'"
    );
    let answers = w.ok(&["sql", "--format", "json", &script]);
    let mut lines = answers.lines();
    for count in [
        r#"{"count":3322}"#,
        r#"{"count":6644}"#,
        r#"{"n":6644}"#,
        r#"{"count":6644}"#,
    ] {
        assert_eq!(
            lines.next(),
            Some(format!("[{count}]").as_str()),
            "{answers}"
        );
    }
    assert!(answers.contains("encoded_row_groups=1"), "{answers}");
    let explain = format!("{create}; EXPLAIN SELECT * FROM planes");
    let plain = w.ok(&["sql", &explain]);
    assert!(!plain.contains("file_type=vectile"), "{plain}");
    let encoded = w.ok(&[
        "sql",
        &format!("SET vectile.memory_tables = true; {explain}"),
    ]);
    assert!(encoded.contains("file_type=vectile"), "{encoded}");
}

#[test]
fn parquet_files_are_scanned_by_the_reader_that_is_asked_for() {
    let w = Workspace::new();
    w.ok(&["convert", &sample("planes"), "planes.parquet"]);
    let query = "SELECT manufacturer, count(*) AS n, max(speed) FROM planes WHERE seats > 100
                 GROUP BY manufacturer ORDER BY n DESC, manufacturer";
    let run = |statements: &str| w.ok(&["sql", "-t", "planes=planes.parquet", statements]);
    let on = "SET vectile.parquet = on";
    assert_eq!(
        run(&format!("{on}; {query}; {query}")),
        run(&format!("{query}; {query}"))
    );
    let filters = |plan: String| plan.contains("FilterExec");
    assert!(filters(run(&format!("EXPLAIN {query}"))));
    assert!(!filters(run(&format!("{on}; EXPLAIN {query}"))));
    let quoted = "SELECT count(*) FROM 'planes.parquet' WHERE seats > 100";
    assert!(!filters(run(&format!("{on}; EXPLAIN {quoted}"))));
}

#[test]
fn settings_are_reset() {
    let w = Workspace::new();
    let shown = |statements: &str| {
        let sql = format!("{statements}; SHOW vectile.gpu.memory_limit; SHOW vectile.fuse");
        w.ok(&["sql", "--format", "csv", &sql])
    };
    let set = "SET vectile.gpu.memory_limit = '4G'; SET vectile.fuse = 'off'";
    let changed = shown(set);
    assert!(changed.contains("vectile.fuse,off"), "{changed}");
    let defaults = shown("SET vectile.keep_plans = true");
    let reset = "RESET vectile.gpu.memory_limit; RESET Vectile.fuse";
    assert_eq!(shown(&format!("{set}; {reset}")), defaults);
    let error = w.fails(1, &["sql", "RESET vectile.gpus"]);
    assert!(error.contains("there is no setting"), "{error}");
    w.ok(&["sql", "RESET datafusion.execution.batch_size"]);
    w.fails(1, &["sql", "RESET datafusion.execution.size"]);
}

#[test]
fn statements_come_from_standard_input() {
    let w = Workspace::new();
    for args in [
        &["sql", "--format", "csv"][..],
        &["sql", "--format", "csv", "-f", "-"],
    ] {
        let mut command = w.command();
        command
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"SELECT 1 AS a; SELECT 2 AS b").unwrap();
        drop(stdin);
        let run = Run::new(args, child.wait_with_output().unwrap());
        assert_eq!(
            (run.code, run.stdout.as_str()),
            (0, "a\n1\nb\n2\n"),
            "{run:?}"
        );
    }
}

/// A pipe has no size and no end to read first: reading it for its schema would lose rows.
#[cfg(unix)]
#[test]
fn pipes_are_no_tables() {
    let w = Workspace::new();
    for args in [
        &["sql", "-t", "t=/dev/stdin", "SELECT * FROM t"][..],
        &["convert", "--from", "csv", "/dev/stdin", "t.vectile"],
    ] {
        let mut command = w.command();
        command.args(args).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let run = Run::new(args, child.wait_with_output().unwrap());
        assert_eq!(run.code, 1, "{run:?}");
        let expected = "/dev/stdin is no file: tables are read more than once";
        assert!(run.stderr.contains(expected), "{run:?}");
    }
    assert!(w.files().is_empty());
}

#[test]
fn tables_of_every_format() {
    let w = Workspace::new();
    w.write("t.csv", "x,y\n1,a\n2,b\n");
    w.write(
        "lines.jsonl",
        "{\"x\":1,\"y\":\"a\"}\n{\"x\":2,\"y\":\"b\"}\n",
    );
    w.write(
        "array.json",
        "[{\"x\":1,\"y\":\"a\"},\n {\"x\":2,\"y\":\"b\"}]",
    );
    for out in [
        "t.vectile",
        "t.parquet",
        "t.arrow",
        "t.arrows",
        "t.csv.gz",
        "t.json.zst",
    ] {
        w.ok(&["convert", "t.csv", out]);
    }
    let expected = json!([{"x": 1, "y": "a"}, {"x": 2, "y": "b"}]);
    for file in w.files() {
        assert_eq!(
            w.query(&file, "SELECT x, y FROM t ORDER BY x"),
            expected,
            "{file}"
        );
    }
    assert_eq!(w.files().len(), 9);
}

#[test]
fn tables_are_named_as_in_sql() {
    let w = Workspace::new();
    w.write("t.csv", "x\n1\n");
    for name in ["Trips", "order", "my table", "v1.trips"] {
        let table = format!("{name}=t.csv");
        let sql = format!("SELECT x FROM \"{}\"", name.to_lowercase());
        assert_eq!(
            w.ok(&["sql", "-t", &table, "--format", "csv", &sql]),
            "x\n1\n",
            "{name}"
        );
    }
    let sql = "SELECT x FROM TRIPS";
    assert_eq!(
        w.ok(&["sql", "-t", "Trips=t.csv", "--format", "csv", sql]),
        "x\n1\n"
    );
    assert_eq!(
        w.ok(&["sql", "--format", "csv", "SELECT x FROM 't.csv'"]),
        "x\n1\n"
    );
}

#[test]
fn directories_are_tables_too() {
    let w = Workspace::new();
    w.write("in/k=a/1.csv", "x\n1\n");
    w.write("in/k=b/2.csv", "x\n2\n");
    w.ok(&["convert", "in", "out/"]);
    let rows = w.query("out", "SELECT k, x FROM t WHERE k = 'b'");
    assert_eq!(rows, json!([{"k": "b", "x": 2}]));
    let rows = w.query("in/k=*/1.csv", "SELECT x FROM t");
    assert_eq!(rows, json!([{"x": 1}]));
    w.write("out/k=a/3.csv", "x\n3\n");
    let error = w.fails(1, &["sql", "-t", "t=out", "SELECT 1"]);
    assert!(
        error.contains(".csv, .vectile") && error.contains("glob"),
        "{error}"
    );
}

#[test]
fn inserts_add_files_to_a_directory() {
    let w = Workspace::new();
    w.write("in/a.csv", "x\n1\n");
    w.ok(&["convert", "in", "out/"]);
    w.ok(&["sql", "-t", "t=out", "INSERT INTO t VALUES (2), (3)"]);
    assert_eq!(
        w.query("out", "SELECT sum(x) AS s FROM t"),
        json!([{"s": 6}])
    );
}

#[test]
fn inserts_make_files_that_the_table_has() {
    let w = Workspace::new();
    for format in ["parquet", "vectile"] {
        w.ok(&["sql", &format!("COPY (SELECT 1 AS x) TO 'a1.{format}'")]);
        let table = format!("t=a*.{format}");
        let error = w.fails(1, &["sql", "-t", &table, "INSERT INTO t VALUES (2)"]);
        assert!(error.contains("cannot add files to t"), "{error}");
        w.ok(&[
            "sql",
            &format!("COPY (SELECT 1 AS x) TO 'p/k=1/a1.{format}'"),
        ]);
        let insert = format!(
            "CREATE EXTERNAL TABLE t (x BIGINT, k INT) STORED AS {format} PARTITIONED BY (k)
             LOCATION 'p/a*.{format}'; INSERT INTO t VALUES (2, 1)"
        );
        let error = w.fails(1, &["sql", &insert]);
        assert!(error.contains("cannot add files to t"), "{error}");
    }
    let files = [
        "a1.parquet",
        "a1.vectile",
        "p/k=1/a1.parquet",
        "p/k=1/a1.vectile",
    ];
    assert_eq!(w.files(), files);
}

#[test]
fn an_unreadable_file_of_a_table_is_named() {
    let w = Workspace::new();
    for format in ["parquet", "vectile", "arrow"] {
        let copy = format!("COPY (SELECT 1 AS x) TO 't/{format}/a.{format}'");
        w.ok(&["sql", &copy]);
        w.write(&format!("t/{format}/b.{format}"), "");
        let table = format!("t=t/{format}");
        let error = w.fails(1, &["sql", "-t", &table, "SELECT * FROM t"]);
        assert!(error.contains(&format!("{format}/b.{format}")), "{error}");
    }
}

#[test]
fn results_can_be_written_to_files() {
    let w = Workspace::new();
    for out in ["r.vectile", "r.parquet", "r.arrow", "r.csv", "r.json"] {
        assert_eq!(
            w.ok(&["sql", "-o", out, TWO_ROWS]),
            "",
            "nothing is printed"
        );
        let rows = w.query(out, "SELECT * FROM t ORDER BY n");
        let expected = json!([{"n": 1, "s": "a,b", "f": null}, {"n": 2, "s": null, "f": 2.5}]);
        assert_eq!(rows, expected, "{out}");
    }
    let error = w.fails(1, &["sql", "-o", "r.csv", TWO_ROWS]);
    assert!(error.contains("--force"), "{error}");
    w.ok(&[
        "sql",
        "-o",
        "r.csv",
        "--force",
        "SELECT 7 AS n; SELECT 8 AS n",
    ]);
    assert_eq!(std::fs::read_to_string(w.path("r.csv")).unwrap(), "n\n8\n");
    let error = w.fails(2, &["sql", "-o", "r.txt", TWO_ROWS]);
    assert!(error.contains("r.txt"), "{error}");
    let error = w.fails(
        1,
        &[
            "sql",
            "-o",
            "s.csv",
            "SET datafusion.execution.batch_size = 1",
        ],
    );
    assert!(error.contains("no result"), "{error}");
}

#[test]
fn a_failing_query_leaves_no_file() {
    let w = Workspace::new();
    let sql = "SELECT 1 / (value - 50000) AS x FROM range(100000)";
    for out in ["r.vectile", "r.parquet", "r.csv", "r.json.gz"] {
        let error = w.fails(1, &["sql", "-o", out, sql]);
        assert!(error.to_lowercase().contains("divide by zero"), "{error}");
    }
    let copy = format!("COPY ({sql}) TO 'r.vectile' STORED AS VECTILE");
    w.fails(1, &["sql", &copy]);
    assert!(w.files().is_empty(), "{:?}", w.files());
}

#[test]
fn errors_say_what_to_do() {
    let w = Workspace::new();
    w.write("t.csv", "x,Big\n1,2\n");
    let cases = [
        ("SELECT 1 FROM nowhere", "nowhere", "-t NAME=PATH"),
        ("SELECT y FROM t", "y", "DESCRIBE"),
        ("SELEC 1", "SELEC", ""),
        ("SELECT 1 FROM t WHERE x = 'word'", "word", ""),
        (
            "CREATE EXTERNAL TABLE u STORED AS VECTILE LOCATION 'none.vectile'",
            "none.vectile",
            "",
        ),
    ];
    for (sql, what, advice) in cases {
        let error = w.fails(1, &["sql", "-t", "t=t.csv", sql]);
        let lower = error.to_lowercase();
        assert!(
            error.starts_with("error: ") && lower.contains(&what.to_lowercase()),
            "{error}"
        );
        assert!(error.contains(advice), "{error}");
    }
    assert!(
        w.fails(1, &["sql", "-t", "t=none.csv", "SELECT 1"])
            .contains("none.csv")
    );
    assert!(w.fails(1, &["sql", "-f", "none.sql"]).contains("none.sql"));
    assert!(
        w.fails(2, &["sql", "-t", "t", "SELECT 1"])
            .contains("NAME=PATH")
    );
    assert!(w.fails(2, &["sql", ""]).contains("no SQL statement"));
    assert!(
        w.fails(2, &["sql", "SELECT 1", "--format", "xml"])
            .contains("xml")
    );
    assert!(
        w.fails(2, &["sql", "SELECT 1", "-f", "x.sql"])
            .contains("--file")
    );
}

/// Output before the failure is printed; statements after it do not run.
#[test]
fn a_script_stops_at_its_first_failure() {
    let w = Workspace::new();
    let run = w.run(&[
        "sql",
        "--format",
        "csv",
        "SELECT 1 AS a; SELECT 1 FROM none; SELECT 2 AS b",
    ]);
    assert_eq!((run.code, run.stdout.as_str()), (1, "a\n1\n"), "{run:?}");
}

#[test]
fn a_reader_that_leaves_is_not_an_error() {
    let w = Workspace::new();
    for format in ["csv", "json", "jsonl", "table"] {
        let mut command = w.command();
        command.args([
            "sql",
            "--format",
            format,
            "SELECT value FROM range(3000000)",
        ]);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let status = child.wait().unwrap();
        let mut stderr = String::new();
        child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut stderr)
            .unwrap();
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""), "{format}");
        assert!(!line.is_empty());
    }
}

#[test]
fn plans_are_readable() {
    let w = Workspace::new();
    w.write("t.csv", "x\n1\n");
    w.ok(&["convert", "t.csv", "t.vectile"]);
    let plan = w.ok(&[
        "sql",
        "-t",
        "t=t.vectile",
        "EXPLAIN SELECT x FROM t WHERE x > 0",
    ]);
    assert!(plan.lines().count() > 6, "{plan}");
    assert!(plan.contains("file_type=vectile"), "{plan}");
    let widths: Vec<usize> = plan.lines().map(|line| line.chars().count()).collect();
    assert!(widths.iter().all(|width| *width == widths[0]), "{plan}");
}

#[test]
fn answers_are_those_of_the_parquet_files() {
    let w = Workspace::new();
    let parquet = sample("weather");
    w.ok(&["convert", &parquet, "weather.vectile", "-q"]);
    for sql in [
        "SELECT origin, count(*) AS n, sum(wind_dir) AS s, max(temp) AS m FROM t GROUP BY origin ORDER BY origin",
        "SELECT * FROM t WHERE temp > 95 ORDER BY time_hour, origin",
        "SELECT count(*) AS n FROM t WHERE wind_gust IS NULL AND month IN (1, 7)",
    ] {
        let rows = w.query("weather.vectile", sql);
        assert_eq!(rows, w.query(&parquet, sql), "{sql}");
        assert_ne!(rows, Value::Array(vec![]), "{sql}");
    }
}

#[test]
fn cells_may_be_wide() {
    let w = Workspace::new();
    let table = w.ok(&["sql", "SELECT 1 AS n, repeat('x', 70000) AS wide"]);
    let widths: Vec<usize> = table.lines().map(str::len).collect();
    assert!(widths[0] > 70_000 && widths.iter().all(|width| *width == widths[0]));
}

/// Content of a file does not act on the terminal.
#[test]
fn control_characters_are_escaped_in_tables() {
    let w = Workspace::new();
    let sql = "SELECT chr(27) || '[31mred' AS \"a\tb\", 'two' || chr(10) || 'lines' AS l";
    let table = w.ok(&["sql", sql]);
    assert!(
        !table.contains(|c: char| c.is_control() && c != '\n'),
        "{table:?}"
    );
    assert!(
        table.contains("\\u{1b}[31mred") && table.contains("a\\tb"),
        "{table}"
    );
    assert!(table.contains("| two "), "{table}");
    let csv = w.ok(&["sql", "--format", "csv", sql]);
    assert!(csv.contains("\u{1b}[31mred"), "as it is: {csv:?}");
    let error = w.fails(1, &["sql", "SELECT \"\u{1b}[31mred\""]);
    assert!(!error.contains('\u{1b}'), "{error:?}");
}

#[test]
fn unions_are_refused_by_parquet() {
    let w = Workspace::new();
    write_arrow(&w, "u.arrow", union());
    let copy = "COPY t TO 'u.parquet' STORED AS PARQUET";
    for args in [
        &["convert", "u.arrow", "u.parquet"][..],
        &[
            "sql",
            "-t",
            "t=u.arrow",
            "-o",
            "u.parquet",
            "SELECT [a] AS a FROM t",
        ],
        &["sql", "-t", "t=u.arrow", copy],
    ] {
        let error = w.fails(1, args);
        assert!(
            error.contains("column a") && error.contains("Parquet"),
            "{error}"
        );
        assert!(!error.contains("panicked"), "{error}");
    }
    assert_eq!(w.files(), ["u.arrow"]);
}

#[test]
fn messages_name_files_once_and_whole() {
    let w = Workspace::new();
    w.write("bad.vectile", "no table");
    w.write("bad.parquet", "no table");
    w.write("ragged.csv", "x,y\n1,2\n3\n");
    for file in ["bad.vectile", "bad.parquet", "ragged.csv"] {
        let whole = w.path(file);
        let whole = whole.to_str().unwrap();
        let table = format!("t={file}");
        let from = format!("SELECT * FROM '{file}'");
        for args in [
            &["inspect", file][..],
            &["convert", file, "out.arrow"],
            &["sql", "-t", &table, "SELECT 1"],
            &["sql", &from],
        ] {
            let error = w.fails(1, args);
            assert_eq!(error.matches(file).count(), 1, "{args:?}: {error}");
            assert!(!error.contains("External error"), "{args:?}: {error}");
            let rootless = error.contains(&whole[1..]) && !error.contains(whole);
            assert!(!rootless, "{args:?}: {error}");
        }
    }
    let error = w.fails(1, &["sql", "SELECT cast('x' AS int)"]);
    assert!(!error.contains("rule") && error.contains("'x'"), "{error}");
}

#[test]
fn missing_files_and_refused_urls_are_reported_as_such() {
    let w = Workspace::new();
    let error = w.fails(1, &["sql", "SELECT * FROM 'none.vectile'"]);
    assert!(error.contains("none.vectile: no such file"), "{error}");
    let error = w.fails(1, &["sql", "SELECT * FROM 'dir/none'"]);
    assert!(error.contains("dir/none: no such file"), "{error}");
    let error = w.fails(1, &["sql", "SELECT * FROM 's4://bucket/x.parquet'"]);
    assert!(error.contains("no object store for s4://"), "{error}");
    let error = w.fails(1, &["sql", "SELECT * FROM nowhere"]);
    assert!(error.contains("table 'nowhere' not found"), "{error}");
}

#[test]
fn standard_output_is_no_file() {
    let w = Workspace::new();
    w.write("t.csv", "x\n1\n");
    for out in ["-", "/dev/stdout", "/dev/fd/1"] {
        for args in [
            &["sql", "-o", out, "SELECT 1"][..],
            &["convert", "t.csv", out],
            &["convert", "t.csv", out, "--to", "csv"],
        ] {
            let error = w.fails(2, args);
            assert!(error.contains("--format csv"), "{args:?}: {error}");
        }
    }
    assert_eq!(w.files(), ["t.csv"]);
}

/// On Linux, shared memory is a file system.
#[cfg(target_os = "linux")]
#[test]
fn files_of_shared_memory_are_files() {
    let w = Workspace::new();
    w.write("t.csv", "x\n1\n");
    let out = format!("/dev/shm/vectile-test-{}.vectile", std::process::id());
    w.run(&["convert", "t.csv", &out]);
    let written = std::fs::remove_file(&out);
    assert!(written.is_ok(), "{written:?}");
}

/// The other files of a directory still form a table.
#[cfg(unix)]
#[test]
fn unusable_names_are_passed_over() {
    use std::os::unix::ffi::OsStrExt;
    let w = Workspace::new();
    w.write("t/a.csv", "x\n1\n");
    w.write("t/sub/b.csv", "x\n2\n");
    std::os::unix::fs::symlink("..", w.path("t/sub/up")).unwrap();
    std::os::unix::fs::symlink("self.csv", w.path("t/self.csv")).unwrap();
    let name = w.path("t").join(std::ffi::OsStr::from_bytes(b"c\xff.csv"));
    std::fs::write(name, "x\n3\n").unwrap();
    w.write("t/line\nend.csv", "x\n4\n");
    let run = w.run(&[
        "sql",
        "-t",
        "t=t",
        "--format",
        "csv",
        "SELECT sum(x) AS s FROM t",
    ]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "s\n3\n"), "{run:?}");
    assert_eq!(run.stderr.matches("passed over").count(), 4, "{run:?}");
}

/// A server that accepts the connection and sends nothing.
#[test]
fn a_silent_server_is_named() {
    let w = Workspace::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x.vectile", server.local_addr().unwrap());
    let mut command = w.command();
    let mut child = command
        .args(["inspect", &url])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let started = std::time::Instant::now();
    let mut line = String::new();
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    stderr.read_line(&mut line).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(line, "waiting for 127.0.0.1 ...\n");
    assert!(started.elapsed() < std::time::Duration::from_secs(20));
}

#[test]
fn conditions_may_have_hundreds_of_terms() {
    let w = Workspace::new();
    let rows = "COPY (SELECT value AS n, concat('x', value) AS s FROM generate_series(0, 999)) TO 't.vectile'";
    w.ok(&["sql", rows]);
    let terms = (0..800).map(|i| format!("(n = {i} AND s = 'x{i}')"));
    let terms: Vec<String> = terms.collect();
    let sql = format!(
        "SELECT count(*) AS n FROM 't.vectile' WHERE {}",
        terms.join(" OR ")
    );
    assert_eq!(w.ok(&["sql", "--format", "csv", &sql]), "n\n800\n");
}
