//! Column chunks of files in memory, for later scans.
//!
//! ```text
//! ChunkCache ── one budget in bytes, least recently used first
//!   └─ FileChunks ── one version of a file; dropping it drops its chunks
//!        └─ CachedFile ── an open file that looks there first
//! ```
//!
//! Values, zone maps and Bloom filters are kept as they were parsed, after their checksums were verified. Reading holds
//! no lock, so two scans that miss the same chunk may both read it. A read that is cancelled keeps nothing.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::Array;
use arrow::datatypes::SchemaRef;
use async_trait::async_trait;
use object_store::path::Path;
use vectile_encodings::{Column, ZoneMap};

use crate::container::{Container, Fetch, RowGroupData, ValueFilter};
use crate::error::{Error, Result};
use crate::format::{FileContainer, StreamData};
use crate::object::ReadBuffers;

/// Approximate bytes that a chunk takes beside its content.
const CHUNK_BYTES: usize = 512;

/// Chunks of many files. The limit is 0 bytes until it is set.
#[derive(Default)]
pub struct ChunkCache(Mutex<State>);

#[derive(Default)]
struct State {
    limit: usize,
    bytes: usize,
    chunks: BTreeMap<Key, Chunk>,
    /// Each chunk by the time of its last use.
    uses: BTreeMap<u64, Key>,
    /// The last time, which counts lookups and insertions.
    now: u64,
    /// The number of the last file.
    files: u64,
}

/// The name of a chunk. Chunks of a file are neighbours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    file: u64,
    row_group: usize,
    column: usize,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Values,
    Zones,
    Filter,
}

/// The content of a chunk. Cheap to clone.
#[derive(Clone)]
enum Content {
    Values(Column),
    /// `None` if the column has none.
    Zones(Option<ZoneMap>),
    Filter(Arc<dyn ValueFilter>),
}

struct Chunk {
    content: Content,
    /// Bytes of memory held.
    bytes: usize,
    /// Its part of [`RowGroupData::excess_bytes`].
    excess: usize,
    used: u64,
}

impl Content {
    fn kind(&self) -> Kind {
        match self {
            Self::Values(_) => Kind::Values,
            Self::Zones(_) => Kind::Zones,
            Self::Filter(_) => Kind::Filter,
        }
    }

    /// Bytes of memory that parsing took, beyond the chunk's own.
    fn parsed_bytes(&self) -> usize {
        match self {
            Self::Values(column) => column.parsed_bytes(),
            Self::Zones(zones) => zones.as_ref().map_or(0, ZoneMap::memory_size),
            Self::Filter(_) => 0,
        }
    }
}

/// The range of keys of a file.
fn of_file(file: u64) -> Range<Key> {
    let first = |file| Key {
        file,
        row_group: 0,
        column: 0,
        kind: Kind::Values,
    };
    first(file)..first(file + 1)
}

impl State {
    /// Returns a chunk's content, its bytes and its excess, and counts the use.
    fn find(&mut self, key: Key) -> Option<(Content, usize, usize)> {
        let chunk = self.chunks.get_mut(&key)?;
        self.now += 1;
        self.uses.remove(&chunk.used);
        chunk.used = self.now;
        self.uses.insert(self.now, key);
        Some((chunk.content.clone(), chunk.bytes, chunk.excess))
    }

    fn insert(&mut self, key: Key, mut chunk: Chunk, dropped: &mut Vec<Chunk>) {
        if chunk.bytes > self.limit {
            return;
        }
        dropped.extend(self.remove(key));
        self.now += 1;
        chunk.used = self.now;
        self.bytes += chunk.bytes;
        self.uses.insert(self.now, key);
        self.chunks.insert(key, chunk);
        self.evict(dropped);
    }

    fn remove(&mut self, key: Key) -> Option<Chunk> {
        let chunk = self.chunks.remove(&key)?;
        self.uses.remove(&chunk.used);
        self.bytes -= chunk.bytes;
        Some(chunk)
    }

    /// Removes the least recently used chunks until the others fit the limit.
    fn evict(&mut self, dropped: &mut Vec<Chunk>) {
        while self.bytes > self.limit
            && let Some((_, &key)) = self.uses.first_key_value()
        {
            dropped.extend(self.remove(key));
        }
    }

    fn remove_file(&mut self, file: u64, dropped: &mut Vec<Chunk>) {
        let keys = self.chunks.range(of_file(file));
        let keys: Vec<Key> = keys.map(|(key, _)| *key).collect();
        dropped.extend(keys.into_iter().filter_map(|key| self.remove(key)));
    }
}

