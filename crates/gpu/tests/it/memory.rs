//! Shortage of memory, and failing drivers.

use std::ops::Bound;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::buffer::Buffer;
use arrow::datatypes::Int64Type;
use bytes::Bytes;
use vectile_emulator::CpuDevice;
use vectile_encodings::{Column, EncodeOptions, Encoding, Predicate, encode};
use vectile_gpu::{
    Batch, ChunkKey, ChunkRun, DeviceChunk, Driver, Engine, Error, Group, Resident, Result,
};
use vectile_pipeline::KeyTable;
use vectile_pipeline::{Aggregate, Expr, Filter, GroupKey, Lookup, Number, Output, Pipeline};

use crate::support::{device, image, input};

const ROWS: i64 = 3000;

/// Different for each chunk.
fn values(chunk: usize) -> Vec<i64> {
    (0..ROWS)
        .map(|row| (row * 37 + chunk as i64 * 1009) % 4000)
        .collect()
}

fn chunk(number: usize) -> DeviceChunk {
    image(&input(
        Int64Array::from(values(number)),
        Some(Encoding::Ffor),
    ))
}

fn key(number: usize) -> ChunkKey {
    ChunkKey {
        file: "memory".into(),
        row_group: number,
        column: 0,
    }
}

fn load(engine: &Engine, number: usize) -> Result<Arc<Resident>> {
    engine.load(key(number), &chunk(number))
}

fn group(chunk: Arc<Resident>) -> Group {
    Group {
        rows: chunk.rows(),
        columns: vec![chunk],
    }
}

fn pipeline(output: Output) -> Arc<Pipeline> {
    let low: ArrayRef = Arc::new(Int64Array::from(vec![1000]));
    Arc::new(Pipeline {
        columns: vec![arrow::datatypes::DataType::Int64],
        lookups: vec![],
        matches: vec![],
        filter: Filter::Column(
            0,
            Predicate::Range {
                low: Bound::Included(low),
                high: Bound::Unbounded,
                negated: false,
            },
        ),
        output,
    })
}

/// The expected values of the selected rows of some chunks.
fn expected_rows(chunks: &[usize]) -> Vec<i64> {
    let values = chunks.iter().flat_map(|chunk| values(*chunk));
    values.filter(|value| *value >= 1000).collect()
}

/// Runs one query of each kind over chunks and checks its results.
fn check(engine: &Arc<Engine>, chunks: &[usize], groups: &[Group]) -> Result<()> {
    let expected = expected_rows(chunks);
    let mut execution = engine.start(pipeline(Output::Aggregates(vec![Aggregate::Sum(
        Expr::Column(0),
    )])));
    execution.aggregate(&Batch::of(groups)?)?;
    let sum = i128::from(expected.iter().sum::<i64>());
    assert_eq!(execution.totals()[0].value, Some(Number::Int(sum)));
    let selections = engine.start(pipeline(Output::Selection)).select(groups)?;
    assert_eq!(
        selections.iter().map(|s| s.count()).sum::<usize>(),
        expected.len()
    );
    let rows = pipeline(Output::Rows(vec![Expr::Column(0)]));
    let rows = engine.start(rows).rows(groups)?;
    assert_eq!(rows.len(), groups.len());
    for (rows, chunk) in rows.iter().zip(chunks) {
        let expected = expected_rows(&[*chunk]);
        assert_eq!(rows.count, expected.len());
        let values = rows.columns[0].as_primitive::<Int64Type>().values();
        assert_eq!(values, expected.as_slice());
    }
    Ok(())
}

fn engine_on(device: &Arc<CpuDevice>) -> Arc<Engine> {
    Engine::new(Arc::clone(device) as Arc<dyn Driver>)
}

/// An engine with room for three chunks and none in host memory; also returns the bytes of a chunk.
fn engine_for_three(device: &Arc<CpuDevice>) -> (Arc<Engine>, u64) {
    let engine = engine_on(device);
    engine.set_host_memory_limit(0);
    let bytes = chunk(0).info().bytes as u64;
    engine.set_memory_limit(3 * bytes);
    (engine, bytes)
}

