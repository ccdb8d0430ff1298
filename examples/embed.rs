//! A service that answers SQL over Vectile tables: `cargo run --example embed`.

use datafusion::error::Result;
use datafusion::execution::SessionStateBuilder;
use datafusion::prelude::SessionContext;
use vectile::{VectileReadOptions, VectileSessionContextExt, VectileSessionStateBuilderExt};

#[tokio::main]
async fn main() -> Result<()> {
    let state = SessionStateBuilder::new_with_default_features()
        .with_vectile()
        .build();
    let ctx = SessionContext::new_with_state(state);

    let dir = tempfile::tempdir()?;
    let path = dir.path().join("trips.vectile").display().to_string();
    let rows = "SELECT value AS id, value % 12 AS month, value * 0.25 AS miles FROM range(1000000)";
    ctx.sql(&format!("COPY ({rows}) TO '{path}' STORED AS VECTILE"))
        .await?
        .collect()
        .await?;

    ctx.register_vectile("trips", &path, VectileReadOptions::default())
        .await?;
    let by_month = "SELECT month, count(*) AS trips, sum(miles) AS miles
                    FROM trips WHERE miles > 200000 GROUP BY month ORDER BY month";
    ctx.sql(by_month).await?.show().await?;

    // Metrics: what was pruned, read and decoded.
    let lookup = "SELECT miles FROM trips WHERE id = 123456";
    ctx.sql(&format!("EXPLAIN ANALYZE {lookup}"))
        .await?
        .show()
        .await
}
