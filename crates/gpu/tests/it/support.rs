//! Devices, engines and tables for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::array::{Array, ArrayRef};
use vectile_emulator::{CpuDevice, sanitized};
use vectile_encodings::{Column, EncodeOptions, Encoding, encode};
use vectile_gpu::{ChunkKey, Cuda, DeviceChunk, Driver, Engine, Execution, Group, Tier};
use vectile_pipeline::{Filter, Output, Pipeline};

/// A CPU in place of a GPU; prints a message and returns `None` if there is no C++ compiler.
pub fn device() -> Option<Arc<CpuDevice>> {
    match CpuDevice::new() {
        Ok(device) => Some(Arc::new(device)),
        Err(error) => {
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// The first GPU if `VECTILE_TEST_GPU` is set (panics if there is none); else, and under sanitizers, [`device`].
pub fn driver() -> Option<Arc<dyn Driver>> {
    match std::env::var_os("VECTILE_TEST_GPU") {
        Some(_) if !sanitized() => Some(Cuda::open(0).unwrap()),
        _ => Some(device()?),
    }
}

/// An engine on [`device`], with generated kernels.
pub fn engine() -> Option<Arc<Engine>> {
    let engine = Engine::new(device()?);
    engine.set_tier(Tier::Generated);
    Some(engine)
}

/// A column and how to encode it.
#[derive(Clone, Debug)]
pub struct Input {
    pub array: ArrayRef,
    pub pin: Option<Encoding>,
}

pub fn input(array: impl Array + 'static, pin: Option<Encoding>) -> Input {
    Input {
        array: Arc::new(array),
        pin,
    }
}

/// Columns on the device, in row groups of `rows_per_group` rows.
pub fn table(engine: &Engine, inputs: &[Input], rows_per_group: usize) -> Vec<Group> {
    let rows = inputs[0].array.len();
    let starts = (0..rows).step_by(rows_per_group);
    let groups = starts.map(|start| {
        let len = rows_per_group.min(rows - start);
        let slice = |input: &Input| Input {
            array: input.array.slice(start, len),
            pin: input.pin,
        };
        group(engine, &inputs.iter().map(slice).collect::<Vec<_>>())
    });
    groups.collect()
}

/// A row group on the device.
pub fn group(engine: &Engine, columns: &[Input]) -> Group {
    Group {
        rows: columns[0].array.len(),
        columns: columns
            .iter()
            .map(|c| resident(engine, &image(c)))
            .collect(),
    }
}

pub fn column(input: &Input) -> Column {
    let options = EncodeOptions::pinned(input.pin);
    let bytes = encode(&input.array, &options).unwrap();
    Column::parse(bytes.into(), input.array.data_type(), input.array.len()).unwrap()
}

pub fn image(input: &Input) -> DeviceChunk {
    DeviceChunk::build(&column(input)).unwrap()
}

pub fn resident(engine: &Engine, image: &DeviceChunk) -> Arc<vectile_gpu::Resident> {
    engine.load(new_key(), image).unwrap()
}

/// A unique key of a chunk.
pub fn new_key() -> ChunkKey {
    static CHUNKS: AtomicUsize = AtomicUsize::new(0);
    ChunkKey {
        file: "test".into(),
        row_group: CHUNKS.fetch_add(1, Ordering::Relaxed),
        column: 0,
    }
}

pub fn pipeline(inputs: &[Input], filter: Filter, output: Output) -> Arc<Pipeline> {
    Arc::new(Pipeline {
        columns: inputs.iter().map(|i| i.array.data_type().clone()).collect(),
        lookups: vec![],
        matches: vec![],
        filter,
        output,
    })
}

pub fn start(engine: &Arc<Engine>, inputs: &[Input], filter: Filter, output: Output) -> Execution {
    engine.start(pipeline(inputs, filter, output))
}
