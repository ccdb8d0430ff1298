//! Lines equal those of TPC-H except for the columns that the benchmark changes.

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, Int64Type};
use tpchgen::dates::TPCHDate;
use tpchgen::generators::{LineItemGenerator, OrderGenerator};
use vectile_ssb::{Scale, Table};

/// One of 100 parts: 15 thousand orders.
const PARTS: i32 = 100;

#[test]
fn lines_are_those_of_tpch() {
    for part in [1, 57] {
        let range = range(part);
        let batches = Table::Lineorder.generate(Scale::MIN, range);
        let batches: Vec<RecordBatch> = batches.map(Result::unwrap).collect();
        let actual = batches.iter().flat_map(lines);
        let expected = tpch_lines(part);
        assert_eq!(actual.collect::<Vec<Line>>(), expected);
        let customers: Vec<i64> = batches.iter().flat_map(customers).collect();
        check_customers(&customers, part);
    }
}

fn range(part: i32) -> std::ops::Range<u64> {
    let orders = Table::Lineorder.units(Scale::MIN) / PARTS as u64;
    let start = (part as u64 - 1) * orders;
    start..start + orders
}

/// Order key, line number, part, quantity, extended price, discount, tax, order date, commit date,
/// priority, ship mode and total price.
type Line = (i64, [i64; 8], [String; 2], i64);

fn lines(batch: &RecordBatch) -> Vec<Line> {
    let line = |row| {
        let small = |name| int(batch, name, row);
        let large = |name| batch[name].as_primitive::<Int64Type>().value(row);
        let text = |name| batch[name].as_string_view().value(row).to_string();
        let numbers = [
            small("lo_linenumber"),
            small("lo_partkey"),
            small("lo_quantity"),
            large("lo_extendedprice"),
            small("lo_discount"),
            small("lo_tax"),
            small("lo_orderdate"),
            small("lo_commitdate"),
        ];
        let texts = [text("lo_orderpriority"), text("lo_shipmode")];
        let total = large("lo_ordtotalprice");
        (large("lo_orderkey"), numbers, texts, total)
    };
    (0..batch.num_rows()).map(line).collect()
}

fn customers(batch: &RecordBatch) -> Vec<i64> {
    let rows = 0..batch.num_rows();
    rows.map(|row| int(batch, "lo_custkey", row)).collect()
}

fn int(batch: &RecordBatch, column: &str, row: usize) -> i64 {
    batch[column].as_primitive::<Int32Type>().value(row).into()
}

fn tpch_lines(part: i32) -> Vec<Line> {
    let orders = OrderGenerator::new(1.0, part, PARTS);
    let mut lines = LineItemGenerator::new(1.0, part, PARTS).iter().peekable();
    let mut expected = Vec::new();
    for order in orders.iter() {
        while let Some(line) = lines.next_if(|line| line.l_orderkey == order.o_orderkey) {
            let numbers = [
                line.l_linenumber.into(),
                line.l_partkey,
                line.l_quantity,
                line.l_extendedprice.into_inner(),
                line.l_discount.into_inner(),
                line.l_tax.into_inner(),
                key(order.o_orderdate),
                key(line.l_commitdate),
            ];
            let texts = [order.o_orderpriority.into(), line.l_shipmode.into()];
            let total = order.o_totalprice.into_inner();
            expected.push((order.o_orderkey, numbers, texts, total));
        }
    }
    assert!(lines.next().is_none());
    expected
}

fn key(date: TPCHDate) -> i64 {
    let (year, month, day) = date.to_ymd();
    (i64::from(1900 + year) * 100 + i64::from(month)) * 100 + i64::from(day)
}

/// There are a fifth as many customers, on the same stream; those who never order are replaced.
fn check_customers(customers: &[i64], part: i32) {
    let orders = OrderGenerator::new(1.0, part, PARTS);
    let lines = LineItemGenerator::new(1.0, part, PARTS);
    let of_order: std::collections::HashMap<i64, i64> = orders
        .iter()
        .map(|order| (order.o_orderkey, order.o_custkey))
        .collect();
    let tpch = lines.iter().map(|line| of_order[&line.l_orderkey]);
    let scaled: Vec<i64> = tpch.map(|customer| (customer - 1) / 5 + 1).collect();
    assert_eq!(customers.len(), scaled.len());
    assert!(customers.iter().all(|customer| customer % 3 != 0));
    let near = |(a, b): (&i64, &i64)| (a - b).abs() <= 1;
    assert!(customers.iter().zip(&scaled).all(near));
    let same = customers
        .iter()
        .zip(&scaled)
        .filter(|(a, b)| a == b)
        .count();
    assert!(
        same * 10 > customers.len() * 6,
        "{same} of {}",
        customers.len()
    );
}
