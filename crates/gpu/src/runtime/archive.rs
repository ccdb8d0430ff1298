//! An archive of compiled kernels: those that are the same for every query, for several targets.
//!
//! ```text
//! 0   magic                     8 bytes
//! 8   bytes of the directory    u32, little-endian
//! 12  CRC-32 of the directory   u32
//! 16  directory: version of the compiler, 2 u32; then for each kernel and target
//!         key                   u128: hash of name, source and options
//!         target                3 u32: 0 for machine code or 1 for PTX; its compute capability
//!         bytes of the code     u32
//!         bytes of the frame    u32
//!         CRC-32 of the frame   u32
//!         bytes of the name     u32
//!         name
//! ..  frames in the order of the directory: code, compressed by Zstandard
//! ```
//!
//! A kernel is found by its key. So code of another source is never taken: an archive of another version of Vectile
//! counts as empty where kernels differ.

mod target;

pub(crate) use self::target::Platform;
pub use self::target::Target;

use std::fmt;

use super::cache::Key;
use super::nvrtc::OPTIONS;

const MAGIC: [u8; 8] = *b"VECTARC1";
/// Zstandard's highest usual level: an archive is made once for each release.
const LEVEL: i32 = 19;

/// A fault of an archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The bytes are not an archive of this format.
    #[error("not an archive of kernels")]
    Foreign,
    /// The directory is damaged, or frames are missing.
    #[error("the directory of kernels is damaged")]
    Directory,
    /// The code of a kernel is damaged.
    #[error("the kernel {name} for {target} is damaged")]
    Code {
        /// Its name.
        name: String,
        /// What it was compiled for.
        target: Target,
    },
}

type Result<T, E = ArchiveError> = std::result::Result<T, E>;

/// A compiled kernel, compressed for an archive.
#[derive(Debug)]
pub(crate) struct Archived {
    name: String,
    key: u128,
    target: Target,
    code_bytes: usize,
    frame: Vec<u8>,
}

impl Archived {
    /// Compresses the code of a kernel.
    ///
    /// # Errors
    ///
    /// Errors of the compressor.
    pub fn new(name: &str, source: &str, target: Target, code: &[u8]) -> std::io::Result<Self> {
        Ok(Self {
            name: name.to_string(),
            key: key_of(name, source),
            target,
            code_bytes: code.len(),
            frame: zstd::bulk::compress(code, LEVEL)?,
        })
    }
}

/// Everything that code depends on, except for target and version of the compiler.
fn key_of(name: &str, source: &str) -> u128 {
    let mut parts = OPTIONS.to_vec();
    parts.extend([name, source]);
    Key::new(&parts).hash()
}

/// An archive of kernels by this version of NVRTC.
pub(crate) fn write(compiler: (u32, u32), kernels: &[Archived]) -> Vec<u8> {
    // lengths of kernels are far below 4 GiB
    let word = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
    let mut directory = [compiler.0.to_le_bytes(), compiler.1.to_le_bytes()].concat();
    for kernel in kernels {
        directory.extend(kernel.key.to_le_bytes());
        let target = kernel.target.words();
        directory.extend(target.into_iter().flat_map(u32::to_le_bytes));
        directory.extend(word(kernel.code_bytes));
        directory.extend(word(kernel.frame.len()));
        directory.extend(crc32fast::hash(&kernel.frame).to_le_bytes());
        directory.extend(word(kernel.name.len()));
        directory.extend(kernel.name.as_bytes());
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend(word(directory.len()));
    bytes.extend(crc32fast::hash(&directory).to_le_bytes());
    bytes.extend(directory);
    kernels
        .iter()
        .for_each(|kernel| bytes.extend(&kernel.frame));
    bytes
}

/// An archive whose directory is intact.
pub(crate) struct Archive<'a> {
    compiler: (u32, u32),
    entries: Vec<Entry<'a>>,
}

struct Entry<'a> {
    name: &'a str,
    key: u128,
    target: Target,
    code_bytes: usize,
    crc: u32,
    frame: &'a [u8],
}

