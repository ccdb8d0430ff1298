// Integers in device memory as GPU-FOR, GPU-DFOR and GPU-RFOR have them (Shanbhag et al., "Tile-based Lightweight
// Integer Compression in GPU", SIGMOD 2022), beside simpler schemes and decoding in separate passes: the figures of
// that evaluation that need no SQL. `tiles.py` compiles and runs this, and makes tables and pictures of what it prints.
//
//   nvcc -O3 -std=c++17 -arch=sm_90 -o tiles benches/papers/tiles.cu
//   ./tiles [--values 250e6] [--columns DIRECTORY] [PART]...
//
// Parts: `blocks` (Figure 5, with twice the values), `widths` (7), `sorted`, `normal` and `zipf` (8), `coprocessor`
// (12), and `columns`: files NAME.u32 in DIRECTORY, little-endian integers of 32 bits (9 and 10). Without one: all but
// the last. Prints a line of JSON for each case. Milliseconds are medians of ROUNDS, after one that does not count; the
// device's caches are filled with other data before each. All decoded values are compared with those encoded, and the
// first and last tiles also decoded by the host: the program fails if one differs.
//
// Words have 32 bits, and fields start at the lowest. Values are padded to a multiple of 512 with the last one.
//
//   GPU-FOR   header of 4 words: 128, 4, number of values, first value. Then blocks of 128 values:
//             [minimum] [widths of 4 miniblocks, a byte each] [4 miniblocks of 32 values, packed one behind the other]
//             Separately, a word for each block has its start, and one the end of the last.
//   GPU-DFOR  the same of differences, minima signed. Before the first of each D blocks (a tile) is a word with the
//             tile's first value, whose difference is 0. Starts are those of blocks, behind that word.
//   GPU-RFOR  two such columns, values and lengths of runs, with a block for each 512 values:
//             [minimum] [width, in all 4 bytes] [number of runs] [runs, packed; at least a word]
//             Runs end with their block.
//
// Widths are bit lengths, one for each miniblock. The published encoder takes the largest of a block for all four, and
// the published kernels fail at width 32, for want of shared memory.

#include <cuda_runtime.h>

#include <cub/cub.cuh>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#if __has_include(<nvcomp/cascaded.hpp>)
#include <nvcomp/bitcomp.hpp>
#include <nvcomp/cascaded.hpp>
#include <nvcomp/version.h>
#if NVCOMP_VER_MAJOR >= 6
#define HAS_NVCOMP 1
#endif
#endif

#define DEVICE __device__ __forceinline__

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;

constexpr u32 ROUNDS = 5;
constexpr u32 ALL = ~0u;
constexpr u32 THREADS = 128;             // of a block that decodes a tile
constexpr u32 BLOCK = 128, MINIBLOCKS = 4;
constexpr u32 TILE_BLOCKS = 4, TILE = BLOCK * TILE_BLOCKS;  // as the paper chooses
constexpr u32 HEADER_WORDS = 4;
constexpr u32 TOTALS = 1024;             // that threads add to, so that few wait for each other
constexpr u32 SLACK_WORDS = 64;          // that may be read behind a buffer
constexpr u64 FLUSH_BYTES = 256 << 20;

// ---- Consumers of values --------------------------------------------------------------------------------------------

struct Write {
    static constexpr bool NEEDS_ORDER = true;
    u32* to;
    DEVICE void put(u32 row, u32 value) { to[row] = value; }
    DEVICE void put_run(u32, u32) {}
    DEVICE void finish() {}
};

struct Sum {
    static constexpr bool NEEDS_ORDER = false;
    u64* totals;
    u64 own = 0;
    DEVICE void put(u32, u32 value) { own += value; }
    DEVICE void put_run(u32 value, u32 length) { own += (u64)value * length; }
    DEVICE void finish() {
        for (u32 step = 16; step; step /= 2) own += __shfl_down_sync(ALL, own, step);
        const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
        if (threadIdx.x % 32 == 0) atomicAdd(totals + warp % TOTALS, own);
    }
};

// ---- Packed words ---------------------------------------------------------------------------------------------------

// A column, of values, differences, or what belongs to runs.
struct Column {
    const u32 *words, *starts;
    u32 blocks;
};

DEVICE u32 width_of(u32 bits) { return 32 - (u32)__clz((int)bits); }
DEVICE u32 mask_of(u32 width) { return __funnelshift_rc(ALL, 0, 32 - width); }

// May read a word behind the value.
DEVICE u32 unpack(const u32* words, u32 width, u32 k) {
    const u32 bit = k * width;
    const u32* const at = words + bit / 32;
    return __funnelshift_r(at[0], at[1], bit) & mask_of(width);
}

// Words must be 0, and several threads may pack into one.
DEVICE void pack(u32* words, u32 width, u32 k, u32 value) {
    const u32 bit = k * width, high = __funnelshift_l(value, 0, bit);
    atomicOr(words + bit / 32, value << bit % 32);
    if (bit % 32 + width > 32) atomicOr(words + bit / 32 + 1, high);
}

// ---- Scans ----------------------------------------------------------------------------------------------------------

DEVICE u32 warp_inclusive(u32 value) {
    for (u32 step = 1; step < 32; step *= 2) {
        const u32 other = __shfl_up_sync(ALL, value, step);
        if (threadIdx.x % 32 >= step) value += other;
    }
    return value;
}

// The result is equal in all lanes.
template <class F>
DEVICE u32 warp_reduce(u32 value, F combine) {
    for (u32 step = 16; step; step /= 2) value = combine(value, __shfl_xor_sync(ALL, value, (int)step));
    return value;
}

template <u32 ITEMS>
constexpr u32 SCAN_WORDS = THREADS * ITEMS * 33 / 32 + THREADS / 32;

// Inclusive sums over a tile of which a thread has every 128th value, by all threads of a block. They take turns in
// shared memory, so that each adds up neighbours. The caller synchronizes before it uses that memory otherwise.
template <u32 ITEMS>
DEVICE void block_inclusive(u32 (&items)[ITEMS], u32* shared) {
    const auto place = [](u32 k) { return k + k / 32; };
    u32* const warps = shared + THREADS * ITEMS * 33 / 32;
    const u32 warp = threadIdx.x / 32;
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) shared[place(i * THREADS + threadIdx.x)] = items[i];
    __syncthreads();
    u32 sum = 0;
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) items[i] = sum += shared[place(threadIdx.x * ITEMS + i)];
    const u32 through = warp_inclusive(sum);
    if (threadIdx.x % 32 == 31) warps[warp] = through;
    __syncthreads();
    u32 before = through - sum;
#pragma unroll
    for (u32 k = 0; k < THREADS / 32 - 1; k++) before += k < warp ? warps[k] : 0;
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) shared[place(threadIdx.x * ITEMS + i)] = items[i] + before;
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < ITEMS; i++) items[i] = shared[place(i * THREADS + threadIdx.x)];
}

// ---- Tiles, as published: a thread block each -----------------------------------------------------------------------

DEVICE u32* dynamic_shared() {
    extern __shared__ __align__(16) u32 shared_words[];
    return shared_words;
}

// D blocks in shared memory.
template <u32 D>
struct Tile {
    u32 starts[D + 1];
    u32 places[D * MINIBLOCKS];  // of miniblocks, with their widths in the highest byte

    // Called by all threads. `head` words come before the first block.
    DEVICE void load(const Column& column, u32 head, u32* words) {
        const u32 t = threadIdx.x, first = blockIdx.x * D, blocks = min(D, column.blocks - first);
        if (t <= D) starts[t] = __ldg(column.starts + first + min(t, blocks));
        __syncthreads();
        const u32 from = starts[0] - head, count = starts[D] - from;
        for (u32 k = t; k < count; k += THREADS) words[k] = __ldg(column.words + from + k);
        __syncthreads();
        if (t < D * MINIBLOCKS) {
            const u32 block = t / MINIBLOCKS, shift = t % MINIBLOCKS * 8, at = starts[block] - from;
            const u32 widths = block < blocks ? words[at + 1] : 0, before = widths & ((1u << shift) - 1);
            places[t] = block < blocks ? (at + 2 + (before * 0x01010101u >> 24)) | (widths >> shift & 255) << 24 : 0;
        }
        __syncthreads();
    }

    // Value i * 128 + threadIdx.x, without the minimum.
    DEVICE u32 packed(const u32* words, u32 i) const {
        const u32 place = places[i * MINIBLOCKS + threadIdx.x / 32];
        return unpack(words + (place & 0xffffff), place >> 24, threadIdx.x % 32);
    }
    DEVICE u32 minimum(const u32* words, u32 head, u32 i) const { return words[starts[i] - starts[0] + head]; }
};

