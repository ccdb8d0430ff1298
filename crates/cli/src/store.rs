//! The object stores of the command line. They report problems that a user would otherwise have to guess: a server that
//! does not answer, a file name that cannot be used. Their listings skip files that tools leave beside the data, such
//! as `_SUCCESS`, `.part-0.crc` and incomplete uploads; each can still be read by its name.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use futures::executor::block_on_stream;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt, future};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    Attributes, CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult,
    MultipartUpload, ObjectMeta, ObjectStore, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, RenameOptions, Result,
};
use tokio::sync::mpsc;
use url::Url;
use vectile_file::GrowingParts;

use crate::error::with_sources;
use crate::text::printable;

/// How long a server may take before the user is informed. Stores retry for minutes.
const PATIENCE: Duration = Duration::from_secs(8);

/// The local file system. Listing skips files whose names or links cannot be used.
pub fn local() -> Arc<dyn ObjectStore> {
    let files = Arc::new(LocalFileSystem::new());
    Arc::new(Telling {
        inner: Arc::clone(&files) as _,
        local: Some(files),
        host: None,
        printed: PrintedLines::default(),
    })
}

/// A store behind a server.
pub fn remote(inner: Arc<dyn ObjectStore>, url: &Url) -> Arc<dyn ObjectStore> {
    Arc::new(Telling {
        inner,
        local: None,
        host: Some(url.host_str().unwrap_or(url.as_str()).to_string()),
        printed: PrintedLines::default(),
    })
}

#[derive(Clone, Debug)]
struct Telling {
    inner: Arc<dyn ObjectStore>,
    /// `inner`, if it is the local file system.
    local: Option<Arc<LocalFileSystem>>,
    /// The server; `None` if there is none to wait for.
    host: Option<String>,
    printed: PrintedLines,
}

/// The messages printed so far: tables are listed more than once.
#[derive(Clone, Debug, Default)]
struct PrintedLines(Arc<Mutex<BTreeSet<String>>>);

impl PrintedLines {
    fn print_once(&self, line: String) {
        let mut printed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !printed.contains(&line) {
            eprintln!("{}", printable(&line));
            printed.insert(line);
        }
    }
}

impl Telling {
    /// Runs `work`; prints a message if it takes long.
    async fn patiently<T>(&self, work: impl Future<Output = T>) -> T {
        let Some(host) = &self.host else {
            return work.await;
        };
        let mut work = std::pin::pin!(work);
        match tokio::time::timeout(PATIENCE, &mut work).await {
            Ok(done) => done,
            Err(_) => {
                self.printed.print_once(format!("waiting for {host} ..."));
                work.await
            }
        }
    }
}

type Listing = BoxStream<'static, Result<ObjectMeta>>;

/// Files listed ahead of their use.
const LISTED_AHEAD: usize = 1024;

/// Lists the usable local files. Uses a thread of its own: on a thread of the runtime, the store's listing ends at the
/// first error.
fn list_files(store: Arc<dyn ObjectStore>, prefix: Option<Path>, printed: PrintedLines) -> Listing {
    let (sender, mut receiver) = mpsc::channel(LISTED_AHEAD);
    let list = move || {
        for listed in block_on_stream(store.list(prefix.as_ref())) {
            let usable = match listed {
                Err(error) if is_unusable(&error) => {
                    let reason = with_sources(&error);
                    printed.print_once(format!("warning: passed over a file: {reason}"));
                    continue;
                }
                usable => usable,
            };
            if sender.blocking_send(usable).is_err() {
                return;
            }
        }
    };
    match std::thread::Builder::new().name("list".into()).spawn(list) {
        Ok(_) => futures::stream::poll_fn(move |context| receiver.poll_recv(context)).boxed(),
        Err(error) => {
            let source = Box::new(error);
            let store = "LocalFileSystem";
            futures::stream::once(future::ready(Err(Error::Generic { store, source }))).boxed()
        }
    }
}

impl Telling {
    /// Lists all objects below `prefix`, including hidden ones.
    fn list_all(&self, prefix: Option<&Path>) -> Listing {
        if self.host.is_none() {
            return list_files(
                Arc::clone(&self.inner),
                prefix.cloned(),
                self.printed.clone(),
            );
        }
        let listing = self.inner.list(prefix);
        let next = |(mut listing, telling): (Listing, Telling)| async move {
            let listed = telling.patiently(listing.next()).await?;
            Some((listed, (listing, telling)))
        };
        futures::stream::unfold((listing, self.clone()), next).boxed()
    }
}

/// The metadata that [`LocalFileSystem`] would return for a file: it opens and closes the file on another thread, and
/// queries need it before each run. `None` if it is not a file, which is left to the store.
#[cfg(unix)]
fn local_metadata(files: &LocalFileSystem, location: &Path) -> Option<ObjectMeta> {
    use std::os::unix::fs::MetadataExt;

    let metadata = std::fs::metadata(files.path_to_filesystem(location).ok()?).ok()?;
    let modified = metadata.modified().ok()?;
    let micros = modified.duration_since(UNIX_EPOCH).ok()?.as_micros();
    metadata.is_file().then(|| ObjectMeta {
        location: location.clone(),
        last_modified: modified.into(),
        size: metadata.len(),
        e_tag: Some(format!(
            "{:x}-{micros:x}-{:x}",
            metadata.ino(),
            metadata.len()
        )),
        version: None,
    })
}

