//! `vectile gen tpch`.

use serde_json::json;

use crate::Workspace;

const TABLES: [(&str, u64); 8] = [
    ("customer", 150),
    ("lineitem", 6005),
    ("nation", 25),
    ("orders", 1500),
    ("part", 200),
    ("partsupp", 800),
    ("region", 5),
    ("supplier", 10),
];

#[test]
fn both_formats_hold_the_same_tables() {
    let w = Workspace::new();
    let report = w.ok(&["gen", "tpch", "--scale", "0.001", "--out", "v"]);
    assert!(report.contains("8 files: 8,695 rows"), "{report}");
    w.ok(&[
        "gen", "tpch", "--scale", "0.001", "--out", "p", "--format", "parquet", "-q",
    ]);
    for (table, rows) in TABLES {
        let vectile = w.query(
            &format!("v/{table}.vectile"),
            "SELECT * FROM t ORDER BY 1, 2, 3",
        );
        let parquet = w.query(
            &format!("p/{table}.parquet"),
            "SELECT * FROM t ORDER BY 1, 2, 3",
        );
        assert_eq!(vectile.as_array().unwrap().len() as u64, rows, "{table}");
        assert_eq!(vectile, parquet, "{table}");
    }
    assert_eq!(w.files().len(), 16);
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
    for scale in ["0", "-1", "nan", "inf", "x", "1e9", "0.0001"] {
        let scale = format!("--scale={scale}");
        let error = w.fails(2, &["gen", "tpch", &scale, "--out", "v"]);
        assert!(error.contains("--scale"), "{error}");
    }
    w.fails(2, &["gen", "tpch", "--scale", "1"]);
    w.fails(2, &["gen", "tpch", "--out", "v"]);
    w.fails(
        2,
        &[
            "gen", "tpch", "--scale", "1", "--out", "v", "--format", "csv",
        ],
    );
    assert!(w.files().is_empty());
}

#[test]
fn nothing_is_overwritten_or_half_made() {
    let w = Workspace::new();
    w.write("v/orders.vectile", "precious");
    let error = w.fails(1, &["gen", "tpch", "--scale", "0.001", "--out", "v"]);
    assert!(error.contains("v/orders.vectile already exists"), "{error}");
    assert_eq!(w.files(), ["v/orders.vectile"]);
    w.write("file", "");
    let error = w.fails(1, &["gen", "tpch", "--scale", "0.001", "--out", "file"]);
    assert!(error.contains("cannot write file/"), "{error}");
}
