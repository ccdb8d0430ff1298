//! Loaded kernels, by their plans: a cache of the most recently used ones.

use std::collections::HashMap;
use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use super::driver::{Compiled, Driver, Kernel};
use super::memory::lock;
use crate::emit::{Layout, NAME, emit};
use crate::error::{Error, Result};
use crate::kernel::KernelPlan;
use crate::program::{self, Program, assemble};
use vectile_encodings::streams::RunLength;
use vectile_kernels::{
    BANDWIDTH, BUILD, COLUMNS, COMPRESS, DECODE, DECODE_PAGES, DISTINCT, INFLATE, INFLATE_SNAPPY,
    TOKENIZER, decode_runs, interpreter,
};

/// Limit of the loaded kernels: each takes some 100 KB of the device's memory.
const MOST_KERNELS: usize = 512;
/// A kernel that was missing is looked for again after this time, since other processes compile, too. To generate its
/// source and to look for it takes as long as a small launch.
const MISSING_AGE: Duration = Duration::from_secs(1);

/// A kernel that is the same for every query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum FixedKernel {
    /// Makes tokens of strings.
    Tokenize,
    /// Numbers distinct strings.
    Distinct,
    /// Builds key tables.
    Build,
    /// Compresses strings.
    Compress,
    /// Decodes strings.
    Decode,
    /// Inflates chunks of Deflate.
    Inflate,
    /// Inflates chunks of Snappy.
    InflateSnappy,
    /// Decodes pages of Parquet.
    DecodePages,
    /// Decodes runs to values, of 64 bits unless they are bytes.
    DecodeRuns(RunLength),
    /// Builds columns of decoded values.
    Columns,
    /// Runs programs.
    Interpret,
    /// Reads all of a range, to measure how fast that is.
    ReadAll,
}

impl FixedKernel {
    /// All of them, in the order in which the background compiles them.
    pub fn all() -> impl Iterator<Item = Self> {
        iter::successors(Some(Self::Interpret), |kernel| kernel.next())
    }

    /// The one after this in the order of [`FixedKernel::all`]. The compiler demands a place for a new one.
    fn next(self) -> Option<Self> {
        use RunLength::{Bytes, V1, V2, Varints};
        Some(match self {
            Self::Interpret => Self::Build,
            Self::Build => Self::Tokenize,
            Self::Tokenize => Self::Distinct,
            Self::Distinct => Self::Decode,
            Self::Decode => Self::Compress,
            Self::Compress => Self::Inflate,
            Self::Inflate => Self::InflateSnappy,
            Self::InflateSnappy => Self::DecodePages,
            Self::DecodePages => Self::DecodeRuns(Bytes),
            Self::DecodeRuns(Bytes) => Self::DecodeRuns(V1 { is_signed: true }),
            Self::DecodeRuns(V1 { is_signed: true }) => Self::DecodeRuns(V1 { is_signed: false }),
            Self::DecodeRuns(V1 { is_signed: false }) => Self::DecodeRuns(V2 { is_signed: true }),
            Self::DecodeRuns(V2 { is_signed: true }) => Self::DecodeRuns(V2 { is_signed: false }),
            Self::DecodeRuns(V2 { is_signed: false }) => Self::DecodeRuns(Varints),
            Self::DecodeRuns(Varints) => Self::Columns,
            Self::Columns => Self::ReadAll,
            Self::ReadAll => return None,
        })
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Tokenize => "tokenize",
            Self::Distinct => "distinct",
            Self::Build => "build",
            Self::Compress => "compress",
            Self::Decode => "decode",
            Self::Inflate => "inflate",
            Self::InflateSnappy => "inflate_snappy",
            Self::DecodePages => "decode_pages",
            Self::DecodeRuns(_) => "decode_runs",
            Self::Columns => "columns",
            Self::Interpret => program::NAME,
            Self::ReadAll => "read_all",
        }
    }

    pub fn source(self) -> String {
        match self {
            Self::Tokenize => TOKENIZER.concat(),
            Self::Distinct => DISTINCT.concat(),
            Self::Build => BUILD.concat(),
            Self::Compress => COMPRESS.concat(),
            Self::Decode => DECODE.concat(),
            Self::Inflate => INFLATE.concat(),
            Self::InflateSnappy => INFLATE_SNAPPY.concat(),
            Self::DecodePages => DECODE_PAGES.concat(),
            Self::DecodeRuns(of @ RunLength::Bytes) => decode_runs(of, "u8"),
            Self::DecodeRuns(of) => decode_runs(of, "i64"),
            Self::Columns => COLUMNS.concat(),
            Self::Interpret => interpreter(cfg!(any(target_arch = "x86", target_arch = "x86_64"))),
            Self::ReadAll => BANDWIDTH.to_string(),
        }
    }
}

