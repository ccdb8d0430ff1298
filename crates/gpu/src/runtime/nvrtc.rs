//! NVIDIA's run-time compiler: CUDA C++ to machine code of one architecture.
//!
//! The compiler is a library found at run time, and works without a driver. Its functions are taken from the very
//! library that was opened: where several versions are installed, cubins, version and path are of the same one.
//!
//! The library loads a second one, `libnvrtc-builtins`, by name, from the loader's search path only. This module opens
//! it beforehand by its full path, because a loaded library is found by its name.

mod calls;
mod files;
mod resources;

use std::ffi::CString;
use std::fmt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Once, OnceLock};
use std::thread::{self, ScopedJoinHandle};

use libloading::Library;

use self::calls::{COMPILATION_FAILED, Calls, OUT_OF_MEMORY, ProgramGuard, SUCCESS};
pub use self::files::NVRTC_VARIABLE;
use self::files::{build_of, builtins_of, candidates, file_of};
pub use self::resources::Resources;
use super::cache::Key;
use super::calls::driver_version;
use super::exit::{CallGuard, is_unawaited, wait_at_exit};
use crate::error::{Error, Result};

/// The compiler of this process, loaded by the first call.
///
/// # Errors
///
/// [`Error::Unavailable`] if there is none that the installed driver can work with.
pub fn nvrtc() -> Result<&'static Nvrtc> {
    static NVRTC: OnceLock<Result<Nvrtc, String>> = OnceLock::new();
    let found = NVRTC.get_or_init(|| {
        let driver = driver_version().ok();
        let found = Nvrtc::find(&candidates(), driver);
        wait_at_exit();
        found
    });
    let missing = |reason: &String| Error::Unavailable(reason.clone());
    found.as_ref().map_err(missing)
}

/// Compiles CUDA C++ for devices of that compute capability, such as `(9, 0)`, on the calling thread alone. Needs no
/// device.
///
/// # Errors
///
/// [`Error::Compile`] with the compiler's log; [`Error::Unavailable`] without a compiler.
pub fn compile_cubin(source: &str, capability: (u32, u32)) -> Result<Cubin> {
    nvrtc()?.compile_on(1, source, capability)
}

/// Machine code, and the compiler's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cubin {
    /// The code, an ELF file.
    pub bytes: Vec<u8>,
    /// The compiler's log: warnings, and the resources of each kernel.
    pub log: String,
    /// Resources of each kernel, from the log.
    pub resources: Vec<Resources>,
}

/// The run-time compiler.
pub struct Nvrtc {
    calls: Calls,
    version: (u32, u32),
    architectures: Vec<(u32, u32)>,
    path: Option<PathBuf>,
    /// Distinguishes builds of the same version.
    build: String,
    /// Must not be unloaded before the last call.
    _library: Library,
    _builtins: Option<Library>,
}

