//! The object that a writer fills: a multipart upload, which the store shows when it is complete.

use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, WriteMultipart};

use crate::error::{Error, Result};
use crate::parts::GrowingParts;

/// Bytes of the first parts of an upload: object stores take at least 5 MiB.
const PART_BYTES: usize = 16 << 20;

/// Parts of an upload under way at the same time.
const PARALLEL_PARTS: usize = 4;

/// The object as it grows.
#[derive(Debug)]
pub(crate) struct Output {
    store: Arc<dyn ObjectStore>,
    location: Path,
    /// The start of the file, until the upload is open.
    header: Option<Bytes>,
    upload: Option<WriteMultipart>,
    /// Bytes so far.
    pub(crate) offset: u64,
}

impl Output {
    pub(crate) fn new(store: Arc<dyn ObjectStore>, location: Path, header: Vec<u8>) -> Self {
        Self {
            store,
            location,
            header: Some(header.into()),
            upload: None,
            offset: 0,
        }
    }

    /// Starts the upload, the first time.
    pub(crate) async fn open(&mut self) -> Result<()> {
        if self.header.is_some() {
            let upload = self.store.put_multipart(&self.location).await?;
            let upload = Box::new(GrowingParts::new(upload));
            self.upload = Some(WriteMultipart::new_with_chunk_size(upload, PART_BYTES));
        }
        match self.header.take() {
            Some(header) => self.put(header),
            None => Ok(()),
        }
    }

    pub(crate) fn put(&mut self, bytes: Bytes) -> Result<()> {
        let Some(upload) = &mut self.upload else {
            return Err(Error::Internal("the output is not open".into()));
        };
        self.offset += bytes.len() as u64;
        upload.put(bytes);
        Ok(())
    }

    /// Waits until few parts are under way.
    pub(crate) async fn wait(&mut self) -> Result<()> {
        if let Some(upload) = &mut self.upload {
            upload.wait_for_capacity(PARALLEL_PARTS).await?;
        }
        Ok(())
    }

    pub(crate) async fn complete(&mut self) -> Result<()> {
        if let Some(upload) = self.upload.take() {
            upload.finish().await?;
        }
        Ok(())
    }

    pub(crate) async fn abort(&mut self) -> Result<()> {
        if let Some(upload) = self.upload.take() {
            upload.abort().await?;
        }
        Ok(())
    }

    /// Stores do not all clean up when an upload is dropped; without a runtime, that has to do.
    pub(crate) fn abort_in_background(&mut self) {
        if let (Some(upload), Ok(runtime)) =
            (self.upload.take(), tokio::runtime::Handle::try_current())
        {
            runtime.spawn(upload.abort());
        }
    }
}