/// A kernel that can be launched.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub kernel: Arc<dyn Kernel>,
    pub layout: Layout,
    /// The program, if the kernel is the interpreter.
    pub program: Option<Program>,
    /// The rows that were grouped last time, and the entries that the tables needed.
    pub entries: Mutex<Option<(usize, TableEntries)>>,
}

/// Entries of hash tables of groups.
#[derive(Clone, Debug)]
pub(crate) struct TableEntries {
    /// Those of the group table; `None` if its groups are not hashed.
    pub groups: Option<u64>,
    /// Those of each set of distinct values.
    pub sets: Vec<u64>,
}

impl Loaded {
    /// The interpreter, with a program.
    fn program(kernel: Arc<dyn Kernel>, (program, layout): (Program, Layout)) -> Self {
        Self {
            kernel,
            layout,
            program: Some(program),
            entries: Mutex::default(),
        }
    }
}

/// A kernel, compiled by the first thread that needs it.
type KernelSlot<T> = Arc<Mutex<Known<T>>>;

/// The state of a kernel, or of the interpreter's program.
#[derive(Debug, Default)]
enum Known<T: ?Sized> {
    #[default]
    Nothing,
    /// It was neither loaded nor on disk at that time. The text says why it cannot be compiled, if that is so.
    Missing(Instant, Option<String>),
    /// The compiler's log, or the reason why there is no program.
    Failed(String),
    Loaded(Arc<T>),
}

#[derive(Debug)]
pub(crate) struct Kernels {
    loaded: Mutex<Cache>,
    programs: Mutex<Cache>,
    wide_programs: Mutex<Cache>,
    most: usize,
    fixed: Mutex<HashMap<FixedKernel, KernelSlot<dyn Kernel>>>,
}

#[derive(Debug, Default)]
struct Cache {
    slots: HashMap<KernelPlan, (u64, KernelSlot<Loaded>)>,
    /// Counts uses.
    clock: u64,
}

impl Default for Kernels {
    fn default() -> Self {
        Self {
            loaded: Mutex::default(),
            programs: Mutex::default(),
            wide_programs: Mutex::default(),
            most: MOST_KERNELS,
            fixed: Mutex::default(),
        }
    }
}

/// Locks a slot, or returns an error while another thread fills it: the kernel is not there then.
fn try_lock<T>(slot: &Mutex<T>) -> Result<MutexGuard<'_, T>> {
    match slot.try_lock() {
        Ok(slot) => Ok(slot),
        Err(TryLockError::Poisoned(slot)) => Ok(slot.into_inner()),
        Err(TryLockError::WouldBlock) => Err(Error::NotCompiled),
    }
}

/// The kernel of a slot, which `make` loads if there is none. A failure to compile is kept, too: it would recur.
fn filled<T: ?Sized>(slot: &mut Known<T>, make: impl FnOnce() -> Result<Arc<T>>) -> Result<Arc<T>> {
    match slot {
        Known::Loaded(kernel) => return Ok(Arc::clone(kernel)),
        Known::Failed(log) => return Err(Error::Compile { log: log.clone() }),
        Known::Nothing | Known::Missing(..) => {}
    }
    let kernel = make();
    match &kernel {
        Ok(kernel) => *slot = Known::Loaded(Arc::clone(kernel)),
        Err(Error::Compile { log }) => *slot = Known::Failed(log.clone()),
        Err(Error::NotCompiled) => *slot = Known::Missing(Instant::now(), None),
        Err(Error::NoCompiler(reason)) => {
            *slot = Known::Missing(Instant::now(), Some(reason.clone()));
        }
        Err(_) => {}
    }
    kernel
}

