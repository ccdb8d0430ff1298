//! Our own suites, over plain Arrow tables, over Vectile files and over Vectile tables in memory: one set of expected
//! answers.
//!
//! `SQL_TESTS_COMPLETE=1 cargo test -p vectile-sql-tests --test suites plain` writes the answers of
//! plain DataFusion into the files; read the difference before you commit it.
//! `SQL_TESTS_SUITE=joins` runs the suites whose name contains the word. `VECTILE_TEST_GPU=1` runs them
//! on the GPU.

use std::path::PathBuf;

use datafusion::common::Result;
use datafusion::prelude::{SessionConfig, SessionContext};
use vectile_sql_tests::{
    CompressedTables, Engine, GpuRun, Layout, Outcome, complete_file, register_vectile, run_file,
    test_dir,
};

/// Fewer rows than any larger test table, so that a table has several row groups and a short last one.
const SMALL_ROW_GROUP: &str = "2048";

/// Suites with so many kernels that a C++ compiler takes minutes; they run only on a GPU.
const OF_MANY_KERNELS: &str = "predicates_";

/// Aggregates as programs on the CPU.
const FUSED: [&str; 1] = ["SET vectile.fuse = on"];

/// The same, over Parquet files.
const FUSED_PARQUET: [&str; 2] = ["SET vectile.fuse = on", "SET vectile.parquet = on"];

#[test]
fn plain() {
    run_suites(suites(), None, None);
}

#[test]
fn compressed() {
    run_suites(
        suites(),
        Some(Layout::from_env()),
        GpuRun::from_env().expect("a device"),
    );
}

#[test]
fn compressed_in_small_row_groups() {
    run_suites(
        suites(),
        Some(small_row_groups()),
        GpuRun::from_env().expect("a device"),
    );
}

/// As [`compressed_in_small_row_groups`], with aggregates as programs on the CPU.
#[test]
fn fused_on_the_cpu() {
    run(suites(), Some(small_row_groups()), None, &FUSED);
}

/// As [`compressed_in_small_row_groups`], over tables in memory whose rows are in several states.
#[test]
fn memory() {
    run_suites(
        suites(),
        Some(small_row_groups().in_memory()),
        GpuRun::from_env().expect("a device"),
    );
}

/// As [`memory`], with aggregates as programs on the CPU.
#[test]
fn memory_fused_on_the_cpu() {
    run(suites(), Some(small_row_groups().in_memory()), None, &FUSED);
}

/// Over Parquet files, which our scans read, in small row groups, with aggregates as programs on the CPU.
#[test]
fn parquet_fused_on_the_cpu() {
    run(
        suites(),
        Some(Layout::parquet(SMALL_ROW_GROUP)),
        None,
        &FUSED_PARQUET,
    );
}

#[test]
fn on_an_emulated_gpu() {
    let gpu = match GpuRun::on_cpu() {
        Ok(gpu) => gpu,
        Err(error) => {
            eprintln!("skipped: {error}");
            return;
        }
    };
    let mut suites = suites();
    suites.retain(|path| {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        !name.starts_with(OF_MANY_KERNELS) || std::env::var_os("SQL_TESTS_SUITE").is_some()
    });
    run_suites(suites, Some(small_row_groups()), Some(gpu));
}

/// As [`on_an_emulated_gpu`], by the interpreter. All suites: nothing is compiled for each.
#[test]
fn on_an_emulated_gpu_by_the_interpreter() {
    run_interpreted(small_row_groups(), &[]);
}

/// As [`on_an_emulated_gpu_by_the_interpreter`], over Parquet files.
#[test]
fn parquet_on_an_emulated_gpu_by_the_interpreter() {
    run_interpreted(
        Layout::parquet(SMALL_ROW_GROUP),
        &["SET vectile.parquet = on"],
    );
}

/// As [`memory`], by the interpreter.
#[test]
fn memory_on_an_emulated_gpu_by_the_interpreter() {
    run_interpreted(small_row_groups().in_memory(), &[]);
}

