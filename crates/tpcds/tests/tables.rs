//! Tables have the known numbers of rows (`reason` that of the reference generator), and do not depend on the ranges that they are generated in.

use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use vectile_tpcds::{Scale, Table};

/// Rows at scale 1.
const ROWS: [(&str, usize); 24] = [
    ("call_center", 6),
    ("catalog_page", 11_718),
    ("catalog_returns", 144_067),
    ("catalog_sales", 1_441_548),
    ("customer", 100_000),
    ("customer_address", 50_000),
    ("customer_demographics", 1_920_800),
    ("date_dim", 73_049),
    ("household_demographics", 7_200),
    ("income_band", 20),
    ("inventory", 11_745_000),
    ("item", 18_000),
    ("promotion", 300),
    ("reason", 75),
    ("ship_mode", 20),
    ("store", 12),
    ("store_returns", 287_514),
    ("store_sales", 2_880_404),
    ("time_dim", 86_400),
    ("warehouse", 5),
    ("web_page", 60),
    ("web_returns", 71_763),
    ("web_sales", 719_384),
    ("web_site", 30),
];

#[test]
fn numbers_of_rows_are_known() {
    let scale = Scale::try_from(1.0).unwrap();
    for table in Table::all() {
        let batches = table.generate(&scale, 0..u64::MAX);
        let rows: usize = batches.map(|batch| batch.unwrap().num_rows()).sum();
        let known = ROWS.iter().find(|(name, _)| *name == table.name());
        assert_eq!(Some(&(table.name(), rows)), known);
        let (estimate, rows) = (table.rows(&scale) as f64, rows as f64);
        assert!(
            (0.9..1.1).contains(&(estimate / rows)),
            "{} {estimate} {rows}",
            table.name()
        );
    }
}

#[test]
fn ranges_join_seamlessly() {
    let scale = Scale::try_from(0.01).unwrap();
    for table in Table::all() {
        let rows = |range: Range<u64>| {
            let batches: Vec<RecordBatch> =
                table.generate(&scale, range).map(Result::unwrap).collect();
            concat_batches(&table.schema(), &batches).unwrap()
        };
        let units = table.units(&scale).min(20_000);
        let whole = rows(0..units);
        assert!(whole.num_rows() > 0, "{}", table.name());
        for parts in [2, 7] {
            let cut = |part: u64| units * part / parts;
            let parts: Vec<RecordBatch> = (0..parts)
                .map(|part| rows(cut(part)..cut(part + 1)))
                .collect();
            assert_eq!(
                concat_batches(&table.schema(), &parts).unwrap(),
                whole,
                "{}",
                table.name()
            );
        }
        let end = table.units(&scale);
        assert_eq!(table.generate(&scale, end..end + 9).count(), 0);
    }
}
