//! `customer` and `supplier`: parties with an address.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType::{self, Int32, Utf8View};
use tpchgen::distribution::Distributions;

use crate::columns::{Rows, ints, text};
use crate::stream::Stream;

/// The columns of `customer`.
pub(crate) const CUSTOMER: &[(&str, DataType)] = &[
    ("c_custkey", Int32),
    ("c_name", Utf8View),
    ("c_address", Utf8View),
    ("c_city", Utf8View),
    ("c_nation", Utf8View),
    ("c_region", Utf8View),
    ("c_phone", Utf8View),
    ("c_mktsegment", Utf8View),
];

/// The columns of `supplier`.
pub(crate) const SUPPLIER: &[(&str, DataType)] = &[
    ("s_suppkey", Int32),
    ("s_name", Utf8View),
    ("s_address", Utf8View),
    ("s_city", Utf8View),
    ("s_nation", Utf8View),
    ("s_region", Utf8View),
    ("s_phone", Utf8View),
];

const REGIONS: [&str; 5] = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"];

/// The region of each nation.
const REGION_OF: [usize; 25] = [
    0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1,
];

/// Characters of the nation in the names of its cities.
const CITY_STEM: usize = 9;

/// Generates customers or suppliers.
pub(crate) struct Parties {
    name: &'static str,
    row: u64,
    address: Stream,
    nation: Stream,
    city: Stream,
    phone: Stream,
    /// For customers only.
    segment: Option<Stream>,
}

impl Parties {
    /// Starts at customer `row`.
    pub(crate) fn customers(row: u64) -> Self {
        let segment = Stream::new(1_140_279_430, 1, row);
        Self {
            segment: Some(segment),
            ..Self::new("Customer", row, 881_155_353, 1_489_529_863)
        }
    }

    /// Starts at supplier `row`.
    pub(crate) fn suppliers(row: u64) -> Self {
        Self::new("Supplier", row, 706_178_559, 110_356_601)
    }

    fn new(name: &'static str, row: u64, address_seed: i64, nation_seed: i64) -> Self {
        Self {
            name,
            row,
            address: Stream::new(address_seed, 9, row),
            nation: Stream::new(nation_seed, 1, row),
            city: Stream::new(1_495_190_827, 1, row),
            phone: Stream::new(1_521_138_112, 3, row),
            segment: None,
        }
    }
}

impl Rows for Parties {
    fn next(&mut self, rows: usize) -> Vec<ArrayRef> {
        let lists = Distributions::static_default();
        let names = lists.nations().get_values();
        let keys = self.row + 1..=self.row + rows as u64;
        self.row += rows as u64;
        let nations = self.nation.rows(keys.clone(), |nation, _| {
            nation.uniform(0, REGION_OF.len() as i64 - 1) as usize
        });

        let mut columns = vec![
            ints(keys.clone().map(|key| key as i64)),
            text(keys.clone().map(|key| format!("{}#{key:09}", self.name))),
            text(
                self.address
                    .rows(keys.clone(), |address, _| address.text(15)),
            ),
            text(self.city.rows(&nations, |city, nation| {
                format!(
                    "{:CITY_STEM$.CITY_STEM$}{}",
                    names[*nation],
                    city.uniform(0, 9)
                )
            })),
            text(nations.iter().map(|nation| names[*nation])),
            text(nations.iter().map(|nation| REGIONS[REGION_OF[*nation]])),
            text(self.phone.rows(&nations, phone)),
        ];
        if let Some(segment) = &mut self.segment {
            let segments = lists.market_segments();
            columns.push(text(
                segment.rows(keys, |segment, _| segment.pick(segments)),
            ));
        }
        columns
    }
}

fn phone(stream: &mut Stream, nation: &usize) -> String {
    let (area, exchange) = (stream.uniform(100, 999), stream.uniform(100, 999));
    let number = stream.uniform(1000, 9999);
    format!("{}-{area:03}-{exchange:03}-{number:04}", 10 + nation)
}
