//! The compiler's files: where to look for them, and which ones were opened.

use std::env;
use std::ffi::OsString;
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

/// The environment variable that names the directory of `libnvrtc.so.13`, or the file itself.
pub const NVRTC_VARIABLE: &str = "VECTILE_NVRTC";

/// Names of the library, in order of preference.
const NAMES: [&str; 3] = ["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"];

/// Files to try, in order. If a variable names one, only that.
pub(super) fn candidates() -> Vec<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    if let Some(named) = set(NVRTC_VARIABLE) {
        return files_named(named);
    }
    let toolkits = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(set);
    let toolkits = toolkits.map(PathBuf::from);
    let usual = ["/usr/local/cuda", "/opt/cuda"].map(PathBuf::from);
    let directories = toolkits.chain(usual).map(|toolkit| toolkit.join("lib64"));
    let mut candidates: Vec<PathBuf> = NAMES.iter().map(PathBuf::from).collect();
    candidates.extend(directories.flat_map(in_directory));
    candidates
}

fn files_named(named: OsString) -> Vec<PathBuf> {
    let path = PathBuf::from(named);
    match path.is_dir() {
        true => in_directory(path),
        false => vec![path],
    }
}

pub(super) fn in_directory(directory: PathBuf) -> Vec<PathBuf> {
    NAMES.iter().map(|name| directory.join(name)).collect()
}

/// Distinguishes builds of a library with the same version: its name, size and time.
pub(super) fn build_of(library: &Path) -> String {
    let name = library.file_name().unwrap_or_default().to_string_lossy();
    let metadata = library.metadata().ok();
    let bytes = metadata.as_ref().map(Metadata::len);
    let modified = metadata.and_then(|metadata| metadata.modified().ok());
    let since = modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let (bytes, nanos) = (bytes.unwrap_or(0), since.unwrap_or_default().as_nanos());
    format!(" {name} {bytes} {nanos}")
}

/// The second library, if it is in the folder of the first one.
pub(super) fn builtins_of(nvrtc: &Path, (major, minor): (u32, u32)) -> Option<PathBuf> {
    // The name may be a link to the folder of both.
    let nvrtc = nvrtc.canonicalize().ok()?;
    let builtins = nvrtc.with_file_name(format!("libnvrtc-builtins.so.{major}.{minor}"));
    builtins.is_file().then_some(builtins)
}

/// The file whose code is at an address, according to Linux.
pub(super) fn file_of(address: usize) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    maps.lines().find_map(|line| {
        let (range, _) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let start = usize::from_str_radix(start, 16).ok()?;
        let end = usize::from_str_radix(end, 16).ok()?;
        let at = line.find('/')?;
        (start..end)
            .contains(&address)
            .then(|| PathBuf::from(&line[at..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_of_a_version_are_distinguished() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("libnvrtc.so.13");
        let after = |content: &str, seconds| {
            std::fs::write(&file, content).unwrap();
            let time = UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            let library = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
            library.set_modified(time).unwrap();
            build_of(&file)
        };
        let build = after("one", 1);
        assert_eq!(build, after("two", 1));
        assert_ne!(build, after("three", 1));
        assert_ne!(build, after("one", 2));
        assert_ne!(build, build_of(&directory.path().join("none")));
    }

    #[test]
    fn only_the_users_file_is_tried() {
        let directory = tempfile::tempdir().unwrap();
        let names = files_named(directory.path().into());
        assert_eq!(names.len(), NAMES.len());
        assert_eq!(names[0], directory.path().join("libnvrtc.so.13"));
        let file = directory.path().join("libnvrtc.so.13.0.88");
        assert_eq!(files_named(file.clone().into()), [file]);
    }

    #[test]
    fn addresses_have_files() {
        let here = file_of(addresses_have_files as *const () as usize);
        #[cfg(target_os = "linux")]
        assert_eq!(here, env::current_exe().ok());
        assert_eq!(file_of(0), None);
        drop(here);
    }
}
