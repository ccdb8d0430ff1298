//! Survey of this machine: what can run kernels, and what is missing.

use std::fs;
use std::path::PathBuf;

use super::archive::ArchiveError;
use super::cache::{Cache, cache_directory};
use super::calls::{driver_version, reason};
use super::cuda;
use super::driver::DeviceInfo;
use super::nvrtc;
use super::precompiled::Precompiled;
use crate::error::Result;

/// The drivers, compilers and devices of this machine.
#[derive(Debug)]
pub struct Survey {
    /// The installed driver.
    pub driver: Result<DriverInfo>,
    /// The run-time compiler: of kernels that are not embedded.
    pub nvrtc: Result<NvrtcInfo>,
    /// The kernels that this build has embedded, if any.
    pub embedded: Result<Option<Precompiled>, ArchiveError>,
    /// The directory of compiled kernels, or the reason why they are not kept.
    pub cache: Result<PathBuf, String>,
    /// Description of each device, in order; or the reason why there is none.
    pub devices: Result<Vec<Result<DeviceInfo>>>,
}

/// An installed driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverInfo {
    /// The version of CUDA that it is for, such as `(13, 0)`.
    pub cuda: (u32, u32),
    /// Its own version, such as `580.95.05`, if the system provides it.
    pub release: Option<String>,
}

/// A run-time compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvrtcInfo {
    /// Its version, such as `(13, 0)`.
    pub version: (u32, u32),
    /// The library's file, if the system provides it.
    pub path: Option<PathBuf>,
}

impl Survey {
    /// Takes the survey. Keeps nothing open.
    pub fn take() -> Survey {
        Survey {
            driver: driver(),
            nvrtc: compiler(),
            embedded: Precompiled::embedded(),
            cache: kept_kernels(),
            devices: cuda::infos(),
        }
    }

    /// Reasons why no device can be used; empty if one may be.
    pub fn obstacles(&self) -> Vec<String> {
        let mut obstacles = Vec::new();
        // Without a driver, there are no devices for the same reason.
        let devices = self.devices.as_ref();
        obstacles.extend(devices.err().map(reason));
        if let Ok(devices) = devices {
            let failures = || devices.iter().filter_map(|device| device.as_ref().err());
            if failures().count() == devices.len() {
                obstacles.extend(failures().map(reason));
            }
        }
        if self.needs_compiler() {
            obstacles.extend(self.nvrtc.as_ref().err().map(reason));
        }
        obstacles
    }

    /// False if embedded kernels suffice: some device runs them, or it is not known which devices there are.
    fn needs_compiler(&self) -> bool {
        let embedded = match &self.embedded {
            Ok(Some(embedded)) if !embedded.targets.is_empty() => embedded,
            _ => return true,
        };
        let (Ok(devices), Ok(driver)) = (&self.devices, &self.driver) else {
            return false;
        };
        let devices = devices.iter().flatten();
        let mut targets = devices.map(|device| embedded.target(device.capability, driver.cuda));
        targets.all(|target| target.is_none())
    }
}

fn kept_kernels() -> Result<PathBuf, String> {
    let directory = cache_directory().ok_or("there is no directory for them")?;
    if directory.exists() && Cache::open(directory.clone()).is_none() {
        let shown = directory.display();
        return Err(format!(
            "{shown} is no directory that this user alone writes to"
        ));
    }
    Ok(directory)
}

fn driver() -> Result<DriverInfo> {
    let cuda = driver_version()?;
    let release = fs::read_to_string("/sys/module/nvidia/version").ok();
    Ok(DriverInfo {
        cuda,
        release: release.map(|text| text.trim().to_string()),
    })
}

fn compiler() -> Result<NvrtcInfo> {
    let nvrtc = nvrtc::nvrtc()?;
    Ok(NvrtcInfo {
        version: nvrtc.version(),
        path: nvrtc.path().map(PathBuf::from),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::runtime::archive::Target;

    fn survey(nvrtc: Result<NvrtcInfo>, devices: Result<Vec<Result<DeviceInfo>>>) -> Survey {
        let cuda = (13, 0);
        Survey {
            driver: Ok(DriverInfo {
                cuda,
                release: None,
            }),
            nvrtc,
            embedded: Ok(None),
            cache: Err(String::new()),
            devices,
        }
    }

    fn nvrtc() -> Result<NvrtcInfo> {
        Ok(NvrtcInfo {
            version: (13, 0),
            path: None,
        })
    }

    fn device(ordinal: usize) -> Result<DeviceInfo> {
        Ok(DeviceInfo {
            ordinal,
            name: "NVIDIA H200".to_string(),
            capability: (9, 0),
            memory: 150 << 30,
            multiprocessors: 132,
            shared_memory: 227 << 10,
            is_emulated: false,
        })
    }

    fn missing<T>(what: &str) -> Result<T> {
        Err(Error::Unavailable(what.to_string()))
    }

    #[test]
    fn obstacles_are_what_is_missing() {
        let none: [&str; 0] = [];
        assert_eq!(survey(nvrtc(), Ok(vec![device(0)])).obstacles(), none);
        let one_broken = vec![missing("broken"), device(1)];
        assert_eq!(survey(nvrtc(), Ok(one_broken)).obstacles(), none);
        let broken = Ok(vec![missing("broken")]);
        assert_eq!(survey(nvrtc(), broken).obstacles(), ["broken"]);
        let both = survey(missing("no NVRTC"), missing("no driver"));
        assert_eq!(both.obstacles(), ["no driver", "no NVRTC"]);
    }

    #[test]
    fn embedded_kernels_stand_in_for_a_compiler() {
        let obstacles = |target, devices| {
            let embedded = Precompiled {
                compiler: (12, 8),
                targets: vec![target],
            };
            let survey = Survey {
                embedded: Ok(Some(embedded)),
                ..survey(missing("no NVRTC"), devices)
            };
            survey.obstacles()
        };
        let none: [&str; 0] = [];
        let one = || Ok(vec![device(0)]);
        assert_eq!(obstacles(Target::Cubin((9, 0)), one()), none);
        assert_eq!(obstacles(Target::Ptx((8, 0)), one()), none);
        assert_eq!(obstacles(Target::Cubin((8, 0)), one()), ["no NVRTC"]);
        let no_device = obstacles(Target::Cubin((9, 0)), missing("no driver"));
        assert_eq!(no_device, ["no driver"]);
    }

    /// All that runs without a device; it must not panic anywhere.
    #[test]
    fn a_survey_can_always_be_taken() {
        let survey = Survey::take();
        assert_eq!(
            survey.devices.as_ref().is_ok_and(|all| !all.is_empty()),
            crate::Cuda::count() > 0
        );
        for error in [
            survey.devices.err(),
            survey.nvrtc.err(),
            survey.driver.err(),
        ] {
            let unavailable = matches!(error, None | Some(Error::Unavailable(_)));
            assert!(unavailable, "{error:?}");
        }
    }
}
