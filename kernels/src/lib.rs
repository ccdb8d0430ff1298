//! Device code of CUDA kernels, and the layout of column chunks that it reads.
//!
//! Each encoding has a folder with both, and the registry lists them. Imports run one way:
//!
//! ```text
//! chunk ──▶ registry ──▶ layouts of encodings ──▶ builder ──▶ traits
//! code ───▶ registry ──▶ unwritten
//! builder, code ──▶ chunk_structs, orc, parquet, key_columns, text, program ──▶ device
//! ```
//!
//! Structs and enums that kernels and host code share are defined by the macros of `device`: their device code is made of
//! the Rust definition.

mod builder;
mod chunk;
mod chunk_structs;
mod code;
mod device;
mod error;
mod key_columns;
mod orc;
mod parquet;
pub mod program;
mod registry;
mod symbols;
mod text;
mod traits;
mod unwritten;

pub use chunk::{ChunkInfo, DeviceChunk, SAMPLE_ROWS};
pub use code::{
    BANDWIDTH, BUILD, COLUMNS, COMPRESS, DECODE, DECODE_PAGES, DISTINCT, FLOATS, HASHED, INFLATE,
    INFLATE_SNAPPY, INFLATE_SNAPPY_WARP_BYTES, LENGTHS, LOOKUPS, TOKENIZER, decode_runs,
    decode_runs_warp_bytes, interpreter, scan,
};
pub use error::{Error, Result};
pub use key_columns::{BuildStep, KeyColumn};
pub use orc::{
    ColumnKind, ColumnsStep, DecodePart, DecodedColumn, INFLATE_WARP_BYTES, InflateChunk, Inflated,
};
pub use parquet::{DataPage, PageCode};
pub use registry::{SCALES, SequenceKind, Transform};
pub use symbols::{Entries, SYMBOL_BYTES, Symbols};
pub use text::{
    CompressStep, DecodeChunk, DistinctStep, NumberedChunk, TokenizeChunk, tokens, word_hash,
};
pub use traits::ColumnTraits;
pub use unwritten::{Unwritten, UnwrittenValues};
