//! Memory of a device, and host memory that it copies from, allocated by the driver in large slabs and handed out in
//! pieces: a driver's own allocations take as long as scanning millions of rows.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::buffer::Buffer;

use super::driver::Driver;
use crate::error::{Error, Result};

/// Alignment of pieces.
pub(crate) const GRANULE: u64 = 256;

/// Sizes of a pool's allocations.
#[derive(Clone, Debug)]
pub(crate) struct Sizes {
    /// Size of a slab: as much as the pool has already, within these bounds.
    pub slab: RangeInclusive<u64>,
    /// Limit of the total.
    pub most: u64,
    /// Limit of the bytes of free slabs that are kept; one slab is kept in any case.
    pub kept: u64,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            slab: 4 << 20..=256 << 20,
            most: u64::MAX,
            // for later requests: pinning pages of the host takes longer than most kernels
            kept: 512 << 20,
        }
    }
}

/// Locks a mutex, even after another thread panicked: the guarded data is always consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MemoryKind {
    Device,
    /// Host memory that the device copies from at full speed.
    Host,
}

/// A pool of memory, handed out in pieces.
#[derive(Debug)]
pub(crate) struct Pool {
    driver: Arc<dyn Driver>,
    kind: MemoryKind,
    sizes: Sizes,
    slabs: Mutex<Vec<Slab>>,
    /// Bytes of pieces that are kept between queries.
    kept: AtomicU64,
    /// Held by the thread that allocates a slab. Other threads take free pieces meanwhile.
    growing: Mutex<()>,
}

#[derive(Debug)]
struct Slab {
    address: u64,
    bytes: u64,
    /// Free ranges: length by offset. No two are adjacent.
    free: BTreeMap<u64, u64>,
}

impl Slab {
    /// Takes the smallest free range that is large enough.
    fn take(&mut self, bytes: u64) -> Option<u64> {
        let fits = self.free.iter().filter(|(_, len)| **len >= bytes);
        let (offset, len) = fits.min_by_key(|(_, len)| **len).map(|(o, l)| (*o, *l))?;
        self.free.remove(&offset);
        if len > bytes {
            self.free.insert(offset + bytes, len - bytes);
        }
        Some(self.address + offset)
    }

    fn give(&mut self, address: u64, bytes: u64) {
        let (mut offset, mut len) = (address - self.address, bytes);
        let before = self.free.range(..offset).next_back().map(|(o, l)| (*o, *l));
        if let Some((o, l)) = before.filter(|(o, l)| o + l == offset) {
            self.free.remove(&o);
            (offset, len) = (o, l + len);
        }
        if let Some(l) = self.free.remove(&(offset + len)) {
            len += l;
        }
        self.free.insert(offset, len);
    }

    fn is_free(&self) -> bool {
        self.free.get(&0) == Some(&self.bytes)
    }
}

/// A piece of memory, given back to its pool when dropped.
#[derive(Debug)]
pub(crate) struct DeviceBuffer {
    pool: Arc<Pool>,
    address: u64,
    bytes: u64,
    is_kept: AtomicBool,
}

// a pool is consistent at any time, see `lock`
impl RefUnwindSafe for DeviceBuffer {}
impl UnwindSafe for DeviceBuffer {}

impl Pool {
    pub fn new(driver: Arc<dyn Driver>, kind: MemoryKind, sizes: Sizes) -> Arc<Self> {
        Arc::new(Self {
            driver,
            kind,
            sizes,
            slabs: Mutex::default(),
            kept: AtomicU64::new(0),
            growing: Mutex::default(),
        })
    }

    fn allocate(&self, bytes: u64) -> Result<u64> {
        let bytes = usize::try_from(bytes).map_err(|_| Error::OutOfMemory {
            wanted: bytes,
            reason: "more than can be addressed".into(),
        })?;
        match self.kind {
            MemoryKind::Device => self.driver.allocate(bytes),
            MemoryKind::Host => {
                let address = self.driver.allocate_host(bytes)?;
                Ok(address as u64)
            }
        }
    }

    /// # Safety
    ///
    /// The address came from `allocate`, is freed once, and nothing uses it.
    unsafe fn free(&self, address: u64) {
        match self.kind {
            // SAFETY: as the caller says.
            MemoryKind::Device => unsafe { self.driver.free(address) },
            // SAFETY: as the caller says.
            MemoryKind::Host => unsafe { self.driver.free_host(address as *mut u8) },
        }
    }

