//! Columns on the device, timing, checks, and output.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, make_array};
use arrow::compute;
use arrow::datatypes::{DataType, Float64Type, Int64Type};
use serde_json::{Value, json};
use vectile_encodings::{Column, EncodeOptions, Encoding, Pin, encode};
use vectile_gpu::{
    Bandwidth, Batch, ChunkKey, Cuda, DeviceChunk, Driver, Engine, Group, Resident, measure,
};
use vectile_pipeline::{Aggregate, Expr, Filter, Number, Output, Pipeline, Rows, Total};

use crate::bounds::{self, Bounds};
use crate::data::{GROUP_ROWS, text_bytes};
use crate::timing::median;

pub type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Values per second of unpacking and comparing on an H200 if bytes are few: the other lower bound on time, besides
/// reading.
pub const VALUES_PER_S: f64 = 4.4e12;

/// Measurements per kernel; the median counts.
pub const RUNS: usize = 11;
/// Runs before those that count.
const WARM_UPS: usize = 2;
/// The least compressed bytes of a case, so that the caches of the device hold only a fraction.
const LEAST_BYTES: usize = 1 << 30;
const LEAST_GROUPS: usize = 64;
const MOST_GROUPS: usize = (1 << 32) / GROUP_ROWS;
/// The least row groups that are decompressed.
const DECOMPRESSED_GROUPS: usize = 1024;

/// A GPU and its measured limits.
pub struct Bench {
    pub engine: Arc<Engine>,
    pub bandwidth: Bandwidth,
    pub bounds: Bounds,
    json: Option<File>,
    loaded: usize,
}

/// Columns, and the work of a kernel on them.
pub struct Case {
    pub part: &'static str,
    pub name: String,
    /// Facts for the plot.
    pub facts: Value,
    /// A row group.
    pub arrays: Vec<ArrayRef>,
    pub pin: Option<Encoding>,
    pub filter: Filter,
    pub output: Output,
}

impl Case {
    pub fn new(part: &'static str, arrays: Vec<ArrayRef>, filter: Filter, output: Output) -> Self {
        Self {
            part,
            name: String::new(),
            facts: json!({}),
            arrays,
            pin: None,
            filter,
            output,
        }
    }

    fn encoded(&self) -> Result<Encoded> {
        let mut file_bytes = 0;
        let columns = self.arrays.iter().map(|array| {
            let bytes = encode(array, &EncodeOptions::pinned(self.pin))?;
            file_bytes += bytes.len();
            Ok(Column::parse(bytes.into(), array.data_type(), array.len())?)
        });
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let images = columns
            .iter()
            .map(DeviceChunk::build)
            .collect::<Result<_, _>>()?;
        Ok(Encoded {
            images,
            file_bytes,
            encoding: columns[0].describe(),
        })
    }

    fn rows(&self) -> usize {
        self.arrays[0].len()
    }

    /// Bytes of one value, 0 for text.
    fn value_bytes(&self) -> usize {
        self.arrays[0].data_type().primitive_width().unwrap_or(0)
    }

    fn pipeline(&self) -> Arc<Pipeline> {
        let columns = self.arrays.iter().map(|array| array.data_type().clone());
        Arc::new(Pipeline {
            columns: columns.collect(),
            lookups: vec![],
            matches: vec![],
            filter: self.filter.clone(),
            output: self.output.clone(),
        })
    }

    /// The mask of the row group's rows that pass, computed by the CPU.
    fn passing(&self, filter: &Filter) -> Result<BooleanArray> {
        Ok(match filter {
            Filter::Constant(value) => BooleanArray::from(vec![*value; self.rows()]),
            Filter::Column(column, predicate) => predicate.evaluate(&self.arrays[*column])?,
            Filter::And(parts) => {
                let all = BooleanArray::from(vec![true; self.rows()]);
                parts.iter().try_fold(all, |so_far, part| -> Result<_> {
                    Ok(compute::and(&so_far, &self.passing(part)?)?)
                })?
            }
            other => return Err(format!("{other:?} cannot be checked").into()),
        })
    }