// Values of this block's tile.
template <u32 D>
DEVICE void load_for(const Column& column, u32 (&items)[D], u32* words) {
    __shared__ Tile<D> tile;
    tile.load(column, 0, words);
#pragma unroll
    for (u32 i = 0; i < D; i++) items[i] = tile.packed(words, i) + tile.minimum(words, 0, i);
}

template <u32 D>
DEVICE void load_dfor(const Column& column, u32 (&items)[D], u32* words) {
    __shared__ Tile<D> tile;
    tile.load(column, 1, words);
#pragma unroll
    for (u32 i = 0; i < D; i++) items[i] = tile.packed(words, i) + tile.minimum(words, 1, i);
    if (threadIdx.x == 0) items[0] = words[0];
    __syncthreads();
    block_inclusive(items, words);
}

// Runs of a block. Those behind the last have length 0.
DEVICE u32 load_runs(const Column& column, u32 (&items)[TILE_BLOCKS], u32* words) {
    const u32 from = __ldg(column.starts + blockIdx.x), count = __ldg(column.starts + blockIdx.x + 1) - from;
    for (u32 k = threadIdx.x; k < count; k += THREADS) words[k] = __ldg(column.words + from + k);
    __syncthreads();
    const u32 width = words[1] & 255, runs = words[2];
#pragma unroll
    for (u32 i = 0; i < TILE_BLOCKS; i++) {
        const u32 k = i * THREADS + threadIdx.x;
        items[i] = k < runs ? unpack(words + 3, width, k) + words[0] : 0;
    }
    return runs;
}

// Memory for `load_rfor`: packed values, packed lengths, values, and flags, which are summed in it.
constexpr u32 rfor_words(u32 value_words, u32 length_words) {
    return value_words + length_words + TILE + std::max(TILE, SCAN_WORDS<TILE_BLOCKS>);
}

DEVICE void load_rfor(const Column& values, const Column& lengths, u32 value_words, u32 length_words,
                      u32 (&items)[TILE_BLOCKS], u32* shared) {
    u32 *const own_values = shared + value_words + length_words, *const flags = own_values + TILE;
    u32 ends[TILE_BLOCKS];
    const u32 runs = load_runs(values, items, shared);
    load_runs(lengths, ends, shared + value_words);
#pragma unroll
    for (u32 i = 0; i < TILE_BLOCKS; i++) own_values[i * THREADS + threadIdx.x] = items[i];
    block_inclusive(ends, flags);
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < TILE_BLOCKS; i++) flags[i * THREADS + threadIdx.x] = 0;
    __syncthreads();
    // the next run starts where a run ends
#pragma unroll
    for (u32 i = 0; i < TILE_BLOCKS; i++)
        if (i * THREADS + threadIdx.x + 1 < runs) flags[ends[i]] = 1;
    __syncthreads();
#pragma unroll
    for (u32 i = 0; i < TILE_BLOCKS; i++) items[i] = flags[i * THREADS + threadIdx.x];
    __syncthreads();
    block_inclusive(items, flags);
#pragma unroll
    for (u32 i = 0; i < TILE_BLOCKS; i++) items[i] = own_values[items[i]];
}

template <u32 D, class Sink>
DEVICE void put_tile(const u32 (&items)[D], u32 blocks, Sink& sink) {
#pragma unroll
    for (u32 i = 0; i < D; i++)
        if (i < blocks) sink.put((blockIdx.x * D + i) * BLOCK + threadIdx.x, items[i]);
    sink.finish();
}

template <u32 D>
DEVICE u32 blocks_of_tile(u32 blocks) {
    return D <= TILE_BLOCKS ? D : min(D, blocks - blockIdx.x * D);
}

template <u32 D, class Sink>
__global__ void __launch_bounds__(THREADS) tiles_for(Column column, Sink sink) {
    u32 items[D];
    load_for(column, items, dynamic_shared());
    put_tile(items, blocks_of_tile<D>(column.blocks), sink);
}

template <u32 D, class Sink>
__global__ void __launch_bounds__(THREADS) tiles_dfor(Column column, Sink sink) {
    u32 items[D];
    load_dfor(column, items, dynamic_shared());
    put_tile(items, blocks_of_tile<D>(column.blocks), sink);
}

template <class Sink>
__global__ void __launch_bounds__(THREADS)
    tiles_rfor(Column values, Column lengths, u32 value_words, u32 length_words, Sink sink) {
    u32 items[TILE_BLOCKS];
    load_rfor(values, lengths, value_words, length_words, items, dynamic_shared());
    put_tile(items, TILE_BLOCKS, sink);
}

// ---- Vectors, as Vectile has them: a warp each ----------------------------------------------------------------------

constexpr u32 VECTOR_BLOCKS = 8;

// Copies words to shared memory by 16 bytes; returns where the first is. A warp calls this.
DEVICE const u32* copy_words(const u32* words, u32 from, u32 to, u32* own) {
    const u32 lane = threadIdx.x % 32, aligned = from & ~3u, count = (to - aligned + 3) / 4;
    __syncwarp();
    for (u32 k = lane; k < count; k += 32) ((uint4*)own)[k] = __ldg((const uint4*)(words + aligned) + k);
    __syncwarp();
    return own + (from - aligned);
}

// Passes rows of 32 values to `put`, one value per lane; returns the end of the block. If all widths are equal, so is a
// lane's position in a row.
template <class Put>
DEVICE const u32* unpack_block(const u32* in, u32 lane, const Put& put) {
    const u32 minimum = in[0], widths = in[1], first = widths & 255;
    in += 2;
    if (widths == first * 0x01010101u) {
        const u32 bit = lane * first, mask = mask_of(first);
        const u32* at = in + bit / 32;
#pragma unroll
        for (u32 m = 0; m < MINIBLOCKS; m++, at += first)
            put(m * 32, (__funnelshift_r(at[0], at[1], bit) & mask) + minimum);
        return in + MINIBLOCKS * first;
    }
#pragma unroll
    for (u32 m = 0; m < MINIBLOCKS; m++) {
        const u32 width = widths >> m * 8 & 255;
        put(m * 32, unpack(in, width, lane) + minimum);
        in += width;
    }
    return in;
}

template <class Sink>
__global__ void vectors_for(Column column, u32 slot_words, Sink sink) {
    const u32 lane = threadIdx.x % 32, vectors = (column.blocks + VECTOR_BLOCKS - 1) / VECTOR_BLOCKS;
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    u32* const own = dynamic_shared() + threadIdx.x / 32 * slot_words;
    for (u32 vector = warp; vector < vectors; vector += warps) {
        const u32 first = vector * VECTOR_BLOCKS, end = min(first + VECTOR_BLOCKS, column.blocks);
        const u32* in = copy_words(column.words, __ldg(column.starts + first), __ldg(column.starts + end), own);
        for (u32 block = first; block < end; block++)
            in = unpack_block(in, lane, [&](u32 row, u32 value) { sink.put(block * BLOCK + row + lane, value); });
    }
    sink.finish();
}

constexpr u32 LANE_VALUES = TILE / 32, TURNED_WORDS = TILE + 32;

// Rows are turned in shared memory, so that each lane adds up 16 neighbours.
template <class Sink>
__global__ void vectors_dfor(Column column, u32 slot_words, Sink sink) {
    const u32 lane = threadIdx.x % 32, tiles = column.blocks / TILE_BLOCKS;
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    const auto place = [](u32 k) { return k + k / LANE_VALUES; };
    u32* const own = dynamic_shared() + threadIdx.x / 32 * slot_words;
    u32* const turned = own + slot_words - TURNED_WORDS;
    for (u32 tile = warp; tile < tiles; tile += warps) {
        const u32 from = __ldg(column.starts + tile * TILE_BLOCKS) - 1;
        const u32* in = copy_words(column.words, from, __ldg(column.starts + (tile + 1) * TILE_BLOCKS), own);
        const u32 first = *in++;
        for (u32 block = 0; block < TILE_BLOCKS; block++)
            in = unpack_block(in, lane, [&](u32 row, u32 value) { turned[place(block * BLOCK + row + lane)] = value; });
        __syncwarp();
        u32 items[LANE_VALUES], sum = 0;
#pragma unroll
        for (u32 k = 0; k < LANE_VALUES; k++) items[k] = sum += turned[place(lane * LANE_VALUES + k)];
        const u32 before = first + warp_inclusive(sum) - sum;
        if (Sink::NEEDS_ORDER) {
            __syncwarp();
#pragma unroll
            for (u32 k = 0; k < LANE_VALUES; k++) turned[place(lane * LANE_VALUES + k)] = items[k] + before;
            __syncwarp();
#pragma unroll
            for (u32 row = 0; row < TILE; row += 32) sink.put(tile * TILE + row + lane, turned[place(row + lane)]);
        } else {
#pragma unroll
            for (u32 k = 0; k < LANE_VALUES; k++) sink.put(0, items[k] + before);
        }
    }
    sink.finish();
}

