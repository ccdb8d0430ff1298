//! Launches of the kernel that builds key tables, and copies of its results.

use std::sync::Arc;
use std::time::Duration;

use super::tables::on_device;
use crate::error::Result;
use crate::runtime::{DeviceBuffer, Engine, Kernel, Launch};
use vectile_kernels::{BuildStep, KeyColumn};
use vectile_pipeline::join::{DeviceKeyLayout, DeviceKeyTableLayout, size_word};

const THREADS: u32 = 256;

/// Arguments of a launch.
pub(super) struct Work {
    pub step: BuildStep,
    pub rows: usize,
    /// Descriptors as the kernel reads them: key columns, then others.
    pub columns: Vec<KeyColumn>,
    pub keys: usize,
    /// Addresses of keys and codes; bytes of a code and a flag for hashed keys; then the empty slot, and buckets less
    /// one.
    pub target: [u64; 5],
    /// Words of results.
    pub result_words: usize,
}

impl Work {
    /// A step over so many rows, without columns, a target and results.
    pub fn new(step: BuildStep, rows: usize) -> Self {
        Self {
            step,
            rows,
            columns: vec![],
            keys: 0,
            target: [0; 5],
            result_words: 0,
        }
    }
}

/// Launches the kernel with descriptors of columns, or with values. Returns its results, and its run time.
///
/// # Safety
///
/// The bytes are those that the step expects: columns or values. They name memory that is large enough and lives until
/// this returns, and so does the target.
pub(super) unsafe fn launched(
    engine: &Engine,
    kernel: &Arc<dyn Kernel>,
    work: &Work,
    input: &[u8],
    counts: u64,
) -> Result<(Vec<u64>, Duration)> {
    let input = on_device(engine, input.len().max(1), |to| {
        to[..input.len()].copy_from_slice(input);
    })?;
    let bytes = work.result_words.max(1) * 8;
    let results = engine.take(bytes)?;
    let mut back = engine.host_pool().take(bytes)?;
    let to = back.as_mut_slice().as_mut_ptr();
    let resident = kernel.resident_blocks(THREADS, 0).max(1);
    let resident = resident.saturating_mul(engine.device().multiprocessors.max(1));
    let needed = work.rows.div_ceil(THREADS as usize).max(1);
    let rows = work.rows as u64;
    let mut args = vec![
        work.step as u64,
        rows,
        input.address(),
        counts,
        results.address(),
    ];
    args.extend(work.target);
    let launch = Launch {
        grid: resident.min(needed.try_into().unwrap_or(u32::MAX)),
        block: THREADS,
        shared: 0,
        args: &args,
    };
    let mut context = engine.stream_context()?;
    let events = context.finish(|stream| {
        // SAFETY: as the caller says; filled and copied ranges have these bytes, and live until `finish` is done.
        unsafe {
            stream.fill(results.address(), 0, bytes)?;
            let events = stream.launch_timed(kernel.as_ref(), launch)?;
            stream.copy_out(to, results.address(), bytes)?;
            Ok(events)
        }
    })?;
    let took = context.between(&events)?;
    engine.give_back(context);
    let words = back.as_slice()[..bytes].as_chunks::<8>().0.iter();
    Ok((words.map(|word| u64::from_le_bytes(*word)).collect(), took))
}

/// Counts the values that are keys of a table.
pub(super) fn count_keys(
    engine: &Engine,
    kernel: &Arc<dyn Kernel>,
    memory: &DeviceBuffer,
    form: DeviceKeyTableLayout,
    values: &[i64],
) -> Result<usize> {
    let (is_hashed, last) = match form.keys {
        DeviceKeyLayout::PerfectHashTable { first, range } => (false, [first as u64, range]),
        DeviceKeyLayout::Hashed { slots, empty, .. } => (true, [empty as u64, size_word(slots, 0)]),
    };
    let work = Work {
        target: [
            memory.address(),
            0,
            u64::from(is_hashed) << 32,
            last[0],
            last[1],
        ],
        result_words: 1,
        ..Work::new(BuildStep::Find, values.len())
    };
    let input: Vec<u8> = values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect();
    // SAFETY: there are as many values as rows; the table is of this form, and lives as long as `memory`.
    let (results, _) = unsafe { launched(engine, kernel, &work, &input, 0) }?;
    Ok(results.first().map_or(0, |results| *results as usize))
}

/// Copies some bytes of the device's memory back.
pub(super) fn copied(
    engine: &Engine,
    memory: &DeviceBuffer,
    at: usize,
    bytes: usize,
) -> Result<DeviceBuffer> {
    let mut back = engine.host_pool().take(bytes)?;
    let to = back.as_mut_slice().as_mut_ptr();
    let mut context = engine.stream_context()?;
    let from = memory.address() + at as u64;
    // SAFETY: callers ask for bytes within the buffer; both live until `finish` is done.
    context.finish(|stream| unsafe { stream.copy_out(to, from, bytes) })?;
    engine.give_back(context);
    Ok(back)
}
