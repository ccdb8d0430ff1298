//! Kernels on the CPU: correct ones give correct answers under every order of threads, faulty ones are reported.

mod common;

use std::sync::Arc;

use common::{device, driver_reason, kernel, run_block};
use vectile_emulator::{CpuDevice, run_sanitized_self};
use vectile_gpu::{Driver, Error, Kernel, Launch, Stream};

/// Bit-unpacking, a range filter, one word of ballots per 32 values and their count. `WIDTH` is defined before it.
const FILTER: &str = r#"
typedef unsigned int u32;
typedef unsigned long long u64;
typedef int i32;
static_assert(sizeof(u64) == 8, "");

struct Args { u64 word[7]; };

// Value i of a plain bit-packed array (least significant bit first). Reads one word past the value's.
template <int BITS>
__device__ __forceinline__ u32 unpack(const u32* __restrict__ packed, u32 i) {
    u32 bit = i * BITS;
    u32 shift = bit & 31;
    u64 pair = ((u64)__ldg(packed + (bit >> 5) + 1) << 32) | __ldg(packed + (bit >> 5));
    return (u32)(pair >> shift) & ((BITS == 32) ? ~0u : ((1u << BITS) - 1u));
}

extern "C" __global__ void __launch_bounds__(256) filter(const Args a) {
    const u32* packed = (const u32*)a.word[0];
    u32 n = (u32)a.word[1];
    i32 base = (i32)a.word[2], lo = (i32)a.word[3], hi = (i32)a.word[4];
    u32* mask = (u32*)a.word[5];
    u64* total = (u64*)a.word[6];
    __shared__ u32 warp_count[32];
    u32 i = blockIdx.x * blockDim.x + threadIdx.x;
    bool keep = false;
    if (i < n) {
        i32 value = (i32)unpack<WIDTH>(packed, i) + base;
        keep = value >= lo && value <= hi;
    }
    u32 ballot = __ballot_sync(0xffffffffu, keep);
    u32 lane = threadIdx.x & 31;
    u32 warp = threadIdx.x >> 5;
    if (lane == 0) {
        warp_count[warp] = __popc(ballot);
        if ((i >> 5) < ((n + 31) >> 5)) __stcs(mask + (i >> 5), ballot);
    }
    __syncthreads();
    if (warp == 0) {
        u32 count = lane < (blockDim.x >> 5) ? warp_count[lane] : 0;
#pragma unroll
        for (int offset = 16; offset; offset >>= 1) count += __shfl_down_sync(0xffffffffu, count, offset);
        if (lane == 0) atomicAdd(total, (u64)count);
    }
}
"#;

fn pack(values: &[u32], width: usize) -> Vec<u32> {
    let mut packed = vec![0u32; (values.len() * width).div_ceil(32) + 1];
    for (i, &value) in values.iter().enumerate() {
        let bit = i * width;
        let shifted = u64::from(value) << (bit % 32);
        packed[bit / 32] |= shifted as u32;
        packed[bit / 32 + 1] |= (shifted >> 32) as u32;
    }
    packed
}

/// Values of `width` bits without a pattern.
fn values(n: usize, width: usize) -> Vec<u32> {
    let mut state = 88_172_645_463_325_252u64;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u32 & ((1 << width) - 1)
    };
    (0..n).map(next).collect()
}

/// A buffer of device memory, freed on drop.
struct Buffer<'a> {
    device: &'a CpuDevice,
    address: u64,
    words: usize,
}

impl<'a> Buffer<'a> {
    fn new(device: &'a CpuDevice, stream: &mut dyn Stream, content: &[u32]) -> Self {
        let address = device.allocate(content.len() * 4).unwrap();
        // SAFETY: both are `content.len()` words long.
        unsafe { stream.copy_in(address, content.as_ptr().cast(), content.len() * 4) }.unwrap();
        Self {
            device,
            address,
            words: content.len(),
        }
    }

    fn read(&self, stream: &mut dyn Stream) -> Vec<u32> {
        let mut content = vec![0u32; self.words];
        // SAFETY: both are `self.words` words long.
        unsafe { stream.copy_out(content.as_mut_ptr().cast(), self.address, self.words * 4) }
            .unwrap();
        content
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: it was allocated by `new`, and streams are done when they return.
        unsafe { self.device.free(self.address) };
    }
}

