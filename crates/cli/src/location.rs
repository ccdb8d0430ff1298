//! Parses paths, globs and URLs into object store locations.

use std::collections::HashMap;
use std::path::{Component, Path as FsPath, PathBuf, is_separator};
use std::sync::Arc;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::prelude::SessionContext;
use glob::MatchOptions;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use url::Url;

use crate::connect::object_store;
use crate::create::CreateOnly;
use crate::error::{CliError, Result};

/// Parses an input: a file, a directory, or a glob over one.
pub fn parse_source(text: &str) -> Result<ListingTableUrl> {
    // A file that exists is itself, regardless of the characters in its name.
    if let Ok(file_metadata) = FsPath::new(text).metadata() {
        if !file_metadata.is_file() && !file_metadata.is_dir() {
            return Err(CliError::failed(format!(
                "{text} is no file: tables are read more than once"
            ))
            .hint("write it to a file first"));
        }
        return Ok(ListingTableUrl::try_new(path_url(text)?, None)?);
    }
    if let Some((scheme, rest)) = text.split_once("://") {
        return parse_url(scheme, rest);
    }
    match split_glob(text) {
        Some((directory, glob)) => {
            let directory = match directory {
                "" => "./",
                directory => directory,
            };
            let url = ListingTableUrl::try_new(path_url(directory)?, None)?;
            Ok(url.with_glob(&without_partitions(glob))?)
        }
        None => Ok(ListingTableUrl::try_new(path_url(text)?, None)?),
    }
}

/// The characters that begin a glob in a part of a path.
const GLOB_STARTS: [char; 3] = ['?', '*', '['];

/// Splits a path before its first part that has a glob and is not an existing directory. `None` if it has no such part,
/// or ends like a directory: a glob matches files.
fn split_glob(path: &str) -> Option<(&str, &str)> {
    if path.ends_with(is_separator) {
        return None;
    }
    let mut start = 0;
    for part in path.split_inclusive(is_separator) {
        let end = start + part.len();
        let is_directory = || {
            path.get(..end)
                .is_some_and(|path| FsPath::new(path).is_dir())
        };
        if part.contains(GLOB_STARTS) && !is_directory() {
            return path.split_at_checked(start);
        }
        start = end;
    }
    None
}

/// Returns true if `url` has no glob, or one that matches `location`. A `*` matches a part of a name, `**` directories
/// of any depth; partition directories, `key=value`, are skipped.
pub fn takes(url: &ListingTableUrl, location: &Path) -> bool {
    let Some(glob) = url.get_glob() else {
        return true;
    };
    let Some(names) = url.strip_prefix(location) else {
        return false;
    };
    let names: Vec<&str> = names.filter(|name| !name.contains('=')).collect();
    let options = MatchOptions {
        require_literal_separator: true,
        ..MatchOptions::new()
    };
    glob.matches_with(&names.join("/"), options)
}

/// The path `text` as a URL, unless DataFusion interprets it as that path anyway: a statement that names one file or
/// directory means it, regardless of the characters in its name.
pub fn literal_url(text: &str) -> Result<String> {
    if text.contains("://") {
        return Ok(text.to_string());
    }
    let url = ListingTableUrl::try_new(path_url(text)?, None)?;
    match ListingTableUrl::parse(text) {
        Ok(parsed) if parsed == url => Ok(text.to_string()),
        _ => Ok(url.as_str().to_string()),
    }
}

/// Removes `key=*` directories from a glob: DataFusion matches globs against paths without their `key=value`
/// directories.
fn without_partitions(glob: &str) -> String {
    let parts: Vec<&str> = glob
        .split('/')
        .filter(|part| !part.ends_with("=*"))
        .collect();
    parts.join("/")
}

/// URLs may have a glob too: `s3://bucket/year=*/part-*.parquet`.
fn parse_url(scheme: &str, rest: &str) -> Result<ListingTableUrl> {
    let first_glob = rest.find(['*', '[']);
    let split = first_glob.and_then(|at| rest.get(..at)?.rfind('/'));
    match split.and_then(|slash| rest.split_at_checked(slash + 1)) {
        Some((prefix, glob)) => {
            let url = parse_plain_url(&format!("{scheme}://{prefix}"))?;
            Ok(ListingTableUrl::try_new(url, None)?.with_glob(&without_partitions(glob))?)
        }
        None => {
            let url = parse_plain_url(&format!("{scheme}://{rest}"))?;
            Ok(ListingTableUrl::try_new(url, None)?)
        }
    }
}