/// The interpreter, which is this kernel, with the program of a slot, which `make` assembles if there is none. A refusal is
/// kept, too.
fn program(
    slot: &mut Known<Loaded>,
    kernel: &Arc<dyn Kernel>,
    make: impl FnOnce() -> Result<(Program, Layout)>,
) -> Result<Arc<Loaded>> {
    match &*slot {
        Known::Loaded(known) => return Ok(Arc::clone(known)),
        Known::Failed(reason) => return Err(Error::Unsupported(reason.clone())),
        Known::Nothing | Known::Missing(..) => {}
    }
    let assembled = make();
    if let Err(Error::Unsupported(reason)) = &assembled {
        *slot = Known::Failed(reason.clone());
    }
    let loaded = Arc::new(Loaded::program(Arc::clone(kernel), assembled?));
    *slot = Known::Loaded(Arc::clone(&loaded));
    Ok(loaded)
}

impl Kernels {
    /// The kernel of a plan, generated and compiled if necessary. The flag is true if the compiler ran.
    pub fn get(&self, plan: &KernelPlan, driver: &dyn Driver) -> Result<(Arc<Loaded>, bool)> {
        let slot = self.slot(plan);
        // other threads that need this kernel wait here; if the driver fails, the next one tries
        let mut has_compiled = false;
        let loaded = filled(&mut lock(&slot), || {
            loaded(plan, |source| {
                let compiled = driver.compile(source, NAME)?;
                has_compiled = !compiled.is_found;
                Ok(compiled)
            })
        });
        Ok((loaded?, has_compiled))
    }

    /// The kernel of a plan.
    ///
    /// # Errors
    ///
    /// [`Error::NotCompiled`] if it is neither loaded nor on disk, or is just being compiled; [`Error::NoCompiler`].
    pub fn find(&self, plan: &KernelPlan, driver: &dyn Driver) -> Result<Arc<Loaded>> {
        let slot = self.slot(plan);
        let mut slot = try_lock(&slot)?;
        if let Known::Missing(since, reason) = &*slot
            && since.elapsed() < MISSING_AGE
        {
            let reason = reason.clone();
            return Err(reason.map_or(Error::NotCompiled, Error::NoCompiler));
        }
        let find = |source: &str| driver.find(source, NAME)?.ok_or(Error::NotCompiled);
        filled(&mut slot, || loaded(plan, find))
    }

    /// The interpreter with the program of a plan.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if only a generated kernel can run the plan; [`Error::NotCompiled`] as
    /// [`Kernels::fixed`].
    pub fn interpreted(
        &self,
        plan: &KernelPlan,
        driver: &dyn Driver,
        may_compile: bool,
    ) -> Result<Arc<Loaded>> {
        let (slot, _) = lock(&self.programs).slot(plan, self.most);
        // before the slot is locked: this may take long, and others may not wait
        let kernel = self.fixed(FixedKernel::Interpret, driver, may_compile)?;
        program(&mut lock(&slot), &kernel, || assemble(plan, false))
    }

    /// The interpreter, which is this kernel, with the wide program of a plan.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if only a generated kernel can run the plan.
    pub fn wide(&self, plan: &KernelPlan, kernel: &Arc<dyn Kernel>) -> Result<Arc<Loaded>> {
        let (slot, _) = lock(&self.wide_programs).slot(plan, self.most);
        program(&mut lock(&slot), kernel, || assemble(plan, true))
    }

