//! The structs at the front of a chunk, see [`builder`](crate::builder), and the flags of its vectors.

use crate::device::{device_constants, device_struct};

device_constants! {
    /// Flags of a vector.
    VECTOR_FLAGS {
        /// It has patches.
        pub(crate) PATCHED: u8 = 1,
        pub(crate) ALL_NULL: u8 = 2,
        pub(crate) SOME_NULL: u8 = 4,
        pub(crate) EXCEPTIONS: u8 = 8,
        /// Starts of lanes of `delta`, or minima of blocks, have 64 bits.
        pub(crate) WIDE: u8 = 16,
        /// Of blocks: kernels have code for each width of the vector.
        pub(crate) FEW_WIDTHS: u8 = 32,
        /// A flag of kernels, not of vectors: tiles of blocks have room for entries.
        pub(crate) TILE_ROWS: u8 = 64,
    }
}

device_struct! {
    /// The first 128 bytes. Offsets are in units of 16 bytes from the start of the chunk.
    pub struct Header {
        pub transform: u8,
        pub sequence: u8,
        pub unused: u8,
        /// Bytes of a patch.
        pub patch_bytes: u8,
        pub rows: u32,
        /// Offset of the vectors: they follow the header.
        pub vectors: u32,
        /// Offset of the extras, if there are any.
        pub extras: u32,
        /// Offset of the body.
        pub packed: u32,
        /// Offset of the entries of a dictionary, or of the body.
        pub values: u32,
        /// Entries of a dictionary.
        pub entries: u32,
        /// Bits of a right part of `alp_rd`.
        pub right_width: u32,
        /// The lower half of the reference, or the first number of a dictionary of evenly spaced numbers.
        pub reference: u64,
        pub reference_high: u64,
        /// Left parts of `alp_rd`.
        pub lefts: [u64; 8],
        /// The distance of evenly spaced numbers.
        pub step: i64,
        pub spare: u64,
    }
}

const _: () = assert!(Header::BYTES == 128);

device_struct! {
    /// A vector. Of the `gpu_*` encodings, one more says where the last one ends.
    pub struct Vector {
        /// Offset of its packed words, in units of 128 bytes from the start of the chunk. Of runs, the offset of their
        /// block, and of the `gpu_*` encodings that of their words, in units of 16 bytes.
        pub line: u32,
        /// Bits of a packed residual, or bytes of the value of a run.
        pub width: u8,
        pub flags: u8,
        /// The scale of `alp`.
        pub scale: u16,
        /// The number that is added to all residuals.
        pub base: u64,
    }
}

device_struct! {
    /// Facts that few vectors have.
    pub struct Extra {
        pub patches: u32,
        pub exceptions: u32,
        pub bitmap: u32,
        pub right_line: u32,
        /// The smallest difference of `delta`. Of blocks, nine bits for each but the last: words to the next one.
        pub smallest: u64,
        pub right_width: u32,
        pub unused: u32,
    }
}
