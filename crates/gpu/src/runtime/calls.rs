//! The CUDA driver's version and errors.

use std::ffi::CStr;
use std::ptr;
use std::sync::OnceLock;

use cudarc::driver::sys;
use cudarc::driver::sys::CUresult;

use crate::error::{Error, Result};

/// The version of CUDA that the installed driver is for, such as `(13, 0)`.
///
/// # Errors
///
/// [`Error::Unavailable`] if no driver is installed.
pub fn driver_version() -> Result<(u32, u32)> {
    static VERSION: OnceLock<Result<(u32, u32), String>> = OnceLock::new();
    let found = VERSION.get_or_init(|| find_driver().map_err(|error| reason(&error)));
    found.clone().map_err(Error::Unavailable)
}

fn find_driver() -> Result<(u32, u32)> {
    // SAFETY: opens the driver's library, as every CUDA program does when it starts.
    if !unsafe { sys::is_culib_present() } {
        return Err(unavailable(
            "no CUDA driver was found (libcuda.so.1); install NVIDIA's driver, and start a \
             container with its GPUs (--gpus all)",
        ));
    }
    let mut version = 0;
    // SAFETY: the library is there; the pointer is to a live integer.
    check("cuDriverGetVersion", unsafe {
        sys::cuDriverGetVersion(&mut version)
    })?;
    let version = u32::try_from(version).unwrap_or(0);
    Ok((version / 1000, version % 1000 / 10))
}

pub(super) fn check(call: &'static str, result: CUresult) -> Result<()> {
    check_memory(call, 0, result)
}

/// As [`check`], for a call that allocates that many bytes of the device.
pub(super) fn check_memory(call: &'static str, wanted: u64, result: CUresult) -> Result<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(Error::OutOfMemory {
            wanted,
            reason: format!("{call} found none"),
        }),
        result if is_sticky(result) => {
            let reason = format!("{call} failed: {}", describe(result));
            Err(Error::Lost(reason))
        }
        result => Err(Error::Driver {
            call,
            reason: describe(result),
        }),
    }
}

/// Returns true if every later call of the process fails, too: according to CUDA's documentation, the process has to
/// end.
fn is_sticky(result: CUresult) -> bool {
    use CUresult::*;
    matches!(
        result,
        CUDA_ERROR_ECC_UNCORRECTABLE
            | CUDA_ERROR_NVLINK_UNCORRECTABLE
            | CUDA_ERROR_CONTAINED
            | CUDA_ERROR_CONTEXT_IS_DESTROYED
            | CUDA_ERROR_ILLEGAL_ADDRESS
            | CUDA_ERROR_LAUNCH_TIMEOUT
            | CUDA_ERROR_ASSERT
            | CUDA_ERROR_HARDWARE_STACK_ERROR
            | CUDA_ERROR_ILLEGAL_INSTRUCTION
            | CUDA_ERROR_MISALIGNED_ADDRESS
            | CUDA_ERROR_INVALID_ADDRESS_SPACE
            | CUDA_ERROR_INVALID_PC
            | CUDA_ERROR_LAUNCH_FAILED
            | CUDA_ERROR_TENSOR_MEMORY_LEAK
            | CUDA_ERROR_EXTERNAL_DEVICE
    )
}

/// The error's name and meaning, such as `CUDA_ERROR_NO_DEVICE: no CUDA-capable device is detected`.
pub(super) fn describe(result: CUresult) -> String {
    let mut text = ptr::null();
    // SAFETY: only called with results of the driver, so its library is there; the pointer is to a live pointer.
    let found = unsafe { sys::cuGetErrorString(result, &mut text) };
    if found != CUresult::CUDA_SUCCESS || text.is_null() {
        return format!("{result:?}");
    }
    // SAFETY: on success it points to a static text of the driver's.
    let text = unsafe { CStr::from_ptr(text) };
    format!("{result:?}: {}", text.to_string_lossy())
}

pub(super) fn unavailable(reason: impl Into<String>) -> Error {
    Error::Unavailable(reason.into())
}

/// The reason of an error, without the prefix of [`Error::Unavailable`].
pub(super) fn reason(error: &Error) -> String {
    match error {
        Error::Unavailable(reason) => reason.clone(),
        other => other.to_string(),
    }
}
