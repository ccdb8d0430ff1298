//! DataFusion's own sqllogictest files, with their tables in Vectile files.
//!
//! Each file runs twice, first on DataFusion as it is, then with every table replaced, and the two
//! runs are compared record by record. `datafusion-skip.txt` lists what does not apply, and why; an
//! entry that no longer holds fails the test too.
//!
//! `cargo test -p vectile-sql-tests --test datafusion -- joins window/` runs the files whose path
//! contains one of the words. `tpch/` runs only when named so, or when `INCLUDE_TPCH` is set: its
//! answers take as long as all other files, and `tests/tpch.rs` runs the same queries.
//! `VECTILE_TEST_GPU=1` runs the queries over Vectile files on the GPU.

#[path = "datafusion/data.rs"]
mod data;
#[path = "datafusion/report.rs"]
mod report;
#[path = "datafusion/skip_list.rs"]
mod skip_list;

use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use datafusion::common::{Result, exec_datafusion_err, exec_err};
use datafusion_sqllogictest::{TestContext, read_dir_recursive, setup_scratch_dir};
use futures::FutureExt;
use tokio::sync::Semaphore;
use vectile_sql_tests::{
    CompressedTables, Engine, FileRun, GpuRun, Layout, Sandbox, run_file, test_dir,
};

use report::{FileReport, Report};
use skip_list::SkipList;

/// DataFusion's planner recurses deeply, and debug frames are large.
const STACK_BYTES: usize = 32 << 20;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| !a.starts_with('-'))
        .collect();
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(STACK_BYTES)
        .enable_all()
        .build();
    let report = runtime
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(run_all(&words, threads)));
    match report {
        Err(error) => {
            eprintln!("cannot run DataFusion's test files: {error}");
            ExitCode::FAILURE
        }
        Ok(report) => {
            println!("{report}");
            if report.passes() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

async fn run_all(words: &[String], threads: usize) -> Result<Report> {
    let list = SkipList::read(&test_dir().join("datafusion-skip.txt"))?;
    let sandbox = Sandbox::try_new()?;
    std::env::set_current_dir(sandbox.working_dir())?;
    let files = test_files(words)?;
    data::generate(&sandbox, &files)?;
    std::panic::set_hook(Box::new(|_| {})); // panics are outcomes of records, reported with them

    let gpu = GpuRun::from_env()?;
    let permits = Arc::new(Semaphore::new(threads));
    let tasks = files.into_iter().map(|relative| {
        let (permits, gpu) = (Arc::clone(&permits), gpu.clone());
        tokio::spawn(async move {
            let _permit = permits.acquire_owned().await;
            let start = Instant::now();
            let runs = AssertUnwindSafe(run_both(&relative, gpu))
                .catch_unwind()
                .await;
            let runs = runs.unwrap_or_else(|_| exec_err!("panicked outside of a record"));
            FileReport::new(relative, runs, start.elapsed())
        })
    });
    let mut reports = vec![];
    for task in tasks.collect::<Vec<_>>() {
        reports.push(task.await.map_err(|e| exec_datafusion_err!("{e}"))?);
    }
    if let Some(gpu) = gpu {
        println!("{gpu}");
        let failures = gpu.failures();
        if !failures.is_empty() {
            return exec_err!("{}", failures.join("\n"));
        }
    }
    Ok(Report::new(reports, &list))
}

/// The selected `.slt` files below `test_files`, the longest first.
fn test_files(words: &[String]) -> Result<Vec<PathBuf>> {
    let mut files = vec![];
    for path in read_dir_recursive("test_files")? {
        let relative = path.strip_prefix("test_files").unwrap_or(&path).to_owned();
        let name = relative.to_string_lossy();
        let asked_for = match words {
            [] => !name.starts_with("tpch") || std::env::var_os("INCLUDE_TPCH").is_some(),
            words => words.iter().any(|word| name.contains(word.as_str())),
        };
        if name.ends_with(".slt") && asked_for {
            files.push((std::cmp::Reverse(path.metadata()?.len()), relative));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, relative)| relative).collect())
}

/// Runs a file on plain and on replaced tables; `None` if it has no tables.
async fn run_both(relative: &Path, gpu: Option<GpuRun>) -> Result<Option<(FileRun, FileRun)>> {
    let path = Path::new("test_files").join(relative);
    let plain = context(relative).await?;
    let engine = Engine::new(plain.session_ctx().clone(), relative);
    if !engine.has_tables() && !creates_tables(&path)? {
        return Ok(None);
    }
    setup_scratch_dir(relative)?;
    let expected = run_file(&path, &engine).await?;

    setup_scratch_dir(relative)?;
    let replaced = context(relative).await?;
    let tables = CompressedTables::try_new(Layout::from_env())?;
    let engine = Engine::new(replaced.session_ctx().clone(), relative).with_gpu(gpu);
    let actual = run_file(&path, &engine.with_compressed(tables).await?).await?;
    Ok(Some((expected, actual)))
}

/// DataFusion's own setup for this file, which panics if data is missing.
async fn context(relative: &Path) -> Result<TestContext> {
    let context = AssertUnwindSafe(TestContext::try_new_for_test_file(relative)).catch_unwind();
    let missing = || exec_datafusion_err!("its session needs data that is not in the package");
    context.await.map_err(|_| missing())?.ok_or_else(missing)
}

fn creates_tables(path: &Path) -> Result<bool> {
    let statements = vectile_sql_tests::statements(path)?;
    Ok(statements.iter().any(|sql| {
        let sql = sql.to_ascii_lowercase();
        sql.trim_start().starts_with("create") && sql.contains("table")
    }))
}
