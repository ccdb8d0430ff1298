//! Intrinsics against CUDA's reference: each line of a kernel is a claim.

mod common;

use common::{device, kernel, run_block};

/// Runs a block of 256 threads that all check claims; fails with the number of a false one.
fn check(claims: &str) {
    let Some(device) = device() else { return };
    let numbered: String = claims
        .lines()
        .map(str::trim)
        .enumerate()
        .map(|(line, claim)| match claim.strip_prefix("claim ") {
            Some(claim) => format!("if (!({claim})) out[threadIdx.x] = {};\n", line + 1),
            None => format!("{claim}\n"),
        })
        .collect();
    let kernel = kernel(&device, &numbered);
    for seed in [0, 1, 7] {
        device.set_seed(seed);
        for (thread, line) in run_block(&device, &*kernel, 1024)
            .unwrap()
            .iter()
            .enumerate()
        {
            let claim = claims.lines().nth((*line as usize).wrapping_sub(1));
            assert_eq!(claim, None, "thread {thread}, seed {seed}");
        }
    }
}

#[test]
fn bits() {
    check(
        "claim __popc(0xf0f0u) == 8 && __popcll(~0ull) == 64
        claim __clz(0) == 32 && __clz(1) == 31 && __clzll(0) == 64 && __clzll(-1) == 0
        claim __ffs(0) == 0 && __ffs(8) == 4 && __ffsll(1ll << 40) == 41
        claim __brev(1u) == 0x80000000u && __brevll(2ull) == 1ull << 62
        claim __funnelshift_l(0x80000000u, 1u, 1) == 3u && __funnelshift_l(5u, 7u, 32) == 7u
        claim __funnelshift_r(0x10u, 3u, 4) == 0x30000001u && __funnelshift_r(5u, 7u, 32) == 5u
        claim __funnelshift_lc(5u, 7u, 32) == 5u && __funnelshift_rc(5u, 7u, 99) == 7u
        claim __byte_perm(0x33221100u, 0x77665544u, 0x7140u) == 0x77114400u
        claim __byte_perm(0x00000080u, 0u, 0x8888u) == 0xffffffffu",
    );
}

#[test]
fn arithmetic() {
    check(
        "claim __umulhi(~0u, ~0u) == 0xfffffffeu && __mulhi(-1, 1) == -1
        claim __umul64hi(~0ull, 2ull) == 1ull && __mul64hi(-1ll, 5ll) == -1ll
        claim (u64)(((unsigned __int128)1 << 100) >> 90) == 1024
        claim min(3u, 4) == 3 && max(-1, 2) == 2 && min(1.5, 2) == 1.5 && max(2ll, 1ll) == 2
        const double nan = __longlong_as_double(0x7ff8000000000000ll);
        claim min(nan, 1.0) == 1.0 && max(1.0, nan) == 1.0 && isnan(nan) && fmax(nan, 2.0f) == 2.0
        claim floor(-1.5) == -2.0 && ceil(1.2f) == 2.0f && rint(2.5) == 2.0 && fabs(-1.0f) == 1.0f
        claim __dmul_rn(0.1, 3.0) == 0.1 * 3.0 && __dadd_rn(0.1, 0.2) != 0.3
        claim __fmul_rn(0.1f, 3.0f) == 0.1f * 3.0f && __fma_rn(2.0, 3.0, 1.0) == 7.0
        claim signbit(-0.0) && !signbit(0.0f) && isinf(1.0 / __longlong_as_double(0)) && isfinite(1.0f)",
    );
}

#[test]
fn conversions() {
    check(
        "claim __float_as_int(1.0f) == 0x3f800000 && __float_as_uint(-0.0f) == 0x80000000u
        claim __int_as_float(0x3f800000) == 1.0f && __uint_as_float(0x40000000u) == 2.0f
        claim __double_as_longlong(__longlong_as_double(77)) == 77
        claim __hiloint2double(__double2hiint(1.5), __double2loint(1.5)) == 1.5
        const double nan = __longlong_as_double(0x7ff8000000000000ll);
        const long long least = 1ull << 63;
        claim __double2ll_rn(2.5) == 2 && __double2ll_rn(3.5) == 4 && __double2ll_rz(-2.9) == -2
        claim __double2ll_rn(1e30) == ~least && __double2ll_rn(-1e30) == least && __double2ll_rn(nan) == least
        claim __double2ll_rd(-0.5) == -1 && __double2ull_ru(0.5) == 1 && __double2ull_rz(-7.0) == 0
        claim __double2int_rz(1e10) == 2147483647 && __double2int_rz(-1e10) == -2147483647 - 1
        claim __double2uint_rz(1e10) == ~0u && __double2ull_rn(1e30) == ~0ull
        claim __ll2double_rn((1ll << 53) + 1) == 9007199254740992.0 && __ull2double_rn(~0ull) == 18446744073709551616.0
        claim __double2float_rn(0.1) == 0.1f && __int2double_rn(-3) == -3.0",
    );
}

#[test]
fn votes() {
    check(
        "const u32 all = ~0u, lane = threadIdx.x & 31;
        claim __ballot_sync(all, lane < 4) == 0xfu && __any_sync(all, lane == 9) && !__all_sync(all, lane)
        claim __all_sync(all, 1) && !__any_sync(all, 0)
        claim __match_any_sync(all, lane & 1) == (lane & 1 ? 0xaaaaaaaau : 0x55555555u)
        claim __match_any_sync(all, (double)(lane / 16)) == (lane < 16 ? 0xffffu : 0xffff0000u)
        int same;
        claim __match_all_sync(all, 5ull, &same) == all && same == 1
        claim __match_all_sync(all, lane, &same) == 0 && same == 0
        claim __syncthreads_count(threadIdx.x < 100) == 100
        claim __syncthreads_and(1) && !__syncthreads_and(threadIdx.x != 255)
        claim __syncthreads_or(threadIdx.x == 255) && !__syncthreads_or(0)",
    );
}

