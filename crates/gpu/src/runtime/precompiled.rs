//! Kernels that need no compiler at run time, because they were compiled when Vectile was built.
//!
//! A build embeds the [archive](super::archive) that the environment variable `VECTILE_KERNELS` names.

use std::collections::BTreeMap;
use std::iter;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use super::archive::{Archive, ArchiveError, Archived, Platform, Target, write};
use super::kernels::FixedKernel;
use super::memory::lock;
use super::nvrtc::{Nvrtc, nvrtc};
use crate::error::{Error, Result};

/// Compute capabilities that have machine code. Devices of the same major number run that of the nearest one below.
const CAPABILITIES: [(u32, u32); 6] = [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)];
/// All other devices run PTX of this compute capability.
const PTX_CAPABILITY: (u32, u32) = (8, 0);

static EMBEDDED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/kernels.archive"));

/// The archive of this build; `None` if it has none.
pub(crate) fn embedded() -> Result<Option<&'static Archive<'static>>, ArchiveError> {
    static ARCHIVE: OnceLock<Result<Option<Archive<'static>>, ArchiveError>> = OnceLock::new();
    let parsed = ARCHIVE.get_or_init(|| match EMBEDDED {
        [] => Ok(None),
        bytes => Archive::parse(bytes).map(Some),
    });
    parsed.as_ref().map(Option::as_ref).map_err(Clone::clone)
}