fn parse_plain_url(text: &str) -> Result<Url> {
    Url::parse(text).map_err(|error| CliError::failed(format!("{text} is not a URL: {error}")))
}

/// An output: a file or directory in a store.
#[derive(Clone, Debug)]
pub struct Destination {
    /// Its store.
    pub store: Arc<dyn ObjectStore>,
    /// Its location in the store.
    pub path: Path,
    /// Its path, if it is local.
    local: Option<PathBuf>,
    /// The prefix of its store's URLs.
    url: String,
    /// Its name as the user wrote it.
    pub display: String,
}

impl Destination {
    /// Connects to the store of `text`, a local path or a URL; neither must exist yet.
    pub async fn parse(context: &SessionContext, text: &str) -> Result<Self> {
        let is_stream = ["-", "/dev/stdout", "/dev/stderr"].contains(&text);
        if is_stream || text.starts_with("/dev/fd/") {
            let message =
                format!("cannot write to {text}: files are written as a whole, or not at all");
            return Err(CliError::Usage(
                message
                    + "; vectile sql prints to standard output with --format csv, json or jsonl",
            ));
        }
        let url = destination_url(text)?;
        let store = object_store(context, &url, &HashMap::new()).await?;
        let path = Path::from_url_path(url.path())
            .map_err(|error| CliError::failed(format!("{text}: {error}")))?;
        let destination = Destination {
            store,
            local: url.to_file_path().ok().filter(|_| url.scheme() == "file"),
            url: url[..url::Position::BeforePath].to_string(),
            path,
            display: text.to_string(),
        };
        destination.follow_link()
    }

    /// Resolves a symbolic link: its target is replaced, not the link.
    fn follow_link(self) -> Result<Self> {
        let link = self.local.as_ref().filter(|local| local.is_symlink());
        let Some(target) = link.and_then(|link| link.canonicalize().ok()) else {
            return Ok(self);
        };
        let path = Path::from_absolute_path(&target)
            .map_err(|error| CliError::failed(format!("{}: {error}", self.display)))?;
        Ok(Destination {
            path,
            local: Some(target),
            ..self
        })
    }

    /// Returns true if `location` in the store of `url` is this, or is below it.
    pub fn holds(&self, url: &ListingTableUrl, location: &Path) -> bool {
        if url.get_url()[..url::Position::BeforePath] != self.url {
            return false;
        }
        let real = self.local.as_ref().and_then(|local| {
            let location = FsPath::new("/").join(location.as_ref());
            Some((local.canonicalize().ok()?, location.canonicalize().ok()?))
        });
        match real {
            Some((local, location)) => location.starts_with(local),
            None => location.prefix_matches(&self.path),
        }
    }

    /// The directory that locations in the store are relative to, if it is the local file system.
    pub fn local_root(&self) -> Option<PathBuf> {
        self.local.as_ref().map(|_| PathBuf::from("/"))
    }

    /// Waits until a local file and its name are on disk.
    pub fn sync(&self) -> std::io::Result<()> {
        self.local
            .as_deref()
            .map_or(Ok(()), vectile_file::sync_file)
    }

    /// The file `relative` (with `/` as separator) below this directory.
    pub fn join(&self, relative: &str) -> Result<Self> {
        // Unchanged: `Path::join` would escape letters.
        let path = Path::parse(format!("{}/{relative}", self.path))
            .map_err(|error| CliError::failed(format!("{relative}: {error}")))?;
        let destination = Destination {
            store: Arc::clone(&self.store),
            path,
            local: self.local.as_ref().map(|local| local.join(relative)),
            url: self.url.clone(),
            display: format!("{}/{relative}", self.display.trim_end_matches('/')),
        };
        destination.follow_link()
    }

