//! Column chunks, on a device and in the host memory that it copies from.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;

use super::memory::{DeviceBuffer, Pool};
use vectile_kernels::{ChunkInfo, ColumnTraits, Symbols};

/// Streams that copy to the device: while one is waited for, another has work.
pub(super) const COPIERS: usize = 2;

/// Names a column chunk of a version of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChunkKey {
    /// The file and its version, as a unique name.
    pub file: Arc<str>,
    /// Row group in the file.
    pub row_group: usize,
    /// Column of the file.
    pub column: usize,
}

/// Names the chunks of a column in consecutive row groups of a version of a file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChunkRun {
    /// As in [`ChunkKey`].
    pub file: Arc<str>,
    /// Column of the file.
    pub column: usize,
    /// Row groups in the file.
    pub row_groups: Range<usize>,
}

/// A column chunk on the device. Its memory is freed once the cache has dropped it and no query uses it.
#[derive(Debug)]
pub struct Resident {
    /// Memory of this chunk, and of others that were copied with it.
    pub(super) memory: Arc<DeviceBuffer>,
    pub(super) offset: u64,
    pub(super) chunk: Arc<ChunkInfo>,
    pub(super) used: AtomicU64,
    /// Copier and number of the copy that brings it.
    pub(super) copier: usize,
    pub(super) copy: u64,
}

impl Resident {
    /// A chunk already on the device, in memory that it may share with others.
    pub(crate) fn in_memory(
        memory: Arc<DeviceBuffer>,
        offset: u64,
        chunk: Arc<ChunkInfo>,
    ) -> Arc<Self> {
        Arc::new(Self {
            memory,
            offset,
            chunk,
            used: AtomicU64::new(0),
            copier: 0,
            copy: 0,
        })
    }

    pub(crate) fn address(&self) -> u64 {
        self.memory.address() + self.offset
    }

    pub(crate) fn traits(&self) -> &ColumnTraits {
        &self.chunk.traits
    }

    pub(crate) fn entries(&self) -> Option<&ArrayRef> {
        self.chunk.entries.as_ref()
    }

    pub(crate) fn symbols(&self) -> Option<&Arc<Symbols>> {
        self.chunk.symbols.as_ref()
    }

    pub(crate) fn sample(&self) -> Option<&ArrayRef> {
        self.chunk.sample.as_ref()
    }

    pub(crate) fn codes(&self) -> usize {
        self.chunk.codes
    }

    pub(crate) fn data_type(&self) -> &DataType {
        &self.chunk.data_type
    }

    /// Returns true if the chunk is in memory of this pool.
    pub(crate) fn is_of(&self, pool: &Arc<Pool>) -> bool {
        self.memory.is_of(pool)
    }

    /// Returns true if it can share a column with another chunk: of the same type and engine.
    pub(crate) fn goes_with(&self, other: &Self) -> bool {
        self.data_type() == other.data_type() && self.memory.is_beside(&other.memory)
    }

    /// Notes a use at `now`, unless a later one is noted.
    pub(crate) fn touch(&self, now: u64) {
        self.used.fetch_max(now, Ordering::Relaxed);
    }

    /// Rows of the chunk.
    pub fn rows(&self) -> usize {
        self.chunk.rows
    }

    /// Bytes on the device.
    pub fn bytes(&self) -> usize {
        self.chunk.bytes
    }
}

/// A column chunk in host memory that the device copies from at full speed. Chunks that did not fit on the device are
/// copied again from here, at the speed of the link.
#[derive(Debug)]
pub(super) struct Hosted {
    pub memory: DeviceBuffer,
    pub chunk: Arc<ChunkInfo>,
    pub used: AtomicU64,
}

/// For each copier, the number of the last copy to wait for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Copies(pub(super) [u64; COPIERS]);

impl Copies {
    /// Adds the copy that brings a chunk.
    pub fn include(&mut self, chunk: &Resident) {
        let last = &mut self.0[chunk.copier];
        *last = chunk.copy.max(*last);
    }

    /// Adds the copies of others.
    pub fn join(&mut self, others: &Self) {
        let each = self.0.iter_mut().zip(others.0);
        each.for_each(|(last, other)| *last = other.max(*last));
    }
}

/// A row group with the columns of a pipeline, in the pipeline's order.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its rows.
    pub rows: usize,
    /// Its columns.
    pub columns: Vec<Arc<Resident>>,
}
