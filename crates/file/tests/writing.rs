//! A file appears when it is complete, and not before.

mod common;

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use common::*;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use vectile_file::*;

struct Folder {
    dir: tempfile::TempDir,
    store: Arc<dyn ObjectStore>,
}

impl Folder {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(LocalFileSystem::new_with_prefix(dir.path()).unwrap());
        Self { dir, store }
    }

    fn files(&self) -> Vec<String> {
        let names = fs::read_dir(self.dir.path()).unwrap();
        names
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    /// A writer that has row groups on their way to the disk.
    async fn half_written(&self) -> Writer {
        let table = small(10_000);
        let location = Path::from("t.vectile");
        let options = rows_per_group(1000);
        let mut writer =
            Writer::try_new(self.store.clone(), location, table.schema(), options).unwrap();
        writer.write(&table).await.unwrap();
        assert!(!self.files().contains(&"t.vectile".to_owned()));
        writer
    }

    /// Waits until the folder holds `files`: cleanup runs in the background.
    async fn wait_until_it_holds(&self, files: &[&str]) {
        for _ in 0..500 {
            if self.files() == files {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        assert_eq!(self.files(), files);
    }
}

#[tokio::test]
async fn a_finished_file_exists() {
    let folder = Folder::new();
    let writer = folder.half_written().await;
    let summary = writer.finish().await.unwrap();
    folder.wait_until_it_holds(&["t.vectile"]).await;
    let object = folder.store.head(&Path::from("t.vectile")).await.unwrap();
    assert_eq!(object.size, summary.bytes);
    assert_eq!(
        read_metadata(&folder.store, &object)
            .await
            .unwrap()
            .num_rows(),
        10_000
    );
}

#[tokio::test]
async fn a_dropped_writer_leaves_no_file() {
    let folder = Folder::new();
    drop(folder.half_written().await);
    folder.wait_until_it_holds(&[]).await;
}

#[tokio::test]
async fn an_aborted_writer_leaves_no_file() {
    let folder = Folder::new();
    folder.half_written().await.abort().await.unwrap();
    folder.wait_until_it_holds(&[]).await;
}

#[tokio::test]
async fn a_dropped_writer_leaves_the_file_before_it() {
    let folder = Folder::new();
    let location = Path::from("t.vectile");
    folder.store.put(&location, "before".into()).await.unwrap();
    let table = small(10_000);
    let mut writer = Writer::try_new(
        folder.store.clone(),
        location,
        table.schema(),
        rows_per_group(1000),
    )
    .unwrap();
    writer.write(&table).await.unwrap();
    drop(writer);
    folder.wait_until_it_holds(&["t.vectile"]).await;
    assert_eq!(
        fs::read(folder.dir.path().join("t.vectile")).unwrap(),
        b"before"
    );
}

#[tokio::test]
async fn a_failing_store_fails_the_writer_for_good() {
    let folder = Folder::new();
    let table = small(5000);
    // A directory is in the way of the file.
    fs::create_dir_all(folder.dir.path().join("t.vectile/x")).unwrap();
    let location = Path::from("t.vectile");
    let options = rows_per_group(1000);
    let mut writer =
        Writer::try_new(folder.store.clone(), location, table.schema(), options).unwrap();
    // The store may notice at the start or at the end.
    let wrote = writer.write(&table).await;
    if wrote.is_err() {
        let again = writer.write(&table).await.unwrap_err();
        assert!(matches!(again, Error::InvalidArgument(_)), "{again}");
    }
    let error = writer.finish().await.unwrap_err();
    assert!(!error.to_string().is_empty());
    assert!(folder.dir.path().join("t.vectile/x").is_dir());
}

#[tokio::test]
async fn staged_files_appear_when_they_are_published() {
    let folder = Folder::new();
    let table = small(5000);
    let mut staged = Vec::new();
    for i in 0..3 {
        let mut options = rows_per_group(1000);
        options.local_root = Some(folder.dir.path().to_owned());
        let location = Path::from(format!("p={i}/t.vectile"));
        let store = folder.store.clone();
        let mut writer = Writer::try_new(store, location, table.schema(), options).unwrap();
        writer.write(&table).await.unwrap();
        staged.push(writer.stage().await.unwrap());
    }
    let visible = |i: usize| folder.dir.path().join(format!("p={i}/t.vectile")).exists();
    assert!(!(0..3).any(visible));
    let aborted = staged.pop().unwrap();
    aborted.abort().await.unwrap();
    let written = publish(staged).await.unwrap();
    assert!(written.iter().all(|file| file.rows == 5000));
    assert_eq!((0..3).filter(|&i| visible(i)).count(), 2);
}

#[tokio::test]
async fn files_are_removed_when_another_cannot_be_published() {
    let folder = Folder::new();
    let table = small(5000);
    let mut staged = Vec::new();
    // More than are published in parallel.
    for i in 0..40 {
        let location = Path::from(format!("{i}.vectile"));
        let options = rows_per_group(1000);
        let store = folder.store.clone();
        let mut writer = Writer::try_new(store, location, table.schema(), options).unwrap();
        writer.write(&table).await.unwrap();
        staged.push(writer.stage().await.unwrap());
    }
    // A directory is in the way of one.
    fs::create_dir_all(folder.dir.path().join("20.vectile/x")).unwrap();
    publish(staged).await.unwrap_err();
    let visible = folder
        .files()
        .into_iter()
        .filter(|name| !name.contains('#'));
    assert_eq!(visible.collect::<Vec<_>>(), ["20.vectile"]);
}