/// Compiles the kernels that are the same for every query, for every target, to an archive that a build can embed. Uses
/// all cores; needs NVRTC, but no device.
///
/// # Errors
///
/// [`Error::Unavailable`] without an NVRTC that knows all targets; [`Error::Compile`].
pub fn precompile() -> Result<Vec<u8>> {
    let nvrtc = nvrtc()?;
    let targets = CAPABILITIES.map(Target::Cubin);
    let targets = targets.into_iter().chain([Target::Ptx(PTX_CAPABILITY)]);
    let targets: Vec<Target> = targets.collect();
    let jobs = FixedKernel::all().flat_map(|kernel| {
        let targets = targets.iter();
        targets.map(move |target| (kernel, *target))
    });
    let jobs: Vec<(FixedKernel, Target)> = jobs.collect();
    let (next, compiled) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    let work = || {
        let take = || next.fetch_add(1, Ordering::Relaxed);
        for number in iter::repeat_with(take) {
            let Some((kernel, target)) = jobs.get(number) else {
                return;
            };
            let kernel = compile(nvrtc, *kernel, *target);
            lock(&compiled).insert(number, kernel);
        }
    };
    thread::scope(|scope| {
        let others = thread::available_parallelism().map_or(1, usize::from) - 1;
        for _ in 0..others {
            // fewer threads only take longer
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    let compiled = compiled
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    let compiled: Vec<Archived> = compiled.into_values().collect::<Result<_>>()?;
    Ok(write(nvrtc.version(), &compiled))
}

fn compile(nvrtc: &Nvrtc, kernel: FixedKernel, target: Target) -> Result<Archived> {
    let (name, source) = (kernel.name(), kernel.source());
    let code = match target {
        Target::Cubin(capability) => nvrtc.compile_on(1, &source, capability)?.bytes,
        Target::Ptx(capability) => nvrtc.compile_ptx(&source, capability)?,
    };
    let compressed = Archived::new(name, &source, target, &code);
    compressed.map_err(|error| Error::Internal(format!("kernel {name}: {error}")))
}

/// The kernels that a build of Vectile has embedded: those that are the same for every query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Precompiled {
    /// The version of NVRTC that compiled them, such as `(12, 8)`.
    pub compiler: (u32, u32),
    /// What all of them are compiled for. Empty if the archive is of another version of Vectile.
    pub targets: Vec<Target>,
}

impl Precompiled {
    /// True if this build has some.
    pub fn are_there() -> bool {
        !EMBEDDED.is_empty()
    }

    /// The kernels of this build; `None` if it has none. Checks them.
    ///
    /// # Errors
    ///
    /// Faults of the archive.
    pub fn embedded() -> Result<Option<Self>, ArchiveError> {
        let Some(archive) = embedded()? else {
            return Ok(None);
        };
        archive.check()?;
        Ok(Some(Self::of(archive)))
    }

    pub(crate) fn of(archive: &Archive<'_>) -> Self {
        let targets = |kernel: FixedKernel| archive.targets(kernel.name(), &kernel.source());
        let of_all = FixedKernel::all().map(targets).reduce(|mut all, own| {
            all.retain(|target| own.contains(target));
            all
        });
        Self {
            compiler: archive.compiler(),
            targets: of_all.unwrap_or_default(),
        }
    }

    /// The target whose code a device runs, machine code before PTX; `None` if it has to compile them itself.
    pub fn target(&self, capability: (u32, u32), driver: (u32, u32)) -> Option<Target> {
        let platform = Platform { capability, driver };
        let targets = self.targets.iter().copied();
        let fit = targets.filter(|target| platform.runs(*target, self.compiler));
        let is_cubin = |target: &Target| matches!(target, Target::Cubin(_));
        fit.max_by_key(|target| (is_cubin(target), *target))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_every_fixed_kernel() {
        let [sm_80, sm_90] = [Target::Cubin((8, 0)), Target::Cubin((9, 0))];
        let archived = |kernel: FixedKernel, target| {
            Archived::new(kernel.name(), &kernel.source(), target, b"code").unwrap()
        };
        let mut all: Vec<Archived> = FixedKernel::all()
            .flat_map(|kernel| [sm_80, sm_90].map(|target| archived(kernel, target)))
            .collect();
        let targets = |all: &[Archived]| {
            let bytes = write((12, 8), all);
            Precompiled::of(&Archive::parse(&bytes).unwrap()).targets
        };
        assert_eq!(targets(&all), [sm_80, sm_90]);
        all.pop();
        assert_eq!(targets(&all), [sm_80]);
    }

    #[test]
    fn kernels_are_compiled_for_a_target() {
        let Ok(nvrtc) = nvrtc().inspect_err(|error| eprintln!("skipped: {error}")) else {
            return;
        };
        let [cubin, ptx] = [Target::Cubin((9, 0)), Target::Ptx(PTX_CAPABILITY)];
        let kernel = FixedKernel::Build;
        let compiled = [cubin, ptx].map(|target| compile(nvrtc, kernel, target).unwrap());
        let bytes = write(nvrtc.version(), &compiled);
        let archive = Archive::parse(&bytes).unwrap();
        archive.check().unwrap();
        let (name, source) = (kernel.name(), kernel.source());
        let h100 = Platform {
            capability: (9, 0),
            driver: nvrtc.version(),
        };
        let cubin = archive.cubin(name, &source, h100).unwrap();
        assert!(cubin.starts_with(b"\x7fELF"));
        let ptx = archive.ptx(name, &source, h100).unwrap();
        assert!(ptx.ends_with(b"\0"));
    }

    #[test]
    fn archives_of_other_versions_are_empty() {
        let of_old = Archived::new("build", "old", Target::Cubin((9, 0)), b"code").unwrap();
        let bytes = write((12, 8), &[of_old]);
        let found = Precompiled::of(&Archive::parse(&bytes).unwrap());
        assert_eq!(found.targets, []);
        assert_eq!(found.target((9, 0), (13, 0)), None);
    }

    #[test]
    fn devices_run_machine_code_before_ptx() {
        let [sm_80, sm_86] = [Target::Cubin((8, 0)), Target::Cubin((8, 6))];
        let compute_80 = Target::Ptx((8, 0));
        let found = Precompiled {
            compiler: (12, 8),
            targets: vec![sm_80, compute_80, sm_86],
        };
        let target = |capability| found.target(capability, (13, 0));
        assert_eq!(target((8, 0)), Some(sm_80));
        assert_eq!(target((8, 9)), Some(sm_86));
        assert_eq!(target((11, 0)), Some(compute_80));
        assert_eq!(target((7, 5)), None);
        assert_eq!(found.target((8, 0), (12, 6)), Some(sm_80));
        assert_eq!(found.target((9, 0), (12, 6)), None);
    }

    #[test]
    fn the_archive_of_this_build_is_whole() {
        let embedded = Precompiled::embedded().unwrap();
        assert!(embedded.is_none_or(|kernels| !kernels.targets.is_empty()));
    }
}