    /// Checks that counts, and sums of a column without a filter, equal the CPU's over the row group.
    fn check(&self, totals: &[Total], copies: usize) -> Result<()> {
        let total = totals.first().ok_or("no total")?;
        let count = self.passing(&self.filter)?.true_count() * copies;
        if total.count != count as u64 {
            return Err(format!("{}: {} rows pass, not {count}", self.name, total.count).into());
        }
        let Output::Aggregates(aggregates) = &self.output else {
            return Ok(());
        };
        if let ([Aggregate::Sum(Expr::Column(0))], Some(value)) = (&aggregates[..], total.value) {
            let array = &self.arrays[0];
            let (sum, expected) = match value {
                Number::Int(sum) => {
                    let array = compute::cast(array, &DataType::Int64)?;
                    let expected = compute::sum(array.as_primitive::<Int64Type>());
                    (sum as f64, expected.map(|x| x as f64))
                }
                Number::Float(sum) => {
                    let array = compute::cast(array, &DataType::Float64)?;
                    (sum, compute::sum(array.as_primitive::<Float64Type>()))
                }
            };
            let expected = expected.unwrap_or(0.0) * copies as f64;
            if (sum - expected).abs() > expected.abs() * 1e-9 {
                return Err(format!("{}: the sum is {sum}, not {expected}", self.name).into());
            }
        }
        Ok(())
    }
}

/// The columns of a row group.
struct Encoded {
    images: Vec<DeviceChunk>,
    /// Bytes in a file.
    file_bytes: usize,
    encoding: String,
}

impl Encoded {
    /// Bytes on the device.
    fn bytes(&self) -> usize {
        self.images.iter().map(|image| image.info().bytes).sum()
    }
}

/// Encodes and parses an array.
pub fn column(array: &ArrayRef, pin: Option<Encoding>) -> Result<Column> {
    pinned(array, pin.map(Pin::One))
}

pub fn pinned(array: &ArrayRef, pin: Option<Pin>) -> Result<Column> {
    let options = EncodeOptions {
        pin,
        ..EncodeOptions::default()
    };
    let bytes = encode(array, &options)?;
    Ok(Column::parse(bytes.into(), array.data_type(), array.len())?)
}

impl Bench {
    /// Opens the first GPU. Appends a line of JSON per case to a file.
    pub fn open(json: Option<&Path>) -> Result<Self> {
        let driver: Arc<dyn Driver> = Cuda::open(0)?;
        let bandwidth = measure(driver.as_ref())?;
        let bounds = bounds::measure(&driver)?;
        let engine = Engine::new(driver);
        let device = engine.device().clone();
        let (tb, gb) = (|x: f64| x / 1e12, |x: f64| x / 1e9);
        println!(
            "{}, {} multiprocessors, {:.0} GB; reads {:.2} TB/s, writes {:.2} TB/s (fill: {:.2}), copies \
             {:.2} TB/s read and as many written; host to device {:.1} GB/s, back {:.1} GB/s",
            device.name,
            device.multiprocessors,
            gb(device.memory as f64),
            tb(bandwidth.read_bytes_per_s),
            tb(bounds.write),
            tb(bounds.fill),
            tb(bounds.copy),
            gb(bandwidth.host_to_device_bytes_per_s),
            gb(bandwidth.device_to_host_bytes_per_s),
        );
        let mut bench = Self {
            engine,
            bandwidth,
            bounds,
            json: json.map(File::create).transpose()?,
            loaded: 0,
        };
        bench.record(
            "device",
            json!({
                "name": device.name,
                "multiprocessors": device.multiprocessors,
                "read_bytes_per_s": bandwidth.read_bytes_per_s,
                "write_bytes_per_s": bounds.write,
                "fill_bytes_per_s": bounds.fill,
                "copy_bytes_per_s": bounds.copy,
                "host_to_device_bytes_per_s": bandwidth.host_to_device_bytes_per_s,
                "device_to_host_bytes_per_s": bandwidth.device_to_host_bytes_per_s,
                "values_per_s": VALUES_PER_S,
            }),
        )?;
        Ok(bench)
    }

    /// Appends a line of JSON.
    pub fn record(&mut self, part: &str, mut facts: Value) -> Result<()> {
        if let Some(file) = &mut self.json {
            facts["part"] = part.into();
            writeln!(file, "{facts}")?;
        }
        Ok(())
    }