/// Asserts that nothing is allocated once engine and results are dropped.
fn assert_nothing_allocated(device: &CpuDevice, context: &str) {
    let left = (device.allocated_bytes(), device.allocated_host_bytes());
    assert_eq!(left, (0, 0), "bytes of device and host left: {context}");
}

#[test]
fn batches_are_kept_until_their_memory_is_needed() {
    let Some(device) = device() else { return };
    let (engine, _) = engine_for_three(&device);
    let columns = |numbers: &[usize]| {
        let run = |&number: &usize| ChunkRun {
            file: key(number).file,
            column: 0,
            row_groups: number..number + 1,
        };
        vec![numbers.iter().map(run).collect::<Vec<_>>()]
    };
    let keep = |numbers: &[usize]| {
        let groups = numbers
            .iter()
            .map(|&number| group(load(&engine, number).unwrap()));
        let groups: Vec<Group> = groups.collect();
        let batch = Batch::of(&groups).unwrap();
        engine.keep(columns(numbers), &batch);
        groups.iter().map(|group| group.rows).collect::<Vec<_>>()
    };
    let both = keep(&[0, 1]);
    let third = keep(&[2]);
    assert!(engine.batch(third.clone(), &columns(&[0, 1])).is_none());
    assert!(engine.batch(both.clone(), &columns(&[1, 0])).is_none());
    let batch = engine.batch(both.clone(), &columns(&[0, 1])).unwrap();
    assert_eq!(batch.num_rows(), both.iter().sum::<usize>());
    let totals = pipeline(Output::Aggregates(vec![Aggregate::CountRows]));
    let mut execution = engine.start(totals);
    execution.aggregate(&batch).unwrap();
    assert_eq!(
        execution.totals()[0].count,
        expected_rows(&[0, 1]).len() as u64
    );
    // chunks in use stay: unused ones are dropped first, regardless of their last use
    assert!(engine.batch(third.clone(), &columns(&[2])).is_some());
    load(&engine, 3).unwrap();
    assert!(engine.lookup(&key(2)).is_none());
    drop(batch);
    // no longer in use, and used before chunk 3
    load(&engine, 4).unwrap();
    load(&engine, 5).unwrap();
    let there = [0, 1, 3].map(|number| engine.lookup(&key(number)).is_some());
    assert_eq!(there, [false, false, true]);
    assert!(engine.batch(both, &columns(&[0, 1])).is_none());
    drop((execution, engine));
    assert_nothing_allocated(&device, "batches");
}

/// The runs of a batch of these chunks, for [`Engine::keep`].
fn runs(numbers: &[usize]) -> Vec<Vec<ChunkRun>> {
    let run = |&number: &usize| ChunkRun {
        file: key(number).file,
        column: 0,
        row_groups: number..number + 1,
    };
    vec![numbers.iter().map(run).collect()]
}

#[test]
fn batches_unused_for_longest_go_first() {
    let Some(device) = device() else { return };
    let (engine, _) = engine_for_three(&device);
    for number in 0..3 {
        let batch = Batch::of(&[group(load(&engine, number).unwrap())]).unwrap();
        engine.keep(runs(&[number]), &batch);
    }
    let rows = vec![ROWS as usize];
    let is_kept = |number: usize| engine.batch(rows.clone(), &runs(&[number])).is_some();
    // it was used after the others
    assert!(is_kept(0));
    load(&engine, 3).unwrap();
    assert_eq!([0, 1, 2].map(is_kept), [true, false, true]);
    // entries of other batches stay
    engine.drop_chunks(vec![engine.lookup(&key(0)).unwrap()]);
    assert_eq!([0, 2].map(is_kept), [false, true]);
    drop(engine);
    assert_nothing_allocated(&device, "kept batches");
}

/// A key table of about 2^17 bytes on a device, with a key for each row's value.
fn lookup() -> Arc<KeyTable> {
    let keys = (0..4000).chain([1 << 20]);
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(keys));
    Arc::new(KeyTable::new(&keys, &vec![0; keys.len()], 1).unwrap())
}

