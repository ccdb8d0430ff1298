//! Memory of scans, from DataFusion's pool.

use datafusion::execution::memory_pool::MemoryReservation;
use vectile_scan::{Error, Memory, Result};

/// A reservation that a scan may use.
pub(crate) struct Reserved(pub(crate) MemoryReservation);

impl Memory for Reserved {
    fn new_empty(&self) -> Box<dyn Memory> {
        Box::new(Self(self.0.new_empty()))
    }

    fn try_grow(&self, bytes: usize) -> Result<()> {
        self.0.try_grow(bytes).map_err(Error::external)
    }

    fn try_resize(&self, bytes: usize) -> Result<()> {
        self.0.try_resize(bytes).map_err(Error::external)
    }
}
