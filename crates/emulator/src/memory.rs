//! Counted memory, so that tests see leaks, double frees and copies out of bounds.

use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use vectile_gpu::{Error, Result};

/// Alignment of addresses.
const ALIGNMENT: usize = 256;

/// Content of new memory.
const POISON: u8 = 0xCD;

/// Memory of a device, or of the host on its behalf.
#[derive(Debug)]
pub(crate) struct Memory {
    limit: AtomicU64,
    blocks: Mutex<Blocks>,
}

/// M1: `layouts` has the address and layout of every block that [`System`] allocated and that was not freed.
#[derive(Debug, Default)]
struct Blocks {
    layouts: BTreeMap<u64, Layout>,
    /// Sum of the sizes in `layouts`.
    bytes: u64,
}

impl Memory {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit: AtomicU64::new(limit),
            blocks: Mutex::default(),
        }
    }

    pub(crate) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn allocated_bytes(&self) -> u64 {
        self.lock().bytes
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        limit.saturating_sub(self.allocated_bytes())
    }

    /// A block of exactly this size, so that a sanitizer sees the first byte behind it.
    pub(crate) fn allocate(&self, bytes: usize) -> Result<u64> {
        assert!(bytes > 0, "an allocation has at least one byte");
        let limit = self.limit.load(Ordering::Relaxed);
        let mut blocks = self.lock();
        let free = limit.saturating_sub(blocks.bytes);
        let does_not_fit = |reason: String| Error::OutOfMemory {
            wanted: bytes as u64,
            reason,
        };
        if bytes as u64 > free {
            return Err(does_not_fit(format!("{free} of {limit} bytes are free")));
        }
        let layout = Layout::from_size_align(bytes, ALIGNMENT)
            .map_err(|error| does_not_fit(error.to_string()))?;
        // SAFETY: the layout has a size above 0.
        let pointer = unsafe { System.alloc(layout) };
        if pointer.is_null() {
            return Err(does_not_fit("the host has no memory left".into()));
        }
        // SAFETY: `pointer` is the start of `bytes` bytes that are not shared yet.
        unsafe { pointer.write_bytes(POISON, bytes) };
        blocks.layouts.insert(pointer as u64, layout);
        blocks.bytes += bytes as u64;
        Ok(pointer as u64)
    }

    /// Frees a block; panics at an address that is not one.
    pub(crate) fn free(&self, address: u64) {
        let mut blocks = self.lock();
        let Some(layout) = blocks.layouts.remove(&address) else {
            drop(blocks);
            assert!(
                std::thread::panicking(),
                "free of {address:#x}, where nothing is allocated"
            );
            return;
        };
        blocks.bytes -= layout.size() as u64;
        // SAFETY: M1, and the block has just left `layouts`.
        unsafe { System.dealloc(address as *mut u8, layout) };
    }

    /// Returns true if these bytes lie in one block.
    pub(crate) fn contains(&self, address: u64, bytes: usize) -> bool {
        let blocks = self.lock();
        let Some((start, layout)) = blocks.layouts.range(..=address).next_back() else {
            return false;
        };
        let offset = address - start;
        bytes as u64 <= (layout.size() as u64).saturating_sub(offset)
    }

    fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Memory {
    /// Frees leaked blocks: nothing can use them without the device.
    fn drop(&mut self) {
        for (&address, &layout) in &self.lock().layouts {
            // SAFETY: M1, and `layouts` is not used any more.
            unsafe { System.dealloc(address as *mut u8, layout) };
        }
    }
}
