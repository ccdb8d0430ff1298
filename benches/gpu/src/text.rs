//! Text of sample tables: compressed by the device, and decompressed there.

use std::fs::{File, read_dir};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use arrow::array::{Array, ArrayRef};
use arrow::compute;
use arrow::datatypes::DataType;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::json;
use vectile_encodings::{Compressor, EncodeOptions, Encoding, Splits, Uncompressed, encode};
use vectile_gpu::Engine;
use vectile_pipeline::{Expr, Filter, Output};

use crate::bench::{Bench, Case, RUNS, Result};
use crate::data::{GROUP_ROWS, text_bytes};
use crate::timing::median;

/// The least text of a column; smaller ones are skipped.
const LEAST_BYTES: usize = 1 << 20;
/// The least text that goes from host memory to the device and back as codes.
const BYTES_FROM_HOST: usize = 4 << 30;
/// Row groups that are also compressed as one: a small one leaves most of the device idle.
const LARGE_GROUPS: usize = 4;
const PINS: [Encoding; 2] = [Encoding::Fsst, Encoding::OnPair];

pub fn run(bench: &mut Bench, directory: &Path) -> Result<()> {
    let mut columns = vec![];
    let mut paths: Vec<_> = read_dir(directory)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<std::result::Result<_, _>>()?;
    paths.sort();
    for path in paths {
        if path.extension().is_some_and(|of| of == "parquet") {
            columns.extend(read(&path)?);
        }
    }
    compression(bench, &columns)?;
    bench.decompression_header("text: full decompression into device memory");
    for (name, array) in &columns {
        for pin in PINS {
            let rows = Output::Rows(vec![Expr::Column(0)]);
            bench.decompress(&Case {
                name: format!("{name}, {pin}"),
                pin: Some(pin),
                ..Case::new("text", vec![array.clone()], Filter::Constant(true), rows)
            })?;
        }
    }
    Ok(())
}

fn compression(bench: &mut Bench, columns: &[(String, ArrayRef)]) -> Result<()> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    println!(
        "\ntext: compression of a row group; and of many, from host memory, {threads} threads"
    );
    println!(
        "{:<32} {:>6} {:>7} {:>7} {:>9} {:>9} {:>10} {:>8} {:>10}",
        "case", "MB", "ratio", "of CPU", "CPU ms", "with GPU", "kernels ms", "GB/s", "many GB/s"
    );
    let large = columns.iter().map(|(name, array)| {
        let copies = vec![array.as_ref(); LARGE_GROUPS];
        Ok((
            format!("{name} x {LARGE_GROUPS}"),
            compute::concat(&copies)?,
        ))
    });
    let large = large.collect::<Result<Vec<_>>>()?;
    for (name, array) in columns.iter().chain(&large) {
        for pin in PINS {
            let own = EncodeOptions::pinned(pin);
            let measuring = Arc::new(Measuring::new(Arc::clone(&bench.engine), threads));
            let measured = EncodeOptions {
                compressor: Some(measuring.clone()),
                ..own.clone()
            };
            let by_device = encode(array, &measured)?;
            let plainly = Arc::new(Plainly(Arc::clone(&bench.engine)));
            let with_device = EncodeOptions {
                compressor: Some(plainly),
                ..own.clone()
            };
            let ms_of = |options: &EncodeOptions| -> Result<(f64, Vec<u8>)> {
                let start = Instant::now();
                let bytes = encode(array, options)?;
                Ok((start.elapsed().as_secs_f64() * 1e3, bytes))
            };
            let (cpu_ms, by_cpu) = ms_of(&own)?;
            let (ms, repeated) = ms_of(&with_device)?;
            if repeated != by_device {
                return Err(format!("{name}, {pin}: not the codes of the first time").into());
            }
            let (text, of_cpu) = (
                text_bytes(array),
                by_device.len() as f64 / by_cpu.len() as f64,
            );
            let ratio = text as f64 / by_device.len() as f64;
            // two measurements if there are two symbol tables
            let measurements = measuring
                .measurements
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let kernel_ms: f64 = measurements.iter().map(|(kernel_ms, _)| kernel_ms).sum();
            let seconds_per_byte: f64 = measurements.iter().map(|(_, seconds)| seconds).sum();
            let (gb_per_s, many) = (
                text as f64 / kernel_ms / 1e6,
                1e-9 / seconds_per_byte * text as f64,
            );
            let case = format!("{name}, {pin}");
            println!(
                "{case:<32} {:>6.1} {ratio:>7.2} {of_cpu:>7.3} {cpu_ms:>9.1} {ms:>9.1} {kernel_ms:>10.3} {gb_per_s:>8.1} {many:>10.1}",
                text as f64 / 1e6,
            );
            let facts = json!({
                "kind": "compress", "case": case, "text": text, "ratio": ratio, "of_cpu": of_cpu,
                "cpu_ms": cpu_ms, "with_gpu_ms": ms, "kernel_ms": kernel_ms, "from_host_gb_per_s": many,
            });
            bench.record("text", facts)?;
        }
    }
    Ok(())
}

