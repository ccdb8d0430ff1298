//! Build tables of joins: keys with codes, and the payload of each code.
//!
//! ```text
//! key_table ──▶ dense_build, hash_build ──▶ perfect_hash, hash_table ──▶ code_table, hash_filter
//!     └───────▶ device_key_table           └▶ key_chunks
//! payload_column ──▶ key_chunks
//! ```

mod code_table;
mod dense_build;
mod device_key_table;
mod hash_build;
mod hash_filter;
mod hash_table;
mod key_chunks;
mod key_table;
mod payload_column;
mod perfect_hash;

pub use code_table::{CodeTable, code_bytes};
pub use device_key_table::{DeviceKeyLayout, DeviceKeyTableLayout, Fetch};
pub use hash_filter::HashFilter;
pub use hash_table::{HashedKeys, size_word};
pub use key_chunks::{KeyChunks, RowCodes};
pub use key_table::{DeviceCopies, DictionaryCodes, HostKeys, KeyTable, for_bytes};
pub use payload_column::PayloadColumn;
pub use perfect_hash::{DenseCodes, PerfectHashTable};
