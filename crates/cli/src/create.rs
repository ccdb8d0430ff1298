//! Creates a file that must not exist yet: of several programs that create it, one succeeds and the
//! others fail.

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use futures::FutureExt;
use futures::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, UploadPart,
};
use tokio::task::spawn_blocking;

/// A store of one object, which it creates but does not replace.
///
/// This is exact for local files, and for stores that take an object in one request and support the
/// condition. Stores support no condition on the last of several parts: there, the existence of the
/// object is checked just before it.
#[derive(Debug)]
pub struct CreateOnly {
    store: Arc<dyn ObjectStore>,
    /// The path of the object, if it is a local file.
    local: Option<PathBuf>,
}

impl CreateOnly {
    /// Wraps `store` for an object; `local` is its path if it is a local file.
    pub fn new(store: Arc<dyn ObjectStore>, local: Option<PathBuf>) -> Self {
        CreateOnly { store, local }
    }
}

async fn check_absent(store: &dyn ObjectStore, location: &Path) -> Result<()> {
    match store.head(location).await {
        Ok(_) => Err(exists(location.to_string())),
        Err(Error::NotFound { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn exists(path: String) -> Error {
    let source = "it was made meanwhile; --force replaces it".into();
    Error::AlreadyExists { path, source }
}

#[async_trait]
impl ObjectStore for CreateOnly {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        options.mode = PutMode::Create;
        let put = self
            .store
            .put_opts(location, payload.clone(), options.clone());
        match put.await {
            Err(Error::AlreadyExists { path, .. }) => Err(exists(path)),
            Err(Error::NotImplemented { .. }) => {
                check_absent(self.store.as_ref(), location).await?;
                options.mode = PutMode::Overwrite;
                self.store.put_opts(location, payload, options).await
            }
            put => put,
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        if let Some(path) = self.local.clone() {
            return Ok(Box::new(blocking(move || LocalUpload::start(path)).await?));
        }
        Ok(Box::new(CheckedUpload {
            upload: self.store.put_multipart_opts(location, options).await?,
            store: Arc::clone(&self.store),
            location: location.clone(),
        }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.store.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.store.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.store.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.store.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.store.copy_opts(from, to, options).await
    }
}

impl fmt::Display for CreateOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.store.fmt(f)
    }
}

/// An upload that checks that the object does not exist before it completes.
#[derive(Debug)]
struct CheckedUpload {
    upload: Box<dyn MultipartUpload>,
    store: Arc<dyn ObjectStore>,
    location: Path,
}

#[async_trait]
impl MultipartUpload for CheckedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.upload.put_part(data)
    }

    async fn complete(&mut self) -> Result<PutResult> {
        if let Err(error) = check_absent(self.store.as_ref(), &self.location).await {
            // The first error says more than one of the cleanup.
            let _ = self.upload.abort().await;
            return Err(error);
        }
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

/// The store's name in errors.
const STORE: &str = "LocalFileSystem";

/// A file under another name, `NAME#1` like those of `object_store`, which its listings pass over.
#[derive(Debug)]
struct LocalUpload {
    file: Arc<File>,
    path: PathBuf,
    /// The temporary name, until the file is renamed or removed.
    staged: Option<PathBuf>,
    offset: u64,
}

impl LocalUpload {
    fn start(path: PathBuf) -> io::Result<Self> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let mut number = 1;
        loop {
            let mut staged = path.clone().into_os_string();
            staged.push(format!("#{number}"));
            let options = File::options()
                .read(true)
                .write(true)
                .create_new(true)
                .open(&staged);
            match options {
                Ok(file) => {
                    return Ok(LocalUpload {
                        file: Arc::new(file),
                        path,
                        staged: Some(staged.into()),
                        offset: 0,
                    });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

#[async_trait]
impl MultipartUpload for LocalUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let file = Arc::clone(&self.file);
        let mut at = self.offset;
        self.offset += data.content_length() as u64;
        let write = move || {
            data.iter().try_for_each(|bytes| {
                write_at(&file, bytes, at)?;
                at += bytes.len() as u64;
                Ok(())
            })
        };
        blocking(write).boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let staged = self.staged.clone().ok_or_else(ended)?;
        let path = self.path.clone();
        blocking(move || name(&staged, &path)).await?;
        self.staged = None;
        Ok(PutResult {
            e_tag: None,
            version: None,
        })
    }

    async fn abort(&mut self) -> Result<()> {
        let staged = self.staged.take().ok_or_else(ended)?;
        blocking(move || std::fs::remove_file(staged)).await
    }
}

impl Drop for LocalUpload {
    fn drop(&mut self) {
        if let Some(staged) = self.staged.take() {
            // Nothing can report this error.
            let _ = std::fs::remove_file(staged);
        }
    }
}

fn ended() -> Error {
    let source = "the upload has ended".into();
    Error::Generic {
        store: STORE,
        source,
    }
}

/// Gives a file its name if no other file has it.
fn name(staged: &FsPath, path: &FsPath) -> io::Result<()> {
    match std::fs::hard_link(staged, path) {
        Ok(()) => std::fs::remove_file(staged),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Err(error),
        // Not every file system has hard links.
        Err(_) if path.try_exists()? => Err(ErrorKind::AlreadyExists.into()),
        Err(_) => std::fs::rename(staged, path),
    }
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, at)
}

#[cfg(windows)]
fn write_at(file: &File, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, at)?;
        bytes = bytes.get(written..).unwrap_or_default();
        at += written as u64;
    }
    Ok(())
}

/// Runs `work`, which waits for a disk, on a thread that may block.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T> {
    let source = match spawn_blocking(work).await {
        Ok(Ok(done)) => return Ok(done),
        Ok(Err(error)) if error.kind() == ErrorKind::AlreadyExists => {
            return Err(exists("a file of this name".into()));
        }
        Ok(Err(error)) => error.into(),
        Err(error) => error.into(),
    };
    Err(Error::Generic {
        store: STORE,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::local::LocalFileSystem;
    use object_store::memory::InMemory;

    /// Another writer creates the object after the upload to it has started.
    async fn race(store: Arc<dyn ObjectStore>, local: Option<PathBuf>, location: &Path) {
        let ours = CreateOnly::new(Arc::clone(&store), local);
        let mut upload = ours.put_multipart(location).await.unwrap();
        upload.put_part("ours".into()).await.unwrap();
        store.put(location, "theirs".into()).await.unwrap();
        for result in [
            upload.complete().await,
            ours.put(location, "ours".into()).await,
        ] {
            assert!(
                matches!(result, Err(Error::AlreadyExists { .. })),
                "{result:?}"
            );
        }
        drop(upload);
        let kept = store.get(location).await.unwrap().bytes().await.unwrap();
        assert_eq!(kept, "theirs");
        store.delete(location).await.unwrap();

        let mut upload = ours.put_multipart(location).await.unwrap();
        for part in ["by", " us"] {
            upload.put_part(part.into()).await.unwrap();
        }
        upload.complete().await.unwrap();
        let created = store.get(location).await.unwrap().bytes().await.unwrap();
        assert_eq!(created, "by us");
    }

    #[tokio::test]
    async fn who_comes_second_fails() {
        let location = Path::from("a/b.vectile");
        race(Arc::new(InMemory::new()), None, &location).await;
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(LocalFileSystem::new_with_prefix(dir.path()).unwrap());
        let local = dir.path().join("a").join("b.vectile");
        race(store, Some(local.clone()), &location).await;
        let files = std::fs::read_dir(local.parent().unwrap()).unwrap();
        assert_eq!(files.count(), 1, "nothing else is left");
    }
}
