//! Claim: TPC-H's 22 queries over Vectile beside DataFusion on Parquet, same session settings.
//!
//! `cargo run --release --bin tpch -- [SCALE [RUNS [QUERY,QUERY,...]]]`, default 1 5. Engines take
//! turns query by query, after a run each that is not counted and whose answers are compared.

use vectile_benches::compare::{Arguments, tpch};
use vectile_benches::{Result, data, session};

#[tokio::main]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments = Arguments::parse(&arguments)?;
    let folder = data::tpch(arguments.scale).await?;
    let engines = [
        ("Vectile", session::vectile(&folder).await?),
        ("Parquet", session::parquet(&folder, false).await?),
        ("Parquet, pushdown", session::parquet(&folder, true).await?),
    ];
    tpch(&engines, &arguments).await
}
