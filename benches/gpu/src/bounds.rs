//! The speed of a kernel that only writes device memory, or copies it.

use std::sync::Arc;

use vectile_gpu::{Driver, Kernel, Launch, Result, Stream};

use crate::timing::median;

/// 16 bytes at a time, by neighbouring threads. Arguments: destination, source, number of 16-byte
/// pieces.
const SOURCE: &str = r#"
typedef unsigned long long u64;
struct Args { u64 word[3]; };

extern "C" __global__ void __launch_bounds__(512) write_all(const Args args) {
    ulonglong2* to = (ulonglong2*)args.word[0];
    const u64 stride = (u64)gridDim.x * blockDim.x;
#pragma unroll 4
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < args.word[2]; i += stride) {
        __stcs(to + i, make_ulonglong2(i, ~i));
    }
}

extern "C" __global__ void __launch_bounds__(512) copy_all(const Args args) {
    ulonglong2* to = (ulonglong2*)args.word[0];
    const ulonglong2* from = (const ulonglong2*)args.word[1];
    const u64 stride = (u64)gridDim.x * blockDim.x;
#pragma unroll 4
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < args.word[2]; i += stride) {
        __stcs(to + i, __ldcs(from + i));
    }
}
"#;
const BYTES: usize = 2 << 30;
const ROUNDS: usize = 11;

/// Speeds in bytes per second.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Writing by a kernel that reads nothing.
    pub write: f64,
    /// Writing by a kernel that reads as much: half of the bytes moved.
    pub copy: f64,
    /// Writing by the driver, which fills memory with zeros.
    pub fill: f64,
}

/// Measures a device that is otherwise idle.
pub fn measure(driver: &Arc<dyn Driver>) -> Result<Bounds> {
    let write = driver.compile(SOURCE, "write_all")?.kernel;
    let copy = driver.compile(SOURCE, "copy_all")?.kernel;
    let to = driver.allocate(BYTES)?;
    let from = driver.allocate(BYTES)?;
    let mut stream = driver.stream()?;
    // SAFETY: the ranges are all of both pieces of memory.
    unsafe {
        stream.fill(to, 0, BYTES)?;
        stream.fill(from, 1, BYTES)?;
    }
    let grid = driver.info().multiprocessors * 16;
    let launch = |stream: &mut dyn Stream, kernel: &dyn Kernel| {
        let args = [to, from, BYTES as u64 / 16];
        let launch = Launch {
            grid,
            block: 512,
            shared: 0,
            args: &args,
        };
        // SAFETY: the arguments are those of both kernels; the memory is freed below, when nothing
        // is under way.
        unsafe { stream.launch(kernel, launch) }
    };
    let bounds = Bounds {
        write: rate(stream.as_mut(), |s| launch(s, write.as_ref()))?,
        copy: rate(stream.as_mut(), |s| launch(s, copy.as_ref()))?,
        // SAFETY: as above.
        fill: rate(stream.as_mut(), |s| unsafe { s.fill(to, 0, BYTES) })?,
    };
    drop(stream);
    // SAFETY: allocated above; the only stream that used them has been dropped.
    unsafe {
        driver.free(to);
        driver.free(from);
    }
    Ok(bounds)
}

fn rate(
    stream: &mut dyn Stream,
    mut work: impl FnMut(&mut dyn Stream) -> Result<()>,
) -> Result<f64> {
    let mut times = vec![];
    for _ in 0..ROUNDS {
        let from = stream.mark()?;
        work(stream)?;
        let to = stream.mark()?;
        stream.synchronize()?;
        times.push(stream.elapsed(&from, &to)?);
    }
    Ok(BYTES as f64 / median(&mut times) * 1e3)
}
