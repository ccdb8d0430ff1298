//! Reads bytes of one version of a file.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore};
use vectile_scan::object::{Handle, Version};

use crate::error::{ErrorOrigin, Result, corrupt};

/// One version of an object, as it was listed.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    store: Arc<dyn ObjectStore>,
    pub(crate) location: Path,
    pub(crate) file: Arc<str>,
    e_tag: Option<String>,
    /// True if a read has shown that it is a local file.
    is_file: bool,
}

impl Object {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, meta: &ObjectMeta) -> Self {
        Self {
            store,
            location: meta.location.clone(),
            file: meta.location.as_ref().into(),
            e_tag: meta.e_tag.clone(),
            is_file: false,
        }
    }

    /// Reads ascending ranges and returns their bytes in the same order.
    pub(crate) async fn read(&self, handle: &Handle, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let read = self.version(handle).fetch(ranges, self.is_file).await?;
        let mut both = ranges.iter().zip(&read);
        both.try_for_each(|(range, bytes)| self.check(range, bytes))?;
        Ok(read)
    }

    /// Reads one range, which is not empty unless the object is.
    pub(crate) async fn read_one(&mut self, handle: &Handle, range: Range<u64>) -> Result<Bytes> {
        if range.is_empty() {
            return Ok(Bytes::new());
        }
        let version = self.version(handle);
        let mut read = version.read(std::slice::from_ref(&range)).await?;
        let bytes = read.bytes.pop().unwrap_or_default();
        self.is_file = read.is_file;
        self.check(&range, &bytes)?;
        Ok(bytes)
    }

    fn version<'a>(&'a self, handle: &'a Handle) -> Version<'a> {
        Version {
            store: &self.store,
            location: &self.location,
            e_tag: self.e_tag.as_deref(),
            handle,
            buffers: None,
        }
    }

    /// Checks the length: stores return less if a file has become shorter since it was listed.
    fn check(&self, range: &Range<u64>, bytes: &Bytes) -> Result<()> {
        let (actual, expected) = (bytes.len() as u64, range.end.saturating_sub(range.start));
        if actual == expected {
            return Ok(());
        }
        corrupt(format!(
            "{actual} bytes were read where {expected} should be"
        ))
        .map_err(|fault| ErrorOrigin::file(&self.file).fault(fault))
    }
}