// Where order does not matter, a run is taken as a whole. Otherwise a byte for each row is 1 if a run begins there.
template <class Sink>
__global__ void vectors_rfor(Column values, Column lengths, u32 slot_words, u32 value_words, u32 length_words,
                             Sink sink) {
    const u32 lane = threadIdx.x % 32;
    const u32 warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32, warps = gridDim.x * blockDim.x / 32;
    u32* const own = dynamic_shared() + threadIdx.x / 32 * slot_words;
    u32* const own_values = own + value_words + length_words;
    u8* const begins = (u8*)(own_values + TILE);
    for (u32 block = warp; block < values.blocks; block += warps) {
        const u32 *const value_starts = values.starts + block, *const length_starts = lengths.starts + block;
        const u32* const in = copy_words(values.words, __ldg(value_starts), __ldg(value_starts + 1), own);
        const u32* const lengths_in =
            copy_words(lengths.words, __ldg(length_starts), __ldg(length_starts + 1), own + value_words);
        const u32 value_width = in[1] & 255, length_width = lengths_in[1] & 255, runs = in[2];
        if (!Sink::NEEDS_ORDER) {
            for (u32 k = lane; k < runs; k += 32)
                sink.put_run(unpack(in + 3, value_width, k) + in[0],
                             unpack(lengths_in + 3, length_width, k) + lengths_in[0]);
            continue;
        }
        ((uint4*)begins)[lane] = make_uint4(0, 0, 0, 0);
        __syncwarp();
        u32 all = 0;
        for (u32 first = 0; first < runs; first += 32) {
            const u32 k = first + lane;
            const u32 length = k < runs ? unpack(lengths_in + 3, length_width, k) + lengths_in[0] : 0;
            const u32 end = all + warp_inclusive(length);
            if (k < runs) own_values[k] = unpack(in + 3, value_width, k) + in[0];
            if (k + 1 < runs) begins[end] = 1;
            all = __shfl_sync(ALL, end, 31);
        }
        __syncwarp();
        u32 run = 0;
#pragma unroll 4
        for (u32 row = 0; row < TILE; row += 32) {
            const u32 bits = __ballot_sync(ALL, begins[row + lane]);
            sink.put(block * TILE + row + lane, own_values[run + __popc(bits & ((2u << lane) - 1))]);
            run += __popc(bits);
        }
    }
    sink.finish();
}

// ---- Separate passes over global memory -----------------------------------------------------------------------------

__global__ void __launch_bounds__(THREADS) unpack_blocks(Column column, u32 head, u32* out) {
    __shared__ Tile<TILE_BLOCKS> tile;
    u32* const words = dynamic_shared();
    tile.load(column, head, words);
#pragma unroll
    for (u32 i = 0; i < TILE_BLOCKS; i++)
        out[blockIdx.x * TILE + i * THREADS + threadIdx.x] = tile.packed(words, i);
}

__global__ void __launch_bounds__(THREADS) add_minima(Column column, u32* out) {
    for (u32 i = 0; i < TILE_BLOCKS; i++) {
        const u32 block = blockIdx.x * TILE_BLOCKS + i;
        out[block * BLOCK + threadIdx.x] += __ldg(column.words + __ldg(column.starts + block));
    }
}

// Values of differences, tile by tile.
__global__ void __launch_bounds__(THREADS) add_differences(Column column, u32* out) {
    __shared__ u32 shared[SCAN_WORDS<TILE_BLOCKS>];
    u32 items[TILE_BLOCKS];
    u32* const own = out + blockIdx.x * TILE + threadIdx.x;
    for (u32 i = 0; i < TILE_BLOCKS; i++) items[i] = own[i * THREADS];
    if (threadIdx.x == 0) items[0] = __ldg(column.words + __ldg(column.starts + blockIdx.x * TILE_BLOCKS) - 1);
    block_inclusive(items, shared);
    for (u32 i = 0; i < TILE_BLOCKS; i++) own[i * THREADS] = items[i];
}

// Each block of runs has room for 512.
__global__ void __launch_bounds__(THREADS) unpack_runs(Column column, u32* out) {
    u32* const words = dynamic_shared();
    const u32 from = __ldg(column.starts + blockIdx.x), count = __ldg(column.starts + blockIdx.x + 1) - from;
    for (u32 k = threadIdx.x; k < count; k += THREADS) words[k] = __ldg(column.words + from + k);
    __syncthreads();
    for (u32 k = threadIdx.x; k < words[2]; k += THREADS)
        out[blockIdx.x * TILE + k] = unpack(words + 3, words[1] & 255, k);
}

__global__ void __launch_bounds__(THREADS) add_run_minima(Column column, u32* out) {
    const u32* const words = column.words + __ldg(column.starts + blockIdx.x);
    const u32 minimum = __ldg(words), runs = __ldg(words + 2);
    for (u32 k = threadIdx.x; k < runs; k += THREADS) out[blockIdx.x * TILE + k] += minimum;
}

// Prefix sums of `slots`, 512 per block; those after its `runs` are 0, if a column has their number.
__global__ void __launch_bounds__(THREADS) scan_slots(const u32* runs_of, const u32* starts, u32* slots) {
    __shared__ u32 shared[SCAN_WORDS<TILE_BLOCKS>];
    const u32 runs = runs_of ? __ldg(runs_of + __ldg(starts + blockIdx.x) + 2) : TILE;
    u32 items[TILE_BLOCKS];
    u32* const own = slots + blockIdx.x * TILE + threadIdx.x;
    for (u32 i = 0; i < TILE_BLOCKS; i++) items[i] = i * THREADS + threadIdx.x < runs ? own[i * THREADS] : 0;
    block_inclusive(items, shared);
    for (u32 i = 0; i < TILE_BLOCKS; i++) own[i * THREADS] = items[i];
}

__global__ void __launch_bounds__(THREADS) flag_slots(Column column, const u32* ends, u32* flags) {
    const u32 runs = __ldg(column.words + __ldg(column.starts + blockIdx.x) + 2);
    for (u32 k = threadIdx.x; k < TILE; k += THREADS) flags[blockIdx.x * TILE + k] = 0;
    __syncthreads();
    for (u32 k = threadIdx.x; k + 1 < runs; k += THREADS) flags[blockIdx.x * TILE + ends[blockIdx.x * TILE + k]] = 1;
}

__global__ void __launch_bounds__(THREADS) gather_slots(const u32* values, const u32* runs, u32* out) {
    for (u32 k = threadIdx.x; k < TILE; k += THREADS)
        out[blockIdx.x * TILE + k] = values[blockIdx.x * TILE + runs[blockIdx.x * TILE + k]];
}

// RLE over the whole column: a flag where each run but the first begins.
__global__ void flag_runs(const u32* ends, u32 runs, u32* flags) {
    const u32 run = blockIdx.x * blockDim.x + threadIdx.x;
    if (run + 1 < runs) flags[ends[run]] = 1;
}

__global__ void gather_runs(const u32* values, const u32* runs, u32* out) {
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    out[row] = __ldg(values + runs[row]);
}

// ---- Bytes ----------------------------------------------------------------------------------------------------------

template <class T>
struct alignas(4 * sizeof(T)) Four {
    T of[4];
};

// Four values a thread.
template <class T, class Sink>
__global__ void widen(const T* values, u32 rows, Sink sink) {
    for (u32 k = blockIdx.x * blockDim.x + threadIdx.x; k < rows / 4; k += gridDim.x * blockDim.x) {
        const Four<T> four = ((const Four<T>*)values)[k];
        if constexpr (Sink::NEEDS_ORDER) {
            ((uint4*)sink.to)[k] = make_uint4(four.of[0], four.of[1], four.of[2], four.of[3]);
        } else {
            for (const T value : four.of) sink.put(0, value);
        }
    }
    sink.finish();
}

template <class T>
__global__ void narrow(const u32* values, T* out) {
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    out[row] = (T)values[row];
}

DEVICE u32 bytes_of(u32 value) { return max(1u, (width_of(value) + 7) / 8); }

// NSV: 2 bits a value say how many bytes it has. 16 values a thread.
__global__ void tag_bytes(const u32* values, u32 words, u32* tags) {
    const u32 word = blockIdx.x * blockDim.x + threadIdx.x;
    if (word >= words) return;
    u32 own = 0;
    for (u32 k = 0; k < 16; k++) own |= (bytes_of(values[word * 16 + k]) - 1) << k * 2;
    tags[word] = own;
}

__global__ void count_bytes(const u32* tags, u32* lengths) {
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    lengths[row] = (__ldg(tags + row / 16) >> row % 16 * 2 & 3) + 1;
}

