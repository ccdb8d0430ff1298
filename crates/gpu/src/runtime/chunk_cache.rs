//! The chunks that an engine caches, on its device and in host memory: names, budgets, eviction.

use std::any::Any;
use std::cmp::Reverse;
use std::collections::hash_map::Entry;
use std::collections::{BinaryHeap, HashMap, HashSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use arrow::array::{Array, ArrayRef, AsArray, MutableArrayData, make_array};
use arrow::datatypes::DataType;

use super::batch::{Batch, ColumnBatch};
use super::chunks::{ChunkKey, ChunkRun, Hosted, Resident};
use super::copied::Copied;
use super::copiers::Copiers;

/// Default bytes of chunks to keep in host memory.
const DEFAULT_HOST_BYTES: u64 = 4 << 30;
/// Minimum number of files, or dictionaries, for sweeping unused ones.
const LEAST_SWEPT: usize = 256;
/// Limit of the chunks of all column batches, each counted in each batch: 40 bytes of host memory a chunk.
const STACKED_CHUNKS: usize = 1 << 20;

/// A [`ChunkKey`] with a number for the file: queries look up thousands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ChunkName {
    file: usize,
    row_group: usize,
    column: usize,
}

/// A chunk: the address of its memory, the time of its last use, its name.
type Idle = (u64, u64, ChunkName);

/// An entry of the device's caches that may be dropped, by its index. Of entries used at the same time, column
/// batches go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Evictable {
    ColumnBatch(usize),
    Copy(usize),
    Chunks(usize),
}

/// Entries removed from the caches. The caller frees their memory without holding the lock of [`Chunks`].
pub(super) type Dropped = Vec<Arc<dyn Any + Send + Sync>>;

/// The chunks on the device and in host memory, and their budgets.
#[derive(Debug)]
pub(super) struct Chunks {
    files: Files,
    pub resident: HashMap<ChunkName, Arc<Resident>>,
    /// Column batches of chunks that queries used together.
    column_batches: HashMap<Vec<ChunkRun>, Arc<ColumnBatch>>,
    pub hosted: HashMap<ChunkName, Arc<Hosted>>,
    host_bytes: u64,
    pub host_limit: u64,
    /// Distinct dictionaries of chunks, by their hashes: row groups often have equal ones.
    dictionaries: HashMap<u64, Vec<Weak<dyn Array>>>,
    /// Number of hashes from which on unused dictionaries are swept.
    most_dictionaries: usize,
    pub bytes: u64,
    /// The budget; `None` for a share of the memory that is free or the engine's.
    pub limit: Option<u64>,
}

/// The numbers of files.
#[derive(Debug)]
struct Files {
    /// For each file, its number, and the number of sweeps before its last lookup.
    numbers: HashMap<Arc<str>, (usize, u64)>,
    next: usize,
    sweep: u64,
    /// Number of files from which on unused ones are swept.
    most: usize,
}

impl Chunks {
    /// Empty, with the default budgets.
    pub fn new() -> Self {
        Self {
            files: Files::default(),
            resident: HashMap::new(),
            column_batches: HashMap::new(),
            hosted: HashMap::new(),
            host_bytes: 0,
            host_limit: DEFAULT_HOST_BYTES,
            dictionaries: HashMap::new(),
            most_dictionaries: LEAST_SWEPT,
            bytes: 0,
            limit: None,
        }
    }

    /// The shared array for an equal dictionary of that hash.
    pub fn interned(&mut self, hash: u64, entries: &ArrayRef) -> ArrayRef {
        self.sweep_dictionaries();
        let data = entries.to_data();
        let known = self.dictionaries.entry(hash).or_default();
        let mut arrays = known.iter().filter_map(Weak::upgrade);
        match arrays.find(|array| array.to_data() == data) {
            Some(array) => array,
            None => {
                known.retain(|array| array.strong_count() > 0);
                let entries = own(entries);
                known.push(Arc::downgrade(&entries));
                entries
            }
        }
    }

    /// Time of the last use of chunks that share memory; `None` if a query or a column batch uses one.
    fn idle_since(&self, buffer: &[Idle]) -> Option<u64> {
        let mut since = 0;
        for (.., key) in buffer {
            let resident = self.resident.get(key)?;
            if Arc::strong_count(resident) > 1 || Arc::strong_count(&resident.memory) > buffer.len()
            {
                return None;
            }
            since = since.max(resident.used.load(Ordering::Relaxed));
        }
        Some(since)
    }

