//! Text in SQL, at random: queries over Vectile files answer as DataFusion does over the same rows in memory.
//!
//! A *set* is a table of facts and one that it is joined with, of all kinds of text, and queries over them. Each has a
//! seed of its own, from which all of it follows. `SQL_TESTS_FUZZ_SEED` is that of the first set, and the sets behind it
//! have the numbers that follow. There are few sets, or as many as `SQL_TESTS_FUZZ_MINUTES` lasts:
//!
//! ```sh
//! SQL_TESTS_FUZZ_MINUTES=60 SQL_TESTS_FUZZ_SEED=1000 \
//!   cargo test -p vectile-sql-tests --test text_fuzz -- --nocapture on_a_cpu_in_the_place_of_a_gpu
//! ```
//!
//! A finding names its seed. `SQL_TESTS_FUZZ_SQL` asks one query of the set of that seed, so that it can be made
//! smaller by hand. `VECTILE_TEST_GPU=1` has `compressed` run on the GPU.

mod data;
mod predicates;
mod queries;
mod report;
mod sides;

use std::time::{Duration, Instant};

use datafusion::common::Result;
use vectile_sql_tests::{GpuRun, Random};

use data::Tables;
use queries::{Query, query};
use report::Report;
use sides::{Sides, answer};

/// Sets of a run that has no time given, on the CPU and on its emulator of a GPU, where kernels have to be compiled.
const SETS: u64 = 6;
const EMULATED_SETS: u64 = 4;
/// Forms of queries in a set, and queries of each.
const FORMS: usize = 10;
const QUERIES: usize = 8;
/// Percent of queries that run on the device at least: others are no test of kernels.
const LEAST_ON_DEVICE: usize = 40;
/// Percent of queries that fail on both sides at most.
const MOST_ERRORS: usize = 5;
/// Findings after which a run ends.
const MOST_FINDINGS: usize = 20;

#[test]
fn compressed() {
    run(GpuRun::from_env().expect("a device"), SETS);
}

#[test]
fn on_a_cpu_in_the_place_of_a_gpu() {
    match GpuRun::on_cpu() {
        Ok(gpu) => run(Some(gpu), EMULATED_SETS),
        Err(error) => eprintln!("skipped: {error}"),
    }
}

fn run(gpu: Option<GpuRun>, sets: u64) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .thread_stack_size(32 << 20)
        .enable_all()
        .build()
        .expect("a runtime");
    let first = number("SQL_TESTS_FUZZ_SEED").unwrap_or(1);
    let only = std::env::var("SQL_TESTS_FUZZ_SQL").ok();
    let time = number("SQL_TESTS_FUZZ_MINUTES").map(|minutes| Duration::from_secs(60 * minutes));
    let begin = Instant::now();
    let mut report = Report::default();
    for set in 0.. {
        let ends = match (&only, time) {
            (Some(_), _) => set > 0,
            (None, Some(time)) => begin.elapsed() > time,
            (None, None) => set == sets,
        };
        if ends || report.findings.len() >= MOST_FINDINGS {
            break;
        }
        let seed = first.wrapping_add(set);
        println!("set {seed}");
        let asked = runtime.block_on(ask(seed, only.as_deref(), gpu.as_ref(), &mut report));
        asked.unwrap_or_else(|error| report.finding(format!("set {seed}: {error}")));
    }
    println!("{report}");
    if only.is_none() {
        assert!(
            report.share_of_errors() <= MOST_ERRORS,
            "too many queries fail on both sides"
        );
    }
    if let Some(gpu) = gpu {
        println!("{gpu}");
        gpu.failures()
            .into_iter()
            .for_each(|failure| report.finding(failure));
        let share = report.share_on_device();
        assert!(
            only.is_some() || share >= LEAST_ON_DEVICE,
            "{share}% ran on the device"
        );
    }
    assert!(
        report.findings.is_empty(),
        "{} findings\n{}",
        report.findings.len(),
        report.findings.join("\n")
    );
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {value}")),
    )
}

/// Asks the queries of a set, or `only` this one.
async fn ask(
    seed: u64,
    only: Option<&str>,
    gpu: Option<&GpuRun>,
    report: &mut Report,
) -> Result<()> {
    let mut random = Random::new(seed);
    let tables = Tables::new(&mut random)?;
    let batch_rows = *random.pick(&[1000, 8192]);
    let sides = Sides::new(&tables, batch_rows, gpu).await?;
    report.set();
    if let Some(sql) = only {
        let sql = sql.to_owned();
        let query = Query {
            is_ordered: sql.contains("ORDER BY"),
            kinds: vec![],
            sql,
        };
        compare(&sides, &query, seed, gpu, report).await;
        return Ok(());
    }
    for _ in 0..FORMS {
        let form = Random::new(random.number());
        for _ in 0..QUERIES {
            let query = query(&tables, form.clone(), &mut random);
            compare(&sides, &query, seed, gpu, report).await;
            // The second one comes from the kept plan.
            if random.chance(5) {
                compare(&sides, &query, seed, gpu, report).await;
            }
        }
    }
    Ok(())
}

async fn compare(
    sides: &Sides,
    query: &Query,
    seed: u64,
    gpu: Option<&GpuRun>,
    report: &mut Report,
) {
    let sql = &query.sql;
    let expected = answer(&sides.plain, sql).await;
    let answer = answer(&sides.compressed, sql).await;
    let difference = match (expected, answer) {
        (Err(error), Err(_)) => return report.error(&error),
        (Ok(_), Err(error)) => Some(format!("error: {error}")),
        (Err(error), Ok(_)) => Some(format!("no error: {error}")),
        (Ok(expected), Ok(answer)) => {
            let on_device = gpu.is_some_and(|gpu| gpu.count(answer.plan.as_ref()));
            report.answered(&query.kinds, answer.plan.as_ref(), on_device);
            answer.difference(&expected, query.is_ordered)
        }
    };
    if let Some(difference) = difference {
        report.finding(format!("SQL_TESTS_FUZZ_SEED={seed}\n{sql}\n{difference}"));
    }
}
