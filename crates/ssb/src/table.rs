//! The tables, and any range of their rows as batches.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchReader};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;

use crate::columns::Rows;
use crate::date::{DATE, DAYS, Dates};
use crate::lineorder::{LINEORDER, Lineorders};
use crate::part::{PART, Parts};
use crate::party::{CUSTOMER, Parties, SUPPLIER};
use crate::scale::{CUSTOMERS, ORDERS, SUPPLIERS, Scale};

/// Approximate rows of a batch; exact except for `lineorder`.
const BATCH_ROWS: u64 = 8192;

/// Lines of an order, on average.
const LINES_PER_ORDER: u64 = 4;

/// A table of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Table {
    /// Lines of orders, about 6,000,000 per unit of scale.
    Lineorder,
    /// 200,000 rows, and as many more for each doubling of the scale.
    Part,
    /// 30,000 rows per unit of scale.
    Customer,
    /// 2,000 rows per unit of scale.
    Supplier,
    /// The 2,557 days from 1992 to 1998.
    Date,
}

impl Table {
    /// All tables, the largest first.
    pub const ALL: [Table; 5] = [
        Table::Lineorder,
        Table::Part,
        Table::Customer,
        Table::Supplier,
        Table::Date,
    ];

    /// Its name in queries.
    pub fn name(self) -> &'static str {
        match self {
            Table::Lineorder => "lineorder",
            Table::Part => "part",
            Table::Customer => "customer",
            Table::Supplier => "supplier",
            Table::Date => "date",
        }
    }

    /// Number of rows; for `lineorder`, of orders, which have 1 to 7 rows each.
    pub fn units(self, scale: Scale) -> u64 {
        match self {
            Table::Lineorder => scale.times(ORDERS),
            Table::Part => scale.parts(),
            Table::Customer => scale.times(CUSTOMERS),
            Table::Supplier => scale.times(SUPPLIERS),
            Table::Date => DAYS,
        }
    }

    /// Number of rows; approximate for `lineorder`.
    pub fn rows(self, scale: Scale) -> u64 {
        self.units(scale) * self.rows_per_unit()
    }

    /// Its columns: keys, dates and small numbers of 32 bits, money (cents) and order keys of 64 bits,
    /// and text. None has nulls.
    pub fn schema(self) -> SchemaRef {
        let columns: &[(&str, DataType)] = match self {
            Table::Lineorder => LINEORDER,
            Table::Part => PART,
            Table::Customer => CUSTOMER,
            Table::Supplier => SUPPLIER,
            Table::Date => DATE,
        };
        let field =
            |(name, data_type): &(&str, DataType)| Field::new(*name, data_type.clone(), false);
        Arc::new(Schema::new(columns.iter().map(field).collect::<Vec<_>>()))
    }

    /// Generates the rows `range`, counted from 0; for `lineorder`, the rows of the orders `range`. Rows beyond the end
    /// of the table are omitted.
    pub fn generate(self, scale: Scale, range: Range<u64>) -> Batches {
        let end = range.end.min(self.units(scale));
        let start = range.start.min(end);
        let rows: Box<dyn Rows> = match self {
            Table::Lineorder => Box::new(Lineorders::new(scale, start)),
            Table::Part => Box::new(Parts::new(start)),
            Table::Customer => Box::new(Parties::customers(start)),
            Table::Supplier => Box::new(Parties::suppliers(start)),
            Table::Date => Box::new(Dates::new(start)),
        };
        Batches {
            schema: self.schema(),
            rows,
            units_left: end - start,
            units_per_batch: BATCH_ROWS / self.rows_per_unit(),
        }
    }

    fn rows_per_unit(self) -> u64 {
        match self {
            Table::Lineorder => LINES_PER_ORDER,
            _ => 1,
        }
    }
}

/// The rows of a range, generated on demand, in batches of about 8192.
pub struct Batches {
    schema: SchemaRef,
    rows: Box<dyn Rows>,
    units_left: u64,
    units_per_batch: u64,
}

impl Iterator for Batches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let units = self.units_left.min(self.units_per_batch);
        if units == 0 {
            return None;
        }
        self.units_left -= units;
        let columns = self.rows.next(units as usize);
        Some(RecordBatch::try_new(Arc::clone(&self.schema), columns))
    }
}

impl RecordBatchReader for Batches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
