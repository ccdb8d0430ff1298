//! Structs and constants that the kernels of strings share with their host code.

use crate::device::{device_enum, device_struct};

device_struct! {
    /// A chunk whose strings become tokens.
    pub struct TokenizeChunk {
        /// Its first vector, among those of all chunks.
        pub first_vector: u64,
        /// Its address.
        pub address: u64,
        /// Offset of its vocabulary, from the first chunk's descriptor.
        pub vocabulary: u64,
    }
}

device_struct! {
    /// A chunk to decode strings of.
    pub struct DecodeChunk {
        /// Its first vector, among those of all chunks.
        pub first_vector: u64,
        /// Its address; 0 if its strings are in a dictionary.
        pub address: u64,
        /// Its rows.
        pub rows: u64,
        /// Address of the expansion of its codes; 0 if codes are bytes.
        pub expansion: u64,
        /// Bytes of the expansion.
        pub expansion_bytes: u64,
    }
}

device_struct! {
    /// A chunk for the numbers of distinct strings.
    pub struct NumberedChunk {
        /// Its first vector, among those of all chunks.
        pub first_vector: u64,
        /// Its address.
        pub address: u64,
    }
}

/// Tokens of strings, and the hash of a string.
pub mod tokens {
    use crate::device::device_constants;

    device_constants! {
        /// The numbering of tokens: 256 codes, 256 bytes, nothing, an empty string, 256 last bytes, ends in codes. Of
        /// entries: codes, then nothing, then the end of a string.
        TOKENS {
            /// The first byte.
            pub BYTES: usize = 256,
            /// The token that stands for no bytes.
            pub NOTHING: usize = 512,
            /// The token of an empty string.
            pub EMPTY_STRING: usize = 513,
            /// The first byte that a string ends with.
            pub LAST_BYTES: usize = 514,
            /// The first token of a code in which a string ends.
            pub FIRST_ENDS: usize = 770,
        }
    }

    device_constants! {
        /// The polynomial hash of strings.
        STRING_HASH {
            /// The factor of a byte.
            pub HASH_FACTOR: u32 = 0x9e3779b1,
            /// The factor that mixes the bits of the sum.
            pub HASH_MIX: u32 = 0x85ebca6b,
        }
    }
}

/// The hash of the beginnings of words.
pub mod word_hash {
    use crate::device::device_constants;

    device_constants! {
        /// The hash of the beginnings of words.
        WORD_HASH {
            /// The factor of the first 4 bytes.
            pub FIRST: u32 = 0x9e3779b1,
            /// The factor of the second 4 bytes.
            pub SECOND: u32 = 0x7feb352d,
            /// The factor of the third 4 bytes.
            pub THIRD: u32 = 0x846ca68b,
            /// Of the last bytes, up to 4.
            pub LAST: u32 = 0x2c1b3c6d,
            /// Of a hash, for the second slot.
            pub OTHER: u32 = 0x297a2d39,
        }
    }
}

device_enum! {
    /// The steps of the kernel that compresses strings.
    pub enum CompressStep {
        /// Makes the codes of parts of splits.
        Encode = ENCODE,
        /// Moves codes to their final offsets.
        Gather = GATHER,
    }
}

device_enum! {
    /// The steps of the kernel that numbers distinct strings.
    pub enum DistinctStep {
        /// Finds where strings start.
        Starts = STARTS,
        /// Adds strings to the hash table.
        Insert = INSERT,
        /// Marks the first row of each string.
        MarkFirsts = MARK,
        /// Numbers the marked rows.
        Number = NUMBER,
        /// Writes the number of each row.
        Pack = PACK,
    }
}