    /// Forgets unused dictionaries, once there are twice as many as after the last sweep.
    fn sweep_dictionaries(&mut self) {
        if self.dictionaries.len() < self.most_dictionaries {
            return;
        }
        self.dictionaries.retain(|_, known| {
            known.retain(|array| array.strong_count() > 0);
            !known.is_empty()
        });
        self.most_dictionaries = LEAST_SWEPT.max(2 * self.dictionaries.len());
    }

    /// Forgets files without chunks, once so many were added that inspecting all chunks is worth it.
    fn sweep_files(&mut self) {
        if self.files.is_worth_sweeping() {
            let names = self.resident.keys().chain(self.hosted.keys());
            self.files.sweep(&names.map(|name| name.file).collect());
        }
    }

    /// The names of keys. Forgets unused files now and then.
    pub fn names(&mut self, keys: &[ChunkKey]) -> Vec<ChunkName> {
        self.sweep_files();
        let mut last: Option<(&Arc<str>, usize)> = None;
        let names = keys.iter().map(|key| {
            // keys of a file follow each other: most skip the lookup of its name
            let known = last.filter(|(file, _)| Arc::ptr_eq(file, &key.file));
            let (_, file) = known.unwrap_or_else(|| (&key.file, self.files.number(&key.file)));
            last = Some((&key.file, file));
            key.name(file)
        });
        names.collect()
    }

    /// The column batches of these columns, if [`Chunks::keep_batches`] has kept all of them.
    pub fn column_batches(&self, columns: &[Vec<ChunkRun>]) -> Option<Vec<Arc<ColumnBatch>>> {
        let batches = columns
            .iter()
            .map(|runs| self.column_batches.get(runs).cloned());
        batches.collect()
    }

    /// Keeps the batches of a batch's columns. If they have too many chunks, drops the least recently used.
    pub fn keep_batches(&mut self, columns: Vec<Vec<ChunkRun>>, batch: &Batch, now: u64) {
        for (runs, column_batch) in columns.into_iter().zip(batch.columns()) {
            column_batch.touch(now);
            self.column_batches.insert(runs, Arc::clone(column_batch));
        }
        let mut stacked: usize = self
            .column_batches
            .values()
            .map(|column_batch| column_batch.len())
            .sum();
        while stacked > STACKED_CHUNKS
            && let Some(oldest) = self
                .column_batches
                .iter()
                .min_by_key(|(_, column_batch)| column_batch.used())
        {
            let oldest = oldest.0.clone();
            let dropped = self.column_batches.remove(&oldest);
            stacked -= dropped.map_or(0, |column_batch| column_batch.len());
        }
    }

    /// Keeps a chunk in host memory, in place of those used least recently, which are returned: the caller frees their
    /// memory without a lock.
    pub fn host(&mut self, key: ChunkName, hosted: &Arc<Hosted>) -> Vec<Arc<Hosted>> {
        let mut dropped = vec![];
        let bytes = hosted.chunk.bytes as u64;
        if bytes > self.host_limit {
            return dropped;
        }
        if self.host_bytes + bytes > self.host_limit {
            let mut oldest: Vec<(u64, ChunkName)> = self
                .hosted
                .iter()
                .map(|(key, hosted)| (hosted.used.load(Ordering::Relaxed), *key))
                .collect();
            oldest.sort_unstable_by_key(|(used, _)| *used);
            // an eighth at a time, so that not every chunk has to search for the oldest
            let target = self.host_limit - self.host_limit / 8;
            for (_, key) in oldest {
                if self.host_bytes + bytes <= target {
                    break;
                }
                if let Some(hosted) = self.hosted.remove(&key) {
                    self.host_bytes -= hosted.chunk.bytes as u64;
                    dropped.push(hosted);
                }
            }
        }
        if let Some(replaced) = self.hosted.insert(key, Arc::clone(hosted)) {
            self.host_bytes -= replaced.chunk.bytes as u64;
            dropped.push(replaced);
        }
        self.host_bytes += bytes;
        dropped
    }

    /// Adds chunks on the device. Returns those that were there first, in their places.
    pub fn insert(
        &mut self,
        names: &[ChunkName],
        residents: Vec<Arc<Resident>>,
    ) -> Vec<Arc<Resident>> {
        let mut added = 0;
        let mut result = Vec::with_capacity(residents.len());
        for (name, resident) in names.iter().zip(residents) {
            result.push(match self.resident.entry(*name) {
                // another thread was faster
                Entry::Occupied(entry) => Arc::clone(entry.get()),
                Entry::Vacant(entry) => {
                    added += resident.bytes() as u64;
                    Arc::clone(entry.insert(resident))
                }
            });
        }
        self.bytes += added;
        result
    }

