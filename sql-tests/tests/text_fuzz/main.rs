//! Random SQL on text: queries over Vectile files must answer as DataFusion does over the same rows in memory.
//!
//! A *set* is a fact table and one that it is joined with, of all kinds of text, and queries over them. Everything in
//! it follows from a seed. `SQL_TESTS_FUZZ_SEED` is the seed of the first set, and the next ones count up. There are
//! few sets, or as many as `SQL_TESTS_FUZZ_MINUTES` allows:
//!
//! ```sh
//! SQL_TESTS_FUZZ_MINUTES=60 SQL_TESTS_FUZZ_SEED=1000 \
//!   cargo test -p vectile-sql-tests --test text_fuzz -- --nocapture on_an_emulated_gpu
//! ```
//!
//! A finding names its seed. `SQL_TESTS_FUZZ_SQL` runs one query on the set of that seed, for reducing it by hand.
//! `VECTILE_TEST_GPU=1` has `compressed` run on the GPU.

mod data;
mod predicates;
mod queries;
mod report;
mod sides;

use std::time::Instant;

use datafusion::common::Result;
use datafusion::prelude::SessionConfig;
use vectile_sql_tests::{GpuRun, Random};

use data::Tables;
use queries::{Query, query};
use report::Report;
use sides::{Sides, answer};

/// Sets of a run without a time limit.
const SETS: u64 = 3;
/// Forms of queries in a set, and queries of each.
const FORMS: usize = 10;
const QUERIES: usize = 8;
/// The least percentage of queries that must run on the device: others do not test kernels.
const LEAST_ON_DEVICE: usize = 40;
/// The largest percentage of queries that may fail on both sides.
const MOST_ERRORS: usize = 5;
/// Findings after which a run ends.
const MOST_FINDINGS: usize = 20;

#[test]
fn compressed() {
    Run::on(GpuRun::from_env().expect("a device")).sets();
}

#[test]
fn on_an_emulated_gpu() {
    match GpuRun::on_cpu() {
        Ok(gpu) => Run::on(Some(gpu)).sets(),
        Err(error) => eprintln!("skipped: {error}"),
    }
}

struct Run {
    gpu: Option<GpuRun>,
    /// The only query to run.
    only: Option<String>,
    report: Report,
}

impl Run {
    fn on(gpu: Option<GpuRun>) -> Self {
        let only = std::env::var("SQL_TESTS_FUZZ_SQL").ok();
        let report = Report::default();
        Self { gpu, only, report }
    }

    /// Runs set after set, and reports the results.
    fn sets(mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_stack_size(32 << 20)
            .enable_all()
            .build()
            .expect("a runtime");
        let first = number("SQL_TESTS_FUZZ_SEED").unwrap_or(1);
        let minutes = number("SQL_TESTS_FUZZ_MINUTES");
        let begin = Instant::now();
        let asks_one = self.only.is_some();
        let goes_on = |set| match minutes {
            _ if asks_one => set == 0,
            Some(minutes) => begin.elapsed().as_secs() < 60 * minutes,
            None => set < SETS,
        };
        let mut set = 0;
        while goes_on(set) && self.report.findings.len() < MOST_FINDINGS {
            let seed = first.wrapping_add(set);
            println!("set {seed}");
            runtime.block_on(async {
                if let Err(error) = self.set(seed).await {
                    self.report.finding(seed, &error.strip_backtrace());
                }
            });
            set += 1;
        }
        self.judge();
    }

    /// Runs the queries of a set.
    async fn set(&mut self, seed: u64) -> Result<()> {
        let mut random = Random::new(seed);
        let tables = Tables::new(&mut random)?;
        let config = SessionConfig::new()
            .with_target_partitions(2)
            .with_batch_size(*random.pick(&[1000, 8192]))
            // With 0, row groups are spread over partitions.
            .with_repartition_file_min_size(*random.pick(&[0, 10 << 20]));
        let sides = Sides::new(&tables, config, self.gpu.as_ref()).await?;
        self.report.set();
        if let Some(sql) = self.only.clone() {
            self.compare(seed, &sides, &Query::of(sql, vec![])).await;
            return Ok(());
        }
        for _ in 0..FORMS {
            let form = Random::new(random.number());
            for _ in 0..QUERIES {
                let query = query(&tables, form.clone(), &mut random);
                self.compare(seed, &sides, &query).await;
                // The second one comes from the plan cache.
                if random.chance(5) {
                    self.compare(seed, &sides, &query).await;
                }
            }
        }
        Ok(())
    }

    async fn compare(&mut self, seed: u64, sides: &Sides, query: &Query) {
        let expected = answer(&sides.plain, &query.sql).await;
        let answer = answer(&sides.compressed, &query.sql).await;
        let mut findings = vec![];
        match (expected, answer) {
            (Err(error), Err(_)) => self.report.error(&error),
            (Ok(_), Err(error)) => findings.push(format!("error: {error}")),
            (Err(error), Ok(_)) => findings.push(format!("an answer, not the error: {error}")),
            (Ok(expected), Ok(answer)) => {
                let on_gpu = self.gpu.as_ref().map(|gpu| gpu.count(answer.plan.as_ref()));
                let stayed = on_gpu.as_ref().is_some_and(|on_gpu| on_gpu.stayed);
                self.report
                    .answered(&query.kinds, answer.plan.as_ref(), stayed);
                findings.extend(answer.difference(&expected, query.is_ordered));
                findings.extend(on_gpu.into_iter().flat_map(|on_gpu| on_gpu.failures));
            }
        }
        for finding in findings {
            let sql = &query.sql;
            self.report.finding(seed, &format!("{sql}\n{finding}"));
        }
    }

    /// Prints the report, and fails if there are findings, or too little was tested.
    fn judge(self) {
        let report = self.report;
        println!("{report}");
        if let Some(gpu) = &self.gpu {
            println!("{gpu}");
        }
        let findings = &report.findings;
        assert!(
            findings.is_empty(),
            "{} findings\n{}",
            findings.len(),
            findings.join("\n")
        );
        if self.only.is_none() {
            let errors = report.share_of_errors();
            assert!(
                errors <= MOST_ERRORS,
                "{errors}% of the queries fail on both sides"
            );
            let share = report.share_on_device();
            let is_enough = self.gpu.is_none() || share >= LEAST_ON_DEVICE;
            assert!(is_enough, "only {share}% of the queries ran on the device");
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    let number = value.parse();
    Some(number.unwrap_or_else(|_| panic!("{variable} is no number: {value}")))
}