fn check_filter(device: &CpuDevice, kernel: &dyn Kernel, width: usize, n: usize) {
    let values = values(n, width);
    let (base, lo, hi) = (
        -7,
        (1i32 << (width - 1)) / 2 - 7,
        (1i32 << (width - 1)) + 11,
    );
    let keep = |value: &u32| (lo..=hi).contains(&(*value as i32 + base));
    let to_word = |group: &[u32]| {
        let bits = group.iter().enumerate();
        bits.fold(0, |word, (i, value)| word | u32::from(keep(value)) << i)
    };
    let expected: Vec<u32> = values.chunks(32).map(to_word).collect();
    let count = values.iter().filter(|value| keep(value)).count();

    let mut stream = device.stream().unwrap();
    let packed = Buffer::new(device, &mut *stream, &pack(&values, width));
    let mask = Buffer::new(device, &mut *stream, &vec![0; n.div_ceil(32)]);
    let total = Buffer::new(device, &mut *stream, &[0, 0]);
    let args = [
        packed.address,
        n as u64,
        base as u64,
        lo as u64,
        hi as u64,
        mask.address,
        total.address,
    ];
    let launch = Launch {
        grid: n.div_ceil(256) as u32,
        block: 256,
        shared: 0,
        args: &args,
    };
    // SAFETY: the arguments are those of FILTER, over buffers that live on.
    unsafe { stream.launch(kernel, launch) }.unwrap();
    stream.synchronize().unwrap();
    assert_eq!(mask.read(&mut *stream), expected, "width {width}, n {n}");
    assert_eq!(total.read(&mut *stream), [count as u32, 0]);
}

fn check_filters(lengths: &[usize]) {
    let Some(device) = device() else { return };
    for width in [5, 8, 13, 17, 31] {
        let source = format!("#define WIDTH {width}\n{FILTER}");
        let kernel = device.compile(&source, "filter").unwrap().kernel;
        for &n in lengths {
            for seed in 0..4 {
                device.set_seed(seed);
                check_filter(&device, &*kernel, width, n);
            }
        }
    }
    assert_eq!(device.allocated_bytes(), 0);
}

#[test]
fn a_filter_over_packed_values_equals_scalar_code() {
    check_filters(&[1, 31, 32, 33, 255, 256, 257, 10_000]);
}

#[test]
fn the_filter_is_clean_under_sanitizers() {
    check_filters(&[1, 33, 257]);
    let itself = "the_filter_is_clean_under_sanitizers";
    common::skip_unavailable(run_sanitized_self(itself));
}

const RIGHT: &str = r"
__shared__ u32 s[256];
s[threadIdx.x] = threadIdx.x * 3;
__syncthreads();
out[threadIdx.x] = s[(threadIdx.x + 100) & 255];
";

const MISSING_BARRIER: &str = r"
__shared__ u32 s[256];
s[threadIdx.x] = threadIdx.x * 3;
out[threadIdx.x] = s[(threadIdx.x + 100) & 255];
";

#[test]
fn a_missing_barrier_changes_the_answer() {
    let Some(device) = device() else { return };
    let expected: Vec<u32> = (0..256).map(|i| ((i + 100) & 255) * 3).collect();
    let right = kernel(&device, RIGHT);
    let wrong = kernel(&device, MISSING_BARRIER);
    let mut seen = 0;
    for seed in 0..8 {
        device.set_seed(seed);
        assert_eq!(run_block(&device, &*right, 0).unwrap(), expected);
        seen += u32::from(run_block(&device, &*wrong, 0).unwrap() != expected);
    }
    assert_eq!(seen, 8);
}

#[test]
fn a_race_between_blocks_changes_the_answer() {
    let Some(device) = device() else { return };
    let right = kernel(&device, "if (threadIdx.x == 0) atomicAdd(&out[0], 1u);");
    let wrong = kernel(
        &device,
        "u32 seen = out[0]; __syncthreads(); if (threadIdx.x == 0) out[0] = seen + 1;",
    );
    let run = |kernel: &dyn Kernel| common::run(&device, kernel, 8, 0).unwrap()[0];
    let mut lost = 0;
    for seed in 0..10 {
        device.set_seed(seed);
        assert_eq!(run(&*right), 8);
        let counted = run(&*wrong);
        assert_eq!(run(&*wrong), counted, "the same seed has the same order");
        lost += u32::from(counted != 8);
    }
    // with seeds 0 and 1, one block runs after the other
    assert_eq!(lost, 8);
}

