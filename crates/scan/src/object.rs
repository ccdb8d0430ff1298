//! Reads bytes of one version of an object, never a mixture of two, for containers that are files.
//!
//! A local file stays open, so that it may be renamed or removed. Replacing an object, or writing a file in place, is
//! an error.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, GetResultPayload, ObjectMeta, ObjectStore};
use tokio::runtime::Handle as Runtime;

/// Ranges closer than this are one request to an object store, which reads the gap too.
const GAP_BYTES: u64 = 1 << 20;

/// Requests are of about this many bytes, so that several run in parallel.
const REQUEST_BYTES: u64 = 8 << 20;

/// Requests in flight at the same time.
const PARALLEL_REQUESTS: usize = 8;

/// The reason bytes could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The object is no longer the version that was listed. List it again to read the new one.
    #[error("{0} was changed while it was read; run the query again")]
    Changed(Path),
    /// A local file could not be read.
    #[error("{file}: {source}")]
    File {
        /// Its location in its object store.
        file: Path,
        /// The cause.
        source: io::Error,
    },
    /// The object store failed.
    #[error(transparent)]
    ObjectStore(#[from] object_store::Error),
    /// A bug in this crate or one below it.
    #[error("internal error: {0}")]
    Internal(String),
}

type Result<T> = std::result::Result<T, ReadError>;

impl ReadError {
    /// Returns true if the object was deleted or replaced after it was listed.
    pub fn is_outdated(&self) -> bool {
        use object_store::Error::NotFound;
        matches!(self, Self::Changed(_) | Self::ObjectStore(NotFound { .. }))
    }
}

/// One version of an object, as it was listed, for containers that keep it with their metadata.
#[derive(Clone, Debug)]
pub struct Object {
    store: Arc<dyn ObjectStore>,
    location: Path,
    /// The location as text.
    file: Arc<str>,
    e_tag: Option<String>,
    /// True if a read has shown that it is a local file.
    is_file: bool,
}

impl Object {
    /// The version of an object in `store` that was listed as `meta`.
    pub fn new(store: Arc<dyn ObjectStore>, meta: &ObjectMeta) -> Self {
        Self {
            store,
            location: meta.location.clone(),
            file: meta.location.as_ref().into(),
            e_tag: meta.e_tag.clone(),
            is_file: false,
        }
    }

    /// Its location in its store.
    pub fn location(&self) -> &Path {
        &self.location
    }

    /// Its location, as errors name it.
    pub fn file(&self) -> &Arc<str> {
        &self.file
    }

    /// Reads ascending ranges and returns their bytes in the same order.
    ///
    /// # Errors
    ///
    /// [`ReadError`], [`Changed`](ReadError::Changed) also if it has become shorter.
    pub async fn read(
        &self,
        handle: &Handle,
        ranges: &[Range<u64>],
        buffers: Option<&Arc<dyn ReadBuffers>>,
    ) -> Result<Vec<Bytes>> {
        let version = self.version(handle, buffers);
        let read = version.fetch(ranges, self.is_file).await?;
        let mut both = ranges.iter().zip(&read);
        both.try_for_each(|(range, bytes)| self.check(range, bytes))?;
        Ok(read)
    }

    /// Reads one range; no bytes if it is empty.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn read_one(&mut self, handle: &Handle, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let version = self.version(handle, None);
        let mut read = version.read(std::slice::from_ref(&range)).await?;
        let bytes = read.bytes.pop().unwrap_or_default();
        self.is_file = read.is_file;
        self.check(&range, &bytes)?;
        Ok(bytes)
    }

    fn version<'a>(
        &'a self,
        handle: &'a Handle,
        buffers: Option<&'a Arc<dyn ReadBuffers>>,
    ) -> Version<'a> {
        Version {
            store: &self.store,
            location: &self.location,
            e_tag: self.e_tag.as_deref(),
            handle,
            buffers,
        }
    }

    /// Checks the length: stores return less if a file has become shorter since it was listed.
    fn check(&self, range: &Range<u64>, bytes: &Bytes) -> Result<()> {
        match bytes.len() as u64 == range.end.saturating_sub(range.start) {
            true => Ok(()),
            false => Err(ReadError::Changed(self.location.clone())),
        }
    }
}