    /// Takes a piece of at least `bytes`.
    pub fn take(self: &Arc<Self>, bytes: usize) -> Result<DeviceBuffer> {
        let bytes = (bytes as u64).max(1).next_multiple_of(GRANULE);
        let address = match self.take_free(bytes) {
            Some(address) => address,
            None => self.grow(bytes)?,
        };
        Ok(DeviceBuffer {
            pool: Arc::clone(self),
            address,
            bytes,
            is_kept: AtomicBool::new(false),
        })
    }

    fn take_free(&self, bytes: u64) -> Option<u64> {
        let mut slabs = lock(&self.slabs);
        slabs.iter_mut().find_map(|slab| slab.take(bytes))
    }

    /// Takes a piece of a new slab, unless other threads have freed enough by now.
    fn grow(&self, bytes: u64) -> Result<u64> {
        let _turn = lock(&self.growing);
        if let Some(address) = self.take_free(bytes) {
            return Ok(address);
        }
        let held = self.held();
        let usual = held.clamp(*self.sizes.slab.start(), *self.sizes.slab.end());
        if held.saturating_add(bytes.max(usual)) > self.sizes.most {
            return Err(Error::OutOfMemory {
                wanted: bytes,
                reason: "a pool has all that it may have".into(),
            });
        }
        let mut slab = match self.slab(bytes, usual) {
            // free slabs may be too small, and take the memory
            Err(Error::OutOfMemory { .. }) if self.trim() => self.slab(bytes, bytes)?,
            slab => slab?,
        };
        let address = slab.take(bytes);
        lock(&self.slabs).push(slab);
        address.ok_or_else(|| Error::OutOfMemory {
            wanted: bytes,
            reason: "a new slab is too small".into(),
        })
    }

    /// Allocates a slab of `usual` bytes; one of `least` bytes if there is no room for that.
    fn slab(&self, least: u64, usual: u64) -> Result<Slab> {
        let large = least.max(usual);
        let (address, bytes) = match self.allocate(large) {
            Ok(address) => (address, large),
            Err(_) if large > least => (self.allocate(least)?, least),
            Err(error) => return Err(error),
        };
        Ok(Slab {
            address,
            bytes,
            free: BTreeMap::from([(0, bytes)]),
        })
    }

    /// Frees unused slabs; returns true if there were any.
    fn trim(&self) -> bool {
        let mut slabs = lock(&self.slabs);
        let free: Vec<Slab> = slabs.extract_if(.., |slab| slab.is_free()).collect();
        drop(slabs);
        for slab in &free {
            // SAFETY: as in `give`.
            unsafe { self.free(slab.address) };
        }
        !free.is_empty()
    }

    /// Frees unused slabs.
    pub fn clear(&self) {
        self.trim();
    }

    /// Returns true if these bytes of the host are in the pool.
    pub fn has(&self, bytes: &[u8]) -> bool {
        let start = bytes.as_ptr().addr() as u64;
        let is_within = |slab: &Slab| {
            let end = start.checked_add(bytes.len() as u64);
            slab.address <= start && end.is_some_and(|end| end <= slab.address + slab.bytes)
        };
        self.kind == MemoryKind::Host && lock(&self.slabs).iter().any(is_within)
    }

    /// Bytes of pieces that are kept between queries, see [`DeviceBuffer::count_as_kept`].
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Bytes allocated by the driver.
    pub fn held(&self) -> u64 {
        lock(&self.slabs).iter().map(|slab| slab.bytes).sum()
    }

