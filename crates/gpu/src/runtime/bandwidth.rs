//! Measures how fast a device reads its memory, and how fast bytes are copied to and from it.

use super::driver::{Driver, Kernel, Launch, Stream};
use super::kernels::FixedKernel;
use crate::error::{Error, Result};

const KERNEL: FixedKernel = FixedKernel::ReadAll;

/// Bytes to read on a device with enough free memory: far more than its caches hold, and long enough that the launch
/// does not matter.
const READ_BYTES: u64 = 4 << 30;
/// Bytes to read on other devices.
const READ_BYTES_SMALL: u64 = 1 << 30;
/// Free memory from which on the larger size is read.
const SPARE_BYTES: u64 = 16 << 30;
/// Minimum bytes to read: fewer would measure caches.
const READ_BYTES_LEAST: u64 = 64 << 20;
/// Bytes to copy.
const COPY_BYTES: u64 = 256 << 20;

const THREADS: u32 = 512;
const BLOCKS_PER_MULTIPROCESSOR: u32 = 16;

/// Memory is filled with this byte.
const BYTE: u8 = 0x5A;

/// Rounds not counted: clocks rise, and the first access to memory is slower.
const WARM_UPS: usize = 2;
/// An odd number, for the median.
const ROUNDS: usize = 11;

/// Bandwidths, in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bandwidth {
    /// A kernel's reads of the device's memory.
    pub read_bytes_per_s: f64,
    /// Copies from pinned memory of the host.
    pub host_to_device_bytes_per_s: f64,
    /// Copies to pinned memory of the host.
    pub device_to_host_bytes_per_s: f64,
}

/// Measures a device that is otherwise idle; takes a fraction of a second.
///
/// # Errors
///
/// Errors of the driver; [`Error::OutOfMemory`] if too little of the device's memory is free.
pub fn measure(driver: &dyn Driver) -> Result<Bandwidth> {
    let bytes = bytes_to_read(driver.free_memory()?)?;
    let copied = bytes.min(COPY_BYTES as usize);
    let compiled = driver.compile(&KERNEL.source(), KERNEL.name())?;
    // The stream last: it is dropped first, and waits for what uses the memory.
    let data = DeviceMemory::new(driver, bytes)?;
    let sum = DeviceMemory::new(driver, size_of::<u64>())?;
    let pinned = HostMemory::new(driver, copied)?;
    let mut bench = Bench {
        data,
        sum,
        pinned,
        copied,
        blocks: driver.info().multiprocessors * BLOCKS_PER_MULTIPROCESSOR,
        stream: driver.stream()?,
    };
    bench.fill()?;
    bench.check_sum(&*compiled.kernel)?;
    Ok(Bandwidth {
        read_bytes_per_s: bench.rate(bytes, |bench| bench.read(&*compiled.kernel))?,
        host_to_device_bytes_per_s: bench.rate(copied, Bench::copy_in)?,
        device_to_host_bytes_per_s: bench.rate(copied, Bench::copy_out)?,
    })
}

/// The bytes to read for so much free memory, in whole units of the kernel's reads.
fn bytes_to_read(free: u64) -> Result<usize> {
    let bytes = match free >= SPARE_BYTES {
        true => READ_BYTES,
        false => READ_BYTES_SMALL.min(free / 2),
    };
    if bytes < READ_BYTES_LEAST {
        return Err(Error::OutOfMemory {
            wanted: 2 * READ_BYTES_LEAST,
            reason: format!("{free} bytes are free"),
        });
    }
    Ok((bytes / READ_BYTES_LEAST * READ_BYTES_LEAST) as usize)
}

struct Bench<'a> {
    // In the order of dropping.
    stream: Box<dyn Stream + 'a>,
    data: DeviceMemory<'a>,
    sum: DeviceMemory<'a>,
    pinned: HostMemory<'a>,
    copied: usize,
    blocks: u32,
}