/// A file of this machine that stays open between reads, so that a read is one step. It belongs to one object: create
/// one for each scan of a file.
#[derive(Debug, Default)]
pub struct Handle(OnceLock<Opened>);

#[derive(Debug, Clone)]
struct Opened {
    file: Arc<File>,
    /// Modification time when it was opened.
    modified: SystemTime,
    size: u64,
}

/// An allocator of memory that local files are read into, instead of the heap.
pub trait ReadBuffers: fmt::Debug + Send + Sync {
    /// Memory for `bytes`; `None` if none is available.
    fn take(&self, bytes: usize) -> Option<Box<dyn ReadBuffer>>;
}

/// Memory that bytes are read into. It is released when the last of them is dropped.
pub trait ReadBuffer: AsRef<[u8]> + AsMut<[u8]> + Send + Sync {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send + Sync> ReadBuffer for T {}

/// Options for reading a file.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ReadOptions {
    /// True if checksums of values are compared, if the format has any, which costs some tenth of a second per gigabyte.
    /// A footer's is always compared.
    pub verify_checksums: bool,
    /// Memory that local files are read into, on the calling thread; by default, heap memory, on another thread.
    pub buffers: Option<Arc<dyn ReadBuffers>>,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            verify_checksums: true,
            buffers: None,
        }
    }
}

impl ReadOptions {
    /// Sets [`verify_checksums`](Self::verify_checksums).
    #[must_use]
    pub fn with_verify_checksums(mut self, verify: bool) -> Self {
        self.verify_checksums = verify;
        self
    }

    /// Sets [`buffers`](Self::buffers).
    #[must_use]
    pub fn with_buffers(mut self, buffers: Arc<dyn ReadBuffers>) -> Self {
        self.buffers = Some(buffers);
        self
    }
}

/// The first `len` bytes of a buffer.
struct Filled {
    buffer: Box<dyn ReadBuffer>,
    len: usize,
}

impl AsRef<[u8]> for Filled {
    fn as_ref(&self) -> &[u8] {
        let bytes = (*self.buffer).as_ref();
        bytes.get(..self.len).unwrap_or_default()
    }
}

/// One version of an object, as it was listed.
#[derive(Debug, Clone, Copy)]
pub struct Version<'a> {
    /// The store that holds it.
    pub store: &'a Arc<dyn ObjectStore>,
    /// Its location in the store.
    pub location: &'a Path,
    /// The store's name of this version; without it, the store does not check that the version is unchanged.
    pub e_tag: Option<&'a str>,
    /// The open file, if the object is a local file.
    pub handle: &'a Handle,
    /// Memory that bytes of a local file are read into, on the calling thread; by default, heap memory, on another
    /// thread.
    pub buffers: Option<&'a Arc<dyn ReadBuffers>>,
}

/// The result of a read.
#[derive(Debug, Default)]
pub struct Parts {
    /// The bytes of each range; fewer if the object ends before.
    pub bytes: Vec<Bytes>,
    /// True if they come from a file of this machine.
    pub is_file: bool,
}

