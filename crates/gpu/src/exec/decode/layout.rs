//! Sizes and addresses of a decoding job's memory on the device.

use crate::error::{Error, Result};

/// Bytes before and behind streams that kernels may read.
pub(super) const SLACK_BYTES: usize = 64;

/// Streams of at least this many bytes are copied by themselves: a copy costs as much as transferring some 100 KB.
pub(super) const COPY_BYTES: usize = 128 << 10;

/// Sizes of a job's memory, and offsets in it.
pub(super) struct Layout {
    pub(super) inputs: usize,
    pub(super) scratch: usize,
    pub(super) back: usize,
    /// The inputs begin with this many bytes that are gathered on the host.
    pub(super) together: usize,
    /// Compressed chunks of all streams and pages: those of Deflate, then those of Snappy.
    pub(super) deflated: usize,
    pub(super) snappy: usize,
    /// Parts of runs, and pages.
    pub(super) parts: usize,
    pub(super) pages: usize,
    /// Offsets in the inputs: descriptors of chunks and parts, and those of columns.
    pub(super) descriptors_at: usize,
    pub(super) columns_at: usize,
    /// Offsets in the results: those of each chunk, faults of parts and of pages, and a word for each column with wrong
    /// values.
    pub(super) inflated_at: usize,
    pub(super) faults_at: usize,
    pub(super) wrong_at: usize,
}

/// Addresses of a job's memory on the device.
pub(super) struct JobAddresses {
    pub(super) inputs: u64,
    pub(super) scratch: u64,
    pub(super) back: u64,
    /// Results of `inflate`.
    pub(super) inflated: u64,
}

impl JobAddresses {
    pub(super) fn new(address: u64, layout: &Layout) -> Self {
        let scratch = address + layout.inputs as u64;
        let back = scratch + layout.scratch as u64;
        Self {
            inputs: address,
            scratch,
            back,
            inflated: back + layout.inflated_at as u64,
        }
    }
}

/// The error for streams that the CPU has to decode.
pub(super) fn wrong<T>(reason: &str) -> Result<T> {
    Err(Error::Unsupported(format!(
        "a stream for the CPU: {reason}"
    )))
}
