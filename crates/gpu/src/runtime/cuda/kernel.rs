//! Kernels, loaded from cubins or PTX.

use std::any::Any;
use std::ffi::{CString, c_int};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

use cudarc::driver::sys;
use cudarc::driver::sys::{CUfunction_attribute, CUresult};

use super::context::Context;
use crate::error::{Error, Result};
use crate::runtime::calls::{check, check_memory, describe};
use crate::runtime::driver::Kernel;

/// Bytes of shared memory that every kernel can use without permission.
const PLAIN_SHARED_MEMORY: u32 = 48 << 10;

/// Loaded code.
struct Module {
    context: Arc<Context>,
    module: sys::CUmodule,
}

// SAFETY: as for `Context`.
unsafe impl Send for Module {}
// SAFETY: as for `Context`.
unsafe impl Sync for Module {}

impl Module {
    /// Loads a cubin, or PTX that ends in a zero: from NVRTC, or intact from disk or an archive.
    fn load(context: &Arc<Context>, code: &[u8]) -> Result<Module> {
        context.bind()?;
        let mut module = ptr::null_mut();
        // SAFETY: a context is bound; a cubin contains its own length, PTX ends in a zero, and either is intact.
        let result = unsafe { sys::cuModuleLoadData(&mut module, code.as_ptr().cast()) };
        check_memory("cuModuleLoadData", code.len() as u64, result)?;
        Ok(Module {
            context: Arc::clone(context),
            module,
        })
    }

    fn function(&self, name: &str) -> Result<sys::CUfunction> {
        let failed = |reason: String| Error::Driver {
            call: "cuModuleGetFunction",
            reason: format!("kernel {name}: {reason}"),
        };
        let name = CString::new(name).map_err(|error| failed(error.to_string()))?;
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded, its context bound; the name ends in a zero.
        let result = unsafe { sys::cuModuleGetFunction(&mut function, self.module, name.as_ptr()) };
        match result {
            CUresult::CUDA_SUCCESS => Ok(function),
            result => Err(failed(describe(result))),
        }
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: loaded once, in `load`. Kernels of it that are under way are finished first: the
        // driver sees to that.
        self.context
            .give_back(|| unsafe { sys::cuModuleUnload(self.module) });
    }
}

/// A kernel, with the module it is in.
pub(super) struct CudaKernel {
    /// Keeps the function valid.
    module: Module,
    pub function: sys::CUfunction,
    name: String,
    /// Bytes of its parameter.
    parameter: usize,
    /// Bytes of static shared memory.
    own_shared: u32,
    /// Bytes of dynamic shared memory that the driver allows for it.
    allowed_shared: Mutex<u32>,
}

// SAFETY: as for `Context`; the function lives as long as its module, which is in here.
unsafe impl Send for CudaKernel {}
// SAFETY: as above.
unsafe impl Sync for CudaKernel {}

impl CudaKernel {
    /// Loads a kernel of a cubin, or of PTX that ends in a zero.
    pub fn load(context: &Arc<Context>, code: &[u8], name: &str) -> Result<CudaKernel> {
        let module = Module::load(context, code)?;
        let function = module.function(name)?;
        Ok(CudaKernel {
            parameter: parameter_bytes(function)?,
            own_shared: own_shared_memory(function)?,
            allowed_shared: Mutex::new(0),
            name: name.to_string(),
            module,
            function,
        })
    }

    /// Allows a launch that much dynamic shared memory.
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        if self.own_shared.saturating_add(bytes) <= PLAIN_SHARED_MEMORY {
            return Ok(());
        }
        // Under the lock, so that no other thread lowers it.
        let allowed = self.allowed_shared.lock();
        let mut allowed = allowed.unwrap_or_else(PoisonError::into_inner);
        if *allowed < bytes {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let value = c_int::try_from(bytes).unwrap_or(c_int::MAX);
            // SAFETY: the function's module is loaded, its context bound.
            check("cuFuncSetAttribute", unsafe {
                sys::cuFuncSetAttribute(self.function, attribute, value)
            })?;
            *allowed = bytes;
        }
        Ok(())
    }

    /// Checks the length of arguments: the driver reads as many bytes as the parameter has.
    pub fn check_args(&self, args: &[u64]) -> Result<()> {
        let given_bytes = size_of_val(args);
        if given_bytes == self.parameter {
            return Ok(());
        }
        Err(Error::Driver {
            call: "cuLaunchKernel",
            reason: format!(
                "kernel {} takes {} bytes of arguments, not {given_bytes}",
                self.name, self.parameter
            ),
        })
    }
}

/// Bytes of a function's first parameter; 0 if it has none.
fn parameter_bytes(function: sys::CUfunction) -> Result<usize> {
    let (mut offset, mut size) = (0, 0);
    // SAFETY: the function's module is loaded, its context bound; the pointers are to live
    // integers.
    let result = unsafe { sys::cuFuncGetParamInfo(function, 0, &mut offset, &mut size) };
    match result {
        // This result means that there is no such parameter.
        CUresult::CUDA_ERROR_INVALID_VALUE => Ok(0),
        result => check("cuFuncGetParamInfo", result).map(|()| size),
    }
}

fn own_shared_memory(function: sys::CUfunction) -> Result<u32> {
    let mut bytes = 0;
    let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
    // SAFETY: the function's module is loaded, its context bound; the pointer is to a live
    // integer.
    check("cuFuncGetAttribute", unsafe {
        sys::cuFuncGetAttribute(&mut bytes, attribute, function)
    })?;
    Ok(u32::try_from(bytes).unwrap_or(0))
}

impl fmt::Debug for CudaKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaKernel")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Kernel for CudaKernel {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn resident_blocks(&self, threads: u32, shared: u32) -> u32 {
        // No blocks fit if the driver does not allow that much.
        let allowed = self.module.context.bind();
        if allowed.and_then(|()| self.allow_shared(shared)).is_err() {
            return 1;
        }
        let mut blocks = 0;
        let threads = c_int::try_from(threads).unwrap_or(c_int::MAX);
        // SAFETY: the function's module is loaded, its context bound; the pointer is to a live
        // integer.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                self.function,
                threads,
                shared as usize,
            )
        };
        match result {
            CUresult::CUDA_SUCCESS => u32::try_from(blocks).unwrap_or(1).max(1),
            _ => 1,
        }
    }
}
