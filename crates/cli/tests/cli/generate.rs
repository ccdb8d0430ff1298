//! `vectile gen`.

use serde_json::json;

use crate::Workspace;

const TPCH: [(&str, u64); 8] = [
    ("customer", 150),
    ("lineitem", 6005),
    ("nation", 25),
    ("orders", 1500),
    ("part", 200),
    ("partsupp", 800),
    ("region", 5),
    ("supplier", 10),
];

const SSB: [(&str, u64); 5] = [
    ("customer", 30_000),
    ("date", 2_557),
    ("lineorder", 6_001_215),
    ("part", 200_000),
    ("supplier", 2_000),
];

#[test]
fn all_formats_hold_the_same_tables() {
    let w = Workspace::new();
    let report = w.ok(&["gen", "tpch", "--scale", "0.001", "--out", "vectile"]);
    assert!(report.contains("8 files: 8,695 rows"), "{report}");
    for format in ["parquet", "csv"] {
        w.ok(&[
            "gen", "tpch", "--scale", "0.001", "--out", format, "--format", format, "-q",
        ]);
    }
    for (table, rows) in TPCH {
        let read = |format| {
            w.query(
                &format!("{format}/{table}.{format}"),
                "SELECT * FROM t ORDER BY 1, 2, 3",
            )
        };
        let vectile = read("vectile");
        assert_eq!(vectile.as_array().unwrap().len() as u64, rows, "{table}");
        assert_eq!(vectile, read("parquet"), "{table}");
        // CSV has no decimals: they come back as floats.
        assert_eq!(read("csv").as_array().unwrap().len() as u64, rows);
    }
    assert_eq!(w.files().len(), 24);
}

#[test]
fn the_star_schema_answers_its_first_query() {
    let w = Workspace::new();
    let report = w.ok(&["gen", "ssb", "--scale", "1", "--out", "v"]);
    assert!(report.contains("5 files: 6,235,772 rows"), "{report}");
    for (table, rows) in SSB {
        let count = w.query(&format!("v/{table}.vectile"), "SELECT count(*) AS n FROM t");
        assert_eq!(count, json!([{"n": rows}]), "{table}");
    }
    let sql = "SELECT sum(lo_extendedprice * lo_discount) AS revenue FROM t
        WHERE lo_orderdate / 10000 = 1993 AND lo_discount BETWEEN 1 AND 3 AND lo_quantity < 25";
    let revenue = json!([{"revenue": 446_031_203_850_u64}]);
    assert_eq!(w.query("v/lineorder.vectile", sql), revenue);
}

#[test]
fn the_tables_of_tpcds_are_the_same_in_all_formats() {
    let w = Workspace::new();
    let report = w.ok(&["gen", "tpcds", "--scale", "0.02", "--out", "v"]);
    assert!(report.contains("24 files: "), "{report}");
    w.ok(&[
        "gen", "tpcds", "--scale", "0.02", "--out", "p", "--format", "parquet", "-q",
    ]);
    for (table, column) in [
        ("store_sales", "ss_net_paid"),
        ("inventory", "inv_quantity_on_hand"),
        ("customer", "length(c_email_address)"),
        ("date_dim", "d_year"),
        ("customer_demographics", "cd_purchase_estimate"),
    ] {
        let sql =
            format!("SELECT count(*) AS n, count({column}) AS known, sum({column}) AS sum FROM t");
        let vectile = w.query(&format!("v/{table}.vectile"), &sql);
        assert_eq!(
            vectile,
            w.query(&format!("p/{table}.parquet"), &sql),
            "{table}"
        );
    }
    assert_eq!(w.files().len(), 48);
}

#[test]
fn hits_are_the_same_in_all_formats() {
    let w = Workspace::new();
    // more than one part
    let report = w.ok(&["gen", "hits", "--scale", "0.12", "--out", "v"]);
    assert!(report.contains("v/hits.vectile: 120,000 rows"), "{report}");
    w.ok(&[
        "gen", "hits", "--scale", "0.12", "--out", "p", "--format", "parquet", "-q",
    ]);
    let sql = "SELECT count(*) AS n, count(DISTINCT url) AS pages, sum(hit_id % 1000) AS ids, sum(load_ms) AS ms, \
        sum(order_value) AS revenue, sum(length(user_agent)) AS letters FROM t";
    let vectile = w.query("v/hits.vectile", sql);
    assert_eq!(vectile[0]["n"], 120_000);
    assert_eq!(vectile, w.query("p/hits.parquet", sql));
}

