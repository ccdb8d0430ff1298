//! The engine: a device and its caches of column chunks and kernels.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::thread;
use std::time::{Duration, Instant};

use arrow::array::ArrayRef;

use super::batch::Batch;
use super::chunk_cache::{ChunkName, Chunks, Dropped, own};
use super::chunks::{ChunkKey, ChunkRun, Hosted, Resident};
use super::compiling::Compiling;
use super::copied::Copied;
use super::copiers::Copiers;
use super::driver::{DeviceInfo, Driver, Event, Kernel, Stream};
use super::exit::unawaited;
use super::health::Health;
use super::kernels::{FixedKernel, Kernels, Loaded};
use super::memory::{DeviceBuffer, MemoryKind, Pinned, Pool, Sizes, Staging, lock};
use super::priority::lower_priority;
use super::tier::Tier;
use super::transfer_batch::TransferBatch;
use crate::error::{Error, Result};
use crate::kernel::KernelPlan;
use vectile_kernels::{ChunkInfo, DeviceChunk};

/// A device, with what is cached on it.
pub struct Engine {
    driver: Arc<dyn Driver>,
    pool: Arc<Pool>,
    host_pool: Arc<Pool>,
    /// Memory that files are read into.
    staging: Arc<Pool>,
    chunks: Mutex<Chunks>,
    /// Chunks of these files go when something else has ended.
    lives: Mutex<HashMap<Arc<str>, Weak<()>>>,
    copiers: Copiers,
    kernels: Kernels,
    compiling: Compiling,
    stream_contexts: Mutex<Vec<StreamContext>>,
    /// Device copies of host values, including those that were dropped and may be made again.
    copies: Mutex<Vec<Weak<Copied>>>,
    clock: AtomicU64,
    health: Health,
    /// A [`Tier`].
    tier: AtomicU8,
    /// True after chunks did not fit the budget, until there is room to spare.
    is_full: AtomicBool,
    /// Bytes of the device's memory that are free or the engine's, and when they were measured.
    usable: Mutex<Option<(Instant, u64)>>,
}

/// A stream and its buffers. Executions borrow them: creating one takes longer than a query.
pub(crate) struct StreamContext {
    pub stream: Box<dyn Stream>,
    pub staging: Option<Pinned>,
    pub scratch: Option<DeviceBuffer>,
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Engine").field(&self.driver).finish()
    }
}

/// Default share for chunks of the memory that other programs leave: the rest is for results, scratch and memory that
/// other programs take later.
const DEFAULT_SHARE: f64 = 0.8;
/// How long a measurement of free memory is valid: it takes as long as a small launch.
const FREE_MEMORY_AGE: Duration = Duration::from_millis(100);
/// Bytes from which on a copy is large enough to run at the speed of the link.
const RUN_BYTES: usize = 4 << 20;
/// Sizes of the memory that files are read into. Stripes of ORC, which are large, may take all of it.
const STAGING: Sizes = Sizes {
    slab: STAGING_SLAB..=STAGING_SLAB,
    most: 8 * STAGING_SLAB,
    kept: 8 * STAGING_SLAB,
};
const STAGING_SLAB: u64 = 64 << 20;
/// Slabs of it that are allocated beforehand: enough for the copiers, and for as much that is being read.
const STAGED_SLABS: usize = 4;
/// The fraction of the device's memory that is kept free for scratch, as 1 / `KEPT_SHARE`: the driver is slow to
/// allocate and free it.
const KEPT_SHARE: u64 = 64;
/// The device is no longer full when this fraction of the budget is free, as 1 / `SPARE_SHARE`.
const SPARE_SHARE: u64 = 2;
/// Bytes of scratch memory that a stream keeps between queries.
const KEPT_SCRATCH: usize = 1 << 20;

