//! The engine's use of a driver, recorded by a wrapper.

use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use arrow::array::{ArrayRef, AsArray, BooleanArray, Int64Array, StringArray};
use vectile_emulator::CpuDevice;
use vectile_encodings::{Encoding, Predicate};
use vectile_gpu::{
    Batch, ChunkKey, Compiled, DeviceInfo, Driver, Engine, Error, Event, Group, Kernel, Launch,
    Resident, Result, Stream,
};
use vectile_pipeline::{Aggregate, Expr, Filter, Output, ValueTest};

use crate::catalog::comments;
use crate::support::{Input, device, image, input, new_key, start, table};

/// A driver that records the operations of its streams.
#[derive(Debug)]
struct Watched {
    device: Arc<CpuDevice>,
    seen: Arc<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Streams with work that was not synchronized.
    busy: AtomicUsize,
    /// Bytes of each copy to the device.
    copies: Mutex<Vec<usize>>,
    /// Per event that a stream waited for, the number of copies before it on the other stream.
    waits: Mutex<Vec<usize>>,
    /// True if copies to the device shall fail.
    is_broken: AtomicBool,
}

/// An event of a stream, and the number of copies before it.
struct WatchedMark {
    mark: Event,
    copies: usize,
}

impl WatchedMark {
    fn of(mark: &Event) -> &Self {
        mark.0.downcast_ref().unwrap()
    }
}

struct WatchedStream {
    stream: Box<dyn Stream>,
    seen: Arc<Seen>,
    busy: bool,
    copies: usize,
}

impl WatchedStream {
    fn set_busy(&mut self, busy: bool) {
        match (self.busy, busy) {
            (false, true) => self.seen.busy.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.seen.busy.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
        self.busy = busy;
    }
}

impl Stream for WatchedStream {
    unsafe fn copy_in(&mut self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        if self.seen.is_broken.load(Ordering::Relaxed) {
            let (call, reason) = ("copy_in", "broken".into());
            return Err(Error::Driver { call, reason });
        }
        self.set_busy(true);
        self.seen.copies.lock().unwrap().push(bytes);
        self.copies += 1;
        // SAFETY: as the caller promises.
        unsafe { self.stream.copy_in(to, from, bytes) }
    }

    unsafe fn copy_out(&mut self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
        self.set_busy(true);
        // SAFETY: as the caller promises.
        unsafe { self.stream.copy_out(to, from, bytes) }
    }

    unsafe fn fill(&mut self, to: u64, byte: u8, bytes: usize) -> Result<()> {
        self.set_busy(true);
        // SAFETY: as the caller promises.
        unsafe { self.stream.fill(to, byte, bytes) }
    }

    unsafe fn launch(&mut self, kernel: &dyn Kernel, launch: Launch<'_>) -> Result<()> {
        self.set_busy(true);
        // SAFETY: as the caller promises.
        unsafe { self.stream.launch(kernel, launch) }
    }

    fn mark(&mut self) -> Result<Event> {
        let (mark, copies) = (self.stream.mark()?, self.copies);
        Ok(Event(Box::new(WatchedMark { mark, copies })))
    }

    fn wait(&mut self, mark: &Event) -> Result<()> {
        let WatchedMark { mark, copies } = WatchedMark::of(mark);
        self.seen.waits.lock().unwrap().push(*copies);
        self.stream.wait(mark)
    }

    fn synchronize(&mut self) -> Result<()> {
        self.set_busy(false);
        self.stream.synchronize()
    }

    fn elapsed(&mut self, from: &Event, to: &Event) -> Result<f64> {
        let [from, to] = [from, to].map(|mark| &WatchedMark::of(mark).mark);
        self.stream.elapsed(from, to)
    }
}

impl Driver for Watched {
    fn info(&self) -> &DeviceInfo {
        self.device.info()
    }

    fn free_memory(&self) -> Result<u64> {
        self.device.free_memory()
    }

