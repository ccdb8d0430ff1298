//! `EXPLAIN ANALYZE` of TPC-H queries on Vectile and on Parquet:
//! `cargo run --release --example explain -- SCALE vectile|parquet QUERY|FILE...`.

use vectile_benches::{Result, data, session};

#[tokio::main]
async fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let folder = data::tpch(args[0].parse()?).await?;
    let ctx = match args[1].as_str() {
        "vectile" => session::vectile(&folder).await?,
        _ => session::parquet(&folder, false).await?,
    };
    for query in &args[2..] {
        let path = match query.parse::<u8>() {
            Ok(number) => format!(
                "{}/../sql-tests/tpch/q{number}.sql",
                env!("CARGO_MANIFEST_DIR")
            ),
            Err(_) => query.clone(),
        };
        let sql = std::fs::read_to_string(path)?;
        let sql = sql
            .split(';')
            .find(|part| part.to_lowercase().contains("select"))
            .unwrap_or("");
        for setting in std::env::var("SETTINGS")
            .unwrap_or_default()
            .split(';')
            .filter(|s| !s.is_empty())
        {
            ctx.sql(setting).await?.collect().await?;
        }
        for _ in 0..3 {
            ctx.sql(sql).await?.collect().await?;
        }
        let start = std::time::Instant::now();
        ctx.sql(sql).await?.collect().await?;
        println!("{query}: {:?}", start.elapsed());
        let explained = ctx
            .sql(&format!("EXPLAIN ANALYZE {sql}"))
            .await?
            .collect()
            .await?;
        for batch in explained {
            let plan = batch.column(1);
            let plan = arrow::array::AsArray::as_string::<i32>(plan.as_ref());
            plan.iter().flatten().for_each(|line| println!("{line}"));
        }
    }
    Ok(())
}