impl Engine {
    /// An engine on a device. Keeps up to 80% of the memory that other programs leave filled with chunks.
    pub fn new(driver: Arc<dyn Driver>) -> Arc<Self> {
        let usual = Sizes::default();
        let kept = driver.info().memory / KEPT_SHARE;
        let sizes = Sizes {
            kept: usual.kept.max(kept),
            ..usual
        };
        let is_emulated = driver.info().is_emulated;
        Arc::new(Self {
            pool: Pool::new(Arc::clone(&driver), MemoryKind::Device, sizes),
            host_pool: Pool::new(Arc::clone(&driver), MemoryKind::Host, Sizes::default()),
            staging: Pool::new(Arc::clone(&driver), MemoryKind::Host, STAGING),
            copiers: Copiers::new(Arc::clone(&driver)),
            driver,
            chunks: Mutex::new(Chunks::new()),
            lives: Mutex::default(),
            kernels: Kernels::default(),
            // times of an emulator say nothing about a device
            compiling: Compiling::new(!is_emulated),
            stream_contexts: Mutex::default(),
            copies: Mutex::default(),
            clock: AtomicU64::new(0),
            health: Health::new(),
            tier: AtomicU8::new(Tier::Auto as u8),
            is_full: AtomicBool::new(false),
            usable: Mutex::default(),
        })
    }

    /// Checks that queries can use the device.
    ///
    /// # Errors
    ///
    /// [`Error::Lost`] after an error that the device does not recover from, and in a process that was forked from the
    /// one that created the engine.
    pub fn check(&self) -> Result<()> {
        self.health.check()
    }

    pub(crate) fn health(&self) -> &Health {
        &self.health
    }

