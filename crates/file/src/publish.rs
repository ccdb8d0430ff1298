//! Makes several files visible, all of them or none.

use std::collections::BTreeSet;
use std::path::PathBuf;

use futures::future::join_all;

use crate::error::{Error, Result};
use crate::output::Output;
use crate::summary::WriteSummary;
use crate::sync;

/// Files that are made visible in parallel; on an object store that is one request each.
const PARALLEL_FILES: usize = 16;

/// A file that is written but not visible: [`publish`] gives it its name. Dropping it discards it.
#[derive(Debug)]
pub struct Staged {
    output: Output,
    summary: WriteSummary,
}

impl Staged {
    pub(crate) fn new(output: Output, summary: WriteSummary) -> Self {
        Self { output, summary }
    }

    /// Discards the file.
    ///
    /// # Errors
    ///
    /// Those of the object store, which may then keep parts of an upload.
    pub async fn abort(mut self) -> Result<()> {
        self.output.abort().await
    }

    async fn complete(mut self) -> Result<Self> {
        self.output.complete().await?;
        Ok(self)
    }
}

/// Makes files visible; their bytes are in their store already. If one fails, the visible ones are removed again. Local
/// files and their directories are synced if they were written with [`local_root`](crate::WriterOptions::local_root).
///
/// If the process ends in between, or the future is dropped, some files may be visible and others not.
///
/// # Errors
///
/// Those of the object store; then no file is visible. [`Error::LeftBehind`] names those that could not be removed.
pub async fn publish(files: Vec<Staged>) -> Result<Vec<WriteSummary>> {
    let mut visible = Vec::with_capacity(files.len());
    let mut files = files.into_iter();
    loop {
        let next: Vec<Staged> = files.by_ref().take(PARALLEL_FILES).collect();
        if next.is_empty() {
            break;
        }
        let mut failed = None;
        for completed in join_all(next.into_iter().map(Staged::complete)).await {
            match completed {
                Ok(file) => visible.push(file),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(error) = failed {
            // An error has occurred already; a staged upload that stays behind is not a file.
            join_all(files.map(Staged::abort)).await;
            return Err(withdraw(visible, error).await);
        }
    }
    let directories = directories_of(&visible);
    let name = visible
        .first()
        .map(|file| file.output.location().to_string());
    let synced = match name {
        Some(name) if !directories.is_empty() => {
            let mut directories = directories.into_iter();
            sync::blocking(name, move || {
                directories.try_for_each(|directory| sync::sync_directory(&directory))
            })
            .await
        }
        _ => Ok(()),
    };
    match synced {
        Ok(()) => Ok(visible.into_iter().map(|file| file.summary).collect()),
        Err(error) => Err(withdraw(visible, error).await),
    }
}

/// The distinct directories of the files.
fn directories_of(files: &[Staged]) -> BTreeSet<PathBuf> {
    let directories = files.iter().flat_map(|file| file.output.directories());
    directories.cloned().collect()
}

/// Removes visible files.
async fn withdraw(files: Vec<Staged>, error: Error) -> Error {
    let mut left = Vec::new();
    for mut file in files {
        if file.output.delete().await.is_err() {
            left.push(file.output.location().to_string());
        }
    }
    match left.is_empty() {
        true => error,
        false => Error::LeftBehind {
            files: left,
            source: Box::new(error),
        },
    }
}
