// Predefinitions of a CUDA compiler, on top of cuda_cpu.hpp. Add an intrinsic here when a kernel needs it, with the
// types that CUDA has it for: code that compiles here should compile there.
//
// Left out on purpose: __activemask (its answer depends on the schedule).

// ---- Qualifiers and built-in variables -----------------------------------------------------------

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __shared__ static thread_local
#define __constant__ static
#define threadIdx (cucpu::current_block->current->thread_idx)
#define blockIdx (cucpu::current_block->block_idx)
#define blockDim (cucpu::current_block->block_dim)
#define gridDim (cucpu::current_block->grid_dim)
#define warpSize 32

// Dynamic shared memory, 16-byte aligned. For a CUDA compiler the kernels define this macro themselves.
#define DYN_SHARED(T, name) T* name = (T*)cucpu::current_block->dynamic_shared

[[noreturn]] inline void __trap() { cucpu::fail("__trap"); }

inline void __builtin_assume(bool condition) {
    if (!condition) cucpu::fail("__builtin_assume: it is not so");
}

// ---- Vector types ---------------------------------------------------------------------------------

#define CUCPU_VECTORS(T, name, align2, align4)                                     \
    struct __align__(align2) name##2 { T x, y; };                                  \
    struct __align__(align4) name##4 { T x, y, z, w; };                            \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; }                     \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }

CUCPU_VECTORS(signed char, char, 2, 4)
CUCPU_VECTORS(unsigned char, uchar, 2, 4)
CUCPU_VECTORS(short, short, 4, 8)
CUCPU_VECTORS(unsigned short, ushort, 4, 8)
CUCPU_VECTORS(int, int, 8, 16)
CUCPU_VECTORS(unsigned, uint, 8, 16)
CUCPU_VECTORS(long long, longlong, 16, 16)
CUCPU_VECTORS(unsigned long long, ulonglong, 16, 16)
CUCPU_VECTORS(float, float, 8, 16)
CUCPU_VECTORS(double, double, 16, 16)

// ---- Barriers and fences --------------------------------------------------------------------------

inline void __syncthreads() { cucpu::barrier(false); }
inline int __syncthreads_count(int predicate) { return cucpu::barrier(predicate).with_true; }
inline int __syncthreads_or(int predicate) { return cucpu::barrier(predicate).with_true != 0; }
inline int __syncthreads_and(int predicate) {
    cucpu::Passed passed = cucpu::barrier(predicate);
    return passed.with_true == passed.threads;
}

inline void __syncwarp(unsigned mask = ~0u) {
    uint32_t participants;
    cucpu::collective(cucpu::WarpOp::syncwarp, mask, 0, &participants);
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}

// A spinning thread must call this: it lets other threads run, and counts as progress.
inline void __nanosleep(unsigned) {
    cucpu::current_block->progress++;
    cucpu::switch_to_scheduler();
}

// ---- Warp votes -----------------------------------------------------------------------------------

namespace cucpu {

struct Votes {
    uint32_t lanes;      // lanes that took part
    uint32_t with_true;  // those of them whose predicate was true
};

inline Votes vote(uint32_t mask, bool predicate) {
    Votes votes{};
    const uint64_t* values = collective(WarpOp::vote, mask, predicate, &votes.lanes);
    for (unsigned i = 0; i < kWarpSize; i++) {
        if ((votes.lanes >> i & 1) && values[i]) votes.with_true |= 1u << i;
    }
    return votes;
}

}  // namespace cucpu

inline unsigned __ballot_sync(unsigned mask, int predicate) { return cucpu::vote(mask, predicate).with_true; }
inline int __any_sync(unsigned mask, int predicate) { return cucpu::vote(mask, predicate).with_true != 0; }
inline int __all_sync(unsigned mask, int predicate) {
    cucpu::Votes votes = cucpu::vote(mask, predicate);
    return votes.with_true == votes.lanes;
}

template <class T>
inline unsigned __match_any_sync(unsigned mask, T value) {
    uint32_t participants;
    const uint64_t bits = cucpu::to_bits(value);
    const uint64_t* values = cucpu::collective(cucpu::WarpOp::match, mask, bits, &participants);
    unsigned equal = 0;
    for (unsigned i = 0; i < cucpu::kWarpSize; i++) {
        if ((participants >> i & 1) && values[i] == bits) equal |= 1u << i;
    }
    return equal;
}

template <class T>
inline unsigned __match_all_sync(unsigned mask, T value, int* predicate) {
    uint32_t participants;
    const uint64_t bits = cucpu::to_bits(value);
    const uint64_t* values = cucpu::collective(cucpu::WarpOp::match, mask, bits, &participants);
    *predicate = 1;
    for (unsigned i = 0; i < cucpu::kWarpSize; i++) {
        if ((participants >> i & 1) && values[i] != bits) *predicate = 0;
    }
    return *predicate ? mask : 0;
}