    /// Row groups of these columns, each copied to the device `copies` times.
    pub fn groups(&mut self, images: &[DeviceChunk], copies: usize) -> Result<Vec<Group>> {
        let groups = (0..copies).map(|_| {
            let columns = images.iter().map(|image| self.load(image));
            Ok(Group {
                rows: images[0].rows(),
                columns: columns.collect::<Result<_>>()?,
            })
        });
        groups.collect()
    }

    fn load(&mut self, image: &DeviceChunk) -> Result<Arc<Resident>> {
        self.loaded += 1;
        let key = ChunkKey {
            file: "bench".into(),
            row_group: self.loaded,
            column: 0,
        };
        Ok(self.engine.load(key, image)?)
    }

    /// Median kernel time in milliseconds of aggregating the groups, and the result.
    pub fn aggregate(
        &self,
        pipeline: &Arc<Pipeline>,
        groups: &[Group],
    ) -> Result<(f64, Vec<Total>)> {
        let mut times = vec![];
        let mut totals = vec![];
        for _ in 0..WARM_UPS + RUNS {
            let mut execution = self.engine.start(Arc::clone(pipeline));
            execution.aggregate(&Batch::of(groups)?)?;
            times.push(execution.statistics().kernel.as_secs_f64() * 1e3);
            totals = execution.totals();
        }
        Ok((median(&mut times[WARM_UPS..]), totals))
    }

    /// Milliseconds to read this many bytes.
    pub fn reading(&self, bytes: usize) -> f64 {
        bytes as f64 / self.bandwidth.read_bytes_per_s * 1e3
    }

    /// The lower bound, in milliseconds, of a kernel that decodes values from this many bytes.
    pub fn floor(&self, bytes: usize, values: usize) -> f64 {
        self.reading(bytes).max(values as f64 / VALUES_PER_S * 1e3)
    }

    /// Prints the header of the table that [`Bench::filter`] adds lines to.
    pub fn header(&self, title: &str) {
        println!("\n{title}");
        println!(
            "{:<38} {:>6} {:>6} {:>6} {:>6} {:>8} {:>8} {:>7} {:>7} {:>6} {:>7}  encoding",
            "case",
            "Mrows",
            "MB",
            "bits",
            "(file)",
            "ms",
            "floor",
            "% floor",
            "Tval/s",
            "% read",
            "TB/s"
        );
    }

    /// Measures a filter or an aggregate over row groups on the device.
    pub fn filter(&mut self, case: &Case) -> Result<()> {
        let encoded = case.encoded()?;
        let copies = LEAST_BYTES.div_ceil(encoded.bytes());
        let copies = copies.clamp(LEAST_GROUPS, MOST_GROUPS);
        let groups = self.groups(&encoded.images, copies)?;
        let (ms, totals) = self.aggregate(&case.pipeline(), &groups)?;
        case.check(&totals, copies)?;
        let (rows, bytes) = (case.rows() * copies, encoded.bytes() * copies);
        let values = rows * case.arrays.len();
        let (reading, floor) = (self.reading(bytes), self.floor(bytes, values));
        let values_per_ms = values as f64 / ms;
        println!(
            "{:<38} {:>6.0} {:>6.0} {:>6.2} {:>6.2} {ms:>8.4} {floor:>8.4} {:>7.1} {:>7.2} {:>6.1} {:>7.2}  {}",
            case.name,
            rows as f64 / 1e6,
            bytes as f64 / 1e6,
            bytes as f64 * 8.0 / values as f64,
            (encoded.file_bytes * copies) as f64 * 8.0 / values as f64,
            floor / ms * 100.0,
            values_per_ms / 1e9,
            reading / ms * 100.0,
            values_per_ms * case.value_bytes() as f64 / 1e9,
            encoded.encoding,
        );
        let mut facts = case.facts.clone();
        facts["case"] = case.name.as_str().into();
        facts["kind"] = "filter".into();
        facts["encoding"] = encoded.encoding.into();
        facts["rows"] = rows.into();
        facts["values"] = values.into();
        facts["value_bytes"] = case.value_bytes().into();
        facts["bytes"] = bytes.into();
        facts["file_bytes"] = (encoded.file_bytes * copies).into();
        facts["ms"] = ms.into();
        facts["floor_ms"] = floor.into();
        self.record(case.part, facts)?;
        drop(groups);
        self.engine.clear();
        Ok(())
    }