#[test]
fn a_thread_pauses_at_atomics_for_threads_of_other_blocks() {
    let Some(device) = device() else { return };
    // how often another block has raised the count in the meantime
    let body = "
    if (threadIdx.x) return;
    u32 last = 0, between = 0;
    for (int i = 0; i < 1000; i++) {
        u32 now = atomicAdd(&out[0], 1u);
        between += i && now != last + 1;
        last = now;
    }
    atomicAdd(&out[1], between);
    ";
    let kernel = kernel(&device, body);
    for seed in 0..10 {
        device.set_seed(seed);
        let out = common::run(&device, &*kernel, 3, 0).unwrap();
        assert_eq!(out[0], 3000, "{seed}");
        assert_eq!(out[1] > 0, seed > 1, "{seed}");
    }
}

/// The error of a kernel with that body, by seed.
fn reports(body: &str) -> Vec<String> {
    let Some(device) = device() else {
        return Vec::new();
    };
    let kernel = kernel(&device, body);
    let report = |seed| {
        device.set_seed(seed);
        driver_reason(run_block(&device, &*kernel, 4096).unwrap_err())
    };
    (0..8).map(report).collect()
}

#[test]
fn deadlock_is_reported() {
    let body = r"
    // Half of the lanes of a warp wait for the other half, which waits for everyone.
    if (threadIdx.x < 128) {
        __syncthreads();
    } else if ((threadIdx.x & 31) < 16) {
        out[threadIdx.x] = __shfl_sync(0xffffffffu, threadIdx.x, 3);
    } else {
        __syncthreads();
    }";
    for report in reports(body) {
        let expected = "kernel: deadlock: 256 threads wait, \
             192 at __syncthreads and 64 at warp operations, in block 0";
        assert_eq!(report, expected);
    }
}

#[test]
fn a_lane_outside_of_its_mask_is_reported() {
    let body = "out[threadIdx.x] = __ballot_sync(0xfffu, 1);";
    for report in reports(body) {
        assert!(report.contains("not in its own mask"), "{report}");
    }
}

#[test]
fn loads_of_global_memory_from_shared_memory_are_reported() {
    let body = r"
    DYN_SHARED(u32, shared);
    shared[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = __ldg(shared + threadIdx.x);";
    for report in reports(body) {
        assert!(report.contains("from shared memory"), "{report}");
    }
}

#[test]
fn masks_that_disagree_are_reported() {
    let body = "__syncwarp((threadIdx.x & 31) < 16 ? 0xffffffffu : 0xffff8000u);";
    for report in reports(body) {
        assert!(report.contains("disagree on the mask"), "{report}");
    }
}

#[test]
fn operations_that_disagree_are_reported() {
    let body = "if (threadIdx.x & 1) __syncwarp(); else __ballot_sync(0xffffffffu, 1);";
    for report in reports(body) {
        assert!(report.contains("disagree on the operation"), "{report}");
    }
}

#[test]
fn a_shuffle_from_an_absent_lane_is_reported() {
    let body = "if (threadIdx.x & 1) out[threadIdx.x] = __shfl_sync(0xaaaaaaaau, threadIdx.x, 4);";
    for report in reports(body) {
        assert!(report.contains("takes no part"), "{report}");
    }
}

#[test]
fn trap_is_reported() {
    for report in reports("if (threadIdx.x == 77) __trap();") {
        assert_eq!(report, "kernel: __trap [block 0 thread 77 lane 13]");
    }
}

#[test]
fn parts_of_a_warp_may_meet_apart_and_then_together() {
    let Some(device) = device() else { return };
    let kernel = kernel(
        &device,
        r"
        const u32 odd = threadIdx.x & 1;
        const u32 mask = odd ? 0xaaaaaaaau : 0x55555555u;
        u32 sum = 0;
        for (u32 round = 0; round < 5; round++) {
            sum += __popc(__ballot_sync(mask, threadIdx.x & 2));
            const u32 peers = __match_any_sync(0xffffffffu, threadIdx.x % (round + 1));
            sum += __reduce_add_sync(peers, 1u) - __popc(peers);
            if (odd) sum += __shfl_xor_sync(mask, threadIdx.x, 2) - (threadIdx.x ^ 2);
            __syncwarp();
        }
        out[threadIdx.x] = sum;
        ",
    );
    for seed in 0..32 {
        device.set_seed(seed);
        assert_eq!(
            run_block(&device, &*kernel, 0).unwrap(),
            [40; 256],
            "{seed}"
        );
    }
}

#[test]
fn shared_memory_starts_each_block_as_poison() {
    let Some(device) = device() else { return };
    let body = r"
    __shared__ u32 fixed[256];
    DYN_SHARED(u32, dynamic);
    atomicOr(&out[threadIdx.x], (fixed[threadIdx.x] ^ 0xCDCDCDCDu) | (dynamic[threadIdx.x] ^ 0xCDCDCDCDu));
    fixed[threadIdx.x] = dynamic[threadIdx.x] = threadIdx.x;
    ";
    let kernel = kernel(&device, body);
    assert_eq!(common::run(&device, &*kernel, 3, 1024).unwrap(), [0; 256]);
    assert_eq!(common::run(&device, &*kernel, 3, 1024).unwrap(), [0; 256]);
    for seed in 2..6 {
        device.set_seed(seed);
        assert_eq!(common::run(&device, &*kernel, 9, 1024).unwrap(), [0; 256]);
    }
}

#[test]
fn kernels_run_on_several_threads_at_once() {
    let Some(device) = device() else { return };
    let kernel = kernel(&device, RIGHT);
    let expected: Vec<u32> = (0..256).map(|i| ((i + 100) & 255) * 3).collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    assert_eq!(run_block(&device, &*kernel, 0).unwrap(), expected);
                }
            });
        }
    });
}