#[test]
fn shuffles() {
    check(
        "const u32 all = ~0u, lane = threadIdx.x & 31;
        claim __shfl_sync(all, lane, 3) == 3 && __shfl_sync(all, lane, 35) == 3
        claim __shfl_sync(all, lane, 1, 8) == (lane & ~7u) + 1
        claim __shfl_up_sync(all, lane, 2) == (lane < 2 ? lane : lane - 2)
        claim __shfl_up_sync(all, lane, 1, 4) == (lane % 4 ? lane - 1 : lane)
        claim __shfl_down_sync(all, lane, 5) == (lane + 5 < 32 ? lane + 5 : lane)
        claim __shfl_down_sync(all, lane, 1, 4) == (lane % 4 < 3 ? lane + 1 : lane)
        claim __shfl_xor_sync(all, lane, 9) == (lane ^ 9)
        claim __shfl_xor_sync(all, lane, 4, 4) == (lane & 4 ? lane ^ 4 : lane)
        claim __shfl_xor_sync(all, (double)lane / 2, 1) == (lane ^ 1) / 2.0
        claim __shfl_sync(all, (u64)lane << 40, 7) == 7ull << 40",
    );
}

#[test]
fn reductions() {
    check(
        "const u32 all = ~0u, lane = threadIdx.x & 31;
        claim __reduce_add_sync(all, lane) == 496 && __reduce_add_sync(all, -1) == -32
        claim __reduce_min_sync(all, lane + 3) == 3 && __reduce_max_sync(all, lane) == 31
        claim __reduce_min_sync(all, -(int)lane) == -31 && __reduce_max_sync(all, -(int)lane) == 0
        claim __reduce_and_sync(all, lane | 64) == 64 && __reduce_or_sync(all, lane) == 31
        claim __reduce_xor_sync(all, 1u << lane) == all
        u32 upper = lane < 16 ? 120 : __reduce_min_sync(0xffff0000u, lane) + 104;
        claim upper == 120",
    );
}

#[test]
fn memory() {
    check(
        "uint4* wide = (uint4*)out;
        if (threadIdx.x < 64) __stcs(wide + threadIdx.x, make_uint4(threadIdx.x, 1, 2, 3));
        __syncthreads();
        const uint4 four = __ldg(wide + (threadIdx.x & 63));
        const u32 one = __ldcs((const uint2*)wide).y;
        const u64 both = __ldg((const ulonglong2*)wide).y;
        __syncthreads();
        out[threadIdx.x] = 0;
        claim four.x == (threadIdx.x & 63) && four.y + four.z + four.w == 6
        claim one == 1 && both == (3ull << 32 | 2)
        claim sizeof(uint2) == 8 && alignof(uint4) == 16 && alignof(ulonglong2) == 16 && alignof(double2) == 16
        claim make_ulonglong2(1, 2).y == 2 && make_double2(0.5, 1).x == 0.5 && make_uint2(4, 5).x == 4",
    );
}

#[test]
fn atomics() {
    check(
        "__shared__ u32 words[9];
        __shared__ int ints[4];
        __shared__ u64 longs[4];
        __shared__ double sum;
        __shared__ float small;
        if (threadIdx.x == 0) {
            for (u32 i = 0; i < 9; i++) words[i] = 0;
            for (u32 i = 0; i < 4; i++) ints[i] = longs[i] = 0;
            words[2] = 300; words[3] = ~0u; sum = 0; small = 0;
        }
        __syncthreads();
        atomicAdd(&words[0], 1);
        atomicMax(&words[1], threadIdx.x);
        atomicMin(&words[2], threadIdx.x + 10);
        atomicAnd(&words[3], ~(1u << (threadIdx.x & 7)));
        atomicOr(&words[4], 1u << (threadIdx.x & 31));
        atomicXor(&words[5], threadIdx.x);
        atomicInc(&words[6], 99u);
        atomicSub(&words[7], 1u);
        atomicDec(&words[8], 10u);
        atomicAdd(&ints[0], -1);
        atomicMin(&ints[1], -(int)threadIdx.x);
        atomicExch(&ints[2], 5);
        atomicCAS(&ints[3], 0, 7);
        atomicAdd(&longs[0], (u64)threadIdx.x);
        atomicAdd(&longs[1], threadIdx.x);
        atomicMax((long long*)&longs[2], -5ll);
        atomicCAS(&longs[3], 0ull, 1ull << 40);
        atomicAdd(&sum, 0.5);
        atomicAdd(&small, 0.25f);
        __threadfence();
        __syncthreads();
        claim words[0] == 256 && words[1] == 255 && words[2] == 10 && words[3] == ~255u
        claim words[4] == ~0u && words[5] == 0 && words[6] == 56 && words[7] == 0u - 256
        claim words[8] == 8
        claim ints[0] == -256 && ints[1] == -255 && ints[2] == 5 && ints[3] == 7
        claim longs[0] == 32640 && longs[1] == 32640 && longs[2] == 0 && longs[3] == 1ull << 40
        claim sum == 128 && small == 64",
    );
}

#[test]
fn one_thread_spins_for_another() {
    check(
        "__shared__ u32 flag;
        if (threadIdx.x == 0) flag = 0;
        __syncthreads();
        if (threadIdx.x == 200) atomicExch(&flag, 1u);
        while (atomicAdd(&flag, 0u) == 0) __nanosleep(100);
        claim flag == 1",
    );
}
