//! ORC files, as containers of a [scan](vectile_scan).
//!
//! A [`File`] has stripes, which are the row groups of a scan. A stripe has [`Stream`]s of each column: bytes with a
//! kind, in compression chunks. A [`Decoder`] decodes one stream to values, and `columns` combines the values of
//! several to an Arrow array.
//!
//! ```text
//!  object ── metadata ──▶ stripes ──▶ streams ── inflate ──▶ decoders ──▶ values ── columns ──▶ arrays
//!              └─ statistics ──▶ zone maps              registry: Decoder::of
//! ```
//!
//! [`File::streams`] returns streams as they are in the file, and [`File::index_groups`] the positions at which
//! decoders may start in them. [`FileContainer::stream_columns`](vectile_scan::FileContainer::stream_columns) returns
//! columns for decoders on a device: streams, and their parts that can be decoded in parallel.
//!
//! Reading never trusts the file: the worst that bytes can cause is an [`Error`] that names the file, the stripe, the
//! column and the stream.

mod bloom;
mod columns;
mod compression;
mod decode;
mod error;
mod file;
mod format;
mod kind;
mod messages;
mod metadata;
mod position;
mod schema;
mod statistics;
mod stream;
mod stream_columns;
mod timestamp;
mod vectors;

pub use compression::{Chunk, Chunks, Codec, Compression};
pub use decode::{Decoder, Sign, Values};
pub use error::{Error, ErrorOrigin, Fault, Result};
pub use file::File;
pub use format::Format;
pub use kind::{Encoding, RleVersion, StreamKind, TypeKind};
pub use metadata::{Metadata, StreamRange, Stripe, read_metadata};
pub use position::{IndexGroups, Position};
pub use schema::Type;
pub use stream::Stream;