impl Bench<'_> {
    /// Bytes per second of work that handles that many bytes: the median of several rounds.
    fn rate(&mut self, bytes: usize, mut work: impl FnMut(&mut Self) -> Result<()>) -> Result<f64> {
        for _ in 0..WARM_UPS {
            work(self)?;
        }
        let mut times = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let from = self.stream.mark()?;
            work(self)?;
            let to = self.stream.mark()?;
            self.stream.synchronize()?;
            times.push(self.stream.elapsed(&from, &to)?);
        }
        times.sort_by(f64::total_cmp);
        let milliseconds = times[ROUNDS / 2].max(f64::MIN_POSITIVE);
        Ok(bytes as f64 / (milliseconds / 1000.0))
    }

    fn fill(&mut self) -> Result<()> {
        // SAFETY: the range is all of the memory, which outlives the stream.
        unsafe { self.stream.fill(self.data.address, BYTE, self.data.bytes) }?;
        // SAFETY: as above.
        unsafe { self.stream.fill(self.sum.address, 0, self.sum.bytes) }
    }

    fn read(&mut self, kernel: &dyn Kernel) -> Result<()> {
        let buffers = (self.data.bytes / 16) as u64;
        let launch = Launch {
            grid: self.blocks,
            block: THREADS,
            shared: 0,
            args: &[self.data.address, buffers, self.sum.address],
        };
        // SAFETY: the arguments are those of bandwidth.cu; the memory outlives the stream.
        unsafe { self.stream.launch(kernel, launch) }
    }

    /// Checks that the kernel reads everything once.
    fn check_sum(&mut self, kernel: &dyn Kernel) -> Result<()> {
        self.read(kernel)?;
        let to = self.pinned.address;
        // SAFETY: both are at least a word long, and outlive the stream.
        unsafe { self.stream.copy_out(to, self.sum.address, size_of::<u64>()) }?;
        self.stream.synchronize()?;
        // SAFETY: the word was just written there; pinned memory is aligned for it.
        let sum = unsafe { to.cast::<u64>().read() };
        let words = (self.data.bytes / size_of::<u64>()) as u64;
        let expected = words.wrapping_mul(u64::from_ne_bytes([BYTE; 8]));
        match sum == expected {
            true => Ok(()),
            false => Err(Error::Driver {
                call: "cuLaunchKernel",
                reason: format!("the sum of {words} words is {sum:#x}, not {expected:#x}"),
            }),
        }
    }

    fn copy_in(&mut self) -> Result<()> {
        // SAFETY: both ranges are at least as long, and outlive the stream.
        unsafe {
            let from = self.pinned.address;
            self.stream.copy_in(self.data.address, from, self.copied)
        }
    }

    fn copy_out(&mut self) -> Result<()> {
        // SAFETY: both ranges are at least as long, and outlive the stream.
        unsafe {
            let to = self.pinned.address;
            self.stream.copy_out(to, self.data.address, self.copied)
        }
    }
}

/// Memory of the device, freed on drop.
struct DeviceMemory<'a> {
    driver: &'a dyn Driver,
    address: u64,
    bytes: usize,
}

impl<'a> DeviceMemory<'a> {
    fn new(driver: &'a dyn Driver, bytes: usize) -> Result<Self> {
        let address = driver.allocate(bytes)?;
        Ok(DeviceMemory {
            driver,
            address,
            bytes,
        })
    }
}

impl Drop for DeviceMemory<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`; the only stream that uses it was dropped before.
        unsafe { self.driver.free(self.address) }
    }
}

/// Pinned memory of the host, zeroed at first, freed on drop.
struct HostMemory<'a> {
    driver: &'a dyn Driver,
    address: *mut u8,
}

impl<'a> HostMemory<'a> {
    fn new(driver: &'a dyn Driver, bytes: usize) -> Result<Self> {
        let address = driver.allocate_host(bytes)?;
        // SAFETY: it is that long, and not shared yet.
        unsafe { address.write_bytes(0, bytes) };
        Ok(HostMemory { driver, address })
    }
}

impl Drop for HostMemory<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`; the only stream that uses it was dropped before.
        unsafe { self.driver.free_host(self.address) }
    }
}

#[cfg(test)]
mod tests {
    use std::any::Any;
    use std::collections::HashMap;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::runtime::driver::{Compiled, DeviceInfo, Event};

    /// A device in host memory, whose only kernel sums words; every step takes a millisecond.
    #[derive(Debug)]
    struct Fake {
        info: DeviceInfo,
        free: u64,
        /// Units that the kernel omits.
        forgotten: usize,
        allocated: Mutex<HashMap<u64, Vec<u128>>>,
        steps: Arc<Mutex<u32>>,
    }

    #[derive(Debug)]
    struct FakeKernel(usize);

    impl Kernel for FakeKernel {
        fn as_any(&self) -> &dyn Any {
            self
        }

        fn resident_blocks(&self, _: u32, _: u32) -> u32 {
            1
        }
    }

    struct FakeStream(Arc<Mutex<u32>>);

    impl FakeStream {
        fn step(&self) -> Result<()> {
            *self.0.lock().unwrap() += 1;
            Ok(())
        }
    }

    impl Fake {
        fn new(free: u64, forgotten: usize) -> Self {
            let info = DeviceInfo {
                ordinal: 0,
                name: "none".to_string(),
                capability: (0, 0),
                memory: free,
                multiprocessors: 4,
                shared_memory: 0,
                is_emulated: true,
            };
            Fake {
                info,
                free,
                forgotten,
                allocated: Mutex::default(),
                steps: Arc::default(),
            }
        }
    }

    impl Driver for Fake {
        fn info(&self) -> &DeviceInfo {
            &self.info
        }

        fn free_memory(&self) -> Result<u64> {
            Ok(self.free)
        }

        fn compile(&self, source: &str, name: &str) -> Result<Compiled> {
            assert!(source.contains(&format!("{name}(const Args args)")));
            Ok(Compiled {
                kernel: Arc::new(FakeKernel(self.forgotten)),
                is_found: false,
            })
        }

