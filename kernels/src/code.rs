//! The device code.

use vectile_encodings::streams::RunLength;

use crate::chunk_structs::{Extra, Header, VECTOR_FLAGS, Vector};
use crate::key_columns::{BuildStep, KeyColumn};
use crate::orc::{
    ColumnKind, ColumnsStep, DecodePart, DecodedColumn, INFLATE_MEMORY, InflateChunk, Inflated,
    VARINT_WINDOW_BYTES, WINDOW_BYTES, WINDOW_MEMORY,
};
use crate::parquet::{DataPage, PAGE_FLAGS, PageCode};
use crate::program::{
    AccumulatorKind, Conversion, FIND_FLAGS, Grouped, Operand, PROGRAM_SIZES, ProgramWord, RowOp,
    Scope, ValueType, VectorOp,
};
use crate::registry::{SequenceKind, Transform};
use crate::text::tokens::{STRING_HASH, TOKENS};
use crate::text::word_hash::WORD_HASH;
use crate::text::{CompressStep, DecodeChunk, DistinctStep, NumberedChunk, TokenizeChunk};

/// Device code that reads chunks, followed by more.
macro_rules! reading_chunks {
    ($($more:expr),* $(,)?) => {
        [
            include_str!("../common/base.cuh"),
            VECTOR_FLAGS,
            Header::CODE,
            Vector::CODE,
            Extra::CODE,
            include_str!("../common/chunk.cuh"),
            $($more),*
        ]
    };
}

/// The code of every kernel; with that of rare encodings if `has_rare`.
pub fn scan(has_rare: bool) -> impl Iterator<Item = &'static str> {
    let (all_sequences, all_transforms) = match has_rare {
        true => (SequenceKind::CODE_WITH_RARE, Transform::CODE_WITH_RARE),
        false => (SequenceKind::CODE, Transform::CODE),
    };
    let sequences = reading_chunks![
        include_str!("../common/packed.cuh"),
        include_str!("../common/codecs.cuh"),
        include_str!("../common/sequence.cuh"),
    ];
    let transforms = [
        include_str!("../common/entries.cuh"),
        include_str!("../common/transform.cuh"),
    ];
    let values = [
        include_str!("../common/values.cuh"),
        include_str!("../common/scan.cuh"),
    ];
    let sequences = sequences.into_iter().chain(all_sequences.iter().copied());
    let transforms = transforms.into_iter().chain(all_transforms.iter().copied());
    sequences.chain(transforms).chain(values)
}

/// The kernel that makes tokens of strings.
pub const TOKENIZER: [&str; 11] = reading_chunks![
    TokenizeChunk::CODE,
    TOKENS,
    STRING_HASH,
    include_str!("../text/codes.cuh"),
    include_str!("../text/tokens.cuh"),
];

/// The kernel that numbers distinct strings.
pub const DISTINCT: [&str; 10] = reading_chunks![
    DistinctStep::CODE,
    NumberedChunk::CODE,
    include_str!("../text/codes.cuh"),
    include_str!("../text/distinct.cuh"),
];

/// The kernel that builds key tables.
pub const BUILD: [&str; 5] = [
    include_str!("../common/base.cuh"),
    include_str!("../common/hash.cuh"),
    BuildStep::CODE,
    KeyColumn::CODE,
    include_str!("../common/build.cuh"),
];

/// The kernel that compresses strings.
pub const COMPRESS: [&str; 4] = [
    include_str!("../common/base.cuh"),
    CompressStep::CODE,
    WORD_HASH,
    include_str!("../text/compress.cuh"),
];

/// The kernel that decodes strings.
pub const DECODE: [&str; 9] = reading_chunks![
    DecodeChunk::CODE,
    include_str!("../text/codes.cuh"),
    include_str!("../text/decode.cuh"),
];

/// The kernel `inflate` of raw Deflate: `inflate/deflate.cuh` describes its arguments.
pub const INFLATE: [&str; 6] = [
    include_str!("../common/base.cuh"),
    InflateChunk::CODE,
    Inflated::CODE,
    INFLATE_MEMORY,
    include_str!("../inflate/copies.cuh"),
    include_str!("../inflate/deflate.cuh"),
];

/// The kernel `inflate_snappy`: `inflate/snappy.cuh` describes its arguments.
pub const INFLATE_SNAPPY: [&str; 8] = [
    include_str!("../common/base.cuh"),
    "enum { SIGNED = 0, VARINTS = 0 };\n",
    InflateChunk::CODE,
    Inflated::CODE,
    WINDOW_MEMORY,
    include_str!("../common/window.cuh"),
    include_str!("../inflate/copies.cuh"),
    include_str!("../inflate/snappy.cuh"),
];

