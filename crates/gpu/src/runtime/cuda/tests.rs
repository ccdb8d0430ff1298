//! Tests on a device. Without one, only the errors are tested.

use std::thread;

use super::*;
use crate::runtime::archive::{self, Target};
use crate::runtime::driver::{CopyIn, Event, Kernel, Launch};
use crate::runtime::nvrtc::nvrtc;

/// Device 0, with a kernel cache in a directory, if there is a device. Where `VECTILE_TEST_GPU` is set, there must be
/// one.
fn device(cache: Option<&tempfile::TempDir>) -> Option<Arc<Cuda>> {
    let cache = cache.map(|directory| Cache::open(directory.path().to_path_buf()).unwrap());
    if_any(Cuda::open_with(0, cache, None))
}

fn if_any(opened: Result<Arc<Cuda>>) -> Option<Arc<Cuda>> {
    let opened = opened.inspect_err(|error| {
        assert!(std::env::var_os("VECTILE_TEST_GPU").is_none(), "{error}");
        eprintln!("not run: {error}");
    });
    opened.ok()
}

#[test]
fn devices_without_instructions_that_kernels_have_are_refused() {
    let of = |capability| {
        check_capability(&DeviceInfo {
            ordinal: 1,
            name: "NVIDIA T4".to_string(),
            capability,
            memory: 16 << 30,
            multiprocessors: 40,
            shared_memory: 64 << 10,
            is_emulated: false,
        })
    };
    for capability in [(8, 0), (8, 9), (9, 0), (12, 0)] {
        of(capability).unwrap();
    }
    for capability in [(7, 5), (6, 1)] {
        let error = of(capability).unwrap_err();
        assert!(matches!(error, Error::Unavailable(_)), "{error:?}");
    }
    assert_eq!(
        of((7, 5)).unwrap_err().to_string(),
        "no GPU: device 1, NVIDIA T4, has compute capability 7.5, at least 8.0 is needed"
    );
}

/// `out[i] = in[i] * factor + block * threads`, over shared memory of that many bytes.
const SCALE: &str = r#"
typedef unsigned long long u64;
struct Args { u64 word[4]; };
extern "C" __global__ void scale(const Args args) {
    extern __shared__ u64 scratch[];
    const u64* in = (const u64*)args.word[0];
    u64* out = (u64*)args.word[1];
    const u64 factor = args.word[2], last = args.word[3] / 8 - 1;
    const u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x;
    scratch[last - threadIdx.x] = in[i] * factor;
    __syncthreads();
    out[i] = scratch[last - threadIdx.x] + blockIdx.x * blockDim.x;
}
"#;

/// Memory for a test; not freed if the test fails.
struct Memory<'a> {
    cuda: &'a Cuda,
    address: u64,
}

impl<'a> Memory<'a> {
    fn new(cuda: &'a Cuda, bytes: usize) -> Self {
        let address = cuda.allocate(bytes).unwrap();
        assert_eq!(address % 256, 0);
        Memory { cuda, address }
    }
}

impl Drop for Memory<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated in `new`; tests wait for their streams first.
        unsafe { self.cuda.free(self.address) }
    }
}

const BLOCKS: u32 = 7;
const THREADS: u32 = 64;
const COUNT: usize = (BLOCKS * THREADS) as usize;

/// Runs [`SCALE`] from host memory to host memory.
fn scale(cuda: &Cuda, kernel: &dyn Kernel, factor: u64, shared: u32) -> Result<Vec<u64>> {
    let input: Vec<u64> = (0..COUNT as u64).collect();
    let mut output = vec![0_u64; COUNT];
    let bytes = size_of_val(input.as_slice());
    let (from, to) = (Memory::new(cuda, bytes), Memory::new(cuda, bytes));
    let mut stream = cuda.stream()?;
    let launch = Launch {
        grid: BLOCKS,
        block: THREADS,
        shared,
        args: &[from.address, to.address, factor, u64::from(shared)],
    };
    // SAFETY: all ranges are `bytes` long, the arguments are the kernel's, and everything outlives the
    // synchronization, or the dropping of the stream if a call fails.
    unsafe {
        stream.copy_in(from.address, input.as_ptr().cast(), bytes)?;
        stream.fill(to.address, 0xFF, bytes)?;
        stream.launch(kernel, launch)?;
        stream.copy_out(output.as_mut_ptr().cast(), to.address, bytes)?;
    }
    stream.synchronize()?;
    drop(stream);
    Ok(output)
}

