//! Reads bytes of one version of a file, never a mixture of two. A local file stays open, so that it may get another
//! name or none; an object that is replaced, or a file that is written in place, is an error.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetResultPayload, ObjectStore};
use tokio::runtime::Handle as Runtime;

use crate::error::{Error, Result};

/// A file of this machine that stays open from one read to the next, so that a read is one step. It is of one object:
/// make one for each scan of a file.
#[derive(Debug, Default)]
pub(crate) struct Handle(OnceLock<Opened>);

#[derive(Debug, Clone)]
struct Opened {
    file: Arc<File>,
    /// When it was opened.
    modified: SystemTime,
    size: u64,
}

/// Memory that bytes of local files are read into, instead of that of the heap.
pub trait ReadBuffers: fmt::Debug + Send + Sync {
    /// Memory for `bytes`; `None` while there is none.
    fn take(&self, bytes: usize) -> Option<Box<dyn ReadBuffer>>;
}

/// Memory that bytes are read into, and that is given back when the last of them is dropped.
pub trait ReadBuffer: AsRef<[u8]> + AsMut<[u8]> + Send + Sync {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send + Sync> ReadBuffer for T {}

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

/// An object as it was when it was listed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version<'a> {
    pub(crate) store: &'a Arc<dyn ObjectStore>,
    pub(crate) location: &'a Path,
    /// What the store calls this version; without it, the store is not asked whether it is still the same.
    pub(crate) e_tag: Option<&'a str>,
    pub(crate) handle: &'a Handle,
    /// Where bytes of a local file are put, by the thread that asks for them.
    pub(crate) buffers: Option<&'a Arc<dyn ReadBuffers>>,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// The bytes of each range; fewer where the object ends before.
    pub(crate) bytes: Vec<Bytes>,
    /// Whether they are from a file of this machine.
    pub(crate) is_file: bool,
}

impl Version<'_> {
    /// The bytes of ascending ranges, with one request. A local file is read without the gaps between them.
    pub(crate) async fn read(self, ranges: &[Range<u64>]) -> Result<Parts> {
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

    /// Servers never match a weak tag.
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
            // A file that is written in place stays open as the same one.
            let after = opened.file.metadata()?;
            let is_same = (after.modified()?, after.len()) == (opened.modified, opened.size);
            Ok(is_same.then_some(bytes))
        };
        let read = match Runtime::try_current() {
            Ok(runtime) if self.buffers.is_none() => {
                let read = runtime.spawn_blocking(read).await;
                read.map_err(|error| Error::Internal(format!("reading ended early: {error}")))?
            }
            _ => read(),
        };
        match read {
            Ok(Some(bytes)) => Ok(Parts {
                bytes,
                is_file: true,
            }),
            Ok(None) => Err(self.changed()),
            Err(source) => Err(Error::File {
                file: self.location.to_string(),
                source,
            }),
        }
    }

    fn failed(self, error: object_store::Error) -> Error {
        match error {
            object_store::Error::Precondition { .. } => self.changed(),
            error => error.into(),
        }
    }

    fn changed(self) -> Error {
        Error::Changed {
            file: self.location.to_string(),
        }
    }
}

fn read_range(
    opened: &Opened,
    range: &Range<u64>,
    buffers: Option<&dyn ReadBuffers>,
) -> io::Result<Bytes> {
    // a damaged footer may ask for more than there is
    let len = range.end.min(opened.size).saturating_sub(range.start);
    let len = usize::try_from(len).unwrap_or(usize::MAX);
    if let Some(mut buffer) = buffers.and_then(|buffers| buffers.take(len)) {
        let bytes = (*buffer).as_mut().get_mut(..len).unwrap_or_default();
        let len = read_all(&opened.file, bytes, range.start)?;
        return Ok(Bytes::from_owner(Filled { buffer, len }));
    }
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(len).is_err() {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    bytes.resize(len, 0);
    let len = read_all(&opened.file, &mut bytes, range.start)?;
    bytes.truncate(len);
    Ok(bytes.into())
}

/// Reads what there is from `start` on, and tells how much that was.
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
