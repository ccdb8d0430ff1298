//! Compiled kernels on disk.
//!
//! An entry is a file named for its key, everything that its content depends on:
//!
//! ```text
//! 0   magic                     8 bytes
//! 8   bytes of the key          u64, little-endian
//! 16  CRC-32 of the key         u32
//! 20  CRC-32 of the content     u32
//! 24  bytes of the content      u64
//! 32  content
//! ```
//!
//! A damaged file, or one of another key, counts as absent. Entries are written under a temporary name and renamed, so
//! several processes may share a directory. The cache never fails a query: without a directory that only the user can
//! write to, every kernel is compiled.

use std::env;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// The environment variable that names the directory; if it is empty, nothing is kept.
pub const CACHE_VARIABLE: &str = "VECTILE_CACHE";

/// Version of the format: changes when the layout of a file changes, or when the content of a key does.
const FORMAT: &str = "vectile kernel 1";
const MAGIC: [u8; 8] = *b"VECTKRN1";
const HEADER_BYTES: usize = 32;

const EXTENSION: &str = "cubin";
const UNFINISHED_EXTENSION: &str = "tmp";

/// An unfinished file of this age has been abandoned by its writer.
const UNFINISHED_AGE: Duration = Duration::from_secs(60 * 60);

/// Limits of a directory: beyond them, the least recently used entries are removed.
#[derive(Clone, Copy, Debug)]
struct Limits {
    files: usize,
    bytes: u64,
}

const LIMITS: Limits = Limits {
    files: 1000,
    bytes: 256 << 20,
};

/// Everything that a compiled kernel depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key(Vec<u8>);

impl Key {
    /// Combines these parts, in order.
    pub(crate) fn new(parts: &[&str]) -> Key {
        let mut text = FORMAT.as_bytes().to_vec();
        for part in parts {
            // With its length, so that different parts never make the same text.
            text.extend_from_slice(format!("\n{} ", part.len()).as_bytes());
            text.extend_from_slice(part.as_bytes());
        }
        Key(text)
    }

    /// A hash of 128 bits.
    pub(crate) fn hash(&self) -> u128 {
        fnv1a(&self.0)
    }

    fn file_name(&self) -> String {
        format!("{:032x}.{EXTENSION}", self.hash())
    }
}

/// FNV-1a of 128 bits.
fn fnv1a(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}

/// The content that [`keep`] kept by this name, in this process or an earlier one, beside compiled kernels. Reads a
/// file.
pub fn kept(name: &str) -> Option<Vec<u8>> {
    Cache::of_user()?.get(&note(name))
}

/// Keeps `content` by this name for later processes of the user, if possible. Writes a file.
pub fn keep(name: &str, content: &[u8]) {
    if let Some(cache) = Cache::of_user() {
        cache.put(&note(name), content);
    }
}

fn note(name: &str) -> Key {
    Key::new(&["note", name])
}

/// A directory of compiled kernels.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    directory: PathBuf,
    owner: Owner,
    limits: Limits,
}

/// The directory of compiled kernels: `$VECTILE_CACHE`, or else `vectile/kernels` in the user's cache directory
/// (`$XDG_CACHE_HOME`, `$HOME/.cache`). `None` if the variable is empty or there is no such directory.
pub fn cache_directory() -> Option<PathBuf> {
    directory_from(|name| env::var_os(name).map(PathBuf::from))
}

fn directory_from(variable: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    if let Some(directory) = variable(CACHE_VARIABLE) {
        return Some(directory).filter(|it| !it.as_os_str().is_empty());
    }
    // The XDG specification demands to ignore relative paths.
    let absolute = |name| variable(name).filter(|it| it.is_absolute());
    let caches = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    Some(caches?.join("vectile").join("kernels"))
}

impl Cache {
    /// The user's cache; `None` if its directory does not exist and cannot be created.
    pub(crate) fn of_user() -> Option<Cache> {
        Cache::open(cache_directory()?)
    }

