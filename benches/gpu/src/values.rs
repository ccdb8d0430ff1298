//! Full decompression into device memory, and selected rows returned to the host.

use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use vectile_encodings::Encoding;
use vectile_gpu::DeviceChunk;
use vectile_pipeline::{Expr, Filter, Output, Pipeline};

use crate::bench::{Bench, Case, Result, column};
use crate::data::{Random, between, f64s, i32s, i64s};
use crate::others::{rising, runs};
use crate::timing::median;

pub fn run(bench: &mut Bench) -> Result<()> {
    let mut random = Random(6);
    decompression(bench, &mut random)?;
    selected(bench, &mut random)
}

fn decompression(bench: &mut Bench, random: &mut Random) -> Result<()> {
    bench.decompression_header("full decompression into device memory");
    let ints = random.bits(12);
    let narrow: Vec<i32> = ints.iter().map(|x| *x as i32).collect();
    let doubles: Vec<f64> = ints.iter().map(|x| *x as f64 / 100.0).collect();
    let roots = f64s(doubles.iter().map(|x| x.sqrt()).collect());
    let cases = [
        ("i32, ffor, 12 bits", i32s(narrow.clone()), Encoding::Ffor),
        ("i64, ffor, 12 bits", i64s(ints.clone()), Encoding::Ffor),
        ("i32, dict", i32s(narrow.clone()), Encoding::Dict),
        ("f64, alp, 12 bits", f64s(doubles), Encoding::Alp),
        ("f64, alp_rd", roots, Encoding::AlpRd),
        (
            "i64, delta, steps to 15",
            rising(random, 15),
            Encoding::Delta,
        ),
        ("i64, rle, runs of 20", runs(random, 20), Encoding::Rle),
        ("i32, plain", i32s(narrow), Encoding::Plain),
        ("i64, plain", i64s(ints), Encoding::Plain),
    ];
    for (name, array, pin) in cases {
        let rows = Output::Rows(vec![Expr::Column(0)]);
        bench.decompress(&Case {
            name: name.into(),
            pin: Some(pin),
            ..Case::new("values", vec![array], Filter::Constant(true), rows)
        })?;
    }
    Ok(())
}

/// Selected rows of two columns.
fn selected(bench: &mut Bench, random: &mut Random) -> Result<()> {
    println!("\nselected rows returned to the host, two columns of 64-bit integers, 12 bits each");
    println!(
        "{:<8} {:>8} {:>8} {:>10} {:>8} {:>9} {:>10}",
        "selected", "of Mrows", "Mrows", "kernels ms", "MB back", "link ms", "whole ms"
    );
    let arrays = [i64s(random.bits(12)), i64s(random.bits(12))];
    let images = arrays
        .iter()
        .map(|array| Ok(DeviceChunk::build(&column(array, Some(Encoding::Ffor))?)?))
        .collect::<Result<Vec<_>>>()?;
    let groups = bench.groups(&images, 512)?;
    let all: usize = groups.iter().map(|group| group.rows).sum();
    for (name, top) in [("0.1%", 3), ("1%", 40), ("10%", 409), ("100%", 4096)] {
        let pipeline = Arc::new(Pipeline {
            columns: arrays.iter().map(|a| a.data_type().clone()).collect(),
            lookups: vec![],
            matches: vec![],
            filter: between(0, i64s(vec![0]), i64s(vec![top])),
            output: Output::Rows(vec![Expr::Column(0), Expr::Column(1)]),
        });
        let (mut times, mut kernels, mut rows, mut bytes) = (vec![], vec![], 0, 0);
        for _ in 0..7 {
            let start = Instant::now();
            let mut execution = bench.engine.start(Arc::clone(&pipeline));
            rows = execution.rows(&groups)?.iter().map(|rows| rows.count).sum();
            times.push(start.elapsed().as_secs_f64() * 1e3);
            kernels.push(execution.statistics().kernel.as_secs_f64() * 1e3);
            bytes = execution.statistics().bytes_returned;
        }
        let (ms, kernel_ms) = (median(&mut times), median(&mut kernels));
        let link_ms = bytes as f64 / bench.bandwidth.device_to_host_bytes_per_s * 1e3;
        println!(
            "{name:<8} {:>8.0} {:>8.2} {kernel_ms:>10.3} {:>8.1} {link_ms:>9.2} {ms:>10.2}",
            all as f64 / 1e6,
            rows as f64 / 1e6,
            bytes as f64 / 1e6,
        );
        bench.record(
            "values",
            json!({
                "kind": "rows", "case": name, "rows": all, "selected": rows, "bytes_out": bytes,
                "kernel_ms": kernel_ms, "link_ms": link_ms, "ms": ms,
            }),
        )?;
    }
    drop(groups);
    bench.engine.clear();
    Ok(())
}
