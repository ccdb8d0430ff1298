//! The first query of a process: TPC-H Q6 with no kernel cached, with kernels cached on disk, and again
//! in the same process. Each is measured in a process of its own.

use std::env;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use serde_json::json;
use vectile_gpu::{Batch, CACHE_VARIABLE, ChunkKey, Cuda, Engine, Group};

use crate::bench::{Bench, Result};
use crate::q6;
use crate::timing::median;

/// The argument with which this program starts itself.
pub const CHILD: &str = "first-query";
const ROUNDS: usize = 5;
const GROUPS: usize = 64;

/// Times of a process in milliseconds.
#[derive(Clone, Copy)]
struct Times {
    /// Opening the device.
    open: f64,
    /// Creating the first kernel, and the first query as a whole.
    first: [f64; 2],
    /// Times of the second query.
    second: [f64; 2],
}

pub fn run(bench: &mut Bench) -> Result<()> {
    println!(
        "\nfirst query of a process: TPC-H Q6 over {GROUPS} row groups; medians of {ROUNDS} processes"
    );
    println!(
        "{:<22} {:>15} {:>15} {:>15}",
        "kernel", "open device ms", "make kernel ms", "whole query ms"
    );
    let (mut compiled, mut from_disk) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        let cache = tempfile::tempdir()?;
        compiled.push(start(cache.path())?);
        from_disk.push(start(cache.path())?);
    }
    let second = |times: &Times| [0.0, times.second[0], times.second[1]];
    let first = |times: &Times| [times.open, times.first[0], times.first[1]];
    let cases: [(&str, Vec<[f64; 3]>); 3] = [
        ("compiled", compiled.iter().map(first).collect()),
        ("on disk", from_disk.iter().map(first).collect()),
        ("in memory", from_disk.iter().map(second).collect()),
    ];
    for (name, times) in cases {
        let [open, kernel, whole] =
            [0, 1, 2].map(|i| median(&mut times.iter().map(|t| t[i]).collect::<Vec<_>>()));
        println!("{name:<22} {open:>15.1} {kernel:>15.2} {whole:>15.2}");
        bench.record(
            "first",
            json!({"case": name, "open_ms": open, "kernel_ms": kernel, "ms": whole}),
        )?;
    }
    Ok(())
}

/// Runs this program with kernels kept in a directory.
fn start(cache: &Path) -> Result<Times> {
    let mut command = Command::new(env::current_exe()?);
    let out = command.arg(CHILD).env(CACHE_VARIABLE, cache).output()?;
    let text = String::from_utf8(out.stdout)?;
    let times: Vec<f64> = text
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    match times[..] {
        [open, a, b, c, d] => Ok(Times {
            open,
            first: [a, b],
            second: [c, d],
        }),
        _ => Err(String::from_utf8_lossy(&out.stderr).into()),
    }
}

/// The work of the started process: prints its times.
pub fn child() -> Result<()> {
    let (images, pipeline) = q6::query()?;
    let start = Instant::now();
    let engine = Engine::new(Cuda::open(0)?);
    let open = milliseconds(start);
    let mut groups = vec![];
    for row_group in 0..GROUPS {
        let columns = images.iter().enumerate().map(|(column, image)| {
            let file = "first".into();
            let key = ChunkKey {
                file,
                row_group,
                column,
            };
            engine.load(key, image)
        });
        groups.push(Group {
            rows: images[0].rows(),
            columns: columns.collect::<Result<_, _>>()?,
        });
    }
    print!("{open}");
    for _ in 0..2 {
        let start = Instant::now();
        let mut execution = engine.start(Arc::clone(&pipeline));
        execution.aggregate(&Batch::of(&groups)?)?;
        let kernel = execution.statistics().compile.as_secs_f64() * 1e3;
        print!(" {kernel} {}", milliseconds(start));
    }
    Ok(())
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
