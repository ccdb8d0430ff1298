//! Claim: TPC-H's 22 queries over Vectile beside DataFusion on Parquet, same session settings.
//!
//! `cargo run --release --bin tpch -- [SCALE [RUNS [QUERY,QUERY,...]]]`, default 1 5. Engines take
//! turns query by query, after a run each that is not counted and whose answers are compared.

use std::time::Instant;

use vectile_benches::report::{Times, geometric_mean, print_table};
use vectile_benches::{Result, data, session};

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let scale: f64 = args.first().map_or(Ok(1.0), |s| s.parse())?;
    let runs: usize = args.get(1).map_or(Ok(5), |s| s.parse())?;
    let chosen: Vec<usize> = match args.get(2) {
        Some(list) => list.split(',').map(str::parse).collect::<Result<_, _>>()?,
        None => (1..=22).collect(),
    };
    let folder = data::tpch(scale).await?;
    let engines = [
        ("Vectile", session::vectile(&folder).await?),
        ("Parquet", session::parquet(&folder, false).await?),
        ("Parquet, pushdown", session::parquet(&folder, true).await?),
    ];
    println!(
        "TPC-H at scale {scale}, {} threads, {runs} runs, hot files; ms: median (least-most)\n",
        session::partitions()
    );
    let mut rows = vec![];
    let mut ratios = vec![vec![]; engines.len()];
    for query in chosen {
        let sql = std::fs::read_to_string(format!(
            "{}/../sql-tests/tpch/q{query}.sql",
            env!("CARGO_MANIFEST_DIR")
        ))?;
        let mut times = vec![Times::default(); engines.len()];
        let mut answers = vec![];
        for (_, ctx) in &engines {
            answers.push(session::run(ctx, &sql).await?);
        }
        let agree = answers.iter().all(|answer| *answer == answers[0]);
        for _ in 0..runs {
            for ((_, ctx), times) in engines.iter().zip(&mut times) {
                let start = Instant::now();
                session::run(ctx, &sql).await?;
                times.push(start.elapsed());
            }
        }
        let mut row = vec![format!("Q{query}")];
        row.extend(times.iter().map(Times::show));
        for (i, time) in times.iter().enumerate().skip(1) {
            let ratio = time.median() / times[0].median();
            ratios[i].push(ratio);
            row.push(format!("{ratio:.2}"));
        }
        row.push(if agree { "same" } else { "DIFFER" }.into());
        rows.push(row);
    }
    rows.push(vec![
        "geometric mean".into(),
        String::new(),
        String::new(),
        String::new(),
        format!("{:.2}", geometric_mean(&ratios[1])),
        format!("{:.2}", geometric_mean(&ratios[2])),
        String::new(),
    ]);
    print_table(
        &[
            "",
            "Vectile",
            "Parquet",
            "Parquet, pushdown",
            "ratio",
            "ratio, pushdown",
            "answers",
        ],
        &rows,
    );
    Ok(())
}