    /// The device.
    pub fn device(&self) -> &DeviceInfo {
        self.driver.info()
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.driver
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    pub(crate) fn host_pool(&self) -> &Arc<Pool> {
        &self.host_pool
    }

    /// Sets the most bytes to keep on the device, of column chunks and of data derived from them and from tables. The
    /// least recently used is dropped when more comes.
    pub fn set_memory_limit(&self, bytes: u64) {
        lock(&self.chunks).limit = Some(bytes);
    }

    /// The most bytes that are kept on the device: no more than other programs leave.
    pub fn memory_limit(&self) -> u64 {
        let usable = self.usable_bytes();
        match lock(&self.chunks).limit {
            Some(limit) => limit.min(usable),
            None => (usable as f64 * DEFAULT_SHARE) as u64,
        }
    }

    /// Bytes of the device's memory that are free or the engine's.
    fn usable_bytes(&self) -> u64 {
        let mut usable = lock(&self.usable);
        match *usable {
            Some((at, bytes)) if at.elapsed() < FREE_MEMORY_AGE => bytes,
            known => {
                let known = known.map_or(self.device().memory, |(_, bytes)| bytes);
                let free = self.driver.free_memory();
                let bytes = free.map_or(known, |free| free.saturating_add(self.pool.held()));
                *usable = Some((Instant::now(), bytes));
                bytes
            }
        }
    }

    /// Bytes of column chunks on the device.
    pub fn cached_bytes(&self) -> u64 {
        lock(&self.chunks).bytes
    }

    /// Bytes of everything that is kept on the device between queries: column chunks, and data derived from them and
    /// from tables.
    pub fn kept_bytes(&self) -> u64 {
        self.cached_bytes().saturating_add(self.pool.kept())
    }

    /// Sets the most bytes of column chunks to keep in host memory, for when they are dropped from the device. It is
    /// pinned: other programs cannot use it.
    pub fn set_host_memory_limit(&self, bytes: u64) {
        lock(&self.chunks).host_limit = bytes;
    }

    /// Looks up one chunk, as [`Engine::lookup_all`].
    pub fn lookup(&self, key: &ChunkKey) -> Option<Arc<Resident>> {
        self.lookup_all(std::slice::from_ref(key)).pop().flatten()
    }

    /// Looks up chunks: those on the device, or in host memory if there is room for them on the device. The latter are
    /// being copied when this returns, and kernels that need them wait. Look up all chunks of a query at once:
    /// adjacent chunks in host memory are copied together.
    pub fn lookup_all(&self, keys: &[ChunkKey]) -> Vec<Option<Arc<Resident>>> {
        if self.check().is_err() {
            return vec![None; keys.len()];
        }
        let now = self.now();
        let mut residents = Vec::with_capacity(keys.len());
        let mut hosted = vec![];
        {
            let mut chunks = lock(&self.chunks);
            let names = chunks.names(keys);
            for (index, name) in names.iter().enumerate() {
                let resident = chunks.resident.get(name);
                if let Some(resident) = resident {
                    resident.touch(now);
                } else if let Some(chunk) = chunks.hosted.get(name) {
                    chunk.used.store(now, Ordering::Relaxed);
                    hosted.push((index, *name, Arc::clone(chunk)));
                }
                residents.push(resident.cloned());
            }
        }
        hosted.sort_unstable_by_key(|(_, _, chunk)| chunk.memory.address());
        type HostedChunk = (usize, ChunkName, Arc<Hosted>);
        let touch = |a: &HostedChunk, b: &HostedChunk| {
            a.2.memory.address() + a.2.memory.bytes() as u64 == b.2.memory.address()
        };
        // for all at once; if there is no room, each copy makes its own
        let needed: u64 = hosted
            .iter()
            .map(|(_, _, chunk)| chunk.memory.bytes() as u64)
            .sum();
        if needed > 0 {
            let _ = self.make_room(needed);
        }
        for together in hosted.chunk_by(touch) {
            let mut run: Vec<(ChunkName, Arc<Hosted>)> = vec![];
            let mut indices = vec![];
            let mut bytes = 0;
            let mut send = |run: &mut Vec<(ChunkName, Arc<Hosted>)>, indices: &mut Vec<usize>| {
                let sent = self.health.watch(|| self.send(run)).unwrap_or_default();
                for (index, resident) in indices.drain(..).zip(sent) {
                    residents[index] = Some(resident);
                }
                run.clear();
            };
            for (index, name, chunk) in together {
                bytes += chunk.memory.bytes();
                run.push((*name, Arc::clone(chunk)));
                indices.push(*index);
                if bytes >= RUN_BYTES {
                    send(&mut run, &mut indices);
                    bytes = 0;
                }
            }
            send(&mut run, &mut indices);
        }
        if needed > 0 {
            self.copiers.mark();
        }
        residents
    }

    /// The row groups of `rows` rows each whose columns these are, if [`Engine::keep`] has kept them and they are
    /// still on the device.
    pub fn batch(&self, rows: Vec<usize>, columns: &[Vec<ChunkRun>]) -> Option<Batch> {
        self.check().ok()?;
        let now = self.now();
        let column_batches = lock(&self.chunks).column_batches(columns)?;
        column_batches
            .iter()
            .for_each(|column_batch| column_batch.touch(now));
        Batch::new(rows.into(), column_batches).ok()
    }

    /// Keeps the traits and samples of a batch, whose columns these are, for [`Engine::batch`], as long as it stays on
    /// the device.
    pub fn keep(&self, columns: Vec<Vec<ChunkRun>>, batch: &Batch) {
        let now = self.now();
        lock(&self.chunks).keep_batches(columns, batch, now);
    }

    /// Loads a chunk, as [`Engine::load_all`].
    ///
    /// # Errors
    ///
    /// As [`Engine::load_all`].
    pub fn load(&self, key: ChunkKey, chunk: &DeviceChunk) -> Result<Arc<Resident>> {
        let loaded = self.load_all(&[(key, chunk)])?.pop();
        loaded.ok_or_else(|| Error::Internal("a chunk without bytes".into()))
    }

    /// Copies chunks to the device and keeps them there, in place of those used least recently. Chunks in
    /// [`Engine::staging`] memory are copied from there. While the device is full, chunks stay in host memory too,
    /// within its limit. Returns when the copies have begun: kernels that need them wait.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if chunks in use leave no room; those of the driver.
    pub fn load_all(&self, chunks: &[(ChunkKey, &DeviceChunk)]) -> Result<Vec<Arc<Resident>>> {
        self.health.watch(|| self.load_watched(chunks))
    }

    fn load_watched(&self, chunks: &[(ChunkKey, &DeviceChunk)]) -> Result<Vec<Arc<Resident>>> {
        let keys: Vec<ChunkKey> = chunks.iter().map(|(key, _)| key.clone()).collect();
        let mut residents = self.lookup_all(&keys);
        let names = lock(&self.chunks).names(&keys);
        let missing = names.into_iter().zip(chunks).zip(&residents);
        let missing = missing.filter(|(_, residents)| residents.is_none());
        let missing: Vec<(ChunkName, &DeviceChunk)> = missing
            .map(|((name, (_, chunk)), _)| (name, *chunk))
            .collect();
        let bytes: u64 = missing
            .iter()
            .map(|(_, chunk)| chunk.info().bytes as u64)
            .sum();
        // As long as the device has room for all, a copy in host memory would only take time.
        if bytes > 0 {
            self.note_room(bytes);
        }
        let loaded = match self.is_full.load(Ordering::Relaxed) {
            true => {
                let each = missing.iter();
                let each = each.map(|(name, chunk)| self.load_hosted(*name, chunk));
                each.collect::<Result<Vec<_>>>()?.concat()
            }
            false => {
                let (names, chunks): (Vec<ChunkName>, Vec<&DeviceChunk>) =
                    missing.into_iter().unzip();
                let chunks = chunks.into_iter().map(|chunk| (self.info_of(chunk), chunk));
                let transfer =
                    TransferBatch::lay_out(&self.staging, &self.host_pool, chunks.collect())?;
                self.ship(&names, transfer)?
            }
        };
        let mut loaded = loaded.into_iter();
        for slot in residents.iter_mut().filter(|slot| slot.is_none()) {
            *slot = loaded.next();
        }
        residents
            .into_iter()
            .collect::<Option<_>>()
            .ok_or_else(|| Error::Internal("a chunk without bytes".into()))
    }

    /// Notes whether the device is full once so many bytes are added. It stays so until there is room to spare: where
    /// chunks take turns, some room is free now and then.
    fn note_room(&self, bytes: u64) {
        let spare = self.memory_limit() / SPARE_SHARE;
        if self.excess(bytes) > 0 {
            self.is_full.store(true, Ordering::Relaxed);
        } else if self.excess(bytes.saturating_add(spare)) == 0 {
            self.is_full.store(false, Ordering::Relaxed);
        }
    }

    /// Loads a chunk through host memory, where it stays.
    fn load_hosted(&self, name: ChunkName, chunk: &DeviceChunk) -> Result<Vec<Arc<Resident>>> {
        let mut memory = self.host_pool.take(chunk.info().bytes)?;
        chunk.write(memory.as_mut_slice())?;
        let hosted = Arc::new(Hosted {
            memory,
            chunk: self.info_of(chunk),
            used: AtomicU64::new(self.now()),
        });
        self.host(name, &hosted);
        self.send(&[(name, hosted)])
    }

    /// A chunk's description, without references to the memory that it was read into.
    pub(crate) fn info_of(&self, chunk: &DeviceChunk) -> Arc<ChunkInfo> {
        let info = chunk.info();
        Arc::new(ChunkInfo {
            entries: info.entries.as_ref().map(|entries| self.intern(entries)),
            sample: info.sample.as_ref().map(own),
            ..info.clone()
        })
    }

    /// Keeps a chunk in host memory, in place of those used least recently.
    fn host(&self, name: ChunkName, hosted: &Arc<Hosted>) {
        // memory is freed without the lock
        let dropped = lock(&self.chunks).host(name, hosted);
        drop(dropped);
    }

    /// Begins to copy adjacent chunks from host memory to the device.
    fn send(&self, run: &[(ChunkName, Arc<Hosted>)]) -> Result<Vec<Arc<Resident>>> {
        let (names, chunks): (Vec<ChunkName>, Vec<Arc<Hosted>>) = run.iter().cloned().unzip();
        self.ship(&names, TransferBatch::of_hosted(chunks))
    }

    /// Begins to copy chunks to the device.
    fn ship(&self, names: &[ChunkName], transfer: TransferBatch) -> Result<Vec<Arc<Resident>>> {
        if names.is_empty() {
            return Ok(vec![]);
        }
        let memory = self.room_for(transfer.bytes)?;
        let now = self.now();
        let residents = self.copiers.ship(transfer, memory, now)?;
        Ok(lock(&self.chunks).insert(names, residents))
    }

    /// Allocates memory of the device for chunks, within the budget.
    pub(crate) fn room_for(&self, bytes: usize) -> Result<DeviceBuffer> {
        self.make_room(bytes as u64)?;
        self.take(bytes)
    }

    /// Keeps chunks that were built on the device. Returns those that were there first.
    pub(crate) fn keep_built(
        &self,
        keys: &[ChunkKey],
        built: Vec<Arc<Resident>>,
    ) -> Vec<Arc<Resident>> {
        let now = self.now();
        built.iter().for_each(|chunk| chunk.touch(now));
        let mut chunks = lock(&self.chunks);
        let names = chunks.names(keys);
        chunks.insert(&names, built)
    }

    /// Makes a stream wait until the chunks of a batch have arrived.
    pub(crate) fn wait_for(&self, stream: &mut dyn Stream, batch: &Batch) -> Result<()> {
        self.copiers.wait_for(stream, &batch.copies())
    }

    /// Notes that a stream is done that waited for a batch: the sources of its chunks are released, so that they can
    /// be dropped.
    pub(crate) fn arrived(&self, batch: &Batch) {
        self.copiers.arrived(&batch.copies());
    }

    /// Waits until all copies under way are done.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    pub fn settle(&self) -> Result<()> {
        self.health.watch(|| self.copiers.finish())
    }

