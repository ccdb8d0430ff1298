//! State that a device shares with its streams.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use vectile_gpu::{Error, Result};

use crate::memory::Memory;

/// As on the smallest GPUs that kernels support.
pub(crate) const SHARED_MEMORY: u32 = 64 << 10;

/// A device's state, as its streams use it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) device: Memory,
    pub(crate) host: Memory,
    pub(crate) seed: AtomicU64,
    /// Calls until the failing one, inclusive; 0: none fails.
    pub(crate) calls_to_fault: AtomicU64,
    pub(crate) is_lost: AtomicBool,
    pub(crate) calls: AtomicU64,
    pub(crate) before_launch: OnceLock<Hook>,
    pub(crate) before_copy: OnceLock<Hook>,
}

pub(crate) struct Hook(pub(crate) Box<dyn Fn() + Send + Sync>);

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}

impl Shared {
    /// Fails if [`fail_after`](crate::CpuDevice::fail_after) or [`lose`](crate::CpuDevice::lose) demand that.
    pub(crate) fn enter(&self, call: &'static str) -> Result<()> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        if self.is_lost.load(Ordering::Relaxed) {
            return Err(Error::Lost(format!("{call} failed, as it should")));
        }
        let count = &self.calls_to_fault;
        let step = |calls: u64| calls.checked_sub(1);
        if count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step) == Ok(1) {
            return Err(driver_error(call, "an injected fault"));
        }
        Ok(())
    }
}

/// A call of the driver failed.
pub(crate) fn driver_error(call: &'static str, reason: impl Into<String>) -> Error {
    let reason = reason.into();
    Error::Driver { call, reason }
}
