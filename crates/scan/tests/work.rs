//! How much work scans do: what they read, when, and with whose memory.

mod common;

use std::collections::HashMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, RecordBatch};
use arrow::datatypes::{Int64Type, SchemaRef};
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use vectile_encodings::{Predicate, Selection, ZoneMap};
use vectile_scan::{
    Container, Counter, DynamicFilter, Error, Fetch, Filters, Memory, Metrics, Node, Result, Role,
    RowGroupData, RowTest, Scan, Selected, SelectedRows, Selector, Step, Test,
};

use common::{Random, Statistics, Table, batches};

const ROWS: [usize; 3] = [5000, 5000, 5000];

fn table(statistics: Statistics) -> Arc<Table> {
    Arc::new(Table::new(batches(&mut Random(7), &ROWS), statistics))
}

fn scan(table: &Arc<Table>) -> Scan {
    Scan::new(Arc::clone(table) as Arc<dyn Container>)
}

fn number(value: i64) -> ArrayRef {
    Arc::new(Int64Array::from(vec![value]))
}

fn ids(low: i64, high: i64) -> Node {
    let (low, high) = (Bound::Included(number(low)), Bound::Excluded(number(high)));
    let negated = false;
    Node::leaf(0, Predicate::Range { low, high, negated })
}

fn rows(batches: impl Iterator<Item = Result<RecordBatch>>) -> usize {
    batches.map(|batch| batch.unwrap().num_rows()).sum()
}

/// Row groups and columns of which values were read.
fn values_read(table: &Table) -> Vec<(usize, Vec<usize>)> {
    let fetches = table.fetches.lock().unwrap();
    let values = fetches.iter().filter(|fetch| !fetch.data.is_empty());
    values
        .map(|fetch| (fetch.row_group, fetch.data.clone()))
        .collect()
}

#[derive(Default)]
struct Counts(
    Mutex<HashMap<Counter, usize>>,
    Mutex<HashMap<Step, Duration>>,
);

impl Metrics for Counts {
    fn add(&self, counter: Counter, count: usize) {
        *self.0.lock().unwrap().entry(counter).or_default() += count;
    }

    fn add_time(&self, step: Step, time: Duration) {
        *self.1.lock().unwrap().entry(step).or_default() += time;
    }
}

#[test]
fn zone_maps_save_reads() {
    let rows_before = table(Statistics::None).rows();
    let first = rows_before
        .column(0)
        .as_primitive::<Int64Type>()
        .value(5000);
    for (statistics, read, pruned) in [
        (Statistics::Vectors, 1, 4),
        (Statistics::RowGroups, 1, 0),
        (Statistics::None, 3, 0),
    ] {
        let table = table(statistics);
        let counts = Arc::new(Counts::default());
        let mut scan = scan(&table)
            .with_filter(ids(first + 10, first + 20))
            .unwrap();
        scan.metrics = Arc::clone(&counts) as _;
        let rows = rows(scan.blocking());
        assert!((1..40).contains(&rows), "{rows} rows");
        let mut groups: Vec<usize> = values_read(&table).iter().map(|read| read.0).collect();
        // a row group may be read ahead before the one that is scanned is read to its end
        groups.sort_unstable();
        groups.dedup();
        assert_eq!(groups.len(), read, "{statistics:?}: {groups:?}");
        let counted = counts.0.lock().unwrap();
        let counted = |counter| counted.get(&counter).copied().unwrap_or(0);
        assert_eq!(counted(Counter::VectorsPruned), pruned, "{statistics:?}");
        assert_eq!(counted(Counter::RowsDecoded), rows);
        assert!(counted(Counter::BytesRead) > 0);
        let times = counts.1.lock().unwrap();
        assert!(times.contains_key(&Step::Filtering) && times.contains_key(&Step::Decoding));
    }
}

#[test]
fn other_columns_are_read_once_a_row_has_survived() {
    let table = table(Statistics::None);
    let scan = scan(&table).with_filter(ids(-5, 0)).unwrap();
    assert_eq!(rows(scan.blocking()), 0);
    assert_eq!(
        values_read(&table),
        [(0, vec![0]), (1, vec![0]), (2, vec![0])]
    );
}