    /// Allocates memory of the device. If there is none left, chunks that no query uses are dropped.
    pub(crate) fn take(&self, bytes: usize) -> Result<DeviceBuffer> {
        let mut needed = bytes as u64;
        loop {
            let taken = self.pool.take(bytes);
            if !matches!(taken, Err(Error::OutOfMemory { .. })) || self.drop_idle(needed)? == 0 {
                return taken;
            }
            // dropped memory may be scattered: drop more, until some is contiguous
            needed = needed.saturating_mul(2);
        }
    }

    /// As [`Engine::take`], for data that stays between queries. It is within the budget, unless queries use
    /// everything there.
    pub(crate) fn take_to_keep(&self, bytes: usize) -> Result<DeviceBuffer> {
        match self.make_room(bytes as u64) {
            Ok(()) | Err(Error::OutOfMemory { .. }) => {}
            Err(error) => return Err(error),
        }
        let buffer = self.take(bytes)?;
        buffer.count_as_kept();
        Ok(buffer)
    }

    /// Makes room in the budget.
    fn make_room(&self, bytes: u64) -> Result<()> {
        let excess = self.excess(bytes);
        if excess > 0 && self.drop_idle(excess)? < excess {
            let (used, limit) = (self.kept_bytes(), self.memory_limit());
            return Err(Error::OutOfMemory {
                wanted: bytes,
                reason: format!("{used} of {limit} bytes are in use"),
            });
        }
        Ok(())
    }