    /// Has a plan run by its wide program from now on; by a generated kernel if it has none.
    pub fn widen(&self, plan: &KernelPlan, kernel: &Arc<dyn Kernel>) -> Result<()> {
        let wide = self.wide(plan, kernel);
        let (slot, _) = lock(&self.programs).slot(plan, self.most);
        *lock(&slot) = match wide {
            Ok(wide) => Known::Loaded(wide),
            Err(Error::Unsupported(reason)) => Known::Failed(reason),
            Err(error) => return Err(error),
        };
        Ok(())
    }

    /// A kernel that no plan describes.
    ///
    /// # Errors
    ///
    /// [`Error::NotCompiled`] if it may not be compiled, and is neither loaded nor on disk, or is just being compiled.
    pub fn fixed(
        &self,
        kernel: FixedKernel,
        driver: &dyn Driver,
        may_compile: bool,
    ) -> Result<Arc<dyn Kernel>> {
        let slot = Arc::clone(lock(&self.fixed).entry(kernel).or_default());
        let mut slot = match may_compile {
            true => lock(&slot),
            false => try_lock(&slot)?,
        };
        filled(&mut slot, || {
            let (source, name) = (kernel.source(), kernel.name());
            let compiled = match may_compile {
                true => driver.compile(&source, name)?,
                false => driver.find(&source, name)?.ok_or(Error::NotCompiled)?,
            };
            Ok(compiled.kernel)
        })
    }

    /// Compiles a fixed kernel unless that takes no compiler. Meanwhile, threads that need it wait for it.
    ///
    /// # Errors
    ///
    /// As [`Driver::compile`].
    pub fn prepare(&self, kernel: FixedKernel, driver: &dyn Driver) -> Result<()> {
        match driver.needs_compiler(&kernel.source(), kernel.name()) {
            true => self.fixed(kernel, driver, true).map(drop),
            false => Ok(()),
        }
    }

    fn slot(&self, plan: &KernelPlan) -> KernelSlot<Loaded> {
        let (slot, dropped) = lock(&self.loaded).slot(plan, self.most);
        // unloads it, unless a query uses it
        drop(dropped);
        slot
    }
}

/// A slot that made room for another one.
type Dropped = Option<(u64, KernelSlot<Loaded>)>;

impl Cache {
    /// The slot of a plan, and the one used least recently if there are more than `most`.
    fn slot(&mut self, plan: &KernelPlan, most: usize) -> (KernelSlot<Loaded>, Dropped) {
        self.clock += 1;
        let now = self.clock;
        if let Some((used, slot)) = self.slots.get_mut(plan) {
            *used = now;
            return (Arc::clone(slot), None);
        }
        let mut dropped = None;
        if self.slots.len() >= most
            && let Some(oldest) = self.slots.iter().min_by_key(|(_, (used, _))| *used)
        {
            let oldest = oldest.0.clone();
            dropped = self.slots.remove(&oldest);
        }
        let slot = KernelSlot::<Loaded>::default();
        self.slots.insert(plan.clone(), (now, Arc::clone(&slot)));
        (slot, dropped)
    }
}

/// The kernel of a plan, from its source by `compile`.
fn loaded(
    plan: &KernelPlan,
    compile: impl FnOnce(&str) -> Result<Compiled>,
) -> Result<Arc<Loaded>> {
    let emitted = emit(plan);
    let compiled = compile(&emitted.source())?;
    Ok(Arc::new(Loaded {
        kernel: compiled.kernel,
        layout: emitted.layout,
        program: None,
        entries: Mutex::default(),
    }))
}

#[cfg(test)]
pub(super) mod tests {
    use std::any::Any;
    use std::collections::HashSet;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::kernel::{Facts, Task, plan};
    use crate::runtime::driver::{DeviceInfo, Stream};
    use vectile_pipeline::{Filter, Output, Pipeline};

    #[derive(Debug)]
    struct Counted(Arc<AtomicUsize>);

    impl Kernel for Counted {
        fn as_any(&self) -> &dyn Any {
            self
        }