    fn compile(&self, source: &str, name: &str) -> Result<Compiled> {
        self.device.compile(source, name)
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.device.allocate(bytes)
    }

    unsafe fn free(&self, address: u64) {
        // SAFETY: as the caller promises.
        unsafe { self.device.free(address) }
    }

    fn allocate_host(&self, bytes: usize) -> Result<*mut u8> {
        self.device.allocate_host(bytes)
    }

    unsafe fn free_host(&self, address: *mut u8) {
        // SAFETY: as the caller promises.
        unsafe { self.device.free_host(address) }
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(Box::new(WatchedStream {
            stream: self.device.stream()?,
            seen: Arc::clone(&self.seen),
            busy: false,
            copies: 0,
        }))
    }
}

fn watched() -> Option<(Arc<CpuDevice>, Arc<Seen>, Arc<Engine>)> {
    let (device, seen) = (device()?, Arc::new(Seen::default()));
    let engine = Engine::new(Arc::new(Watched {
        device: Arc::clone(&device),
        seen: Arc::clone(&seen),
    }));
    Some((device, seen, engine))
}

/// After an error, no pending work uses memory that others may get.
#[test]
fn errors_leave_no_pending_work() {
    let Some((device, seen, engine)) = watched() else {
        return;
    };
    let numbers = Int64Array::from_iter_values(0..5000);
    let texts = Input {
        array: comments(5000, 1),
        pin: Some(Encoding::Fsst),
    };
    let inputs = [input(numbers, Some(Encoding::Ffor)), texts];
    let groups = table(&engine, &inputs, 2000);
    engine.settle().unwrap();
    let low: ArrayRef = Arc::new(Int64Array::from(vec![1000]));
    let filter = Filter::Column(
        0,
        Predicate::Range {
            low: Bound::Included(low),
            high: Bound::Unbounded,
            negated: false,
        },
    );
    let mut failures = 0;
    for call in 1.. {
        let output = Output::Rows(vec![Expr::Column(0), Expr::Column(1)]);
        let mut execution = start(&engine, &inputs, filter.clone(), output);
        device.fail_after(call);
        let result = execution.rows(&groups);
        let pending = device.fault_pending();
        device.fail_after(0);
        assert_eq!(seen.busy.load(Ordering::Relaxed), 0, "call {call}");
        failures += usize::from(result.is_err());
        if pending {
            break;
        }
    }
    assert!(failures > 8, "{failures} failures");
}

/// A kernel waits for its own chunks, and not for chunks that were requested later.
#[test]
fn kernels_wait_for_their_own_chunks() {
    let Some((_, seen, engine)) = watched() else {
        return;
    };
    let inputs = [input(
        Int64Array::from_iter_values(0..2000),
        Some(Encoding::Ffor),
    )];
    let keys = [new_key(), new_key()];
    let chunk = image(&inputs[0]);
    // the device is full with the first one, so that the others stay in host memory
    engine.set_memory_limit(chunk.info().bytes as u64);
    engine.load(new_key(), &chunk).unwrap();
    for key in &keys {
        engine.load(key.clone(), &chunk).unwrap();
    }
    engine.clear_device();
    engine.set_memory_limit(u64::MAX);
    let look_up = |key: &ChunkKey| {
        let mut chunks = engine.lookup_all(std::slice::from_ref(key));
        chunks.pop().flatten().unwrap()
    };
    let (first, _second) = (look_up(&keys[0]), look_up(&keys[1]));
    assert_eq!(seen.copies.lock().unwrap().len(), 5);
    count(&engine, &inputs, first);
    assert_eq!(*seen.waits.lock().unwrap(), [4]);
}

/// After a copy has failed, kernels wait for later copies, regardless of earlier waits.
#[test]
fn kernels_wait_for_copies_after_a_broken_one() {
    let Some((_, seen, engine)) = watched() else {
        return;
    };
    let inputs = [input(
        Int64Array::from_iter_values(0..2000),
        Some(Encoding::Ffor),
    )];
    let load = || engine.load(new_key(), &image(&inputs[0]));
    let before: Vec<_> = (0..4).map(|_| load().unwrap()).collect();
    seen.is_broken.store(true, Ordering::Relaxed);
    load().unwrap_err();
    seen.is_broken.store(false, Ordering::Relaxed);
    let first = load().unwrap();
    count(&engine, &inputs, Arc::clone(&before[3]));
    let second = load().unwrap();
    seen.waits.lock().unwrap().clear();
    count(&engine, &inputs, second);
    assert_eq!(*seen.waits.lock().unwrap(), [2]);
    count(&engine, &inputs, first);
}

/// Runs a kernel over a chunk of 2000 rows.
fn count(engine: &Arc<Engine>, inputs: &[Input], chunk: Arc<Resident>) {
    let groups = [Group {
        rows: chunk.rows(),
        columns: vec![chunk],
    }];
    let output = Output::Aggregates(vec![Aggregate::CountRows]);
    let mut execution = start(engine, inputs, Filter::Constant(true), output);
    execution.aggregate(&Batch::of(&groups).unwrap()).unwrap();
    assert_eq!(execution.totals()[0].count, 2000);
}

/// Tables for decoding strings stay on the device with their chunks.
#[test]
fn symbols_are_sent_once() {
    let Some((_, seen, engine)) = watched() else {
        return;
    };
    let inputs = [Input {
        array: comments(6000, 1),
        pin: Some(Encoding::Fsst),
    }];
    let groups = table(&engine, &inputs, 2000);
    let sent = |groups: &[Group]| {
        seen.copies.lock().unwrap().clear();
        let output = Output::Rows(vec![Expr::Column(0)]);
        let mut execution = start(&engine, &inputs, Filter::Constant(true), output);
        let rows = execution.rows(groups).unwrap();
        assert_eq!(rows[0].columns, [inputs[0].array.slice(0, 2000)]);
        seen.copies.lock().unwrap().len()
    };
    // two launches, and a table for each chunk that has none on the device yet
    assert_eq!(sent(&groups[..1]), 2 + 1);
    assert_eq!(sent(&groups), 2 + 2);
    assert_eq!(sent(&groups), 2);
}

/// Row groups with the same dictionary share one table of passing codes.
#[test]
fn a_dictionary_is_tested_once() {
    const ENTRIES: usize = 1000;
    const ROWS: usize = 4 * ENTRIES;
    let Some((_, seen, engine)) = watched() else {
        return;
    };
    let words = (0..8 * ROWS).map(|row| format!("word {:04}", row * 7 % ENTRIES));
    let words = StringArray::from_iter_values(words);
    let inputs = [Input {
        array: Arc::new(words),
        pin: Some(Encoding::Dict),
    }];
    let groups = table(&engine, &inputs, ROWS);
    let tests = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&tests);
    let passes = |word: Option<&str>| word.map(|word| word.ends_with(['1', '4', '7']));
    let test = ValueTest::new(Arc::new(move |entries: &ArrayRef| {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(entries
            .as_string::<i32>()
            .iter()
            .map(passes)
            .collect::<BooleanArray>())
    }));
    let sent = |groups: &[vectile_gpu::Group]| {
        tests.store(0, Ordering::Relaxed);
        seen.copies.lock().unwrap().clear();
        let filter = Filter::Values(0, test.clone());
        let mut execution = start(&engine, &inputs, filter, Output::Selection);
        let selected = execution.select(groups).unwrap();
        let rows: usize = selected.iter().map(|selection| selection.count()).sum();
        assert_eq!(rows, groups.len() * ROWS * 3 / 10);
        assert_eq!(tests.load(Ordering::Relaxed), 1);
        seen.copies.lock().unwrap().iter().sum::<usize>()
    };
    let (one, all) = (sent(&groups[..1]), sent(&groups));
    assert!(
        all - one < 7 * ENTRIES / 8,
        "{one} bytes, and {all} for eight"
    );
}
