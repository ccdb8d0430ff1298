//! The table of web analytics.

use vectile_hits::{Scale, Table as HitsTable};

use crate::parts::Table;

/// Its only table.
pub fn tables(scale: Scale) -> Vec<Table> {
    let table = HitsTable::new(scale);
    let rows = table.rows();
    let generate = move |part: u32, parts: u32| {
        let start_of = |part: u32| {
            let start = u128::from(rows) * u128::from(part) / u128::from(parts);
            start as u64 // at most `rows`
        };
        Box::new(table.generate(start_of(part)..start_of(part + 1))) as Box<_>
    };
    vec![Table::new(
        HitsTable::NAME,
        rows,
        HitsTable::schema(),
        generate,
    )]
}
