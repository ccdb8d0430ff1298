//! The allocator: it keeps freed memory for the next query.

use std::ffi::c_long;

use libmimalloc_sys::{mi_option_set, mi_option_t};
use mimalloc::MiMalloc;

/// Batches and column chunks are large, and new pages of them cost a fault each.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// `mi_option_purge_delay`, which the bindings lack.
const PURGE_DELAY: mi_option_t = 15;

/// Milliseconds until freed memory is given back to the system, instead of 10: as long as jemalloc keeps it. The
/// system clears new pages, which costs a query more than keeping them.
const KEPT_FOR: c_long = 10_000;

/// Sets how long freed memory is kept.
pub fn keep_freed_memory() {
    // SAFETY: the function sets an option of the allocator, at any time and on any thread.
    unsafe { mi_option_set(PURGE_DELAY, KEPT_FOR) };
}
