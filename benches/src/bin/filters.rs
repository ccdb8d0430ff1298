//! Claim: selective filters over lineitem, on one, three and ten columns, beside Parquet.
//!
//! `cargo run --release --bin filters -- [SCALE [RUNS]]`, default 1 5.

use vectile_benches::compare::{Arguments, filters};
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
    filters(&engines, &arguments).await
}