/// Counts the rows of a chunk whose values are in the table.
fn count_matched(engine: &Arc<Engine>, codes: &Arc<KeyTable>, number: usize) -> u64 {
    let output = Output::Aggregates(vec![Aggregate::CountRows]);
    let pipeline = Pipeline {
        lookups: vec![Lookup {
            column: 0,
            key_table: Arc::clone(codes),
        }],
        filter: Filter::Matched(0),
        ..Arc::unwrap_or_clone(pipeline(output))
    };
    let batch = Batch::of(&[group(load(engine, number).unwrap())]).unwrap();
    let mut execution = engine.start(Arc::new(pipeline));
    execution.aggregate(&batch).unwrap();
    execution.totals()[0].count
}

#[test]
fn tables_count_and_make_room() {
    let Some(device) = device() else { return };
    let engine = engine_on(&device);
    let bytes = chunk(0).info().bytes as u64;
    let codes = lookup();
    assert_eq!(count_matched(&engine, &codes, 0), ROWS as u64);
    let table = engine.kept_bytes() - engine.cached_bytes();
    assert!(table > 100_000, "{table}");
    // with the table, there is room for one more chunk
    engine.set_memory_limit(table + 2 * bytes);
    load(&engine, 1).unwrap();
    assert_eq!(engine.kept_bytes(), table + 2 * bytes);
    // the first chunk is dropped before the table, which was used later
    load(&engine, 2).unwrap();
    assert!(engine.lookup(&key(0)).is_none());
    assert_eq!(engine.kept_bytes(), table + 2 * bytes);
    // then the table is dropped, and reloaded
    for number in [1, 2] {
        assert!(engine.lookup(&key(number)).is_some());
    }
    load(&engine, 3).unwrap();
    assert_eq!(engine.kept_bytes(), 3 * bytes);
    assert_eq!(count_matched(&engine, &codes, 3), ROWS as u64);
    assert!(engine.kept_bytes() > table && engine.kept_bytes() <= engine.memory_limit());
    engine.clear();
    assert_eq!(engine.kept_bytes(), 0);
    // key tables may outlive the engine
    drop(engine);
    assert_nothing_allocated(&device, "after a table");
}

#[test]
fn engines_that_share_codes_have_their_own_copies() {
    let (Some(one), Some(other)) = (device(), device()) else {
        return;
    };
    let codes = lookup();
    let engines = [&one, &other].map(engine_on);
    let tables = || {
        let tables = engines.each_ref();
        tables.map(|engine| engine.kept_bytes() - engine.cached_bytes())
    };
    assert_eq!(count_matched(&engines[0], &codes, 0), ROWS as u64);
    let [table, nothing] = tables();
    assert!(table > 0 && nothing == 0);
    assert_eq!(count_matched(&engines[1], &codes, 0), ROWS as u64);
    assert_eq!(tables(), [table, table]);
    assert_eq!(count_matched(&engines[0], &codes, 0), ROWS as u64);
    assert_eq!(tables(), [table, table]);
    drop(engines);
    assert_nothing_allocated(&one, "the first engine");
    assert_nothing_allocated(&other, "the second engine");
}

#[test]
fn a_device_that_was_full_recovers() {
    let Some(device) = device() else { return };
    let engine = engine_on(&device);
    let bytes = chunk(0).info().bytes as u64;
    engine.set_memory_limit(2 * bytes);
    let is_in_host_memory = |number: usize| {
        load(&engine, number).unwrap();
        engine.settle().unwrap();
        engine.clear_device();
        engine.lookup(&key(number)).is_some()
    };
    load(&engine, 0).unwrap();
    load(&engine, 1).unwrap();
    assert!(is_in_host_memory(2));
    engine.set_memory_limit(100 * bytes);
    assert!(!is_in_host_memory(3), "there is room again");
    drop(engine);
    assert_nothing_allocated(&device, "after recovery");
}

#[test]
fn chunks_unused_for_longest_go_first() {
    let Some(device) = device() else { return };
    let (engine, bytes) = engine_for_three(&device);
    assert_eq!(engine.memory_limit(), 3 * bytes);
    for number in 0..3 {
        load(&engine, number).unwrap();
    }
    assert_eq!(engine.cached_bytes(), 3 * bytes);
    assert!(engine.lookup(&key(0)).is_some());
    load(&engine, 3).unwrap();
    assert_eq!(engine.cached_bytes(), 3 * bytes);
    let there = [0, 1, 2, 3].map(|number| engine.lookup(&key(number)).is_some());
    assert_eq!(
        there,
        [true, false, true, true],
        "chunk 0 was used after chunk 1"
    );
    engine.clear();
    assert_eq!(engine.cached_bytes(), 0);
    assert!(engine.lookup(&key(3)).is_none());
    drop(engine);
    assert_nothing_allocated(&device, "after eviction");
}

