//! Lightweight encodings of Arrow columns.
//!
//! A column chunk holds the rows of one column in one row group, in vectors of [`VECTOR_LEN`]
//! values. [`encode`] picks the encoding that makes it smallest (or takes a pinned one) and
//! [`Column::parse`] gives it back as something that is filtered on its encoded form and decoded
//! only where rows survive:
//!
//! ```
//! use std::ops::Bound;
//! use std::sync::Arc;
//!
//! use arrow::array::{ArrayRef, Int64Array};
//! use vectile_encodings::{Column, EncodeOptions, Predicate, Selection, encode};
//!
//! let prices: ArrayRef = Arc::new(Int64Array::from_iter_values((0..100_000).map(|i| i % 977)));
//! let bytes = encode(&prices, &EncodeOptions::default())?;
//! assert!(bytes.len() < 100_000 * 8 / 6);
//!
//! let column = Column::parse(bytes.into(), prices.data_type(), prices.len())?;
//! let mut selection = Selection::all(0, column.len());
//! let low = Bound::Included(Arc::new(Int64Array::from(vec![970])) as ArrayRef);
//! let dear = Predicate::Range { low, high: Bound::Unbounded, negated: false };
//! column.filter(&dear, &mut selection)?;
//! assert_eq!(selection.count(), 714);
//! assert_eq!(column.select(&selection)?.len(), 714);
//! # Ok::<(), vectile_encodings::Error>(())
//! ```
//!
//! Each encoding is one module of `codecs`, which opens with its layout. Shared code is in modules that import no
//! encoding: `bitpack` (1024 residuals over 32 lanes), `patches`, `validity`, `wire` (the bytes of a chunk). `encoder`
//! chooses and writes, `column` reads.

mod bitpack;
mod bloom;
mod byte_strings;
mod byte_views;
mod class;
mod codecs;
mod column;
mod compressor;
mod encoder;
mod encoding;
mod error;
mod float;
mod masks;
mod nulls;
mod offsets;
mod packed;
mod packer;
mod patches;
mod predicate;
mod residuals;
pub mod row_list;
mod rows;
mod selection;
pub mod simd;
mod size;
pub mod streams;
mod text;
mod validity;
mod vectors;
mod wire;
mod words;
mod zone;

pub use bloom::BloomFilter;
pub use byte_strings::strings;
pub use column::Column;
pub use compressor::{Compressor, Splits, Uncompressed};
pub use encoder::{EncodeOptions, alternatives, encode};
pub use encoding::{Encoding, Pin};
pub use error::{Error, Result};
pub use packer::IntegerPacker;
pub use predicate::Predicate;
pub use selection::Selection;
pub use size::{MAX_DECODED_BYTES, fixed_bytes};
pub use text::Automaton;
pub use zone::ZoneMap;

/// The parts of a column chunk, for external decoders: its buffers by content.
///
/// [`Column::parse`] has checked lengths, widths, counts and rows of patches. Decoders must check errors that only
/// decoding shows: dictionary codes beyond the entries, runs that do not tile a vector.
pub mod layout {
    pub use crate::codecs::alp::alp_integers;
    pub use crate::codecs::blocks::BlocksView;
    pub use crate::codecs::delta::Delta;
    pub use crate::codecs::ffor::Ffor;
    pub use crate::codecs::gpu_dfor::GpuDfor;
    pub use crate::codecs::gpu_for::GpuFor;
    pub use crate::codecs::layout::{EntriesView, Layout, StringsView, Values};
    pub use crate::codecs::rle::{Rle, RunVectors};
    pub use crate::codecs::sequence::{Sequence, SequenceReader};
    pub use crate::codecs::sparse::Sparse;
    pub use crate::patches::PatchList;
    pub use crate::predicate::{range_words, value_words};
    pub use crate::residuals::{Packed, pack};
    pub use crate::validity::Nulls;
}

/// Values of a vector.
pub const VECTOR_LEN: usize = 1024;

/// The most levels of a type: an integer has one, a list of integers two.
pub const MAX_TYPE_DEPTH: usize = 24;

/// The most rows of a column chunk. It bounds the memory that a damaged file can make a reader allocate.
pub const MAX_ROWS: usize = 1 << 28;

/// The version of the file format that chunks and zone maps are written in, and the newest they are read in.
pub const FORMAT_VERSION: u32 = 2;
