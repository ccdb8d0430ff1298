//! Build tables of joins: keys with codes, and the payload of each code.
//!
//! ```text
//! key_table ──▶ device_key_table ──▶ hash_table ──▶ perfect_hash ──▶ code_table
//! payload_column
//! ```

mod code_table;
mod device_key_table;
mod hash_table;
mod key_table;
mod payload_column;
mod perfect_hash;

pub use code_table::{CodeTable, code_bytes};
pub use device_key_table::{DeviceKeyLayout, DeviceKeyTableLayout, Fetch};
pub use hash_table::{HashedKeys, size_word};
pub use key_table::{DeviceCopies, HostKeys, KeyTable, for_bytes};
pub use payload_column::PayloadColumn;
pub use perfect_hash::PerfectHashTable;