impl fmt::Debug for Nvrtc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nvrtc")
            .field("version", &self.version)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Nvrtc {
    /// Its version, such as `(13, 0)`.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// The library's file, if the system provides it.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Compute capabilities of its targets.
    pub fn architectures(&self) -> &[(u32, u32)] {
        &self.architectures
    }

    /// The first of these files that is a compiler for that version of the driver.
    fn find(candidates: &[PathBuf], driver: Option<(u32, u32)>) -> Result<Nvrtc, String> {
        let mut reasons = Vec::new();
        for file in candidates {
            match Nvrtc::open(file).and_then(|nvrtc| nvrtc.suits(driver)) {
                Ok(nvrtc) => return Ok(nvrtc),
                Err(reason) => reasons.push(reason),
            }
        }
        // The reason why a file does not load is more informative than that another is absent.
        let telling = reasons.iter().find(|reason| !is_absence(reason));
        Err(match (telling, reasons.first()) {
            (Some(reason), _) => format!("no NVRTC, CUDA's run-time compiler: {reason}"),
            (None, Some(reason)) => {
                format!("no NVRTC, CUDA's run-time compiler: {reason}; {ADVICE}")
            }
            (None, None) => format!("no NVRTC, CUDA's run-time compiler; {ADVICE}"),
        })
    }

    fn open(file: &Path) -> Result<Nvrtc, String> {
        let failed = |error: libloading::Error| with_source(&error);
        // SAFETY: the library by that name is NVIDIA's, whose initialization requires nothing.
        let library = unsafe { Library::new(file) }.map_err(failed)?;
        let calls = Calls::of(&library).map_err(failed)?;
        let version = calls.read_version()?;
        let path =
            file_of(calls.version as usize).or_else(|| file.is_absolute().then(|| file.into()));
        let builtins_file = path.as_deref().and_then(|path| builtins_of(path, version));
        let files = path.iter().chain(&builtins_file);
        let build = files.map(|file| build_of(file)).collect();
        // SAFETY: the library by that name is NVIDIA's, whose initialization requires nothing.
        let builtins = builtins_file.and_then(|file| unsafe { Library::new(file) }.ok());
        Ok(Nvrtc {
            build,
            architectures: calls.read_architectures()?,
            calls,
            version,
            path,
            _library: library,
            _builtins: builtins,
        })
    }

    /// Checks the driver's version: a driver loads cubins of a compiler of its own major version, or of an older one.
    fn suits(self, driver: Option<(u32, u32)>) -> Result<Nvrtc, String> {
        match driver {
            Some(driver) if driver.0 < self.version.0 => Err(format!(
                "version {}.{} makes code for newer drivers than the installed one, which is for \
                 CUDA {}.{}; install a newer driver, or NVRTC {}",
                self.version.0, self.version.1, driver.0, driver.1, driver.0
            )),
            _ => Ok(self),
        }
    }

    /// The compute capability to compile for, for a device: the device's own, or else the nearest below with the same
    /// major number, whose code it runs as well.
    pub(crate) fn target(&self, device: (u32, u32)) -> Result<(u32, u32)> {
        let all = self.architectures.iter().copied();
        let fit = all.filter(|it| it.0 == device.0 && it.1 <= device.1);
        fit.max().ok_or_else(|| {
            Error::Unavailable(format!(
                "NVRTC {}.{} does not compile for compute capability {}.{}",
                self.version.0, self.version.1, device.0, device.1
            ))
        })
    }

    /// Everything that the result of [`Nvrtc::compile`] depends on.
    pub(crate) fn key(&self, source: &str, capability: (u32, u32)) -> Key {
        self.key_of(&self.build, source, capability)
    }

    fn key_of(&self, build: &str, source: &str, capability: (u32, u32)) -> Key {
        let compiler = format!("nvrtc {}.{}{build}", self.version.0, self.version.1);
        let options = self.options(capability);
        let mut parts = vec![compiler.as_str()];
        parts.extend(options.iter().map(String::as_str));
        parts.extend([MOST_REGISTERS, source]);
        Key::new(&parts)
    }

    /// Compiles CUDA C++ for devices of that compute capability. If it spills, compiles once more with
    /// `MOST_REGISTERS` defined, so that kernels request as many registers as there are. Spills are known only at the
    /// end: with spare cores, both variants are compiled at the same time.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`] with the compiler's log.
    pub fn compile(&self, source: &str, capability: (u32, u32)) -> Result<Cubin> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        self.compile_on(cores, source, capability)
    }

    /// As [`Nvrtc::compile`], with that many cores.
    pub(crate) fn compile_on(
        &self,
        cores: usize,
        source: &str,
        capability: (u32, u32),
    ) -> Result<Cubin> {
        if is_unawaited() {
            self.compile_first(capability)?;
        }
        let _guard = CallGuard::begin()?;
        let spilled = |cubin: &Cubin| -> u32 {
            let used = cubin.resources.iter();
            used.map(|used| used.spill_stores + used.spill_loads).sum()
        };
        let most = || {
            let mut options = self.options(capability);
            options.push(MOST_REGISTERS.to_string());
            self.compile_with(source, options)
        };
        thread::scope(|scope| {
            // if no thread starts, it is compiled after
            let beside = || thread::Builder::new().spawn_scoped(scope, most).ok();
            let most_beside = (cores >= SPARE_CORES).then(beside).flatten();
            let first = self.compile_with(source, self.options(capability))?;
            if spilled(&first) == 0 {
                return Ok(first);
            }
            let most = match most_beside.map(ScopedJoinHandle::join) {
                Some(Ok(compiled)) => compiled?,
                Some(Err(panic)) => resume_unwind(panic),
                None => most()?,
            };
            let is_better = spilled(&most) < spilled(&first);
            Ok(if is_better { most } else { first })
        })
    }

    /// Compiles an empty kernel if none has been compiled yet: the end of the process has to wait for the first one.
    fn compile_first(&self, capability: (u32, u32)) -> Result<()> {
        if FIRST.is_completed() {
            return Ok(());
        }
        let _guard = CallGuard::begin_awaited()?;
        self.compile_with(
            "extern \"C\" __global__ void nothing() {}",
            self.options(capability),
        )
        .map(drop)
    }

    /// Compiles CUDA C++ to PTX, which drivers compile for devices of that compute capability and of later ones. A text,
    /// with the zero at its end.
    ///
    /// # Errors
    ///
    /// [`Error::Compile`] with the compiler's log.
    pub(crate) fn compile_ptx(&self, source: &str, capability: (u32, u32)) -> Result<Vec<u8>> {
        let _guard = CallGuard::begin()?;
        let options = self.options_for("compute", capability);
        let (ptx, _) = self.run(source, options, |program| program.ptx())?;
        Ok(ptx)
    }

    /// Options for machine code. The log tells resources.
    fn options(&self, capability: (u32, u32)) -> Vec<String> {
        let mut options = self.options_for("sm", capability);
        options.push("--ptxas-options=-v".to_string());
        options
    }

    /// NVRTC's own cache omits the log of resources, and this crate has a cache.
    fn options_for(&self, kind: &str, (major, minor): (u32, u32)) -> Vec<String> {
        let mut options = vec![format!("--gpu-architecture={kind}_{major}{minor}")];
        options.extend(OPTIONS.map(str::to_string));
        if self.version() >= FIRST_WITH_CACHE {
            options.push("--no-cache".to_string());
        }
        options
    }

    fn compile_with(&self, source: &str, options: Vec<String>) -> Result<Cubin> {
        let (bytes, log) = self.run(source, options, |program| program.cubin())?;
        Ok(Cubin {
            bytes,
            resources: Resources::parse(&log),
            log,
        })
    }

    /// What `read` reads of the compiled program, and the compiler's log.
    fn run<T>(
        &self,
        source: &str,
        options: Vec<String>,
        read: impl FnOnce(&ProgramGuard<'_>) -> Result<T>,
    ) -> Result<(T, String)> {
        let refused = |error: std::ffi::NulError| Error::Compile {
            log: error.to_string(),
        };
        let source = CString::new(source).map_err(refused)?;
        let options = options.into_iter().map(CString::new);
        let options = options.collect::<Result<Vec<_>, _>>().map_err(refused)?;
        let program = self.calls.program(&source)?;
        let result = program.compile(&options);
        FIRST.call_once(wait_at_exit);
        let log = program.log()?;
        match result {
            SUCCESS => (),
            COMPILATION_FAILED => return Err(Error::Compile { log }),
            // it may compile another time
            OUT_OF_MEMORY => self.calls.check("nvrtcCompileProgram", result)?,
            // Refused options, missing builtins, ...
            result => {
                let reason = self.calls.describe(result);
                let log = format!("{reason}\n{log}").trim().to_string();
                return Err(Error::Compile { log });
            }
        }
        Ok((read(&program)?, log))
    }
}

