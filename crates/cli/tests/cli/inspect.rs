//! `vectile inspect`.

use std::sync::Arc;

use arrow::array::{FixedSizeBinaryArray, ListArray, StringArray, StructArray};
use arrow::buffer::Buffer;
use arrow::datatypes::{Field, Int32Type};
use serde_json::Value;

use crate::{Workspace, sample, write_arrow};

fn inspect(w: &Workspace, path: &str) -> Value {
    serde_json::from_str(&w.ok(&["inspect", path, "--format", "json"])).unwrap()
}

/// The names of an object's fields, in the order they are written.
fn fields(object: &Value) -> Vec<&str> {
    object
        .as_object()
        .unwrap()
        .keys()
        .map(String::as_str)
        .collect()
}

/// The interface of scripts: docs/operations.md promises these fields.
#[test]
fn the_json_form_is_stable() {
    let w = Workspace::new();
    w.ok(&["convert", &sample("weather"), "w.vectile", "-q"]);
    let report = inspect(&w, "w.vectile");
    let documented = include_str!("../../../../docs/operations.md");
    let column = &report["columns"][5];
    for object in [
        &report,
        &report["row_groups"][0],
        column,
        &column["chunks"][0],
        &column["alternatives"][0],
    ] {
        for field in fields(object) {
            let quoted = format!("`{field}");
            assert!(documented.contains(&quoted), "{field} is not documented");
        }
    }
    assert_eq!(report["rows"], 26_115);
    assert_eq!(report["vector_rows"], 1024);
    assert_eq!(report["columns"].as_array().unwrap().len(), 15);
    assert_eq!(
        report["bytes"],
        std::fs::metadata(w.path("w.vectile")).unwrap().len()
    );
    assert_eq!(report["row_groups"][0]["vectors"], 26);
}

#[test]
fn columns_are_summed_up() {
    let w = Workspace::new();
    w.ok(&["convert", &sample("weather"), "w.vectile", "-q"]);
    let report = inspect(&w, "w.vectile");
    let column = |name: &str| {
        let columns = report["columns"].as_array().unwrap();
        columns
            .iter()
            .find(|column| column["name"] == name)
            .unwrap()
            .clone()
    };
    let temp = column("temp");
    let sql = "SELECT min(temp) AS min, max(temp) AS max, count(*) - count(temp) AS nulls FROM t";
    let expected = w.query("w.vectile", sql)[0].clone();
    assert_eq!(temp["nulls"], expected["nulls"]);
    let number = |value: &Value| value.as_str().unwrap().parse::<f64>().unwrap();
    assert_eq!(number(&temp["min"]), expected["min"].as_f64().unwrap());
    assert_eq!(number(&temp["max"]), expected["max"].as_f64().unwrap());
    assert_eq!(temp["type"], "Float64");
    let year = column("year");
    assert_eq!(
        (&year["min"], &year["max"]),
        (&"2013".into(), &"2013".into())
    );
    // The estimates come from the values themselves: the stored encoding is among the smallest.
    let alternatives = temp["alternatives"].as_array().unwrap();
    let bytes: Vec<u64> = alternatives
        .iter()
        .map(|a| a["bytes"].as_u64().unwrap())
        .collect();
    assert!(bytes.is_sorted() && bytes.len() >= 3, "{alternatives:?}");
    let stored = temp["sampled_bytes"].as_u64().unwrap();
    assert!(
        stored <= bytes[0] + bytes[0] / 4,
        "{stored} of {alternatives:?}"
    );
    let plain = alternatives
        .iter()
        .find(|a| a["encoding"] == "plain")
        .unwrap();
    assert!(plain["bytes"].as_u64().unwrap() >= 26_115 * 8);
}