    /// Removes all chunks from host memory.
    pub fn take_hosted(&mut self) -> HashMap<ChunkName, Arc<Hosted>> {
        self.host_bytes = 0;
        std::mem::take(&mut self.hosted)
    }

    /// Drops data that no query uses, the least recently used first, until `bytes` are free: chunks, column batches,
    /// and copies of tables. Chunks that were copied together share memory, so they are dropped together, when none of
    /// them is in use. They are added to `dropped`. Returns the number of bytes.
    pub fn evict(
        &mut self,
        bytes: u64,
        copies: &[Arc<Copied>],
        copiers: &Copiers,
        dropped: &mut Dropped,
    ) -> u64 {
        let mut freed = 0;
        let resident = self.resident.iter();
        let mut all: Vec<Idle> = resident
            .map(|(key, of)| (of.memory.address(), of.used.load(Ordering::Relaxed), *key))
            .collect();
        all.sort_unstable_by_key(|(address, ..)| *address);
        let buffers: Vec<&[Idle]> = all.chunk_by(|(a, ..), (b, ..)| a == b).collect();
        let column_batches = self.column_batches.iter();
        let column_batches = column_batches.filter(|(_, column_batch)| {
            Arc::strong_count(column_batch) == 1 && copiers.have_brought(&column_batch.copies)
        });
        let column_batches: Vec<(u64, *const ColumnBatch)> = column_batches
            .map(|(_, column_batch)| (column_batch.used(), Arc::as_ptr(column_batch)))
            .collect();
        // a chunk of an unused column batch counts as used when the batch was: the batch is dropped before it
        let mut oldest = BinaryHeap::new();
        for (index, (used, _)) in column_batches.iter().enumerate() {
            oldest.push(Reverse((*used, Evictable::ColumnBatch(index))));
        }
        for (index, copy) in copies.iter().enumerate() {
            oldest.push(Reverse((copy.used(), Evictable::Copy(index))));
        }
        for (index, buffer) in buffers.iter().enumerate() {
            if let Some(used) = self.idle_since(buffer) {
                oldest.push(Reverse((used, Evictable::Chunks(index))));
            }
        }
        while freed < bytes
            && let Some(Reverse((_, next))) = oldest.pop()
        {
            match next {
                Evictable::ColumnBatch(index) => {
                    let own = |column_batch: &Arc<ColumnBatch>| {
                        Arc::as_ptr(column_batch) == column_batches[index].1
                    };
                    let mut removed = self
                        .column_batches
                        .extract_if(|_, column_batch| own(column_batch));
                    let Some((_, column_batch)) = removed.next() else {
                        continue;
                    };
                    drop(removed);
                    column_batch.date_chunks();
                    let memory = column_batch.memory();
                    if let Ok(column_batch) = Arc::try_unwrap(column_batch) {
                        freed += column_batch.take_apart(dropped);
                    }
                    for address in memory {
                        let buffer = buffers.binary_search_by_key(&address, |buffer| buffer[0].0);
                        let Ok(index) = buffer else { continue };
                        if let Some(used) = self.idle_since(buffers[index]) {
                            oldest.push(Reverse((used, Evictable::Chunks(index))));
                        }
                    }
                }
                Evictable::Copy(index) => {
                    if let Some(buffer) = copies[index].take_idle() {
                        freed += buffer.bytes() as u64;
                        dropped.push(buffer);
                    }
                }
                Evictable::Chunks(index) => {
                    for (.., key) in buffers[index] {
                        if let Some(resident) = self.resident.remove(key) {
                            let own = resident.bytes() as u64;
                            freed += own;
                            self.bytes = self.bytes.saturating_sub(own);
                            dropped.push(resident);
                        }
                    }
                }
            }
        }
        freed
    }

    fn numbers_of(&self, files: &[Arc<str>]) -> HashSet<usize> {
        let numbers = files.iter().filter_map(|file| self.files.numbers.get(file));
        numbers.map(|(number, _)| *number).collect()
    }

    /// Removes the chunks of these files from host memory.
    pub fn remove_hosted(&mut self, files: &[Arc<str>]) -> Dropped {
        let numbers = self.numbers_of(files);
        let hosted = self
            .hosted
            .extract_if(|name, _| numbers.contains(&name.file));
        let mut dropped: Dropped = vec![];
        for (_, copy) in hosted {
            self.host_bytes = self.host_bytes.saturating_sub(copy.chunk.bytes as u64);
            dropped.push(copy);
        }
        dropped
    }

    /// The chunks of these files on the device.
    pub fn of_files(&self, files: &[Arc<str>]) -> Vec<Arc<Resident>> {
        let numbers = self.numbers_of(files);
        let chunks = self.resident.iter();
        let own = chunks.filter(|(name, _)| numbers.contains(&name.file));
        own.map(|(_, chunk)| Arc::clone(chunk)).collect()
    }

