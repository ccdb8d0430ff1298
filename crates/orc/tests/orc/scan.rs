//! Scans of files: pruning by statistics and Bloom filters.

use std::fs;
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{
    ArrayRef, AsArray, Date32Array, Decimal128Array, Float64Array, Int64Array, RecordBatch,
    StringArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::Int64Type;
use vectile_encodings::Predicate;
use vectile_orc::File;
use vectile_scan::{Container, Counter, Fetch, Metrics, Node, Scan, Step};

use crate::support::{arrow_file, assert_same, data, open};

async fn stripes() -> Arc<File> {
    let bytes = fs::read(data().join("scan.stripes.orc")).unwrap();
    Arc::new(open(bytes).await.unwrap())
}

/// The counters of a scan.
#[derive(Default)]
struct Counts(Mutex<Vec<(Counter, usize)>>);

impl Counts {
    fn of(&self, counter: Counter) -> usize {
        let counts = self.0.lock().unwrap();
        counts
            .iter()
            .filter(|(of, _)| *of == counter)
            .map(|(_, count)| count)
            .sum()
    }
}

impl Metrics for Counts {
    fn add(&self, counter: Counter, count: usize) {
        self.0.lock().unwrap().push((counter, count));
    }

    fn add_time(&self, _: Step, _: Duration) {}
}

/// The rows that pass, and the counters.
fn scan(file: &Arc<File>, filter: Node) -> (RecordBatch, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let mut scan = Scan::new(Arc::clone(file) as _)
        .with_filter(filter)
        .unwrap();
    scan.metrics = Arc::clone(&counts) as _;
    let schema = Arc::clone(scan.schema());
    let batches: Vec<RecordBatch> = scan.blocking().map(Result::unwrap).collect();
    (concat_batches(&schema, &batches).unwrap(), counts)
}

fn ids(rows: &RecordBatch) -> Vec<i64> {
    rows.column(0).as_primitive::<Int64Type>().values().to_vec()
}

fn at_least(value: ArrayRef) -> Predicate {
    Predicate::Range {
        low: Bound::Included(value),
        high: Bound::Unbounded,
        negated: false,
    }
}

fn column(file: &File, name: &str) -> usize {
    file.metadata().schema().index_of(name).unwrap()
}

#[tokio::test]
async fn all_rows() {
    let file = stripes().await;
    assert_eq!((file.num_row_groups(), file.rows(0)), (3, 2000));
    let (rows, counts) = scan(&file, Node::Constant(true));
    assert_same(&rows, &arrow_file(&data().join("scan.arrow")), "scan");
    assert!(counts.of(Counter::BytesRead) > 100_000);
}

#[tokio::test]
async fn stripes_and_index_groups_are_pruned() {
    let file = stripes().await;
    let cases: [(&str, ArrayRef, i64); 4] = [
        ("id", Arc::new(Int64Array::from(vec![5990])), 5990),
        ("day", Arc::new(Date32Array::from(vec![59])), 5900),
        ("late", Arc::new(Int64Array::from(vec![5990])), 5990),
        (
            "amount",
            Arc::new(
                Decimal128Array::from(vec![4990])
                    .with_precision_and_scale(12, 2)
                    .unwrap(),
            ),
            5990,
        ),
    ];
    for (name, value, first) in cases {
        let filter = Node::leaf(column(&file, name), at_least(value));
        let (rows, counts) = scan(&file, filter);
        assert_eq!(ids(&rows), (first..6000).collect::<Vec<_>>(), "{name}");
        // of two vectors of the last stripe, the first has other index groups
        assert_eq!(
            (
                counts.of(Counter::VectorsLeft),
                counts.of(Counter::VectorsPruned)
            ),
            (1, 1),
            "{name}"
        );
    }
}

#[tokio::test]
async fn nan_is_found() {
    let file = stripes().await;
    let greater = |name| {
        let value: ArrayRef = Arc::new(Float64Array::from(vec![1e9]));
        Node::leaf(column(&file, name), at_least(value))
    };
    // NaN sorts above all numbers, and statistics exclude it
    let (rows, _) = scan(&file, greater("nan"));
    assert_eq!(ids(&rows), [5, 1005, 2005, 3005, 4005, 5005]);
    let (rows, counts) = scan(&file, greater("price"));
    assert_eq!((rows.num_rows(), counts.of(Counter::BytesRead)), (0, 0));
}

#[tokio::test]
async fn nulls_are_counted() {
    let file = stripes().await;
    let late = column(&file, "late");
    let zones = file.row_group_zones(late).unwrap();
    assert_eq!(zones.null_count.values().to_vec(), [2000, 1000, 0]);
    let (rows, counts) = scan(&file, Node::leaf(late, Predicate::IsNotNull));
    assert_eq!(ids(&rows), (3000..6000).collect::<Vec<_>>());
    assert_eq!(counts.of(Counter::VectorsPruned), 0);
}

/// Every value lies within the bounds of its stripe and of its vector, in every type.
#[tokio::test]
async fn bounds_hold() {
    for (path, _) in crate::support::files(&data()) {
        let name = path.display().to_string();
        let file = open(fs::read(&path).unwrap()).await.unwrap();
        let columns = file.metadata().schema().fields().len();
        for stripe in 0..file.num_row_groups() {
            let all: Vec<usize> = (0..columns).collect();
            let fetch = Fetch {
                row_group: stripe,
                data: vec![],
                zones: all.clone(),
            };
            let vectors = file.fetch(&fetch).await.unwrap().zones;
            let arrays = file.decode(stripe, &all).await.unwrap();
            for (column, array) in arrays.iter().enumerate() {
                let of_stripe = file.row_group_zones(column).unwrap().slice(stripe, 1);
                let zones = [
                    (of_stripe, array.len()),
                    (vectors[column].clone().unwrap(), 1024),
                ];
                for (zones, rows) in zones {
                    for zone in 0..zones.len() {
                        let start = zone * rows;
                        let values = array.slice(start, rows.min(array.len() - start));
                        support_bounds(
                            &zones.slice(zone, 1),
                            &values,
                            &format!("{name}, column {column}, zone {zone}"),
                        );
                    }
                }
            }
        }
    }
}

fn support_bounds(zone: &vectile_encodings::ZoneMap, values: &ArrayRef, name: &str) {
    use arrow::array::{Array, make_comparator};
    if zone.null_count.is_valid(0) {
        assert_eq!(
            zone.null_count.value(0),
            values.logical_null_count() as u64,
            "{name}"
        );
    }
    if zone.min.data_type() != values.data_type() {
        assert!(!zone.has_bounds(), "{name}");
        return;
    }
    let options = arrow::compute::SortOptions::default();
    let below = make_comparator(values, &zone.min, options).unwrap();
    let above = make_comparator(values, &zone.max, options).unwrap();
    for row in (0..values.len()).filter(|&row| values.is_valid(row)) {
        assert!(
            zone.min.is_null(0) || below(row, 0).is_ge(),
            "{name}, row {row}"
        );
        assert!(
            zone.max.is_null(0) || above(row, 0).is_le(),
            "{name}, row {row}"
        );
    }
}

#[tokio::test]
async fn bloom_filters_rule_stripes_out() {
    let file = stripes().await;
    let rows = arrow_file(&data().join("scan.arrow"));
    for name in ["id", "key", "name", "day"] {
        let column = column(&file, name);
        for stripe in 0..3 {
            assert!(file.has_bloom_filter(stripe, column));
            let filters = file.bloom_filters(stripe, &[column]).await.unwrap();
            let values = rows.column(column).slice(stripe * 2000, 2000);
            for row in 0..2000 {
                assert!(
                    filters[0].may_contain(&values.slice(row, 1)).unwrap(),
                    "{name}, row {row}"
                );
            }
        }
    }
    let key = column(&file, "key");
    assert!(!file.has_bloom_filter(0, column(&file, "price")));
    let filters = file.bloom_filters(1, &[key]).await.unwrap();
    let passed = (0..1000).filter(|i| {
        let other = Int64Array::from(vec![2_000_000 + i]);
        filters[0].may_contain(&other).unwrap()
    });
    // four filters, each with one in a hundred
    assert!(passed.count() < 100);
    let find = |column, value: ArrayRef| Node::leaf(column, Predicate::equal(value));
    let (rows, counts) = scan(&file, find(key, Arc::new(Int64Array::from(vec![5 * 7919]))));
    assert_eq!(ids(&rows), [5]);
    assert!(counts.of(Counter::RowGroupsPrunedByBloomFilter) > 0);
    let absent: ArrayRef = Arc::new(StringArray::from(vec!["name 1x"]));
    let (rows, counts) = scan(&file, find(column(&file, "name"), absent));
    assert_eq!(rows.num_rows(), 0);
    assert!(counts.of(Counter::RowGroupsPrunedByBloomFilter) > 0);
}
