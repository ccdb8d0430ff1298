//! A table does not depend on the ranges it is generated in.

use std::ops::Range;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use vectile_ssb::{Scale, Table};

fn rows(table: Table, scale: Scale, range: Range<u64>) -> RecordBatch {
    let batches: Vec<RecordBatch> = table.generate(scale, range).map(Result::unwrap).collect();
    concat_batches(&table.schema(), &batches).unwrap()
}

#[test]
fn ranges_join_seamlessly() {
    let scale = Scale::try_from(3).unwrap();
    for table in Table::ALL {
        let units = table.units(scale);
        // Around the middle, and up to the end.
        for whole in [units / 2..units / 2 + 1_000, units - 1_000..units] {
            let expected = rows(table, scale, whole.clone());
            for parts in [2, 7, 1_000] {
                let cut = |part: u64| whole.start + 1_000 * part / parts;
                let parts: Vec<RecordBatch> = (0..parts)
                    .map(|part| rows(table, scale, cut(part)..cut(part + 1)))
                    .collect();
                let joined = concat_batches(&table.schema(), &parts).unwrap();
                assert_eq!(joined, expected, "{} {whole:?}", table.name());
            }
        }
    }
}

#[test]
fn ranges_beyond_the_end_are_empty() {
    for table in Table::ALL {
        let units = table.units(Scale::MIN);
        let last = rows(table, Scale::MIN, units - 1..u64::MAX);
        assert_eq!(last, rows(table, Scale::MIN, units - 1..units));
        assert!(last.num_rows() > 0, "{}", table.name());
        assert_eq!(table.generate(Scale::MIN, units..units + 9).count(), 0);
    }
}

/// Batches have about equal sizes, and all rows of an order are in the same one.
#[test]
fn batches_are_of_even_size() {
    let batches = Table::Lineorder.generate(Scale::MIN, 0..20_480);
    let rows: Vec<usize> = batches.map(|batch| batch.unwrap().num_rows()).collect();
    assert_eq!(rows.len(), 10);
    assert!(
        rows.iter().all(|rows| (7_900..8_500).contains(rows)),
        "{rows:?}"
    );
}