impl ChunkCache {
    /// Sets the most bytes to keep. Drops chunks that exceed it.
    pub fn set_limit(&self, bytes: usize) {
        self.change(|state, dropped| {
            state.limit = bytes;
            state.evict(dropped);
        });
    }

    /// Bytes of memory that its chunks take.
    pub fn bytes(&self) -> usize {
        self.state().bytes
    }

    /// A place for the chunks of one version of a file.
    pub fn file(self: &Arc<Self>) -> FileChunks {
        let mut state = self.state();
        state.files += 1;
        FileChunks {
            cache: Arc::clone(self),
            file: state.files,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `change`. The chunks that it drops are freed without the lock.
    fn change(&self, change: impl FnOnce(&mut State, &mut Vec<Chunk>)) {
        let mut dropped = Vec::new();
        change(&mut self.state(), &mut dropped);
    }
}

impl fmt::Debug for ChunkCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkCache").finish_non_exhaustive()
    }
}

/// The chunks of one version of a file in a [`ChunkCache`], for all scans of that version. Dropping it drops them.
#[derive(Debug)]
pub struct FileChunks {
    cache: Arc<ChunkCache>,
    file: u64,
}

impl Drop for FileChunks {
    fn drop(&mut self) {
        let file = self.file;
        self.cache
            .change(|state, dropped| state.remove_file(file, dropped));
    }
}

impl FileChunks {
    /// The cache that they are in.
    pub fn cache(&self) -> &ChunkCache {
        &self.cache
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        let state = self.cache.state();
        state.chunks.range(of_file(self.file)).next().is_none()
    }

    fn key(&self, row_group: usize, column: usize, kind: Kind) -> Key {
        Key {
            file: self.file,
            row_group,
            column,
            kind,
        }
    }

    /// Returns the chunks of `fetch` that are known, of a file of `columns` columns, and a request for the others.
    fn known(&self, fetch: &Fetch, columns: usize) -> (RowGroupData, Fetch) {
        let mut data = RowGroupData {
            columns: (0..columns).map(|_| None).collect(),
            zones: (0..columns).map(|_| None).collect(),
            bytes_read: 0,
            bytes_cached: 0,
            excess_bytes: 0,
        };
        let mut missing = Fetch {
            row_group: fetch.row_group,
            ..Fetch::default()
        };
        let mut state = self.cache.state();
        let wanted = |kind| move |&column: &usize| self.key(fetch.row_group, column, kind);
        let values = fetch.data.iter().map(wanted(Kind::Values));
        let zones = fetch.zones.iter().map(wanted(Kind::Zones));
        for key in values.chain(zones) {
            let Some((content, bytes, excess)) = state.find(key) else {
                match key.kind {
                    Kind::Zones => missing.zones.push(key.column),
                    _ => missing.data.push(key.column),
                }
                continue;
            };
            match content {
                Content::Values(column) => {
                    if let Some(slot) = data.columns.get_mut(key.column) {
                        *slot = Some(column);
                    }
                }
                Content::Zones(zones) => {
                    if let Some(slot) = data.zones.get_mut(key.column) {
                        *slot = zones;
                    }
                }
                Content::Filter(_) => continue,
            }
            data.bytes_cached += bytes as u64;
            data.excess_bytes += excess;
        }
        (data, missing)
    }

    /// Keeps what was read of `file` for `fetch`.
    fn keep(&self, file: &dyn FileContainer, fetch: &Fetch, read: &RowGroupData) {
        let all = file.data_bytes(fetch.row_group, &fetch.data).max(1);
        let values = fetch.data.iter().filter_map(|&column| {
            let values = read.columns.get(column)?.clone()?;
            let own = file.data_bytes(fetch.row_group, &[column]);
            // a container reports the excess of all columns together
            let excess = read.excess_bytes as u128 * own as u128 / all as u128;
            let excess = usize::try_from(excess).unwrap_or(usize::MAX);
            Some((column, Content::Values(values), own, excess))
        });
        let zones = fetch.zones.iter().filter_map(|&column| {
            let zones = read.zones.get(column)?.clone();
            Some((column, Content::Zones(zones), 0, 0))
        });
        self.insert(fetch.row_group, values.chain(zones));
    }

