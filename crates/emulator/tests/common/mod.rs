//! Helpers of the tests.
#![allow(dead_code)] // Not every test program uses all of it.

use std::fmt::Debug;
use std::sync::Arc;

use vectile_emulator::CpuDevice;
use vectile_gpu::{Driver, Error, Kernel, Launch, Result};

/// Threads of a block, and words of what [`run`] returns.
const THREADS: usize = 256;

/// A device; prints a note and returns `None` if the machine has none.
pub fn device() -> Option<CpuDevice> {
    skip_unavailable(CpuDevice::new())
}

/// Prints a note and returns `None` if the machine lacks something.
pub fn skip_unavailable<T: Debug>(result: Result<T>) -> Option<T> {
    if let Err(Error::Unavailable(reason)) = &result {
        println!("skipped: {reason}");
        return None;
    }
    Some(result.unwrap())
}

/// Compiles a kernel with that body, which can use `u32`, `u64` and `out`, an array of 256 words.
pub fn kernel(device: &CpuDevice, body: &str) -> Arc<dyn Kernel> {
    device.compile(&source(body), "kernel").unwrap().kernel
}

/// The source of a kernel `kernel` with that body.
pub fn source(body: &str) -> String {
    format!(
        "typedef unsigned int u32;\n\
         typedef unsigned long long u64;\n\
         struct Args {{ u64 word[1]; }};\n\
         extern \"C\" __global__ void kernel(const __grid_constant__ Args a) {{\n\
         u32* out = (u32*)a.word[0];\n\
         {body}\n\
         }}\n"
    )
}

/// Runs one block of such a kernel, and returns `out`, which starts as zeros.
pub fn run_block(device: &CpuDevice, kernel: &dyn Kernel, shared: u32) -> Result<Vec<u32>> {
    run(device, kernel, 1, shared)
}

/// Runs so many blocks, and returns `out`.
pub fn run(device: &CpuDevice, kernel: &dyn Kernel, grid: u32, shared: u32) -> Result<Vec<u32>> {
    let mut out = vec![0u32; THREADS];
    let mut stream = device.stream()?;
    let address = device.allocate(THREADS * 4)?;
    let launch = Launch {
        grid,
        block: THREADS as u32,
        shared,
        args: &[address],
    };
    // SAFETY: `address` has as many bytes as `out`, until it is freed.
    let result = unsafe {
        stream
            .fill(address, 0, THREADS * 4)
            .and_then(|()| stream.launch(kernel, launch))
            .and_then(|()| stream.copy_out(out.as_mut_ptr().cast(), address, THREADS * 4))
    };
    // SAFETY: allocated above, and streams are done when they return.
    unsafe { device.free(address) };
    result.map(|()| out)
}

/// The reason of a failed call of the driver.
pub fn driver_reason(error: Error) -> String {
    match error {
        Error::Driver { reason, .. } => reason,
        other => panic!("{other:?}"),
    }
}