#[test]
fn a_limit_ends_the_reading() {
    let table = table(Statistics::Vectors);
    let scan = scan(&table).with_columns(&["price", "id"]).unwrap();
    assert_eq!(rows(scan.with_limit(4999).blocking()), 4999);
    assert_eq!(values_read(&table), [(0, vec![0, 2])]);
}

/// Lets rows of ids below a bound pass. The bound sinks as soon as the first rows have come.
struct Sinking(Arc<AtomicI64>, i64);

impl DynamicFilter for Sinking {
    fn current(&self) -> Vec<Node> {
        vec![ids(i64::MIN, self.0.load(Ordering::SeqCst))]
    }

    fn has_changed(&mut self) -> bool {
        let now = self.0.load(Ordering::SeqCst);
        std::mem::replace(&mut self.1, now) != now
    }

    fn can_change(&self) -> bool {
        true
    }
}

#[test]
fn dynamic_filters_rule_out_what_is_to_come() {
    let table = table(Statistics::RowGroups);
    let bound = Arc::new(AtomicI64::new(i64::MAX));
    let counts = Arc::new(Counts::default());
    let container = Arc::clone(&table) as Arc<dyn Container>;
    let filter = Sinking(Arc::clone(&bound), i64::MAX);
    let mut scan = scan(&table);
    scan.filters =
        Filters::try_new(container, vec![], Role::Exact, vec![Box::new(filter)]).unwrap();
    scan.metrics = Arc::clone(&counts) as _;
    let mut batches = scan.blocking();
    let first = batches.next().unwrap().unwrap();
    bound.store(0, Ordering::SeqCst);
    assert!(first.num_rows() + rows(batches) <= ROWS[0]);
    assert_eq!(counts.0.lock().unwrap()[&Counter::RowGroupsPruned], 2);
}

/// A limit on memory.
struct Budget {
    left: Arc<AtomicUsize>,
    reserved: AtomicUsize,
}

impl Budget {
    fn of(left: &Arc<AtomicUsize>) -> Box<dyn Memory> {
        Box::new(Self {
            left: Arc::clone(left),
            reserved: AtomicUsize::new(0),
        })
    }
}

impl Memory for Budget {
    fn new_empty(&self) -> Box<dyn Memory> {
        Self::of(&self.left)
    }

    fn try_grow(&self, bytes: usize) -> Result<()> {
        let take = |left: usize| left.checked_sub(bytes);
        let (set, get) = (Ordering::SeqCst, Ordering::SeqCst);
        let taken = self.left.fetch_update(set, get, take);
        taken.map_err(|left| Error::external(format!("{left} bytes are left")))?;
        self.reserved.fetch_add(bytes, Ordering::SeqCst);
        Ok(())
    }

