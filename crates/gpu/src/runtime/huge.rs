//! Host memory in pages of 2 MiB. Pinning it takes a tenth of the time that small pages take, most of which goes into
//! creating them.

use std::alloc::{self, Layout};
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::{slice, thread};

use super::memory::lock;

const PAGE_BYTES: usize = 2 << 20;

/// Bytes of pages that a thread creates, and the most threads.
const THREAD_BYTES: usize = 8 << 20;
const MOST_THREADS: usize = 8;

/// Whole, zeroed pages. Small ones where the system has no large ones.
#[derive(Debug)]
pub(super) struct HugePages {
    address: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory that this value alone owns.
unsafe impl Send for HugePages {}

impl HugePages {
    /// Allocates at least so many bytes; `None` if there is no memory.
    pub fn new(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(1).checked_next_multiple_of(PAGE_BYTES)?;
        let layout = Layout::from_size_align(bytes, PAGE_BYTES).ok()?;
        // SAFETY: the layout has a size above 0.
        let address = NonNull::new(unsafe { alloc::alloc(layout) })?;
        advise(address, bytes);
        // SAFETY: memory that is not shared yet, of which nothing is read before it is written.
        let all: &mut [MaybeUninit<u8>] =
            unsafe { slice::from_raw_parts_mut(address.cast().as_ptr(), bytes) };
        let threads = (bytes / THREAD_BYTES).clamp(1, MOST_THREADS);
        let share = bytes.div_ceil(threads).next_multiple_of(PAGE_BYTES);
        let parts = Mutex::new(all.chunks_mut(share));
        let next = || lock(&parts).next();
        let work = || {
            while let Some(part) = next() {
                part.fill(MaybeUninit::new(0));
            }
        };
        thread::scope(|scope| {
            for _ in 1..threads {
                // if no more threads start, fewer do it
                let _ = thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        Some(Self { address, layout })
    }

    pub fn address(&self) -> *mut u8 {
        self.address.as_ptr()
    }

    pub fn bytes(&self) -> usize {
        self.layout.size()
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed once.
        unsafe { alloc::dealloc(self.address.as_ptr(), self.layout) };
    }
}

/// Asks for large pages.
#[cfg(target_os = "linux")]
fn advise(address: NonNull<u8>, bytes: usize) {
    // SAFETY: whole pages of this allocation; the advice does not change their content. A failure is harmless.
    unsafe { libc::madvise(address.cast().as_ptr(), bytes, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn advise(_: NonNull<u8>, _: usize) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_whole_and_zero() {
        for bytes in [1, PAGE_BYTES, PAGE_BYTES + 1, 3 * THREAD_BYTES + 5] {
            let pages = HugePages::new(bytes).unwrap();
            assert!(pages.address().addr().is_multiple_of(PAGE_BYTES));
            assert!(pages.bytes() >= bytes && pages.bytes() < bytes + PAGE_BYTES);
            // SAFETY: initialised memory of that many bytes.
            let all = unsafe { slice::from_raw_parts(pages.address(), pages.bytes()) };
            assert!(all.iter().all(|byte| *byte == 0));
        }
        assert!(HugePages::new(usize::MAX).is_none());
    }
}
