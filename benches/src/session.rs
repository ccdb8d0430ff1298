//! Sessions over the same tables in different formats, with the same settings.

use std::path::Path;

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::{ParquetReadOptions, SessionConfig, SessionContext};
use vectile_datafusion::{VectileReadOptions, VectileSessionContextExt, register};

use crate::Result;
use crate::data::TABLES;

/// Cores that queries use: those of the machine.
pub fn partitions() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The configuration of all sessions.
pub fn config() -> SessionConfig {
    SessionConfig::new().with_target_partitions(partitions())
}

/// DataFusion on Parquet, with its own defaults or with filters pushed into the decoder.
pub async fn parquet(folder: &Path, pushdown: bool) -> Result<SessionContext> {
    let mut config = config();
    config.options_mut().execution.parquet.pushdown_filters = pushdown;
    let ctx = SessionContext::new_with_config(config);
    for table in TABLES {
        let path = folder.join(format!("{table}.parquet"));
        ctx.register_parquet(
            table,
            path.display().to_string(),
            ParquetReadOptions::default(),
        )
        .await?;
    }
    Ok(ctx)
}

/// DataFusion on Vectile.
pub async fn vectile(folder: &Path) -> Result<SessionContext> {
    let ctx = SessionContext::new_with_config(config());
    register(&ctx)?;
    for table in TABLES {
        let path = folder.join(format!("{table}.vectile"));
        ctx.register_vectile(
            table,
            path.display().to_string(),
            VectileReadOptions::default(),
        )
        .await?;
    }
    Ok(ctx)
}

/// Runs the statements of a script and returns the last non-empty result as text, rows sorted.
pub async fn run(ctx: &SessionContext, script: &str) -> Result<String> {
    let mut result = String::new();
    for statement in script.split(';').filter(|s| !s.trim().is_empty()) {
        let batches = ctx.sql(statement).await?.collect().await?;
        if batches.iter().any(|batch| batch.num_rows() > 0) {
            let table = pretty_format_batches(&batches)?.to_string();
            let mut lines: Vec<&str> = table.lines().collect();
            lines.sort_unstable();
            result = lines.join("\n");
        }
    }
    Ok(result)
}