__global__ void put_bytes(const u32* values, const u32* starts, u8* bytes) {
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x, value = values[row], count = bytes_of(value);
    for (u32 k = 0; k < count; k++) bytes[starts[row] + k] = (u8)(value >> k * 8);
}

__global__ void gather_bytes(const u32* tags, const u32* starts, const u32* bytes, u32* out) {
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x, start = starts[row];
    const u32 count = (__ldg(tags + row / 16) >> row % 16 * 2 & 3) + 1;
    const u32 two = __funnelshift_r(__ldg(bytes + start / 4), __ldg(bytes + start / 4 + 1), start % 4 * 8);
    out[row] = two & mask_of(count * 8);
}

// ---- Encoding -------------------------------------------------------------------------------------------------------

// The input of blocks: values, or differences within tiles of `tile` values.
struct Source {
    const u32* values;
    u32 tile;  // 0: values
    DEVICE u32 operator()(u32 row) const {
        if (!tile) return values[row];
        return row % tile ? values[row] - values[row - 1] : 0;
    }
    DEVICE u32 head(u32 block) const { return tile && block * BLOCK % tile == 0; }
};

// Computes the words of each block, one warp per block, and their prefix sums. Packs them if there is `words`.
__global__ void encode_blocks(Source source, u32 blocks, const u32* starts, u32* sizes, u32* words) {
    __shared__ u32 packed[4][33];
    const u32 lane = threadIdx.x % 32, block = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (block >= blocks) return;
    const auto least = [&](u32 a, u32 b) { return source.tile ? (u32)min((int)a, (int)b) : min(a, b); };
    u32 own[MINIBLOCKS];
    for (u32 m = 0; m < MINIBLOCKS; m++) own[m] = source(block * BLOCK + m * 32 + lane);
    const u32 minimum = warp_reduce(least(least(own[0], own[1]), least(own[2], own[3])), least);
    u32 widths = 0, size = 2;
    for (u32 m = 0; m < MINIBLOCKS; m++) {
        const u32 width = width_of(warp_reduce(own[m] - minimum, [](u32 a, u32 b) { return a | b; }));
        widths |= width << m * 8;
        size += width;
    }
    if (!words) {
        if (lane == 0) sizes[block] = size + source.head(block);
        return;
    }
    u32* out = words + starts[block];
    if (lane == 0) {
        if (source.head(block)) out[-1] = source.values[block * BLOCK];
        out[0] = minimum;
        out[1] = widths;
    }
    out += 2;
    u32* const shared = packed[threadIdx.x / 32];
    for (u32 m = 0; m < MINIBLOCKS; m++) {
        const u32 width = widths >> m * 8 & 255;
        shared[lane] = 0;
        __syncwarp();
        pack(shared, width, lane, own[m] - minimum);
        __syncwarp();
        if (lane < width) out[lane] = shared[lane];
        out += width;
        __syncwarp();
    }
}

// Shifts the start of each block by the words before it.
__global__ void skip_heads(Source source, u32 blocks, u32* starts) {
    const u32 block = blockIdx.x * blockDim.x + threadIdx.x;
    if (block < blocks) starts[block] += source.head(block);
}

// The columns of values of runs and of their lengths.
struct Both {
    u32* of[2];
};

// Runs of 512 values, by a thread block each. Packs them, or counts the words they take.
__global__ void __launch_bounds__(TILE)
    encode_runs(const u32* values, Both sizes, Both starts, Both words, bool packs) {
    __shared__ u32 of[2][TILE + 1], packed[TILE + 1], warps[TILE / 32], least, bits;
    const u32 t = threadIdx.x, lane = t % 32, row = blockIdx.x * TILE + t, value = values[row];
    const bool begins = t == 0 || values[row - 1] != value;
    const u32 ballot = __ballot_sync(ALL, begins);
    if (lane == 0) warps[t / 32] = __popc(ballot);
    __syncthreads();
    u32 run = __popc(ballot & ((2u << lane) - 1)) - 1, runs = 0;
    for (u32 k = 0; k < TILE / 32; k++) {
        if (k < t / 32) run += warps[k];
        runs += warps[k];
    }
    if (begins) {
        of[0][run] = value;
        of[1][run] = t;
    }
    if (t == 0) of[1][runs] = TILE;
    __syncthreads();
    const u32 length = t < runs ? of[1][t + 1] - of[1][t] : 0;
    __syncthreads();
    if (t < runs) of[1][t] = length;
    for (u32 what = 0; what < 2; what++) {
        if (t == 0) least = ALL, bits = 0;
        packed[t] = 0;
        if (t == 0) packed[TILE] = 0;
        __syncthreads();
        if (t < runs) atomicMin(&least, of[what][t]);
        __syncthreads();
        if (t < runs) atomicOr(&bits, of[what][t] - least);
        __syncthreads();
        const u32 width = width_of(bits), count = max(1u, (runs * width + 31) / 32);
        if (!packs) {
            if (t == 0) sizes.of[what][blockIdx.x] = 3 + count;
        } else {
            if (t < runs) pack(packed, width, t, of[what][t] - least);
            __syncthreads();
            u32* const out = words.of[what] + starts.of[what][blockIdx.x];
            if (t == 0) out[0] = least, out[1] = width * 0x01010101u, out[2] = runs;
            if (t < count) out[3 + t] = packed[t];
        }
        __syncthreads();
    }
}

// The most words of `step` neighbouring blocks.
__global__ void most_words(const u32* starts, u32 blocks, u32 step, u32* most) {
    const u32 first = (blockIdx.x * blockDim.x + threadIdx.x) * step;
    if (first < blocks) atomicMax(most, starts[min(first + step, blocks)] - starts[first]);
}

// ---- Values to compress ---------------------------------------------------------------------------------------------