    fn try_resize(&self, bytes: usize) -> Result<()> {
        let before = self.reserved.swap(0, Ordering::SeqCst);
        self.left.fetch_add(before, Ordering::SeqCst);
        self.try_grow(bytes)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.left
            .fetch_add(self.reserved.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}

#[test]
fn memory_is_reserved_and_given_back() {
    let table = table(Statistics::Vectors);
    let group = table.data_bytes(0, &[0, 1, 2]);
    // One row group and its rows, and not the next one beside it, is enough.
    for (bytes, is_enough) in [
        (100 * group, true),
        (3 * group / 2, true),
        (group / 2, false),
    ] {
        let left = Arc::new(AtomicUsize::new(bytes));
        let mut scan = scan(&table).with_columns(&["id", "few", "price"]).unwrap();
        scan.batch_size = 1024;
        scan.memory = Budget::of(&left);
        let actual = scan.blocking().collect::<Result<Vec<_>>>();
        match actual {
            Ok(actual) => assert!(is_enough && rows(actual.into_iter().map(Ok)) == 15_000),
            Err(error) => {
                assert!(!is_enough, "{error}");
                assert_eq!(error.to_string(), format!("{bytes} bytes are left"));
            }
        }
        assert_eq!(left.load(Ordering::SeqCst), bytes);
    }
}

/// Answers for the first row group, and waits forever for the others.
struct Stuck {
    table: Arc<Table>,
    waiting: Arc<AtomicUsize>,
}

struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl Container for Stuck {
    fn schema(&self) -> &SchemaRef {
        self.table.schema()
    }

    fn num_row_groups(&self) -> usize {
        self.table.num_row_groups()
    }

    fn rows(&self, row_group: usize) -> usize {
        Container::rows(self.table.as_ref(), row_group)
    }

    fn row_group_zones(&self, _: usize) -> Option<&ZoneMap> {
        None
    }

    fn data_bytes(&self, _: usize, _: &[usize]) -> usize {
        0
    }

    async fn fetch(&self, fetch: &Fetch) -> Result<RowGroupData> {
        if fetch.row_group > 0 {
            self.waiting.fetch_add(1, Ordering::SeqCst);
            let _waiting = Waiting(Arc::clone(&self.waiting));
            futures::future::pending::<()>().await;
        }
        self.table.fetch(fetch).await
    }
}

fn wait_until(waiting: &AtomicUsize, count: usize) {
    let start = Instant::now();
    while waiting.load(Ordering::SeqCst) != count {
        assert!(start.elapsed() < Duration::from_secs(20), "{count} reads");
        thread::sleep(Duration::from_millis(1));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropping_a_scan_ends_what_is_read_ahead() {
    let waiting = Arc::new(AtomicUsize::new(0));
    let scan = || {
        let stuck = Stuck {
            table: table(Statistics::None),
            waiting: Arc::clone(&waiting),
        };
        Scan::new(Arc::new(stuck))
    };
    let mut stream = scan().stream();
    assert!(stream.next().await.unwrap().is_ok());
    wait_until(&waiting, 1);
    drop(stream);
    wait_until(&waiting, 0);

    let mut batches = scan().blocking();
    let next = thread::spawn(move || {
        assert!(batches.next().unwrap().is_ok());
        batches
    });
    let batches = next.join().unwrap();
    wait_until(&waiting, 1);
    drop(batches);
    wait_until(&waiting, 0);
}

/// Fails for one value.
struct Fails(i64);

impl RowTest for Fails {
    fn evaluate(&self, rows: &RecordBatch) -> Result<BooleanArray> {
        let values = rows.column(0).as_primitive::<Int64Type>().values();
        match values.contains(&self.0) {
            true => Err(Error::external(format!("{} is bad", self.0))),
            false => Ok(BooleanArray::from(vec![true; values.len()])),
        }
    }
}

#[test]
fn tests_fail_only_on_selected_rows() {
    // Two values in turn, which a dictionary has both of.
    let values = Int64Array::from_iter_values((0..4096).map(|row| 1_000_000_007 * (row % 2)));
    let batch = RecordBatch::try_from_iter([("a", Arc::new(values) as ArrayRef)]).unwrap();
    let table = Arc::new(Table::new(vec![batch.clone()], Statistics::None));
    let bad = 1_000_000_007;
    let test = || Node::test(Test::new(vec![0], batch.schema_ref(), Arc::new(Fails(bad))));
    let error = scan(&table).with_filter(test()).unwrap().blocking().next();
    let error = error.unwrap().unwrap_err();
    assert!(matches!(error, Error::External(_)), "{error}");
    assert_eq!(error.to_string(), "1000000007 is bad");
    let others = Node::leaf(0, Predicate::equal(number(0)));
    let good = Node::all([others, test()]).unwrap();
    assert_eq!(
        rows(scan(&table).with_filter(good).unwrap().blocking()),
        2048
    );
}

/// Selects every tenth row of the first row group, or fails; leaves the other row groups to the
/// scan.
struct Tenth {
    fails: bool,
    memory: Arc<AtomicBool>,
}

#[async_trait]
impl Selector for Tenth {
    fn is_always_asked(&self) -> bool {
        false
    }

    fn window(&self, _: usize) -> usize {
        2
    }

    async fn select(&self, row_groups: Vec<usize>) -> Result<Option<Selected>> {
        if self.fails {
            return Err(Error::external("the device is lost"));
        }
        if row_groups.first() != Some(&0) {
            return Ok(None);
        }
        assert_eq!(row_groups, [0, 1]);
        let mut selection = Selection::all(0, ROWS[0]);
        selection.and_boolean(&(0..ROWS[0]).map(|row| Some(row % 10 == 0)).collect());
        Ok(Some(Selected {
            rows: SelectedRows::Which(selection),
            memory: Arc::clone(&self.memory) as _,
        }))
    }
}

#[tokio::test]
async fn a_selector_replaces_the_filters() {
    let table = table(Statistics::None);
    let memory = Arc::new(AtomicBool::new(true));
    let selecting = |fails| {
        let mut scan = scan(&table).with_filter(ids(0, i64::MAX)).unwrap();
        let memory = Arc::clone(&memory);
        scan.selector = Some(Arc::new(Tenth { fails, memory }));
        scan.stream()
    };
    let actual: Vec<RecordBatch> = selecting(false).try_collect().await.unwrap();
    let actual: usize = actual.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(actual, ROWS[0] / 10 + ROWS[1] + ROWS[2]);
    assert_eq!(Arc::strong_count(&memory), 1);
    let error = selecting(true).next().await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "the device is lost");
}

/// Selects all rows, for any number of row groups, and records the requests.
#[derive(Default)]
struct Ahead(Mutex<Vec<Vec<usize>>>);

#[async_trait]
impl Selector for Ahead {
    fn is_always_asked(&self) -> bool {
        false
    }

    fn window(&self, _: usize) -> usize {
        ROWS.len()
    }

    async fn select(&self, row_groups: Vec<usize>) -> Result<Option<Selected>> {
        let rows = ROWS[row_groups[0]];
        self.0.lock().unwrap().push(row_groups);
        Ok(Some(Selected {
            rows: SelectedRows::Which(Selection::all(0, rows)),
            memory: Arc::new(()),
        }))
    }
}

#[tokio::test]
async fn bloom_filters_are_evaluated_before_row_groups_are_read() {
    let table = table(Statistics::Blooms);
    let id_of = |row_group: usize| {
        let rows = table.rows();
        let ids = rows.column(0).as_primitive::<Int64Type>();
        number(ids.value(row_group * ROWS[0] + ROWS[0] / 2))
    };
    let either = |a, b| Node::Or(vec![Node::leaf(0, a), Node::leaf(0, b)]);
    let filter = || either(Predicate::equal(id_of(0)), Predicate::equal(id_of(2)));
    let scan = || {
        let counts = Arc::new(Counts::default());
        let mut scan = scan(&table).with_filter(filter()).unwrap();
        scan.metrics = Arc::clone(&counts) as _;
        (scan, counts)
    };
    let pruned = |counts: Arc<Counts>| {
        let counts = counts.0.lock().unwrap();
        counts[&Counter::RowGroupsPrunedByBloomFilter]
    };

    let (left, counts) = scan();
    assert_eq!(left.row_groups_left().await.unwrap(), [0, 2]);
    assert_eq!(pruned(counts), 1);
    assert!(table.fetches.lock().unwrap().is_empty());

    let selector = Arc::new(Ahead::default());
    let (mut selecting, counts) = scan();
    selecting.selector = Some(Arc::clone(&selector) as _);
    table.blooms_read.lock().unwrap().clear();
    let actual: Vec<RecordBatch> = selecting.stream().try_collect().await.unwrap();
    let actual: usize = actual.iter().map(RecordBatch::num_rows).sum();
    assert_eq!(actual, ROWS[0] + ROWS[2]);
    assert_eq!(*selector.0.lock().unwrap(), [vec![0, 2], vec![2]]);
    assert_eq!(pruned(counts), 1);
    let mut read = table.blooms_read.lock().unwrap().clone();
    read.sort_unstable();
    assert_eq!(read, [0, 1, 2], "each once");
}
