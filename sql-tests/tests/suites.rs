//! Our own suites, over plain Arrow tables and over Vectile files: one set of expected answers.
//!
//! `SQL_TESTS_COMPLETE=1 cargo test -p vectile-sql-tests --test suites plain` writes the answers of
//! plain DataFusion into the files; read the difference before you commit it.
//! `SQL_TESTS_SUITE=joins` runs the suites whose name contains the word.

use std::path::{Path, PathBuf};

use datafusion::common::Result;
use datafusion::prelude::{SessionConfig, SessionContext};
use vectile_sql_tests::{
    CompressedTables, Engine, Layout, Outcome, complete_file, register_vectile, run_file,
};

/// Fewer rows than any table of size has, so that a table has several row groups and a ragged end.
const SMALL_ROW_GROUP: &str = "2048";

#[test]
fn plain() {
    run_suites(None);
}

#[test]
fn compressed() {
    run_suites(Some(Layout::from_env()));
}

#[test]
fn compressed_in_small_row_groups() {
    run_suites(Some(
        Layout::from_env().with_option("row_group_rows", SMALL_ROW_GROUP),
    ));
}

fn run_suites(layout: Option<Layout>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(32 << 20)
        .enable_all()
        .build()
        .expect("a runtime");
    let failures: Vec<String> = suites()
        .into_iter()
        .flat_map(|path| {
            let layout = layout.clone();
            let name = path.display().to_string();
            let failures = runtime.block_on(runtime.spawn(run_suite(path, layout)));
            failures
                .expect("a suite that does not panic")
                .unwrap_or_else(|error| vec![format!("{name}: {error}")])
        })
        .collect();
    assert!(
        failures.is_empty(),
        "{} failures\n{}",
        failures.len(),
        failures.join("\n")
    );
}

fn suites() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("suites");
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

async fn run_suite(path: PathBuf, layout: Option<Layout>) -> Result<Vec<String>> {
    let config = SessionConfig::new()
        .with_target_partitions(4)
        .with_batch_size(1000);
    let ctx = SessionContext::new_with_config(config);
    register_vectile(&ctx)?;
    let is_plain = layout.is_none();
    let mut engine = Engine::new(ctx, &path);
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
        "{name}: {} records, {read_compressed} read Vectile files",
        runs.len()
    );
    let mut failures = vec![];
    for run in runs {
        match run.outcome {
            Outcome::Agrees => {}
            Outcome::PlanText => failures.push(format!("{name}:{}: an EXPLAIN", run.place)),
            Outcome::OtherRows { message, .. } | Outcome::Fails(message) => failures.push(message),
        }
    }
    if !is_plain && read_compressed == 0 {
        failures.push(format!("{name}: read no Vectile file"));
    }
    Ok(failures)
}
