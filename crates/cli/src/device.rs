//! `vectile device`: the GPUs of this machine, and their usability for queries.

use std::io::Write;

use clap::Args;
use vectile_gpu::{Bandwidth, Cuda, DeviceInfo, Driver, Error, Survey, Target, measure};

use crate::error::{CliError, Result};
use crate::text::{self, Align, TextTable, bytes};

/// Show the GPUs, how fast they are, and whether queries can use them
///
/// Where none can be used it says why. What it looks for is in docs/operations.md.
#[derive(Debug, Args)]
pub struct DeviceArgs {
    /// Do not measure bandwidths
    #[arg(long)]
    no_measure: bool,
    /// Fail if queries cannot use a GPU
    #[arg(long)]
    require: bool,
}

/// Runs `vectile device`.
pub fn run(args: &DeviceArgs) -> Result<()> {
    let survey = Survey::take();
    let devices: Vec<Device> = match &survey.devices {
        Ok(devices) => {
            let infos = devices.iter().filter_map(|device| device.as_ref().ok());
            infos.map(|info| Device::examine(info, args)).collect()
        }
        Err(_) => Vec::new(),
    };
    let verdict = Verdict::of(&survey, &devices);
    if let (true, Verdict::Unused(why)) = (args.require, &verdict) {
        return Err(CliError::failed(format!("no GPU is used: {why}")));
    }
    let mut out = std::io::stdout().lock();
    write_software(&survey, &mut out)?;
    write_devices(&devices, &mut out)?;
    match verdict {
        Verdict::Used(ordinal) => {
            writeln!(out, "queries can use device {ordinal}{}", limit(&survey))?
        }
        Verdict::Unused(why) => {
            writeln!(out, "no GPU is used: {why}; queries run on the CPU")?;
        }
    }
    Ok(out.flush()?)
}

/// What a usable device cannot do.
fn limit(survey: &Survey) -> String {
    match &survey.nvrtc {
        Ok(_) => String::new(),
        Err(Error::Unavailable(why)) => format!(", with embedded kernels alone: {why}"),
        Err(why) => format!(", with embedded kernels alone: {why}"),
    }
}

/// The result of the check: a device that queries use, or the reasons against.
enum Verdict {
    /// The device of this index.
    Used(usize),
    /// None, with the reason.
    Unused(String),
}

impl Verdict {
    fn of(survey: &Survey, devices: &[Device]) -> Verdict {
        if let Some(device) = devices.iter().find(|device| device.failure.is_none()) {
            return Verdict::Used(device.info.ordinal);
        }
        let mut reasons = survey.obstacles();
        let failures = devices.iter().filter_map(|device| device.failure.clone());
        // A missing compiler is also the failure of every device.
        let failures = failures.filter(|failure| !reasons.iter().any(|it| failure.contains(it)));
        let failures: Vec<String> = failures.collect();
        reasons.extend(failures);
        Verdict::Unused(reasons.join("; "))
    }
}

/// A device that the driver reports.
struct Device {
    info: DeviceInfo,
    free: Option<u64>,
    bandwidth: Option<Bandwidth>,
    /// The reason it cannot be used.
    failure: Option<String>,
}

impl Device {
    fn examine(info: &DeviceInfo, args: &DeviceArgs) -> Device {
        let mut device = Device {
            info: info.clone(),
            free: None,
            bandwidth: None,
            failure: None,
        };
        device.failure = device.try_out(args).err().map(|error| match error {
            Error::Unavailable(reason) => reason,
            other => format!("device {}: {other}", info.ordinal),
        });
        device
    }

    fn try_out(&mut self, args: &DeviceArgs) -> vectile_gpu::Result<()> {
        let cuda = Cuda::open(self.info.ordinal)?;
        self.free = Some(cuda.free_memory()?);
        if !args.no_measure {
            self.bandwidth = match measure(&*cuda) {
                // Other processes use the memory; the device works all the same.
                Err(Error::OutOfMemory { .. }) => None,
                measured => Some(measured?),
            };
        }
        Ok(())
    }
}

fn write_software(survey: &Survey, out: &mut dyn Write) -> Result<()> {
    let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
    let driver = match &survey.driver {
        Ok(driver) => {
            let release = driver.release.iter();
            let release: String = release.map(|text| format!(", release {text}")).collect();
            format!("for CUDA {}{release}", version(driver.cuda))
        }
        Err(_) => "not found".to_string(),
    };
    let nvrtc = match &survey.nvrtc {
        Ok(nvrtc) => {
            let path = nvrtc.path.iter();
            let path: String = path.map(|path| format!(", {}", path.display())).collect();
            format!("{}{path}", version(nvrtc.version))
        }
        Err(_) => "not found".to_string(),
    };
    let embedded = match &survey.embedded {
        Ok(None) => "none".to_string(),
        Ok(Some(kernels)) if kernels.targets.is_empty() => "none of this version".to_string(),
        Ok(Some(kernels)) => {
            let targets: Vec<String> = kernels.targets.iter().map(Target::to_string).collect();
            let compiler = version(kernels.compiler);
            format!("for {}, by NVRTC {compiler}", targets.join(", "))
        }
        Err(why) => format!("none: {why}"),
    };
    let cache = match &survey.cache {
        Ok(directory) => directory.display().to_string(),
        Err(why) => format!("not kept: {why}"),
    };
    writeln!(out, "driver   {driver}")?;
    writeln!(out, "NVRTC    {nvrtc}")?;
    writeln!(out, "embedded {embedded}")?;
    writeln!(out, "kernels  {cache}")?;
    Ok(writeln!(out)?)
}