impl Version<'_> {
    /// Reads ascending ranges and returns their bytes in the same order. Ranges near each other are fetched together
    /// and distant ones in parallel. A local file, if it is known to be one, is read without the gaps.
    ///
    /// # Errors
    ///
    /// [`ReadError::Changed`] if the version has changed, and errors of the store.
    pub async fn fetch(self, ranges: &[Range<u64>], is_file: bool) -> Result<Vec<Bytes>> {
        // gaps of a file are not read
        let gap = if is_file { u64::MAX } else { GAP_BYTES };
        let requests = requests(ranges, gap);
        let gets: Vec<_> = requests.iter().map(|request| self.read(request)).collect();
        let fetched: Vec<Parts> = stream::iter(gets)
            .buffered(PARALLEL_REQUESTS)
            .try_collect()
            .await?;
        let mut fetched = fetched.into_iter().flat_map(|parts| parts.bytes);
        // Stores refuse to read nothing, so empty ranges were left out.
        let bytes = ranges.iter().map(|range| match range.is_empty() {
            true => Ok(Bytes::new()),
            false => fetched
                .next()
                .ok_or_else(|| ReadError::Internal("the store returned too few ranges".into())),
        });
        bytes.collect()
    }

    /// Reads ascending ranges with one request. A local file is read without the gaps between them.
    ///
    /// # Errors
    ///
    /// Those of [`fetch`](Self::fetch).
    pub async fn read(self, ranges: &[Range<u64>]) -> Result<Parts> {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return Ok(Parts::default());
        };
        if let Some(opened) = self.handle.0.get() {
            return self.read_file(opened.clone(), ranges).await;
        }
        let start = first.start;
        let options = GetOptions {
            range: Some((start..last.end).into()),
            if_match: self.condition(),
            ..GetOptions::default()
        };
        let got = self.store.get_opts(self.location, options).await;
        let got = got.map_err(|error| self.failed(error))?;
        match got.payload {
            GetResultPayload::File(file, _) => {
                let opened = Opened {
                    file: Arc::new(file),
                    modified: got.meta.last_modified.into(),
                    size: got.meta.size,
                };
                // another read may have been first: both are of this version
                let opened = self.handle.0.get_or_init(|| opened);
                self.read_file(opened.clone(), ranges).await
            }
            GetResultPayload::Stream(_) => {
                let bytes = got.bytes().await.map_err(|error| self.failed(error))?;
                let at = |offset: u64| bytes.len().min((offset - start) as usize);
                let parts = ranges.iter();
                let parts = parts.map(|range| bytes.slice(at(range.start)..at(range.end)));
                Ok(Parts {
                    bytes: parts.collect(),
                    is_file: false,
                })
            }
        }
    }

    /// Checks that the store still has this version, which was listed as `object`, without reading it. Without a strong
    /// tag, another version of the same size and second passes.
    ///
    /// # Errors
    ///
    /// Those of [`fetch`](Self::fetch).
    pub async fn check(self, object: &ObjectMeta) -> Result<()> {
        let condition = self.condition();
        let has_strong_tag = condition.is_some();
        let options = GetOptions {
            if_match: condition,
            head: true,
            ..GetOptions::default()
        };
        let got = self.store.get_opts(self.location, options).await;
        let now = got.map_err(|error| self.failed(error))?.meta;
        // not every store looks at the condition
        let is_same_tag = has_strong_tag && now.e_tag.as_deref() == self.e_tag;
        // listings may have fractions of seconds that answers to requests lack
        let is_same_time = now.last_modified.timestamp() == object.last_modified.timestamp();
        match now.size == object.size && (is_same_tag || is_same_time) {
            true => Ok(()),
            false => Err(self.changed()),
        }
    }

    /// The condition for the store to check; `None` for weak tags, which servers never match.
    fn condition(self) -> Option<String> {
        let strong = |tag: &&str| !tag.starts_with("W/");
        self.e_tag.filter(strong).map(str::to_owned)
    }

    async fn read_file(self, opened: Opened, ranges: &[Range<u64>]) -> Result<Parts> {
        let ranges = ranges.to_vec();
        let buffers = self.buffers.cloned();
        let read = move || -> io::Result<_> {
            let bytes = ranges.iter();
            let bytes = bytes.map(|range| read_range(&opened, range, buffers.as_deref()));
            let bytes = bytes.collect::<io::Result<Vec<_>>>()?;
            // A file written in place stays open as the same file.
            let after = opened.file.metadata()?;
            let is_same = (after.modified()?, after.len()) == (opened.modified, opened.size);
            Ok(is_same.then_some(bytes))
        };
        let read = match Runtime::try_current() {
            Ok(runtime) if self.buffers.is_none() => {
                let read = runtime.spawn_blocking(read).await;
                read.map_err(|error| ReadError::Internal(format!("reading ended early: {error}")))?
            }
            _ => read(),
        };
        match read {
            Ok(Some(bytes)) => Ok(Parts {
                bytes,
                is_file: true,
            }),
            Ok(None) => Err(self.changed()),
            Err(source) => Err(ReadError::File {
                file: self.location.clone(),
                source,
            }),
        }
    }

    fn failed(self, error: object_store::Error) -> ReadError {
        match error {
            object_store::Error::Precondition { .. } => self.changed(),
            error => error.into(),
        }
    }

    fn changed(self) -> ReadError {
        ReadError::Changed(self.location.clone())
    }
}

