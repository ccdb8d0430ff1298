//! Reads bytes of one version of a file.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{GetOptions, ObjectMeta, ObjectStore};

use crate::error::{Error, Place, Result, corrupt};

/// Ranges that are no farther apart are read together.
const GAP_BYTES: u64 = 64 << 10;

/// A request ends with the range that makes it so large.
const REQUEST_BYTES: u64 = 8 << 20;

/// Requests at the same time.
const PARALLEL_REQUESTS: usize = 8;

/// An object as it was when it was listed.
#[derive(Clone, Debug)]
pub(crate) struct Object {
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) location: Path,
    pub(crate) file: Arc<str>,
    e_tag: Option<String>,
}

impl Object {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, meta: &ObjectMeta) -> Self {
        Self {
            store,
            location: meta.location.clone(),
            file: meta.location.as_ref().into(),
            // servers never match a weak tag
            e_tag: meta.e_tag.clone().filter(|tag| !tag.starts_with("W/")),
        }
    }

    /// The bytes of ascending ranges, in the same order.
    pub(crate) async fn read(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let requests = requests(ranges);
        let gets: Vec<_> = requests.iter().map(|request| self.get(request)).collect();
        let parts: Vec<Vec<Bytes>> = stream::iter(gets)
            .buffered(PARALLEL_REQUESTS)
            .try_collect()
            .await?;
        Ok(parts.into_iter().flatten().collect())
    }

    /// The bytes of one range.
    pub(crate) async fn read_one(&self, range: Range<u64>) -> Result<Bytes> {
        let parts = self.get(std::slice::from_ref(&range)).await?;
        Ok(parts.into_iter().next().unwrap_or_default())
    }

    /// The bytes of ranges, by one request.
    async fn get(&self, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let start = ranges.first().map_or(0, |range| range.start);
        let end = ranges.iter().map(|range| range.end).max().unwrap_or(start);
        // stores refuse to read nothing
        let bytes = match start < end {
            true => self.get_range(start..end).await?,
            false => Bytes::new(),
        };
        let at = |offset: u64| bytes.len().min((offset - start) as usize);
        Ok(ranges
            .iter()
            .map(|range| bytes.slice(at(range.start)..at(range.end)))
            .collect())
    }

    async fn get_range(&self, range: Range<u64>) -> Result<Bytes> {
        let expected = range.end - range.start;
        let options = GetOptions {
            range: Some(range.into()),
            if_match: self.e_tag.clone(),
            ..GetOptions::default()
        };
        let got = self.store.get_opts(&self.location, options).await;
        let bytes = match got {
            Ok(got) => got.bytes().await,
            Err(error) => Err(error),
        };
        let bytes = bytes.map_err(|error| self.failed(error))?;
        match bytes.len() as u64 == expected {
            true => Ok(bytes),
            false => {
                let reason = format!("{} bytes were read where {expected} should be", bytes.len());
                corrupt(reason).map_err(|fault| Place::file(&self.file).fault(fault))
            }
        }
    }

    fn failed(&self, error: object_store::Error) -> Error {
        match error {
            object_store::Error::Precondition { .. } => Error::Changed {
                file: Arc::clone(&self.file),
            },
            error => Error::ObjectStore(error),
        }
    }
}

/// Neighbours among `ranges`, in requests of about [`REQUEST_BYTES`].
fn requests(ranges: &[Range<u64>]) -> Vec<&[Range<u64>]> {
    // of a request up to the next range, gaps among them
    let mut bytes = 0u64;
    let joins = |before: &Range<u64>, next: &Range<u64>| {
        bytes = bytes.saturating_add(next.start.saturating_sub(before.start));
        let gap = before.end..=before.end.saturating_add(GAP_BYTES);
        let joins = bytes < REQUEST_BYTES && gap.contains(&next.start);
        if !joins {
            bytes = 0;
        }
        joins
    };
    ranges.chunk_by(joins).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_read_together() {
        let lengths = |ranges: &[Range<u64>]| -> Vec<usize> {
            requests(ranges).into_iter().map(<[_]>::len).collect()
        };
        let far = GAP_BYTES + 2;
        assert_eq!(
            lengths(&[0..1, 1..2, far..far + 1, 3 * far..4 * far]),
            [3, 1]
        );
        let half = REQUEST_BYTES / 2;
        let large: Vec<_> = (0..5).map(|i| i * half..(i + 1) * half).collect();
        assert_eq!(lengths(&large), [2, 2, 1]);
        assert_eq!(lengths(&[]), [0usize; 0]);
        let apart: Vec<_> = (0..300).map(|i| i * GAP_BYTES..i * GAP_BYTES + 1).collect();
        assert_eq!(lengths(&apart), [128, 128, 44]);
        // a file may say anything
        assert_eq!(lengths(&[5..9, 3..4, 8..9]), [1, 2]);
    }
}
