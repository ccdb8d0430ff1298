//! Scans of files: zone maps hold, and prune; so do Bloom filters. Chunks are cached.

use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, RecordBatch, StringArray, StringViewArray, UInt32Array,
    make_comparator,
};
use arrow::compute::{SortOptions, cast, concat_batches};
use arrow::datatypes::{DataType, Int64Type};
use parquet::basic::Compression;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use vectile_encodings::{Predicate, VECTOR_LEN, ZoneMap};
use vectile_parquet::File;
use vectile_scan::{CachedFile, ChunkCache, Container, Counter, Fetch, Metrics, Node, Scan, Step};

use crate::support::{all_types, assert_same, expected, fetched, open, write};

/// The counters of a scan.
#[derive(Default)]
struct Counts(Mutex<Vec<(Counter, usize)>>);

impl Counts {
    fn of(&self, counter: Counter) -> usize {
        let counts = self.0.lock().unwrap();
        let counts = counts.iter().filter(|(of, _)| *of == counter);
        counts.map(|(_, count)| count).sum()
    }
}

impl Metrics for Counts {
    fn add(&self, counter: Counter, count: usize) {
        self.0.lock().unwrap().push((counter, count));
    }

    fn add_time(&self, _: Step, _: Duration) {}
}

fn scan(file: Arc<dyn Container>, filter: Node) -> (RecordBatch, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let mut scan = Scan::new(file).with_filter(filter).unwrap();
    scan.metrics = Arc::clone(&counts) as _;
    let schema = Arc::clone(scan.schema());
    let batches: Vec<RecordBatch> = scan.blocking().map(Result::unwrap).collect();
    (concat_batches(&schema, &batches).unwrap(), counts)
}

/// Panics unless the zones of `rows` values each are as a map says; returns the number of known bounds.
fn assert_holds(map: &ZoneMap, values: &ArrayRef, rows: usize, name: &str) -> usize {
    let mut known = 0;
    for zone in 0..map.len() {
        let start = zone * rows;
        let values = values.slice(start, rows.min(values.len() - start));
        if map.null_count.is_valid(zone) {
            let nulls = values.logical_null_count() as u64;
            assert_eq!(map.null_count.value(zone), nulls, "{name}, zone {zone}");
        }
        if !map.has_bounds() || values.null_count() == values.len() {
            continue;
        }
        for (bounds, is_max) in [(&map.min, false), (&map.max, true)] {
            if bounds.is_null(zone) {
                continue;
            }
            known += 1;
            let values = match values.data_type() {
                DataType::Dictionary(_, of) => cast(&values, of).unwrap(),
                _ => Arc::clone(&values),
            };
            assert_eq!(values.data_type(), bounds.data_type(), "{name}");
            let compare = make_comparator(&values, bounds, SortOptions::default()).unwrap();
            let valid = (0..values.len()).filter(|row| values.is_valid(*row));
            let mut is_value = false;
            for row in valid {
                let order = compare(row, zone);
                let holds = if is_max { order.is_le() } else { order.is_ge() };
                assert!(holds, "{name}, zone {zone}, row {row}");
                is_value |= order.is_eq();
            }
            assert!(is_value || !map.exact.value(zone), "{name}, zone {zone}");
        }
    }
    known
}