impl<'a> Archive<'a> {
    /// Reads the directory.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let mut header = Words(bytes);
        if header.take(MAGIC.len()) != Some(&MAGIC) {
            return Err(ArchiveError::Foreign);
        }
        Self::parse_directory(header).ok_or(ArchiveError::Directory)
    }

    fn parse_directory(mut bytes: Words<'a>) -> Option<Self> {
        let (length, crc) = (bytes.length()?, bytes.word()?);
        let directory = bytes.take(length)?;
        if crc32fast::hash(directory) != crc {
            return None;
        }
        let mut directory = Words(directory);
        let compiler = (directory.word()?, directory.word()?);
        let mut entries = vec![];
        while !directory.0.is_empty() {
            let key = directory.take(size_of::<u128>())?.try_into().ok()?;
            let target = [directory.word()?, directory.word()?, directory.word()?];
            let (code_bytes, frame_bytes) = (directory.length()?, directory.length()?);
            let (crc, name_bytes) = (directory.word()?, directory.length()?);
            entries.push(Entry {
                name: str::from_utf8(directory.take(name_bytes)?).ok()?,
                key: u128::from_le_bytes(key),
                target: Target::of_words(target)?,
                code_bytes,
                crc,
                frame: bytes.take(frame_bytes)?,
            });
        }
        bytes.0.is_empty().then_some(Self { compiler, entries })
    }

    /// The version of NVRTC whose code this is.
    pub fn compiler(&self) -> (u32, u32) {
        self.compiler
    }

    /// Checks all code.
    ///
    /// # Errors
    ///
    /// [`ArchiveError::Code`] for the first kernel that is damaged.
    pub fn check(&self) -> Result<()> {
        let mut entries = self.entries.iter();
        entries.try_for_each(|entry| entry.code().map(drop))
    }

    /// The targets that this kernel is compiled for.
    pub fn targets(&self, name: &str, source: &str) -> Vec<Target> {
        self.entries_of(name, source)
            .map(|entry| entry.target)
            .collect()
    }

    /// Machine code of a kernel that the platform runs. Damaged code counts as absent.
    pub fn cubin(&self, name: &str, source: &str, platform: Platform) -> Option<Vec<u8>> {
        self.code(name, source, platform, |target| {
            matches!(target, Target::Cubin(_))
        })
    }

    /// PTX of a kernel that the platform's driver compiles, with a zero at its end. Damaged PTX counts as absent.
    pub fn ptx(&self, name: &str, source: &str, platform: Platform) -> Option<Vec<u8>> {
        self.code(name, source, platform, |target| {
            matches!(target, Target::Ptx(_))
        })
    }

    fn code(
        &self,
        name: &str,
        source: &str,
        platform: Platform,
        is_wanted: impl Fn(Target) -> bool,
    ) -> Option<Vec<u8>> {
        let entries = self.entries_of(name, source);
        let entries = entries.filter(|entry| is_wanted(entry.target));
        let fit = entries.filter(|entry| platform.runs(entry.target, self.compiler));
        fit.max_by_key(|entry| entry.target)?.code().ok()
    }

    fn entries_of(&self, name: &str, source: &str) -> impl Iterator<Item = &Entry<'a>> {
        // kernels of queries have another name, so their sources are not hashed
        let is_known = self.entries.iter().any(|entry| entry.name == name);
        let key = is_known.then(|| key_of(name, source));
        let entries = self.entries.iter();
        entries.filter(move |entry| Some(entry.key) == key)
    }
}

impl fmt::Debug for Archive<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Archive")
            .field("compiler", &self.compiler)
            .field("entries", &self.entries.len())
            .finish()
    }
}

impl Entry<'_> {
    fn code(&self) -> Result<Vec<u8>> {
        let damaged = || ArchiveError::Code {
            name: self.name.to_string(),
            target: self.target,
        };
        if crc32fast::hash(self.frame) != self.crc {
            return Err(damaged());
        }
        let code = zstd::bulk::decompress(self.frame, self.code_bytes).map_err(|_| damaged())?;
        // the driver reads PTX up to the zero
        let is_whole = code.len() == self.code_bytes && self.target.ends_well(&code);
        is_whole.then_some(code).ok_or_else(damaged)
    }
}

