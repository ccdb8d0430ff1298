//! Durability: syncs the bytes of a file before it has its name, and then the name.

use std::collections::BTreeSet;
use std::fs::{File, read_dir};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use crate::error::{Error, Result};

/// Runs a blocking operation on `file`.
pub(crate) async fn blocking(
    file: String,
    sync: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> Result<()> {
    let synced = spawn_blocking(sync).await;
    let synced =
        synced.map_err(|error| Error::Internal(format!("syncing ended early: {error}")))?;
    synced.map_err(|source| Error::File { file, source })
}

/// Syncs the uploads to `path` that are in progress, and returns their number. `object_store` keeps them beside it, as
/// `NAME#1`.
pub(crate) fn sync_uploads(path: &Path) -> io::Result<usize> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(0);
    };
    let mut synced = 0;
    let mut prefix = name.to_owned();
    prefix.push("#");
    for entry in read_dir(directory)? {
        let entry = entry?;
        let upload = entry.file_name();
        let is_upload = upload
            .as_encoded_bytes()
            .strip_prefix(prefix.as_encoded_bytes())
            .is_some_and(|number| number.iter().all(u8::is_ascii_digit));
        if is_upload {
            match File::open(entry.path()) {
                Ok(file) => {
                    tolerate(file.sync_all())?;
                    synced += 1;
                }
                // The file of another upload, which has ended.
                Err(error) if error.kind() == ErrorKind::NotFound => (),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(synced)
}

/// The directories to sync for a file that does not exist yet: its own, and if that does not exist either, those up to
/// the first that does.
pub(crate) fn directories_of(path: &Path) -> BTreeSet<PathBuf> {
    let mut directories = BTreeSet::new();
    for directory in path.ancestors().skip(1) {
        directories.insert(directory.to_owned());
        if directory.exists() {
            break;
        }
    }
    directories
}

/// Waits until the file at `path`, which is complete, and its name are on disk.
///
/// [`Writer`](crate::Writer) does so itself; this is for files of other formats beside it. Where a file system
/// cannot sync, this does nothing.
///
/// # Errors
/// If the file cannot be opened, or the disk reports an error.
pub fn sync_file(path: &Path) -> io::Result<()> {
    tolerate(File::open(path)?.sync_all())?;
    path.parent().map_or(Ok(()), sync_directory)
}

/// Syncs the names in a directory.
#[cfg(unix)]
pub(crate) fn sync_directory(directory: &Path) -> io::Result<()> {
    tolerate(File::open(directory)?.sync_all())
}

/// Other systems offer no way to do this.
#[cfg(not(unix))]
pub(crate) fn sync_directory(_directory: &Path) -> io::Result<()> {
    Ok(())
}

/// Ignores errors of file systems that cannot sync.
fn tolerate(synced: io::Result<()>) -> io::Result<()> {
    match synced {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidInput | ErrorKind::Unsupported
            ) =>
        {
            Ok(())
        }
        synced => synced,
    }
}

#[cfg(test)]
mod tests {
    use object_store::local::LocalFileSystem;
    use object_store::{ObjectStoreExt, path::Path as Location};

    use super::*;

    #[tokio::test]
    async fn finds_the_uploads_that_are_under_way() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalFileSystem::new_with_prefix(dir.path()).unwrap();
        let path = dir.path().join("p=1/t.vectile");
        let directories = directories_of(&path);
        assert!(directories.contains(dir.path()) && directories.contains(&dir.path().join("p=1")));
        assert_eq!(directories.len(), 2);
        let location = Location::from("p=1/t.vectile");
        let _first = store.put_multipart(&location).await.unwrap();
        let _second = store.put_multipart(&location).await.unwrap();
        let _other = store.put_multipart(&Location::from("p=1/t.vectile2")).await;
        assert_eq!(sync_uploads(&path).unwrap(), 2);
        assert_eq!(directories_of(&path).len(), 1);
        for directory in directories {
            sync_directory(&directory).unwrap();
        }
        assert!(sync_file(&path).is_err());
        File::create(&path).unwrap();
        sync_file(&path).unwrap();
    }
}