        fn allocate(&self, bytes: usize) -> Result<u64> {
            let mut memory = vec![0_u128; bytes.div_ceil(16)];
            let address = memory.as_mut_ptr() as u64;
            self.allocated.lock().unwrap().insert(address, memory);
            Ok(address)
        }

        unsafe fn free(&self, address: u64) {
            assert!(self.allocated.lock().unwrap().remove(&address).is_some());
        }

        fn allocate_host(&self, bytes: usize) -> Result<*mut u8> {
            self.allocate(bytes).map(|address| address as *mut u8)
        }

        unsafe fn free_host(&self, address: *mut u8) {
            // SAFETY: the caller's.
            unsafe { self.free(address as u64) }
        }

        fn stream(&self) -> Result<Box<dyn Stream>> {
            Ok(Box::new(FakeStream(Arc::clone(&self.steps))))
        }
    }

    impl Stream for FakeStream {
        unsafe fn copy_in(&mut self, to: u64, from: *const u8, bytes: usize) -> Result<()> {
            // SAFETY: the caller's.
            unsafe { (to as *mut u8).copy_from(from, bytes) };
            self.step()
        }

        unsafe fn copy_out(&mut self, to: *mut u8, from: u64, bytes: usize) -> Result<()> {
            // SAFETY: the caller's.
            unsafe { to.copy_from(from as *const u8, bytes) };
            self.step()
        }

        unsafe fn fill(&mut self, to: u64, byte: u8, bytes: usize) -> Result<()> {
            // SAFETY: the caller's.
            unsafe { (to as *mut u8).write_bytes(byte, bytes) };
            self.step()
        }

        unsafe fn launch(&mut self, kernel: &dyn Kernel, launch: Launch<'_>) -> Result<()> {
            let kernel = kernel.as_any().downcast_ref::<FakeKernel>().unwrap();
            let [data, buffers, sum] = *launch.args else {
                panic!("{launch:?}")
            };
            assert_eq!((launch.grid, launch.block, launch.shared), (64, 512, 0));
            let words = 2 * (buffers as usize - kernel.0);
            // SAFETY: the caller's.
            let data = unsafe { std::slice::from_raw_parts(data as *const u64, words) };
            let added = data
                .iter()
                .fold(0, |sum: u64, word| sum.wrapping_add(*word));
            // SAFETY: the caller's.
            unsafe { *(sum as *mut u64) = (*(sum as *const u64)).wrapping_add(added) };
            self.step()
        }

        fn mark(&mut self) -> Result<Event> {
            Ok(Event(Box::new(*self.0.lock().unwrap())))
        }

        fn wait(&mut self, _: &Event) -> Result<()> {
            Ok(())
        }

        fn synchronize(&mut self) -> Result<()> {
            Ok(())
        }

        fn elapsed(&mut self, from: &Event, to: &Event) -> Result<f64> {
            let step = |mark: &Event| *mark.0.downcast_ref::<u32>().unwrap();
            Ok(f64::from(step(to) - step(from)))
        }
    }

    #[test]
    fn rates_are_bytes_over_time() {
        let fake = Fake::new(130 << 20, 0);
        let rate = f64::from(64 << 20) * 1000.0;
        let expected = Bandwidth {
            read_bytes_per_s: rate,
            host_to_device_bytes_per_s: rate,
            device_to_host_bytes_per_s: rate,
        };
        assert_eq!(measure(&fake).unwrap(), expected);
        assert!(fake.allocated.lock().unwrap().is_empty());
    }

    #[test]
    fn a_kernel_that_reads_less_is_caught() {
        let fake = Fake::new(130 << 20, 1);
        let error = measure(&fake).unwrap_err().to_string();
        assert!(error.contains("the sum of"), "{error}");
        assert!(fake.allocated.lock().unwrap().is_empty());
    }

    #[test]
    fn what_is_read_fits() {
        let gib = 1 << 30;
        assert_eq!(bytes_to_read(140 * gib).unwrap() as u64, 4 * gib);
        assert_eq!(bytes_to_read(8 * gib).unwrap() as u64, gib);
        assert_eq!(bytes_to_read(gib + 4096).unwrap() as u64, gib / 2);
        assert!(matches!(
            bytes_to_read(100 << 20),
            Err(Error::OutOfMemory { .. })
        ));
    }

    #[test]
    fn the_kernel_compiles_without_spills() {
        for capability in [(8, 0), (9, 0)] {
            if crate::nvrtc().is_err() {
                return;
            }
            let cubin = crate::compile_cubin(&KERNEL.source(), capability).unwrap();
            let [kernel] = cubin.resources.as_slice() else {
                panic!("{}", cubin.log)
            };
            assert_eq!(kernel.kernel, KERNEL.name());
            assert_eq!((kernel.spill_stores, kernel.stack), (0, 0));
            // Two blocks of 512 threads and more on a multiprocessor: enough loads under way.
            assert!(kernel.registers <= 40, "{kernel:?}");
        }
    }
}
