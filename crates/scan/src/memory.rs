//! The memory that a scan may take.

use crate::error::Result;

/// Bytes that are reserved with an engine. They are free again when this is dropped.
pub trait Memory: Send + Sync {
    /// Reserves nothing yet, for the same owner.
    fn new_empty(&self) -> Box<dyn Memory>;

    /// Reserves so many bytes more.
    ///
    /// # Errors
    ///
    /// The engine's, as [`Error::External`](crate::Error::External), if there are not so many left.
    fn try_grow(&self, bytes: usize) -> Result<()>;

    /// Reserves so many bytes in all.
    ///
    /// # Errors
    ///
    /// As [`try_grow`](Self::try_grow).
    fn try_resize(&self, bytes: usize) -> Result<()>;
}

/// No limit.
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