    /// Bytes of kept data beyond the budget, once these are added.
    fn excess(&self, bytes: u64) -> u64 {
        let used = self.kept_bytes().saturating_add(bytes);
        used.saturating_sub(self.memory_limit())
    }

    /// As [`Engine::evict`], including chunks of copies under way: it waits for those if necessary.
    fn drop_idle(&self, bytes: u64) -> Result<u64> {
        let freed = self.evict(bytes);
        if freed >= bytes {
            return Ok(freed);
        }
        self.settle()?;
        Ok(freed + self.evict(bytes - freed))
    }

    /// Drops data that no query uses, the least recently used first, until `bytes` are free: chunks, column batches,
    /// and copies of tables.
    fn evict(&self, bytes: u64) -> u64 {
        let copies = self.idle_copies();
        // memory is freed without the lock
        let mut dropped: Dropped = vec![];
        let mut chunks = lock(&self.chunks);
        let freed = chunks.evict(bytes, &copies, &self.copiers, &mut dropped);
        drop(chunks);
        drop(dropped);
        freed
    }

    /// Copies that may be dropped.
    fn idle_copies(&self) -> Vec<Arc<Copied>> {
        let mut copies = lock(&self.copies);
        copies.retain(|copy| copy.strong_count() > 0);
        copies.iter().filter_map(Weak::upgrade).collect()
    }