#[test]
fn chunks_in_use_stay() {
    let Some(device) = device() else { return };
    let engine = engine_on(&device);
    let bytes = chunk(0).info().bytes as u64;
    engine.set_memory_limit(2 * bytes + bytes / 2);
    let used = [0, 1].map(|number| load(&engine, number).unwrap());
    match load(&engine, 2) {
        Err(Error::OutOfMemory { wanted, .. }) => assert_eq!(wanted, bytes),
        other => panic!("{other:?}"),
    }
    let groups = used.map(group);
    check(&engine, &[0, 1], &groups).unwrap();
    assert!(load(&engine, 2).is_err(), "they are still in use");
    drop(groups);
    let third = group(load(&engine, 2).unwrap());
    check(&engine, &[2], &[third]).unwrap();
    assert!(engine.cached_bytes() <= engine.memory_limit());
    drop(engine);
    assert_nothing_allocated(&device, "after chunks in use");
}

#[test]
fn chunks_are_dropped_with_their_copies_on_the_host() {
    let Some(device) = device() else { return };
    let (engine, bytes) = engine_for_three(&device);
    for number in 0..3 {
        load(&engine, number).unwrap();
    }
    // it replaces the first one, and stays in host memory as well
    let hosted = load(&engine, 3).unwrap();
    let used = engine.lookup(&key(1)).unwrap();
    engine.drop_chunks(vec![hosted, Arc::clone(&used)]);
    assert_eq!(engine.cached_bytes(), bytes);
    let there = [1, 2, 3].map(|number| engine.lookup(&key(number)).is_some());
    assert_eq!(there, [false, true, false]);
    // a query continues with the chunks that it holds
    check(&engine, &[1], &[group(used)]).unwrap();
    drop(engine);
    assert_nothing_allocated(&device, "after dropping");
}

#[test]
fn more_chunks_than_memory() {
    let Some(device) = device() else { return };
    let engine = engine_on(&device);
    let bytes = chunk(0).info().bytes as u64;
    engine.set_memory_limit(2 * bytes);
    // chunks that were loaded while the device was full are reloaded from the host
    for round in 0..3 {
        for number in 0..6 {
            let chunk = match engine.lookup(&key(number)) {
                Some(chunk) => chunk,
                None => {
                    assert!(round < 2, "chunk {number} is kept in host memory");
                    load(&engine, number).unwrap()
                }
            };
            check(&engine, &[number], &[group(chunk)]).unwrap();
            assert!(engine.cached_bytes() <= 2 * bytes);
        }
    }
    // cleared, it keeps nothing in host memory until it is full again
    engine.clear();
    load(&engine, 0).unwrap();
    engine.settle().unwrap();
    engine.clear_device();
    assert!(engine.lookup(&key(0)).is_none());
    drop(engine);
    assert_nothing_allocated(&device, "after streaming");
}

