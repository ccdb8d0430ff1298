//! The tables of the Star Schema Benchmark.

use vectile_ssb::{Scale, Table as SsbTable};

use crate::parts::Table;

/// All tables, the largest first, so that it does not finish alone.
pub fn tables(scale: Scale) -> Vec<Table> {
    SsbTable::ALL
        .into_iter()
        .map(|table| self::table(table, scale))
        .collect()
}

fn table(table: SsbTable, scale: Scale) -> Table {
    let units = table.units(scale);
    let generate = move |part: u32, parts: u32| {
        let start_of = |part: u32| units * u64::from(part) / u64::from(parts);
        Box::new(table.generate(scale, start_of(part)..start_of(part + 1))) as Box<_>
    };
    Table::new(table.name(), table.rows(scale), table.schema(), generate)
}
