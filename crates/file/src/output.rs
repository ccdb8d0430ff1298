//! The object that a writer fills: a multipart upload, which the store shows when it is complete.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayloadMut};
use tokio::task::JoinSet;

use crate::error::{Error, Result};
use crate::parts::GrowingParts;
use crate::sync;

/// Bytes of the first parts of an upload: object stores take at least 5 MiB.
const PART_BYTES: usize = 16 << 20;

/// Parts of an upload in flight at the same time.
const PARALLEL_PARTS: usize = 4;

/// The object being written. Dropping it discards it, unless it is complete.
#[derive(Debug)]
pub(crate) struct Output {
    store: Arc<dyn ObjectStore>,
    location: Path,
    /// Its path, if the store is a local file system.
    path: Option<PathBuf>,
    /// Directories to sync when the object is complete.
    directories: BTreeSet<PathBuf>,
    /// The start of the file, until the upload is open.
    header: Option<Bytes>,
    upload: Option<Box<dyn MultipartUpload>>,
    /// The part that is not yet full.
    part: PutPayloadMut,
    /// Uploads in flight.
    parts: JoinSet<object_store::Result<()>>,
    /// Bytes written so far.
    pub(crate) offset: u64,
    /// Time the writer waited for uploads.
    pub(crate) waited: Duration,
}

impl Output {
    /// An object that is not yet open. `local_root` is the directory that the store's locations are relative to, if
    /// they are local files.
    pub(crate) fn new(
        store: Arc<dyn ObjectStore>,
        location: Path,
        local_root: Option<&std::path::Path>,
        header: Vec<u8>,
    ) -> Self {
        Self {
            path: local_root.map(|root| root.join(location.as_ref())),
            directories: BTreeSet::new(),
            store,
            location,
            header: Some(header.into()),
            upload: None,
            part: PutPayloadMut::new(),
            parts: JoinSet::new(),
            offset: 0,
            waited: Duration::ZERO,
        }
    }

    /// Starts the upload on the first call.
    pub(crate) async fn open(&mut self) -> Result<()> {
        let Some(header) = self.header.take() else {
            return Ok(());
        };
        if let Some(path) = &self.path {
            self.directories = sync::directories_of(path);
        }
        let upload = self.store.put_multipart(&self.location).await?;
        self.upload = Some(match self.path {
            // files take any number of parts
            Some(_) => upload,
            None => Box::new(GrowingParts::new(upload)),
        });
        self.put(header)
    }

    pub(crate) fn put(&mut self, mut bytes: Bytes) -> Result<()> {
        self.offset += bytes.len() as u64;
        while !bytes.is_empty() {
            let room = PART_BYTES - self.part.content_length();
            self.part.push(bytes.split_to(room.min(bytes.len())));
            if self.part.content_length() == PART_BYTES {
                self.send_part()?;
            }
        }
        Ok(())
    }

    fn send_part(&mut self) -> Result<()> {
        let Some(upload) = &mut self.upload else {
            return Err(Error::Internal("the output is not open".into()));
        };
        let part = std::mem::take(&mut self.part);
        self.parts.spawn(upload.put_part(part.freeze()));
        Ok(())
    }

    /// Waits until few parts are in flight.
    pub(crate) async fn wait(&mut self) -> Result<()> {
        self.wait_for(PARALLEL_PARTS).await
    }

    /// Waits until fewer than `most` parts are in flight.
    async fn wait_for(&mut self, most: usize) -> Result<()> {
        let started = Instant::now();
        while self.parts.len() >= most {
            let Some(part) = self.parts.join_next().await else {
                break;
            };
            part.map_err(|error| Error::Internal(format!("an upload ended early: {error}")))??;
        }
        self.waited += started.elapsed();
        Ok(())
    }

    /// Sends as much as the store allows: files take parts of any size.
    pub(crate) async fn relieve(&mut self) -> Result<()> {
        if self.path.is_some() && !self.part.is_empty() {
            self.send_part()?;
        }
        self.wait_for(1).await
    }

    /// Bytes in memory that are not sent yet.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.part.content_length() + self.parts.len() * PART_BYTES
    }

    /// Sends the rest, so that only the name is missing.
    pub(crate) async fn flush(&mut self) -> Result<()> {
        if !self.part.is_empty() {
            self.send_part()?;
        }
        self.wait_for(1).await?;
        match self.path.clone() {
            Some(path) => {
                let started = Instant::now();
                let file = self.location.to_string();
                sync::blocking(file, move || sync::sync_uploads(&path).map(drop)).await?;
                self.waited += started.elapsed();
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Makes the object visible.
    pub(crate) async fn complete(&mut self) -> Result<()> {
        if let Some(mut upload) = self.upload.take()
            && let Err(error) = upload.complete().await
        {
            // The first error says more than one of the cleanup.
            let _ = upload.abort().await;
            return Err(error.into());
        }
        Ok(())
    }

    /// Removes an object that is complete.
    pub(crate) async fn delete(&mut self) -> Result<()> {
        Ok(self.store.delete(&self.location).await?)
    }

    pub(crate) fn location(&self) -> &Path {
        &self.location
    }

    /// Directories to sync when the object is complete.
    pub(crate) fn directories(&self) -> &BTreeSet<PathBuf> {
        &self.directories
    }

    pub(crate) async fn abort(&mut self) -> Result<()> {
        self.parts.shutdown().await;
        if let Some(mut upload) = self.upload.take() {
            upload.abort().await?;
        }
        Ok(())
    }
}

/// Not all stores clean up when an upload is dropped, so this aborts it; without a runtime, dropping must suffice.
impl Drop for Output {
    fn drop(&mut self) {
        if let (Some(mut upload), Ok(runtime)) =
            (self.upload.take(), tokio::runtime::Handle::try_current())
        {
            let mut parts = std::mem::take(&mut self.parts);
            runtime.spawn(async move {
                parts.shutdown().await;
                upload.abort().await
            });
        }
    }
}
