//! The tables of TPC-H, generated in parts.

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use tpchgen::generators::{
    CustomerGenerator, LineItemGenerator, NationGenerator, OrderGenerator, PartGenerator,
    PartSuppGenerator, RegionGenerator, SupplierGenerator,
};
use tpchgen_arrow::{
    CustomerArrow, LineItemArrow, NationArrow, OrderArrow, PartArrow, PartSuppArrow, RegionArrow,
    SupplierArrow,
};

/// A table of TPC-H.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// 25 nations.
    Nation,
    /// 5 regions.
    Region,
    /// 10,000 rows per unit of scale.
    Supplier,
    /// 150,000 rows per unit of scale.
    Customer,
    /// 200,000 rows per unit of scale.
    Part,
    /// 800,000 rows per unit of scale.
    Partsupp,
    /// 1,500,000 rows per unit of scale.
    Orders,
    /// About 6,000,000 rows per unit of scale.
    Lineitem,
}

/// Rows in a part of a table: small enough to hold several in memory, large enough that
/// starting one (positioning its random streams) costs nothing beside it.
const PART_ROWS: f64 = 50_000.0;

/// Batches of one part of a table.
pub type PartBatches = Box<dyn Iterator<Item = Result<RecordBatch, ArrowError>>>;

impl Table {
    /// All of them, the largest first, so that it does not finish alone.
    pub const ALL: [Table; 8] = [
        Table::Lineitem,
        Table::Orders,
        Table::Partsupp,
        Table::Part,
        Table::Customer,
        Table::Supplier,
        Table::Nation,
        Table::Region,
    ];

    /// The table's name, as in the specification.
    pub fn name(self) -> &'static str {
        match self {
            Table::Nation => "nation",
            Table::Region => "region",
            Table::Supplier => "supplier",
            Table::Customer => "customer",
            Table::Part => "part",
            Table::Partsupp => "partsupp",
            Table::Orders => "orders",
            Table::Lineitem => "lineitem",
        }
    }

    /// Rows at this scale; for lineitem, nearly.
    pub fn rows(self, scale: f64) -> f64 {
        match self {
            Table::Nation => 25.0,
            Table::Region => 5.0,
            Table::Supplier => 10_000.0 * scale,
            Table::Customer => 150_000.0 * scale,
            Table::Part => 200_000.0 * scale,
            Table::Partsupp => 800_000.0 * scale,
            Table::Orders => 1_500_000.0 * scale,
            Table::Lineitem => 6_000_000.0 * scale,
        }
    }

    /// Parts to generate the table in at this scale.
    pub fn parts(self, scale: f64) -> i32 {
        // A table of fixed size has one part, whatever the scale.
        (self.rows(scale) / PART_ROWS).ceil().max(1.0) as i32
    }

    /// The table's columns.
    pub fn schema(self) -> SchemaRef {
        match self {
            Table::Nation => NationArrow::schema_ref(),
            Table::Region => RegionArrow::schema_ref(),
            Table::Supplier => SupplierArrow::schema_ref(),
            Table::Customer => CustomerArrow::schema_ref(),
            Table::Part => PartArrow::schema_ref(),
            Table::Partsupp => PartSuppArrow::schema_ref(),
            Table::Orders => OrderArrow::schema_ref(),
            Table::Lineitem => LineItemArrow::schema_ref(),
        }
    }

    /// The rows of one of `parts` parts, counted from 1.
    pub fn part(self, scale: f64, part: i32, parts: i32) -> PartBatches {
        match self {
            Table::Nation => Box::new(NationArrow::new(NationGenerator::new(scale, part, parts))),
            Table::Region => Box::new(RegionArrow::new(RegionGenerator::new(scale, part, parts))),
            Table::Supplier => Box::new(SupplierArrow::new(SupplierGenerator::new(
                scale, part, parts,
            ))),
            Table::Customer => Box::new(CustomerArrow::new(CustomerGenerator::new(
                scale, part, parts,
            ))),
            Table::Part => Box::new(PartArrow::new(PartGenerator::new(scale, part, parts))),
            Table::Partsupp => Box::new(PartSuppArrow::new(PartSuppGenerator::new(
                scale, part, parts,
            ))),
            Table::Orders => Box::new(OrderArrow::new(OrderGenerator::new(scale, part, parts))),
            Table::Lineitem => Box::new(LineItemArrow::new(LineItemGenerator::new(
                scale, part, parts,
            ))),
        }
    }
}