#[tokio::test]
async fn zones_hold_for_every_value() {
    const GROUP: usize = 2500;
    let batch = all_types(3 * GROUP, 7);
    for (statistics, pages) in [
        (EnabledStatistics::Page, true),
        (EnabledStatistics::Chunk, false),
        (EnabledStatistics::None, false),
    ] {
        let properties = WriterProperties::builder()
            .set_statistics_enabled(statistics)
            .set_statistics_truncate_length(Some(8))
            .set_column_index_truncate_length(Some(8))
            .set_max_row_group_row_count(Some(GROUP))
            .set_data_page_row_count_limit(600)
            .set_write_batch_size(50)
            .build();
        let file = open(write(&batch, properties)).await.unwrap();
        let groups = fetched(&file).await.unwrap();
        let schema = file.schema();
        let all = concat_batches(schema, &groups).unwrap();
        let all_columns: Vec<usize> = (0..schema.fields().len()).collect();
        for (index, field) in schema.fields().iter().enumerate() {
            let name = format!("{statistics:?}, {field}");
            let map = file.row_group_zones(index).unwrap();
            let known = assert_holds(map, all.column(index), GROUP, &name);
            let is_bounded = (field.data_type().is_integer()
                || matches!(
                    field.data_type(),
                    DataType::Utf8View
                        | DataType::BinaryView
                        | DataType::Date32
                        | DataType::Timestamp(_, _)
                        | DataType::Decimal128(_, _)
                        | DataType::Boolean
                ))
                && field.name() != "all_null";
            let expected = match is_bounded && statistics != EnabledStatistics::None {
                true => 6,
                false => 0,
            };
            // others have bounds, too, or have none
            assert!(
                known == expected || !is_bounded && known == 6,
                "{name}: {known}"
            );
        }
        for (row_group, rows) in groups.iter().enumerate() {
            let fetch = Fetch {
                row_group,
                data: vec![],
                zones: all_columns.clone(),
            };
            let read = file.fetch(&fetch).await.unwrap();
            let mut known = 0;
            for (index, map) in read.zones.iter().enumerate() {
                let name = format!("{statistics:?}, vectors of {}", schema.field(index));
                let Some(map) = map else { continue };
                assert_eq!(map.len(), GROUP.div_ceil(VECTOR_LEN), "{name}");
                known += assert_holds(map, rows.column(index), VECTOR_LEN, &name);
            }
            assert_eq!(known > 100, pages, "{known}");
            assert_eq!(read.bytes_read > 0, pages);
        }
    }
}