    /// Registers a copy, which may be dropped when memory is short.
    pub(super) fn register(&self, copy: &Arc<Copied>) {
        let mut copies = lock(&self.copies);
        if copies.len() == copies.capacity() {
            copies.retain(|copy| copy.strong_count() > 0);
        }
        copies.push(Arc::downgrade(copy));
    }

    /// Advances the engine's clock, and returns the time.
    pub(super) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }

    /// Drops all chunks that no query uses, from the device and from host memory. Unused host memory goes back to the
    /// driver.
    pub fn clear(&self) {
        self.clear_device();
        let mut chunks = lock(&self.chunks);
        let hosted = chunks.take_hosted();
        self.is_full.store(false, Ordering::Relaxed);
        drop(chunks);
        drop(hosted);
        self.staging.clear();
        self.host_pool.clear();
    }

    /// Drops all chunks that no query uses from the device.
    pub fn clear_device(&self) {
        // copies under way hold their chunks
        let _ = self.settle();
        self.evict(u64::MAX);
    }

    /// Drops these chunks, from the device and from host memory. Queries that use them keep theirs. Blocks.
    pub fn drop_chunks(&self, dropped: Vec<Arc<Resident>>) {
        // copies under way hold their chunks
        let _ = self.settle();
        // memory is freed without the lock
        let removed = lock(&self.chunks).remove(&dropped);
        drop(removed);
    }

    /// Ties the chunks of a file to something else: [`drop_ended`](Self::drop_ended) drops them when it has ended.
    pub fn tie(&self, file: &Arc<str>, life: Weak<()>) {
        lock(&self.lives).insert(Arc::clone(file), life);
    }

    /// Drops chunks of files that are tied to something which has ended. Blocks if there are any.
    pub fn drop_ended(&self) {
        let ended: Vec<Arc<str>> = {
            let mut lives = lock(&self.lives);
            let ended = lives.extract_if(|_, life| life.strong_count() == 0);
            ended.map(|(file, _)| file).collect()
        };
        if !ended.is_empty() {
            let chunks = lock(&self.chunks).of_files(&ended);
            // copies are waited for only if there is something to drop
            if !chunks.is_empty() {
                self.drop_chunks(chunks);
            }
            let hosted = lock(&self.chunks).remove_hosted(&ended);
            drop(hosted);
        }
    }

    /// Shares one array for equal dictionaries.
    fn intern(&self, entries: &ArrayRef) -> ArrayRef {
        let data = entries.to_data();
        let mut hash = crc32fast::Hasher::new();
        hash.update(&data.len().to_le_bytes());
        data.buffers().iter().for_each(|buffer| hash.update(buffer));
        lock(&self.chunks).interned(u64::from(hash.finalize()), entries)
    }

    /// Borrows a stream with buffers.
    pub(crate) fn stream_context(&self) -> Result<StreamContext> {
        if let Some(context) = lock(&self.stream_contexts).pop() {
            return Ok(context);
        }
        Ok(StreamContext {
            stream: self.driver.stream()?,
            staging: None,
            scratch: None,
        })
    }

    /// Takes a stream back. No work may be under way on it.
    pub(crate) fn give_back(&self, mut context: StreamContext) {
        context.scratch = context
            .scratch
            .filter(|buffer| buffer.bytes() <= KEPT_SCRATCH);
        lock(&self.stream_contexts).push(context);
    }

    /// The kernel of a plan. The flag is true if it was compiled.
    pub(crate) fn kernel(&self, plan: &KernelPlan) -> Result<(Arc<Loaded>, bool)> {
        self.kernels.get(plan, &*self.driver)
    }

    /// As [`Engine::kernel`], without the compiler.
    pub(crate) fn find_kernel(&self, plan: &KernelPlan) -> Result<Arc<Loaded>> {
        self.kernels.find(plan, &*self.driver)
    }

    /// The interpreter with the program of a plan; only from disk, unless `may_compile`.
    pub(crate) fn interpreted(&self, plan: &KernelPlan, may_compile: bool) -> Result<Arc<Loaded>> {
        self.kernels.interpreted(plan, &*self.driver, may_compile)
    }

    /// True if the interpreter is loaded, which it then is, too, if it is embedded or on disk.
    pub fn has_interpreter(&self) -> bool {
        let load = || self.fixed_kernel(FixedKernel::Interpret, false);
        self.health.watch(load).is_ok()
    }

    /// The interpreter, which is loaded, with the wide program of a plan: some constants do not fit 64 bits.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if only a generated kernel can run the plan.
    pub(crate) fn wide_program(&self, plan: &KernelPlan, loaded: &Loaded) -> Result<Arc<Loaded>> {
        self.kernels.wide(plan, &loaded.kernel)
    }

    /// Has a plan run by its wide program from now on, or by a generated kernel: some number did not fit 64 bits.
    pub(crate) fn widen_program(&self, plan: &KernelPlan, loaded: &Loaded) -> Result<()> {
        self.kernels.widen(plan, &loaded.kernel)
    }

    /// Notes how long the interpreter ran in place of a generated kernel of this plan. If a kernel pays, it is compiled
    /// in the background.
    pub(crate) fn note_interpreted(self: &Arc<Self>, plan: &KernelPlan, time: Duration) {
        if !self.compiling.add(plan, time) {
            return;
        }
        let engine = Arc::downgrade(self);
        let work = move || {
            lower_priority();
            // the engine may be dropped here, too
            unawaited(|| while engine.upgrade().is_some_and(|it| it.compile_next()) {});
        };
        let thread = thread::Builder::new().name("vectile-compiler".into());
        if thread.spawn(work).is_err() {
            self.compiling.thread_failed();
        }
    }

    /// Compiles a kernel that waits for that. Returns false if none does.
    fn compile_next(&self) -> bool {
        let compile = |plan: &KernelPlan| self.health.watch(|| self.kernel(plan).map(drop));
        self.compiling.step(compile)
    }

    /// Whether [`Tier::Auto`] compiles kernels in the background for plans that the interpreter runs often; at first it
    /// does.
    pub fn compile_in_background(&self, is_on: bool) {
        self.compiling.set_on(is_on);
    }

    /// How kernels are chosen.
    pub(crate) fn tier(&self) -> Tier {
        Tier::of(self.tier.load(Ordering::Relaxed))
    }

    /// Pins how kernels are chosen, to compare both ways.
    pub fn set_tier(&self, tier: Tier) {
        self.tier.store(tier as u8, Ordering::Relaxed);
    }

    /// A kernel that no plan describes; only from disk, unless `may_compile`.
    pub(crate) fn fixed_kernel(
        &self,
        kernel: FixedKernel,
        may_compile: bool,
    ) -> Result<Arc<dyn Kernel>> {
        self.kernels.fixed(kernel, &*self.driver, may_compile)
    }

    /// Compiles the kernels that are the same for every query, one after the other, unless that takes no compiler. The
    /// process may end meanwhile, without waiting. Blocks for a minute: call it on a thread of low priority.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`]; errors of the driver.
    pub fn prepare_kernels(&self) -> Result<()> {
        let prepare = |kernel| {
            let prepare = || self.kernels.prepare(kernel, &*self.driver);
            self.health.watch(prepare)
        };
        unawaited(|| FixedKernel::all().try_for_each(prepare))
    }

    /// Host memory to read `bytes` of a file into, for chunks: the device copies from there. `None` while all of it is
    /// in use; it is limited.
    pub fn staging(&self, bytes: usize) -> Option<Staging> {
        let buffer = self.health.watch(|| self.staging.take(bytes)).ok()?;
        Some(Staging::new(buffer, bytes))
    }

    /// Returns true if the bytes are in memory of [`Engine::staging`].
    pub(crate) fn is_staged(&self, bytes: &[u8]) -> bool {
        self.staging.has(bytes)
    }

    /// Host memory that the device copies from at full speed: from [`Engine::staging`] while some is free.
    pub(crate) fn pinned(&self, bytes: usize) -> Result<DeviceBuffer> {
        let staged = self.staging.take(bytes);
        staged.or_else(|_| self.host_pool.take(bytes))
    }

    /// Allocates memory of [`Engine::staging`] beforehand.
    ///
    /// # Errors
    ///
    /// Errors of the driver.
    pub fn prepare_copies(&self) -> Result<()> {
        let take = |_| self.staging.take(STAGING_SLAB as usize);
        let slabs = self
            .health
            .watch(|| (0..STAGED_SLABS).map(take).collect::<Result<Vec<_>>>());
        slabs.map(drop)
    }
}