        fn resident_blocks(&self, _: u32, _: u32) -> u32 {
            1
        }
    }

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Counts loaded kernels instead of compiling them; the first `failures` calls fail.
    #[derive(Debug, Default)]
    pub struct Counting {
        pub loaded: Arc<AtomicUsize>,
        pub failures: AtomicUsize,
        /// Searches on disk, which find nothing.
        pub searches: AtomicUsize,
        /// If set, compilation fails, and these calls are counted.
        pub misfits: Option<AtomicUsize>,
        /// The only kernel that needs no compiler.
        pub ready: Option<FixedKernel>,
    }

    impl Driver for Counting {
        fn find(&self, _: &str, _: &str) -> Result<Option<Compiled>> {
            self.searches.fetch_add(1, Ordering::Relaxed);
            Ok(None)
        }

        fn needs_compiler(&self, _: &str, name: &str) -> bool {
            self.ready.is_none_or(|ready| ready.name() != name)
        }

        fn compile(&self, _: &str, _: &str) -> Result<Compiled> {
            if self.failures.load(Ordering::Relaxed) > 0 {
                self.failures.fetch_sub(1, Ordering::Relaxed);
                return Err(Error::Lost("gone".into()));
            }
            if let Some(misfits) = &self.misfits {
                misfits.fetch_add(1, Ordering::Relaxed);
                return Err(Error::Compile { log: "f0".into() });
            }
            self.loaded.fetch_add(1, Ordering::Relaxed);
            Ok(Compiled {
                kernel: Arc::new(Counted(Arc::clone(&self.loaded))),
                is_found: false,
            })
        }

        fn info(&self) -> &DeviceInfo {
            unreachable!()
        }

        fn free_memory(&self) -> Result<u64> {
            unreachable!()
        }

        fn allocate(&self, _: usize) -> Result<u64> {
            unreachable!()
        }

        unsafe fn free(&self, _: u64) {}

        fn allocate_host(&self, _: usize) -> Result<*mut u8> {
            unreachable!()
        }

        unsafe fn free_host(&self, _: *mut u8) {}

        fn stream(&self) -> Result<Box<dyn Stream>> {
            unreachable!()
        }
    }

    /// A plan with so many conjuncts.
    pub fn planned(conjuncts: usize) -> KernelPlan {
        let pipeline = Pipeline {
            columns: vec![],
            lookups: vec![],
            matches: vec![],
            filter: Filter::And(vec![Filter::Constant(false); conjuncts]),
            output: Output::Selection,
        };
        plan(&pipeline, &[], &Facts::default(), Task::Masks)
            .unwrap()
            .0
    }

    #[test]
    fn those_used_last_stay_loaded() {
        let driver = Counting::default();
        let loaded = || driver.loaded.load(Ordering::Relaxed);
        let kernels = Kernels {
            most: 3,
            ..Kernels::default()
        };
        let ask = |conjuncts| kernels.get(&planned(conjuncts), &driver).unwrap();
        for conjuncts in 1..=3 {
            assert!(ask(conjuncts).1);
        }
        assert!(!ask(1).1);
        let in_use = ask(4).0;
        assert_eq!(loaded(), 3);
        for (conjuncts, is_new) in [(1, false), (3, false), (2, true), (5, true)] {
            assert_eq!(ask(conjuncts).1, is_new, "{conjuncts}");
        }
        assert_eq!(loaded(), 4, "one is in use");
        drop(in_use);
        assert_eq!(loaded(), 3);
    }

