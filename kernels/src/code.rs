//! The device code.

use crate::registry::{SequenceKind, Transform};

/// What every kernel needs; with rare encodings, if some column may have one.
pub fn scan(has_rare: bool) -> impl Iterator<Item = &'static str> {
    let (all_sequences, all_transforms) = match has_rare {
        true => (SequenceKind::CODE_WITH_RARE, Transform::CODE_WITH_RARE),
        false => (SequenceKind::CODE, Transform::CODE),
    };
    let sequences = [
        include_str!("../common/base.cuh"),
        include_str!("../common/chunk.cuh"),
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
pub const TOKENIZER: [&str; 4] = [
    include_str!("../common/base.cuh"),
    include_str!("../common/chunk.cuh"),
    include_str!("../text/codes.cuh"),
    include_str!("../text/tokens.cuh"),
];

/// The kernel that numbers distinct strings.
pub const DISTINCT: [&str; 4] = [
    include_str!("../common/base.cuh"),
    include_str!("../common/chunk.cuh"),
    include_str!("../text/codes.cuh"),
    include_str!("../text/distinct.cuh"),
];

/// The kernel that makes codes of strings.
pub const COMPRESS: [&str; 2] = [
    include_str!("../common/base.cuh"),
    include_str!("../text/compress.cuh"),
];

/// The kernel that decodes strings.
pub const DECODE: [&str; 4] = [
    include_str!("../common/base.cuh"),
    include_str!("../common/chunk.cuh"),
    include_str!("../text/codes.cuh"),
    include_str!("../text/decode.cuh"),
];

/// What only kernels with lookups or groups need.
pub const LOOKUPS: [&str; 2] = [
    include_str!("../common/lookup.cuh"),
    include_str!("../common/groups.cuh"),
];

/// What only kernels need that look keys up in a hash table.
pub const HASHED: &str = include_str!("../common/hashed.cuh");

/// What only kernels need that compute floats.
pub const FLOATS: &str = include_str!("../common/floats.cuh");

/// What only kernels need that give lengths of strings.
pub const LENGTHS: &str = concat!(
    include_str!("../text/codes.cuh"),
    include_str!("../text/lengths.cuh")
);

/// Kernels that measure the bandwidth of a device's memory.
pub const BANDWIDTH: &str = include_str!("../common/bandwidth.cu");
