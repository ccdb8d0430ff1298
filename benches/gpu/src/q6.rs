//! TPC-H Q6 over columns like those of `lineitem`.

use std::sync::Arc;
use std::time::Instant;

use arrow::array::{ArrayRef, Date32Array};
use serde_json::json;
use vectile_gpu::{Batch, ChunkKey, DeviceChunk, Error, Group};
use vectile_pipeline::{Aggregate, Arithmetic, Expr, Filter, Output, Pipeline};

use crate::bench::{Bench, Result, column};
use crate::data::{GROUP_ROWS, Random, between, decimals};
use crate::timing::median;

const ROWS: usize = 600_000_000;
/// Bytes of host memory that hold all columns.
const HOST_BYTES: u64 = 32 << 30;

pub fn run(bench: &mut Bench) -> Result<()> {
    println!("\nTPC-H Q6");
    let (images, pipeline) = query()?;
    let copies = ROWS.div_ceil(GROUP_ROWS);
    let groups = bench.groups(&images, copies)?;
    let (ms, totals) = bench.aggregate(&pipeline, &groups)?;
    let (whole, before) = bench.whole(&pipeline, &groups)?;
    let bytes: usize = images.iter().map(|image| image.info().bytes).sum();
    let bytes = bytes * copies;
    let floor = bench.reading(bytes);
    println!(
        "{} M rows, {:.2} GB: kernel {ms:.3} ms, floor {floor:.3} ms, ratio {:.2}; whole call {whole:.2} ms, \
         of it before the launch {before:.2}; {} rows pass",
        copies * GROUP_ROWS / 1_000_000,
        bytes as f64 / 1e9,
        ms / floor,
        totals.first().map_or(0, |total| total.count),
    );
    bench.record(
        "q6",
        json!({
            "kind": "device", "rows": copies * GROUP_ROWS, "bytes": bytes, "ms": ms,
            "floor_ms": floor, "whole_ms": whole, "before_ms": before,
        }),
    )?;
    drop(groups);
    bench.engine.clear();
    cold(bench, &images, &pipeline, copies)
}

/// The columns of a row group, and the query.
pub fn query() -> Result<(Vec<DeviceChunk>, Arc<Pipeline>)> {
    let mut random = Random(5);
    let (mut prices, mut quantities, mut discounts) = (vec![], vec![], vec![]);
    let mut dates = vec![];
    for _ in 0..GROUP_ROWS {
        let quantity = random.within(1, 50);
        quantities.push(i128::from(quantity * 100));
        prices.push(i128::from(quantity * random.within(90_000, 200_000)));
        discounts.push(i128::from(random.within(0, 10)));
        dates.push(random.within(8036, 10561) as i32);
    }
    let arrays: [ArrayRef; 4] = [
        Arc::new(Date32Array::from(dates)),
        decimals(discounts),
        decimals(quantities),
        decimals(prices),
    ];
    let images = arrays
        .iter()
        .map(|array| Ok(DeviceChunk::build(&column(array, None)?)?));
    let images = images.collect::<Result<Vec<_>>>()?;
    let date = |x: i32| -> ArrayRef { Arc::new(Date32Array::from(vec![x])) };
    let decimal = |x: i128| decimals(vec![x]);
    let (discount, price) = (Box::new(Expr::Column(1)), Box::new(Expr::Column(3)));
    let product = Expr::arithmetic(Arithmetic::Multiply, *price, *discount);
    let pipeline = Pipeline {
        columns: arrays.iter().map(|a| a.data_type().clone()).collect(),
        lookups: vec![],
        matches: vec![],
        filter: Filter::And(vec![
            between(0, date(8766), date(9130)),
            between(1, decimal(5), decimal(7)),
            between(2, decimal(0), decimal(2399)),
        ]),
        output: Output::Aggregates(vec![Aggregate::Sum(product)]),
    };
    Ok((images, Arc::new(pipeline)))
}

/// The same query with the columns in host memory: they cross the link while kernels run.
fn cold(
    bench: &mut Bench,
    images: &[DeviceChunk],
    pipeline: &Arc<Pipeline>,
    copies: usize,
) -> Result<()> {
    bench.engine.set_host_memory_limit(HOST_BYTES);
    let key = |row_group, column| ChunkKey {
        file: "cold".into(),
        row_group,
        column,
    };
    let mut keys = vec![];
    let mut bytes = 0;
    // without room on the device, chunks stay in host memory
    bench.engine.set_memory_limit(0);
    for row_group in 0..copies {
        for (index, image) in images.iter().enumerate() {
            keys.push(key(row_group, index));
            bytes += image.info().bytes;
            match bench.engine.load(key(row_group, index), image) {
                Ok(_) | Err(Error::OutOfMemory { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    bench.engine.set_memory_limit(u64::MAX);
    let mut times = vec![];
    for _ in 0..5 {
        bench.engine.clear_device();
        let start = Instant::now();
        let chunks = bench.engine.lookup_all(&keys).into_iter();
        let chunks: Vec<_> = chunks
            .collect::<Option<_>>()
            .ok_or("a chunk went missing")?;
        let groups: Vec<Group> = chunks
            .chunks(images.len())
            .map(|columns| Group {
                rows: images[0].rows(),
                columns: columns.to_vec(),
            })
            .collect();
        let mut execution = bench.engine.start(Arc::clone(pipeline));
        execution.aggregate(&Batch::of(&groups)?)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    let ms = median(&mut times);
    let (rate, link) = (
        bytes as f64 / ms * 1e3,
        bench.bandwidth.host_to_device_bytes_per_s,
    );
    println!(
        "the same from host memory: {ms:.1} ms, {:.1} GB/s of {:.1}: {:.0}%",
        rate / 1e9,
        link / 1e9,
        rate / link * 100.0
    );
    bench.record("q6", json!({"kind": "host", "bytes": bytes, "ms": ms}))?;
    bench.engine.clear();
    Ok(())
}