    /// Inserts chunks: columns, contents, bytes, and those in excess.
    fn insert(
        &self,
        row_group: usize,
        chunks: impl Iterator<Item = (usize, Content, usize, usize)>,
    ) {
        let chunks = chunks.map(|(column, content, own, excess)| {
            let held = own.saturating_add(excess).saturating_add(CHUNK_BYTES);
            let chunk = Chunk {
                bytes: held.saturating_add(content.parsed_bytes()),
                excess,
                used: 0,
                content,
            };
            let key = self.key(row_group, column, chunk.content.kind());
            (key, chunk)
        });
        let chunks: Vec<(Key, Chunk)> = chunks.collect();
        self.cache.change(|state, dropped| {
            for (key, chunk) in chunks {
                state.insert(key, chunk, dropped);
            }
        });
    }

    fn known_filter(&self, row_group: usize, column: usize) -> Option<Arc<dyn ValueFilter>> {
        let key = self.key(row_group, column, Kind::Filter);
        match self.cache.state().find(key)?.0 {
            Content::Filter(filter) => Some(filter),
            _ => None,
        }
    }
}

/// An open file that reads only chunks that are not in a cache.
///
/// [`fetch_into`](FileContainer::fetch_into) and [`stream_columns`](FileContainer::stream_columns) pass the cache by,
/// because a device has its own.
pub struct CachedFile {
    file: Arc<dyn FileContainer>,
    chunks: Arc<FileChunks>,
    /// True if chunks that are read are kept.
    keeps: bool,
}

impl CachedFile {
    /// `file`, whose chunks are `chunks`. If `keeps` is false, chunks that are read are not kept. All files with the
    /// same `chunks` verify checksums.
    pub fn new(file: Arc<dyn FileContainer>, chunks: Arc<FileChunks>, keeps: bool) -> Self {
        Self {
            file,
            chunks,
            keeps,
        }
    }
}

/// A Bloom filter that others may use, too.
#[derive(Debug)]
struct SharedFilter {
    filter: Arc<dyn ValueFilter>,
    is_cached: bool,
}

impl ValueFilter for SharedFilter {
    fn may_contain(&self, values: &dyn Array) -> vectile_encodings::Result<bool> {
        self.filter.may_contain(values)
    }

    fn bytes(&self) -> usize {
        self.filter.bytes()
    }

    fn is_cached(&self) -> bool {
        self.is_cached
    }
}

#[async_trait]
impl Container for CachedFile {
    fn schema(&self) -> &SchemaRef {
        self.file.schema()
    }

    fn num_row_groups(&self) -> usize {
        self.file.num_row_groups()
    }

    fn rows(&self, row_group: usize) -> usize {
        self.file.rows(row_group)
    }

    fn row_group_zones(&self, column: usize) -> Option<&ZoneMap> {
        self.file.row_group_zones(column)
    }

    fn data_bytes(&self, row_group: usize, columns: &[usize]) -> usize {
        self.file.data_bytes(row_group, columns)
    }

    async fn fetch(&self, fetch: &Fetch) -> Result<RowGroupData> {
        let columns = self.file.schema().fields().len();
        let (mut data, missing) = self.chunks.known(fetch, columns);
        if missing.data.is_empty() && missing.zones.is_empty() && missing != *fetch {
            return Ok(data);
        }
        let read = match self.keeps {
            true => self.file.fetch_to_keep(&missing).await?,
            false => self.file.fetch(&missing).await?,
        };
        if self.keeps {
            self.chunks.keep(self.file.as_ref(), &missing, &read);
        }
        for (slot, read) in data.columns.iter_mut().zip(read.columns) {
            *slot = read.or(slot.take());
        }
        for (slot, read) in data.zones.iter_mut().zip(read.zones) {
            *slot = read.or(slot.take());
        }
        data.bytes_read = read.bytes_read;
        data.excess_bytes += read.excess_bytes;
        Ok(data)
    }

    fn has_bloom_filter(&self, row_group: usize, column: usize) -> bool {
        self.file.has_bloom_filter(row_group, column)
    }

    async fn bloom_filters(
        &self,
        row_group: usize,
        columns: &[usize],
    ) -> Result<Vec<Box<dyn ValueFilter>>> {
        let known = |&column: &usize| self.chunks.known_filter(row_group, column);
        let mut known: Vec<Option<Arc<dyn ValueFilter>>> = columns.iter().map(known).collect();
        let missing = columns.iter().zip(&known);
        let missing: Vec<usize> = missing
            .filter(|(_, known)| known.is_none())
            .map(|(column, _)| *column)
            .collect();
        let read = match missing.is_empty() {
            true => Vec::new(),
            false => self.file.bloom_filters(row_group, &missing).await?,
        };
        let read: Vec<Arc<dyn ValueFilter>> = read.into_iter().map(Arc::from).collect();
        if self.keeps {
            let chunks = missing.iter().zip(&read).map(|(&column, filter)| {
                let content = Content::Filter(Arc::clone(filter));
                (column, content, filter.bytes(), 0)
            });
            self.chunks.insert(row_group, chunks);
        }
        let mut read = read.into_iter();
        let filters = known.iter_mut().map_while(|known| {
            let is_cached = known.is_some();
            let filter = known.take().or_else(|| read.next())?;
            Some(Box::new(SharedFilter { filter, is_cached }) as _)
        });
        Ok(filters.collect())
    }