    /// Removes these chunks from the device and from host memory, and batches that have one of them.
    pub fn remove(&mut self, chunks: &[Arc<Resident>]) -> Dropped {
        let addresses: HashSet<*const Resident> = chunks.iter().map(Arc::as_ptr).collect();
        let mut dropped: Dropped = vec![];
        let column_batches = self
            .column_batches
            .extract_if(|_, column_batch| column_batch.has_some(&addresses));
        for (_, column_batch) in column_batches {
            column_batch.date_chunks();
            dropped.push(column_batch);
        }
        let resident = self
            .resident
            .extract_if(|_, chunk| addresses.contains(&Arc::as_ptr(chunk)));
        for (name, chunk) in resident {
            self.bytes = self.bytes.saturating_sub(chunk.bytes() as u64);
            if let Some(copy) = self.hosted.remove(&name) {
                self.host_bytes = self.host_bytes.saturating_sub(copy.chunk.bytes as u64);
                dropped.push(copy);
            }
            dropped.push(chunk);
        }
        dropped
    }
}

impl Default for Files {
    fn default() -> Self {
        Self {
            numbers: HashMap::new(),
            next: 0,
            sweep: 0,
            most: LEAST_SWEPT,
        }
    }
}

impl Files {
    /// The number of a file; it is never reused.
    fn number(&mut self, file: &Arc<str>) -> usize {
        let next = self.next;
        let (number, sweep) = match self.numbers.get_mut(file) {
            Some(known) => known,
            None => {
                self.next += 1;
                self.numbers.entry(Arc::clone(file)).or_insert((next, 0))
            }
        };
        *sweep = self.sweep;
        *number
    }

    fn is_worth_sweeping(&self) -> bool {
        self.numbers.len() >= self.most
    }

    /// Forgets files, except for those with these numbers, and those that were looked up since the last sweep: their
    /// chunks may be on their way.
    fn sweep(&mut self, used: &HashSet<usize>) {
        let now = self.sweep;
        self.numbers
            .retain(|_, (number, sweep)| *sweep == now || used.contains(number));
        self.sweep += 1;
        self.most = self.numbers.len() + LEAST_SWEPT.max(used.len());
    }
}

impl ChunkKey {
    /// The key, with its file as a number.
    fn name(&self, file: usize) -> ChunkName {
        ChunkName {
            file,
            row_group: self.row_group,
            column: self.column,
        }
    }
}

/// A copy that is not part of a larger memory.
pub(crate) fn own(array: &ArrayRef) -> ArrayRef {
    match array.data_type() {
        DataType::Utf8View => Arc::new(array.as_string_view().gc()),
        DataType::BinaryView => Arc::new(array.as_binary_view().gc()),
        _ => {
            let data = array.to_data();
            let mut copy = MutableArrayData::new(vec![&data], false, data.len());
            match copy.try_extend(0, 0, data.len()) {
                Ok(()) => make_array(copy.freeze()),
                // it has its own bytes already
                Err(_) => Arc::clone(array),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::Int64Array;

    use super::*;

    #[test]
    fn dictionaries_of_no_chunk_are_forgotten() {
        let mut chunks = Chunks::new();
        let array = |value| Arc::new(Int64Array::from(vec![value])) as ArrayRef;
        let used = chunks.interned(0, &array(0));
        for value in 1..10_000 {
            chunks.interned(value, &array(value as i64));
        }
        assert!(chunks.dictionaries.len() <= LEAST_SWEPT);
        assert!(Arc::ptr_eq(&used, &chunks.interned(0, &array(0))));
        // even with one hash
        for value in 1..10_000 {
            chunks.interned(0, &array(value));
        }
        assert!(chunks.dictionaries[&0].len() <= 2);
        assert!(Arc::ptr_eq(&used, &chunks.interned(0, &array(0))));
    }

    #[test]
    fn files_without_chunks_are_forgotten() {
        let mut files = Files::default();
        let name = |file: usize| Arc::from(format!("file {file}"));
        let used = files.number(&name(0));
        let mut numbers = HashSet::from([used]);
        for file in 1..10_000 {
            assert!(
                numbers.insert(files.number(&name(file))),
                "two with a number"
            );
            if files.is_worth_sweeping() {
                files.sweep(&HashSet::from([used]));
                // it may be on its way
                let number = files.number(&name(file));
                assert!(numbers.contains(&number));
            }
        }
        assert!(files.numbers.len() <= 3 * LEAST_SWEPT);
        assert_eq!(files.number(&name(0)), used);
    }
}
