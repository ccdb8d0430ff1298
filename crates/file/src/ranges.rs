//! Reads bytes of one version of a file: an object that is replaced while it is read is an error, never a mixture of
//! two.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{GetOptions, GetResultPayload, ObjectMeta, ObjectStore};
use tokio::runtime::Handle;

use crate::error::{Error, Result};

/// An object as it was when it was listed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Version<'a> {
    pub(crate) store: &'a Arc<dyn ObjectStore>,
    pub(crate) location: &'a Path,
    /// What the store calls this version; without it, the store is not asked whether it is still the same.
    pub(crate) e_tag: Option<&'a str>,
}

impl Version<'_> {
    /// The bytes of one range; fewer where the object ends before.
    pub(crate) async fn read(self, range: Range<u64>) -> Result<Bytes> {
        let mut bytes = self.read_all(std::slice::from_ref(&range)).await?;
        Ok(bytes.pop().unwrap_or_default())
    }

    /// The bytes of ascending ranges, with one request. A local file is read without the gaps between them.
    pub(crate) async fn read_all(self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            return Ok(Vec::new());
        };
        let start = first.start;
        let options = GetOptions {
            range: Some((start..last.end).into()),
            if_match: self.condition(),
            ..GetOptions::default()
        };
        let got = self.store.get_opts(self.location, options).await;
        let got = got.map_err(|error| self.failed(error))?;
        match got.payload {
            GetResultPayload::File(file, _) => self.read_file(file, &got.meta, ranges).await,
            GetResultPayload::Stream(_) => {
                let bytes = got.bytes().await.map_err(|error| self.failed(error))?;
                let at = |offset: u64| bytes.len().min((offset - start) as usize);
                let parts = ranges.iter();
                Ok(parts
                    .map(|range| bytes.slice(at(range.start)..at(range.end)))
                    .collect())
            }
        }
    }

    /// Servers never match a weak tag.
    fn condition(self) -> Option<String> {
        let strong = |tag: &&str| !tag.starts_with("W/");
        self.e_tag.filter(strong).map(str::to_owned)
    }

    async fn read_file(
        self,
        mut file: File,
        meta: &ObjectMeta,
        ranges: &[Range<u64>],
    ) -> Result<Vec<Bytes>> {
        let before = (SystemTime::from(meta.last_modified), meta.size);
        let ranges = ranges.to_vec();
        let mut read = move || -> io::Result<_> {
            let bytes = ranges.iter().map(|range| read_range(&mut file, range));
            let bytes = bytes.collect::<io::Result<Vec<_>>>()?;
            // A file that is written in place stays open as the same one.
            let after = file.metadata()?;
            Ok(((after.modified()?, after.len()) == before).then_some(bytes))
        };
        let read = match Handle::try_current() {
            Ok(runtime) => {
                let read = runtime.spawn_blocking(read).await;
                read.map_err(|error| Error::Internal(format!("reading ended early: {error}")))?
            }
            Err(_) => read(),
        };
        match read {
            Ok(Some(bytes)) => Ok(bytes),
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

fn read_range(file: &mut File, range: &Range<u64>) -> io::Result<Bytes> {
    let len = range.end - range.start;
    let mut bytes = Vec::new();
    let fits = usize::try_from(len).map(|len| bytes.try_reserve_exact(len));
    if !matches!(fits, Ok(Ok(()))) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    file.seek(SeekFrom::Start(range.start))?;
    file.take(len).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}