#[test]
fn the_table_form_names_every_column() {
    let w = Workspace::new();
    w.ok(&["convert", &sample("planes"), "p.vectile", "-q"]);
    let text = w.ok(&["inspect", "p.vectile"]);
    for word in [
        "format version 2",
        "3,322 rows",
        "manufacturer",
        "bits/value",
        "row group",
        "*",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
}

#[test]
fn compressed_values_are_named() {
    let w = Workspace::new();
    let convert = |options: &[&str]| {
        let planes = sample("planes");
        w.ok(&[&["convert", &planes, "p.vectile", "-q", "--force"], options].concat());
        let report = inspect(&w, "p.vectile");
        let columns = report["columns"].as_array().unwrap().iter();
        let chunks = columns.flat_map(|column| column["chunks"].as_array().unwrap().clone());
        let compressed = chunks
            .filter(|chunk| chunk["compression"] == "zstd")
            .count();
        (compressed, report["bytes"].as_u64().unwrap())
    };
    let (none, plain_bytes) = convert(&[]);
    let (some, bytes) = convert(&["--compression", "zstd"]);
    assert!(none == 0 && some > 0 && bytes < plain_bytes);
    assert!(w.ok(&["inspect", "p.vectile"]).contains(" + zstd"));
}

#[test]
fn empty_tables_are_fine() {
    let w = Workspace::new();
    w.ok(&[
        "sql",
        "SELECT 1 AS x, 'a' AS s WHERE false",
        "-o",
        "empty.vectile",
    ]);
    let report = inspect(&w, "empty.vectile");
    assert_eq!(report["rows"], 0);
    assert_eq!(report["columns"][0]["min"], Value::Null);
    assert_eq!(report["columns"][0]["bits_per_value"], 0.0);
    w.ok(&["inspect", "empty.vectile"]);
}

#[test]
fn other_files_are_refused() {
    let w = Workspace::new();
    let error = w.fails(1, &["inspect", &sample("planes")]);
    assert!(
        error.contains("planes.parquet") && error.contains("not a Vectile"),
        "{error}"
    );
    assert!(
        w.fails(1, &["inspect", "none.vectile"])
            .contains("none.vectile")
    );
    w.write("dir/a.vectile", "");
    w.write("dir/b.vectile", "");
    assert!(w.fails(1, &["inspect", "dir"]).contains("2 files"));
    assert!(
        w.fails(1, &["inspect", "dir/a.vectile"])
            .contains("a.vectile")
    );
    w.fails(2, &["inspect"]);
}

#[test]
fn columns_without_values_are_fine() {
    let w = Workspace::new();
    let sql = "SELECT cast(NULL AS varchar) AS note, arrow_cast(NULL, 'Binary') AS raw, value FROM range(3000)";
    w.ok(&["sql", sql, "-o", "nulls.vectile"]);
    let note = inspect(&w, "nulls.vectile")["columns"][0].clone();
    assert_eq!((&note["nulls"], &note["min"]), (&3000.into(), &Value::Null));
    w.ok(&["inspect", "nulls.vectile"]);
    // values without bytes, with nulls and without
    let nulls = (0..1500).map(|row| row % 3 > 0).collect::<Vec<_>>().into();
    for (name, nulls) in [("some", Some(nulls)), ("none", None)] {
        let column = FixedSizeBinaryArray::try_new_with_len(0, Buffer::default(), nulls, 1500);
        let (arrow, vectile) = (format!("{name}.arrow"), format!("{name}.vectile"));
        write_arrow(&w, &arrow, Arc::new(column.unwrap()));
        w.ok(&["convert", &arrow, &vectile]);
        assert_eq!(inspect(&w, &vectile)["rows"], 1500);
        let sql = "SELECT count(*) AS n, count(a) AS v FROM t";
        assert_eq!(w.query(&vectile, sql), w.query(&arrow, sql));
        let error = w.fails(1, &["convert", &arrow, "x.parquet"]);
        assert!(
            error.contains("column a") && error.contains("Parquet"),
            "{error}"
        );
    }
}

/// A single encoding is not a choice, but it takes bytes.
#[test]
fn every_alternative_takes_bytes() {
    let w = Workspace::new();
    let lists = (0..2000).map(|row| Some(vec![Some(row), None]));
    let lists = ListArray::from_iter_primitive::<Int32Type, _, _>(lists);
    write_arrow(&w, "lists.arrow", Arc::new(lists));
    w.ok(&["convert", "lists.arrow", "lists.vectile", "-q"]);
    let column = inspect(&w, "lists.vectile")["columns"][0].clone();
    let alternatives = column["alternatives"].as_array().unwrap();
    assert_eq!(alternatives.len(), 1);
    let [estimated, stored] = [&alternatives[0]["bytes"], &column["sampled_bytes"]];
    assert!((1..=stored.as_u64().unwrap()).contains(&estimated.as_u64().unwrap()));
}

/// The name of its type is longer than a format string can pad.
#[test]
fn types_may_be_long() {
    let w = Workspace::new();
    let field = |i: usize| {
        let name = format!("field_with_a_long_name_{i}");
        (
            Arc::new(Field::new(name, arrow::datatypes::DataType::Utf8, true)),
            Arc::new(StringArray::from(vec!["x"])) as arrow::array::ArrayRef,
        )
    };
    let wide = StructArray::from((0..3000).map(field).collect::<Vec<_>>());
    write_arrow(&w, "wide.arrow", Arc::new(wide));
    let report = w.ok(&["convert", "wide.arrow", "wide.vectile"]);
    assert!(report.lines().next().unwrap().len() > u16::MAX.into());
    w.ok(&["inspect", "wide.vectile"]);
}
