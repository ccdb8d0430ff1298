//! An NVIDIA device, through the CUDA driver API.
//!
//! The driver is a library found at run time. Without it, all functions return [`Error::Unavailable`] and call
//! nothing. Streams, events and kernels of a device keep its context alive, so the context is released last, in
//! whatever order they are dropped.

mod compiler;
mod context;
mod kernel;
mod stream;

use std::collections::HashMap;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use cudarc::driver::sys;
use cudarc::driver::sys::CUresult;

use self::compiler::Compiler;
pub(crate) use self::context::infos;
use self::context::{Context, check_capability, find_device};
use self::kernel::CudaKernel;
use self::stream::CudaStream;

use super::archive::{Archive, Platform};
use super::cache::Cache;
use super::calls::{check, check_memory, driver_version, reason};
use super::driver::{Compiled, DeviceInfo, Driver, Stream};
use super::exit::{CallGuard, wait_at_exit};
use super::huge::HugePages;
use super::memory::lock;
use super::precompiled::{Precompiled, embedded};
use crate::error::{Error, Result};

/// An NVIDIA device.
///
/// A call makes the device's primary context current on the calling thread, and leaves it so.
pub struct Cuda {
    info: DeviceInfo,
    context: Arc<Context>,
    platform: Platform,
    /// Kernels that are compiled already.
    archive: Option<&'static Archive<'static>>,
    /// The compiler of all others, or the reason why there is none.
    compiler: Result<Compiler, String>,
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
    /// [`Error::Unavailable`] if the driver or the device is missing, or NVRTC where no kernels for the device are
    /// embedded.
    pub fn open(ordinal: usize) -> Result<Arc<Cuda>> {
        driver_version()?;
        wait_at_exit();
        let _guard = CallGuard::begin()?;
        // a damaged archive counts as absent: `vectile device` reports it
        let archive = embedded().ok().flatten();
        let opened = Cuda::open_with(ordinal, Cache::of_user(), archive);
        opened.map_err(|error| Error::Unavailable(reason(&error)))
    }

    fn open_with(
        ordinal: usize,
        cache: Option<Cache>,
        archive: Option<&'static Archive<'static>>,
    ) -> Result<Arc<Cuda>> {
        let (device, info) = find_device(ordinal)?;
        check_capability(&info)?;
        let platform = Platform {
            capability: info.capability,
            driver: driver_version()?,
        };
        let compiler = match Compiler::new(info.capability, cache) {
            Ok(compiler) => Ok(compiler),
            Err(error) if archive.is_some_and(|archive| has_kernels(archive, platform)) => {
                Err(reason(&error))
            }
            Err(error) => return Err(error),
        };
        let context = Context::retain(device)?;
        context.bind()?;
        Ok(Arc::new(Cuda {
            info,
            context: Arc::new(context),
            platform,
            archive,
            compiler,
            pinned: Mutex::default(),
        }))
    }

    fn compiler(&self) -> Result<&Compiler> {
        let missing = |reason: &String| Error::NoCompiler(reason.clone());
        self.compiler.as_ref().map_err(missing)
    }

    /// Machine code that the device runs as it is: embedded, or else from disk.
    fn machine_code(&self, source: &str, name: &str) -> impl Iterator<Item = Vec<u8>> {
        let archive = self.archive.into_iter();
        let embedded = archive.filter_map(move |it| it.cubin(name, source, self.platform));
        let compiler = self.compiler.iter();
        embedded.chain(compiler.filter_map(move |it| it.kept(source)))
    }

    fn ptx(&self, source: &str, name: &str) -> Option<Vec<u8>> {
        self.archive?.ptx(name, source, self.platform)
    }

    /// Loads a kernel of code that was found; `None` if the driver refuses it, so that it has to be compiled.
    fn load_found(&self, code: &[u8], name: &str) -> Result<Option<Arc<CudaKernel>>> {
        match CudaKernel::load(&self.context, code, name) {
            Ok(kernel) => Ok(Some(Arc::new(kernel))),
            Err(Error::Driver { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// True if an archive has all fixed kernels for a platform.
fn has_kernels(archive: &Archive<'_>, platform: Platform) -> bool {
    let kernels = Precompiled::of(archive);
    kernels
        .target(platform.capability, platform.driver)
        .is_some()
}

impl fmt::Debug for Cuda {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cuda")
            .field("info", &self.info)
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
        if let Some(found) = self.find(source, name)? {
            return Ok(found);
        }
        let code = self.compiler()?.compile(source)?;
        Ok(Compiled {
            kernel: Arc::new(CudaKernel::load(&self.context, &code, name)?),
            is_found: false,
        })
    }

    fn find(&self, source: &str, name: &str) -> Result<Option<Compiled>> {
        for code in self.machine_code(source, name) {
            if let Some(kernel) = self.load_found(&code, name)? {
                let is_found = true;
                return Ok(Some(Compiled { kernel, is_found }));
            }
        }
        if let Some(ptx) = self.ptx(source, name) {
            let begun = Instant::now();
            if let Some(kernel) = self.load_found(&ptx, name)? {
                let ms = begun.elapsed().as_millis();
                log::info!("the driver compiled the kernel {name} from PTX in {ms} ms");
                let is_found = false;
                return Ok(Some(Compiled { kernel, is_found }));
            }
        }
        self.compiler().map(|_| None)
    }

    fn needs_compiler(&self, source: &str, name: &str) -> bool {
        let has_compiler = self.compiler.is_ok() || self.ptx(source, name).is_some();
        has_compiler && self.machine_code(source, name).next().is_none()
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
