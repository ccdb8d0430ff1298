//! The tables, and any range of their rows as batches.

use std::ops::Range;

use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatchIterator, RecordBatchReader};
use tpcdsgen::config::{Session, Table as Source};
use tpcdsgen_arrow::{
    CallCenterArrow, CatalogPageArrow, CatalogReturnsArrow, CatalogSalesArrow,
    CustomerAddressArrow, CustomerArrow, CustomerDemographicsArrow, DateDimArrow,
    HouseholdDemographicsArrow, IncomeBandArrow, InventoryArrow, ItemArrow, PromotionArrow,
    ReasonArrow, ShipModeArrow, StoreArrow, StoreReturnsArrow, StoreSalesArrow, TimeDimArrow,
    WarehouseArrow, WebPageArrow, WebReturnsArrow, WebSalesArrow, WebSiteArrow,
};

use crate::scale::Scale;

/// A table of the benchmark.
pub struct Table {
    source: Source,
    /// Rows that come from a unit, on average.
    rows_per_unit: f64,
    schema: fn() -> SchemaRef,
    /// Generates the units from one to another, both counted from 1 and included.
    generate: fn(Session, u64, u64) -> Box<dyn RecordBatchReader>,
}

macro_rules! tables {
    ($(($source:ident, $generator:ident, $rows_per_unit:expr),)+) => {
        [$(Table {
            source: Source::$source,
            rows_per_unit: $rows_per_unit,
            schema: $generator::schema_ref,
            generate: |session, first, last| {
                Box::new($generator::new(session).with_source_row_range(first, last))
            },
        }),+]
    };
}

static TABLES: [Table; 24] = tables![
    (Inventory, InventoryArrow, 1.0),
    (StoreSales, StoreSalesArrow, 12.0),
    (CatalogSales, CatalogSalesArrow, 9.0),
    (CustomerDemographics, CustomerDemographicsArrow, 1.0),
    (WebSales, WebSalesArrow, 12.0),
    (StoreReturns, StoreReturnsArrow, 1.2),
    (CatalogReturns, CatalogReturnsArrow, 0.9),
    (Customer, CustomerArrow, 1.0),
    (TimeDim, TimeDimArrow, 1.0),
    (DateDim, DateDimArrow, 1.0),
    (WebReturns, WebReturnsArrow, 1.2),
    (CustomerAddress, CustomerAddressArrow, 1.0),
    (Item, ItemArrow, 1.0),
    (CatalogPage, CatalogPageArrow, 1.0),
    (HouseholdDemographics, HouseholdDemographicsArrow, 1.0),
    (Promotion, PromotionArrow, 1.0),
    (Reason, ReasonArrow, 1.0),
    (WebPage, WebPageArrow, 1.0),
    (WebSite, WebSiteArrow, 1.0),
    (IncomeBand, IncomeBandArrow, 1.0),
    (ShipMode, ShipModeArrow, 1.0),
    (Store, StoreArrow, 1.0),
    (CallCenter, CallCenterArrow, 1.0),
    (Warehouse, WarehouseArrow, 1.0),
];

impl Table {
    /// All tables, the largest first.
    pub fn all() -> &'static [Table] {
        &TABLES
    }

    /// Its name in queries.
    pub fn name(&self) -> &'static str {
        self.source.get_name()
    }

    /// Number of rows; for sales and returns, of purchases, which have several rows or none.
    pub fn units(&self, scale: &Scale) -> u64 {
        scale.session().get_scaling().get_row_count(self.source)
    }

    /// Number of rows; approximate for sales and returns.
    pub fn rows(&self, scale: &Scale) -> u64 {
        (self.units(scale) as f64 * self.rows_per_unit) as u64
    }

    /// Its columns: keys and numbers of 32 bits, numbers of purchases of 64 bits, decimals, dates and text.
    pub fn schema(&self) -> SchemaRef {
        (self.schema)()
    }

    /// Generates the units `range`, counted from 0. Units beyond the end of the table are omitted.
    pub fn generate(&self, scale: &Scale, range: Range<u64>) -> Box<dyn RecordBatchReader> {
        let end = range.end.min(self.units(scale));
        match range.start < end {
            true => (self.generate)(scale.session().clone(), range.start + 1, end),
            false => Box::new(RecordBatchIterator::new([], self.schema())),
        }
    }
}