/// A device that has less memory than the engine may use.
#[test]
fn a_small_device() {
    let device = match CpuDevice::new() {
        Ok(device) => Arc::new(device.with_memory(600 << 10)),
        Err(error) => return eprintln!("skipped: {error}"),
    };
    let engine = engine_on(&device);
    engine.set_memory_limit(u64::MAX);
    let mut errors = 0;
    let mut held = vec![];
    for number in 0..200 {
        match load(&engine, number) {
            Ok(chunk) => held.push(group(chunk)),
            Err(Error::OutOfMemory { .. }) => errors += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(
        errors > 0 && held.len() > 2,
        "{errors} errors, {} chunks",
        held.len()
    );
    // room for scratch and results
    held.truncate(2);
    engine.clear();
    check(&engine, &[0, 1], &held).unwrap();
    drop((held, engine));
    assert_nothing_allocated(&device, "of a small device");
}

/// Fails each call of the driver in turn: the query returns an error, the next attempt has the right results, and
/// nothing stays allocated.
#[test]
fn every_call_fails_once() {
    let Some(device) = device() else { return };
    let work = |engine: &Arc<Engine>| -> Result<()> {
        let groups = [group(load(engine, 0)?), group(load(engine, 1)?)];
        check(engine, &[0, 1], &groups)
    };
    let mut failures = 0;
    for call in 1.. {
        assert!(call < 500, "every attempt fails");
        let engine = engine_on(&device);
        device.fail_after(call);
        let result = work(&engine);
        let pending = device.fault_pending();
        device.fail_after(0);
        match result {
            Ok(()) if pending => break,
            // the failure of this call is handled
            Ok(()) => {}
            Err(Error::Driver { .. }) => failures += 1,
            Err(error) => panic!("call {call}: {error}"),
        }
        for attempt in 0..2 {
            work(&engine).unwrap_or_else(|error| panic!("call {call}, attempt {attempt}: {error}"));
        }
        drop(engine);
        assert_nothing_allocated(&device, &format!("after call {call} failed"));
    }
    assert!(failures > 20, "{failures} failures");
}

/// Results outlive the engine.
#[test]
fn rows_outlive_their_engine() {
    let Some(device) = device() else { return };
    let engine = engine_on(&device);
    let groups = [5, 6].map(|number| group(load(&engine, number).unwrap()));
    let rows = pipeline(Output::Rows(vec![Expr::Column(0)]));
    let mut rows = engine.start(rows).rows(&groups).unwrap();
    drop((groups, engine));
    assert_eq!(device.allocated_bytes(), 0);
    // results of one row group outlive those of another
    for chunk in [6, 5] {
        let columns = rows.pop().unwrap().columns;
        let values = columns[0].as_primitive::<Int64Type>().values();
        assert_eq!(values, expected_rows(&[chunk]).as_slice());
        assert_eq!(columns[0].null_count(), 0);
    }
    assert!(rows.is_empty());
    assert_nothing_allocated(&device, "after results");
}

/// A device with this much memory; prints a message and returns `None` if there is no C++ compiler.
fn device_with(bytes: u64) -> Option<Arc<CpuDevice>> {
    match CpuDevice::new() {
        Ok(device) => Some(Arc::new(device.with_memory(bytes))),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// A device that counts launches, and calls `hook` before each.
fn counting(hook: impl Fn() + Send + Sync + 'static) -> Option<(Arc<CpuDevice>, Arc<AtomicUsize>)> {
    let launches = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&launches);
    let device = CpuDevice::new().inspect_err(|error| eprintln!("skipped: {error}"));
    let device = device.ok()?.before_launch(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        hook();
    });
    Some((Arc::new(device), launches))
}

/// Unused chunks are dropped for scratch memory and results of queries.
#[test]
fn idle_chunks_make_room_for_results() {
    let Some(device) = device_with(600 << 10) else {
        return;
    };
    let engine = engine_on(&device);
    engine.set_memory_limit(u64::MAX);
    for number in 0..200 {
        load(&engine, number).unwrap();
    }
    assert!(device.free_memory().unwrap() < 64 << 10);
    let groups = [0, 1].map(|number| group(load(&engine, number).unwrap()));
    check(&engine, &[0, 1], &groups).unwrap();
    drop((groups, engine));
    assert_nothing_allocated(&device, "after making room");
}

/// Chunks that were loaded together share memory: none of it is freed while a query uses one of them.
#[test]
fn chunks_that_came_together_go_together() {
    let Some(device) = device() else { return };
    let engine = engine_on(&device);
    let bytes = chunk(0).info().bytes as u64;
    // the device is full with the first one, so that the others stay in host memory
    engine.set_memory_limit(bytes);
    for number in [4, 0, 1, 2] {
        load(&engine, number).unwrap();
    }
    engine.clear_device();
    engine.set_memory_limit(3 * bytes);
    let mut together = engine.lookup_all(&[0, 1, 2].map(key));
    assert!(together.iter().all(Option::is_some));
    engine.settle().unwrap();
    let used = group(together.swap_remove(1).unwrap());
    drop(together);
    match load(&engine, 3) {
        Err(Error::OutOfMemory { wanted, .. }) => assert_eq!(wanted, bytes),
        other => panic!("{other:?}"),
    }
    check(&engine, &[1], std::slice::from_ref(&used)).unwrap();
    drop(used);
    load(&engine, 3).unwrap();
    assert_eq!(engine.cached_bytes(), bytes);
    drop(engine);
    assert_nothing_allocated(&device, "of chunks that came together");
}

#[test]
fn the_limit_follows_free_memory() {
    let Some(device) = device_with(1 << 20) else {
        return;
    };
    let engine = engine_on(&device);
    // the engine does not repeat the request at once
    let limit = || {
        std::thread::sleep(Duration::from_millis(150));
        engine.memory_limit()
    };
    assert_eq!(limit(), (1 << 20) * 4 / 5);
    let of_another = device.allocate(512 << 10).unwrap();
    assert_eq!(limit(), (512 << 10) * 4 / 5);
    load(&engine, 0).unwrap();
    assert_eq!(limit(), (512 << 10) * 4 / 5, "what it has itself counts");
    engine.set_memory_limit(u64::MAX);
    assert_eq!(limit(), 512 << 10);
    engine.set_memory_limit(1000);
    assert_eq!(limit(), 1000);
    // SAFETY: from `allocate`, and nothing uses it.
    unsafe { device.free(of_another) };
}

#[test]
fn a_lost_device_is_left_alone() {
    let Some(device) = device() else { return };
    let engine = engine_on(&device);
    let groups = [group(load(&engine, 0).unwrap())];
    check(&engine, &[0], &groups).unwrap();
    engine.check().unwrap();
    device.lose();
    let lost = |result: Result<()>| matches!(result, Err(Error::Lost(_)));
    assert!(lost(check(&engine, &[0], &groups)));
    let calls = device.calls();
    assert!(lost(engine.check()));
    assert!(lost(check(&engine, &[0], &groups)));
    assert!(lost(load(&engine, 1).map(|_| ())));
    assert!(lost(engine.settle()));
    assert!(engine.lookup(&key(0)).is_none());
    assert_eq!(device.calls(), calls);
    drop((groups, engine));
    assert_nothing_allocated(&device, "of a lost device");
}

#[cfg(target_os = "linux")]
#[test]
fn forks_are_refused() {
    unsafe extern "C" {
        fn fork() -> i32;
        fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
        fn _exit(status: i32) -> !;
    }
    let Some(device) = device() else { return };
    let engine = engine_on(&device);
    let (image, groups) = (chunk(1), [group(load(&engine, 0).unwrap())]);
    let batch = Batch::of(&groups).unwrap();
    let pipeline = pipeline(Output::Aggregates(vec![Aggregate::CountRows]));
    let calls = device.calls();
    // SAFETY: the child has this thread alone, allocates, which the C library allows, and exits.
    let child = unsafe { fork() };
    if child == 0 {
        let lost = |result: Result<()>| matches!(result, Err(Error::Lost(_)));
        let refused = lost(engine.check())
            && lost(engine.load(key(1), &image).map(|_| ()))
            && lost(engine.start(pipeline).aggregate(&batch))
            && engine.lookup(&key(0)).is_none()
            && device.calls() == calls;
        // SAFETY: nothing of the parent's is touched.
        unsafe { _exit(i32::from(!refused)) };
    }
    let mut status = -1;
    // SAFETY: the pointer is to a live integer.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    engine.check().unwrap();
}

#[test]
fn a_cancelled_execution_launches_no_more() {
    let guard = Arc::new(Mutex::new(None));
    let dropped = Arc::clone(&guard);
    let drop_guard = move || drop(dropped.lock().unwrap().take());
    let Some((device, launches)) = counting(drop_guard) else {
        return;
    };
    let engine = engine_on(&device);
    let groups = [0, 1].map(|number| group(load(&engine, number).unwrap()));
    let pipeline = pipeline(Output::Rows(vec![Expr::Column(0)]));
    let mut execution = engine.start(Arc::clone(&pipeline));
    *guard.lock().unwrap() = Some(execution.cancel_on_drop());
    let result = execution.rows(&groups);
    assert!(matches!(result, Err(Error::Cancelled)), "{result:?}");
    assert_eq!(launches.load(Ordering::Relaxed), 1);
    // others continue
    engine.start(pipeline).rows(&groups).unwrap();
    assert_eq!(launches.load(Ordering::Relaxed), 3);
}

/// Host memory for groups is requested before it is allocated.
#[test]
fn groups_ask_for_memory() {
    let Some((device, launches)) = counting(|| ()) else {
        return;
    };
    let engine = engine_on(&device);
    let groups = [group(load(&engine, 0).unwrap())];
    let batch = Batch::of(&groups).unwrap();
    let output = Output::Groups(
        vec![GroupKey::Value(Expr::Column(0))],
        vec![Aggregate::Sum(Expr::Column(0))],
    );
    let pipeline = pipeline(output);
    let group = |most: usize| {
        let mut requests = vec![];
        let result = engine.start(Arc::clone(&pipeline)).group(&batch, |wanted| {
            requests.push(wanted);
            let reason = "no".to_string();
            match wanted > most {
                true => Err(Error::Refused { wanted, reason }),
                false => Ok(()),
            }
        });
        (result, requests)
    };
    let (result, requests) = group(usize::MAX);
    assert_eq!(result.unwrap()[0].count, expected_rows(&[0]).len());
    let [table, all] = requests[..] else {
        panic!("{requests:?}")
    };
    assert!(all > table + expected_rows(&[0]).len() * 40);
    assert_eq!(launches.load(Ordering::Relaxed), 1);
    let refused = |most| matches!(group(most).0, Err(Error::Refused { .. }));
    assert!(refused(table - 1));
    assert_eq!(launches.load(Ordering::Relaxed), 1, "none without room");
    assert!(refused(all - 1));
}

#[test]
fn chunks_are_copied_from_where_they_were_read() {
    let Some(device) = device() else { return };
    let engine = engine_on(&device);
    let read = |number: usize| {
        let array: ArrayRef = Arc::new(Int64Array::from(values(number)));
        let pin = Some(Encoding::Ffor);
        let encoded = encode(&array, &EncodeOptions::pinned(pin)).unwrap();
        let mut memory = engine.staging(encoded.len()).unwrap();
        memory.as_mut().copy_from_slice(&encoded);
        let bytes = Buffer::from(Bytes::from_owner(memory));
        let column = Column::parse(bytes, array.data_type(), array.len()).unwrap();
        (key(number), DeviceChunk::build(&column).unwrap())
    };
    // one of them was read elsewhere
    let read = vec![read(0), (key(2), chunk(2)), read(1)];
    let chunks: Vec<(ChunkKey, &DeviceChunk)> = read
        .iter()
        .map(|(key, chunk)| (key.clone(), chunk))
        .collect();
    // memory for all, one copy of assembled parts, and one per body that was read
    engine.load_all(&chunks[..1]).unwrap();
    engine.clear();
    let before = device.calls();
    let groups: Vec<Group> = engine
        .load_all(&chunks)
        .unwrap()
        .into_iter()
        .map(group)
        .collect();
    let calls = device.calls() - before;
    assert!((3..=5).contains(&calls), "{calls}");
    check(&engine, &[0, 2, 1], &groups).unwrap();
    // chunks on the device are not copied again
    let before = device.calls();
    engine.load_all(&chunks).unwrap();
    assert_eq!(device.calls(), before);
    drop(chunks);
    drop((read, groups, engine));
    assert_nothing_allocated(&device, "after chunks that were read");
}

#[test]
fn memory_for_reading_is_limited() {
    const MOST: u64 = 512 << 20;
    let Some(device) = device() else { return };
    let engine = engine_on(&device);
    let piece = MOST as usize / 16;
    let taken: Vec<_> = std::iter::from_fn(|| engine.staging(piece)).collect();
    assert_eq!(taken.len(), 16);
    assert_eq!(device.allocated_host_bytes(), MOST);
    assert!(engine.staging(1).is_none());
    drop(taken);
    assert!(engine.staging(MOST as usize).is_none(), "a slab has less");
    assert!(engine.staging(1).is_some());
    assert_eq!(device.allocated_host_bytes(), MOST, "it is kept");
    engine.clear();
    assert_nothing_allocated(&device, "after all was given back");
}