fn write_devices(devices: &[Device], out: &mut dyn Write) -> Result<()> {
    if devices.is_empty() {
        return Ok(());
    }
    let mut table = TextTable::new(&[
        ("device", Align::Right),
        ("name", Align::Left),
        ("capability", Align::Right),
        ("multiprocessors", Align::Right),
        ("memory", Align::Right),
        ("free", Align::Right),
        ("read", Align::Right),
        ("from host", Align::Right),
        ("to host", Align::Right),
    ]);
    for device in devices {
        table.row(device_row(device));
    }
    table.write(out)?;
    Ok(writeln!(out)?)
}

fn device_row(device: &Device) -> Vec<String> {
    let info = &device.info;
    let measured = |of: fn(&Bandwidth) -> f64| match &device.bandwidth {
        Some(bandwidth) => text::bandwidth(of(bandwidth)),
        None => "-".to_string(),
    };
    vec![
        info.ordinal.to_string(),
        info.name.clone(),
        format!("{}.{}", info.capability.0, info.capability.1),
        info.multiprocessors.to_string(),
        bytes(info.memory),
        device.free.map_or_else(|| "-".to_string(), bytes),
        measured(|it| it.read_bytes_per_s),
        measured(|it| it.host_to_device_bytes_per_s),
        measured(|it| it.device_to_host_bytes_per_s),
    ]
}

#[cfg(test)]
mod tests {
    use vectile_gpu::{ArchiveError, DriverInfo, NvrtcInfo, Precompiled};

    use super::*;

    fn h200(failure: Option<&str>) -> Device {
        let rate = Bandwidth {
            read_bytes_per_s: 4.2e12,
            host_to_device_bytes_per_s: 55.4e9,
            device_to_host_bytes_per_s: 54.1e9,
        };
        Device {
            info: DeviceInfo {
                ordinal: 0,
                name: "NVIDIA H200".to_string(),
                capability: (9, 0),
                memory: 150_000_000_000,
                multiprocessors: 132,
                shared_memory: 232_448,
                is_emulated: false,
            },
            free: failure.is_none().then_some(149_000_000_000),
            bandwidth: failure.is_none().then_some(rate),
            failure: failure.map(str::to_string),
        }
    }

    fn survey(nvrtc: Result<NvrtcInfo, Error>) -> Survey {
        Survey {
            driver: Ok(DriverInfo {
                cuda: (13, 0),
                release: Some("580.95.05".to_string()),
            }),
            nvrtc,
            embedded: Ok(None),
            cache: Ok("/caches/kernels".into()),
            devices: Ok(vec![Ok(h200(None).info)]),
        }
    }

    fn nvrtc() -> Result<NvrtcInfo, Error> {
        Ok(NvrtcInfo {
            version: (13, 0),
            path: Some("/cuda/lib64/libnvrtc.so.13".into()),
        })
    }

    #[test]
    fn a_device_is_a_row() {
        let mut out = Vec::new();
        write_software(&survey(nvrtc()), &mut out).unwrap();
        write_devices(&[h200(None), h200(Some("broken"))], &mut out).unwrap();
        let expected = "\
driver   for CUDA 13.0, release 580.95.05
NVRTC    13.0, /cuda/lib64/libnvrtc.so.13
embedded none
kernels  /caches/kernels

device  name         capability  multiprocessors    memory      free       read  from host    to host
------  -----------  ----------  ---------------  --------  --------  ---------  ---------  ---------
     0  NVIDIA H200         9.0              132  150.0 GB  149.0 GB  4.20 TB/s  55.4 GB/s  54.1 GB/s
     0  NVIDIA H200         9.0              132  150.0 GB         -          -          -          -

";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn embedded_kernels_are_listed() {
        let line = |embedded| {
            let mut out = Vec::new();
            let survey = Survey {
                embedded,
                ..survey(nvrtc())
            };
            write_software(&survey, &mut out).unwrap();
            let text = String::from_utf8(out).unwrap();
            text.lines().nth(2).unwrap().to_string()
        };
        let of = |targets: &[Target]| {
            Ok(Some(Precompiled {
                compiler: (12, 8),
                targets: targets.to_vec(),
            }))
        };
        let both = of(&[Target::Cubin((9, 0)), Target::Ptx((8, 0))]);
        let shown = "embedded for sm_90, compute_80, by NVRTC 12.8";
        assert_eq!(line(both), shown);
        assert_eq!(line(of(&[])), "embedded none of this version");
        let damaged = Err(ArchiveError::Directory);
        let shown = "embedded none: the directory of kernels is damaged";
        assert_eq!(line(damaged), shown);
    }

    #[test]
    fn a_device_without_a_compiler_is_limited() {
        assert_eq!(limit(&survey(nvrtc())), "");
        let missing = survey(Err(Error::Unavailable("no NVRTC".to_string())));
        let limit = limit(&missing);
        assert_eq!(limit, ", with embedded kernels alone: no NVRTC");
    }

    #[test]
    fn the_verdict_names_what_is_in_the_way_once() {
        let verdict = |survey: &Survey, device| match Verdict::of(survey, &[device]) {
            Verdict::Used(ordinal) => ordinal.to_string(),
            Verdict::Unused(why) => why,
        };
        assert_eq!(verdict(&survey(nvrtc()), h200(None)), "0");
        assert_eq!(verdict(&survey(nvrtc()), h200(Some("busy"))), "busy");
        let missing = survey(Err(Error::Unavailable("no NVRTC".to_string())));
        assert_eq!(verdict(&missing, h200(Some("no NVRTC"))), "no NVRTC");
    }
}