    /// Refuses to replace a file without `force`, now and when it is written, and to replace anything but a file.
    pub async fn check_writable(&mut self, force: bool) -> Result<()> {
        let metadata = self.local.as_ref().and_then(|local| local.metadata().ok());
        if metadata.is_some_and(|metadata| !metadata.is_file()) {
            return Err(CliError::failed(format!("{} is not a file", self.display))
                .hint("name a file to write, or end a directory's name with '/'"));
        }
        if !force {
            let store = Arc::clone(&self.store);
            self.store = Arc::new(CreateOnly::new(store, self.local.clone()));
        }
        if let Some(path) = &self.local {
            if path.is_symlink() {
                return Err(
                    CliError::failed(format!("{} leads to no file", self.display))
                        .hint("remove the symbolic link, or name another file"),
                );
            }
            check_directory(path).map_err(|error| {
                CliError::from(error).context(format!("cannot write {}", self.display))
            })?;
        }
        match self.store.head(&self.path).await {
            Ok(_) if !force => Err(CliError::failed(format!("{} already exists", self.display))
                .hint("--force replaces it")),
            Ok(_) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => {
                Err(CliError::from(error).context(format!("cannot write {}", self.display)))
            }
        }
    }
}

/// Creates the file's directory if there is none, and checks that a file can be created in it, before the input is
/// read.
fn check_directory(file: &FsPath) -> std::io::Result<()> {
    let directory = file.parent().unwrap_or(FsPath::new("/"));
    std::fs::create_dir_all(directory)?;
    tempfile::Builder::new()
        .prefix(".vectile-")
        .tempfile_in(directory)
        .map(drop)
}

/// The URL of a path: of a directory if it is one, or ends like one and is not there.
fn path_url(text: &str) -> Result<Url> {
    let path = FsPath::new(text);
    let is_directory = match path.exists() {
        true => path.is_dir(),
        false => text.ends_with(is_separator),
    };
    let path = absolute(path)?;
    let url = match is_directory {
        true => Url::from_directory_path(&path),
        false => Url::from_file_path(&path),
    };
    url.map_err(|()| CliError::failed(format!("cannot make a URL of {text}")))
}

fn destination_url(text: &str) -> Result<Url> {
    if text.contains("://") {
        return parse_plain_url(text);
    }
    let path = absolute(FsPath::new(text))?;
    Url::from_file_path(path).map_err(|()| CliError::failed(format!("cannot make a URL of {text}")))
}

/// An absolute path without `.` and `..`, which object stores do not know.
fn absolute(path: &FsPath) -> Result<PathBuf> {
    let path = std::path::absolute(path)?;
    if !path.components().any(|part| part == Component::ParentDir) {
        return Ok(path);
    }
    // `..` is relative to the real directory tree: the system resolves the existing part.
    let existing = path.ancestors().find(|ancestor| ancestor.exists());
    let existing = existing.unwrap_or(FsPath::new("/"));
    let rest = path.strip_prefix(existing).unwrap_or(FsPath::new(""));
    Ok(existing.canonicalize()?.join(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_split_at_the_first_glob() {
        let url = parse_source("s3://bucket/a/b/*.parquet").unwrap();
        assert_eq!(url.as_str(), "s3://bucket/a/b/");
        assert_eq!(url.get_glob().as_ref().unwrap().as_str(), "*.parquet");
        let url = parse_source("s3://bucket/year=*/part-*.parquet").unwrap();
        assert_eq!(url.as_str(), "s3://bucket/");
        assert_eq!(url.get_glob().as_ref().unwrap().as_str(), "part-*.parquet");
        let url = parse_source("https://host/a/b.csv").unwrap();
        assert_eq!(url.as_str(), "https://host/a/b.csv");
        assert!(url.get_glob().is_none());
    }

    #[test]
    fn a_file_with_glob_characters_is_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a[1] b.csv");
        std::fs::write(&path, "x\n1\n").unwrap();
        let url = parse_source(path.to_str().unwrap()).unwrap();
        assert!(url.get_glob().is_none());
        assert!(url.prefix().as_ref().ends_with("a[1] b.csv"));
    }

    #[test]
    fn parent_directories_are_resolved() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("sub")).unwrap();
        let url = destination_url(dir.path().join("sub/../x.vectile").to_str().unwrap()).unwrap();
        assert!(url.path().ends_with("/x.vectile"));
        assert!(!url.path().contains(".."));
    }
}
