//! The tables of TPC-H.

use arrow::array::RecordBatchReader;
use arrow::datatypes::SchemaRef;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

use crate::parts::Table;

/// All tables, the largest first, so that it does not finish alone.
pub fn tables(scale: f64) -> Vec<Table> {
    vec![
        table(
            ("lineitem", 6_000_000.0 * scale), // nearly
            LineItemArrow::schema_ref(),
            move |part, parts| LineItemArrow::new(LineItemGenerator::new(scale, part, parts)),
        ),
        table(
            ("orders", 1_500_000.0 * scale),
            OrderArrow::schema_ref(),
            move |part, parts| OrderArrow::new(OrderGenerator::new(scale, part, parts)),
        ),
        table(
            ("partsupp", 800_000.0 * scale),
            PartSuppArrow::schema_ref(),
            move |part, parts| PartSuppArrow::new(PartSuppGenerator::new(scale, part, parts)),
        ),
        table(
            ("part", 200_000.0 * scale),
            PartArrow::schema_ref(),
            move |part, parts| PartArrow::new(PartGenerator::new(scale, part, parts)),
        ),
        table(
            ("customer", 150_000.0 * scale),
            CustomerArrow::schema_ref(),
            move |part, parts| CustomerArrow::new(CustomerGenerator::new(scale, part, parts)),
        ),
        table(
            ("supplier", 10_000.0 * scale),
            SupplierArrow::schema_ref(),
            move |part, parts| SupplierArrow::new(SupplierGenerator::new(scale, part, parts)),
        ),
        // a table of fixed size, and of one part, at any scale
        table(
            ("nation", 25.0),
            NationArrow::schema_ref(),
            move |part, parts| NationArrow::new(NationGenerator::new(scale, part, parts)),
        ),
        table(
            ("region", 5.0),
            RegionArrow::schema_ref(),
            move |part, parts| RegionArrow::new(RegionGenerator::new(scale, part, parts)),
        ),
    ]
}

fn table<R: RecordBatchReader + 'static>(
    (name, rows): (&'static str, f64),
    schema: SchemaRef,
    part: impl Fn(i32, i32) -> R + Send + Sync + 'static,
) -> Table {
    let generate = move |part_number: u32, parts: u32| {
        // The largest scale has 12 million parts.
        Box::new(part(part_number as i32 + 1, parts as i32)) as Box<_>
    };
    Table::new(name, rows as u64, schema, generate)
}
