//! The device code.

/// What every kernel needs.
pub const SCAN: [&str; 6] = [
    include_str!("../common/base.cuh"),
    include_str!("../common/column.cuh"),
    include_str!("../common/packed.cuh"),
    include_str!("../common/sequence.cuh"),
    include_str!("../common/values.cuh"),
    include_str!("../common/scan.cuh"),
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

/// Kernels that measure the bandwidth of a device's memory.
pub const BANDWIDTH: &str = include_str!("../common/bandwidth.cu");
