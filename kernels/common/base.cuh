// Types, and what the lanes of a warp do together. A warp decodes a vector of 1024 rows: lane l holds
// the rows r * 32 + l, and a selection is one 32-bit word a lane, with bit r for row r * 32 + l.

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long long i64;
typedef __int128 i128;
typedef unsigned __int128 u128;

#define DEVICE __device__ __forceinline__
#ifndef CUCPU
#define DYN_SHARED(T, name)                                             \
    extern __shared__ __align__(16) unsigned char name##_bytes[];       \
    T* name = (T*)name##_bytes
#endif

// Left alone, the compiler spills a little rather than lose a resident block: see `nvrtc.rs`.
#ifdef MOST_REGISTERS
#define BOUNDS(threads) __launch_bounds__(threads, 1)
#define SPARSE_BOUNDS(threads) __launch_bounds__(threads, 3)
#else
#define BOUNDS(threads) __launch_bounds__(threads)
// Kernels that look up few rows wait for memory most of the time: many warps are worth more than registers.
#define SPARSE_BOUNDS(threads) __launch_bounds__(threads, 4)
#endif

const u32 ALL = ~0u;

DEVICE u32 lane_id() { return threadIdx.x & 31; }

// An address in global memory.
template <class T> DEVICE T* global(u64 address) {
#ifndef CUCPU
    __builtin_assume(__isGlobal((const void*)address));
#endif
    return (T*)address;
}

// Has memory brought to the cache that all multiprocessors share.
DEVICE void fetch(const void* p) {
#ifndef CUCPU
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#endif
}

// Data that one query reads once: leave the caches to what is read again.
DEVICE u32 stream(const u32* p) { return __ldcs(p); }

// Copies 16 bytes to shared memory while the thread goes on; without registers in between, all copies of a warp are
// waited for together.
DEVICE void copy_async(uint4* to, const uint4* from) {
#ifdef CUCPU
    *to = *from;
#else
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from));
#endif
}

DEVICE void wait_for_copies() {
#ifndef CUCPU
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// The lanes' words as a 32 x 32 matrix of bits, transposed: a selection from "bit r of lane l is row
// r * 32 + l" to "bit r of lane l is row l * 32 + r", or back. Halves, quarters and so on of the words change
// places with those of the lane at that distance.
DEVICE u32 transpose(u32 x) {
    const u32 lane = lane_id();
    x = __byte_perm(x, __shfl_xor_sync(ALL, x, 16), lane & 16 ? 0x3276 : 0x5410);
    x = __byte_perm(x, __shfl_xor_sync(ALL, x, 8), lane & 8 ? 0x3715 : 0x6240);
#define STEP(distance, low)                                                                       \
    {                                                                                             \
        const u32 other = __shfl_xor_sync(ALL, x, distance);                                      \
        const u32 kept = lane & distance ? ~low : low;                                            \
        const u32 turned = __funnelshift_l(other, other, lane & distance ? 32 - distance : distance); \
        x = (x & kept) | (turned & ~kept);                                                        \
    }
    STEP(4, 0x0f0f0f0fu)
    STEP(2, 0x33333333u)
    STEP(1, 0x55555555u)
#undef STEP
    return x;
}

// Bits that lie in shared memory cannot be loaded the same way.
template <bool SHARED> DEVICE u32 word_of_bits(const u32* bits, u32 word) {
    if constexpr (SHARED) return bits[word];
    else return __ldg(bits + word);
}

// The sum of the values of the lanes before this one.
template <class T> DEVICE T sum_before(T value) {
    const u32 lane = lane_id();
    T sum = value;
#pragma unroll
    for (u32 distance = 1; distance < 32; distance *= 2) {
        const T other = __shfl_up_sync(ALL, sum, distance);
        if (lane >= distance) sum += other;
    }
    return sum - value;
}

// A selected row: that of a lane.
struct Picked {
    u32 lane, row;
};

// The row at `index` of a selection, counted lane by lane: `before` of them are in the lanes before this one.
// Each lane asks for another; behind the last one it gets any.
DEVICE Picked picked(u32 selection, u32 before, u32 index) {
    u32 lane = 0;
#pragma unroll
    for (u32 step = 16; step; step /= 2) {
        if (__shfl_sync(ALL, before, lane + step) <= index) lane += step;
    }
    u32 left = __shfl_sync(ALL, selection, lane);
    for (u32 skip = index - __shfl_sync(ALL, before, lane); skip && left; skip--) left &= left - 1;
    return Picked{lane, left ? __ffs((int)left) - 1 : 0u};
}

// The rows of a selection that exist, in a vector of `rows` rows (1024 or fewer).
DEVICE u32 existing(u32 rows) {
    const u32 lane = lane_id();
    const u32 count = rows > lane ? (rows - lane + 31) / 32 : 0;
    return count >= 32 ? ALL : (1u << count) - 1;
}

// Floats by their total order, as integers of the same width.
DEVICE i64 key_of(double x) {
    const i64 bits = __double_as_longlong(x);
    return bits ^ (i64)((u64)(bits >> 63) >> 1);
}
DEVICE i32 key_of(float x) {
    const i32 bits = __float_as_int(x);
    return bits ^ (i32)((u32)(bits >> 31) >> 1);
}
DEVICE double double_of(i64 key) { return __longlong_as_double(key ^ (i64)((u64)(key >> 63) >> 1)); }
DEVICE float float_of(i32 key) { return __int_as_float(key ^ (i32)((u32)(key >> 31) >> 1)); }
