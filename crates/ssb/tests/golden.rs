//! The tables of scale 1 are those of the reference generator, byte for byte: md5 sums of its text
//! format, which ends each field by `|` and each row by a newline.

use std::io::Write;

use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{DataType, Int32Type, Int64Type};
use md5::{Digest, Md5};
use vectile_ssb::{Scale, Table};

fn check(table: Table, rows: usize, md5: &str) {
    let mut digest = Md5::new();
    let mut seen = 0;
    let mut text = Vec::new();
    for batch in table.generate(Scale::MIN, 0..u64::MAX) {
        let batch = batch.unwrap();
        seen += batch.num_rows();
        write_rows(&mut text, &batch);
        digest.update(&text);
        text.clear();
    }
    let digest: String = digest
        .finalize()
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    assert_eq!((seen, digest.as_str()), (rows, md5), "{}", table.name());
}

fn write_rows(out: &mut Vec<u8>, batch: &RecordBatch) {
    for row in 0..batch.num_rows() {
        for column in batch.columns() {
            match column.data_type() {
                DataType::Int32 => {
                    write!(out, "{}|", column.as_primitive::<Int32Type>().value(row))
                }
                DataType::Int64 => {
                    write!(out, "{}|", column.as_primitive::<Int64Type>().value(row))
                }
                DataType::Utf8View => write!(out, "{}|", column.as_string_view().value(row)),
                other => panic!("a column of type {other}"),
            }
            .unwrap();
        }
        out.push(b'\n');
    }
}

#[test]
fn customer() {
    check(Table::Customer, 30_000, "b65186f6cd383f615aa2ed89a74a7ba6");
}

#[test]
fn supplier() {
    check(Table::Supplier, 2_000, "acb3f531fe0264a598a7b2410fe7f5cf");
}

#[test]
fn part() {
    check(Table::Part, 200_000, "165f23e401293d995c7b57ef12bfb4e6");
}

#[test]
fn date() {
    check(Table::Date, 2_557, "9fa606e030772339be7845a93e30922c");
}

#[test]
fn lineorder() {
    check(
        Table::Lineorder,
        6_001_215,
        "0807c8393b2cdde9fbf3264242a6f57f",
    );
}