/// Lets the device compress.
#[derive(Debug)]
struct Plainly(Arc<Engine>);

impl Compressor for Plainly {
    fn compress(&self, strings: &Uncompressed<'_>) -> Option<Splits> {
        Some(self.0.compress(strings, true).ok()?.splits)
    }
}

/// Lets the device compress repeatedly, and measures it.
#[derive(Debug)]
struct Measuring {
    engine: Arc<Engine>,
    threads: usize,
    /// Milliseconds of kernels, and seconds of the whole call, per column of strings.
    measurements: Mutex<Vec<(f64, f64)>>,
}

impl Measuring {
    fn new(engine: Arc<Engine>, threads: usize) -> Self {
        Self {
            engine,
            threads,
            measurements: Mutex::default(),
        }
    }

    fn measure(&self, strings: &Uncompressed<'_>) -> vectile_gpu::Result<Splits> {
        let compress = || self.engine.compress(strings, true);
        let mut kernel_ms = vec![];
        for _ in 0..RUNS {
            kernel_ms.push(compress()?.kernel.as_secs_f64() * 1e3);
        }
        let bytes: usize = strings.strings.iter().map(|string| string.len()).sum();
        let rounds = BYTES_FROM_HOST.div_ceil(bytes * self.threads).max(2);
        let mut seconds = 0.0;
        // memory is allocated in the first round
        for rounds in [2, rounds] {
            let start = Instant::now();
            thread::scope(|scope| {
                let work = || (0..rounds).try_for_each(|_| compress().map(drop));
                let all: Vec<_> = (0..self.threads).map(|_| scope.spawn(work)).collect();
                let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                    thread
                        .join()
                        .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
                };
                all.into_iter().try_for_each(join)
            })?;
            seconds = start.elapsed().as_secs_f64() / (rounds * self.threads) as f64;
        }
        let mut measurements = self
            .measurements
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        measurements.push((median(&mut kernel_ms), seconds));
        Ok(compress()?.splits)
    }
}

impl Compressor for Measuring {
    fn compress(&self, strings: &Uncompressed<'_>) -> Option<Splits> {
        let measured = self.measure(strings);
        measured
            .map_err(|error| eprintln!("the device does not compress: {error}"))
            .ok()
    }
}

/// The columns of a table with much text, each repeated to fill a row group.
fn read(path: &Path) -> Result<Vec<(String, ArrayRef)>> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?;
    let schema = reader.schema().clone();
    let batches = reader.build()?.collect::<Result<Vec<_>, _>>()?;
    let batch = compute::concat_batches(&schema, &batches)?;
    let table = path.file_stem().unwrap_or_default().to_string_lossy();
    let fields = schema.fields().iter().zip(batch.columns());
    let texts = fields
        .filter(|(field, _)| matches!(field.data_type(), DataType::Utf8 | DataType::Utf8View));
    let mut columns = vec![];
    for (field, array) in texts {
        let array = compute::cast(array, &DataType::Utf8)?;
        if array.len() > 0 && text_bytes(&array) >= LEAST_BYTES {
            let copies = vec![array.as_ref(); GROUP_ROWS.div_ceil(array.len())];
            let array = compute::concat(&copies)?.slice(0, GROUP_ROWS);
            columns.push((format!("{table}.{}", field.name()), array));
        }
    }
    Ok(columns)
}