/// Ids, texts that ascend with them, and some that do not; three row groups of four vectors each.
async fn sorted(bloom: bool) -> (Arc<File>, RecordBatch) {
    let ids: Vec<i64> = (0..12_288).collect();
    let names: Vec<String> = ids.iter().map(|id| format!("n{:06}", id / 10)).collect();
    let late: Vec<Option<i64>> = ids
        .iter()
        .map(|id| (*id >= 12_000).then_some(*id))
        .collect();
    let odd: Vec<u32> = ids
        .iter()
        .map(|id| (*id as u32).wrapping_mul(2_654_435_761))
        .collect();
    let batch = RecordBatch::try_from_iter([
        ("id", Arc::new(Int64Array::from(ids)) as ArrayRef),
        ("name", Arc::new(StringArray::from(names))),
        ("late", Arc::new(Int64Array::from(late))),
        ("odd", Arc::new(UInt32Array::from(odd))),
    ])
    .unwrap();
    let properties = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_max_row_group_row_count(Some(4 * VECTOR_LEN))
        .set_data_page_row_count_limit(1000)
        .set_write_batch_size(100)
        .set_bloom_filter_enabled(bloom)
        .build();
    let bytes = write(&batch, properties);
    let file = open(bytes.clone()).await.unwrap();
    let rows = expected(&bytes, file.schema());
    (Arc::new(file), rows)
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

fn one_of(values: ArrayRef) -> Predicate {
    Predicate::In {
        values,
        negated: false,
    }
}

#[tokio::test]
async fn row_groups_and_vectors_are_pruned() {
    let (file, rows) = sorted(false).await;
    let (all, _) = scan(Arc::clone(&file) as _, Node::Constant(true));
    assert_same(&[all], &rows, "all");
    let cases: [(usize, ArrayRef, i64); 3] = [
        (0, Arc::new(Int64Array::from(vec![12_200])), 12_200),
        (1, Arc::new(StringViewArray::from(vec!["n001228"])), 12_280),
        (2, Arc::new(Int64Array::from(vec![12_195])), 12_195),
    ];
    for (column, value, first) in cases {
        let filter = Node::leaf(column, at_least(value));
        let (rows, counts) = scan(Arc::clone(&file) as _, filter);
        assert_eq!(ids(&rows), (first..12_288).collect::<Vec<_>>());
        let left = counts.of(Counter::VectorsLeft);
        let pruned = counts.of(Counter::VectorsPruned);
        assert_eq!((left, pruned), (1, 3), "column {column}");
    }
}

#[tokio::test]
async fn bloom_filters_prune_what_bounds_do_not() {
    let (file, _) = sorted(true).await;
    let odd = |row: u32| row.wrapping_mul(2_654_435_761);
    let value = |value: u32| Arc::new(UInt32Array::from(vec![value])) as ArrayRef;
    let (rows, counts) = scan(
        Arc::clone(&file) as _,
        Node::leaf(3, one_of(value(odd(5000)))),
    );
    assert_eq!(ids(&rows), [5000]);
    assert!(counts.of(Counter::RowGroupsPrunedByBloomFilter) >= 1);
    for (column, absent) in [
        (3, value(odd(500_000))),
        (1, Arc::new(StringViewArray::from(vec!["n000010x"])) as _),
    ] {
        assert!(file.has_bloom_filter(0, column) && !file.has_bloom_filter(9, column));
        let (rows, counts) = scan(Arc::clone(&file) as _, Node::leaf(column, one_of(absent)));
        assert_eq!(rows.num_rows(), 0);
        assert!(
            counts.of(Counter::RowGroupsPrunedByBloomFilter) >= 1,
            "{column}"
        );
    }
    let (without, _) = sorted(false).await;
    assert!(!without.has_bloom_filter(0, 3));
    assert!(without.bloom_filters(0, &[3]).await.is_err());
}

#[tokio::test]
async fn bloom_filters_have_every_value() {
    let batch = all_types(500, 9);
    let properties = WriterProperties::builder()
        .set_bloom_filter_enabled(true)
        .build();
    let file = open(write(&batch, properties)).await.unwrap();
    let rows = fetched(&file).await.unwrap().remove(0);
    let mut filters = 0;
    for (index, field) in file.schema().fields().iter().enumerate() {
        if !file.has_bloom_filter(0, index) {
            continue;
        }
        filters += 1;
        let filter = file.bloom_filters(0, &[index]).await.unwrap().remove(0);
        assert!(filter.bytes() > 0 && !filter.is_cached());
        let column = rows.column(index);
        let column = match column.data_type() {
            DataType::Dictionary(_, of) => cast(column, of).unwrap(),
            _ => Arc::clone(column),
        };
        for row in (0..column.len()).filter(|row| column.is_valid(*row)) {
            assert!(
                filter.may_contain(&column.slice(row, 1)).unwrap(),
                "{field}, row {row}"
            );
        }
        // values of another type are not known to be absent
        let other: ArrayRef = Arc::new(arrow::array::Float64Array::from(vec![0.5]));
        assert!(filter.may_contain(&other).unwrap(), "{field}");
    }
    assert!(filters > 15, "{filters}");
}

#[tokio::test]
async fn chunks_are_cached_packed() {
    let (file, rows) = sorted(false).await;
    let cache = Arc::new(ChunkCache::default());
    cache.set_limit(64 << 20);
    let chunks = Arc::new(cache.file());
    let cached = || {
        let file = Arc::clone(&file);
        Arc::new(CachedFile::new(file, Arc::clone(&chunks), true)) as Arc<dyn Container>
    };
    let (first, counts) = scan(cached(), Node::Constant(true));
    assert!(counts.of(Counter::BytesRead) > 0 && counts.of(Counter::BytesCached) == 0);
    let (second, counts) = scan(cached(), Node::Constant(true));
    assert!(counts.of(Counter::BytesRead) == 0 && counts.of(Counter::BytesCached) > 0);
    assert_same(&[first], &rows, "first");
    assert_same(&[second], &rows, "second");
    let plain = rows.num_rows() * (8 + 16 + 8 + 4);
    assert!(cache.bytes() < plain, "{} of {plain}", cache.bytes());
}
