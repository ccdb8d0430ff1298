//! Compiles the kernels that are the same for every query, for all architectures, to the file that is named. A build
//! with `VECTILE_KERNELS` set to its absolute path embeds it. Needs NVRTC, but no GPU.

use std::env;
use std::error::Error;
use std::fs;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let to = env::args_os().nth(1).ok_or("usage: precompile FILE")?;
    let begun = Instant::now();
    let archive = vectile_gpu::precompile()?;
    fs::write(&to, &archive)?;
    let (version, bytes) = (vectile_gpu::nvrtc()?.version(), archive.len());
    let seconds = begun.elapsed().as_secs_f64();
    println!(
        "{}: {bytes} bytes by NVRTC {}.{} in {seconds:.1} s",
        to.display(),
        version.0,
        version.1
    );
    Ok(())
}