impl Drop for Engine {
    /// Frees the device copies of values that outlive the engine.
    fn drop(&mut self) {
        let copies = self.idle_copies();
        copies.iter().for_each(|copy| drop(copy.take_idle()));
    }
}

impl StreamContext {
    /// Waits for the work that `enqueue` puts on its stream, even after an error: memory then goes back to its pools,
    /// which reuse it.
    pub fn finish<T>(&mut self, enqueue: impl FnOnce(&mut dyn Stream) -> Result<T>) -> Result<T> {
        let enqueued = enqueue(self.stream.as_mut());
        let done = self.stream.synchronize();
        let enqueued = enqueued?;
        done?;
        Ok(enqueued)
    }

    /// The time between two events that the stream has passed.
    pub fn between(&mut self, (from, to): &(Event, Event)) -> Result<Duration> {
        let ms = self.stream.elapsed(from, to)?;
        Ok(Duration::from_secs_f64((ms / 1e3).max(0.0)))
    }

    /// Host memory of at least `bytes`. Its content is lost if it grows.
    pub fn staging(&mut self, engine: &Engine, bytes: usize) -> Result<&mut [u8]> {
        let enough = |pinned: &Pinned| pinned.as_slice().len() >= bytes;
        if !self.staging.as_ref().is_some_and(enough) {
            self.staging = None;
            let bytes = bytes.next_power_of_two().max(1 << 16);
            self.staging = Some(Pinned::new(engine.driver(), bytes)?);
        }
        match &mut self.staging {
            Some(pinned) => Ok(pinned.as_mut_slice()),
            None => Err(Error::Internal("no staging memory".into())),
        }
    }

    /// The address of device memory of at least `bytes`. Its content is lost if it grows.
    pub fn scratch(&mut self, engine: &Engine, bytes: usize) -> Result<u64> {
        if let Some(buffer) = self
            .scratch
            .as_ref()
            .filter(|buffer| buffer.bytes() >= bytes)
        {
            return Ok(buffer.address());
        }
        self.scratch = None;
        let buffer = engine.take(bytes.next_power_of_two().max(1 << 16))?;
        let address = buffer.address();
        self.scratch = Some(buffer);
        Ok(address)
    }
}