/// Bytes to be read from their start.
struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u32> {
        let bytes = self.take(size_of::<u32>())?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn length(&mut self) -> Option<usize> {
        usize::try_from(self.word()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SM_80: Target = Target::Cubin((8, 0));
    const SM_86: Target = Target::Cubin((8, 6));
    const COMPUTE_80: Target = Target::Ptx((8, 0));
    const H100: Platform = Platform {
        capability: (9, 0),
        driver: (13, 0),
    };
    const A10: Platform = Platform {
        capability: (8, 6),
        driver: (13, 0),
    };

    fn archived() -> Vec<u8> {
        let compiled = [
            ("build", "a", SM_80, "machine code of a".repeat(50)),
            ("build", "a", SM_86, "machine code of a for another".into()),
            ("build", "a", COMPUTE_80, "ptx of a\0".into()),
            ("decode", "b", SM_80, String::new()),
        ];
        let compiled = compiled.map(|(name, source, target, code)| {
            Archived::new(name, source, target, code.as_bytes()).unwrap()
        });
        write((12, 8), &compiled)
    }

    #[test]
    fn code_comes_back() {
        let bytes = archived();
        let archive = Archive::parse(&bytes).unwrap();
        archive.check().unwrap();
        assert_eq!(archive.compiler(), (12, 8));
        assert_eq!(archive.targets("build", "a"), [SM_80, SM_86, COMPUTE_80]);
        let cubin = archive.cubin("build", "a", A10).unwrap();
        assert_eq!(cubin, b"machine code of a for another");
        assert_eq!(archive.cubin("build", "a", H100), None);
        assert_eq!(archive.ptx("build", "a", H100).unwrap(), b"ptx of a\0");
        assert_eq!(archive.cubin("decode", "b", A10).unwrap(), b"");
        assert_eq!(archive.ptx("decode", "b", A10), None);
        let empty = write((13, 0), &[]);
        assert!(Archive::parse(&empty).unwrap().entries.is_empty());
    }

    #[test]
    fn code_of_another_source_is_not_taken() {
        let bytes = archived();
        let archive = Archive::parse(&bytes).unwrap();
        for (name, source) in [("build", "b"), ("decode", "a"), ("tokenize", "a")] {
            assert_eq!(archive.targets(name, source), []);
            assert_eq!(archive.cubin(name, source, A10), None);
            assert_eq!(archive.ptx(name, source, A10), None);
        }
    }

    #[test]
    fn drivers_must_know_the_compilers_code() {
        let bytes = archived();
        let archive = Archive::parse(&bytes).unwrap();
        let found = |driver| {
            let platform = Platform { driver, ..A10 };
            let cubin = archive.cubin("build", "a", platform).is_some();
            (cubin, archive.ptx("build", "a", platform).is_some())
        };
        assert_eq!(found((13, 0)), (true, true));
        assert_eq!(found((12, 8)), (true, true));
        assert_eq!(found((12, 6)), (true, false));
        assert_eq!(found((11, 8)), (false, false));
    }

    #[test]
    fn damage_is_noticed() {
        let bytes = archived();
        for length in 0..bytes.len() {
            let error = Archive::parse(&bytes[..length]).unwrap_err();
            let is_short = length < MAGIC.len();
            assert_eq!(error == ArchiveError::Foreign, is_short, "{length}");
        }
        let frames: usize = {
            let archive = Archive::parse(&bytes).unwrap();
            archive.entries.iter().map(|entry| entry.frame.len()).sum()
        };
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0x10;
            match Archive::parse(&damaged) {
                Err(ArchiveError::Foreign) => assert!(at < MAGIC.len()),
                Err(_) => assert!(at < bytes.len() - frames),
                Ok(archive) => {
                    let error = archive.check().unwrap_err();
                    assert!(matches!(error, ArchiveError::Code { .. }), "{at}: {error}");
                }
            }
        }
        let longer = [bytes.as_slice(), b"more"].concat();
        assert_eq!(
            Archive::parse(&longer).unwrap_err(),
            ArchiveError::Directory
        );
    }

    #[test]
    fn damaged_code_counts_as_absent() {
        let bytes = archived();
        let mut damaged = bytes.clone();
        let at = damaged.len() - 1;
        damaged[at] ^= 1;
        let archive = Archive::parse(&damaged).unwrap();
        assert_eq!(archive.cubin("decode", "b", A10), None);
        assert!(archive.cubin("build", "a", A10).is_some());
        let error = archive.check().unwrap_err().to_string();
        assert_eq!(error, "the kernel decode for sm_80 is damaged");
        // a text without its end
        let endless = [Archived::new("build", "a", COMPUTE_80, b"ptx").unwrap()];
        let endless = write((12, 8), &endless);
        let archive = Archive::parse(&endless).unwrap();
        assert_eq!(archive.ptx("build", "a", A10), None);
    }
}
