//! Queries over the same tables in several formats, run in turns.

use std::time::Instant;

use datafusion::prelude::SessionContext;

use crate::Result;
use crate::report::{Times, geometric_mean, print_table};
use crate::session;

/// A name and a session with the TPC-H tables. The first of a list is compared with the others.
pub type Engine = (&'static str, SessionContext);

/// The arguments of a comparison.
pub struct Arguments {
    /// TPC-H scale.
    pub scale: f64,
    /// Runs that count, after a first one whose answers are compared.
    pub runs: usize,
    /// Numbers of the queries.
    pub queries: Vec<usize>,
}

impl Arguments {
    /// `[SCALE [RUNS [QUERY,QUERY,...]]]`, default 1 5 and all 22.
    ///
    /// # Errors
    ///
    /// If an argument is not a number.
    pub fn parse(args: &[String]) -> Result<Self> {
        Ok(Self {
            scale: args.first().map_or(Ok(1.0), |s| s.parse())?,
            runs: args.get(1).map_or(Ok(5), |s| s.parse())?,
            queries: match args.get(2) {
                Some(list) => list.split(',').map(str::parse).collect::<Result<_, _>>()?,
                None => (1..=22).collect(),
            },
        })
    }
}

/// Compares the TPC-H queries.
pub async fn tpch(engines: &[Engine], arguments: &Arguments) -> Result<()> {
    println!(
        "TPC-H at scale {}, {} threads, {} runs, hot files; ms: median (least-most)\n",
        arguments.scale,
        session::partitions(),
        arguments.runs
    );
    let mut rows = vec![];
    let mut ratios = vec![vec![]; engines.len()];
    for query in &arguments.queries {
        let sql = std::fs::read_to_string(format!(
            "{}/../sql-tests/tpch/q{query}.sql",
            env!("CARGO_MANIFEST_DIR")
        ))?;
        let (times, agree) = race(engines, &sql, arguments.runs).await?;
        let mut row = vec![format!("Q{query}")];
        row.extend(times.iter().map(Times::show));
        for (time, ratios) in times.iter().zip(&mut ratios).skip(1) {
            let ratio = time.median() / times[0].median();
            ratios.push(ratio);
            row.push(format!("{ratio:.2}"));
        }
        row.push(if agree { "same" } else { "DIFFER" }.into());
        rows.push(row);
    }
    let mut means = vec!["geometric mean".to_string()];
    means.extend(engines.iter().map(|_| String::new()));
    means.extend(
        ratios[1..]
            .iter()
            .map(|ratios| format!("{:.2}", geometric_mean(ratios))),
    );
    means.push(String::new());
    rows.push(means);
    print(engines, &rows);
    Ok(())
}

const COLUMNS: [&str; 10] = [
    "sum(l_extendedprice)",
    "sum(l_quantity)",
    "min(l_shipdate)",
    "max(l_receiptdate)",
    "sum(l_discount)",
    "sum(l_tax)",
    "max(l_shipmode)",
    "min(l_returnflag)",
    "sum(l_orderkey)",
    "sum(length(l_comment))",
];

/// Filters on `l_partkey`, whose values are uniform and unordered, so that nothing is pruned. The
/// columns are those returned, summed or measured, so that all of their values are needed.
pub async fn filters(engines: &[Engine], arguments: &Arguments) -> Result<()> {
    println!(
        "lineitem at scale {}, {} threads, {} runs, hot files; ms: median (least-most)\n",
        arguments.scale,
        session::partitions(),
        arguments.runs
    );
    let mut rows = vec![];
    for selectivity in [0.001, 0.01, 0.1] {
        for columns in [1, 3, 10] {
            let keys = (200_000.0 * arguments.scale * selectivity) as u64;
            let sql = format!(
                "SELECT {} FROM lineitem WHERE l_partkey <= {keys}",
                COLUMNS[..columns].join(", ")
            );
            let (times, agree) = race(engines, &sql, arguments.runs).await?;
            let percent = selectivity * 100.0;
            let mut row = vec![format!("{percent}% of rows, {columns} columns")];
            row.extend(times.iter().map(Times::show));
            row.extend(
                times[1..]
                    .iter()
                    .map(|t| format!("{:.2}", t.median() / times[0].median())),
            );
            row.push(if agree { "same" } else { "DIFFER" }.into());
            rows.push(row);
        }
    }
    print(engines, &rows);
    Ok(())
}

/// The times of each engine; true if all gave the same answer.
async fn race(engines: &[Engine], sql: &str, runs: usize) -> Result<(Vec<Times>, bool)> {
    let mut answers = vec![];
    for (_, ctx) in engines {
        answers.push(session::run(ctx, sql).await?);
    }
    let mut times = vec![Times::default(); engines.len()];
    for _ in 0..runs {
        for ((_, ctx), times) in engines.iter().zip(&mut times) {
            let start = Instant::now();
            session::run(ctx, sql).await?;
            times.push(start.elapsed());
        }
    }
    Ok((times, answers.iter().all(|answer| *answer == answers[0])))
}

fn print(engines: &[Engine], rows: &[Vec<String>]) {
    let mut header = vec![String::new()];
    header.extend(engines.iter().map(|(name, _)| name.to_string()));
    header.extend(
        engines[1..]
            .iter()
            .map(|(name, _)| format!("ratio, {name}")),
    );
    header.push("answers".into());
    print_table(&header.iter().map(String::as_str).collect::<Vec<_>>(), rows);
}
