//! Files read as pyarrow reads them.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

use crate::support::{arrow_file, assert_same, data, fetched, files, open, read};

async fn compare(folder: &Path) -> usize {
    let files = files(folder);
    for (path, rows) in &files {
        let name = path.display().to_string();
        let file = open(fs::read(path).unwrap()).await.unwrap();
        let found = read(&file)
            .await
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let expected = arrow_file(rows);
        assert_same(&found, &expected, &name);
        assert_same(&fetched(&file).await.unwrap(), &expected, &name);
    }
    files.len()
}

#[tokio::test]
async fn files_that_are_kept() {
    assert_eq!(compare(&data()).await, 8);
}

/// Each type in each version, compression, size of blocks and of stripes. Without Python and pyarrow, nothing is
/// compared.
#[tokio::test]
async fn every_type_encoding_and_compression() {
    let folder = tempfile::tempdir().unwrap();
    let written = Command::new("python3")
        .arg(data().join("write.py"))
        .arg("matrix")
        .arg(folder.path())
        .output();
    match written {
        Ok(output) if output.status.success() => (),
        Ok(output) => {
            let error = String::from_utf8_lossy(&output.stderr);
            assert!(error.contains("ModuleNotFoundError"), "{error}");
            eprintln!("skipped: pyarrow is missing");
            return;
        }
        Err(_) => {
            eprintln!("skipped: python3 is missing");
            return;
        }
    }
    let count = compare(folder.path()).await;
    assert!(count > 200, "{count} files");
}

/// Compares the files of a folder, for files of other writers.
#[tokio::test]
async fn files_of_a_folder() {
    if let Some(folder) = env::var_os("ORC_TEST_FILES") {
        assert!(compare(Path::new(&folder)).await > 0);
    }
}
