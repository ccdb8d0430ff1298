//! An NVIDIA device, through the CUDA driver API.
//!
//! The driver is a library found at run time. Without it, all functions return [`Error::Unavailable`] and call
//! nothing. Streams, events and kernels of a device keep its context alive, so the context is released last, in
//! whatever order they are dropped.

mod context;
mod kernel;
mod stream;

use std::collections::HashMap;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex};

use cudarc::driver::sys;
use cudarc::driver::sys::CUresult;

pub(crate) use self::context::infos;
use self::context::{Context, check_capability, find_device};
use self::kernel::CudaKernel;
use self::stream::CudaStream;

use super::cache::{Cache, Key};
use super::calls::{check, check_memory, driver_version, reason};
use super::driver::{Compiled, DeviceInfo, Driver, Stream};
use super::exit::{CallGuard, wait_at_exit};
use super::huge::HugePages;
use super::memory::lock;
use super::nvrtc::{self, Nvrtc};
use crate::error::{Error, Result};

/// An NVIDIA device.
///
/// A call makes the device's primary context current on the calling thread, and leaves it so.
pub struct Cuda {
    info: DeviceInfo,
    context: Arc<Context>,
    nvrtc: &'static Nvrtc,
    /// Target of the compiler: the device's compute capability, or the nearest below that whose code the device runs.
    target: (u32, u32),
    cache: Option<Cache>,
    /// Host memory that the device copies from, by address.
    pinned: Mutex<HashMap<usize, HugePages>>,
}

impl Cuda {
    /// Number of devices; 0 without a driver. Only opening a device shows that it can be used.
    pub fn count() -> usize {
        context::count().unwrap_or(0)
    }

    /// Opens the device with that number, from 0.
    ///
    /// # Errors
    ///
    /// [`Error::Unavailable`] if the driver, the device or NVRTC is missing.
    pub fn open(ordinal: usize) -> Result<Arc<Cuda>> {
        driver_version()?;
        wait_at_exit();
        let _guard = CallGuard::begin()?;
        let opened = Cuda::open_with(ordinal, Cache::of_user());
        opened.map_err(|error| Error::Unavailable(reason(&error)))
    }

    fn open_with(ordinal: usize, cache: Option<Cache>) -> Result<Arc<Cuda>> {
        let (device, info) = find_device(ordinal)?;
        check_capability(&info)?;
        let nvrtc = nvrtc::nvrtc()?;
        let target = nvrtc.target(info.capability)?;
        let context = Context::retain(device)?;
        context.bind()?;
        Ok(Arc::new(Cuda {
            info,
            context: Arc::new(context),
            nvrtc,
            target,
            cache,
            pinned: Mutex::default(),
        }))
    }

    fn compile_cubin(&self, source: &str) -> Result<Vec<u8>> {
        Ok(self.nvrtc.compile(source, self.target)?.bytes)
    }

    /// The cubin of a source. The flag is true if it was on disk.
    fn cubin(&self, source: &str) -> Result<(Vec<u8>, bool)> {
        let Some(cache) = &self.cache else {
            return Ok((self.compile_cubin(source)?, false));
        };
        let key = self.nvrtc.key(source, self.target);
        cache.get_or_compile(&key, || self.compile_cubin(source))
    }

    /// Compiles a kernel again whose cubin on disk does not load, and replaces it.
    fn recompile(&self, key: &Key, source: &str) -> Result<Vec<u8>> {
        let cubin = self.compile_cubin(source)?;
        if let Some(cache) = &self.cache {
            cache.put(key, &cubin);
        }
        Ok(cubin)
    }
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda")
            .field("info", &self.info)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl Driver for Cuda {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn free_memory(&self) -> Result<u64> {
        self.context.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: a context is bound; the pointers are to live integers.
        check("cuMemGetInfo", unsafe {
            sys::cuMemGetInfo_v2(&mut free, &mut total)
        })?;
        Ok(free as u64)
    }

    fn compile(&self, source: &str, name: &str) -> Result<Compiled> {
        let (cubin, from_disk) = self.cubin(source)?;
        let loaded = CudaKernel::load(&self.context, &cubin, name);
        let (kernel, from_disk) = match loaded {
            Err(Error::Driver { .. }) if from_disk => {
                let key = self.nvrtc.key(source, self.target);
                let cubin = self.recompile(&key, source)?;
                (CudaKernel::load(&self.context, &cubin, name)?, false)
            }
            loaded => (loaded?, from_disk),
        };
        Ok(Compiled {
            kernel: Arc::new(kernel),
            from_disk,
        })
    }

    fn find(&self, source: &str, name: &str) -> Result<Option<Compiled>> {
        let Some(cache) = &self.cache else {
            return Ok(None);
        };
        let Some(cubin) = cache.get(&self.nvrtc.key(source, self.target)) else {
            return Ok(None);
        };
        match CudaKernel::load(&self.context, &cubin, name) {
            Ok(kernel) => Ok(Some(Compiled {
                kernel: Arc::new(kernel),
                from_disk: true,
            })),
            // it has to be compiled again
            Err(Error::Driver { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn allocate(&self, bytes: usize) -> Result<u64> {
        self.context.bind()?;
        let mut address = 0;
        // SAFETY: a context is bound; the pointer is to a live address.
        let result = unsafe { sys::cuMemAlloc_v2(&mut address, bytes) };
        check_memory("cuMemAlloc", bytes as u64, result)?;
        Ok(address)
    }

    unsafe fn free(&self, address: u64) {
        // SAFETY: the caller vouches that it was allocated and is not used any more.
        self.context
            .give_back(|| unsafe { sys::cuMemFree_v2(address) });
    }

    fn allocate_host(&self, bytes: usize) -> Result<*mut u8> {
        self.context.bind()?;
        let failed = |call| Error::Driver {
            call,
            reason: format!("{bytes} bytes of host memory cannot be pinned"),
        };
        if let Some(pages) = HugePages::new(bytes) {
            let address = pages.address();
            // SAFETY: a context is bound; the memory is there until it is unregistered.
            let result = unsafe {
                let flags = sys::CU_MEMHOSTREGISTER_PORTABLE;
                sys::cuMemHostRegister_v2(address.cast(), pages.bytes(), flags)
            };
            if result == CUresult::CUDA_SUCCESS {
                lock(&self.pinned).insert(address.addr(), pages);
                return Ok(address);
            }
        }
        // Some systems cannot register existing memory, but have a driver that allocates registered memory, slowly.
        let mut address = ptr::null_mut();
        // SAFETY: a context is bound; the pointer is to a live pointer.
        let result =
            unsafe { sys::cuMemHostAlloc(&mut address, bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        // Freeing the device's memory does not help a host that is out of memory.
        match result {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => return Err(failed("cuMemHostAlloc")),
            result => check("cuMemHostAlloc", result)?,
        }
        let address: *mut u8 = address.cast();
        // SAFETY: `bytes` of memory that is not shared yet.
        unsafe { address.write_bytes(0, bytes) };
        Ok(address)
    }

    unsafe fn free_host(&self, address: *mut u8) {
        let pages = lock(&self.pinned).remove(&address.addr());
        // SAFETY: the caller vouches that it was allocated, registered or by the driver, and is not used any more.
        self.context.give_back(|| unsafe {
            match pages {
                Some(_) => sys::cuMemHostUnregister(address.cast()),
                None => sys::cuMemFreeHost(address.cast()),
            }
        });
        drop(pages);
    }

    fn stream(&self) -> Result<Box<dyn Stream>> {
        Ok(Box::new(CudaStream::new(&self.context)?))
    }
}

#[cfg(test)]
mod tests;
