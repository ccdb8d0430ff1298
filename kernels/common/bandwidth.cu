// How fast memory can be read: every 16 bytes once, by neighbouring threads, added up.
//
// Arguments: address of the data, its number of 16-byte pieces, address of the sum of its 64-bit
// words (modulo 2^64), to which is added.

typedef unsigned long long u64;

struct Args {
    u64 word[3];
};

extern "C" __global__ void __launch_bounds__(512) read_all(const Args args) {
    const ulonglong2* pieces = (const ulonglong2*)args.word[0];
    const u64 count = args.word[1];
    u64* total = (u64*)args.word[2];

    const u64 stride = (u64)gridDim.x * blockDim.x;
    u64 sum = 0;
#pragma unroll 4
    for (u64 i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        // Read once: not worth keeping in a cache.
        const ulonglong2 piece = __ldcs(pieces + i);
        sum += piece.x + piece.y;
    }
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        sum += __shfl_down_sync(0xFFFFFFFFu, sum, lanes);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(total, sum);
    }
}