// ---- Warp shuffles --------------------------------------------------------------------------------

namespace cucpu {

// The value of lane `source` of the caller's segment of `width` lanes; the caller's own if that lies outside of the
// segment.
template <class T>
inline T shuffle(WarpOp op, uint32_t mask, T value, int source, int width) {
    if (width < 1 || width > 32 || (width & (width - 1))) fail("__shfl: the width is no power of two up to 32");
    uint32_t participants;
    const uint64_t* values = collective(op, mask, to_bits(value), &participants);
    if (source < 0 || source >= width) return value;
    source += lane() & ~(width - 1);
    if (!(participants >> source & 1)) fail("__shfl: the source lane takes no part");
    return from_bits<T>(values[source]);
}

inline int lane_in_segment(int width) { return (int)(lane() & (width - 1)); }

}  // namespace cucpu

template <class T>
inline T __shfl_sync(unsigned mask, T value, int source, int width = 32) {
    return cucpu::shuffle(cucpu::WarpOp::shfl, mask, value, source & (width - 1), width);
}

template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    int source = delta < 32 ? cucpu::lane_in_segment(width) - (int)delta : -1;
    return cucpu::shuffle(cucpu::WarpOp::shfl_up, mask, value, source, width);
}

template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32) {
    int source = delta < 32 ? cucpu::lane_in_segment(width) + (int)delta : -1;
    return cucpu::shuffle(cucpu::WarpOp::shfl_down, mask, value, source, width);
}

// Unlike its siblings, a lane may read from an earlier segment: only later ones give its own value.
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32) {
    int segment = (int)cucpu::lane() & ~(width - 1);
    int source = ((int)cucpu::lane() ^ lane_mask) & 31;
    if (source >= segment + width) source = (int)cucpu::lane();
    return cucpu::shuffle(cucpu::WarpOp::shfl_xor, mask, value, source, 32);
}

// ---- Warp reductions ------------------------------------------------------------------------------

namespace cucpu {

template <class T, class F>
inline T reduce(uint32_t mask, T value, F combine) {
    uint32_t participants;
    const uint64_t* values = collective(WarpOp::reduce, mask, to_bits(value), &participants);
    unsigned first = __builtin_ctz(participants);
    T result = from_bits<T>(values[first]);
    for (unsigned i = first + 1; i < kWarpSize; i++) {
        if (participants >> i & 1) result = combine(result, from_bits<T>(values[i]));
    }
    return result;
}

}  // namespace cucpu

#define CUCPU_REDUCE(T, name, expression) \
    inline T __reduce_##name##_sync(unsigned mask, T value) { \
        return cucpu::reduce(mask, value, [](T a, T b) -> T { return expression; }); \
    }

CUCPU_REDUCE(unsigned, add, a + b)
CUCPU_REDUCE(unsigned, min, a < b ? a : b)
CUCPU_REDUCE(unsigned, max, a > b ? a : b)
CUCPU_REDUCE(unsigned, and, a & b)
CUCPU_REDUCE(unsigned, or, a | b)
CUCPU_REDUCE(unsigned, xor, a ^ b)
CUCPU_REDUCE(int, add, (int)((unsigned)a + (unsigned)b))
CUCPU_REDUCE(int, min, a < b ? a : b)
CUCPU_REDUCE(int, max, a > b ? a : b)

// ---- Bit operations -------------------------------------------------------------------------------

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }

inline unsigned long long __brevll(unsigned long long x) {
    unsigned long long result = 0;
    for (int i = 0; i < 64; i++) result |= (x >> i & 1) << (63 - i);
    return result;
}
inline unsigned __brev(unsigned x) { return (unsigned)(__brevll(x) >> 32); }

// The high half of (high:low) shifted left, the low half of it shifted right: by shift modulo 32, or,
// for _lc and _rc, by at most 32.
inline unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    uint64_t pair = (uint64_t)high << 32 | low;
    return shift < 32 ? (unsigned)(pair << shift >> 32) : low;
}
inline unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    uint64_t pair = (uint64_t)high << 32 | low;
    return (unsigned)(pair >> (shift < 32 ? shift : 32));
}
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return __funnelshift_lc(low, high, shift & 31);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return __funnelshift_rc(low, high, shift & 31);
}

// Each selector nibble picks one of the 8 bytes of (b, a); its top bit replicates that byte's sign.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    uint64_t bytes = (uint64_t)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned nibble = selector >> (4 * i) & 0xf;
        unsigned byte = bytes >> ((nibble & 7) * 8) & 0xff;
        if (nibble & 8) byte = byte & 0x80 ? 0xff : 0;
        result |= byte << (8 * i);
    }
    return result;
}

// ---- Arithmetic -----------------------------------------------------------------------------------

inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)((uint64_t)a * b >> 32); }
inline int __mulhi(int a, int b) { return (int)((int64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline long long __mul64hi(long long a, long long b) { return (long long)((__int128)a * b >> 64); }

// Numbers of one type, or mixed ones as by the usual conversions. For a number and a NaN: the number.
template <class A, class B>
inline std::common_type_t<A, B> min(A a, B b) {
    using T = std::common_type_t<A, B>;
    T x = (T)a, y = (T)b;
    if constexpr (std::is_floating_point_v<T>) return x != x || y < x ? y : x;
    return y < x ? y : x;
}
template <class A, class B>
inline std::common_type_t<A, B> max(A a, B b) {
    using T = std::common_type_t<A, B>;
    T x = (T)a, y = (T)b;
    if constexpr (std::is_floating_point_v<T>) return x != x || y > x ? y : x;
    return y > x ? y : x;
}

#define CUCPU_MATH_1(name)                                            \
    inline double name(double x) { return __builtin_##name(x); }      \
    inline float name(float x) { return __builtin_##name##f(x); }     \
    inline float name##f(float x) { return __builtin_##name##f(x); }
#define CUCPU_MATH_2(name)                                                        \
    inline double name(double x, double y) { return __builtin_##name(x, y); }     \
    inline float name(float x, float y) { return __builtin_##name##f(x, y); }     \
    inline float name##f(float x, float y) { return __builtin_##name##f(x, y); }
CUCPU_MATH_1(fabs)
CUCPU_MATH_1(floor)
CUCPU_MATH_1(ceil)
CUCPU_MATH_1(trunc)
CUCPU_MATH_1(rint)
CUCPU_MATH_1(nearbyint)
CUCPU_MATH_1(round)
CUCPU_MATH_1(sqrt)
CUCPU_MATH_2(fmin)
CUCPU_MATH_2(fmax)
CUCPU_MATH_2(fmod)
CUCPU_MATH_2(copysign)
inline double fma(double x, double y, double z) { return __builtin_fma(x, y, z); }
inline float fma(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline float fmaf(float x, float y, float z) { return __builtin_fmaf(x, y, z); }
inline bool isnan(double x) { return __builtin_isnan(x); }
inline bool isnan(float x) { return __builtin_isnan(x); }
inline bool isinf(double x) { return __builtin_isinf(x); }
inline bool isinf(float x) { return __builtin_isinf(x); }
inline bool isfinite(double x) { return __builtin_isfinite(x); }
inline bool isfinite(float x) { return __builtin_isfinite(x); }
inline bool signbit(double x) { return __builtin_signbit(x); }
inline bool signbit(float x) { return __builtin_signbitf(x); }

// Rounded to nearest, never contracted to a fused multiply-add (-ffp-contract=off).
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrt(a); }
inline float __fmaf_rn(float a, float b, float c) { return fma(a, b, c); }

// ---- Conversions ----------------------------------------------------------------------------------

inline int __float_as_int(float x) { return cucpu::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return cucpu::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return cucpu::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return cucpu::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return cucpu::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return cucpu::bit_cast<double>(x); }
inline int __double2hiint(double x) { return (int)(cucpu::bit_cast<uint64_t>(x) >> 32); }
inline int __double2loint(double x) { return (int)cucpu::bit_cast<uint64_t>(x); }
inline double __hiloint2double(int high, int low) {
    return cucpu::bit_cast<double>((uint64_t)(unsigned)high << 32 | (unsigned)low);
}

namespace cucpu {

// Converts as the GPU does: numbers out of range become the nearest in range; NaN the highest bit alone.
template <class T>
inline T to_integer(double x) {
    constexpr int bits = 8 * sizeof(T);
    constexpr bool is_signed = std::is_signed_v<T>;
    constexpr T top_bit = (T)(1ull << (bits - 1));
    const double limit = is_signed ? (double)(1ull << (bits - 1)) : 2.0 * (double)(1ull << (bits - 1));
    if (x != x) return top_bit;
    if (x >= limit) return is_signed ? (T)~top_bit : (T)~(T)0;
    if (x <= (is_signed ? -limit : 0.0)) return is_signed ? top_bit : 0;
    return (T)x;
}

}  // namespace cucpu

#define CUCPU_FROM_DOUBLE(T, name)                                                                \
    inline T __double2##name##_rn(double x) { return cucpu::to_integer<T>(__builtin_rint(x)); }   \
    inline T __double2##name##_rz(double x) { return cucpu::to_integer<T>(__builtin_trunc(x)); }  \
    inline T __double2##name##_rd(double x) { return cucpu::to_integer<T>(__builtin_floor(x)); }  \
    inline T __double2##name##_ru(double x) { return cucpu::to_integer<T>(__builtin_ceil(x)); }
CUCPU_FROM_DOUBLE(int, int)
CUCPU_FROM_DOUBLE(unsigned, uint)
CUCPU_FROM_DOUBLE(long long, ll)
CUCPU_FROM_DOUBLE(unsigned long long, ull)

inline double __int2double_rn(int x) { return x; }
inline double __uint2double_rn(unsigned x) { return x; }
inline double __ll2double_rn(long long x) { return (double)x; }
inline double __ull2double_rn(unsigned long long x) { return (double)x; }
inline float __double2float_rn(double x) { return (float)x; }
inline float __int2float_rn(int x) { return (float)x; }
inline float __uint2float_rn(unsigned x) { return (float)x; }
inline float __ll2float_rn(long long x) { return (float)x; }
inline float __ull2float_rn(unsigned long long x) { return (float)x; }

// ---- Loads and stores with a caching hint ---------------------------------------------------------

// They are of global memory: a GPU does not find shared memory by such a load.
template <class T>
inline T cucpu_load(const T* address) {
    const char* at = (const char*)address;
    const char* shared = cucpu::current_block->dynamic_shared;
    if (at >= shared && at < shared + cucpu::current_block->dynamic_shared_bytes)
        cucpu::fail("a load of global memory from shared memory");
    return *address;
}

#define CUCPU_LOAD(name)                \
    template <class T>                  \
    inline T name(const T* address) {   \
        return cucpu_load(address);     \
    }
CUCPU_LOAD(__ldg)
CUCPU_LOAD(__ldca)
CUCPU_LOAD(__ldcg)
CUCPU_LOAD(__ldcs)
CUCPU_LOAD(__ldcv)
CUCPU_LOAD(__ldlu)

#define CUCPU_STORE(name)                                               \
    template <class T>                                                  \
    inline void name(T* address, std::enable_if_t<true, T> value) {     \
        *address = value;                                               \
    }
CUCPU_STORE(__stcg)
CUCPU_STORE(__stcs)
CUCPU_STORE(__stwb)
CUCPU_STORE(__stwt)

// ---- Atomics --------------------------------------------------------------------------------------

namespace cucpu {

// Replaces *address by change(*address) and returns the old value. Threads of a launch never run at
// the same time; those of launches on several host threads may.
template <class T, class F>
inline T update(T* address, F change) {
    may_pause();
    T old = *address;
    T changed = change(old);
    while (!__atomic_compare_exchange(address, &old, &changed, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
        changed = change(old);
    }
    return old;
}

}  // namespace cucpu

#define CUCPU_ATOMIC(T, name, expression)                                               \
    inline T atomic##name(T* address, T value) {                                        \
        return cucpu::update(address, [value](T old) -> T { return expression; });      \
    }

#define CUCPU_ATOMIC_CAS(T)                                                                                 \
    inline T atomicCAS(T* address, T compare, T value) {                                                    \
        return cucpu::update(address, [compare, value](T old) -> T { return old == compare ? value : old; });\
    }

#define CUCPU_ATOMICS_OF_INTEGER(T)               \
    CUCPU_ATOMIC(T, Exch, value)                  \
    CUCPU_ATOMIC(T, Min, value < old ? value : old) \
    CUCPU_ATOMIC(T, Max, value > old ? value : old) \
    CUCPU_ATOMIC(T, And, old & value)             \
    CUCPU_ATOMIC(T, Or, old | value)              \
    CUCPU_ATOMIC(T, Xor, old ^ value)             \
    CUCPU_ATOMIC_CAS(T)
CUCPU_ATOMICS_OF_INTEGER(int)
CUCPU_ATOMICS_OF_INTEGER(unsigned)
CUCPU_ATOMICS_OF_INTEGER(unsigned long long)

CUCPU_ATOMIC(int, Add, (int)((unsigned)old + (unsigned)value))
CUCPU_ATOMIC(unsigned, Add, old + value)
CUCPU_ATOMIC(unsigned long long, Add, old + value)
CUCPU_ATOMIC(float, Add, old + value)
CUCPU_ATOMIC(double, Add, old + value)
CUCPU_ATOMIC(int, Sub, (int)((unsigned)old - (unsigned)value))
CUCPU_ATOMIC(unsigned, Sub, old - value)
CUCPU_ATOMIC(unsigned, Inc, old >= value ? 0 : old + 1)
CUCPU_ATOMIC(unsigned, Dec, old == 0 || old > value ? value : old - 1)
CUCPU_ATOMIC(float, Exch, value)
CUCPU_ATOMIC(long long, Min, value < old ? value : old)
CUCPU_ATOMIC(long long, Max, value > old ? value : old)
CUCPU_ATOMIC(long long, And, old & value)
CUCPU_ATOMIC(long long, Or, old | value)
CUCPU_ATOMIC(long long, Xor, old ^ value)
CUCPU_ATOMIC_CAS(unsigned short)