#[cfg(not(unix))]
fn local_metadata(_: &LocalFileSystem, _: &Path) -> Option<ObjectMeta> {
    None
}

/// Returns true for names that are not text and links that form a cycle: other files do not depend on them.
fn is_unusable(error: &Error) -> bool {
    let reason = with_sources(error);
    matches!(error, Error::InvalidPath { .. })
        || reason.contains("File system loop found")
        || reason.contains("Too many levels of symbolic links")
}

/// Returns true if a part of the path below `prefix` begins with `.` or `_`; `_key=value` is a partition.
fn is_hidden(prefix: Option<&Path>, location: &Path) -> bool {
    let root = Path::default();
    let below = location.prefix_match(prefix.unwrap_or(&root));
    below.into_iter().flatten().any(|part| {
        let part = part.as_ref();
        part.starts_with('.') || (part.starts_with('_') && !part.contains('='))
    })
}

#[async_trait]
impl ObjectStore for Telling {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        self.patiently(self.inner.put_opts(location, payload, options))
            .await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let upload = self.patiently(self.inner.put_multipart_opts(location, options));
        let upload = upload.await?;
        Ok(match self.host {
            Some(_) => Box::new(GrowingParts::new(upload)),
            None => upload,
        })
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        if options.head
            && let Some(local) = &self.local
            && let Some(meta) = local_metadata(local, location)
            && options.check_preconditions(&meta).is_ok()
        {
            return Ok(GetResult {
                payload: GetResultPayload::Stream(futures::stream::empty().boxed()),
                range: 0..meta.size,
                attributes: Attributes::default(),
                meta,
            });
        }
        self.patiently(self.inner.get_opts(location, options)).await
    }

    async fn get_ranges(
        &self,
        location: &Path,
        ranges: &[std::ops::Range<u64>],
    ) -> Result<Vec<Bytes>> {
        self.patiently(self.inner.get_ranges(location, ranges))
            .await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let base = prefix.cloned();
        let shown =
            move |meta: &ObjectMeta| future::ready(!is_hidden(base.as_ref(), &meta.location));
        self.list_all(prefix).try_filter(shown).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let listed = self.patiently(self.inner.list_with_delimiter(prefix));
        let mut listed = listed.await?;
        listed
            .objects
            .retain(|meta| !is_hidden(prefix, &meta.location));
        listed
            .common_prefixes
            .retain(|path| !is_hidden(prefix, path));
        Ok(listed)
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.patiently(self.inner.copy_opts(from, to, options))
            .await
    }

    async fn rename_opts(&self, from: &Path, to: &Path, options: RenameOptions) -> Result<()> {
        self.patiently(self.inner.rename_opts(from, to, options))
            .await
    }
}

impl fmt::Display for Telling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use object_store::ObjectStoreExt;
    use object_store::memory::InMemory;

    #[tokio::test]
    async fn looking_at_a_file_tells_what_opening_it_does() {
        let folder = tempfile::tempdir().unwrap();
        let root = Path::from_absolute_path(folder.path()).unwrap();
        let file = folder.path().join("a b%c");
        std::fs::write(&file, "text").unwrap();
        let location = Path::from_absolute_path(&file).unwrap();
        let theirs = LocalFileSystem::new().head(&location).await.unwrap();
        assert_eq!(local().head(&location).await.unwrap(), theirs);
        assert_eq!(
            local_metadata(&LocalFileSystem::new(), &location),
            Some(theirs)
        );
        assert!(local().head(&root.clone().join("none")).await.is_err());
        assert!(local().head(&root).await.is_err(), "it is a folder");
        let options = GetOptions {
            head: true,
            if_match: Some("other".into()),
            ..GetOptions::default()
        };
        let other = local().get_opts(&location, options).await;
        assert!(matches!(other, Err(Error::Precondition { .. })));
    }

    #[tokio::test]
    async fn listings_pass_over_hidden_names() {
        let url = Url::parse("mem://bucket").unwrap();
        let store = remote(Arc::new(InMemory::new()), &url);
        for name in ["a", "_b", ".c", "d/_e/f", "_k=v/g", "_dir/h", "_dir/_i"] {
            store.put(&Path::from(name), "x".into()).await.unwrap();
        }
        for (prefix, expected) in [(None, vec!["_k=v/g", "a"]), (Some("_dir"), vec!["_dir/h"])] {
            let prefix = prefix.map(Path::from);
            let listed = store.list(prefix.as_ref()).map_ok(|meta| meta.location);
            let mut listed: Vec<Path> = listed.try_collect().await.unwrap();
            listed.sort();
            assert_eq!(
                listed,
                expected.into_iter().map(Path::from).collect::<Vec<_>>()
            );
        }
        let top = store.list_with_delimiter(None).await.unwrap();
        assert_eq!(top.objects.len(), 1);
        assert_eq!(top.common_prefixes, [Path::from("_k=v"), Path::from("d")]);
        assert!(store.get(&Path::from("_b")).await.is_ok(), "it has a name");
    }
}