    /// The cache in a directory, which is created if it does not exist; `None` if other users may write to it.
    pub(crate) fn open(directory: PathBuf) -> Option<Cache> {
        make_directory(&directory).ok()?;
        Some(Cache {
            owner: Owner::of_private(&directory)?,
            directory,
            limits: LIMITS,
        })
    }

    /// The content of a key, if its file is intact.
    pub(crate) fn get(&self, key: &Key) -> Option<Vec<u8>> {
        let mut file = File::open(self.directory.join(key.file_name())).ok()?;
        if !self.owner.owns(&file.metadata().ok()?) {
            return None;
        }
        // No more than a directory may hold, should the file be something else.
        let mut bytes = Vec::new();
        (&mut file)
            .take(self.limits.bytes)
            .read_to_end(&mut bytes)
            .ok()?;
        let content = content_of(key, &bytes)?.to_vec();
        // Mark it as used; only the order of removal depends on that.
        let _ = file.set_modified(SystemTime::now());
        Some(content)
    }

    /// Keeps the content of a key, if possible.
    pub(crate) fn put(&self, key: &Key, content: &[u8]) {
        if self.write(key, content).is_ok() {
            self.remove_excess();
        }
    }

    fn write(&self, key: &Key, content: &[u8]) -> io::Result<()> {
        static WRITTEN: AtomicU64 = AtomicU64::new(0);
        let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
        let name = key.file_name();
        let unfinished = format!("{name}.{}-{number}.{UNFINISHED_EXTENSION}", process::id());
        let unfinished = self.directory.join(unfinished);
        let written = write_new(&unfinished, &header_of(key, content), content)
            .and_then(|()| fs::rename(&unfinished, self.directory.join(name)));
        if written.is_err() {
            let _ = fs::remove_file(&unfinished);
        }
        written
    }

    /// Removes the least recently used files until the directory is within its limits, and abandoned unfinished files.
    fn remove_excess(&self) {
        let Ok(entries) = fs::read_dir(&self.directory) else {
            return;
        };
        let files = entries.filter_map(|entry| CacheFile::of(&entry.ok()?));
        let (unfinished, mut kept): (Vec<_>, Vec<_>) = files.partition(|file| file.unfinished);
        for file in unfinished {
            if file.used.elapsed().is_ok_and(|age| age > UNFINISHED_AGE) {
                let _ = fs::remove_file(file.path);
            }
        }
        kept.sort_by_key(|file| file.used);
        let mut count = kept.len();
        let mut bytes: u64 = kept.iter().map(|file| file.bytes).sum();
        for file in kept {
            if count <= self.limits.files && bytes <= self.limits.bytes {
                return;
            }
            // It is gone as well if another process has removed it.
            let _ = fs::remove_file(file.path);
            count -= 1;
            bytes -= file.bytes;
        }
    }
}

/// A file of a cache's directory.
struct CacheFile {
    path: PathBuf,
    unfinished: bool,
    bytes: u64,
    used: SystemTime,
}

impl CacheFile {
    /// `None` for files that are not the cache's.
    fn of(entry: &fs::DirEntry) -> Option<CacheFile> {
        let path = entry.path();
        let (hash, rest) = path.file_name()?.to_str()?.split_once('.')?;
        let is_hash = hash.len() == 32 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        let unfinished = match rest == EXTENSION {
            true => false,
            false => rest.starts_with(EXTENSION) && rest.ends_with(UNFINISHED_EXTENSION),
        };
        if !is_hash || (!unfinished && rest != EXTENSION) {
            return None;
        }
        let metadata = entry.metadata().ok()?;
        Some(CacheFile {
            unfinished,
            bytes: metadata.len(),
            used: metadata.modified().ok()?,
            path,
        })
    }
}