#[test]
fn csv_has_a_header_and_rows_in_order() {
    let w = Workspace::new();
    w.ok(&[
        "gen", "tpch", "--scale", "0.001", "--out", "c", "--format", "csv", "-q",
    ]);
    let orders = std::fs::read_to_string(w.path("c/orders.csv")).unwrap();
    let mut lines = orders.lines();
    let header = lines.next().unwrap();
    assert!(header.starts_with("o_orderkey,o_custkey,o_orderstatus,o_totalprice,o_orderdate"));
    let first = lines.next().unwrap();
    assert!(
        first.starts_with("1,37,O,131251.81,1996-01-02,5-LOW"),
        "{first}"
    );
    assert_eq!(lines.count(), 1_499);
}

/// Several parts of lineitem, in order and without gaps.
#[test]
fn parts_join_seamlessly() {
    let w = Workspace::new();
    w.ok(&["gen", "tpch", "--scale", "0.05", "--out", "v", "-q"]);
    let sql = "SELECT count(*) AS n, count(DISTINCT l_orderkey) AS orders, max(l_orderkey) AS last FROM t";
    let expected = json!([{"n": 299_814, "orders": 75_000, "last": 300_000}]);
    assert_eq!(w.query("v/lineitem.vectile", sql), expected);
    let sql = "SELECT count(*) AS n FROM (SELECT o_orderkey, lag(o_orderkey) OVER () AS p FROM t) WHERE p >= o_orderkey";
    let ordered = format!("SET datafusion.execution.target_partitions = 1; {sql}");
    let printed = w.ok(&[
        "sql",
        "-t",
        "t=v/orders.vectile",
        "--format",
        "csv",
        &ordered,
    ]);
    assert_eq!(printed, "n\n0\n");
}

#[test]
fn bad_scales_are_usage_errors() {
    let w = Workspace::new();
    for (benchmark, scales) in [
        ("tpch", ["0", "-1", "nan", "inf", "x", "1e9", "0.0001"]),
        ("ssb", ["0", "-1", "nan", "inf", "x", "1e9", "0.5"]),
        ("tpcds", ["0", "-1", "nan", "inf", "x", "1e9", "0.001"]),
        ("hits", ["0", "-1", "nan", "inf", "x", "1e9", "0.0001"]),
    ] {
        for scale in scales {
            let scale = format!("--scale={scale}");
            let error = w.fails(2, &["gen", benchmark, &scale, "--out", "v"]);
            assert!(error.contains("--scale"), "{error}");
        }
        w.fails(2, &["gen", benchmark, "--scale", "1"]);
        w.fails(2, &["gen", benchmark, "--out", "v"]);
        w.fails(
            2,
            &[
                "gen", benchmark, "--scale", "1", "--out", "v", "--format", "json",
            ],
        );
    }
    let error = w.fails(2, &["gen", "ssb", "--scale", "0.5", "--out", "v"]);
    let reason = "a scale is a whole number between 1 and 71582";
    assert!(error.contains(reason), "{error}");
    assert!(w.files().is_empty());
}

#[test]
fn nothing_is_overwritten_or_incomplete() {
    let w = Workspace::new();
    w.write("v/orders.vectile", "precious");
    let error = w.fails(1, &["gen", "tpch", "--scale", "0.001", "--out", "v"]);
    assert!(error.contains("v/orders.vectile already exists"), "{error}");
    assert_eq!(w.files(), ["v/orders.vectile"]);
    w.write("file", "");
    let error = w.fails(1, &["gen", "tpch", "--scale", "0.001", "--out", "file"]);
    assert!(error.contains("cannot write file/"), "{error}");
    let error = w.fails(1, &["gen", "ssb", "--scale", "1", "--out", "file"]);
    assert!(error.contains("cannot write file/"), "{error}");
    assert_eq!(w.files(), ["file", "v/orders.vectile"]);
}

/// As on a full disk. Smaller tables may be finished by then; they are removed, and do not replace files.
#[cfg(unix)]
#[test]
fn a_failure_takes_the_finished_tables_along() {
    for format in ["vectile", "csv"] {
        let w = Workspace::new();
        let old = format!("v/date.{format}");
        w.write(&old, "precious");
        let script = format!(
            "trap '' XFSZ; ulimit -f 20000; exec {} gen ssb --scale 1 --out v --format {format} --force",
            env!("CARGO_BIN_EXE_vectile")
        );
        let failed = std::process::Command::new("sh")
            .args(["-c", &script])
            .current_dir(w.path(""))
            .output()
            .unwrap();
        let error = String::from_utf8(failed.stderr).unwrap();
        assert_eq!(failed.status.code(), Some(1), "{error}");
        assert!(error.contains("no file was left behind"), "{error}");
        assert_eq!(w.files(), [old.as_str()]);
        assert_eq!(std::fs::read_to_string(w.path(&old)).unwrap(), "precious");
    }
}