/// Bytes of shared memory of a warp of that kernel.
pub const INFLATE_SNAPPY_WARP_BYTES: u32 = WINDOW_BYTES;

/// The kernel `decode_pages` of Parquet's data pages: `parquet/pages.cuh` describes its arguments.
pub const DECODE_PAGES: [&str; 5] = [
    include_str!("../common/base.cuh"),
    PageCode::CODE,
    PAGE_FLAGS,
    DataPage::CODE,
    include_str!("../parquet/pages.cuh"),
];

/// The kernel `columns`, which builds columns of decoded values: `orc/columns.cuh` describes its arguments.
pub const COLUMNS: [&str; 10] = reading_chunks![
    ColumnsStep::CODE,
    ColumnKind::CODE,
    DecodedColumn::CODE,
    include_str!("../orc/columns.cuh"),
];

/// The kernel `decode_runs`, which decodes runs of an encoding to values of the type `value`, such as `i32`:
/// `orc/runs.cuh` describes its arguments.
pub fn decode_runs(encoding: RunLength, value: &str) -> String {
    let (is_signed, has_varints, format) = match encoding {
        RunLength::Bytes => (false, false, include_str!("../orc/byte_rle.cuh")),
        RunLength::V1 { is_signed } => (is_signed, true, include_str!("../orc/rle_v1.cuh")),
        RunLength::V2 { is_signed } => (is_signed, true, include_str!("../orc/rle_v2.cuh")),
        RunLength::Varints => (true, true, include_str!("../orc/varints.cuh")),
    };
    let [is_signed, has_varints] = [is_signed, has_varints].map(u8::from);
    let traits = format!(
        "typedef {value} Value;\nenum {{ SIGNED = {is_signed}, VARINTS = {has_varints} }};\n"
    );
    [
        include_str!("../common/base.cuh"),
        &traits,
        Inflated::CODE,
        DecodePart::CODE,
        WINDOW_MEMORY,
        include_str!("../common/window.cuh"),
        format,
        include_str!("../orc/runs.cuh"),
    ]
    .concat()
}

/// Bytes of shared memory of a warp of that kernel.
pub fn decode_runs_warp_bytes(encoding: RunLength) -> u32 {
    match encoding {
        RunLength::Bytes => WINDOW_BYTES,
        RunLength::V1 { .. } | RunLength::V2 { .. } | RunLength::Varints => VARINT_WINDOW_BYTES,
    }
}

/// Code for kernels with lookups or groups.
pub const LOOKUPS: [&str; 3] = [
    include_str!("../common/lookup.cuh"),
    include_str!("../common/hash.cuh"),
    include_str!("../common/groups.cuh"),
];

/// Code for kernels that look keys up in a hash table.
pub const HASHED: &str = include_str!("../common/hashed.cuh");

/// Code for kernels that compute floats.
pub const FLOATS: &str = include_str!("../common/floats.cuh");

/// Code for kernels that compute lengths of strings.
pub const LENGTHS: &str = concat!(
    include_str!("../text/codes.cuh"),
    include_str!("../text/lengths.cuh")
);

/// The interpreter `interpret`, which runs programs: see `program.rs`. `made_nan_is_negative` says so of the NaN that the
/// CPU makes where no operand is one.
pub fn interpreter(made_nan_is_negative: bool) -> String {
    let mut source: String = scan(true).collect();
    source.extend(LOOKUPS);
    source.extend([HASHED, FLOATS, LENGTHS]);
    source.extend([
        PROGRAM_SIZES,
        ProgramWord::CODE,
        Scope::CODE,
        Grouped::CODE,
        AccumulatorKind::CODE,
        VectorOp::CODE,
        Operand::CODE,
        RowOp::CODE,
        Conversion::CODE,
        ValueType::CODE,
        FIND_FLAGS,
    ]);
    if made_nan_is_negative {
        source.push_str("#define MADE_NAN_IS_NEGATIVE\n");
    }
    source.extend([
        include_str!("../interpreter/columns.cuh"),
        include_str!("../interpreter/rows.cuh"),
        include_str!("../interpreter/interpreter.cuh"),
    ]);
    source
}

/// Kernels that measure the bandwidth of a device's memory.
pub const BANDWIDTH: &str = include_str!("../common/bandwidth.cu");
