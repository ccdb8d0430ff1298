//! The CUDA driver: starting it, its devices, and their contexts.

use std::ffi::{CStr, c_int};
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys;
use cudarc::driver::sys::{CUdevice_attribute, CUresult};

use crate::error::{Error, Result};
use crate::runtime::calls::{check, driver_version, reason, unavailable};
use crate::runtime::driver::DeviceInfo;
use crate::runtime::health::Process;

/// Minimum CUDA version of a driver: older libraries lack functions that are called here.
const OLDEST_DRIVER: (u32, u32) = (12, 8);

/// Minimum compute capability of a device: others lack instructions that kernels use, such as the reduction of a warp
/// and asynchronous copies to shared memory.
const OLDEST_CAPABILITY: (u32, u32) = (8, 0);

/// Loads the driver and starts it, once.
fn start() -> Result<()> {
    static STARTED: OnceLock<Result<(), String>> = OnceLock::new();
    let started = STARTED.get_or_init(|| start_once().map_err(|error| reason(&error)));
    started.clone().map_err(Error::Unavailable)
}

fn start_once() -> Result<()> {
    let version = driver_version()?;
    if version < OLDEST_DRIVER {
        return Err(unavailable(format!(
            "the driver is for CUDA {}.{}, at least {}.{} is needed; install a newer driver",
            version.0, version.1, OLDEST_DRIVER.0, OLDEST_DRIVER.1
        )));
    }
    // SAFETY: the library is there, and the only flags are 0.
    match unsafe { sys::cuInit(0) } {
        CUresult::CUDA_ERROR_NO_DEVICE => Err(unavailable(
            "the CUDA driver sees no device (if there is one: is CUDA_VISIBLE_DEVICES set?)",
        )),
        CUresult::CUDA_ERROR_STUB_LIBRARY => Err(unavailable(
            "the CUDA driver library that was found is a stub for linking; take its directory \
             (stubs) off LD_LIBRARY_PATH",
        )),
        result => check("cuInit", result),
    }
}

/// Number of devices of the driver.
pub(super) fn count() -> Result<usize> {
    start()?;
    let mut count = 0;
    // SAFETY: the driver is started; the pointer is to a live integer.
    check("cuDeviceGetCount", unsafe {
        sys::cuDeviceGetCount(&mut count)
    })?;
    Ok(usize::try_from(count).unwrap_or(0))
}

/// Descriptions of all devices, in order.
///
/// # Errors
///
/// [`Error::Unavailable`] if there is none.
pub fn infos() -> Result<Vec<Result<DeviceInfo>>> {
    match count()? {
        0 => Err(unavailable("the CUDA driver sees no device")),
        count => Ok((0..count)
            .map(|ordinal| Ok(find_device(ordinal)?.1))
            .collect()),
    }
}

pub(super) fn find_device(ordinal: usize) -> Result<(sys::CUdevice, DeviceInfo)> {
    let count = count()?;
    let number = match c_int::try_from(ordinal) {
        Ok(number) if ordinal < count => number,
        _ => {
            return Err(unavailable(format!(
                "there is no device {ordinal}; the driver sees {count}"
            )));
        }
    };
    let mut device = 0;
    // SAFETY: the driver is started, by `count`; the pointer is to a live handle.
    check("cuDeviceGet", unsafe {
        sys::cuDeviceGet(&mut device, number)
    })?;
    Ok((device, device_info(device, ordinal)?))
}

pub(super) fn check_capability(info: &DeviceInfo) -> Result<()> {
    let (own, least) = (info.capability, OLDEST_CAPABILITY);
    match own < least {
        true => Err(unavailable(format!(
            "device {}, {}, has compute capability {}.{}, at least {}.{} is needed",
            info.ordinal, info.name, own.0, own.1, least.0, least.1
        ))),
        false => Ok(()),
    }
}

fn device_info(device: sys::CUdevice, ordinal: usize) -> Result<DeviceInfo> {
    use CUdevice_attribute as A;
    let mut memory = 0;
    // SAFETY: `device` is the driver's; the pointer is to a live integer.
    check("cuDeviceTotalMem", unsafe {
        sys::cuDeviceTotalMem_v2(&mut memory, device)
    })?;
    let attribute = |attribute| device_attribute(device, attribute);
    Ok(DeviceInfo {
        ordinal,
        name: device_name(device)?,
        capability: (
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
            attribute(A::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
        ),
        memory: memory as u64,
        multiprocessors: attribute(A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?,
        shared_memory: attribute(A::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?,
        is_emulated: false,
    })
}

fn device_name(device: sys::CUdevice) -> Result<String> {
    let mut name = [0_u8; 256];
    // SAFETY: at most as many bytes are written as there are, the last of them a zero.
    check("cuDeviceGetName", unsafe {
        sys::cuDeviceGetName(name.as_mut_ptr().cast(), name.len() as c_int, device)
    })?;
    let text = CStr::from_bytes_until_nul(&name).unwrap_or_default();
    Ok(text.to_string_lossy().into_owned())
}

fn device_attribute(device: sys::CUdevice, attribute: CUdevice_attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: `device` is the driver's; the pointer is to a live integer.
    check("cuDeviceGetAttribute", unsafe {
        sys::cuDeviceGetAttribute(&mut value, attribute, device)
    })?;
    Ok(u32::try_from(value).unwrap_or(0))
}

/// The primary context of a device: shared with everything in the process that uses the device.
pub(super) struct Context {
    device: sys::CUdevice,
    context: sys::CUcontext,
    process: Process,
}

// SAFETY: a context may be used from any thread, and from several at once (CUDA's documentation
// on thread safety of the driver API); the handle is only passed to the driver.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    pub fn retain(device: sys::CUdevice) -> Result<Context> {
        let mut context = ptr::null_mut();
        // SAFETY: `device` is the driver's; the pointer is to a live handle.
        check("cuDevicePrimaryCtxRetain", unsafe {
            sys::cuDevicePrimaryCtxRetain(&mut context, device)
        })?;
        Ok(Context {
            device,
            context,
            process: Process::this(),
        })
    }

    /// Makes it the calling thread's current context: later calls apply to this device.
    pub fn bind(&self) -> Result<()> {
        self.process.check()?;
        // SAFETY: the context is retained until `self` is dropped.
        check("cuCtxSetCurrent", unsafe {
            sys::cuCtxSetCurrent(self.context)
        })
    }

    /// Calls the driver with the context bound, to release something; errors are ignored.
    pub fn give_back(&self, call: impl FnOnce() -> CUresult) {
        if self.bind().is_ok() {
            // An error would come from an earlier launch, and has been returned to its caller.
            let _ = call();
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.process.check().is_err() {
            return;
        }
        // SAFETY: it was retained once, in `retain`; nothing made in it is left, as all such objects hold an `Arc` of
        // it.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
    }
}