/// Both wait for locks of the loader: a thread that has not run the kernel before, and one that loads another.
#[test]
fn kernels_run_on_new_threads_while_others_are_loaded() {
    let Some(device) = device() else { return };
    let kernel = kernel(&device, RIGHT);
    let other = common::source("out[threadIdx.x] = threadIdx.x;");
    drop(device.compile(&other, "kernel").unwrap());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..300 {
                drop(device.compile(&other, "kernel").unwrap());
            }
        });
        for _ in 0..300 {
            let run = || run_block(&device, &*kernel, 0).unwrap();
            let answer = scope.spawn(run).join().unwrap();
            assert_eq!(answer[0], 300);
        }
    });
}

/// A stack overflow cannot be tested; a large frame that fits can.
#[test]
fn a_thread_has_a_stack_of_some_size() {
    let Some(device) = device() else { return };
    let body = r"
    volatile u32 local[8192];
    for (u32 i = 0; i < 8192; i++) local[i] = i;
    __syncthreads();
    out[threadIdx.x] = local[threadIdx.x * 32];
    ";
    let kernel = kernel(&device, body);
    let expected: Vec<u32> = (0..256).map(|i| i * 32).collect();
    assert_eq!(run_block(&device, &*kernel, 0).unwrap(), expected);
}

#[test]
fn arguments_of_another_size_are_reported() {
    let Some(device) = device() else { return };
    let kernel = kernel(&device, RIGHT);
    let launch = Launch {
        grid: 1,
        block: 32,
        shared: 0,
        args: &[0, 0, 0],
    };
    let mut stream = device.stream().unwrap();
    // SAFETY: the kernel is not entered.
    let result = unsafe { stream.launch(&*kernel, launch) };
    let reason = driver_reason(result.unwrap_err());
    assert_eq!(
        reason,
        "kernel: the kernel takes 8 bytes of arguments, not 3 words"
    );
}

#[test]
fn a_kernel_outlives_its_device() {
    let Some(device) = device() else { return };
    let kernel: Arc<dyn Kernel> = kernel(&device, RIGHT);
    drop(device);
    let Some(other) = common::device() else {
        return;
    };
    assert_eq!(run_block(&other, &*kernel, 0).unwrap()[0], 300);
}

#[test]
fn compile_errors_have_a_log() {
    let Some(device) = device() else { return };
    let source = "struct Args { unsigned long long word[1]; };\n\
                  extern \"C\" __global__ void broken(Args a) { this is not C++; }";
    match device.compile(source, "broken") {
        Err(Error::Compile { log }) => assert!(log.contains("broken.cu:2:"), "{log}"),
        other => panic!("{other:?}"),
    }
    let missing = device.compile("struct Args { long word[1]; };", "missing");
    assert!(matches!(missing, Err(Error::Compile { .. })));
}
