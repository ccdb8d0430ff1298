//! Parquet files, as containers of a [scan](vectile_scan).
//!
//! A [`File`] has row groups, and a row group a chunk of each leaf column: pages, which are compressed. This crate reads
//! the bytes and packs each column once, so that a scan filters it in its encoded form and a cache keeps it small. It
//! decodes flat columns itself, page by page, and packs them as it goes. The `parquet` crate parses the footer and decodes
//! all other columns to Arrow arrays: nested ones, those in Brotli or in encodings of prefixes and lengths, decimals of
//! more than 64 bits. This crate checks what that crate trusts.
//!
//! ```text
//!  object ── metadata ──▶ row groups ──▶ chunks ── pages ──▶ flat ── levels, values, text ──────────▶ columns
//!              │                                     └─────▶ decode ──▶ arrays ── Column::packed ───────▲
//!              ├─ statistics ──▶ zone maps of row groups
//!              └─ page_index ──▶ zone maps of vectors
//! ```
//!
//! | values | column |
//! |---|---|
//! | integers, dates, times, timestamps, decimals | `ffor` |
//! | text and binary in dictionary pages only | `dict`: the file's entries, sorted |
//! | other text, floats, booleans, lists, structs, maps | `plain`, bits as `ffor` |
//!
//! [`Metadata::unsupported`] tells if there is something in a file that this crate does not read, so that its caller can
//! leave the file to another reader.
//!
//! Reading never trusts the file: the worst that bytes can cause is an [`Error`] that names the file, the row group and
//! the column. A panic of the `parquet` crate becomes such an error, too.
//!
//! ```
//! use std::sync::Arc;
//!
//! use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
//! use arrow::datatypes::Int64Type;
//! use object_store::memory::InMemory;
//! use object_store::path::Path;
//! use object_store::{ObjectStore, ObjectStoreExt};
//! use parquet::arrow::ArrowWriter;
//! use vectile_parquet::File;
//! use vectile_scan::{Container, Fetch, Scan};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let ids: ArrayRef = Arc::new(Int64Array::from(vec![1, 2, 3]));
//! let names: ArrayRef = Arc::new(StringArray::from(vec!["a", "b", "a"]));
//! let batch = RecordBatch::try_from_iter([("id", ids), ("name", names)])?;
//! let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), None)?;
//! writer.write(&batch)?;
//! let store: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
//! let location = Path::from("t.parquet");
//! store.put(&location, writer.into_inner()?.into()).await?;
//!
//! let file = File::open(Arc::clone(&store), &store.head(&location).await?).await?;
//! assert_eq!(file.metadata().unsupported(), None);
//! let fetch = Fetch { row_group: 0, data: vec![0, 1], zones: vec![] };
//! let data = file.fetch(&fetch).await?;
//! assert_eq!(data.columns[0].as_ref().unwrap().describe(), "ffor");
//! assert!(data.columns[1].as_ref().unwrap().describe().starts_with("dict"));
//!
//! let rows: Vec<_> = Scan::new(Arc::new(file)).blocking().collect::<Result<_, _>>()?;
//! assert_eq!(rows[0].column(0).as_primitive::<Int64Type>().values(), &[1, 2, 3]);
//! # Ok(())
//! # }
//! ```

mod bloom;
mod chunks;
mod codes;
mod decode;
mod delta;
mod delta_packed;
mod error;
mod file;
mod flat;
mod footer;
mod format;
mod hybrid;
mod inflate;
mod levels;
mod metadata;
mod page_index;
mod pages;
mod plain;
mod row_values;
mod schema;
mod statistics;
mod stream_columns;
mod text;
mod thrift;
mod unpack;
mod values;

pub use error::{Error, ErrorOrigin, Fault, Result};
pub use file::File;
pub use format::Format;
pub use metadata::{Metadata, Options, RowGroup, read_metadata};
pub use schema::is_supported;
