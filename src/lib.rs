//! Arrow tables that stay compressed and answer SQL.
//!
//! The package for applications: it re-exports the layers.
//!
//! - [`session`]: Vectile tables in a DataFusion session, through SQL or as data frames. Most
//!   applications need only [`register`] and [`VectileSessionContextExt`], which are at the root,
//!   or [`VectileTable`], a table in memory.
//! - [`file`](mod@file): the container; writing batches, reading footers and row groups.
//! - [`scan`]: filters and projections of files, or of other containers, without SQL.
//! - [`encodings`]: encoding, filtering and decoding single columns.
//!
//! The feature `gpu`, on by default, runs queries on CUDA devices.
//!
//! ```
//! use datafusion::prelude::SessionContext;
//! use vectile::{VectileReadOptions, VectileSessionContextExt, register};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> datafusion::error::Result<()> {
//! let ctx = SessionContext::new();
//! register(&ctx)?;
//! # let dir = tempfile::tempdir()?;
//! # let path = dir.path().join("points.vectile").display().to_string();
//! let copy = format!("COPY (VALUES (1, 0.5), (2, 1.5)) TO '{path}' STORED AS VECTILE");
//! ctx.sql(&copy).await?.collect().await?;
//!
//! ctx.register_vectile("points", &path, VectileReadOptions::default()).await?;
//! let above = ctx.sql("SELECT column1 FROM points WHERE column2 > 1").await?;
//! assert_eq!(above.count().await?, 1);
//! # Ok(())
//! # }
//! ```

pub use vectile_datafusion as session;
pub use vectile_datafusion::{
    Appender, GpuMode, Removed, Replaced, TableSize, VectileOptions, VectileReadOptions,
    VectileSessionContextExt, VectileSessionStateBuilderExt, VectileTable, VectileTableOptions,
    physical_plan, register, sql,
};
#[cfg(feature = "gpu")]
pub use vectile_datafusion::{Gpu, register_with_gpu};
pub use vectile_encodings as encodings;
pub use vectile_file as file;
pub use vectile_scan as scan;
