//! An NVIDIA device, through the CUDA driver API.
//!
//! The driver is a library found at run time. Without it, all functions return [`Error::Unavailable`] and call
//! nothing. Streams, events and kernels of a device keep its context alive, so the context is released last, in
//! whatever order they are dropped.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use cudarc::driver::sys;
use cudarc::driver::sys::{
    CUdevice_attribute, CUfunction_attribute, CUmemLocationType, CUmemcpySrcAccessOrder, CUresult,
};

use super::cache::{Cache, Key};
use super::calls::{check, check_memory, describe, driver_version, reason, unavailable};
use super::driver::{Compiled, CopyIn, DeviceInfo, Driver, Event, Kernel, Launch, Stream};
use super::exit::{CallGuard, wait_at_exit};
use super::health::Process;
use super::huge::HugePages;
use super::memory::lock;
use super::nvrtc::{self, Nvrtc};
use crate::error::{Error, Result};

/// Minimum CUDA version of a driver: older libraries lack functions that are called here.
const OLDEST_DRIVER: (u32, u32) = (12, 8);

/// Minimum compute capability of a device: others lack instructions that kernels use, such as the reduction of a warp
/// and asynchronous copies to shared memory.
const OLDEST_CAPABILITY: (u32, u32) = (8, 0);

/// The CUDA version from which on a driver takes many copies in one call. On an H200 that takes 7 microseconds for six
/// copies instead of 18, and 5 MB in all are copied at 52 GB/s instead of 46.
const BATCHES_COPIES: (u32, u32) = (13, 0);

/// Bytes of shared memory that every kernel can use without permission.
const PLAIN_SHARED_MEMORY: u32 = 48 << 10;