fn run_interpreted(layout: Layout, settings: &'static [&'static str]) {
    match GpuRun::interpreted() {
        Ok(gpu) => {
            run(suites(), Some(layout), Some(gpu.clone()), settings);
            assert_eq!(gpu.refused_by_the_interpreter(), 0);
        }
        Err(error) => eprintln!("skipped: {error}"),
    }
}

fn small_row_groups() -> Layout {
    Layout::from_env().with_option("row_group_rows", SMALL_ROW_GROUP)
}

fn run_suites(suites: Vec<PathBuf>, layout: Option<Layout>, gpu: Option<GpuRun>) {
    run(suites, layout, gpu, &[]);
}

fn run(
    suites: Vec<PathBuf>,
    layout: Option<Layout>,
    gpu: Option<GpuRun>,
    settings: &'static [&'static str],
) {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(32 << 20)
        .enable_all()
        .build()
        .expect("a runtime");
    // In parallel: most of the time on a GPU goes into compiling kernels.
    let runs: Vec<_> = suites
        .into_iter()
        .map(|path| {
            let name = path.display().to_string();
            let run = run_suite(path, layout.clone(), gpu.clone(), settings);
            (name, runtime.spawn(run))
        })
        .collect();
    let mut failures: Vec<String> = vec![];
    for (name, run) in runs {
        let run = runtime.block_on(run).expect("a suite that does not panic");
        failures.extend(run.unwrap_or_else(|error| vec![format!("{name}: {error}")]));
    }
    if let Some(gpu) = gpu {
        println!("{gpu}");
        failures.extend(gpu.failures());
    }
    assert!(
        failures.is_empty(),
        "{} failures\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn suites() -> Vec<PathBuf> {
    let folder = test_dir().join("suites");
    let word = std::env::var("SQL_TESTS_SUITE").unwrap_or_default();
    let files = std::fs::read_dir(folder).expect("the folder of suites");
    let mut files: Vec<PathBuf> = files
        .map(|entry| entry.expect("an entry of the folder").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "slt"))
        .filter(|path| path.to_string_lossy().contains(&word))
        .collect();
    files.sort();
    assert!(!files.is_empty(), "no suite is named {word}");
    files
}

async fn run_suite(
    path: PathBuf,
    layout: Option<Layout>,
    gpu: Option<GpuRun>,
    settings: &[&str],
) -> Result<Vec<String>> {
    let config = SessionConfig::new()
        .with_target_partitions(4)
        .with_batch_size(1000);
    let ctx = SessionContext::new_with_config(config);
    register_vectile(&ctx, gpu.as_ref())?;
    for setting in settings {
        ctx.sql(setting).await?.collect().await?;
    }
    let is_plain = layout.is_none();
    let mut engine = Engine::new(ctx, &path).with_gpu(gpu);
    if let Some(layout) = layout {
        engine = engine
            .with_compressed(CompressedTables::try_new(layout)?)
            .await?;
    }
    if is_plain && std::env::var_os("SQL_TESTS_COMPLETE").is_some() {
        complete_file(&path, &engine).await?;
        return Ok(vec![]);
    }
    let runs = run_file(&path, &engine).await?;
    let read_compressed = runs.iter().filter(|run| run.read_compressed).count();
    let name = path
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    println!(
        "{name}: {} records, {read_compressed} read Vectile tables",
        runs.len()
    );
    let mut failures = vec![];
    for run in runs {
        match run.outcome {
            Outcome::Agrees => {}
            Outcome::PlanText => failures.push(format!("{name}:{}: an EXPLAIN", run.location)),
            Outcome::OtherRows { message, .. } | Outcome::Fails(message) => failures.push(message),
        }
    }
    if !is_plain && read_compressed == 0 {
        failures.push(format!("{name}: read no Vectile table"));
    }
    Ok(failures)
}