fn scaled(factor: u64) -> Vec<u64> {
    let block = |i: u64| i / u64::from(THREADS) * u64::from(THREADS);
    (0..COUNT as u64).map(|i| i * factor + block(i)).collect()
}

#[test]
fn what_is_missing_is_said() {
    match Cuda::open(1_000_000) {
        Err(Error::Unavailable(reason)) => assert!(reason.len() > 20, "{reason}"),
        other => panic!("{other:?}"),
    }
    if Cuda::count() == 0 {
        let error = Cuda::open(0).unwrap_err().to_string();
        assert!(error.starts_with("no GPU: "), "{error}");
        assert!(infos().is_err());
    }
}

#[test]
fn kernels_run() {
    let Some(cuda) = device(None) else { return };
    assert!(cuda.info().memory > 0 && cuda.info().multiprocessors > 0);
    assert!(cuda.free_memory().unwrap() <= cuda.info().memory);
    let compiled = cuda.compile(SCALE, "scale").unwrap();
    assert!(!compiled.is_found);
    // Little shared memory, the most without permission, more, all, and less again.
    for shared in [
        THREADS * 8,
        48 << 10,
        (48 << 10) + 8,
        cuda.info().shared_memory,
        64 << 10,
    ] {
        let result = scale(&cuda, &*compiled.kernel, 3, shared).unwrap();
        assert_eq!(result, scaled(3), "{shared} bytes");
    }
    // Shared memory allows for no second block.
    let resident = |shared| compiled.kernel.resident_blocks(THREADS, shared);
    assert_eq!(resident(cuda.info().shared_memory), 1);
    assert!(resident(1 << 10) > 1);
    let too_much = cuda.info().shared_memory + 8;
    assert_eq!(resident(too_much), 1);
    let error = scale(&cuda, &*compiled.kernel, 3, too_much).unwrap_err();
    assert!(matches!(error, Error::Driver { .. }), "{error}");
    // The device still works.
    assert_eq!(
        scale(&cuda, &*compiled.kernel, 5, 1 << 10).unwrap(),
        scaled(5)
    );
}

#[test]
fn any_thread_may_call() {
    let Some(cuda) = device(None) else { return };
    let kernel = cuda.compile(SCALE, "scale").unwrap().kernel;
    thread::scope(|scope| {
        for factor in 0..8 {
            let (cuda, kernel) = (&cuda, &kernel);
            scope.spawn(move || {
                for _ in 0..20 {
                    let shared = (40 + factor as u32) << 10;
                    let result = scale(cuda, &**kernel, factor, shared).unwrap();
                    assert_eq!(result, scaled(factor));
                }
            });
        }
    });
}

#[test]
fn arguments_are_counted() {
    let Some(cuda) = device(None) else { return };
    let kernel = cuda.compile(SCALE, "scale").unwrap().kernel;
    let mut stream = cuda.stream().unwrap();
    for args in [&[0; 3][..], &[0; 5], &[]] {
        let launch = Launch {
            grid: 1,
            block: 32,
            shared: 0,
            args,
        };
        // SAFETY: refused before anything runs.
        let error = unsafe { stream.launch(&*kernel, launch) }.unwrap_err();
        assert!(error.to_string().contains("takes 32 bytes"), "{error}");
    }
}