/// The first compilation registers exit handlers, which must run after ours: those are registered again.
static FIRST: Once = Once::new();

/// Options for every target. `--fmad=false`: a product and a sum are rounded one by one, as they are on the CPU.
pub(crate) const OPTIONS: [&str; 4] = [
    "--std=c++17",
    "--device-int128",
    "--fmad=false",
    // generic lambdas cannot be device code otherwise
    "--device-as-default-execution-space",
];

/// Advice for users without a compiler.
const ADVICE: &str = "install the CUDA toolkit or the Python package nvidia-cuda-nvrtc, and name \
                      the directory of libnvrtc.so.13 in VECTILE_NVRTC if the loader does not \
                      look there";

/// Returns true if the reason is that there is no such file.
fn is_absence(reason: &str) -> bool {
    reason.contains("cannot open shared object file")
}

/// The first version of NVRTC with a cache.
const FIRST_WITH_CACHE: (u32, u32) = (12, 9);

/// Cores from which on two compilations of a kernel leave some to other threads.
const SPARE_CORES: usize = 4;

/// The option for kernels that spill.
const MOST_REGISTERS: &str = "--define-macro=MOST_REGISTERS";

fn with_source(error: &libloading::Error) -> String {
    use std::error::Error as _;
    match error.source() {
        Some(source) => source.to_string(),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::env;
    use std::process::Command;
    use std::time::Duration;

    use super::files::in_directory;
    use super::*;
    use crate::runtime::exit::unawaited;

    /// The compiler, if there is one. Where `VECTILE_TEST_GPU` is set, there must be one.
    fn compiler() -> Option<&'static Nvrtc> {
        let found = nvrtc().inspect_err(|error| {
            assert!(env::var_os("VECTILE_TEST_GPU").is_none(), "{error}");
            eprintln!("not run: {error}");
        });
        found.ok()
    }

    const SOURCE: &str = r#"
typedef unsigned long long u64;
struct Args { u64 word[2]; };
extern "C" __global__ void add(const Args args) {
    __shared__ u64 sums[128];
    sums[threadIdx.x] = ((u64*)args.word[0])[threadIdx.x];
    __syncthreads();
    __int128 product = (__int128)sums[127 - threadIdx.x] * args.word[1];
    ((u64*)args.word[0])[threadIdx.x] = (u64)(product >> 64);
}
extern "C" __global__ void nothing() {}
"#;

    #[test]
    fn it_compiles_for_every_generation() {
        let Some(nvrtc) = compiler() else { return };
        assert!(nvrtc.version() >= (12, 0));
        assert!(nvrtc.path().is_none_or(Path::is_file));
        for capability in [(8, 0), (9, 0), (10, 0), (12, 0)] {
            if !nvrtc.architectures().contains(&capability) {
                continue; // version 12.0 does not know the last two
            }
            let cubin = compile_cubin(SOURCE, capability).unwrap();
            assert!(cubin.bytes.starts_with(b"\x7fELF"));
            let named = |name: &str| {
                let mut all = cubin.resources.iter();
                all.find(|it| it.kernel == name).unwrap()
            };
            let add = named("add");
            assert_eq!(add.shared, 1024, "{}", cubin.log);
            assert!(add.registers >= 8 && add.spill_stores == 0, "{add:?}");
            assert_eq!(named("nothing").shared, 0);
            assert_eq!(cubin.resources.len(), 2);
        }
    }

    #[test]
    fn ptx_is_a_text_for_drivers() {
        let Some(nvrtc) = compiler() else { return };
        let ptx = nvrtc.compile_ptx(SOURCE, (8, 0)).unwrap();
        let text = CString::from_vec_with_nul(ptx).unwrap().into_string();
        let text = text.unwrap();
        assert!(text.contains(".target sm_80"), "{text}");
        assert!(text.contains(".entry add("), "{text}");
    }

    /// In a process of its own.
    #[test]
    fn a_process_may_end_while_a_kernel_is_compiled_ahead() {
        const VARIABLE: &str = "VECTILE_TEST_AHEAD";
        let test = concat!(
            module_path!(),
            "::a_process_may_end_while_a_kernel_is_compiled_ahead"
        );
        let test = test.split_once("::").unwrap().1;
        let Some(nvrtc) = compiler() else { return };
        if env::var_os(VARIABLE).is_some() {
            // takes seconds
            let lines = (1..20_000).map(|i| format!("x = x * {i} + (x >> {});\n", i % 31));
            let body: String = lines.collect();
            let source =
                format!("extern \"C\" __global__ void k(int *p) {{ int x = *p; {body} *p = x; }}");
            thread::spawn(move || {
                let compiled = unawaited(|| nvrtc.compile_on(1, &source, (9, 0)));
                println!("compiled {}", compiled.is_ok());
            });
            while !FIRST.is_completed() {
                thread::yield_now();
            }
            thread::sleep(Duration::from_millis(100));
            std::process::exit(7);
        }
        let mut command = Command::new(env::current_exe().unwrap());
        command.args([test, "--exact", "--nocapture"]);
        let output = command.env(VARIABLE, "1").output().unwrap();
        let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert_eq!(output.status.code(), Some(7), "{err}");
        assert!(!out.contains("compiled"), "{out}");
    }

    #[test]
    fn spills_are_seen() {
        let Some(nvrtc) = compiler() else { return };
        let source = r#"
extern "C" __global__ void __launch_bounds__(1024, 2) spill(const float* in, float* out) {
    float values[96];
    for (int round = 0; round < 4; round++) {
#pragma unroll
        for (int i = 0; i < 96; i++) values[i] = in[i * 1024 + threadIdx.x + round];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 96; i++) out[i * 1024 + threadIdx.x] = values[i] * values[95 - i];
    }
}
"#;
        for cores in [1, SPARE_CORES] {
            let cubin = nvrtc.compile_on(cores, source, (9, 0)).unwrap();
            let [spill] = cubin.resources.as_slice() else {
                panic!("{}", cubin.log)
            };
            assert!(spill.spill_stores > 0 && spill.spill_loads > 0, "{spill:?}");
            assert_eq!(spill.registers, 32);
            let relaxed = source.replace("(1024, 2)", "(1024, 2 - MOST)");
            let relaxed = format!("{MOST}{relaxed}");
            let cubin = nvrtc.compile_on(cores, &relaxed, (9, 0)).unwrap();
            assert!(cubin.resources[0].spill_stores < spill.spill_stores);
            assert_eq!(cubin.resources[0].registers, 64);
        }
    }

    const MOST: &str = "