    fn error(&self, row_group: usize, column: usize, source: vectile_encodings::Error) -> Error {
        self.file.error(row_group, column, source)
    }
}

#[async_trait]
impl FileContainer for CachedFile {
    fn location(&self) -> &Path {
        self.file.location()
    }

    fn row_group_start(&self, row_group: usize) -> u64 {
        self.file.row_group_start(row_group)
    }

    fn checksum(&self) -> u32 {
        self.file.checksum()
    }

    fn arrow_bytes(&self, column: usize) -> Option<u64> {
        self.file.arrow_bytes(column)
    }

    fn text_encoding(&self, row_group: usize, column: usize) -> Option<Cow<'_, str>> {
        self.file.text_encoding(row_group, column)
    }

    fn reads_on_thread(&self) -> bool {
        self.file.reads_on_thread()
    }

    async fn fetch_into(
        &self,
        fetch: &Fetch,
        buffers: Arc<dyn ReadBuffers>,
    ) -> Result<RowGroupData> {
        self.file.fetch_into(fetch, buffers).await
    }

    async fn stream_columns(
        &self,
        row_group: usize,
        columns: &[usize],
        buffers: Option<Arc<dyn ReadBuffers>>,
    ) -> Result<StreamData> {
        self.file.stream_columns(row_group, columns, buffers).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, StringArray};
    use vectile_encodings::{EncodeOptions, encode};

    use super::*;

    /// A chunk of text that takes `bytes` bytes, and those that every chunk takes.
    fn chunk(bytes: usize) -> impl Iterator<Item = (usize, Content, usize, usize)> {
        let array: ArrayRef = Arc::new(StringArray::from(vec!["x"]));
        let encoded = encode(&array, &EncodeOptions::default()).unwrap();
        let column = Column::parse(encoded.into(), array.data_type(), 1).unwrap();
        let content = Content::Values(column);
        let own = bytes - content.parsed_bytes();
        std::iter::once((0, content, own, 0))
    }

    fn has(file: &FileChunks, row_group: usize) -> bool {
        let data = vec![0];
        let (found, missing) = file.known(
            &Fetch {
                row_group,
                data,
                zones: vec![],
            },
            1,
        );
        assert_eq!(found.columns[0].is_some(), missing.data.is_empty());
        missing.data.is_empty()
    }

    #[test]
    fn the_least_recently_used_go_first() {
        let cache = Arc::new(ChunkCache::default());
        let file = cache.file();
        file.insert(0, chunk(1000));
        assert!(file.is_empty(), "there is no limit yet");
        let each = 1000 + CHUNK_BYTES;
        cache.set_limit(3 * each);
        for row_group in 0..3 {
            file.insert(row_group, chunk(1000));
        }
        assert!(has(&file, 0) && cache.bytes() == 3 * each);
        file.insert(3, chunk(1000));
        assert!(has(&file, 0) && !has(&file, 1) && has(&file, 3));
        // One that exceeds the limit alone drives out nothing, and one that is there is replaced.
        file.insert(4, chunk(3 * each));
        file.insert(3, chunk(500));
        assert_eq!(cache.bytes(), 3 * each - 500);
        cache.set_limit(each);
        assert!(has(&file, 3) && !has(&file, 0) && !has(&file, 2));
        cache.set_limit(0);
        assert!(file.is_empty() && cache.bytes() == 0);
    }

    #[test]
    fn chunks_go_with_their_file() {
        let cache = Arc::new(ChunkCache::default());
        cache.set_limit(1 << 20);
        let (a, b) = (cache.file(), cache.file());
        a.insert(usize::MAX, chunk(1000));
        b.insert(0, chunk(1000));
        assert!(!has(&a, 0) && has(&b, 0) && !b.is_empty());
        drop(a);
        assert_eq!(cache.bytes(), 1000 + CHUNK_BYTES);
        drop(b);
        assert!(cache.bytes() == 0 && cache.state().uses.is_empty());
    }
}