#[test]
fn a_kernel_without_arguments_runs() {
    let Some(cuda) = device(None) else { return };
    let source = "extern \"C\" __global__ void nothing() {}";
    let kernel = cuda.compile(source, "nothing").unwrap().kernel;
    let mut stream = cuda.stream().unwrap();
    let launch = Launch {
        grid: 1,
        block: 32,
        shared: 0,
        args: &[],
    };
    // SAFETY: it takes nothing and does nothing.
    unsafe { stream.launch(&*kernel, launch) }.unwrap();
    stream.synchronize().unwrap();
}

/// As on the CPU: with a single rounding, the result would not be zero.
#[test]
fn products_and_sums_are_rounded_one_by_one() {
    let Some(cuda) = device(None) else { return };
    let source = r#"
struct Args { unsigned long long word[1]; };
extern "C" __global__ void multiply_add(const Args args) {
    double* x = (double*)args.word[0];
    x[0] = x[1] * x[2] + x[3];
}
"#;
    let kernel = cuda.compile(source, "multiply_add").unwrap().kernel;
    let mut values = [1.0, 0.1, 0.1, -0.1 * 0.1];
    assert_ne!(f64::mul_add(values[1], values[2], values[3]), 0.0);
    let bytes = size_of_val(&values);
    let memory = Memory::new(&cuda, bytes);
    let mut stream = cuda.stream().unwrap();
    let launch = Launch {
        grid: 1,
        block: 1,
        shared: 0,
        args: &[memory.address],
    };
    // SAFETY: all ranges are `bytes` long and outlive the synchronisation.
    unsafe {
        let host = values.as_mut_ptr().cast();
        stream.copy_in(memory.address, host, bytes).unwrap();
        stream.launch(&*kernel, launch).unwrap();
        stream.copy_out(host, memory.address, bytes).unwrap();
    }
    stream.synchronize().unwrap();
    assert_eq!(values[0], 0.0);
}

#[test]
fn kernels_are_found_on_disk() {
    let directory = tempfile::tempdir().unwrap();
    let Some(cuda) = device(Some(&directory)) else {
        return;
    };
    let compile = || cuda.compile(SCALE, "scale").unwrap();
    assert!(!compile().is_found);
    let second = compile();
    assert!(second.is_found);
    let result = scale(&cuda, &*second.kernel, 9, 1 << 10).unwrap();
    assert_eq!(result, scaled(9));
    // An intact entry, but not a cubin: it is compiled again.
    cuda.compiler().unwrap().keep(
        SCALE,
        b"not a cubin, though long enough to look at, or so one would think",
    );
    assert!(!compile().is_found);
    assert!(compile().is_found);
}

/// Device 0, with an archive of [`SCALE`] for these targets. It never has a compiler for others.
fn device_with(targets: &[Target]) -> Option<Arc<Cuda>> {
    let nvrtc = nvrtc().ok()?;
    let archived = targets.iter().map(|target| {
        let code = match target {
            Target::Cubin(capability) => nvrtc.compile(SCALE, *capability).unwrap().bytes,
            Target::Ptx(capability) => nvrtc.compile_ptx(SCALE, *capability).unwrap(),
        };
        archive::Archived::new("scale", SCALE, *target, &code).unwrap()
    });
    let archived = archive::write(nvrtc.version(), &archived.collect::<Vec<_>>());
    let archive = Archive::parse(Box::leak(archived.into_boxed_slice())).unwrap();
    let mut cuda = if_any(Cuda::open_with(0, None, Some(Box::leak(Box::new(archive)))))?;
    Arc::get_mut(&mut cuda).unwrap().compiler = Err("hidden".into());
    Some(cuda)
}

#[test]
fn embedded_kernels_need_no_compiler() {
    let Some(cuda) = device(None) else { return };
    let own = Target::Cubin(nvrtc().unwrap().target(cuda.info.capability).unwrap());
    let ptx = Target::Ptx((8, 0));
    for (targets, is_found) in [([own, ptx].as_slice(), true), (&[ptx], false)] {
        let cuda = device_with(targets).unwrap();
        assert_eq!(cuda.needs_compiler(SCALE, "scale"), !is_found);
        let found = cuda.find(SCALE, "scale").unwrap().unwrap();
        assert_eq!(found.is_found, is_found);
        let result = scale(&cuda, &*found.kernel, 9, 1 << 10).unwrap();
        assert_eq!(result, scaled(9));
        let other = format!("{SCALE}// another version");
        assert!(!cuda.needs_compiler(&other, "scale"));
        for result in [
            cuda.find(&other, "scale").map(drop),
            cuda.compile(&other, "scale").map(drop),
        ] {
            assert!(matches!(result, Err(Error::NoCompiler(_))), "{result:?}");
        }
    }
}

