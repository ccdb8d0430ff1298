//! Several row groups are encoded in parallel, and the file does not depend on it.

mod common;

use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use common::*;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::time::timeout;
use vectile_encodings::{Compressor, Encoding, Splits, Uncompressed};
use vectile_file::*;

const ROWS: usize = 2000;

/// A timeout long enough for anything that ends.
const SOON: Duration = Duration::from_secs(60);

/// Blocks threads that encode text until it is opened, and panics for text that requests it.
#[derive(Debug, Default)]
struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: usize,
    is_open: bool,
}

impl Gate {
    fn open(&self) {
        self.state.lock().unwrap().is_open = true;
        self.changed.notify_all();
    }

    fn wait_for(&self, threads: usize) {
        let state = self.state.lock().unwrap();
        let (_state, result) = self
            .changed
            .wait_timeout_while(state, SOON, |state| state.waiting < threads)
            .unwrap();
        assert!(!result.timed_out(), "no {threads} threads come");
    }
}

impl Compressor for Gate {
    fn compress(&self, text: &Uncompressed<'_>) -> Option<Splits> {
        let first = String::from_utf8_lossy(text.strings[0]).into_owned();
        if !first.contains("at once") {
            let mut state = self.state.lock().unwrap();
            state.waiting += 1;
            self.changed.notify_all();
            let held = |state: &mut State| !state.is_open;
            drop(self.changed.wait_while(state, held).unwrap());
        }
        assert!(!first.contains("fails"), "{first}");
        None
    }
}

/// Text, which is a row group, beside numbers.
fn row_group(text: &str) -> RecordBatch {
    let numbers: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS as i64));
    let text = (0..ROWS).map(|row| format!("{text}, row {row}"));
    let text: ArrayRef = Arc::new(StringArray::from_iter_values(text));
    RecordBatch::try_from_iter([("number", numbers), ("text", text)]).unwrap()
}

fn writer(store: &Arc<dyn ObjectStore>, threads: &Threads, gate: &Arc<Gate>) -> Writer {
    let options = rows_per_group(ROWS)
        .with_pins([("text", Encoding::Fsst)])
        .with_threads(threads.clone())
        .with_compressor(Some(gate.clone()));
    let schema = row_group("").schema();
    Writer::try_new(store.clone(), location(), schema, options).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_is_the_same_for_any_number_of_threads() {
    for table in [every_type(5000), small(20_000)] {
        let mut files = Vec::new();
        for threads in [0, 1, 2, 3, 16] {
            let options = rows_per_group(1000).with_threads(Threads::new(threads));
            let (bytes, summary) = write(table.schema(), std::slice::from_ref(&table), options)
                .await
                .unwrap();
            assert_eq!(summary.rows, table.num_rows() as u64);
            files.push(bytes);
        }
        assert!(files.iter().all(|file| file == &files[0]));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn threads_without_work_get_further_row_groups() {
    let (store, gate) = (memory(), Arc::new(Gate::default()));
    let mut writer = writer(&store, &Threads::new(3), &gate);
    for i in 0..3 {
        let batch = row_group(&format!("row group {i}"));
        timeout(SOON, writer.write(&batch)).await.unwrap().unwrap();
    }
    gate.wait_for(3);
    let three = writer.memory_bytes();
    // There is no thread for a fourth, which waits.
    let batch = row_group("row group 3");
    let fourth = timeout(Duration::from_millis(300), writer.write(&batch)).await;
    assert!(fourth.is_err());
    let opener = Arc::clone(&gate);
    thread::spawn(move || opener.open());
    let mut fewer = vec![];
    while timeout(SOON, writer.encode_fewer()).await.unwrap().unwrap() {
        fewer.push(writer.memory_bytes());
    }
    // Two are left, the fourth and the result of the others, which is smaller.
    assert_eq!(fewer.len(), 2);
    assert!(fewer[1] < fewer[0] && fewer[1] < three);
    assert_eq!(writer.finish().await.unwrap().rows, 4 * ROWS as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_thread_encodes_one_row_group_while_the_next_fills() {
    let (store, gate) = (memory(), Arc::new(Gate::default()));
    let mut writer = writer(&store, &Threads::new(1), &gate);
    writer.write(&row_group("row group 0")).await.unwrap();
    gate.wait_for(1);
    let batch = row_group("row group 1");
    writer.write(&batch.slice(0, ROWS - 1)).await.unwrap();
    assert!(!writer.encode_fewer().await.unwrap());
    let last = batch.slice(ROWS - 1, 1);
    let full = timeout(Duration::from_millis(300), writer.write(&last)).await;
    assert!(full.is_err());
    gate.open();
    assert_eq!(writer.finish().await.unwrap().rows, 2 * ROWS as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_row_group_that_fails_is_the_error() {
    let (store, gate) = (memory(), Arc::new(Gate::default()));
    let mut writer = writer(&store, &Threads::new(4), &gate);
    for text in ["fine", "fails late", "fails at once", "fine too"] {
        writer.write(&row_group(text)).await.unwrap();
    }
    gate.wait_for(3);
    tokio::time::sleep(Duration::from_millis(100)).await;
    gate.open();
    let error = timeout(SOON, writer.finish()).await.unwrap().unwrap_err();
    assert!(error.to_string().contains("fails late"), "{error}");
    assert!(store.head(&location()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_dropped_while_several_are_under_way_gives_its_threads_back() {
    let (store, gate, threads) = (memory(), Arc::new(Gate::default()), Threads::new(3));
    let mut dropped = writer(&store, &threads, &gate);
    for i in 0..3 {
        let batch = row_group(&format!("row group {i}"));
        dropped.write(&batch).await.unwrap();
    }
    gate.wait_for(3);
    drop(dropped);
    gate.open();
    let mut next = writer(&store, &threads, &gate);
    for _ in 0..4 {
        let batch = row_group("another table");
        timeout(SOON, next.write(&batch)).await.unwrap().unwrap();
    }
    assert!(store.head(&location()).await.is_err());
    let summary = timeout(SOON, next.finish()).await.unwrap().unwrap();
    assert_eq!(summary.row_groups, 4);
}
