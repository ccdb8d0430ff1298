//! Launches of the kernel that builds key tables, and copies of its results.

use std::time::Duration;

use crate::error::Result;
use crate::runtime::{DeviceBuffer, Engine, Event, Kernel, Launch};
use vectile_kernels::{BuildStep, KeyColumn};
use vectile_pipeline::join::{DeviceKeyLayout, DeviceKeyTableLayout, size_word};

const THREADS: u32 = 256;
/// Alignment of the inputs of steps.
const INPUT_ALIGNMENT: usize = 16;

/// A launch of the kernel.
pub(super) struct Step {
    step: BuildStep,
    /// Rows, slots to clear, or values to find.
    rows: usize,
    /// Descriptors of columns as the kernel reads them: keys, then others; or values to find.
    input: Vec<u8>,
    /// The number of columns, and in the high half of keys.
    counts: u64,
    /// Addresses of keys and codes; bytes of a code and a flag for hashed keys; then the empty slot, and buckets less
    /// one.
    target: [u64; 5],
    /// Words of results.
    result_words: usize,
}

/// Bytes of the device's memory to fill with one.
pub(super) struct Fill {
    pub address: u64,
    pub byte: u8,
    pub bytes: usize,
}

impl Step {
    fn new(step: BuildStep, rows: usize) -> Self {
        Self {
            step,
            rows,
            input: vec![],
            counts: 0,
            target: [0; 5],
            result_words: 0,
        }
    }

    /// Measures columns, each in so many words of results.
    pub fn measure(columns: &[KeyColumn], rows: usize, words: usize) -> Self {
        Self {
            result_words: columns.len() * words,
            ..Self::new(BuildStep::Measure, rows).over(columns, 0)
        }
    }

    /// Empties so many slots of a hash table.
    pub fn clear(slots: usize, target: [u64; 5]) -> Self {
        Self {
            target,
            ..Self::new(BuildStep::Clear, slots)
        }
    }

    /// Enters the keys of rows, which the first `keys` of the columns are, into an empty table.
    pub fn fill(columns: &[KeyColumn], keys: usize, rows: usize, target: [u64; 5]) -> Self {
        Self {
            target,
            result_words: 4,
            ..Self::new(BuildStep::Fill, rows).over(columns, keys)
        }
    }

    fn over(self, columns: &[KeyColumn], keys: usize) -> Self {
        Self {
            input: columns
                .iter()
                .flat_map(|column| column.to_bytes())
                .collect(),
            counts: columns.len() as u64 | (keys as u64) << 32,
            ..self
        }
    }
}

/// Fills memory, then launches the kernel for each step, and waits once for all of them. Returns the results of each
/// step, and the run time of the kernel.
///
/// # Safety
///
/// The columns have as many values as the step has rows, and results as many words as it writes. Columns, targets and
/// filled ranges are large enough, and live until this returns.
pub(super) unsafe fn run_steps(
    engine: &Engine,
    kernel: &dyn Kernel,
    fills: &[Fill],
    steps: &[Step],
) -> Result<(Vec<Vec<u64>>, Duration)> {
    // results are zeros at first, and sent along with the inputs
    let result_words: usize = steps.iter().map(|step| step.result_words).sum();
    let result_bytes = result_words * 8;
    let mut sent = result_bytes;
    let inputs_at = steps.iter().map(|step| {
        let at = sent.next_multiple_of(INPUT_ALIGNMENT);
        sent = at + step.input.len();
        at
    });
    let inputs_at: Vec<usize> = inputs_at.collect();
    let mut context = engine.stream_context()?;
    let scratch = context.scratch(engine, sent)?;
    let staging = context.staging(engine, sent)?;
    staging[..sent].fill(0);
    for (step, at) in steps.iter().zip(&inputs_at) {
        staging[*at..][..step.input.len()].copy_from_slice(&step.input);
    }
    let pinned = staging.as_mut_ptr();
    let resident = kernel.resident_blocks(THREADS, 0).max(1);
    let resident = resident.saturating_mul(engine.device().multiprocessors.max(1));
    let mut results_at = scratch;
    let args = steps.iter().zip(&inputs_at).map(|(step, input_at)| {
        let (rows, input) = (step.rows as u64, scratch + *input_at as u64);
        let mut args = vec![step.step as u64, rows, input, step.counts, results_at];
        args.extend(step.target);
        results_at += step.result_words as u64 * 8;
        args
    });
    let args: Vec<Vec<u64>> = args.collect();
    let events = context.finish(|stream| -> Result<(Event, Event)> {
        // SAFETY: as the caller says; scratch and staging have these bytes, and live until `finish` is done. Staging is
        // overwritten after it was sent, in the stream's order.
        unsafe {
            stream.copy_in(scratch, pinned, sent)?;
            for fill in fills {
                stream.fill(fill.address, fill.byte, fill.bytes)?;
            }
            let start = stream.mark()?;
            for (step, args) in steps.iter().zip(&args) {
                let needed = step.rows.div_ceil(THREADS as usize).max(1);
                let launch = Launch {
                    grid: resident.min(needed.try_into().unwrap_or(u32::MAX)),
                    block: THREADS,
                    shared: 0,
                    args,
                };
                stream.launch(kernel, launch)?;
            }
            let end = stream.mark()?;
            stream.copy_out(pinned, scratch, result_bytes)?;
            Ok((start, end))
        }
    })?;
    let took = context.between(&events)?;
    let back = context.staging(engine, sent)?;
    let mut words = back[..result_bytes].as_chunks::<8>().0.iter();
    let results = steps.iter().map(|step| {
        let own = words.by_ref().take(step.result_words);
        own.map(|word| u64::from_le_bytes(*word)).collect()
    });
    let results = results.collect();
    engine.give_back(context);
    Ok((results, took))
}

/// Counts the values that are keys of a table.
pub(super) fn count_keys(
    engine: &Engine,
    kernel: &dyn Kernel,
    memory: &DeviceBuffer,
    form: DeviceKeyTableLayout,
    values: &[i64],
) -> Result<usize> {
    let (is_hashed, last) = match form.keys {
        DeviceKeyLayout::PerfectHashTable { first, range } => (false, [first as u64, range]),
        DeviceKeyLayout::Hashed { slots, empty, .. } => (true, [empty as u64, size_word(slots, 0)]),
    };
    let step = Step {
        input: values
            .iter()
            .flat_map(|value| value.to_le_bytes())
            .collect(),
        target: [
            memory.address(),
            0,
            u64::from(is_hashed) << 32,
            last[0],
            last[1],
        ],
        result_words: 1,
        ..Step::new(BuildStep::Find, values.len())
    };
    // SAFETY: there are as many values as rows; the table is of this form, and lives as long as `memory`.
    let (results, _) = unsafe { run_steps(engine, kernel, &[], &[step]) }?;
    let counted = results.first().and_then(|words| words.first());
    Ok(counted.map_or(0, |counted| *counted as usize))
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
