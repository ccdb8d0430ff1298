//! NVRTC for one device, with the code that it has left on disk.

use crate::error::Result;
use crate::runtime::cache::Cache;
use crate::runtime::nvrtc::{Nvrtc, nvrtc};

/// NVRTC for one device.
pub(super) struct Compiler {
    nvrtc: &'static Nvrtc,
    /// The device's compute capability, or the nearest below that whose code the device runs.
    target: (u32, u32),
    cache: Option<Cache>,
}

impl Compiler {
    /// NVRTC for a device of that compute capability.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`](crate::Error::Unavailable) if there is none.
    pub fn new(capability: (u32, u32), cache: Option<Cache>) -> Result<Self> {
        let nvrtc = nvrtc()?;
        Ok(Self {
            nvrtc,
            target: nvrtc.target(capability)?,
            cache,
        })
    }

    /// The code of a source on disk.
    pub fn kept(&self, source: &str) -> Option<Vec<u8>> {
        let cache = self.cache.as_ref()?;
        cache.get(&self.nvrtc.key(source, self.target))
    }

    /// Keeps the code of a source on disk, if possible.
    pub fn keep(&self, source: &str, code: &[u8]) {
        if let Some(cache) = &self.cache {
            cache.put(&self.nvrtc.key(source, self.target), code);
        }
    }

    /// Compiles a source, and keeps the code.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`](crate::Error::Compile).
    pub fn compile(&self, source: &str) -> Result<Vec<u8>> {
        let code = self.nvrtc.compile(source, self.target)?.bytes;
        self.keep(source, &code);
        Ok(code)
    }
}
