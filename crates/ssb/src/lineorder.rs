//! `lineorder`: the lines of orders, each with the columns that TPC-H keeps in `orders`.

use arrow::array::ArrayRef;
use arrow::datatypes::DataType::{self, Int32, Int64, Utf8View};
use tpchgen::dates::TOTAL_DATE_RANGE;
use tpchgen::distribution::Distributions;

use crate::columns::{Rows, ints, longs, repeated, text};
use crate::date::DATE_KEYS;
use crate::scale::{CUSTOMERS, SUPPLIERS, Scale};
use crate::stream::Stream;

/// The columns of `lineorder`.
pub(crate) const LINEORDER: &[(&str, DataType)] = &[
    ("lo_orderkey", Int64),
    ("lo_linenumber", Int32),
    ("lo_custkey", Int32),
    ("lo_partkey", Int32),
    ("lo_suppkey", Int32),
    ("lo_orderdate", Int32),
    ("lo_orderpriority", Utf8View),
    ("lo_shippriority", Utf8View),
    ("lo_quantity", Int32),
    ("lo_extendedprice", Int64),
    ("lo_ordtotalprice", Int64),
    ("lo_discount", Int32),
    ("lo_revenue", Int64),
    ("lo_supplycost", Int64),
    ("lo_tax", Int32),
    ("lo_commitdate", Int32),
    ("lo_shipmode", Utf8View),
];

/// The most lines of an order, and its number of draws in a stream of lines.
const MAX_LINES: i32 = 7;

/// The last day of an order, from 0: 151 days are left for shipping and receipt.
const LAST_ORDER_DAY: i64 = TOTAL_DATE_RANGE as i64 - 151 - 1;

/// Generates the lines of orders.
pub(crate) struct Lineorders {
    row: u64,
    customers: i64,
    parts: i64,
    suppliers: i64,
    day: Stream,
    customer: Stream,
    priority: Stream,
    line_count: Stream,
    quantity: Stream,
    discount: Stream,
    tax: Stream,
    ship_mode: Stream,
    part: Stream,
    supplier: Stream,
    days_to_commit: Stream,
}

impl Lineorders {
    /// Starts at order `row`.
    pub(crate) fn new(scale: Scale, row: u64) -> Self {
        let of_orders = |seed| Stream::new(seed, 1, row);
        let of_lines = |seed| Stream::new(seed, MAX_LINES, row);
        Self {
            row,
            customers: scale.times(CUSTOMERS) as i64,
            parts: scale.ordered_parts() as i64,
            suppliers: scale.times(SUPPLIERS) as i64,
            day: of_orders(1_066_728_069),
            customer: of_orders(851_767_375),
            priority: of_orders(591_449_447),
            line_count: of_orders(1_434_868_289),
            quantity: of_lines(209_208_115),
            discount: of_lines(554_590_007),
            tax: of_lines(721_958_466),
            ship_mode: of_lines(675_466_456),
            part: of_lines(1_808_217_256),
            supplier: of_lines(2_095_021_727),
            days_to_commit: of_lines(904_914_315),
        }
    }
}

impl Rows for Lineorders {
    fn next(&mut self, orders: usize) -> Vec<ArrayRef> {
        let lists = Distributions::static_default();
        let (priorities, ship_modes) = (lists.order_priority(), lists.ship_modes());
        let rows = self.row + 1..=self.row + orders as u64;
        self.row += orders as u64;

        let keys: Vec<i64> = rows.map(order_key).collect();
        let days = self.day.rows(&keys, |s, _| s.uniform(0, LAST_ORDER_DAY));
        let customers = self
            .customer
            .rows(&keys, |s, _| customer_key(s, self.customers));
        let priorities = self.priority.rows(&keys, |s, _| s.pick(priorities));
        let counts = self
            .line_count
            .rows(&keys, |s, _| s.uniform(1, MAX_LINES.into()) as usize);

        let quantities = self.quantity.several(&counts, |s| s.uniform(1, 50));
        let discounts = self.discount.several(&counts, |s| s.uniform(0, 10));
        let taxes = self.tax.several(&counts, |s| s.uniform(0, 8));
        let parts = self.part.several(&counts, |s| s.uniform(1, self.parts));
        let suppliers = self
            .supplier
            .several(&counts, |s| s.uniform(1, self.suppliers));
        let ship_modes = self.ship_mode.several(&counts, |s| s.pick(ship_modes));
        let waits = self.days_to_commit.several(&counts, |s| s.uniform(30, 90));

        let prices: Vec<i64> = parts.iter().map(|part| price(*part)).collect();
        let supply_costs = prices.iter().map(|price| 6 * price / 10).collect();
        let extended = zip(&prices, &quantities, |price, quantity| price * quantity);
        let revenues = zip(&extended, &discounts, |price, discount| {
            price * (100 - discount) / 100
        });
        let taxed = zip(&revenues, &taxes, |revenue, tax| {
            revenue * (100 + tax) / 100
        });
        let days = repeated(&days, &counts);
        let date_keys: &[i64] = &DATE_KEYS;
        let date_key = |day: i64| date_keys[day as usize];
        vec![
            longs(repeated(&keys, &counts)),
            ints(counts.iter().flat_map(|count| 1..=*count as i64)),
            ints(repeated(&customers, &counts)),
            ints(parts),
            ints(suppliers),
            ints(days.iter().map(|day| date_key(*day))),
            text(repeated(&priorities, &counts)),
            text(std::iter::repeat_n("0", days.len())),
            ints(quantities),
            longs(extended),
            longs(repeated(&totals(&taxed, &counts), &counts)),
            ints(discounts),
            longs(revenues),
            longs(supply_costs),
            ints(taxes),
            ints(
                days.iter()
                    .zip(waits)
                    .map(|(day, wait)| date_key(day + wait)),
            ),
            text(ship_modes),
        ]
    }
}

/// Keys leave gaps: of 32 numbers, 8 are used.
fn order_key(order: u64) -> i64 {
    ((order >> 3) << 5 | order & 7) as i64
}

/// A random one of the two thirds of customers who order.
fn customer_key(stream: &mut Stream, customers: i64) -> i64 {
    let mut key = stream.uniform(1, customers);
    let mut step = 1;
    while key % 3 == 0 {
        key = (key + step).min(customers);
        step = -step;
    }
    key
}

/// Unit price of a part, in cents.
fn price(part: i64) -> i64 {
    90_000 + part / 10 % 20_001 + part % 1_000 * 100
}

fn zip(a: &[i64], b: &[i64], of: impl Fn(i64, i64) -> i64) -> Vec<i64> {
    a.iter().zip(b).map(|(a, b)| of(*a, *b)).collect()
}

/// The sums of consecutive values, `counts` of them each.
fn totals(values: &[i64], counts: &[usize]) -> Vec<i64> {
    let mut values = values.iter();
    let total = |count: &usize| values.by_ref().take(*count).sum();
    counts.iter().map(total).collect()
}