fn header_of(key: &Key, content: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&MAGIC);
    header[8..16].copy_from_slice(&(key.0.len() as u64).to_le_bytes());
    header[16..20].copy_from_slice(&crc32fast::hash(&key.0).to_le_bytes());
    header[20..24].copy_from_slice(&crc32fast::hash(content).to_le_bytes());
    header[24..].copy_from_slice(&(content.len() as u64).to_le_bytes());
    header
}

/// The content of a file, if it is intact and the key's: its header must equal that of a new file.
fn content_of<'a>(key: &Key, file: &'a [u8]) -> Option<&'a [u8]> {
    let (header, content) = file.split_at_checked(HEADER_BYTES)?;
    (header == header_of(key, content)).then_some(content)
}

fn write_new(path: &Path, header: &[u8], content: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(header)?;
    file.write_all(content)
}

/// Owner of a directory. Its files are executed, so it and they must belong to the user.
#[derive(Clone, Copy, Debug)]
struct Owner(#[cfg_attr(not(unix), allow(dead_code))] u32);

#[cfg(unix)]
impl Owner {
    /// The owner of a directory, if that is the user and other users may not write to it.
    fn of_private(directory: &Path) -> Option<Owner> {
        use std::os::unix::fs::PermissionsExt;
        static TRIED: AtomicU64 = AtomicU64::new(0);
        // the owner of a new file is the user
        let number = TRIED.fetch_add(1, Ordering::Relaxed);
        let probe = directory.join(format!(".probe-{}-{number}", process::id()));
        let file = File::create_new(&probe).ok()?;
        let of_user = file.metadata();
        let _ = fs::remove_file(&probe);
        let found = fs::metadata(directory).ok()?;
        let is_private = found.permissions().mode() & 0o022 == 0;
        let owner = Owner::of(&of_user.ok()?);
        (is_private && owner.owns(&found)).then_some(owner)
    }

    fn of(metadata: &fs::Metadata) -> Owner {
        Owner(std::os::unix::fs::MetadataExt::uid(metadata))
    }

    fn owns(self, metadata: &fs::Metadata) -> bool {
        self.0 == Owner::of(metadata).0
    }
}

#[cfg(not(unix))]
impl Owner {
    fn of_private(_: &Path) -> Option<Owner> {
        Some(Owner(0))
    }

    fn owns(self, _: &fs::Metadata) -> bool {
        true
    }
}

/// Creates a directory for the user only: its files are executed.
fn make_directory(directory: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(directory)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;
    use std::thread;

    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path().join("a/b")).unwrap();
        (directory, cache)
    }

    fn key(source: &str) -> Key {
        Key::new(&["nvrtc 13.0", "sm_90", source])
    }

    /// The cache's content for a key, and whether it was on disk; otherwise `compiled` is kept.
    fn ask(cache: &Cache, key: &Key, compiled: &[u8]) -> (Vec<u8>, bool) {
        if let Some(content) = cache.get(key) {
            return (content, true);
        }
        cache.put(key, compiled);
        (compiled.to_vec(), false)
    }

    fn names(cache: &Cache) -> Vec<String> {
        let entries = fs::read_dir(&cache.directory).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    fn set_age(path: &Path, seconds: u64) {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        let then = SystemTime::now() - Duration::from_secs(seconds);
        file.set_modified(then).unwrap();
    }

    #[test]
    fn a_kernel_is_compiled_once() {
        let (_directory, cache) = cache();
        assert_eq!(ask(&cache, &key("a"), b"A"), (b"A".to_vec(), false));
        assert_eq!(ask(&cache, &key("a"), b"?"), (b"A".to_vec(), true));
        assert_eq!(ask(&cache, &key("b"), b"B"), (b"B".to_vec(), false));
        let reopened = Cache::open(cache.directory.clone()).unwrap();
        assert_eq!(ask(&reopened, &key("b"), b"?"), (b"B".to_vec(), true));
        assert_eq!(names(&cache).len(), 2);
    }

    #[test]
    fn everything_in_a_key_counts() {
        let keys = [
            Key::new(&["nvrtc 13.0", "sm_90", "x"]),
            Key::new(&["nvrtc 13.1", "sm_90", "x"]),
            Key::new(&["nvrtc 13.0", "sm_80", "x"]),
            Key::new(&["nvrtc 13.0", "sm_90", "y"]),
            Key::new(&["nvrtc 13.0", "sm_90x", ""]),
            Key::new(&["nvrtc 13.0", "sm_90", "x", ""]),
        ];
        for (index, key) in keys.iter().enumerate() {
            for other in &keys[index + 1..] {
                assert_ne!(key, other);
                assert_ne!(key.file_name(), other.file_name());
            }
        }
    }

    #[test]
    fn the_hash_is_fnv() {
        assert_eq!(fnv1a(b""), 0x6c62272e07bb014262b821756295c58d);
        assert_eq!(fnv1a(b"a"), 0xd228cb696f1a8caf78912b704e4a8964);
    }

    #[test]
    fn damaged_files_are_written_anew() {
        let (_directory, cache) = cache();
        let content: Vec<u8> = (0..200).collect();
        ask(&cache, &key("a"), &content);
        let path = cache.directory.join(key("a").file_name());
        let whole = fs::read(&path).unwrap();
        let mut damaged: Vec<Vec<u8>> = (0..whole.len())
            .step_by(7)
            .map(|length| whole[..length].to_vec())
            .collect();
        damaged.extend((0..whole.len()).map(|at| {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x10;
            bytes
        }));
        damaged.push([whole.as_slice(), b"more"].concat());
        for bytes in damaged {
            fs::write(&path, &bytes).unwrap();
            assert_eq!(ask(&cache, &key("a"), &content), (content.clone(), false));
            assert_eq!(ask(&cache, &key("a"), b"?"), (content.clone(), true));
        }
    }

    #[test]
    fn a_file_of_another_key_is_not_taken() {
        let (_directory, cache) = cache();
        ask(&cache, &key("b"), b"B");
        let [a, b] = ["a", "b"].map(|it| cache.directory.join(key(it).file_name()));
        fs::copy(b, a).unwrap();
        assert_eq!(ask(&cache, &key("a"), b"A"), (b"A".to_vec(), false));
    }

    #[test]
    fn something_else_by_that_name_is_no_error() {
        let (_directory, cache) = cache();
        fs::create_dir(cache.directory.join(key("a").file_name())).unwrap();
        assert_eq!(ask(&cache, &key("a"), b"A"), (b"A".to_vec(), false));
        assert_eq!(ask(&cache, &key("a"), b"A"), (b"A".to_vec(), false));
        assert_eq!(names(&cache).len(), 1, "what was unfinished is removed");
        // The directory itself is gone.
        fs::remove_dir_all(&cache.directory).unwrap();
        assert_eq!(ask(&cache, &key("a"), b"A"), (b"A".to_vec(), false));
    }

    #[test]
    fn a_directory_that_cannot_be_made_is_no_cache() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(Cache::open(file.join("kernels")).is_none());
        assert!(Cache::open(file).is_none());
    }

    #[cfg(unix)]
    #[test]
    fn the_directory_is_the_users_own() {
        use std::os::unix::fs::PermissionsExt;
        let (_directory, cache) = cache();
        let mode = fs::metadata(&cache.directory).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
    }

    #[cfg(unix)]
    #[test]
    fn directories_that_others_write_to_are_not_used() {
        use std::os::unix::fs::{PermissionsExt, chown};
        let (_directory, cache) = cache();
        let open = || Cache::open(cache.directory.clone());
        let set = |mode| fs::set_permissions(&cache.directory, PermissionsExt::from_mode(mode));
        for (mode, is_used) in [(0o755, true), (0o775, false), (0o757, false), (0o700, true)] {
            set(mode).unwrap();
            assert_eq!(open().is_some(), is_used, "{mode:o}");
        }
        assert!(names(&cache).is_empty());
        ask(&cache, &key("a"), b"A");
        // giving files away takes rights that tests seldom have
        let file = cache.directory.join(key("a").file_name());
        if chown(&file, Some(65534), None).is_ok() {
            assert_eq!(ask(&cache, &key("a"), b"B"), (b"B".to_vec(), false));
            chown(&cache.directory, Some(65534), None).unwrap();
            assert!(open().is_none());
        }
    }

    #[test]
    fn what_was_not_used_for_longest_is_removed() {
        let (_directory, mut cache) = cache();
        cache.limits.files = 3;
        for (source, age) in [("a", 50), ("b", 40), ("c", 30)] {
            ask(&cache, &key(source), b"content");
            set_age(&cache.directory.join(key(source).file_name()), age);
        }
        ask(&cache, &key("a"), b"content"); // used again
        ask(&cache, &key("d"), b"content");
        assert_eq!(names(&cache).len(), 3);
        let kept = |source| cache.get(&key(source)).is_some();
        assert_eq!(["a", "b", "c", "d"].map(kept), [true, false, true, true]);
    }

    #[test]
    fn bytes_are_limited_too() {
        let (_directory, mut cache) = cache();
        cache.limits.bytes = 2500;
        for (source, age) in [("a", 30), ("b", 20), ("c", 10)] {
            ask(&cache, &key(source), &[7; 1000]);
            set_age(&cache.directory.join(key(source).file_name()), age);
        }
        let kept = |source| cache.get(&key(source)).is_some();
        assert_eq!(["a", "b", "c"].map(kept), [false, true, true]);
    }

    #[test]
    fn only_files_of_the_cache_are_removed() {
        let (_directory, mut cache) = cache();
        cache.limits.files = 1;
        let unfinished = |age: u64| format!("{:032x}.cubin.1-{age}.tmp", 0);
        for age in [0, 7200] {
            let path = cache.directory.join(unfinished(age));
            fs::write(&path, "").unwrap();
            set_age(&path, age);
        }
        fs::write(cache.directory.join("notes.txt"), "mine").unwrap();
        fs::write(cache.directory.join("old.cubin"), "mine").unwrap();
        ask(&cache, &key("a"), b"A");
        let mut expected = [
            unfinished(0),
            key("a").file_name(),
            "notes.txt".to_string(),
            "old.cubin".to_string(),
        ];
        expected.sort();
        assert_eq!(names(&cache), expected);
    }

    #[test]
    fn writers_may_meet() {
        let (_directory, cache) = cache();
        let compiled = AtomicUsize::new(0);
        let content = vec![7; 100_000];
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for round in 0..50 {
                        let key = key(&(round % 5).to_string());
                        let (read, was_there) = ask(&cache, &key, &content);
                        assert_eq!(read, content);
                        compiled.fetch_add(usize::from(!was_there), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(names(&cache).len(), 5);
        assert!(compiled.into_inner() >= 5);
    }

    #[test]
    fn the_directory_comes_from_the_environment() {
        let directory = |set: &[(&str, &str)]| {
            directory_from(|name| {
                let found = set.iter().find(|(variable, _)| *variable == name)?;
                Some(PathBuf::from(found.1))
            })
        };
        let home = ("HOME", "/home/me");
        let xdg = ("XDG_CACHE_HOME", "/caches");
        let path = |text: &str| Some(PathBuf::from(text));
        assert_eq!(directory(&[]), None);
        assert_eq!(directory(&[home]), path("/home/me/.cache/vectile/kernels"));
        assert_eq!(directory(&[home, xdg]), path("/caches/vectile/kernels"));
        assert_eq!(directory(&[home, xdg, ("VECTILE_CACHE", "k")]), path("k"));
        assert_eq!(directory(&[home, xdg, ("VECTILE_CACHE", "")]), None);
        let relative = ("XDG_CACHE_HOME", "caches");
        assert_eq!(
            directory(&[home, relative]),
            path("/home/me/.cache/vectile/kernels")
        );
    }
}
