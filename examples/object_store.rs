//! Tables in an object store, here one in memory; S3, Azure and GCS register the same way:
//! `cargo run --example object_store`.

use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::prelude::SessionContext;
use object_store::memory::InMemory;

#[tokio::main]
async fn main() -> Result<()> {
    let ctx = SessionContext::new();
    vectile::register(&ctx)?;
    let url = ObjectStoreUrl::parse("memory://lake")?;
    ctx.register_object_store(url.as_ref(), Arc::new(InMemory::new()));

    let rows = "SELECT value AS id, 2020 + value % 4 AS year FROM range(100000)";
    let copy =
        format!("COPY ({rows}) TO 'memory://lake/t/' STORED AS VECTILE PARTITIONED BY (year)");
    ctx.sql(&copy).await?.collect().await?;

    let create = "CREATE EXTERNAL TABLE t (id BIGINT, year BIGINT) STORED AS VECTILE
                  PARTITIONED BY (year) LOCATION 'memory://lake/t/'";
    ctx.sql(create).await?;
    let query = "SELECT year, count(*) AS n FROM t WHERE year > 2021 AND id < 5000 GROUP BY year ORDER BY year";
    ctx.sql(query).await?.show().await
}