// -- the driver as a whole ------------------------------------------------------------------

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
fn count() -> Result<usize> {
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
pub(crate) fn infos() -> Result<Vec<Result<DeviceInfo>>> {
    match count()? {
        0 => Err(unavailable("the CUDA driver sees no device")),
        count => Ok((0..count)
            .map(|ordinal| Ok(find_device(ordinal)?.1))
            .collect()),
    }
}

fn find_device(ordinal: usize) -> Result<(sys::CUdevice, DeviceInfo)> {
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

fn check_capability(info: &DeviceInfo) -> Result<()> {
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

// -- a device -------------------------------------------------------------------------------

/// The primary context of a device: shared with everything in the process that uses the device.
struct Context {
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
    fn retain(device: sys::CUdevice) -> Result<Context> {
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
    fn bind(&self) -> Result<()> {
        self.process.check()?;
        // SAFETY: the context is retained until `self` is dropped.
        check("cuCtxSetCurrent", unsafe {
            sys::cuCtxSetCurrent(self.context)
        })
    }

    /// Calls the driver with the context bound, to release something; errors are ignored.
    fn give_back(&self, call: impl FnOnce() -> CUresult) {
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
        count().unwrap_or(0)
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
        self.context.bind()?;
        let mut stream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is bound; the pointer is to a live handle.
        check("cuStreamCreate", unsafe {
            sys::cuStreamCreate(&mut stream, flags)
        })?;
        Ok(Box::new(CudaStream {
            context: Arc::clone(&self.context),
            stream,
        }))
    }
}

// -- kernels --------------------------------------------------------------------------------

/// A loaded cubin.
struct Module {
    context: Arc<Context>,
    module: sys::CUmodule,
}

// SAFETY: as for `Context`.
unsafe impl Send for Module {}
// SAFETY: as for `Context`.
unsafe impl Sync for Module {}

impl Module {
    /// Loads a cubin, from NVRTC or an intact one from disk.
    fn load(context: &Arc<Context>, cubin: &[u8]) -> Result<Module> {
        context.bind()?;
        let mut module = ptr::null_mut();
        // SAFETY: a context is bound; a cubin contains its own length, and this one is intact.
        let result = unsafe { sys::cuModuleLoadData(&mut module, cubin.as_ptr().cast()) };
        check_memory("cuModuleLoadData", cubin.len() as u64, result)?;
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
struct CudaKernel {
    /// Keeps the function valid.
    module: Module,
    function: sys::CUfunction,
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
    fn load(context: &Arc<Context>, cubin: &[u8], name: &str) -> Result<CudaKernel> {
        let module = Module::load(context, cubin)?;
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
    fn allow_shared(&self, bytes: u32) -> Result<()> {
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
    fn check_args(&self, args: &[u64]) -> Result<()> {
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

// -- streams and events ---------------------------------------------------------------------

/// A stream that does not wait for the null stream.
struct CudaStream {
    context: Arc<Context>,
    stream: sys::CUstream,
}

// SAFETY: as for `Context`.
unsafe impl Send for CudaStream {}

/// An event.
struct CudaEvent {
    context: Arc<Context>,
    event: sys::CUevent,
}

// SAFETY: as for `Context`.
unsafe impl Send for CudaEvent {}
// SAFETY: as for `Context`.
unsafe impl Sync for CudaEvent {}

impl CudaEvent {
    fn new(context: &Arc<Context>) -> Result<CudaEvent> {
        let mut event = ptr::null_mut();
        let flags = sys::CUevent_flags::CU_EVENT_DEFAULT as u32;
        // SAFETY: the caller has bound the context; the pointer is to a live handle.
        check("cuEventCreate", unsafe {
            sys::cuEventCreate(&mut event, flags)
        })?;
        Ok(CudaEvent {
            context: Arc::clone(context),
            event,
        })
    }

    fn of<'a>(mark: &'a Event, call: &'static str) -> Result<&'a CudaEvent> {
        mark.0.downcast_ref().ok_or_else(|| Error::Driver {
            call,
            reason: "the mark is of another driver".to_string(),
        })
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // SAFETY: created once, in `new`. The driver destroys an event under way once it is recorded.
        self.context
            .give_back(|| unsafe { sys::cuEventDestroy_v2(self.event) });
    }
}

impl Stream for CudaStream {
    unsafe fn copy_in(&mut self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: the caller vouches for both ranges.
        check("cuMemcpyHtoDAsync", unsafe {
            sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, self.stream)
        })
    }

    unsafe fn copy_in_all(&mut self, copies: &[CopyIn]) -> Result<()> {
        let copies: Vec<&CopyIn> = copies.iter().filter(|copy| copy.bytes > 0).collect();
        if copies.len() < 2 || driver_version()? < BATCHES_COPIES {
            return copies.into_iter().try_for_each(|copy| {
                // SAFETY: as the caller says.
                unsafe { self.copy_in(copy.to, copy.from, copy.bytes) }
            });
        }
        self.context.bind()?;
        let mut to: Vec<u64> = copies.iter().map(|copy| copy.to).collect();
        let mut from: Vec<u64> = copies.iter().map(|copy| copy.from as u64).collect();
        let mut sizes: Vec<usize> = copies.iter().map(|copy| copy.bytes).collect();
        let nowhere = sys::CUmemLocation {
            type_: CUmemLocationType::CU_MEM_LOCATION_TYPE_INVALID,
            id: 0,
        };
        // one set of attributes, from the first copy on
        let mut attributes = sys::CUmemcpyAttributes {
            srcAccessOrder: CUmemcpySrcAccessOrder::CU_MEMCPY_SRC_ACCESS_ORDER_STREAM,
            srcLocHint: nowhere,
            dstLocHint: nowhere,
            flags: 0,
        };
        let mut first = 0;
        // SAFETY: the driver is as new as this function. There are as many addresses as sizes, and one index as
        // attributes; all of these are read before it returns. The caller vouches for the ranges.
        check("cuMemcpyBatchAsync", unsafe {
            sys::cuMemcpyBatchAsync_v2(
                to.as_mut_ptr(),
                from.as_mut_ptr(),
                sizes.as_mut_ptr(),
                sizes.len(),
                &mut attributes,
                &mut first,
                1,
                self.stream,
            )
        })
    }

    unsafe fn copy_out(&mut self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: the caller vouches for both ranges.
        check("cuMemcpyDtoHAsync", unsafe {
            sys::cuMemcpyDtoHAsync_v2(to.cast(), from, bytes, self.stream)
        })
    }

    unsafe fn fill(&mut self, to: u64, byte: u8, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.context.bind()?;
        // SAFETY: the caller vouches for the range.
        check("cuMemsetD8Async", unsafe {
            sys::cuMemsetD8Async(to, byte, bytes, self.stream)
        })
    }

    unsafe fn launch(&mut self, kernel: &dyn Kernel, launch: Launch<'_>) -> Result<()> {
        let Some(kernel) = kernel.as_any().downcast_ref::<CudaKernel>() else {
            return Err(Error::Driver {
                call: "cuLaunchKernel",
                reason: "the kernel is of another driver".to_string(),
            });
        };
        self.context.bind()?;
        kernel.check_args(launch.args)?;
        kernel.allow_shared(launch.shared)?;
        let words: *mut c_void = launch.args.as_ptr().cast_mut().cast();
        let mut parameters = [words];
        // SAFETY: the kernel's module is loaded. It has one parameter of as many bytes as
        // `words` has (`check_args`), or none, and then that is not read; the driver copies it
        // before it returns and does not write to it. The caller vouches for the rest.
        check("cuLaunchKernel", unsafe {
            sys::cuLaunchKernel(
                kernel.function,
                launch.grid,
                1,
                1,
                launch.block,
                1,
                1,
                launch.shared,
                self.stream,
                parameters.as_mut_ptr(),
                ptr::null_mut(),
            )
        })
    }

    fn mark(&mut self) -> Result<Event> {
        self.context.bind()?;
        let mark = CudaEvent::new(&self.context)?;
        // SAFETY: stream and event are alive and of the same context.
        check("cuEventRecord", unsafe {
            sys::cuEventRecord(mark.event, self.stream)
        })?;
        Ok(Event(Box::new(mark)))
    }

    fn wait(&mut self, mark: &Event) -> Result<()> {
        let mark = CudaEvent::of(mark, "cuStreamWaitEvent")?;
        self.context.bind()?;
        let flags = sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT as u32;
        // SAFETY: stream and event are alive.
        check("cuStreamWaitEvent", unsafe {
            sys::cuStreamWaitEvent(self.stream, mark.event, flags)
        })
    }

    fn synchronize(&mut self) -> Result<()> {
        self.context.bind()?;
        // SAFETY: the stream is alive.
        check("cuStreamSynchronize", unsafe {
            sys::cuStreamSynchronize(self.stream)
        })
    }

    fn elapsed(&mut self, from: &Event, to: &Event) -> Result<f64> {
        let from = CudaEvent::of(from, "cuEventElapsedTime")?;
        let to = CudaEvent::of(to, "cuEventElapsedTime")?;
        self.context.bind()?;
        let mut milliseconds = 0.0;
        // SAFETY: both events are alive; the pointer is to a live number.
        check("cuEventElapsedTime", unsafe {
            sys::cuEventElapsedTime_v2(&mut milliseconds, from.event, to.event)
        })?;
        Ok(f64::from(milliseconds))
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        // SAFETY: created once, in `Cuda::stream`. Work under way is waited for first, because its memory may be freed
        // next.
        self.context.give_back(|| unsafe {
            let _ = sys::cuStreamSynchronize(self.stream);
            sys::cuStreamDestroy_v2(self.stream)
        });
    }
}

#[cfg(test)]
mod tests;