DEVICE u64 random_of(u64 seed) {  // splitmix64
    u64 z = (seed + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
DEVICE double share_of(u64 seed) { return (double)(random_of(seed) >> 11) * 0x1p-53; }

struct Uniform {
    u32 width;
    DEVICE u32 operator()(u64 row, u64) const { return (u32)random_of(row) & mask_of(width); }
};

struct Sorted {
    u64 distinct;
    DEVICE u32 operator()(u64 row, u64 values) const { return (u32)(row * distinct / values); }
};

struct Normal {
    double mean, deviation;
    DEVICE u32 operator()(u64 row, u64) const {
        const double radius = sqrt(-2 * log(1 - share_of(2 * row))), turn = 6.283185307179586 * share_of(2 * row + 1);
        return (u32)max(0.0, rint(mean + deviation * radius * cos(turn)));
    }
};

struct Zipf {
    const double* below;  // the share of values up to each
    u32 distinct;
    DEVICE u32 operator()(u64 row, u64) const {
        const double share = share_of(row);
        u32 low = 0, high = distinct - 1;
        while (low < high) {
            const u32 middle = (low + high) / 2;
            if (below[middle] > share) high = middle;
            else low = middle + 1;
        }
        return low;
    }
};

// Order lines as the Star Schema Benchmark has them, as far as query 1.1 needs them.
struct Lines {
    enum What { DATE, QUANTITY, DISCOUNT, PRICE } what;
    DEVICE u32 operator()(u64 row, u64) const {
        const u32 random = (u32)(random_of(row * 4 + what) >> 32);
        if (what == QUANTITY) return random % 50 + 1;
        if (what == DISCOUNT) return random % 11;
        if (what == PRICE) return 90000 + random % 10410000;
        // an order has 4 lines
        const u32 day = (u32)(random_of(row / 4 * 4 + what) >> 32) % 2556;
        return 19920000 + day / 365 * 10000 + (day % 365 / 31 + 1) * 100 + day % 31 + 1;
    }
};

template <class Values>
__global__ void generate(Values values, u32 count, u32* out) {
    const u32 row = blockIdx.x * blockDim.x + threadIdx.x;
    out[row] = values(min(row, count - 1), count);
}

__global__ void repeat_last(u32 count, u32* values) { values[count + threadIdx.x] = values[count - 1]; }

__global__ void largest(const u32* values, u32 rows, u32* most) {
    u32 own = 0;
    for (u32 row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x)
        own = max(own, values[row]);
    atomicMax(most, own);
}

__global__ void compare(const u32* values, const u32* others, u32 rows, u64* differing) {
    u64 own = 0;
    for (u32 row = blockIdx.x * blockDim.x + threadIdx.x; row < rows; row += gridDim.x * blockDim.x)
        own += values[row] != others[row];
    if (own) atomicAdd(differing, own);
}

__global__ void fill(uint4* to, u32 count) {
    for (u32 k = blockIdx.x * blockDim.x + threadIdx.x; k < count; k += gridDim.x * blockDim.x)
        to[k] = make_uint4(k, k, k, k);
}

// ---- A query: revenue of a year's lines with some discount and a small quantity -------------------------------------

DEVICE bool is_wanted(u32 date, u32 quantity, u32 discount) {
    return date / 10000 == 1993 && discount - 1 <= 2 && quantity < 25;
}

__global__ void __launch_bounds__(THREADS)
    query_plain(const u32* dates, const u32* quantities, const u32* discounts, const u32* prices, Sum sum) {
    const u32 first = blockIdx.x * TILE + threadIdx.x;
#pragma unroll
    for (u32 i = 0; i < TILE_BLOCKS; i++) {
        const u32 row = first + i * THREADS;
        if (is_wanted(dates[row], quantities[row], discounts[row])) sum.put_run(prices[row], discounts[row]);
    }
    sum.finish();
}

// The same query; decodes columns on the way: dates as GPU-RFOR, the others as GPU-FOR.
__global__ void __launch_bounds__(THREADS) query_packed(Column dates, Column date_lengths, u32 value_words,
                                                        u32 length_words, Column quantities, Column discounts,
                                                        Column prices, Sum sum) {
    u32* const shared = dynamic_shared();
    u32 date[TILE_BLOCKS], quantity[TILE_BLOCKS], discount[TILE_BLOCKS], price[TILE_BLOCKS];
    load_rfor(dates, date_lengths, value_words, length_words, date, shared);
    __syncthreads();
    load_for(quantities, quantity, shared);
    __syncthreads();
    load_for(discounts, discount, shared);
    bool is_any = false;
#pragma unroll
    for (u32 i = 0; i < TILE_BLOCKS; i++) is_any |= is_wanted(date[i], quantity[i], discount[i]);
    if (__syncthreads_or(is_any)) {
        load_for(prices, price, shared);
#pragma unroll
        for (u32 i = 0; i < TILE_BLOCKS; i++)
            if (is_wanted(date[i], quantity[i], discount[i])) sum.put_run(price[i], discount[i]);
    }
    sum.finish();
}

// ---- Memory and time ------------------------------------------------------------------------------------------------

[[noreturn]] void fail(const std::string& why) {
    fprintf(stderr, "%s\n", why.c_str());
    exit(1);
}

void check(cudaError_t result, const char* call) {
    if (result != cudaSuccess) fail(std::string(call) + ": " + cudaGetErrorString(result));
}
#define CHECK(call) check(call, #call)

// Device memory. Bytes after it can be read.
template <class T>
struct Buffer {
    T* at = nullptr;
    u64 count = 0;

    Buffer() = default;
    Buffer(const Buffer&) = delete;
    ~Buffer() { cudaFree(at); }
    T* reserve(u64 wanted) {
        if (wanted > count || !at) {
            CHECK(cudaFree(at));
            CHECK(cudaMalloc((void**)&at, wanted * sizeof(T) + SLACK_WORDS * 4));
            count = wanted;
        }
        return at;
    }
};

template <class T>
std::vector<T> read(const T* from, u64 count) {
    std::vector<T> values(count);
    CHECK(cudaMemcpy(values.data(), from, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
}

u32 read_word(const u32* from) { return read(from, 1)[0]; }

typedef std::function<void()> Work;
constexpr u32 grid_of(u64 items, u32 threads) { return (u32)((items + threads - 1) / threads); }

// A column of blocks that the device has encoded.
struct Encoded {
    Buffer<u32> words, starts;
    u32 blocks = 0;
    u64 count = 0;  // words

    operator Column() const { return {words.at, starts.at, blocks}; }
    u64 bytes() const { return (count + blocks + 1) * 4; }
};

struct Run {
    Encoded values, lengths;
    u64 bytes() const { return values.bytes() + lengths.bytes(); }
};

// The work to measure, and buffers of values.
class Bench {
public:
    explicit Bench(u32 count);
    void load(const char* part, const std::string& data, double x, u32 count);
    template <class Values>
    void make(const char* part, const std::string& data, double x, Values values, u32 times = 1);
    void load_file(const std::filesystem::path& path);
    void measure_schemes();
    void measure_blocks();
    void measure_coprocessor();
    u32 usual_count;

private:
    u32 count, rows;  // values, without and with padding
    std::string case_facts;
    u64 expected;  // the sum of all rows
    u32 processors;
    Buffer<u32> values, out, sizes, most;
    Buffer<u64> totals;
    Buffer<u8> temporary, others;
    cudaEvent_t begin, end;

    double measure(const Work& run);
    void prepare();
    void report(const char* scheme, const char* way, u64 bytes, const Work& decompress, const Work& sum = nullptr);
    template <class Run>
    void report_sinks(const char* scheme, const char* way, u64 bytes, const Run& run);
    template <class F>
    void with_memory(const F& run);
    void sum_up(u32* starts, u32 blocks, u32 before);
    void encode(Encoded& encoded, u32 tile);
    void encode(Run& run);
    u32 most_words_of(const Encoded& encoded, u32 step);
    void check_blocks(const Encoded& encoded, u32 tile);
    void check_runs(const Run& run);
    u64 read_totals();
    template <class Kernel, class... Arguments>
    void launch_warps(Kernel kernel, u32 slot_words, Arguments... arguments);

    void measure_plain();
    void measure_bytes();
    void measure_variable_bytes();
    void measure_runs();
    void measure_for();
    void measure_dfor();
    void measure_rfor();
    void measure_nvcomp();
    template <u32 D>
    void measure_tiles_of(const Encoded& of_values);
};

Bench::Bench(u32 count) : usual_count(count) {
    int found;
    CHECK(cudaDeviceGetAttribute(&found, cudaDevAttrMultiProcessorCount, 0));
    processors = (u32)found;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    totals.reserve(TOTALS);
    most.reserve(1);
    others.reserve(FLUSH_BYTES);

    const u64 bytes = std::min<u64>(2ull << 30, count * 16ull) / 2048 * 2048;
    u32 *const from = values.reserve(bytes / 4), *const to = out.reserve(bytes / 4);
    CHECK(cudaMemset(from, 1, bytes));
    u8* host;
    CHECK(cudaMallocHost((void**)&host, bytes / 4));
    const auto rate = [&](double moved, const Work& run) { return moved / measure(run) * 1e3; };
    const u32 grid = processors * 16;
    const double reads = rate((double)bytes, [&] { widen<<<grid, 512>>>(from, (u32)(bytes / 4), Sum{totals.at}); });
    const double writes = rate((double)bytes, [&] { fill<<<grid, 512>>>((uint4*)to, (u32)(bytes / 16)); });
    const double copies = rate((double)bytes, [&] { widen<<<grid, 512>>>(from, (u32)(bytes / 4), Write{to}); });
    const double link = rate((double)(bytes / 4), [&] {
        CHECK(cudaMemcpyAsync(to, host, bytes / 4, cudaMemcpyHostToDevice));
    });
    CHECK(cudaFreeHost(host));
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    printf("{\"part\": \"device\", \"name\": \"%s\", \"processors\": %u, \"read_bytes_per_s\": %.4g, "
           "\"write_bytes_per_s\": %.4g, \"copy_bytes_per_s\": %.4g, \"host_to_device_bytes_per_s\": %.4g, ",
           properties.name, processors, reads, writes, copies, link);
#if HAS_NVCOMP
    printf("\"nvcomp\": \"%d.%d\"}\n", NVCOMP_VER_MAJOR, NVCOMP_VER_MINOR);
#else
    printf("\"nvcomp\": null}\n");
#endif
}

double Bench::measure(const Work& run) {
    std::vector<double> times;
    for (u32 round = 0; round <= ROUNDS; round++) {
        CHECK(cudaMemsetAsync(totals.at, 0, TOTALS * 8));
        fill<<<processors * 8, 256>>>((uint4*)others.at, FLUSH_BYTES / 16);
        CHECK(cudaEventRecord(begin));
        run();
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaGetLastError());
        float time;
        CHECK(cudaEventElapsedTime(&time, begin, end));
        if (round) times.push_back(time);
    }
    std::sort(times.begin(), times.end());
    return times[ROUNDS / 2];
}

u64 Bench::read_totals() {
    u64 sum = 0;
    for (const u64 total : read(totals.at, TOTALS)) sum += total;
    return sum;
}

void Bench::load(const char* part, const std::string& data, double x, u32 wanted) {
    char facts[256];
    snprintf(facts, sizeof facts, "\"part\": \"%s\", \"data\": \"%s\", \"x\": %.10g", part, data.c_str(), x);
    case_facts = facts;
    count = wanted;
    rows = grid_of(count, TILE) * TILE;
    values.reserve(rows);
    out.reserve(rows);
}

// Runs once the values are generated.
void Bench::prepare() {
    measure([&] { widen<<<processors * 16, 512>>>(values.at, rows, Sum{totals.at}); });
    expected = read_totals();
}

template <class Values>
void Bench::make(const char* part, const std::string& data, double x, Values of, u32 times) {
    load(part, data, x, usual_count * times);
    generate<<<rows / TILE, TILE>>>(of, count, values.at);
    prepare();
}

void Bench::load_file(const std::filesystem::path& path) {
    const u64 bytes = std::filesystem::file_size(path);
    if (!bytes || bytes % 4 || bytes >> 32) fail(path.string() + ": not a column");
    std::vector<char> words(bytes);
    std::ifstream file(path, std::ios::binary);
    if (!file.read(words.data(), (std::streamsize)bytes)) fail("cannot read " + path.string());
    load("columns", path.stem().string(), 0, (u32)(bytes / 4));
    CHECK(cudaMemcpy(values.at, words.data(), bytes, cudaMemcpyHostToDevice));
    if (rows > count) repeat_last<<<1, rows - count>>>(count, values.at);
    prepare();
}

// Prints a case after its answers were checked.
void Bench::report(const char* scheme, const char* way, u64 bytes, const Work& decompress, const Work& sum) {
    const auto wrong = [&](const char* what) { fail(case_facts + ", " + scheme + ", " + way + ": " + what); };
    CHECK(cudaMemset(out.at, 0xA5, rows * 4ull));
    const double decompressing = measure(decompress);
    CHECK(cudaMemset(totals.at, 0, 8));
    compare<<<processors * 8, 256>>>(values.at, out.at, rows, totals.at);
    if (read(totals.at, 1)[0]) wrong("decompressed values differ");
    printf("{%s, \"scheme\": \"%s\", \"way\": \"%s\", \"values\": %u, \"bytes\": %llu, \"decompress_ms\": %.5g",
           case_facts.c_str(), scheme, way, count, bytes, decompressing);
    if (sum) {
        const double summing = measure(sum);
        if (read_totals() != expected) wrong("the sum differs");
        printf(", \"sum_ms\": %.5g", summing);
    }
    printf("}\n");
    fflush(stdout);
}

template <class Run>
void Bench::report_sinks(const char* scheme, const char* way, u64 bytes, const Run& run) {
    report(scheme, way, bytes, [&] { run(Write{out.at}); }, [&] { run(Sum{totals.at}); });
}

// Calls a CUB function twice: it returns the size of its scratch memory if it gets none.
template <class F>
void Bench::with_memory(const F& run) {
    size_t bytes = 0;
    CHECK(run(nullptr, bytes));
    temporary.reserve(bytes);
    CHECK(run(temporary.at, bytes));
}

// ---- Encoding, and checks of it -------------------------------------------------------------------------------------

// Converts sizes of blocks to starts, and appends the end of the last.
void Bench::sum_up(u32* starts, u32 blocks, u32 before) {
    CHECK(cudaMemset(sizes.at + blocks, 0, 4));
    with_memory([&](void* memory, size_t& bytes) {
        return cub::DeviceScan::ExclusiveScan(memory, bytes, sizes.at, starts, cuda::std::plus<u32>(), before,
                                              (int)blocks + 1);
    });
}

// GPU-FOR, or GPU-DFOR with `tile` values per tile.
void Bench::encode(Encoded& encoded, u32 tile) {
    const Source source{values.at, tile};
    const u32 blocks = encoded.blocks = rows / BLOCK;
    sizes.reserve(blocks + 1);
    encoded.starts.reserve(blocks + 1);
    encode_blocks<<<grid_of(blocks, 4), THREADS>>>(source, blocks, nullptr, sizes.at, nullptr);
    sum_up(encoded.starts.at, blocks, HEADER_WORDS);
    encoded.count = read_word(encoded.starts.at + blocks);
    encoded.words.reserve(encoded.count);
    skip_heads<<<grid_of(blocks, THREADS), THREADS>>>(source, blocks, encoded.starts.at);
    const u32 header[HEADER_WORDS] = {BLOCK, MINIBLOCKS, rows, read_word(values.at)};
    CHECK(cudaMemcpy(encoded.words.at, header, sizeof header, cudaMemcpyHostToDevice));
    encode_blocks<<<grid_of(blocks, 4), THREADS>>>(source, blocks, encoded.starts.at, nullptr, encoded.words.at);
    CHECK(cudaDeviceSynchronize());
    check_blocks(encoded, tile);
}

void Bench::encode(Run& run) {
    Encoded* const parts[2] = {&run.values, &run.lengths};
    Buffer<u32> length_sizes;
    const u32 blocks = rows / TILE;
    const Both of_sizes{{sizes.reserve(blocks + 1), length_sizes.reserve(blocks + 1)}};
    encode_runs<<<blocks, TILE>>>(values.at, of_sizes, {}, {}, false);
    Both starts, words;
    for (u32 what = 0; what < 2; what++) {
        Encoded& part = *parts[what];
        part.blocks = blocks;
        starts.of[what] = part.starts.reserve(blocks + 1);
        if (what) CHECK(cudaMemcpy(sizes.at, length_sizes.at, blocks * 4ull, cudaMemcpyDeviceToDevice));
        sum_up(starts.of[what], blocks, HEADER_WORDS);
        part.count = read_word(starts.of[what] + blocks);
        words.of[what] = part.words.reserve(part.count);
        const u32 header[HEADER_WORDS] = {TILE, MINIBLOCKS, rows, 0};
        CHECK(cudaMemcpy(part.words.at, header, sizeof header, cudaMemcpyHostToDevice));
    }
    encode_runs<<<blocks, TILE>>>(values.at, {}, starts, words, true);
    CHECK(cudaDeviceSynchronize());
    check_runs(run);
}

u32 Bench::most_words_of(const Encoded& encoded, u32 step) {
    CHECK(cudaMemset(most.at, 0, 4));
    most_words<<<grid_of(encoded.blocks, step * THREADS), THREADS>>>(encoded.starts.at, encoded.blocks, step, most.at);
    return read_word(most.at);
}

u32 bits_of(const std::vector<u32>& words, u64 bit, u32 width) {
    u64 value = 0;
    for (u32 k = 0; k < width; k++) value |= (u64)(words.at((bit + k) / 32) >> (bit + k) % 32 & 1) << k;
    return (u32)value;
}

// Checks the first, a middle and the last tile against their definition.
void Bench::check_blocks(const Encoded& encoded, u32 tile) {
    const u32 step = tile ? tile / BLOCK : 1;
    for (const u32 some : {0u, encoded.blocks / 2, encoded.blocks - 1}) {
        const u32 first = some / step * step;
        u32 before = 0;
        for (u32 block = first; block < std::min(first + step, encoded.blocks); block++) {
            const auto bounds = read(encoded.starts.at + block, 2);
            const auto words = read(encoded.words.at + bounds[0], bounds[1] - bounds[0]);
            if (tile && block == first) before = read_word(encoded.words.at + bounds[0] - 1);
            const auto originals = read(values.at + block * BLOCK, BLOCK);
            u64 bit = 64;
            for (u32 k = 0; k < BLOCK; k++) {
                const u32 width = words[1] >> k / 32 * 8 & 255;
                before = words[0] + bits_of(words, bit, width) + (tile ? before : 0);
                if (before != originals[k]) fail(case_facts + ": a block is not as it should be");
                bit += width;
            }
        }
    }
}

void Bench::check_runs(const Run& run) {
    for (const u32 block : {0u, run.values.blocks / 2, run.values.blocks - 1}) {
        std::vector<u32> decoded[2];
        for (u32 what = 0; what < 2; what++) {
            const Encoded& part = what ? run.lengths : run.values;
            const auto bounds = read(part.starts.at + block, 2);
            const auto words = read(part.words.at + bounds[0], bounds[1] - bounds[0]);
            for (u32 k = 0; k < words[2]; k++)
                decoded[what].push_back(words[0] + bits_of(words, 96 + (u64)k * (words[1] & 255), words[1] & 255));
        }
        std::vector<u32> all;
        for (u32 k = 0; k < decoded[0].size(); k++) all.insert(all.end(), decoded[1][k], decoded[0][k]);
        if (all != read(values.at + block * TILE, TILE)) fail(case_facts + ": runs are not as they should be");
    }
}

// ---- Schemes --------------------------------------------------------------------------------------------------------

// As many blocks as fit the device.
template <class Kernel, class... Arguments>
void Bench::launch_warps(Kernel kernel, u32 slot_words, Arguments... arguments) {
    const size_t shared = slot_words * (THREADS / 32) * 4;
    int blocks;
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, (int)THREADS, shared));
    kernel<<<processors * (u32)blocks, THREADS, shared>>>(arguments...);
}

constexpr u32 slot_of(u32 words) { return (words + 4 + 3) / 4 * 4 + 4; }  // with words before, and one behind

void Bench::measure_plain() {
    report_sinks("None", "", rows * 4ull, [&](auto sink) { widen<<<processors * 16, 512>>>(values.at, rows, sink); });
}

void Bench::measure_bytes() {
    CHECK(cudaMemset(most.at, 0, 4));
    largest<<<processors * 8, 256>>>(values.at, rows, most.at);
    const u32 top = read_word(most.at);
    Buffer<u8> narrowed;
    const auto of_type = [&](auto zero) {
        typedef decltype(zero) T;
        T* const at = (T*)narrowed.reserve(rows * sizeof(T));
        narrow<<<rows / TILE, TILE>>>(values.at, at);
        report_sinks("NSF", "", rows * sizeof(T), [&](auto sink) { widen<<<processors * 16, 512>>>(at, rows, sink); });
    };
    if (top < 1 << 8) of_type(u8());
    else if (top < 1 << 16) of_type(u16());
    else of_type(u32());
}

void Bench::measure_variable_bytes() {
    Buffer<u32> tags, lengths, starts, bytes;
    const u32 grid = rows / TILE;
    tags.reserve(rows / 16);
    lengths.reserve(rows + 1);
    starts.reserve(rows + 1);
    const auto scan = [&](u32 all) {
        with_memory([&](void* memory, size_t& size) {
            return cub::DeviceScan::ExclusiveScan(memory, size, lengths.at, starts.at, cuda::std::plus<u32>(), 0u,
                                                  (int)all);
        });
    };
    tag_bytes<<<grid_of(rows / 16, THREADS), THREADS>>>(values.at, rows / 16, tags.at);
    count_bytes<<<grid, TILE>>>(tags.at, lengths.at);
    CHECK(cudaMemset(lengths.at + rows, 0, 4));
    scan(rows + 1);
    const u32 all = read_word(starts.at + rows);
    bytes.reserve(all / 4 + 1);
    put_bytes<<<grid, TILE>>>(values.at, starts.at, (u8*)bytes.at);
    report("NSV", "3 passes", all + rows / 4ull, [&] {
        count_bytes<<<grid, TILE>>>(tags.at, lengths.at);
        scan(rows);
        gather_bytes<<<grid, TILE>>>(tags.at, starts.at, bytes.at, out.at);
    });
}

void Bench::measure_runs() {
    Buffer<u32> of, lengths, ends, flags;
    of.reserve(rows);
    lengths.reserve(rows);
    with_memory([&](void* memory, size_t& bytes) {
        return cub::DeviceRunLengthEncode::Encode(memory, bytes, values.at, of.at, lengths.at, most.at, (int)rows);
    });
    const u32 runs = read_word(most.at);
    ends.reserve(runs);
    flags.reserve(rows);
    const auto scan = [&](const u32* from, u32* to, u32 all) {
        with_memory([&](void* memory, size_t& bytes) {
            return cub::DeviceScan::InclusiveSum(memory, bytes, from, to, (int)all);
        });
    };
    report("RLE", "4 passes", runs * 8ull, [&] {
        scan(lengths.at, ends.at, runs);
        CHECK(cudaMemsetAsync(flags.at, 0, rows * 4ull));
        flag_runs<<<grid_of(runs, TILE), TILE>>>(ends.at, runs, flags.at);
        scan(flags.at, flags.at, rows);
        gather_runs<<<rows / TILE, TILE>>>(of.at, flags.at, out.at);
    });
}

void Bench::measure_for() {
    Encoded encoded;
    encode(encoded, 0);
    const u32 tiles = rows / TILE, shared = (most_words_of(encoded, TILE_BLOCKS) + 2) * 4;
    report_sinks("GPU-FOR", "tile", encoded.bytes(), [&](auto sink) {
        tiles_for<TILE_BLOCKS><<<tiles, THREADS, shared>>>(encoded, sink);
    });
    const u32 slot = slot_of(most_words_of(encoded, VECTOR_BLOCKS));
    report_sinks("GPU-FOR", "warp", encoded.bytes(), [&](auto sink) {
        launch_warps(vectors_for<decltype(sink)>, slot, (Column)encoded, slot, sink);
    });
    report("GPU-FOR", "2 passes", encoded.bytes(), [&] {
        unpack_blocks<<<tiles, THREADS, shared>>>(encoded, 0, out.at);
        add_minima<<<tiles, THREADS>>>(encoded, out.at);
    });
}

void Bench::measure_dfor() {
    Encoded encoded;
    encode(encoded, TILE);
    const u32 words = most_words_of(encoded, TILE_BLOCKS) + 1, tiles = rows / TILE;
    const u32 shared = std::max(words + 2, SCAN_WORDS<TILE_BLOCKS>) * 4;
    report_sinks("GPU-DFOR", "tile", encoded.bytes(), [&](auto sink) {
        tiles_dfor<TILE_BLOCKS><<<tiles, THREADS, shared>>>(encoded, sink);
    });
    const u32 slot = slot_of(words) + TURNED_WORDS;
    report_sinks("GPU-DFOR", "warp", encoded.bytes(), [&](auto sink) {
        launch_warps(vectors_dfor<decltype(sink)>, slot, (Column)encoded, slot, sink);
    });
    report("GPU-DFOR", "3 passes", encoded.bytes(), [&] {
        unpack_blocks<<<tiles, THREADS, shared>>>(encoded, 1, out.at);
        add_minima<<<tiles, THREADS>>>(encoded, out.at);
        add_differences<<<tiles, THREADS>>>(encoded, out.at);
    });
}

void Bench::measure_rfor() {
    Run run;
    encode(run);
    const u32 tiles = rows / TILE;
    const u32 value_words = slot_of(most_words_of(run.values, 1));
    const u32 length_words = slot_of(most_words_of(run.lengths, 1));
    const u32 shared = rfor_words(value_words, length_words) * 4;
    const Column of = run.values, lengths = run.lengths;
    report_sinks("GPU-RFOR", "tile", run.bytes(), [&](auto sink) {
        tiles_rfor<<<tiles, THREADS, shared>>>(of, lengths, value_words, length_words, sink);
    });
    const u32 slot = value_words + length_words + TILE + TILE / 4;
    report_sinks("GPU-RFOR", "warp", run.bytes(), [&](auto sink) {
        launch_warps(vectors_rfor<decltype(sink)>, slot, of, lengths, slot, value_words, length_words, sink);
    });
    Buffer<u32> slots, ends, flags;
    for (Buffer<u32>* const buffer : {&slots, &ends, &flags}) buffer->reserve(rows);
    report("GPU-RFOR", "8 passes", run.bytes(), [&] {
        unpack_runs<<<tiles, THREADS, value_words * 4>>>(of, slots.at);
        add_run_minima<<<tiles, THREADS>>>(of, slots.at);
        unpack_runs<<<tiles, THREADS, length_words * 4>>>(lengths, ends.at);
        add_run_minima<<<tiles, THREADS>>>(lengths, ends.at);
        scan_slots<<<tiles, THREADS>>>(of.words, of.starts, ends.at);
        flag_slots<<<tiles, THREADS>>>(of, ends.at, flags.at);
        scan_slots<<<tiles, THREADS>>>(nullptr, nullptr, flags.at);
        gather_slots<<<tiles, THREADS>>>(slots.at, flags.at, out.at);
    });
}

void Bench::measure_nvcomp() {
#if HAS_NVCOMP
    const auto with = [&](const char* name, auto&& manager) {
        const auto config = manager.configure_compression(rows * 4ull);
        Buffer<u8> compressed;
        compressed.reserve(config.max_compressed_buffer_size);
        manager.compress((const u8*)values.at, compressed.at, config);
        const u64 bytes = manager.get_compressed_output_size(compressed.at);
        const auto decompression = manager.configure_decompression(compressed.at);
        report(name, "nvCOMP", bytes, [&] { manager.decompress((u8*)out.at, compressed.at, decompression); });
    };
    nvcompBatchedCascadedCompressOpts_t cascaded = nvcompBatchedCascadedCompressDefaultOpts;
    nvcompBatchedBitcompCompressOpts_t bitcomp = nvcompBatchedBitcompCompressDefaultOpts;
    cascaded.common_opts.data_type = bitcomp.data_type = NVCOMP_TYPE_UINT;
    with("Cascaded", nvcomp::CascadedManager(1 << 16, cascaded));
    with("Bitcomp", nvcomp::BitcompManager(1 << 16, bitcomp));
#endif
}

void Bench::measure_schemes() {
    measure_plain();
    measure_bytes();
    measure_variable_bytes();
    measure_runs();
    measure_for();
    measure_dfor();
    measure_rfor();
    measure_nvcomp();
}

// ---- Figures --------------------------------------------------------------------------------------------------------

template <u32 D>
void Bench::measure_tiles_of(const Encoded& of_values) {
    const std::string facts = case_facts;
    case_facts.replace(case_facts.rfind(' '), std::string::npos, " " + std::to_string(D));
    const u32 tiles = grid_of(rows / BLOCK, D), shared = (most_words_of(of_values, D) + 2) * 4;
    report_sinks("GPU-FOR", "tile", of_values.bytes(), [&](auto sink) {
        tiles_for<D><<<tiles, THREADS, shared>>>(of_values, sink);
    });
    Encoded differences;
    encode(differences, D * BLOCK);
    const u32 scanned = std::max(most_words_of(differences, D) + 3, SCAN_WORDS<D>) * 4;
    report_sinks("GPU-DFOR", "tile", differences.bytes(), [&](auto sink) {
        tiles_dfor<D><<<tiles, THREADS, scanned>>>(differences, sink);
    });
    case_facts = facts;
}

// By blocks of a tile; 0 for schemes without tiles.
void Bench::measure_blocks() {
    make("blocks", "uniform", 0, Uniform{16}, 2);
    measure_plain();
    Encoded encoded;
    encode(encoded, 0);
    const u32 slot = slot_of(most_words_of(encoded, VECTOR_BLOCKS));
    report_sinks("GPU-FOR", "warp", encoded.bytes(), [&](auto sink) {
        launch_warps(vectors_for<decltype(sink)>, slot, (Column)encoded, slot, sink);
    });
    measure_tiles_of<1>(encoded);
    measure_tiles_of<2>(encoded);
    measure_tiles_of<4>(encoded);
    measure_tiles_of<8>(encoded);
    measure_tiles_of<16>(encoded);
    measure_tiles_of<32>(encoded);
}

// Query 1.1 with columns on the device, and with columns that have to get there first.
void Bench::measure_coprocessor() {
    Encoded packed[3];
    Run dates;
    Buffer<u32> plain[4];
    u64 wanted = 0;
    std::vector<std::vector<u32>> host(4);
    for (u32 k = 0; k < 4; k++) {
        make("coprocessor", "lines", 0, Lines{(Lines::What)k});
        if (k) encode(packed[k - 1], 0);
        else encode(dates);
        CHECK(cudaMemcpy(plain[k].reserve(rows), values.at, rows * 4ull, cudaMemcpyDeviceToDevice));
        host[k] = read(values.at, rows);
    }
    for (u32 row = 0; row < rows; row++)
        if (host[0][row] / 10000 == 1993 && host[2][row] - 1 <= 2 && host[1][row] < 25)
            wanted += (u64)host[3][row] * host[2][row];

    struct Piece {
        u32 *device, *host;
        u64 bytes;
    };
    const auto measured = [&](const char* scheme, const std::vector<std::pair<u32*, u64>>& parts, const Work& query) {
        std::vector<Piece> pieces;
        u64 bytes = 0;
        for (const auto& [at, words] : parts) {
            pieces.push_back({at, nullptr, words * 4});
            CHECK(cudaMallocHost((void**)&pieces.back().host, words * 4));
            CHECK(cudaMemcpy(pieces.back().host, at, words * 4, cudaMemcpyDeviceToHost));
            bytes += words * 4;
        }
        const auto send = [&] {
            for (const auto& piece : pieces)
                CHECK(cudaMemcpyAsync(piece.device, piece.host, piece.bytes, cudaMemcpyHostToDevice));
        };
        const auto checked = [&](const Work& run) {
            const double time = measure(run);
            if (read_totals() != wanted) fail(std::string(scheme) + ": the answer of the query differs");
            return time;
        };
        const double resident = checked(query);
        const double sent = measure(send), all = checked([&] {
            send();
            query();
        });
        printf("{%s, \"scheme\": \"%s\", \"values\": %u, \"bytes\": %llu, \"query_ms\": %.5g, \"send_ms\": %.5g, "
               "\"all_ms\": %.5g}\n",
               case_facts.c_str(), scheme, count, bytes, resident, sent, all);
        fflush(stdout);
        for (const auto& piece : pieces) CHECK(cudaFreeHost(piece.host));
    };
    const u32 tiles = rows / TILE;
    const auto over_plain = [&] {
        query_plain<<<tiles, THREADS>>>(plain[0].at, plain[1].at, plain[2].at, plain[3].at, Sum{totals.at});
    };
    std::vector<std::pair<u32*, u64>> parts;
    for (const auto& column : plain) parts.push_back({column.at, rows});
    measured("None", parts, over_plain);

    parts.clear();
    for (const Encoded* const part : {&dates.values, &dates.lengths, &packed[0], &packed[1], &packed[2]}) {
        parts.push_back({part->words.at, part->count});
        parts.push_back({part->starts.at, part->blocks + 1});
    }
    const u32 value_words = slot_of(most_words_of(dates.values, 1));
    const u32 length_words = slot_of(most_words_of(dates.lengths, 1)), of_dates = rfor_words(value_words, length_words);
    u32 of_blocks = 0;
    for (const auto& column : packed) of_blocks = std::max(of_blocks, most_words_of(column, TILE_BLOCKS) + 2);
    const Column date_values = dates.values, date_lengths = dates.lengths;
    measured("GPU-*", parts, [&] {
        query_packed<<<tiles, THREADS, std::max(of_dates, of_blocks) * 4>>>(
            date_values, date_lengths, value_words, length_words, packed[0], packed[1], packed[2], Sum{totals.at});
    });
    // each column is decompressed before the query
    measured("GPU-*, a column after the other", parts, [&] {
        tiles_rfor<<<tiles, THREADS, of_dates * 4>>>(date_values, date_lengths, value_words, length_words,
                                                     Write{plain[0].at});
        for (u32 k = 0; k < 3; k++)
            tiles_for<TILE_BLOCKS><<<tiles, THREADS, of_blocks * 4>>>(packed[k], Write{plain[k + 1].at});
        over_plain();
    });
}

void run_part(const std::string& part, Bench& bench, const std::string& directory) {
    if (part == "blocks") {
        bench.measure_blocks();
    } else if (part == "widths") {
        for (u32 width = 1; width <= 32; width++) {
            bench.make("widths", "uniform", width, Uniform{width});
            bench.measure_schemes();
        }
    } else if (part == "sorted") {
        for (u32 bits = 2; bits <= 28; bits += 2) {
            bench.make("sorted", "D1", bits, Sorted{1ull << bits});
            bench.measure_schemes();
        }
    } else if (part == "normal") {
        for (u32 bits = 6; bits <= 30; bits += 4) {
            bench.make("normal", "D2", bits, Normal{(double)(1u << bits), 20});
            bench.measure_schemes();
        }
    } else if (part == "zipf") {
        constexpr u32 DISTINCT = 1 << 20;
        Buffer<double> below;
        below.reserve(DISTINCT);
        for (double exponent = 1; exponent <= 5; exponent += 0.5) {
            std::vector<double> shares;
            double sum = 0;
            for (u32 rank = 1; rank <= DISTINCT; rank++) shares.push_back(sum += std::pow(rank, -exponent));
            for (double& share : shares) share /= sum;
            CHECK(cudaMemcpy(below.at, shares.data(), shares.size() * 8, cudaMemcpyHostToDevice));
            bench.make("zipf", "D3", exponent, Zipf{below.at, DISTINCT});
            bench.measure_schemes();
        }
    } else if (part == "coprocessor") {
        bench.measure_coprocessor();
    } else if (part == "columns" && !directory.empty()) {
        std::vector<std::filesystem::path> paths;
        for (const auto& entry : std::filesystem::directory_iterator(directory))
            if (entry.path().extension() == ".u32") paths.push_back(entry.path());
        std::sort(paths.begin(), paths.end());
        for (const auto& path : paths) {
            bench.load_file(path);
            bench.measure_schemes();
        }
    } else {
        fail(part + ": no such part, or no directory");
    }
}

int main(int count, char** arguments) {
    double values = 250e6;
    std::string directory;
    std::vector<std::string> parts;
    for (int k = 1; k < count; k++) {
        const std::string argument = arguments[k];
        if (argument == "--values" && k + 1 < count) values = atof(arguments[++k]);
        else if (argument == "--columns" && k + 1 < count) directory = arguments[++k];
        else parts.push_back(argument);
    }
    if (!(values >= TILE && values <= 5e8)) fail("between 512 and 5e8 values");
    if (parts.empty()) parts = {"blocks", "widths", "sorted", "normal", "zipf", "coprocessor"};
    Bench bench((u32)values);
    for (const auto& part : parts) run_part(part, bench, directory);
}
