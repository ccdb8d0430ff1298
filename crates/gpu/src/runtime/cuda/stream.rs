//! Streams and events.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;
use cudarc::driver::sys::{CUmemLocationType, CUmemcpySrcAccessOrder};

use super::context::Context;
use super::kernel::CudaKernel;
use crate::error::{Error, Result};
use crate::runtime::calls::{check, driver_version};
use crate::runtime::driver::{CopyIn, Event, Kernel, Launch, Stream};

/// The CUDA version from which on a driver takes many copies in one call. On an H200 that takes 7 microseconds for six
/// copies instead of 18, and 5 MB in all are copied at 52 GB/s instead of 46.
const BATCHES_COPIES: (u32, u32) = (13, 0);

/// A stream that does not wait for the null stream.
pub(super) struct CudaStream {
    context: Arc<Context>,
    stream: sys::CUstream,
}

// SAFETY: as for `Context`.
unsafe impl Send for CudaStream {}

impl CudaStream {
    /// Creates a stream of the context's device.
    pub fn new(context: &Arc<Context>) -> Result<CudaStream> {
        context.bind()?;
        let mut stream = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        // SAFETY: a context is bound; the pointer is to a live handle.
        check("cuStreamCreate", unsafe {
            sys::cuStreamCreate(&mut stream, flags)
        })?;
        Ok(CudaStream {
            context: Arc::clone(context),
            stream,
        })
    }
}

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
        // SAFETY: created once, in `new`. Work under way is waited for first, because its memory may be freed
        // next.
        self.context.give_back(|| unsafe {
            let _ = sys::cuStreamSynchronize(self.stream);
            sys::cuStreamDestroy_v2(self.stream)
        });
    }
}
