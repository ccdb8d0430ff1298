//! Tables of encoded columns in a file that is a valid Arrow IPC file: any Arrow implementation opens it, one record
//! batch per row group. A Vectile reader uses a footer of its own; `docs/file-format.md` describes every byte.
//!
//! [`Writer`] writes a table to an object store; [`read_metadata`] and [`read_row_group`] read the parts that a query
//! needs. [`vectile_scan`] scans a [`File`]. Reading never trusts the file: the worst that bytes can cause is an
//! [`Error`] that names the file, the row group and the column.
//!
//! [`extension`] has encoded columns as Arrow arrays, without a file.
//!
//! ```
//! use std::sync::Arc;
//! use arrow::array::{RecordBatch, record_batch};
//! use object_store::{ObjectStore, ObjectStoreExt, memory::InMemory, path::Path};
//! use vectile_file::{Fetch, ReadOptions, Writer, WriterOptions, read_metadata, read_row_group};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
//! let location = Path::from("trips.vectile");
//! let batch = record_batch!(("miles", Float64, [1.5, 2.25, 0.5]))?;
//!
//! let options = WriterOptions::default();
//! let mut writer = Writer::try_new(Arc::clone(&store), location.clone(), batch.schema(), options)?;
//! writer.write(&batch).await?;
//! let summary = writer.finish().await?;
//! assert_eq!(summary.rows, 3);
//!
//! let metadata = read_metadata(&store, &store.head(&location).await?).await?;
//! let fetch = Fetch { row_group: 0, data: vec![0], zones: vec![] };
//! let data = read_row_group(&store, &location, &metadata, &fetch, &ReadOptions::default()).await?;
//! let miles = data.columns[0].as_ref().expect("it was requested");
//! assert_eq!(&miles.decode(0..3)?, batch.column(0));
//! # Ok(())
//! # }
//! ```

mod choice;
mod compression;
mod cursor;
mod encode;
mod error;
pub mod extension;
mod file;
mod footer;
mod format;
mod ipc;
mod join;
mod memory;
mod metadata;
mod output;
mod parts;
mod publish;
mod reader;
mod row_group_size;
mod schema;
mod segment;
mod summary;
mod sync;
mod threads;
mod writer;
mod writer_options;

pub use encode::{EncodedRowGroup, Encoder, joinable};
pub use error::{Error, Result};
pub use file::File;
pub use format::{EXTENSION, Format};
pub use memory::arrow_bytes;
pub use metadata::{Bloom, Chunk, Compression, MAX_ROW_GROUP_ROWS, Metadata, RowGroup};
pub use parts::GrowingParts;
pub use publish::{Staged, publish};
pub use reader::{read_metadata, read_row_group};
pub use row_group_size::RowGroupSize;
pub use segment::{MemoryRowGroup, Segment};
pub use summary::{ColumnSummary, EncodeTime, WriteSummary};
pub use sync::sync_file;
pub use threads::Threads;
pub use vectile_scan::object::ReadOptions;
pub use vectile_scan::{Fetch, RowGroupData};
pub use writer::Writer;
pub use writer_options::{DEFAULT_BLOOM_FILTER_FPP, DEFAULT_ROW_GROUP_ROWS, WriterOptions};

/// The version of the file format that this release writes, and the newest it reads.
pub const FORMAT_VERSION: u32 = 2;
