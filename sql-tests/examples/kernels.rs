//! Writes the kernels of the 13 queries of the Star Schema Benchmark and the 22 of TPC-H as CUDA C++, for
//! `benches/gpu/compile.py`, which measures their compilation. Needs no GPU.
//!
//! ```text
//! kernels SSB TPCH OUT
//! ```
//!
//! `SSB` and `TPCH` are folders that `vectile gen` filled; `OUT` gets a file for each kernel. Kernels are those of a
//! large GPU. None runs: the CPU does the rest of a query after its first kernel.

use std::collections::BTreeSet;
use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use vectile_datafusion::Gpu;
use vectile_emulator::{CpuDevice, Recorder};
use vectile_gpu::Engine;
use vectile_sql_tests::{GpuRun, answer, session_over, test_dir};

const SSB: [&str; 5] = ["lineorder", "date", "customer", "supplier", "part"];
const TPCH: [&str; 8] = [
    "region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem",
];

/// Multiprocessors and shared memory of an H200.
const SIZE: (u32, u32) = (132, 227 << 10);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [ssb, tpch, out] = arguments.as_slice() else {
        return Err("kernels SSB TPCH OUT".into());
    };
    fs::create_dir_all(out)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(32 << 20)
        .enable_all()
        .build()?;
    runtime.block_on(write("ssb", ssb.as_ref(), &SSB, out.as_ref()))?;
    runtime.block_on(write("tpch", tpch.as_ref(), &TPCH, out.as_ref()))
}

/// Writes the kernels of all queries of a benchmark, a file each.
async fn write(benchmark: &str, tables: &Path, names: &[&str], out: &Path) -> Result<()> {
    let device = Recorder::new(CpuDevice::new()?).with_size(SIZE.0, SIZE.1);
    let device = Arc::new(device);
    let gpu = GpuRun::new(Gpu::new(Engine::new(Arc::clone(&device) as _)));
    let session = session_over(tables, "vectile", names, Some(&gpu)).await?;
    let mut queries = vec![];
    for entry in fs::read_dir(test_dir().join(benchmark))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "sql") {
            queries.push(path);
        }
    }
    queries.sort();
    let mut known = BTreeSet::new();
    for query in queries {
        answer(&session, &fs::read_to_string(&query)?, None).await?;
        let sources = device.take();
        let new = sources.into_iter().filter(|it| known.insert(it.clone()));
        for (number, source) in new.enumerate() {
            let query = query.file_stem().unwrap_or_default().to_string_lossy();
            let name = format!("{benchmark}-{query}-{}.cu", number + 1);
            fs::write(out.join(name), source)?;
        }
    }
    Ok(())
}