/// The nonempty ranges, in requests of about [`REQUEST_BYTES`] without gaps of more than `gap`.
fn requests(ranges: &[Range<u64>], gap: u64) -> Vec<Vec<Range<u64>>> {
    let mut requests: Vec<Vec<Range<u64>>> = Vec::new();
    let mut bytes = 0;
    for range in ranges.iter().filter(|range| !range.is_empty()) {
        let joins = |request: &&mut Vec<Range<u64>>| {
            let end = request.last().map_or(0, |last| last.end);
            bytes < REQUEST_BYTES && (end..=end.saturating_add(gap)).contains(&range.start)
        };
        match requests.last_mut().filter(joins) {
            Some(request) => request.push(range.clone()),
            None => {
                requests.push(vec![range.clone()]);
                bytes = 0;
            }
        }
        bytes += range.end - range.start;
    }
    requests
}

fn read_range(
    opened: &Opened,
    range: &Range<u64>,
    buffers: Option<&dyn ReadBuffers>,
) -> io::Result<Bytes> {
    // a damaged footer may request bytes beyond the end
    let len = range.end.min(opened.size).saturating_sub(range.start);
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    filled(buffers, len, |bytes| {
        read_all(&opened.file, bytes, range.start)
    })
}

/// Up to `len` bytes that `fill` writes, in memory of `buffers` if there is some, else of the heap. `fill` gets memory of
/// that length, and returns how many bytes it has written.
///
/// # Errors
///
/// Those of `fill`, and [`OutOfMemory`](io::ErrorKind::OutOfMemory).
pub fn filled<E: From<io::Error>>(
    buffers: Option<&dyn ReadBuffers>,
    len: usize,
    fill: impl FnOnce(&mut [u8]) -> std::result::Result<usize, E>,
) -> std::result::Result<Bytes, E> {
    if let Some(mut buffer) = buffers.and_then(|buffers| buffers.take(len)) {
        let bytes = (*buffer).as_mut().get_mut(..len).unwrap_or_default();
        let len = fill(bytes)?.min(bytes.len());
        return Ok(Bytes::from_owner(Filled { buffer, len }));
    }
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(len).is_err() {
        return Err(io::Error::from(io::ErrorKind::OutOfMemory).into());
    }
    bytes.resize(len, 0);
    let len = fill(&mut bytes)?;
    bytes.truncate(len);
    Ok(bytes.into())
}

/// Reads as many bytes as there are from `start` on, and returns their number.
fn read_all(file: &File, bytes: &mut [u8], start: u64) -> io::Result<usize> {
    let mut read = 0;
    while let Some(rest) = bytes.get_mut(read..).filter(|rest| !rest.is_empty()) {
        match read_at(file, rest, start + read as u64) {
            Ok(0) => break,
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, bytes, offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_fetches_are_split() {
        let step = REQUEST_BYTES / 2;
        let ranges: Vec<_> = (0..5).map(|i| i * step..(i + 1) * step).collect();
        let sizes: Vec<_> = requests(&ranges, GAP_BYTES).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 2, 1]);
        let far = GAP_BYTES + 1;
        let ranges = [0..1, 1..2, GAP_BYTES..far, 2 * far..3 * far];
        let sizes: Vec<_> = requests(&ranges, GAP_BYTES).iter().map(Vec::len).collect();
        assert_eq!(sizes, [3, 1]);
        assert_eq!(requests(&ranges, u64::MAX).len(), 1);
        // A file may say anything: ranges that overlap are read apart.
        assert_eq!(requests(&[5..9, 3..4, 8..9], u64::MAX).len(), 2);
        assert!(requests(&[5..5, 9..9], GAP_BYTES).is_empty());
    }
}
