//! Claim: TPC-H and selective filters over Vectile are ahead of Vortex through vortex-datafusion.
//!
//! `cargo run --release -- (tpch | filters) [SCALE [RUNS [QUERY,QUERY,...]]]`, default 1 5. Vortex
//! files are written once by its own sink, from the Parquet files, with its defaults, and are
//! stored beside them.

use std::path::Path;
use std::sync::Arc;

use datafusion::common::GetExt;
use datafusion::datasource::provider::DefaultTableFactory;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use vectile_benches::compare::{Arguments, filters, tpch};
use vectile_benches::data::TABLES;
use vectile_benches::{Result, data, session};
use vortex_datafusion::VortexFormatFactory;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let claim = if arguments.is_empty() {
        String::new()
    } else {
        arguments.remove(0)
    };
    let arguments = Arguments::parse(&arguments)?;
    let folder = data::tpch(arguments.scale).await?;
    let engines = [
        ("Vectile", session::vectile(&folder).await?),
        ("Vortex", vortex(&folder).await?),
        ("Parquet", session::parquet(&folder, false).await?),
    ];
    match claim.as_str() {
        "tpch" => tpch(&engines, &arguments).await,
        "filters" => filters(&engines, &arguments).await,
        _ => Err("tpch or filters?".into()),
    }
}

fn context(config: SessionConfig) -> SessionContext {
    let factory = Arc::new(VortexFormatFactory::new());
    let mut builder = SessionStateBuilder::new()
        .with_config(config)
        .with_default_features()
        .with_table_factory(
            factory.get_ext().to_uppercase(),
            Arc::new(DefaultTableFactory::new()),
        );
    if let Some(formats) = builder.file_formats() {
        formats.push(factory);
    }
    SessionContext::new_with_state(builder.build())
}

/// DataFusion on Vortex.
async fn vortex(folder: &Path) -> Result<SessionContext> {
    let ctx = context(session::config());
    for table in TABLES {
        let path = folder.join(format!("{table}.vortex"));
        if !path.exists() {
            write(folder, table).await?;
        }
        let path = path.display();
        ctx.sql(&format!(
            "CREATE EXTERNAL TABLE {table} STORED AS VORTEX LOCATION '{path}'"
        ))
        .await?;
    }
    Ok(ctx)
}

/// Writes a table as one file, in order.
async fn write(folder: &Path, table: &str) -> Result<()> {
    let ctx = context(SessionConfig::new().with_target_partitions(1));
    let path = |extension: &str| {
        folder
            .join(format!("{table}.{extension}"))
            .display()
            .to_string()
    };
    eprintln!("generating {}", path("vortex"));
    ctx.register_parquet(table, path("parquet"), ParquetReadOptions::default())
        .await?;
    let sql = format!("COPY {table} TO '{}' STORED AS VORTEX", path("vortex"));
    ctx.sql(&sql).await?.collect().await?;
    Ok(())
}
