//! Structs and constants that the kernels that decode ORC share with their host code.

use crate::chunk::SAMPLE_ROWS;
use crate::device::{device_constants, device_enum, device_struct};

device_constants! {
    /// Shared memory of the kernel `inflate`.
    INFLATE_MEMORY {
        /// Bytes of a warp.
        pub INFLATE_WARP_BYTES: u32 = 5840,
    }
}

device_constants! {
    /// Shared memory of the kernels `decode_runs` and `inflate_snappy`.
    WINDOW_MEMORY {
        /// Bytes of a warp, for encodings without varints.
        pub(crate) WINDOW_BYTES: u32 = 2224,
        /// Bytes of a warp, for encodings with varints.
        pub(crate) VARINT_WINDOW_BYTES: u32 = 3312,
    }
}

device_struct! {
    /// A chunk to inflate, or to copy.
    pub struct InflateChunk {
        /// Address of its bytes.
        pub from: u64,
        /// Address of the result, a multiple of 16.
        pub to: u64,
        /// Bytes to read.
        pub bytes: u32,
        /// Bytes that may be written.
        pub room: u32,
        /// Not 0 for bytes that are not compressed.
        pub is_original: u32,
        /// 0.
        pub unused: u32,
    }
}

device_struct! {
    /// The result of inflating a chunk.
    pub struct Inflated {
        /// Bytes written.
        pub written: u32,
        /// 0, or an error.
        pub error: u32,
    }
}

impl Inflated {
    /// Reads what a kernel wrote.
    pub fn of_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let [written, error] = [&bytes[..4], &bytes[4..]]
            .map(|word| u32::from_le_bytes(word.try_into().unwrap_or_default()));
        Self { written, error }
    }
}

device_struct! {
    /// A part of a stream of runs. It begins with a run. 16 bytes before and behind it may be read.
    ///
    /// Only what follows a part shows that positions are damaged: a run has to start after `next_values` of its values
    /// and `next_byte` of its bytes.
    pub struct DecodePart {
        /// Address of its first byte.
        pub from: u64,
        /// Address of its first value.
        pub to: u64,
        /// Bytes up to the end of the stream, except for those of its last chunk.
        pub bytes: i32,
        /// Values of the first runs to skip.
        pub skip: u32,
        /// Values to decode.
        pub count: u32,
        /// One more than the index of the stream's last chunk among results of chunks; 0 for streams without chunks.
        pub last: u32,
        /// Byte of the next part; `NO_NEXT` if there is none.
        pub next_byte: u32,
        /// Values before the next part.
        pub next_values: u32,
    }
}

device_struct! {
    /// A column to build of decoded values.
    pub struct DecodedColumn {
        /// Address of the values.
        pub values: u64,
        /// Address of an i64 for each value: scales of decimals, nanoseconds of timestamps.
        pub others: u64,
        /// Address of the bits of rows that have a value; 0 if all have.
        pub present: u64,
        /// Address of the number of values before each vector, u32, unless `present` is 0.
        pub before: u64,
        /// Address of the least and the greatest value of each vector, i64.
        pub bounds: u64,
        /// Address of the sample, i64: values of evenly spaced rows.
        pub sample: u64,
        /// Address of a word that is set if a value cannot be computed.
        pub fault: u64,
        /// Address of the chunk, whose front is there for PACK.
        pub chunk: u64,
        /// The reference of residuals, beside the base of a vector.
        pub reference: u64,
        /// The scale of decimals, or the second that timestamps count from.
        pub parameter: i64,
        /// A `ColumnKind`.
        pub kind: u32,
        /// Its rows.
        pub rows: u32,
        /// Its first vector, among those of all columns of the launch.
        pub first_vector: u32,
        /// 0.
        pub unused: u32,
    }
}

device_enum! {
    /// What values of a column consist of.
    pub enum ColumnKind {
        /// Integers of 64 bits.
        Integers = INTEGERS,
        /// Bits, the highest first.
        Bits = BITS,
        /// Signed bytes.
        Bytes = BYTES,
        /// Integers and scales.
        Decimals = DECIMALS,
        /// Seconds and nanoseconds.
        Timestamps = TIMESTAMPS,
        /// Floats of 32 bits.
        Floats = FLOATS,
        /// Floats of 64 bits.
        Doubles = DOUBLES,
        /// Strings of UTF-8.
        Text = TEXT,
        /// Strings of any bytes.
        Binary = BINARY,
    }
}

device_enum! {
    /// The steps of the kernel `columns`.
    pub enum ColumnsStep {
        /// Computes bounds and samples.
        Bounds = BOUNDS,
        /// Writes values behind the front of a chunk.
        Pack = PACK,
    }
}

// `columns.cuh` has a lane for each row of a sample
const _: () = assert!(SAMPLE_ROWS == 32);
