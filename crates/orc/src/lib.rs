//! ORC files, as containers of a [scan](vectile_scan).
//!
//! A [`File`] has stripes, which are the row groups of a scan. What a stripe has of a column are [`Stream`]s: bytes
//! with a kind, in compression chunks. A [`Decoder`] makes values of one stream, and `columns` makes an Arrow array of
//! the values of several.
//!
//! ```text
//!  object ── metadata ──▶ stripes ──▶ streams ── inflate ──▶ decoders ──▶ values ── columns ──▶ arrays
//!              └─ statistics ──▶ zone maps              registry: Decoder::of
//! ```
//!
//! [`File::streams`] gives streams as they are in the file, and [`File::index_groups`] where decoders may begin in them.
//! [`File::parted`] gives columns for decoders that run elsewhere: streams, and the parts to decode at once.
//!
//! Reading never trusts the file: the worst that bytes can cause is an [`Error`] that names the file, the stripe, the
//! column and the stream.

mod bloom;
mod columns;
mod compression;
mod decode;
mod error;
mod file;
mod kind;
mod messages;
mod metadata;
mod object;
mod parted;
mod position;
mod schema;
mod statistics;
mod stream;
mod timestamp;
mod vectors;

pub use compression::{Chunk, Chunks, Codec, Compression};
pub use decode::{Decoder, Sign, Values};
pub use error::{Error, Fault, Place, Result};
pub use file::File;
pub use kind::{Encoding, RleVersion, StreamKind, TypeKind};
pub use metadata::{Metadata, StreamPlace, Stripe, read_metadata};
pub use parted::{Part, PartedColumn, PartedStream, PartedValues};
pub use position::{IndexGroups, Position};
pub use schema::Type;
pub use stream::Stream;