#ifdef MOST_REGISTERS
#define MOST 1
#else
#define MOST 0
#endif
";

    #[test]
    fn errors_show_the_log() {
        let Some(nvrtc) = compiler() else { return };
        match nvrtc.compile("__global__ void f() { oops(); }", (9, 0)) {
            Err(Error::Compile { log }) => {
                assert!(
                    log.contains("oops") && log.contains("kernel.cu(1)"),
                    "{log}"
                );
            }
            other => panic!("{other:?}"),
        }
        for (source, capability) in [("void\0", (9, 0)), ("", (99, 9))] {
            let result = nvrtc.compile(source, capability);
            assert!(matches!(result, Err(Error::Compile { .. })), "{result:?}");
        }
    }

    #[test]
    fn targets_are_the_devices_or_below() {
        let Some(nvrtc) = compiler() else { return };
        assert_eq!(nvrtc.target((9, 0)).unwrap(), (9, 0));
        assert_eq!(nvrtc.target((8, 6)).unwrap(), (8, 6));
        let newer = nvrtc.target((8, 99)).unwrap();
        assert!(newer.0 == 8 && newer.1 >= 6, "{newer:?}");
        for unknown in [(3, 5), (99, 0)] {
            let result = nvrtc.target(unknown);
            assert!(matches!(result, Err(Error::Unavailable(_))), "{result:?}");
        }
    }

    #[test]
    fn keys_tell_everything_apart() {
        let Some(nvrtc) = compiler() else { return };
        let key = nvrtc.key("a", (9, 0));
        assert_eq!(key, nvrtc.key("a", (9, 0)));
        assert_ne!(key, nvrtc.key("b", (9, 0)));
        assert_ne!(key, nvrtc.key("a", (8, 0)));
        assert_eq!(key, nvrtc.key_of(&nvrtc.build, "a", (9, 0)));
        assert_ne!(key, nvrtc.key_of("another build", "a", (9, 0)));
        assert!(nvrtc.path().is_none() || nvrtc.build.contains("libnvrtc"));
    }

    #[test]
    fn a_library_that_is_none_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let empty = directory.path().to_path_buf();
        let reason = Nvrtc::find(&in_directory(empty.clone()), None).unwrap_err();
        assert!(reason.contains("libnvrtc.so.13"), "{reason}");
        assert!(reason.contains(NVRTC_VARIABLE), "{reason}");
        // The error names the fault of the file that is there, not the absence of others.
        std::fs::write(empty.join("libnvrtc.so.12"), "not a library").unwrap();
        let reason = Nvrtc::find(&in_directory(empty), None).unwrap_err();
        assert!(reason.contains("libnvrtc.so.12"), "{reason}");
        // A library, but another one.
        let reason = Nvrtc::find(&[PathBuf::from("libc.so.6")], None).unwrap_err();
        assert!(reason.contains("nvrtc"), "{reason}");
        assert!(Nvrtc::find(&[], None).is_err());
    }

    #[test]
    fn a_driver_that_is_too_old_is_named() {
        let Some(nvrtc) = compiler() else { return };
        let Some(path) = nvrtc.path() else { return };
        let candidates = [path.to_path_buf()];
        let older = (nvrtc.version().0 - 1, 9);
        let reason = Nvrtc::find(&candidates, Some(older)).unwrap_err();
        assert!(reason.contains(&format!("CUDA {}.9", older.0)), "{reason}");
        let same = (nvrtc.version().0, 0);
        assert!(Nvrtc::find(&candidates, Some(same)).is_ok());
    }
}