#[test]
fn bad_source_shows_the_log() {
    let Some(cuda) = device(None) else { return };
    match cuda.compile("extern \"C\" __global__ void f() { oops(); }", "f") {
        Err(Error::Compile { log }) => assert!(log.contains("oops"), "{log}"),
        other => panic!("{other:?}"),
    }
    match cuda.compile(SCALE, "scales") {
        Err(Error::Driver { reason, .. }) => assert!(reason.contains("scales"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn memory_runs_out() {
    let Some(cuda) = device(None) else { return };
    let bytes = cuda.info().memory as usize + (1 << 30);
    match cuda.allocate(bytes) {
        Err(Error::OutOfMemory { wanted, .. }) => assert_eq!(wanted, bytes as u64),
        other => panic!("{other:?}"),
    }
    // The device still works.
    drop(Memory::new(&cuda, 1));
}

#[test]
fn pinned_memory_is_the_hosts() {
    let Some(cuda) = device(None) else { return };
    let address = cuda.allocate_host(1 << 20).unwrap();
    // SAFETY: it is that long, and written before it is read.
    unsafe {
        address.write_bytes(7, 1 << 20);
        assert_eq!(address.add((1 << 20) - 1).read(), 7);
        cuda.free_host(address);
    }
}

/// Copies from pinned memory, of all lengths including 0.
#[test]
fn copies_arrive_together() {
    let Some(cuda) = device(None) else { return };
    let bytes = 4 << 20;
    let memory = Memory::new(&cuda, bytes);
    let host = cuda.allocate_host(bytes).unwrap();
    // SAFETY: `bytes` of memory that is not shared.
    let values = unsafe { std::slice::from_raw_parts_mut(host, bytes) };
    let numbered = values.iter_mut().enumerate();
    numbered.for_each(|(at, value)| *value = (at / 64 + at % 251) as u8);
    let lengths = [100_000, 1, 0, 64, 1_000_001];
    let copies = lengths.iter().enumerate().map(|(i, &bytes)| {
        let from = values[(lengths.len() - 1 - i) * 64..].as_ptr();
        let to = memory.address + (i as u64) * (512 << 10);
        CopyIn { to, from, bytes }
    });
    let copies: Vec<CopyIn> = copies.collect();
    let mut stream = cuda.stream().unwrap();
    // SAFETY: the ranges are within the memories, which are there until the stream is done.
    unsafe { stream.copy_in_all(&copies).unwrap() };
    for copy in &copies {
        let mut back = vec![0; copy.bytes];
        let to = back.as_mut_ptr();
        // SAFETY: as above.
        unsafe { stream.copy_out(to, copy.to, copy.bytes).unwrap() };
        stream.synchronize().unwrap();
        let start = copy.from.addr() - host.addr();
        assert_eq!(back, values[start..start + copy.bytes]);
    }
    // SAFETY: from `allocate_host`, and the stream is done.
    unsafe { cuda.free_host(host) };
}

#[test]
fn marks_order_streams() {
    let Some(cuda) = device(None) else { return };
    let bytes = 256 << 20;
    let memory = Memory::new(&cuda, bytes);
    let mut first = cuda.stream().unwrap();
    let mut second = cuda.stream().unwrap();
    let from = first.mark().unwrap();
    // SAFETY: the ranges are within the memory, and the streams are waited for.
    unsafe {
        for byte in 0..10 {
            first.fill(memory.address, byte, bytes).unwrap();
        }
    }
    let to = first.mark().unwrap();
    second.wait(&to).unwrap();
    let mut last = [0_u8; 16];
    // SAFETY: as above.
    unsafe {
        let end = memory.address + bytes as u64 - 16;
        second.copy_out(last.as_mut_ptr(), end, 16).unwrap();
    }
    second.synchronize().unwrap();
    assert_eq!(last, [9; 16]);
    let milliseconds = first.elapsed(&from, &to).unwrap();
    assert!(
        milliseconds > 0.0 && milliseconds < 10_000.0,
        "{milliseconds}"
    );
    // Nothing to copy needs no addresses.
    // SAFETY: there is nothing to copy.
    unsafe {
        first.copy_in(0, ptr::null(), 0).unwrap();
        first.copy_out(ptr::null_mut(), 0, 0).unwrap();
        first.fill(0, 0, 0).unwrap();
    }
    let foreign = Event(Box::new("another driver's"));
    assert!(first.wait(&foreign).is_err());
    assert!(first.elapsed(&from, &foreign).is_err());
}

/// The context is released when the last object of the device is dropped, in any order.
#[test]
fn things_may_outlive_the_driver() {
    let Some(cuda) = device(None) else { return };
    let kernel = cuda.compile(SCALE, "scale").unwrap().kernel;
    let mut stream = cuda.stream().unwrap();
    let mark = stream.mark().unwrap();
    drop(cuda);
    stream.wait(&mark).unwrap();
    drop(stream);
    drop(mark);
    drop(kernel);
    assert!(device(None).is_some());
}

/// Dropping a stream waits for it: memory that it used may be freed.
#[test]
fn dropping_a_stream_waits_for_it() {
    let Some(cuda) = device(None) else { return };
    let bytes = 64 << 20;
    let memory = Memory::new(&cuda, bytes);
    let mut copy = vec![1_u8; bytes];
    let mut stream = cuda.stream().unwrap();
    // SAFETY: the ranges are as long as that, and the stream is gone before they are.
    unsafe {
        stream.fill(memory.address, 3, bytes).unwrap();
        stream
            .copy_out(copy.as_mut_ptr(), memory.address, bytes)
            .unwrap();
    }
    drop(stream);
    assert!(copy.iter().all(|byte| *byte == 3));
}

#[test]
fn bandwidth_is_measured() {
    let Some(cuda) = device(None) else { return };
    let bandwidth = crate::measure(&*cuda).unwrap();
    for rate in [
        bandwidth.read_bytes_per_s,
        bandwidth.host_to_device_bytes_per_s,
        bandwidth.device_to_host_bytes_per_s,
    ] {
        assert!((1e8..1e14).contains(&rate), "{bandwidth:?}");
    }
}

/// In a process of its own: after it, every call of the process fails.
#[test]
fn an_illegal_address_loses_the_device() {
    if device(None).is_none() {
        return;
    }
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    let (_, module) = module_path!().split_once("::").unwrap();
    alone.args(["--ignored", "--exact"]);
    alone.arg(format!("{module}::the_device_is_lost"));
    let run = alone.output().unwrap();
    let said = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
#[ignore = "run by the test above"]
fn the_device_is_lost() {
    let cuda = device(None).unwrap();
    let engine = crate::Engine::new(Arc::clone(&cuda) as _);
    let kernel = cuda.compile(SCALE, "scale").unwrap().kernel;
    let mut stream = cuda.stream().unwrap();
    let launch = Launch {
        grid: 1,
        block: 32,
        shared: 32 * 8,
        args: &[8, 8, 1, 32 * 8],
    };
    // SAFETY: none: the device finds that nothing is mapped there, and this process has no other work on it.
    let launched = unsafe { stream.launch(&*kernel, launch) };
    let lost = engine
        .health()
        .watch(|| launched.and_then(|()| stream.synchronize()));
    assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
    assert!(matches!(cuda.allocate(256), Err(Error::Lost(_))));
    let error = engine.check().unwrap_err().to_string();
    assert!(error.contains("CUDA_ERROR_ILLEGAL_ADDRESS"), "{error}");
}
