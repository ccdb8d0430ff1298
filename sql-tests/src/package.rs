//! Finds the packages of DataFusion on this machine and creates the folder that its tests expect.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use datafusion::common::{Result, exec_datafusion_err, exec_err};
use tempfile::TempDir;

/// The folder of this package.
pub fn test_dir() -> PathBuf {
    let named = std::env::var_os("SQL_TESTS_DIR").map(PathBuf::from);
    named.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into())
}

/// The folder of a dependency's sources in cargo's cache.
pub fn package_dir(name: &str) -> Result<PathBuf> {
    if let Some(packages) = std::env::var_os("SQL_TESTS_PACKAGES") {
        return Ok(Path::new(&packages).join(name));
    }
    // only for this machine's platform: packages for others were not downloaded
    let version = cargo(&["-vV"])?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or_else(|| exec_datafusion_err!("cargo does not name its platform"))?;
    let output = cargo(&[
        "metadata",
        "--format-version=1",
        "--locked",
        "--offline",
        "--filter-platform",
        host,
    ])?;
    let metadata: serde_json::Value =
        serde_json::from_str(&output).map_err(|e| exec_datafusion_err!("cargo metadata: {e}"))?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let mut manifests = packages
        .filter(|package| package["name"] == name)
        .filter_map(|package| package["manifest_path"].as_str());
    let directory = manifests
        .next()
        .and_then(|manifest| Path::new(manifest).parent());
    match directory {
        Some(directory) => Ok(directory.to_owned()),
        None => exec_err!("{name} is not a dependency"),
    }
}

/// The output of a cargo command.
fn cargo(arguments: &[&str]) -> Result<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()?;
    if !output.status.success() {
        let errors = String::from_utf8_lossy(&output.stderr);
        return exec_err!("cargo {}: {errors}", arguments.join(" "));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A copy of DataFusion's test files, placed as in its own repository, because they name data by
/// paths relative to `datafusion/sqllogictest` and write below it.
pub struct Sandbox {
    root: TempDir,
}

impl Sandbox {
    /// Copies the test files. Data missing in the package comes from a checkout of DataFusion with
    /// its submodules if `DATAFUSION_CHECKOUT` names one.
    pub fn try_new() -> Result<Self> {
        let package = package_dir("datafusion-sqllogictest")?;
        let sandbox = Sandbox {
            root: TempDir::new()?,
        };
        for folder in ["test_files", "data"] {
            copy_tree(&package.join(folder), &sandbox.working_dir().join(folder))?;
        }
        let arrow = package_dir("datafusion-datasource-arrow")?.join("tests/data");
        copy_tree(
            &arrow,
            &sandbox.path("datafusion/datasource-arrow/tests/data"),
        )?;
        if let Some(checkout) = std::env::var_os("DATAFUSION_CHECKOUT") {
            for folder in [
                "datafusion/core/tests",
                "testing/data",
                "parquet-testing/data",
            ] {
                copy_tree(&Path::new(&checkout).join(folder), &sandbox.path(folder))?;
            }
        }
        Ok(sandbox)
    }

    /// The folder that the test files expect as the current one.
    pub fn working_dir(&self) -> PathBuf {
        self.path("datafusion/sqllogictest")
    }

    /// A path as in DataFusion's repository.
    pub fn path(&self, relative: &str) -> PathBuf {
        self.root.path().join(relative)
    }
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_tree(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
