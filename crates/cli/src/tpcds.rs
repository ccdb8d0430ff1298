//! The tables of TPC-DS.

use vectile_tpcds::{Scale, Table as TpcdsTable};

use crate::parts::Table;

/// All tables, the largest first, so that it does not finish alone.
pub fn tables(scale: &Scale) -> Vec<Table> {
    let tables = TpcdsTable::all().iter();
    tables.map(|table| self::table(table, scale)).collect()
}

fn table(table: &'static TpcdsTable, scale: &Scale) -> Table {
    let (units, rows, scale) = (table.units(scale), table.rows(scale), scale.clone());
    let generate = move |part: u32, parts: u32| {
        let start_of = |part: u32| units * u64::from(part) / u64::from(parts);
        table.generate(&scale, start_of(part)..start_of(part + 1))
    };
    Table::new(table.name(), rows, table.schema(), generate)
}
