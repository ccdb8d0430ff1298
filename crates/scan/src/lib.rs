//! Scans of encoded columns, between containers and engines.
//!
//! A [`Container`] has row groups of encoded columns and their statistics: a file, a table in memory. A [`Scan`] finds
//! the rows that pass a filter and decodes no others:
//!
//! ```text
//!  row groups ── zone maps ──▶ read ── windows of vectors ── filters ──▶ decode ──▶ batches
//!                └─ prune                                    │           └─ survivors only
//!                                                            └─ cheapest first, on the encoded form
//! ```
//!
//! A [`ContainerFormat`] opens files as containers.
//!
//! A filter is a tree of [`Node`]s. Its leaves are predicates of one column, which are answered on the encoded form,
//! and [`Test`]s supplied by the caller, which are evaluated on distinct or decoded values.
//!
//! ```
//! use std::sync::Arc;
//!
//! use arrow::array::{ArrayRef, RecordBatch, StringArray};
//! use vectile_encodings::Predicate;
//! use vectile_scan::{Container, Node, Result, Scan};
//!
//! /// The ids of the rows that have "Oslo" in their third column.
//! fn in_oslo(table: Arc<dyn Container>) -> Result<Vec<RecordBatch>> {
//!     let oslo: ArrayRef = Arc::new(StringArray::from(vec!["Oslo"]));
//!     let filter = Node::leaf(2, Predicate::equal(oslo));
//!     let scan = Scan::new(table).with_filter(filter)?.with_columns(&["id"])?;
//!     scan.blocking().collect()
//! }
//! ```
//!
//! [`Scan::stream`] is for callers with a runtime, [`Scan::blocking`] for those without. Engines plug in their
//! [`Memory`] and [`Metrics`], [`DynamicFilter`]s, a [`Projection`] of expressions, and a [`Selector`] that filters on
//! a device.

mod blooms;
mod cache;
mod conjunct;
mod container;
mod error;
mod evaluate;
mod fetch;
mod filters;
mod format;
mod memory;
mod metrics;
mod node;
pub mod object;
mod output;
mod projection;
mod scan;
mod selector;
mod stream;
mod task;
mod test;
mod zones;

pub use cache::{CachedFile, ChunkCache, FileChunks};
pub use conjunct::Role;
pub use container::{Container, Fetch, RowGroupData, ValueFilter};
pub use error::{Error, Result};
pub use filters::{DynamicFilter, Filters};
pub use format::{ContainerFormat, FileContainer, FileMetadata, StreamData};
pub use memory::Memory;
pub use metrics::{Counter, Metrics, Step};
pub use node::{Leaf, Node, Stage};
pub use projection::Projection;
pub use scan::Scan;
pub use selector::{Selected, SelectedRows, Selector};
pub use task::{Spawn, shared_work, yield_now};
pub use test::{RowTest, Test};