    /// Prints the header of the table that [`Bench::decompress`] adds lines to.
    pub fn decompression_header(&self, title: &str) {
        println!(
            "\n{title}: {:.2} TB/s can be written",
            self.bounds.write / 1e12
        );
        println!(
            "{:<38} {:>6} {:>6} {:>6} {:>8} {:>8} {:>7} {:>7} {:>7}  encoding",
            "case", "Mrows", "MB in", "MB out", "ms", "floor", "% floor", "% write", "TB/s"
        );
    }

    /// Measures writing all values of a column to device memory. The lower bound is the time to read the input and
    /// write the output.
    pub fn decompress(&mut self, case: &Case) -> Result<()> {
        let encoded = case.encoded()?;
        let array = &case.arrays[0];
        let nulls = if array.null_count() > 0 { 1 } else { 0 };
        let group_out = match case.value_bytes() {
            // includes the lengths of strings
            0 => text_bytes(array) + case.rows() * (4 + nulls),
            bytes => case.rows() * (bytes + nulls),
        };
        let copies = match case.value_bytes() {
            // a launch returns less than 2 GiB of text
            0 => (LEAST_BYTES * 3 / 2).div_ceil(group_out),
            _ => LEAST_BYTES
                .div_ceil(group_out + encoded.bytes())
                .max(DECOMPRESSED_GROUPS),
        };
        let groups = self.groups(&encoded.images, copies)?;
        let pipeline = case.pipeline();
        let mut times = vec![];
        for _ in 0..4 {
            let mut execution = self.engine.start(Arc::clone(&pipeline));
            let rows = execution.rows(&groups)?;
            times.push(execution.statistics().kernel.as_secs_f64() * 1e3);
            check_values(&case.name, array, &rows, copies)?;
        }
        let ms = median(&mut times[1..]);
        let (bytes, out) = (encoded.bytes() * copies, group_out * copies);
        let writing = out as f64 / self.bounds.write * 1e3;
        let floor = self.reading(bytes) + writing;
        let rows = case.rows() * copies;
        // text without lengths
        let values_out = match case.value_bytes() {
            0 => text_bytes(array) * copies,
            _ => out,
        };
        println!(
            "{:<38} {:>6.0} {:>6.0} {:>6.0} {ms:>8.4} {floor:>8.4} {:>7.1} {:>7.1} {:>7.2}  {}",
            case.name,
            rows as f64 / 1e6,
            bytes as f64 / 1e6,
            out as f64 / 1e6,
            floor / ms * 100.0,
            writing / ms * 100.0,
            values_out as f64 / ms / 1e9,
            encoded.encoding,
        );
        let mut facts = case.facts.clone();
        facts["case"] = case.name.as_str().into();
        facts["kind"] = "decompress".into();
        facts["encoding"] = encoded.encoding.into();
        facts["rows"] = rows.into();
        facts["bytes"] = bytes.into();
        facts["bytes_out"] = out.into();
        facts["ms"] = ms.into();
        facts["floor_ms"] = floor.into();
        self.record(case.part, facts)?;
        drop(groups);
        self.engine.clear();
        Ok(())
    }

    /// Median milliseconds of whole calls, and of the part before the launch.
    pub fn whole(&self, pipeline: &Arc<Pipeline>, groups: &[Group]) -> Result<(f64, f64)> {
        let (mut whole, mut before) = (vec![], vec![]);
        for _ in 0..RUNS {
            let start = Instant::now();
            let mut execution = self.engine.start(Arc::clone(pipeline));
            execution.aggregate(&Batch::of(groups)?)?;
            whole.push(start.elapsed().as_secs_f64() * 1e3);
            before.push(execution.statistics().compile.as_secs_f64() * 1e3);
        }
        Ok((median(&mut whole), median(&mut before)))
    }
}

/// Checks the values of the first and the last row group.
fn check_values(name: &str, array: &ArrayRef, groups: &[Rows], copies: usize) -> Result<()> {
    let same = |rows: &Rows| {
        let out = rows.columns.first()?;
        let data = array.to_data().into_builder();
        let expected = data.data_type(out.data_type().clone()).build().ok()?;
        Some(**out == *make_array(expected))
    };
    let ends = [groups.first(), groups.last()];
    let same = ends
        .into_iter()
        .all(|rows| rows.and_then(same) == Some(true));
    match groups.len() == copies && same {
        true => Ok(()),
        false => Err(format!("{name}: not the values that were encoded").into()),
    }
}
