//! Compiles CUDA C++ to a function of a shared library.

use std::any::Any;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

use libloading::Library;
use vectile_gpu::{Compiled, Error, Kernel, Launch, Result};

use crate::shared::driver_error;

/// Code before a kernel.
const PRELUDE: &str = concat!(
    include_str!("../headers/cuda_cpu.hpp"),
    include_str!("../headers/cuda_builtins.hpp"),
);

/// Code behind it.
const ENTRY: &str = include_str!("../headers/entry.cpp");

/// Environment variable; `1` compiles kernels with sanitizers.
pub(crate) const SANITIZE: &str = "VECTILE_CPU_DEVICE_SANITIZE";

const FLAGS: &[&str] = &[
    "-std=c++17",
    "-O1",
    "-fPIC",
    "-shared",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-w",
];

/// Without optimization: the compiler then takes a sixth of the time.
const SANITIZER_FLAGS: &[&str] = &[
    "-O0",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=undefined",
    "-fno-omit-frame-pointer",
    "-g1",
];

/// The machine's C++ compiler, and the cache of compiled kernels.
#[derive(Debug)]
pub(crate) struct Compiler {
    program: String,
    version: String,
    /// Holds `<name>-<hash>.cpp` and `.so`, complete whenever they exist.
    pub(crate) cache: PathBuf,
    pub(crate) optimises: bool,
}

/// Returns true if kernels of this process are compiled with sanitizers.
pub fn sanitized() -> bool {
    std::env::var(SANITIZE).is_ok_and(|value| value == "1")
}

/// The C++ compiler's name.
pub(crate) fn compiler_program() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".into())
}

impl Compiler {
    pub(crate) fn new() -> Result<Self> {
        let program = compiler_program();
        let unavailable =
            |reason: String| Error::Unavailable(format!("C++ compiler {program}: {reason}"));
        let answer = Command::new(&program)
            .arg("--version")
            .output()
            .map_err(|error| unavailable(error.to_string()))?;
        if !answer.status.success() {
            return Err(unavailable(answer.status.to_string()));
        }
        let executable = std::env::current_exe().map_err(|error| unavailable(error.to_string()))?;
        Ok(Self {
            version: String::from_utf8_lossy(&answer.stdout).into_owned(),
            program,
            cache: executable.with_file_name("cpu-kernels"),
            optimises: true,
        })
    }

    /// Compiles the kernel `name` of `source`, unless it is cached, and loads it.
    pub(crate) fn compile(&self, source: &str, name: &str) -> Result<Compiled> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_word) {
            return Err(compile_error(format!("{name:?} is no name of a kernel")));
        }
        let unit =
            format!("{PRELUDE}\n#line 1 \"{name}.cu\"\n{source}\n#line 1 \"entry.cpp\"\n{ENTRY}");
        let flags = self.flags(name);
        let mut hasher = DefaultHasher::new();
        (&self.program, &self.version, &flags, &unit).hash(&mut hasher);
        let stem = format!("{name}-{:016x}", hasher.finish());

        let library = self.cache.join(format!("{stem}.so"));
        let is_found = library.exists();
        if !is_found {
            self.build(&unit, &flags, &stem, &library)?;
        }
        let kernel = Arc::new(CpuKernel::load(&library, name)?);
        Ok(Compiled { kernel, is_found })
    }

    fn flags(&self, name: &str) -> Vec<String> {
        let sanitizers = if sanitized() { SANITIZER_FLAGS } else { &[] };
        let quick: &[&str] = if self.optimises { &[] } else { &["-O0"] };
        let flags = FLAGS.iter().chain(quick).chain(sanitizers);
        let flags = flags.map(ToString::to_string);
        flags.chain([format!("-DCUCPU_KERNEL={name}")]).collect()
    }

    /// Writes the library, and its source for debuggers. Other processes may do so at the same time: each writes files
    /// of its own and then renames them.
    fn build(&self, unit: &str, flags: &[String], stem: &str, library: &Path) -> Result<()> {
        static BUILDS: AtomicU64 = AtomicU64::new(0);
        let io_error = |error: io::Error| {
            driver_error("compile", format!("{}: {error}", self.cache.display()))
        };
        fs::create_dir_all(&self.cache).map_err(io_error)?;
        let build = BUILDS.fetch_add(1, Ordering::Relaxed);
        let own = self
            .cache
            .join(format!("{stem}-{}-{build}", std::process::id()));
        let own_source = own.with_extension("cpp");
        let own_library = own.with_extension("so");

        fs::write(&own_source, unit).map_err(io_error)?;
        let result = Command::new(&self.program)
            .args(flags)
            .arg("-o")
            .args([&own_library, &own_source])
            .output();
        let output = result.map_err(|error| driver_error("compile", error.to_string()))?;
        if !output.status.success() {
            fs::remove_file(&own_source).map_err(io_error)?;
            let log = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(compile_error(log));
        }
        fs::rename(&own_source, library.with_extension("cpp")).map_err(io_error)?;
        fs::rename(&own_library, library).map_err(io_error)
    }
}

fn compile_error(log: String) -> Error {
    Error::Compile { log }
}

/// `cucpu_launch` of `headers/entry.cpp`.
type Entry = unsafe extern "C" fn(
    args: *const u64,
    words: usize,
    grid: u32,
    block: u32,
    shared: usize,
    seed: u64,
    spare_stacks: *mut *mut c_void,
    error: *mut u8,
    error_bytes: usize,
) -> i32;

/// Stacks of fibers, kept between launches by the kernels themselves: atomically exchanged, and null or allocated by a
/// kernel of the same headers.
static SPARE_STACKS: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// A loaded kernel.
pub(crate) struct CpuKernel {
    name: String,
    entry: Entry,
    /// Keeps `entry` loaded.
    _library: Library,
}

impl fmt::Debug for CpuKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuKernel")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Kernel for CpuKernel {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn resident_blocks(&self, _threads: u32, _shared: u32) -> u32 {
        1
    }
}

impl CpuKernel {
    fn load(path: &Path, name: &str) -> Result<Self> {
        let load_error = |error: libloading::Error| {
            driver_error("load", format!("{}: {error:?}", path.display()))
        };
        // SAFETY: the library was built from a source without initializers and finalizers.
        let library = unsafe { Library::new(path) }.map_err(load_error)?;
        // SAFETY: entry.cpp defines the function with this type.
        let symbol = unsafe { library.get::<Entry>(b"cucpu_launch") };
        let entry = *symbol.map_err(load_error)?;
        Ok(Self {
            name: name.into(),
            entry,
            _library: library,
        })
    }

    /// Runs the kernel to its end.
    ///
    /// # Safety
    ///
    /// As [`vectile_gpu::Stream::launch`].
    pub(crate) unsafe fn run(&self, launch: Launch<'_>, seed: u64) -> Result<(), String> {
        let mut error = [0u8; 256];
        // SAFETY: `_library` keeps the function loaded; both slices are passed with their lengths; the spare stacks
        // are a static variable that is only exchanged; the caller vouches for the kernel's own accesses.
        let status = unsafe {
            (self.entry)(
                launch.args.as_ptr(),
                launch.args.len(),
                launch.grid,
                launch.block,
                launch.shared as usize,
                seed,
                SPARE_STACKS.as_ptr(),
                error.as_mut_ptr(),
                error.len(),
            )
        };
        if status == 0 {
            return Ok(());
        }
        let text = CStr::from_bytes_until_nul(&error).unwrap_or(c"unknown");
        Err(format!("{}: {}", self.name, text.to_string_lossy()))
    }
}
