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
//! Each encoding is one module, which opens with its layout: `constant`, `plain`, `ffor`,
//! `delta`, `rle`, `dict`, `alp`, `alp_rd`, `fsst`. What they share is written once: `bitpack`
//! (1024 residuals over 32 lanes), `patches`, `ints` (sequences of integers, which most encodings
//! come down to), `validity`, `wire` (the bytes of a chunk).

mod alp;
mod alp_rd;
mod bitpack;
mod bytes;
mod choose;
mod class;
mod column;
mod constant;
mod delta;
mod dict;
mod encoding;
mod error;
mod ffor;
mod float;
mod fsst;
mod integers;
mod ints;
pub mod layout;
mod nested;
mod patches;
mod plain;
mod predicate;
mod residuals;
mod rle;
mod selection;
mod simd;
mod size;
mod strings;
mod symbols;
mod validity;
mod views;
mod wire;
mod zone;

pub use column::{Column, EncodeOptions, alternatives, encode};
pub use encoding::Encoding;
pub use error::{Error, Result};
pub use predicate::Predicate;
pub use selection::Selection;
pub use size::{MAX_DECODED_BYTES, fixed_bytes};
pub use zone::ZoneMap;

/// Values of a vector.
pub const VECTOR_LEN: usize = 1024;

/// The most levels of a type: an integer has one, a list of integers two.
pub const MAX_TYPE_DEPTH: usize = 24;

/// The most rows of a column chunk. What a damaged file can make a reader allocate depends on it.
pub const MAX_ROWS: usize = 1 << 28;
