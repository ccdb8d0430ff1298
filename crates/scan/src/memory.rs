//! The memory that a scan may take.

use crate::error::Result;

/// Bytes that are reserved with an engine. Dropping this frees them.
pub trait Memory: Send + Sync {
    /// An empty reservation for the same owner.
    fn new_empty(&self) -> Box<dyn Memory>;

    /// Reserves `bytes` more.
    ///
    /// # Errors
    ///
    /// The engine's, as [`Error::External`](crate::Error::External), if too few bytes are left.
    fn try_grow(&self, bytes: usize) -> Result<()>;

    /// Changes the reservation to `bytes` in all.
    ///
    /// # Errors
    ///
    /// As [`try_grow`](Self::try_grow).
    fn try_resize(&self, bytes: usize) -> Result<()>;
}

/// Without a limit.
impl Memory for () {
    fn new_empty(&self) -> Box<dyn Memory> {
        Box::new(())
    }

    fn try_grow(&self, _: usize) -> Result<()> {
        Ok(())
    }

    fn try_resize(&self, _: usize) -> Result<()> {
        Ok(())
    }
}
