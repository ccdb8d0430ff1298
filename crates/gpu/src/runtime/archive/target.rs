//! Targets of compiled kernels, and the devices that run them.

use std::fmt;

/// The target of a compiled kernel. The larger of two that a device runs is nearer to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Machine code for that compute capability.
    Cubin((u32, u32)),
    /// PTX for that compute capability and later ones, which the driver compiles.
    Ptx((u32, u32)),
}

impl Target {
    /// Its form in a file.
    pub(super) fn words(self) -> [u32; 3] {
        match self {
            Self::Cubin((major, minor)) => [0, major, minor],
            Self::Ptx((major, minor)) => [1, major, minor],
        }
    }

    pub(super) fn of_words([kind, major, minor]: [u32; 3]) -> Option<Self> {
        match kind {
            0 => Some(Self::Cubin((major, minor))),
            1 => Some(Self::Ptx((major, minor))),
            _ => None,
        }
    }

    /// True if the driver finds the end of such code: PTX ends in a zero, machine code contains its length.
    pub(super) fn ends_well(self, code: &[u8]) -> bool {
        match self {
            Self::Cubin(_) => true,
            Self::Ptx(_) => code.last() == Some(&0),
        }
    }
}

/// NVIDIA's names, such as `sm_90` and `compute_80`.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cubin((major, minor)) => write!(f, "sm_{major}{minor}"),
            Self::Ptx((major, minor)) => write!(f, "compute_{major}{minor}"),
        }
    }
}

/// A device and its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Platform {
    /// The device's compute capability.
    pub capability: (u32, u32),
    /// The version of CUDA that the driver is for.
    pub driver: (u32, u32),
}

impl Platform {
    /// True if it runs code of that version of NVRTC for that target.
    ///
    /// A device runs machine code for its own major number and at most its minor number. A driver loads machine code of
    /// a compiler of its own major version or an older one, but compiles PTX only of versions up to its own.
    pub fn runs(self, target: Target, compiler: (u32, u32)) -> bool {
        match target {
            Target::Cubin((major, minor)) => {
                let fits = major == self.capability.0 && minor <= self.capability.1;
                fits && compiler.0 <= self.driver.0
            }
            Target::Ptx(least) => least <= self.capability && compiler <= self.driver,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machine_code_runs_within_a_major_number() {
        let runs = |own, capability| {
            let driver = (13, 0);
            Platform { capability, driver }.runs(Target::Cubin(own), (12, 8))
        };
        for (own, device) in [((8, 0), (8, 9)), ((9, 0), (9, 0)), ((10, 0), (10, 3))] {
            assert!(runs(own, device), "{own:?} on {device:?}");
        }
        for (own, device) in [((8, 9), (8, 6)), ((8, 0), (9, 0)), ((12, 0), (11, 0))] {
            assert!(!runs(own, device), "{own:?} on {device:?}");
        }
    }

    #[test]
    fn ptx_runs_on_later_devices() {
        let runs = |own, capability| {
            let driver = (13, 0);
            Platform { capability, driver }.runs(Target::Ptx(own), (12, 8))
        };
        for device in [(8, 0), (8, 7), (11, 0), (13, 5)] {
            assert!(runs((8, 0), device), "{device:?}");
        }
        assert!(!runs((8, 0), (7, 5)));
        assert!(!runs((9, 0), (8, 9)));
    }

    #[test]
    fn targets_have_nvidias_names() {
        assert_eq!(Target::Cubin((12, 0)).to_string(), "sm_120");
        assert_eq!(Target::Ptx((8, 0)).to_string(), "compute_80");
    }
}