    fn give(&self, address: u64, bytes: u64) {
        let mut slabs = lock(&self.slabs);
        let owner = slabs
            .iter()
            .position(|slab| (slab.address..slab.address + slab.bytes).contains(&address));
        let Some(owner) = owner else { return };
        slabs[owner].give(address, bytes);
        if !slabs[owner].is_free() {
            return;
        }
        let free = slabs.iter().filter(|slab| slab.is_free());
        let (are_free, free_bytes) = free.fold((0, 0), |(count, bytes), slab| {
            (count + 1, bytes + slab.bytes)
        });
        if are_free > 1 && free_bytes > self.sizes.kept {
            let slab = slabs.swap_remove(owner);
            drop(slabs);
            // SAFETY: the address came from `allocate`, is freed once as the slab is gone, and
            // nothing uses it: pieces are dropped only after the streams that used them are done.
            unsafe { self.free(slab.address) };
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        for slab in lock(&self.slabs).drain(..) {
            // SAFETY: as in `give`; no piece is left, since pieces hold the pool.
            unsafe { self.free(slab.address) };
        }
    }
}

impl DeviceBuffer {
    /// Returns true if it is a piece of this pool.
    pub fn is_of(&self, pool: &Arc<Pool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Returns true if both are pieces of the same pool.
    pub fn is_beside(&self, other: &Self) -> bool {
        self.is_of(&other.pool)
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn bytes(&self) -> usize {
        self.bytes as usize
    }

    /// Counts the piece, as long as it exists, among those that the pool's owner keeps between queries.
    pub fn count_as_kept(&self) {
        if !self.is_kept.swap(true, Ordering::Relaxed) {
            self.pool.kept.fetch_add(self.bytes, Ordering::Relaxed);
        }
    }

    /// An Arrow buffer over some bytes of a piece of host memory; the piece is given back with the last buffer. Empty
    /// for memory of a device, or beyond the piece.
    pub fn buffer(self: &Arc<Self>, range: Range<usize>) -> Buffer {
        match self.as_slice().get(range).map(NonNull::from) {
            Some(bytes) => {
                let owner = Arc::clone(self);
                // SAFETY: initialised memory, which lives as long as the piece that the buffer holds, and which is not
                // written while the piece is shared.
                unsafe { Buffer::from_custom_allocation(bytes.cast(), bytes.len(), owner) }
            }
            None => Buffer::default(),
        }
    }

    /// The bytes of a piece of host memory; empty for memory of a device.
    pub fn as_slice(&self) -> &[u8] {
        match self.pool.kind {
            MemoryKind::Device => &[],
            // SAFETY: initialised memory of the host that lives as long as this piece, and that only
            // `as_mut_slice` lends for writing.
            MemoryKind::Host => unsafe {
                std::slice::from_raw_parts(self.address as *const u8, self.bytes as usize)
            },
        }
    }

    /// As [`DeviceBuffer::as_slice`], for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        match self.pool.kind {
            MemoryKind::Device => &mut [],
            // SAFETY: initialised memory of the host that this piece alone has.
            MemoryKind::Host => unsafe {
                std::slice::from_raw_parts_mut(self.address as *mut u8, self.bytes as usize)
            },
        }
    }
}

impl Drop for DeviceBuffer {
    fn drop(&mut self) {
        if *self.is_kept.get_mut() {
            self.pool.kept.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        self.pool.give(self.address, self.bytes);
    }
}

/// Host memory that files are read into, and that the device copies from; see
/// [`Engine::staging`](crate::Engine::staging).
#[derive(Debug)]
pub struct Staging {
    buffer: DeviceBuffer,
    bytes: usize,
}

impl Staging {
    pub(crate) fn new(buffer: DeviceBuffer, bytes: usize) -> Self {
        Self { buffer, bytes }
    }
}

impl AsRef<[u8]> for Staging {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_slice().get(..self.bytes).unwrap_or_default()
    }
}

impl AsMut<[u8]> for Staging {
    fn as_mut(&mut self) -> &mut [u8] {
        let bytes = self.buffer.as_mut_slice();
        bytes.get_mut(..self.bytes).unwrap_or_default()
    }
}

/// Host memory that the device copies from and to at full speed.
#[derive(Debug)]
pub(crate) struct Pinned {
    driver: Arc<dyn Driver>,
    address: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory that this value alone owns.
unsafe impl Send for Pinned {}
// SAFETY: reads through `&self` only.
unsafe impl Sync for Pinned {}

impl Pinned {
    pub fn new(driver: &Arc<dyn Driver>, bytes: usize) -> Result<Self> {
        let bytes = bytes.max(1);
        let address = driver.allocate_host(bytes)?;
        Ok(Self {
            driver: Arc::clone(driver),
            address,
            bytes,
        })
    }

    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: `bytes` of initialised memory that live as long as this value.
        unsafe { std::slice::from_raw_parts(self.address, self.bytes) }
    }

    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as above, and borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.address, self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: from `allocate_host`, freed once; streams that use it are done when owners drop it.
        unsafe { self.driver.free_host(self.address) };
    }
}