    #[test]
    fn a_kernel_that_is_not_there_is_not_compiled() {
        let driver = Counting::default();
        let kernels = Kernels::default();
        let found = kernels.find(&planned(1), &driver);
        assert!(matches!(found, Err(Error::NotCompiled)));
        assert!(kernels.get(&planned(1), &driver).unwrap().1);
        kernels.find(&planned(1), &driver).unwrap();
        // another thread compiles it
        let slot = kernels.slot(&planned(2));
        let compiling = lock(&slot);
        let found = kernels.find(&planned(2), &driver);
        assert!(matches!(found, Err(Error::NotCompiled)));
        drop(compiling);
        assert_eq!(driver.loaded.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_missing_kernel_is_searched_once_in_a_while() {
        let driver = Counting::default();
        let kernels = Kernels::default();
        let searches = || driver.searches.load(Ordering::Relaxed);
        let is_missing = || {
            let found = kernels.find(&planned(1), &driver);
            matches!(found, Err(Error::NotCompiled))
        };
        assert!(is_missing() && is_missing());
        assert_eq!(searches(), 1);
        let long_ago = Instant::now().checked_sub(MISSING_AGE).unwrap();
        *lock(&kernels.slot(&planned(1))) = Known::Missing(long_ago, None);
        assert!(is_missing() && is_missing());
        assert_eq!(searches(), 2);
        kernels.get(&planned(1), &driver).unwrap();
        assert!(!is_missing());
    }

    #[test]
    fn a_failure_is_not_kept() {
        let driver = Counting::default();
        driver.failures.store(1, Ordering::Relaxed);
        let kernels = Kernels::default();
        let failed = kernels.get(&planned(1), &driver);
        assert!(matches!(failed, Err(Error::Lost(_))));
        assert!(kernels.get(&planned(1), &driver).unwrap().1);
        assert!(!kernels.get(&planned(1), &driver).unwrap().1);
    }

    #[test]
    fn failed_compilations_are_cached() {
        let driver = Counting {
            misfits: Some(AtomicUsize::new(0)),
            ..Counting::default()
        };
        let kernels = Kernels::default();
        let is_defect = |error: Error| matches!(error, Error::Compile { log } if log == "f0");
        for _ in 0..2 {
            assert!(is_defect(kernels.get(&planned(1), &driver).unwrap_err()));
            assert!(is_defect(kernels.find(&planned(1), &driver).unwrap_err()));
            let fixed = |may_compile| kernels.fixed(FixedKernel::Build, &driver, may_compile);
            assert!(is_defect(fixed(true).unwrap_err()));
            assert!(is_defect(fixed(false).unwrap_err()));
        }
        let compiled = driver.misfits.as_ref().unwrap();
        assert_eq!(compiled.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn only_what_is_missing_is_prepared() {
        let driver = Counting {
            ready: Some(FixedKernel::Build),
            ..Counting::default()
        };
        let kernels = Kernels::default();
        for _ in 0..2 {
            for kernel in [FixedKernel::Build, FixedKernel::Decode] {
                kernels.prepare(kernel, &driver).unwrap();
            }
            assert_eq!(driver.loaded.load(Ordering::Relaxed), 1);
        }
        kernels.fixed(FixedKernel::Decode, &driver, false).unwrap();
        let build = kernels.fixed(FixedKernel::Build, &driver, false);
        assert!(matches!(build, Err(Error::NotCompiled)));
    }

    #[test]
    fn all_fixed_kernels_are_distinct() {
        let all: Vec<FixedKernel> = FixedKernel::all().collect();
        let distinct: HashSet<FixedKernel> = all.iter().copied().collect();
        assert_eq!(all.len(), distinct.len());
    }

    #[test]
    fn fixed_kernels_compile_without_spills() {
        if let Err(error) = crate::nvrtc() {
            return eprintln!("skipped: {error}");
        }
        for capability in [(8, 0), (9, 0), (10, 0), (12, 0)] {
            let all = FixedKernel::all();
            // the interpreter takes half a minute, and may spill
            for fixed in all.filter(|fixed| *fixed != FixedKernel::Interpret) {
                let cubin = crate::compile_cubin(&fixed.source(), capability).unwrap();
                let [kernel] = cubin.resources.as_slice() else {
                    panic!("{}", cubin.log)
                };
                assert_eq!(kernel.kernel, fixed.name());
                assert_eq!((kernel.spill_stores, kernel.stack), (0, 0), "{fixed:?}");
            }
        }
    }
}
