// Text compressed and decompressed in device memory, in the container published for FSST on GPUs ("V5T" compresses it,
// "GSST" decompresses it), to compare with the published figures. docs/benchmarks.md has results.
//
//   nvcc -O3 -std=c++17 -arch=native -o v5t benches/papers/v5t.cu
//   ./v5t BYTES FILE...
//
// Each file is repeated to so many bytes, say 2e9. Prints ratios and speeds of all pipelines, and by size of the match
// table; for the first file also over links, and by size of tile and threads of a block. Times are medians of ROUNDS,
// after one that does not count. Every container is checked and decompressed, and the result compared with the text:
// the program fails if a byte differs. One is damaged: it must be found out, and the rest of the text right.
//
// A container, little-endian:
//
//   file header   48 bytes  `FileHeader`
//   tables                  back to back, each: u64 version << 32 | symbols << 8 | 1; u8 0; u8 number of symbols of 1,
//                           2, .. 8 bytes; then the symbols' bytes, in the order of codes, longest first. Zeros up to
//                           a multiple of 8
//   blocks                  for each a `BlockHeader` of 24 bytes, then a u32 for each split: bytes of its codes
//   data                    codes of all splits, back to back
//
// A split is the codes of a tile. All tiles have the same size, but for the last one. A block has as many tiles as the
// published decompressor has threads in a thread block, and TABLE_BYTES of text share a table. Code 255 says that a
// byte follows as it is. The publication does not say in which order its headers have the fields for splits: these
// follow the others here, as do offsets of table and data, which it suggests.

#include <cuda_runtime.h>

#include <cub/cub.cuh>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <thread>
#include <vector>

#define DEVICE __device__ __forceinline__

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef unsigned long long u64;

constexpr u32 ROUNDS = 5;
constexpr u32 USUAL_TILE = 10240, USUAL_SPLITS = 128;
constexpr u64 TABLE_BYTES = 48 * USUAL_SPLITS * USUAL_TILE;  // of text that has a table
constexpr u64 SLACK_BYTES = 256;               // that may be read behind a buffer
constexpr u32 VERSION = 20240131;
constexpr u32 TABLE_HEADER_BYTES = 17;
constexpr u32 MAX_TABLE_BYTES = TABLE_HEADER_BYTES + 255 * 8;
constexpr u32 ESCAPE = 255;
constexpr u32 PADDING = 0xFE, FOUR_PADDINGS = 0xFEFEFEFE;
constexpr u32 ALL = ~0u;

// ---- The container --------------------------------------------------------------------------------------------------

struct FileHeader {
    u64 compressed_bytes;  // of the whole container
    u64 text_bytes;
    u32 tables, table_bytes, blocks, unused;
    u16 warps, unused_too;  // of a block
    u32 splits;             // of a block
    u32 tile_bytes, unused_end;
};
static_assert(sizeof(FileHeader) == 48, "");

struct BlockHeader {
    u32 text_bytes, compressed_bytes;
    u16 flushes, unused;  // of the padded pipeline
    u32 table;            // where the table is, from the start of the container
    u64 data;             // where the codes are
};
static_assert(sizeof(BlockHeader) == 24, "");

// How text is cut, and where parts of the container are.
struct Layout {
    u64 text_bytes;
    u32 tile_bytes, splits;
    u32 table_bytes;

    __host__ __device__ u32 tables() const { return (u32)((text_bytes + TABLE_BYTES - 1) / TABLE_BYTES); }
    __host__ __device__ u32 tiles() const { return (u32)((text_bytes + tile_bytes - 1) / tile_bytes); }
    __host__ __device__ u32 blocks() const { return (tiles() + splits - 1) / splits; }
    __host__ __device__ u32 tiles_of_table() const { return (u32)(TABLE_BYTES / tile_bytes); }
    // Bytes of a tile; 0 of one behind the text.
    __host__ __device__ u32 bytes_of(u32 tile) const {
        const u64 start = (u64)tile * tile_bytes;
        return start >= text_bytes ? 0 : (u32)(text_bytes - start < tile_bytes ? text_bytes - start : tile_bytes);
    }
    __host__ __device__ u64 block_bytes() const { return (u64)tile_bytes * splits; }
    __host__ __device__ u64 header_bytes() const { return sizeof(BlockHeader) + (u64)splits * 4; }
    __host__ __device__ u64 headers_at() const { return sizeof(FileHeader) + table_bytes; }
    __host__ __device__ u64 data_at() const { return headers_at() + blocks() * header_bytes(); }
};

// ---- Symbols, and how the longest is found --------------------------------------------------------------------------

constexpr u32 SLOTS = 1024, MAX_LONG = 127;  // symbols of 3 bytes or more

__host__ DEVICE u32 slot_of(u32 three_bytes) {
    const u32 product = three_bytes * 2971215073u;
    return (product ^ product >> 15) & (SLOTS - 1);
}

struct Symbol {
    u64 bytes;  // the first is the lowest; those behind the symbol are 0
    u32 length;
};

// Symbols of 3 bytes or more. Their codes come first, so that a code is the number of an entry. Slots without a symbol
// have entry MAX_LONG, which is longer than any text.
struct LongSymbols {
    struct Entry {
        u32 low, high, length_and_shift;
    };
    Entry entries[MAX_LONG + 1];
    u8 slots[SLOTS];

    void fill(const std::vector<Symbol>& symbols) {
        memset(slots, MAX_LONG, sizeof slots);
        entries[MAX_LONG] = {0, 0, ~0u};
        for (u32 code = 0; code < symbols.size() && symbols[code].length > 2; code++) {
            const auto [bytes, length] = symbols[code];
            entries[code] = {(u32)bytes, (u32)(bytes >> 32), length << 8 | (64 - length * 8)};
            slots[slot_of(bytes & 0xffffff)] = (u8)code;
        }
    }

    // Sets `length` to 0 if there is none.
    DEVICE u32 longest(u64 text, u32 left, u32& length) const {
        const u32 code = slots[slot_of((u32)text & 0xffffff)];
        const Entry entry = entries[code];
        const u64 differs = (text ^ (entry.low | (u64)entry.high << 32)) << (entry.length_and_shift & 63);
        length = entry.length_and_shift >> 8;
        if (differs || length > left) length = 0;
        return code;
    }
};

// Symbols of 2 bytes in a match table: a row for each first byte, with two entries a word, of the second byte and the
// code + 1 each. All entries of a row are compared without a branch.
template <u32 ROWS_, u32 WORDS_>
struct MatchTable {
    static constexpr u32 ROWS = ROWS_, WORDS = WORDS_, THREADS = 0;  // as many threads as a block has splits
    LongSymbols longs;
    u8 singles[256], rows[256];
    u32 words[WORDS][ROWS];

    void fill(const std::vector<Symbol>& symbols) {
        longs.fill(symbols);
        memset(singles, ESCAPE, sizeof singles);
        memset(rows, 255, sizeof rows);
        memset(words, 0, sizeof words);
        u32 used = 0, entries[ROWS] = {};
        for (u32 code = 0; code < symbols.size(); code++) {
            const auto [bytes, length] = symbols[code];
            if (length == 1) singles[bytes] = (u8)code;
            if (length != 2) continue;
            u8& row = rows[bytes & 255];
            if (row == 255) row = (u8)used++;
            const u32 entry = entries[row]++;
            words[entry / 2][row] |= (u32)((bytes >> 8) << 8 | (code + 1)) << (entry % 2 ? 0 : 16);
        }
    }

    DEVICE u32 longest(u64 text, u32 left, u32& length) const {
        const u32 code = longs.longest(text, left, length);
        const u32 first = (u32)text & 255, second = (u32)text >> 8 & 255;
        const u32 row = rows[first];
        u32 pair = 0;
        if (row != 255 && left > 1) {
#pragma unroll
            for (u32 k = 0; k < WORDS; k++) {
                const u32 word = words[k][row];
                pair |= word >> 24 == second ? word >> 16 & 255 : 0;
                pair |= (word >> 8 & 255) == second ? word & 255 : 0;
            }
        }
        if (length) return code;
        length = pair ? 2 : 1;
        return pair ? pair - 1 : singles[first];
    }
};

// A code for all pairs of bytes: of the symbol of 2 bytes, else of the first byte. The two have different codes, so the
// length follows. Pairs that are alike are put apart, because they would be in the same banks of shared memory.
struct PairTable {
    static constexpr u32 ROWS = 256, WORDS = 128, THREADS = 512;
    LongSymbols longs;
    u32 pair_codes;  // the first code of one byte
    u8 singles[256];
    u8 codes[1 << 16];

    static __host__ DEVICE u32 place(u32 two_bytes) { return two_bytes * 40503 & 0xffff; }

    void fill(const std::vector<Symbol>& symbols) {
        longs.fill(symbols);
        memset(singles, ESCAPE, sizeof singles);
        pair_codes = 0;
        for (u32 code = 0; code < symbols.size(); code++) {
            if (symbols[code].length == 1) singles[symbols[code].bytes] = (u8)code;
            else pair_codes = code + 1;
        }
        for (u32 pair = 0; pair < 1 << 16; pair++) codes[place(pair)] = singles[pair & 255];
        for (u32 code = 0; code < symbols.size(); code++)
            if (symbols[code].length == 2) codes[place((u32)symbols[code].bytes)] = (u8)code;
    }

    DEVICE u32 longest(u64 text, u32 left, u32& length) const {
        const u32 code = longs.longest(text, left, length);
        const u32 short_code = codes[place((u32)text & 0xffff)];
        if (length) return code;
        length = short_code < pair_codes ? 2 : 1;
        if (length <= left) return short_code;
        length = 1;
        return singles[text & 255];
    }
};

// ---- Learning symbols -----------------------------------------------------------------------------------------------

constexpr u32 SAMPLE_CHUNKS = 32, CHUNK_BYTES = 512, SAMPLE_BYTES = SAMPLE_CHUNKS * CHUNK_BYTES;
constexpr u64 FIRST_RANDOM = 4637947;

__host__ DEVICE u64 next_random(u64 random) {
    const u64 product = random * 2971215073u;
    return product ^ product >> 15;
}

struct Caps {
    u32 symbols;        // codes from here on have no symbol
    u32 rows, row_pairs;  // first bytes of symbols of 2 bytes, and such symbols for each
};

// Learns the symbols of a sample, bottom up: text is encoded with what there is, and counts of symbols and of pairs of
// them say what to take next.
class Learner {
public:
    std::vector<Symbol> learn(const u8* sample, Caps caps) {
        static const u32 SHARES[] = {8, 38, 68, 98, 128};  // of 128, how much of the sample is encoded
        clear();
        for (u32 share : SHARES) {
            const bool is_last = share == 128;
            for (u32 chunk = 0; chunk * 128 < share * SAMPLE_CHUNKS; chunk++)
                count(sample + chunk * CHUNK_BYTES, CHUNK_BYTES, !is_last);
            propose();
            choose(caps, is_last);
        }
        std::stable_sort(symbols.begin(), symbols.end(), [](auto& a, auto& b) { return a.length > b.length; });
        return symbols;
    }

private:
    // Codes below BYTES are bytes as they are, others are symbols.
    static constexpr u32 BYTES = 256, CODES = 512;
    struct Candidate {
        Symbol symbol;
        u32 gain;
        bool operator<(const Candidate& other) const {
            return gain != other.gain ? gain < other.gain : symbol.bytes > other.symbol.bytes;
        }
    };

    std::vector<Symbol> symbols;
    u16 slots[SLOTS], pairs[1 << 16], singles[256];
    u32 counts[CODES] = {};
    std::vector<u32> pair_counts = std::vector<u32>(CODES * CODES);
    std::vector<u32> counted;  // pairs
    std::vector<Candidate> candidates;
    std::vector<u32> places = std::vector<u32>(1 << 15);  // of candidates, by hash; 0 is none

    void clear() {
        symbols.clear();
        memset(slots, 0, sizeof slots);
        memset(pairs, 0, sizeof pairs);
        memset(singles, 0, sizeof singles);
    }

    Symbol symbol(u32 code) const { return code < BYTES ? Symbol{code, 1} : symbols[code - BYTES]; }

    u32 find(u64 text, u32 left) const {
        if (const u32 code = slots[slot_of(text & 0xffffff)]) {
            const auto [bytes, length] = symbol(code);
            if (length <= left && (text ^ bytes) << (64 - length * 8) == 0) return code;
        }
        if (const u32 code = pairs[text & 0xffff]; code && left > 1) return code;
        const u32 code = singles[text & 255];
        return code ? code : text & 255;
    }

    void count_pair(u32 first, u32 second) {
        const u32 pair = first * CODES + second;
        if (pair_counts[pair]++ == 0) counted.push_back(pair);
    }

    void count(const u8* text, u32 bytes, bool with_pairs) {
        u32 before = CODES;
        for (u32 at = 0; at < bytes;) {
            u64 window = 0;
            memcpy(&window, text + at, std::min(8u, bytes - at));
            const u32 code = find(window, bytes - at), length = symbol(code).length;
            counts[code]++;
            // the first byte alone is worth a try as well
            if (length > 1) counts[window & 255]++;
            if (with_pairs && before < CODES) {
                count_pair(before, code);
                if (length > 1) count_pair(before, window & 255);
            }
            before = code;
            at += length;
        }
    }

    void add(Symbol symbol, u32 gain) {
        const u64 hash = (symbol.bytes + symbol.length) * 0x9E3779B97F4A7C15ull;
        u32 place = (u32)(hash >> 49);
        for (; places[place]; place = (place + 1) % places.size()) {
            Candidate& other = candidates[places[place] - 1];
            if (other.symbol.bytes == symbol.bytes && other.symbol.length == symbol.length) {
                other.gain += gain;
                return;
            }
        }
        candidates.push_back({symbol, gain});
        places[place] = (u32)candidates.size();
    }

    void propose() {
        candidates.clear();
        std::fill(places.begin(), places.end(), 0);
        for (u32 code = 0; code < BYTES + symbols.size(); code++) {
            const Symbol own = symbol(code);
            // a byte without a code takes two bytes
            if (counts[code]) add(own, counts[code] * own.length * (own.length == 1 ? 2 : 1));
            counts[code] = 0;
        }
        for (u32 pair : counted) {
            const Symbol first = symbol(pair / CODES), second = symbol(pair % CODES);
            if (first.length < 8) {
                const u32 length = std::min(8u, first.length + second.length);
                add({first.bytes | second.bytes << first.length * 8, length}, pair_counts[pair] * length);
            }
            pair_counts[pair] = 0;
        }
        counted.clear();
    }

    // Takes the candidates that gain most, but none that the encoder has no room for.
    void choose(Caps caps, bool is_last) {
        clear();
        u32 longs = 0, rows = 0, row_pairs[256] = {};
        std::make_heap(candidates.begin(), candidates.end());
        for (auto end = candidates.end(); end != candidates.begin() && symbols.size() < caps.symbols;) {
            std::pop_heap(candidates.begin(), end);
            const auto [bytes, length] = (--end)->symbol;
            const u16 code = (u16)(BYTES + symbols.size());
            if (length > 2) {
                u16& slot = slots[slot_of(bytes & 0xffffff)];
                if (slot || longs == MAX_LONG) continue;
                slot = code;
                longs++;
            } else if (length == 2) {
                u32& of_row = row_pairs[bytes & 255];
                if (is_last && (of_row ? of_row == caps.row_pairs : rows == caps.rows)) continue;
                rows += of_row++ == 0;
                pairs[bytes] = code;
            } else {
                singles[bytes] = code;
            }
            symbols.push_back({bytes, length});
        }
    }
};

// ---- Compression: kernels -------------------------------------------------------------------------------------------

__global__ void take_samples(const u8* text, Layout layout, u8* samples) {
    const u64 start = blockIdx.x * TABLE_BYTES;
    const u64 bytes = min(TABLE_BYTES, layout.text_bytes - start), chunks = max((u64)1, bytes / CHUNK_BYTES);
    u64 random = FIRST_RANDOM;
    for (u32 chunk = 0; chunk < SAMPLE_CHUNKS; chunk++) {
        random = next_random(random);
        const u64 from = start + random % chunks * CHUNK_BYTES;
        u8* const to = samples + blockIdx.x * SAMPLE_BYTES + chunk * CHUNK_BYTES;
        for (u32 k = threadIdx.x; k < CHUNK_BYTES; k += blockDim.x) to[k] = text[from + k];
    }
}

DEVICE void copy_words(const void* from, void* to, u32 bytes) {
    for (u32 k = threadIdx.x; k < bytes / 4; k += blockDim.x) ((u32*)to)[k] = __ldg((const u32*)from + k);
}

constexpr u32 SECTOR_WORDS = 4;  // 32 bytes

// Text from a multiple of 32 bytes on, 8 bytes of it at a time. It is loaded as memory has it, by sectors: the first
// cache seems to have no room for those of all threads, and loads of less were slower. Reads up to two sectors behind
// the text.
struct Window {
    const ulonglong2* next;
    u64 words[2 + SECTOR_WORDS];
    u32 shift, ahead;  // words that are loaded and not in use yet

    DEVICE Window(const u8* text) : next((const ulonglong2*)text), shift(0), ahead(2) {
        load(0);
        load(2);
    }
    DEVICE void load(u32 word) {
        const ulonglong2 two = __ldg(next++);
        words[word] = two.x;
        words[word + 1] = two.y;
    }
    DEVICE u64 text() const { return words[0] >> shift | words[1] << 1 << (63 - shift); }
    DEVICE void skip(u32 bytes) {
        shift += bytes * 8;
        if (shift < 64) return;
        shift -= 64;
#pragma unroll
        for (u32 k = 0; k <= SECTOR_WORDS; k++) words[k] = words[k + 1];
        if (--ahead) return;
#pragma unroll
        for (u32 k = 0; k < SECTOR_WORDS; k += 2) load(2 + k);
        ahead = SECTOR_WORDS;
    }
};

// Bytes on their way to memory, 8 at a time.
struct Codes {
    u64* to;
    u64 word;
    u32 bits;

    DEVICE void put(u64 value, u32 width) {
        word |= value << bits;
        bits += width;
        if (bits < 64) return;
        *to++ = word;
        bits -= 64;
        word = value >> (width - bits);
    }
};

// A thread a tile. Codes go to where twice the bytes of a tile have room.
template <class Table>
__global__ void __launch_bounds__(512, 3)
    encode(const u8* text, Layout layout, const Table* tables, u8* codes, u32* lengths) {
    extern __shared__ __align__(16) u8 shared[];
    copy_words(tables + blockIdx.y, shared, sizeof(Table));
    __syncthreads();
    const Table& table = *(const Table*)shared;
    const u32 in_table = blockIdx.x * blockDim.x + threadIdx.x;
    const u32 tile = blockIdx.y * layout.tiles_of_table() + in_table;
    if (in_table >= layout.tiles_of_table() || tile >= layout.tiles()) return;

    Window window(text + (u64)tile * layout.tile_bytes);
    u64* const start = (u64*)(codes + (u64)tile * layout.tile_bytes * 2);
    Codes out{start, 0, 0};
    for (u32 left = layout.bytes_of(tile); left;) {
        const u64 next = window.text();
        u32 length;
        const u32 code = table.longest(next, left, length);
        const bool is_escape = code == ESCAPE;
        out.put(code | (is_escape ? (next & 255) << 8 : 0), is_escape ? 16 : 8);
        window.skip(length);
        left -= length;
    }
    if (out.bits) *out.to = out.word;
    lengths[tile] = (u32)(out.to - start) * 8 + out.bits / 8;
}

// A warp a split: its codes go to where they belong.
__global__ void move_codes(const u8* codes, Layout layout, const u64* starts, u8* file) {
    const u32 lane = threadIdx.x % 32, tile = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    if (tile >= layout.tiles()) return;
    const u8* const from = codes + (u64)tile * layout.tile_bytes * 2;
    u8* const to = file + layout.data_at() + starts[tile];
    const u32 bytes = (u32)(starts[tile + 1] - starts[tile]);
    // up to a word of 16 bytes, then words, then the rest
    const u32 before = min(bytes, (u32)(16 - ((u64)to & 15)) & 15), words = (bytes - before) / 16;
    if (lane < before) to[lane] = from[lane];
    const u32* const in = (const u32*)(from + (before & ~3u));
    const u32 shift = before % 4 * 8;
    for (u32 k = lane; k < words; k += 32) {
        u32 in_words[5];
#pragma unroll
        for (u32 i = 0; i < 5; i++) in_words[i] = in[k * 4 + i];
        uint4 word;
        word.x = __funnelshift_r(in_words[0], in_words[1], shift);
        word.y = __funnelshift_r(in_words[1], in_words[2], shift);
        word.z = __funnelshift_r(in_words[2], in_words[3], shift);
        word.w = __funnelshift_r(in_words[3], in_words[4], shift);
        ((uint4*)(to + before))[k] = word;
    }
    const u32 behind = before + words * 16;
    if (lane < bytes - behind) to[behind + lane] = from[behind + lane];
}

// A thread block a block, a thread a split. The host has written the file header and tables, and `table_starts`.
__global__ void write_headers(Layout layout, const u32* table_starts, const u64* starts, const u32* flushes, u8* file) {
    const u32 first = blockIdx.x * layout.splits, tile = first + threadIdx.x;
    const u32 end = min(first + layout.splits, layout.tiles());
    u8* const at = file + layout.headers_at() + blockIdx.x * layout.header_bytes();
    ((u32*)(at + sizeof(BlockHeader)))[threadIdx.x] = tile < end ? (u32)(starts[tile + 1] - starts[tile]) : 0;
    if (threadIdx.x) return;
    BlockHeader& header = *(BlockHeader*)at;
    header.text_bytes = (u32)min(layout.block_bytes(), layout.text_bytes - blockIdx.x * layout.block_bytes());
    header.compressed_bytes = (u32)(starts[end] - starts[first]);
    header.flushes = flushes ? (u16)flushes[blockIdx.x] : 0;
    header.unused = 0;
    header.table = table_starts[first / layout.tiles_of_table()];
    header.data = layout.data_at() + starts[first];
    if (end == layout.tiles()) ((FileHeader*)file)->compressed_bytes = layout.data_at() + starts[end];
}

// The published pipeline. A thread has a tile, and a column of two rings in shared memory: 16 words of text, of which 8
// are loaded at a time, and 8 words of codes, which are padding at first. After each step a warp votes: if all its
// lanes are behind the oldest word, or one could run out of room, the word is flushed, and lanes that are still within
// it skip what is left. So a flush writes a row of words side by side. All warps of a block end with as many flushes.
constexpr u32 TEXT_WORDS = 16, CODE_WORDS = 8, LOADED_BYTES = 32;

__host__ __device__ u32 max_flushes(u32 tile_bytes) { return (tile_bytes * 2 / 4 + CODE_WORDS + 31) / 32 * 32; }

template <class Table>
__global__ void encode_padded(const u8* text, Layout layout, const Table* tables, u32* rows, u32* lengths, u32* flushes,
                              u32* failed) {
    extern __shared__ __align__(16) u8 shared[];
    __shared__ u32 most_flushes;
    copy_words(tables + blockIdx.y, shared, sizeof(Table));
    const Table& table = *(const Table*)shared;
    const u32 threads = blockDim.x, block = blockIdx.y * (layout.tiles_of_table() / threads) + blockIdx.x;
    const u32 tile = block * threads + threadIdx.x;
    if (block >= layout.blocks()) return;
    u32* const in = (u32*)(shared + sizeof(Table)) + threadIdx.x;
    u32* const out = in + TEXT_WORDS * threads;
    for (u32 k = 0; k < CODE_WORDS; k++) out[k * threads] = FOUR_PADDINGS;
    if (threadIdx.x == 0) most_flushes = 0;
    __syncthreads();

    const u32 bytes = layout.bytes_of(tile), limit = max_flushes(layout.tile_bytes);
    const uint4* from = (const uint4*)(text + (u64)tile * layout.tile_bytes);
    u32* const to = rows + (u64)block * limit * threads + threadIdx.x;
    u32 at = 0, count = 0;  // bytes of text, and of codes without padding
    u32 head = 0, oldest = 0;  // the next byte of the ring, and its oldest word
    const auto flush = [&] {
        head = max(head, oldest * 4 + 4);
        u32& word = out[oldest % CODE_WORDS * threads];
        if (oldest < limit) to[(u64)oldest * threads] = word;
        word = FOUR_PADDINGS;
        oldest++;
    };
    const auto put = [&](u32 byte) {
        u32& word = out[head / 4 % CODE_WORDS * threads];
        const u32 shift = head % 4 * 8;
        word = (word & ~(255u << shift)) | byte << shift;
        head++;
        count++;
    };
    for (u32 loaded = 0; loaded < layout.tile_bytes;) {
#pragma unroll
        for (u32 k = 0; k < LOADED_BYTES / 16 && loaded < bytes; k++) {
            const uint4 four = __ldg(from++);
            u32* const words = in + (loaded / 4 % TEXT_WORDS + k * 4) * threads;
            words[0] = four.x;
            words[threads] = four.y;
            words[2 * threads] = four.z;
            words[3 * threads] = four.w;
        }
        loaded += LOADED_BYTES;
        while (true) {
            const bool is_active = at < bytes && (at + 8 <= loaded || loaded == layout.tile_bytes);
            if (!__any_sync(ALL, is_active)) break;
            if (is_active) {
                const u32 word = at / 4, shift = at % 4 * 8;
                const u32 a = in[word % TEXT_WORDS * threads], b = in[(word + 1) % TEXT_WORDS * threads];
                const u32 c = in[(word + 2) % TEXT_WORDS * threads];
                const u64 next = __funnelshift_r(a, b, shift) | (u64)__funnelshift_r(b, c, shift) << 32;
                u32 length;
                const u32 code = table.longest(next, bytes - at, length);
                put(code);
                if (code == ESCAPE) put((u32)next & 255);
                at += length;
            }
            const bool is_behind = head >= oldest * 4 + 4 || at == bytes;
            const bool is_short = head >= (oldest + CODE_WORDS) * 4 - 2;
            if (__all_sync(ALL, is_behind) || __any_sync(ALL, is_short)) flush();
        }
    }
    while (__any_sync(ALL, head > oldest * 4)) flush();
    if (threadIdx.x % 32 == 0) atomicMax(&most_flushes, (oldest + 31) / 32 * 32);
    __syncthreads();
    while (oldest < most_flushes) flush();
    if (tile < layout.tiles()) lengths[tile] = count;
    if (threadIdx.x) return;
    flushes[block] = most_flushes;
    if (most_flushes > limit) *failed = 1;
}

// Puts the words of each thread of a block side by side, by squares of 32. A block has a slot of the same size in both.
__global__ void transpose(const u32* rows, Layout layout, const u32* flushes, u32* columns) {
    __shared__ u32 square[32][33];
    const u32 lane = threadIdx.x, own = min(flushes[blockIdx.x], max_flushes(layout.tile_bytes));
    const u64 slot = (u64)blockIdx.x * max_flushes(layout.tile_bytes) * layout.splits;
    for (u32 first = 0; first < own; first += 32) {
        for (u32 k = threadIdx.y; k < 32; k += blockDim.y)
            square[k][lane] = rows[slot + (u64)(first + k) * layout.splits + blockIdx.y * 32 + lane];
        __syncthreads();
        for (u32 k = threadIdx.y; k < 32; k += blockDim.y)
            columns[slot + (u64)(blockIdx.y * 32 + k) * own + first + lane] = square[lane][k];
        __syncthreads();
    }
}

struct IsCode {
    __host__ __device__ bool operator()(u8 byte) const { return byte != PADDING; }
};

// ---- Decompression: kernels -----------------------------------------------------------------------------------------

enum Fault { BAD_HEADER = 1, BAD_TABLE = 2, BAD_CODES = 4 };

// The symbols of codes, which a thread block reads from a table of the container.
struct Expansion {
    u64 bytes[256];
    u32 lengths[256];  // NONE of codes without a symbol, 0 of the escape
    static constexpr u32 NONE = 1 << 20;  // more than a tile has; 256 of them can be added up

    // Called by all threads of a block. False if there is no such table.
    DEVICE bool read(const u8* file, const Layout& layout, u32 at) {
        const u64 end = layout.headers_at();
        if (at < sizeof(FileHeader) || at + TABLE_HEADER_BYTES > end) return false;
        const u8* const table = file + at;
        u64 head = 0;
        for (u32 k = 0; k < 8; k++) head |= (u64)table[k] << k * 8;
        u32 symbols = 0, all_bytes = 0;
        for (u32 length = 1; length <= 8; length++) {
            symbols += table[8 + length];
            all_bytes += table[8 + length] * length;
        }
        const u64 expected = (u64)VERSION << 32 | symbols << 8 | 1;
        if (symbols > 255 || head != expected || table[8] || at + TABLE_HEADER_BYTES + all_bytes > end) return false;
        for (u32 code = threadIdx.x; code < 256; code += blockDim.x) {
            u32 length = 8, before = 0, from = TABLE_HEADER_BYTES;
            while (length && code >= before + table[8 + length]) {
                before += table[8 + length];
                from += table[8 + length] * length;
                length--;
            }
            from += (code - before) * length;
            u64 own = 0;
            for (u32 k = 0; k < length; k++) own |= (u64)table[from + k] << k * 8;
            bytes[code] = own;
            lengths[code] = code == ESCAPE ? 0 : length ? length : NONE;
        }
        return true;
    }
};

// Text on its way to memory, from a multiple of 16 bytes on.
struct Text {
    u64* to;
    u64 first, word;
    u32 bits;
    bool has_first;

    DEVICE Text(u8* at) : to((u64*)at), first(0), word(0), bits(0), has_first(false) {}

    DEVICE void put(u64 bytes, u32 length) {
        word |= bytes << bits;
        bits += length * 8;
        if (bits < 64) return;
        if (has_first) {
            *(ulonglong2*)to = make_ulonglong2(first, word);
            to += 2;
        } else {
            first = word;
        }
        has_first = !has_first;
        bits -= 64;
        word = bits ? bytes >> (length * 8 - bits) : 0;
    }

    DEVICE void finish() {
        if (has_first) *to++ = first;
        for (u32 k = 0; k < bits; k += 8) ((u8*)to)[k / 8] = (u8)(word >> k);
    }
};

// Start of a thread's split, relative to the block's codes. Sets `sum` to the bytes of all. All threads call this.
DEVICE u64 sum_before(u32 own, u64& sum) {
    __shared__ u64 warps[32];
    const u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    u64 total = own;
    for (u32 step = 1; step < 32; step *= 2) {
        const u64 other = __shfl_up_sync(ALL, total, step);
        if (lane >= step) total += other;
    }
    if (lane == 31) warps[warp] = total;
    __syncthreads();
    u64 before = total - own;
    sum = 0;
    for (u32 k = 0; k < blockDim.x / 32; k++) {
        if (k < warp) before += warps[k];
        sum += warps[k];
    }
    return before;
}

// A block of the container, as a thread block reads it that has at least as many threads as the block has splits.
struct Block {
    u64 start;  // of the codes of this thread's split
    u32 codes;  // bytes

    // Called by all threads. False if it is not sound.
    DEVICE bool read(const u8* file, u64 file_bytes, const Layout& layout, Expansion& table, u32* faults) {
        const u8* const at = file + layout.headers_at() + blockIdx.x * layout.header_bytes();
        const BlockHeader header = *(const BlockHeader*)at;
        codes = threadIdx.x < layout.splits ? ((const u32*)(at + sizeof(BlockHeader)))[threadIdx.x] : 0;
        u64 sum;
        start = header.data + sum_before(codes, sum);
        const u64 left = layout.text_bytes - blockIdx.x * layout.block_bytes();
        const bool is_sound = sum == header.compressed_bytes && header.text_bytes == min(layout.block_bytes(), left) &&
                              header.data >= layout.data_at() && header.data <= file_bytes &&
                              sum <= file_bytes - header.data;
        const bool has_table = is_sound && table.read(file, layout, header.table);
        __syncthreads();
        if (!has_table && threadIdx.x == 0) atomicOr(faults, (u32)(is_sound ? BAD_TABLE : BAD_HEADER));
        return has_table;
    }
};

// As published: a thread block a block, a thread a split. No split writes more than its tile, regardless of its codes.
__global__ void decode(const u8* file, u64 file_bytes, Layout layout, u8* text, u32* faults) {
    __shared__ Expansion table;
    Block block;
    if (!block.read(file, file_bytes, layout, table, faults)) return;

    const u32 tile = blockIdx.x * layout.splits + threadIdx.x, codes = block.codes;
    u32 left = layout.bytes_of(tile);
    Text out(text + (u64)tile * layout.tile_bytes);
    const u64* next = (const u64*)(file + (block.start & ~7ull));
    u32 bytes = (u32)(block.start & 7);  // of the word that were taken
    u64 word = codes ? __ldg(next++) >> bytes * 8 : 0, ahead = codes ? __ldg(next++) : 0;
    bool is_escaped = false;
    u32 k = 0;
    for (; k < codes; k++) {
        const u32 code = (u32)word & 255;
        word >>= 8;
        if (++bytes == 8) {
            bytes = 0;
            word = ahead;
            ahead = __ldg(next++);
        }
        const u32 length = is_escaped ? 1 : table.lengths[code];
        const u64 symbol = is_escaped ? code : table.bytes[code];
        is_escaped = length == 0;
        if (length > left) break;
        if (length) out.put(symbol, length);
        left -= length;
    }
    out.finish();
    if (k < codes || left || is_escaped) atomicOr(faults, (u32)BAD_CODES);
}

// The output of a lane to a stage of its warp: words of 4 bytes as they fill up. The first may lack the bytes of
// earlier lanes.
struct Piece {
    u32* to;
    u32 word, bytes;

    DEVICE void put(u64 symbol, u32 length) {
        const u32 shift = bytes * 8, low = (u32)symbol, high = (u32)(symbol >> 32);
        const u32 a = word | low << shift, b = __funnelshift_l(low, high, shift), c = __funnelshift_l(high, 0, shift);
        bytes += length;
        if (bytes >= 4) to[0] = a;
        if (bytes >= 8) to[1] = b;
        word = bytes >= 8 ? c : bytes >= 4 ? b : a;
        to += bytes / 4;
        bytes %= 4;
    }
};

// A warp decodes a split: each lane 8 codes at a time, to a stage in shared memory, and from there whole words of 16
// bytes go to memory.
constexpr u32 DECODING_WARPS = 8, STAGE_WORDS = (32 * 8 * 8 + 16) / 4, SPLITS_OF_WARP_BYTES = 20480, MAX_SPLITS = 256;

DEVICE bool decode_split(const Expansion& table, const u8* codes, u32 count, u8* text, u32 left, u32* stage) {
    const u32 lane = threadIdx.x % 32, shift = (u32)((u64)codes & 3) * 8;
    const u32* const words = (const u32*)(codes - shift / 8);
    u32 head = 0;  // bytes of the stage that are not in memory yet
    bool is_escaped = false;
    for (u32 at = 0; at < count; at += 32 * 8) {
        const u32 first = at + lane * 8, own = first < count ? min(count - first, 8u) : 0;
        u32 in[3] = {};
#pragma unroll
        for (u32 k = 0; k < 3; k++)
            if (own) in[k] = __ldg(words + first / 4 + k);
        const u32 four[2] = {__funnelshift_r(in[0], in[1], shift), __funnelshift_r(in[1], in[2], shift)};

        // mask of literal bytes: the state between lanes is that after the last lane with a byte other than 255
        u32 escapes = 0, literals = 0;
#pragma unroll
        for (u32 k = 0; k < 8; k++) escapes |= (u32)((four[k / 4] >> k % 4 * 8 & 255) == ESCAPE && k < own) << k;
        if (is_escaped || __any_sync(ALL, escapes)) {
            // with an even number of 255 all through, a lane ends as it starts
            const u32 run = __clz(~(escapes << 24));
            const bool all = escapes == 255, ends_escaped = run % 2;
            const u32 known = __ballot_sync(ALL, !all), ends = __ballot_sync(ALL, !all && ends_escaped);
            const u32 before = known & ((1u << lane) - 1);
            bool within = before ? ends >> (31 - __clz(before)) & 1 : is_escaped;
#pragma unroll
            for (u32 k = 0; k < 8; k++) {
                literals |= (u32)within << k;
                if (k < own) within = !within && escapes >> k & 1;
            }
            is_escaped = __shfl_sync(ALL, within, 31 - __clz(__ballot_sync(ALL, own)));
        }

        u32 lengths[8], own_bytes = 0;
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            lengths[k] = k >= own ? 0 : literals >> k & 1 ? 1 : table.lengths[four[k / 4] >> k % 4 * 8 & 255];
            own_bytes += lengths[k];
        }
        u32 last = own_bytes;
#pragma unroll
        for (u32 step = 1; step < 32; step *= 2) {
            const u32 other = __shfl_up_sync(ALL, last, step);
            if (lane >= step) last += other;
        }
        const u32 all_bytes = __shfl_sync(ALL, last, 31);
        if (all_bytes > left) return false;
        left -= all_bytes;

        const u32 end = head + last, place = end - own_bytes;
        Piece piece{stage + place / 4, 0, place % 4};
        if (lane == 0) piece.word = *piece.to & ((1u << place % 4 * 8) - 1);
        __syncwarp();
        stage[end / 4] = 0;
        __syncwarp();
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            const u32 code = four[k / 4] >> k % 4 * 8 & 255;
            piece.put(k >= own ? 0 : literals >> k & 1 ? code : table.bytes[code], lengths[k]);
        }
        __syncwarp();
        if (piece.word) atomicOr(piece.to, piece.word);
        __syncwarp();
        head += all_bytes;
        const u32 whole = head / 16;
        for (u32 k = lane; k < whole; k += 32) ((uint4*)text)[k] = ((const uint4*)stage)[k];
        const u32 rest = stage[whole * 4 + lane % 4];
        __syncwarp();
        if (lane < 4) stage[lane] = rest;
        __syncwarp();
        text += whole * 16;
        head %= 16;
    }
    if (lane < head) text[lane] = ((const u8*)stage)[lane];
    return !left && !is_escaped;
}

// Some thread blocks a block.
__global__ void __launch_bounds__(DECODING_WARPS * 32, 5)
    decode_by_warps(const u8* file, u64 file_bytes, Layout layout, u8* text, u32* faults) {
    __shared__ Expansion table;
    __shared__ u64 starts[MAX_SPLITS];
    __shared__ u32 counts[MAX_SPLITS];
    __shared__ __align__(16) u32 stages[DECODING_WARPS][STAGE_WORDS];
    Block block;
    if (!block.read(file, file_bytes, layout, table, faults)) return;
    if (threadIdx.x < layout.splits) {
        starts[threadIdx.x] = block.start;
        counts[threadIdx.x] = block.codes;
    }
    __syncthreads();
    const u32 warp = threadIdx.x / 32;
    for (u32 split = blockIdx.y * DECODING_WARPS + warp; split < layout.splits; split += gridDim.y * DECODING_WARPS) {
        const u32 tile = blockIdx.x * layout.splits + split;
        u8* const to = text + (u64)tile * layout.tile_bytes;
        if (!decode_split(table, file + starts[split], counts[split], to, layout.bytes_of(tile), stages[warp]))
            atomicOr(faults, (u32)BAD_CODES);
    }
}

__global__ void compare(const u64* a, const u64* b, u64 from, u64 to, u64* differing) {
    const u64 threads = (u64)gridDim.x * blockDim.x;
    u64 own = 0;
    for (u64 k = from + blockIdx.x * (u64)blockDim.x + threadIdx.x; k < to; k += threads) own += a[k] != b[k];
    if (own) atomicAdd(differing, own);
}

// ---- The host's part ------------------------------------------------------------------------------------------------

void fail(const std::string& why) {
    fprintf(stderr, "%s\n", why.c_str());
    exit(1);
}

void check(cudaError_t result, const char* call) {
    if (result != cudaSuccess) fail(std::string(call) + ": " + cudaGetErrorString(result));
}
#define CHECK(call) check(call, #call)

void require(bool condition, const char* what) {
    if (!condition) fail(std::string("a container is wrong: ") + what);
}

// Memory of the device. What is behind it can be read.
template <class T>
struct Buffer {
    T* at = nullptr;
    u64 count = 0;

    void reserve(u64 wanted) {
        if (wanted <= count) return;
        if (at) CHECK(cudaFree(at));
        CHECK(cudaMalloc((void**)&at, wanted * sizeof(T) + SLACK_BYTES));
        count = wanted;
    }
};

template <class T>
T* pinned(u64 count) {
    void* at;
    CHECK(cudaMallocHost(&at, count * sizeof(T)));
    return (T*)at;
}

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
}

typedef std::chrono::steady_clock Clock;
double milliseconds_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

typedef std::map<std::string, std::vector<double>> Times;  // milliseconds of each step, by round

// Times of steps on the device, one behind the other.
class Steps {
public:
    Steps() {
        for (auto& event : events) CHECK(cudaEventCreate(&event));
    }
    void start() {
        count = 0;
        CHECK(cudaEventRecord(events[0]));
    }
    void end(const char* step) {
        names[count++] = step;
        CHECK(cudaEventRecord(events[count]));
    }
    void finish(Times& times) {
        CHECK(cudaEventSynchronize(events[count]));
        CHECK(cudaGetLastError());
        for (u32 k = 0; k < count; k++) times[names[k]].push_back(between(k, k + 1));
        times["device"].push_back(between(0, count));
    }

private:
    static constexpr u32 MOST = 8;
    cudaEvent_t events[MOST + 1];
    const char* names[MOST];
    u32 count = 0;

    double between(u32 first, u32 last) const {
        float time;
        CHECK(cudaEventElapsedTime(&time, events[first], events[last]));
        return time;
    }
};

struct Result {
    std::map<std::string, double> times;  // milliseconds
    double ratio;
    u64 text_bytes;
    double speed(const std::string& step) const { return (double)text_bytes / times.at(step) / 1e6; }
};

enum Pipeline { EXACT, PADDED };

// All buffers, and the state that all containers of a text share.
struct Bench {
    u64 text_bytes = 0;
    bool has_padding = false;  // a byte that the padded pipeline would take for its own
    Buffer<u8> text, codes, file, decoded, samples, tables, temporary;
    Buffer<u32> lengths, flushes, table_starts, faults;
    Buffer<u64> starts, differing, selected;
    u8 *host_samples, *host_head, *host_tables;
    std::vector<Learner> learners = std::vector<Learner>(std::max(1u, std::thread::hardware_concurrency()));
    std::vector<std::vector<Symbol>> learned;  // of each table
    u32* host_flushes;
    Steps steps;

    static constexpr u32 MAX_TABLES = 256, MAX_BLOCKS = 1 << 18;
    static constexpr u64 MAX_HEAD = sizeof(FileHeader) + MAX_TABLES * MAX_TABLE_BYTES;

    Bench() {
        host_samples = pinned<u8>((u64)MAX_TABLES * SAMPLE_BYTES);
        host_head = pinned<u8>(MAX_HEAD);
        host_tables = pinned<u8>((u64)MAX_TABLES * sizeof(PairTable));
        host_flushes = pinned<u32>(MAX_BLOCKS);
        samples.reserve((u64)MAX_TABLES * SAMPLE_BYTES);
        tables.reserve((u64)MAX_TABLES * sizeof(PairTable));
        table_starts.reserve(MAX_TABLES);
        flushes.reserve(MAX_BLOCKS);
        faults.reserve(1);
        differing.reserve(1);
        selected.reserve(1);
    }

    void load(const std::string& path, u64 bytes) {
        std::ifstream in(path, std::ios::binary);
        const std::vector<char> own((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
        if (own.empty()) fail("cannot read " + path);
        text_bytes = bytes;
        has_padding = std::find(own.begin(), own.end(), (char)PADDING) != own.end();
        if ((text_bytes + TABLE_BYTES - 1) / TABLE_BYTES > MAX_TABLES) fail("too many bytes");
        text.reserve(bytes);
        decoded.reserve(bytes);
        for (u64 at = 0; at < bytes; at += own.size())
            CHECK(cudaMemcpy(text.at + at, own.data(), std::min<u64>(own.size(), bytes - at), cudaMemcpyHostToDevice));
        CHECK(cudaMemset(text.at + bytes, 0, SLACK_BYTES));
    }

    Layout layout(u32 tile_bytes, u32 splits) const { return {text_bytes, tile_bytes, splits, 0}; }

    // Learns tables on all cores, which make of them what the encoder needs, too.
    template <class Table>
    void learn(Caps caps, Times& times) {
        const Layout any = layout(USUAL_TILE, USUAL_SPLITS);
        auto start = Clock::now();
        learned.resize(any.tables());
        take_samples<<<any.tables(), 128>>>(text.at, any, samples.at);
        CHECK(cudaMemcpy(host_samples, samples.at, learned.size() * SAMPLE_BYTES, cudaMemcpyDeviceToHost));
        times["sample"].push_back(milliseconds_since(start));
        start = Clock::now();
        std::atomic<u32> next{0};
        std::vector<std::thread> threads;
        for (auto& learner : learners)
            threads.emplace_back([&] {
                for (u32 table; (table = next++) < learned.size();) {
                    learned[table] = learner.learn(host_samples + (u64)table * SAMPLE_BYTES, caps);
                    ((Table*)host_tables)[table].fill(learned[table]);
                }
            });
        for (auto& thread : threads) thread.join();
        times["learn"].push_back(milliseconds_since(start));
    }

    // Puts what was learned into the container and, as the encoder needs it, into device memory. Sets where the rest
    // goes.
    template <class Table>
    void put_tables(Layout& layout) {
        std::vector<u32> starts_of;
        u64 at = sizeof(FileHeader);
        for (const auto& symbols : learned) {
            starts_of.push_back((u32)at);
            const u64 head = (u64)VERSION << 32 | symbols.size() << 8 | 1;
            memcpy(host_head + at, &head, 8);
            memset(host_head + at + 8, 0, 9);
            for (const auto& symbol : symbols) host_head[at + 8 + symbol.length]++;
            at += TABLE_HEADER_BYTES;
            for (const auto& symbol : symbols) {
                memcpy(host_head + at, &symbol.bytes, symbol.length);
                at += symbol.length;
            }
        }
        for (; at % 8; at++) host_head[at] = 0;
        layout.table_bytes = (u32)(at - sizeof(FileHeader));
        FileHeader header{};
        header.text_bytes = layout.text_bytes;
        header.tables = (u32)learned.size();
        header.table_bytes = layout.table_bytes;
        header.blocks = layout.blocks();
        header.warps = (u16)(layout.splits / 32);
        header.splits = layout.splits;
        header.tile_bytes = layout.tile_bytes;
        memcpy(host_head, &header, sizeof header);

        // at the worst, each byte is escaped, and blocks have padding
        const u64 max_bytes = (u64)max_flushes(layout.tile_bytes) * layout.splits * 4 * layout.blocks();
        codes.reserve(max_bytes);
        file.reserve((layout.data_at() + 15) / 16 * 16 + max_bytes);
        lengths.reserve(layout.tiles() + 1);
        starts.reserve(layout.tiles() + 1);
        CHECK(cudaMemcpyAsync(file.at, host_head, at, cudaMemcpyHostToDevice));
        CHECK(cudaMemcpyAsync(tables.at, host_tables, learned.size() * sizeof(Table), cudaMemcpyHostToDevice));
        CHECK(cudaMemcpyAsync(table_starts.at, starts_of.data(), starts_of.size() * 4, cudaMemcpyHostToDevice));
        CHECK(cudaMemsetAsync(lengths.at + layout.tiles(), 0, 4));
        CHECK(cudaMemsetAsync(faults.at, 0, 4));
    }

    void scan(const Layout& layout) {
        const auto run = [&](void* memory, size_t& bytes) {
            CHECK(cub::DeviceScan::ExclusiveScan(memory, bytes, lengths.at, starts.at, cuda::std::plus<u64>(), (u64)0,
                                                 (int)layout.tiles() + 1));
        };
        size_t bytes = 0;
        run(nullptr, bytes);
        temporary.reserve(bytes);
        run(temporary.at, bytes);
    }

    template <class Table>
    void compress_exact(const Layout& layout) {
        const u32 threads = Table::THREADS ? Table::THREADS : layout.splits;
        const dim3 grid((layout.tiles_of_table() + threads - 1) / threads, layout.tables());
        CHECK(cudaFuncSetAttribute(encode<Table>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)sizeof(Table)));
        encode<Table><<<grid, threads, sizeof(Table)>>>(text.at, layout, (const Table*)tables.at, codes.at, lengths.at);
        steps.end("encode");
        scan(layout);
        write_headers<<<layout.blocks(), layout.splits>>>(layout, table_starts.at, starts.at, nullptr, file.at);
        steps.end("scan");
        move_codes<<<(layout.tiles() + 7) / 8, 256>>>(codes.at, layout, starts.at, file.at);
        steps.end("move");
    }

    template <class Table>
    void compress_padded(const Layout& layout) {
        const u32 limit = max_flushes(layout.tile_bytes);
        const u64 slot_bytes = (u64)limit * layout.splits * 4;
        const size_t shared = sizeof(Table) + (TEXT_WORDS + CODE_WORDS) * 4 * layout.splits;
        const dim3 grid(layout.tiles_of_table() / layout.splits, layout.tables());
        u8* const columns = file.at + (layout.data_at() + 15) / 16 * 16;
        CHECK(cudaFuncSetAttribute(encode_padded<Table>, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)shared));
        encode_padded<Table><<<grid, layout.splits, shared>>>(text.at, layout, (const Table*)tables.at, (u32*)codes.at,
                                                              lengths.at, flushes.at, faults.at);
        steps.end("encode");
        transpose<<<dim3(layout.blocks(), layout.splits / 32), dim3(32, 8)>>>((const u32*)codes.at, layout, flushes.at,
                                                                              (u32*)columns);
        steps.end("transpose");
        CHECK(cudaMemcpy(host_flushes, flushes.at, (u64)layout.blocks() * 4, cudaMemcpyDeviceToHost));
        u64 padded = 0;
        for (u32 block = 0; block < layout.blocks(); block++) {
            const u64 bytes = (u64)std::min(host_flushes[block], limit) * layout.splits * 4;
            CHECK(cudaMemcpyAsync(codes.at + padded, columns + block * slot_bytes, bytes, cudaMemcpyDeviceToDevice));
            padded += bytes;
        }
        steps.end("gather");
        const auto run = [&](void* memory, size_t& bytes) {
            CHECK(cub::DeviceSelect::If(memory, bytes, codes.at, file.at + layout.data_at(), selected.at,
                                        (long long)padded, IsCode()));
        };
        size_t bytes = 0;
        run(nullptr, bytes);
        temporary.reserve(bytes);
        run(temporary.at, bytes);
        steps.end("compact");
        scan(layout);
        write_headers<<<layout.blocks(), layout.splits>>>(layout, table_starts.at, starts.at, flushes.at, file.at);
        steps.end("scan");
    }

    template <class Table>
    void compress(Pipeline pipeline, const Layout& layout) {
        pipeline == EXACT ? compress_exact<Table>(layout) : compress_padded<Table>(layout);
    }

    // Where parts of a container are that lies in device memory; fails if it is not sound.
    Layout parse(u64& file_bytes) {
        FileHeader header;
        CHECK(cudaMemcpy(&header, file.at, sizeof header, cudaMemcpyDeviceToHost));
        const Layout layout{header.text_bytes, header.tile_bytes, header.splits, header.table_bytes};
        require(layout.splits && layout.splits <= MAX_SPLITS && layout.splits % 32 == 0, "splits of a block");
        require(layout.tile_bytes && layout.tile_bytes % 16 == 0, "bytes of a tile");
        require(layout.tile_bytes < Expansion::NONE, "bytes of a tile");
        require(layout.text_bytes && layout.text_bytes <= text_bytes, "bytes of text");
        require(header.table_bytes % 8 == 0 && TABLE_BYTES % layout.block_bytes() == 0, "tables");
        require(header.tables == layout.tables() && header.blocks == layout.blocks(), "number of tables or blocks");
        require(header.warps == layout.splits / 32, "warps");
        require(header.compressed_bytes >= layout.data_at() && header.compressed_bytes <= file.count, "bytes in all");
        file_bytes = header.compressed_bytes;
        return layout;
    }

    // Checks all headers.
    void check_headers(const Layout& layout, u64 file_bytes) {
        std::vector<u8> head(layout.data_at());
        CHECK(cudaMemcpy(head.data(), file.at, head.size(), cudaMemcpyDeviceToHost));
        u64 data = layout.data_at(), all_text = 0;
        for (u32 block = 0; block < layout.blocks(); block++) {
            const u8* const at = head.data() + layout.headers_at() + block * layout.header_bytes();
            BlockHeader header;
            memcpy(&header, at, sizeof header);
            u64 sum = 0;
            for (u32 split = 0; split < layout.splits; split++) {
                u32 codes_bytes;
                memcpy(&codes_bytes, at + sizeof header + split * 4, 4);
                require(codes_bytes <= 2 * layout.bytes_of(block * layout.splits + split), "bytes of a split");
                sum += codes_bytes;
            }
            require(header.data == data && header.compressed_bytes == sum, "where a block is");
            data += sum;
            all_text += header.text_bytes;
        }
        require(data == file_bytes && all_text == layout.text_bytes, "the sum of all blocks");
    }

    void decompress(bool by_warps, const Layout& layout, u64 file_bytes) {
        const u32 splits_of_warp = std::max(1u, SPLITS_OF_WARP_BYTES / layout.tile_bytes);
        const dim3 parts(layout.blocks(), std::max(1u, layout.splits / (DECODING_WARPS * splits_of_warp)));
        if (by_warps)
            decode_by_warps<<<parts, DECODING_WARPS * 32>>>(file.at, file_bytes, layout, decoded.at, faults.at);
        else
            decode<<<layout.blocks(), layout.splits>>>(file.at, file_bytes, layout, decoded.at, faults.at);
    }

    u32 read_faults() {
        u32 found;
        CHECK(cudaMemcpy(&found, faults.at, 4, cudaMemcpyDeviceToHost));
        return found;
    }

    // From a multiple of 8 bytes on.
    void check_text(u64 from) {
        const u64 words = text_bytes / 8;
        u64 found;
        CHECK(cudaMemset(differing.at, 0, 8));
        compare<<<1024, 256>>>((const u64*)text.at, (const u64*)decoded.at, from / 8, words, differing.at);
        CHECK(cudaMemcpy(&found, differing.at, 8, cudaMemcpyDeviceToHost));
        std::vector<u8> ends(2 * (text_bytes % 8));
        CHECK(cudaMemcpy(ends.data(), text.at + words * 8, text_bytes % 8, cudaMemcpyDeviceToHost));
        CHECK(cudaMemcpy(ends.data() + text_bytes % 8, decoded.at + words * 8, text_bytes % 8, cudaMemcpyDeviceToHost));
        if (found || memcmp(ends.data(), ends.data() + text_bytes % 8, text_bytes % 8))
            fail("decompressed text differs from the text");
    }

    // Codes of the first tile that expand to too much text must not reach the next one.
    void check_damage() {
        u64 file_bytes;
        const Layout found = parse(file_bytes);
        if (found.tiles() == 1) return;
        CHECK(cudaMemset(file.at + found.data_at(), 0, found.tile_bytes / 8));
        for (const bool by_warps : {false, true}) {
            CHECK(cudaMemset(decoded.at, 0xA5, text_bytes));
            decompress(by_warps, found, file_bytes);
            if (read_faults() != BAD_CODES) fail("damage was not found");
            check_text(found.tile_bytes);
            CHECK(cudaMemset(faults.at, 0, 4));
        }
    }

    // Creates, checks and decompresses a container of the text, and compares the result. Tables are learned once, or
    // each time anew.
    template <class Table>
    Result measure(Pipeline pipeline, u32 tile_bytes, u32 splits, bool learns_anew = false) {
        // padding is no code, nor are two that the publication reserves
        const Caps caps{pipeline == PADDED ? 253u : 255u, Table::ROWS, Table::WORDS * 2};
        Times times;
        Layout own = layout(tile_bytes, splits);
        for (u32 round = 0; round <= ROUNDS; round++) {
            if (round == 1) times.clear();
            const auto start = Clock::now();
            if (learns_anew || !round) learn<Table>(caps, times);
            const auto putting = Clock::now();
            put_tables<Table>(own);
            CHECK(cudaDeviceSynchronize());
            times["tables"].push_back(milliseconds_since(putting));
            steps.start();
            compress<Table>(pipeline, own);
            steps.finish(times);
            times["all"].push_back(milliseconds_since(start));
        }
        if (read_faults()) fail("codes take too much room");
        u64 file_bytes;
        const Layout found = parse(file_bytes);
        check_headers(found, file_bytes);
        for (const bool by_warps : {false, true}) {
            const char* const name = by_warps ? "decode by warps" : "decode";
            for (u32 round = 0; round <= ROUNDS; round++) {
                CHECK(cudaMemset(decoded.at, 0xA5, text_bytes));
                Times decoding;
                steps.start();
                decompress(by_warps, found, file_bytes);
                steps.end(name);
                steps.finish(decoding);
                if (round) times[name].push_back(decoding[name][0]);
            }
            if (const u32 found_faults = read_faults()) fail("faults of a container: " + std::to_string(found_faults));
            check_text(0);
        }
        Result result{{}, (double)text_bytes / (double)file_bytes, text_bytes};
        for (const auto& [name, values] : times) result.times[name] = median(values);
        return result;
    }
};

// ---- Tables that are printed ----------------------------------------------------------------------------------------

const u32 TILES[] = {1280, 2560, 5120, 10240, 20480, 40960, 81920}, SPLITS[] = {32, 64, 128, 256};
const double LINKS[] = {1, 10, 25, 50, 100};  // GB/s
typedef MatchTable<32, 4> UsualTable;

void print_result(const std::string& text, const char* name, const Result& result) {
    printf("| %-12s | %-28s | %5.3f |", text.c_str(), name, result.ratio);
    for (const char* step : {"sample", "learn", "tables", "encode", "transpose", "gather", "compact", "scan", "move"}) {
        const auto time = result.times.find(step);
        if (time == result.times.end()) printf(" %9s |", "");
        else printf(" %9.3f |", time->second);
    }
    for (const char* step : {"encode", "device", "all", "decode", "decode by warps"})
        printf(" %6.1f |", result.speed(step));
    printf("\n");
    fflush(stdout);
}

// Bytes of text that are compressed, sent and decompressed per nanosecond, one step after the other.
double speed_over(double link, const Result& result, const char* decoding) {
    return 1 / (1 / result.speed("all") + 1 / (result.ratio * link) + 1 / result.speed(decoding));
}

template <class Table>
void sweep_tiles(Bench& bench, const char* name, Pipeline pipeline) {
    printf("\n%s: ratio, and GB/s that kernels compress and decompress (a thread a split, a warp a split), by bytes of "
           "a tile and threads of a block\n\n| tile |", name);
    for (u32 splits : SPLITS) printf(" %33u |", splits);
    printf("\n| ---: |");
    for (u32 splits : SPLITS) printf(" %33s |", splits ? "---:" : "");
    printf("\n");
    for (u32 tile : TILES) {
        printf("| %5u |", tile);
        for (u32 splits : SPLITS) {
            const Result result = bench.measure<Table>(pipeline, tile, splits);
            printf(" %5.3f: %6.1f / %6.1f, %6.1f |", result.ratio, result.speed("device"), result.speed("decode"),
                   result.speed("decode by warps"));
            fflush(stdout);
        }
        printf("\n");
    }
}

template <class Table>
void measure_match_table(Bench& bench, const std::string& text) {
    printf("| %-12s | %u x %u |", text.c_str(), Table::ROWS, Table::WORDS * 2);
    for (Pipeline pipeline : {EXACT, PADDED}) {
        if (pipeline == PADDED && bench.has_padding) {
            printf(" | | |");
            continue;
        }
        const Result result = bench.measure<Table>(pipeline, USUAL_TILE, USUAL_SPLITS);
        printf(" %5.3f | %6.1f | %6.1f |", result.ratio, result.speed("encode"), result.speed("device"));
    }
    printf("\n");
    fflush(stdout);
}

int main(int count, char** arguments) {
    if (count < 3) fail("usage: v5t BYTES FILE...");
    const u64 bytes = (u64)atof(arguments[1]);
    if (!bytes) fail("no bytes");
    const std::vector<std::string> paths(arguments + 2, arguments + count);
    const auto name_of = [](const std::string& path) { return path.substr(path.find_last_of('/') + 1); };
    Bench bench;

    std::map<std::string, Result> first;  // of the first file, by pipeline
    printf("%.2f GB of text, %u cores. Milliseconds of each step, and GB/s: of `encode`, of kernels, of all, and of "
           "decompression\n\n", (double)bytes / 1e9, std::thread::hardware_concurrency());
    printf("| text | pipeline | ratio | sample | learn | tables | encode | transpose | gather | compact | scan | move "
           "| encode | kernels | all | decode | by warps |\n");
    printf("| --- | --- |");
    for (u32 k = 0; k < 15; k++) printf(" ---: |");
    printf("\n");
    for (const auto& path : paths) {
        bench.load(path, bytes);
        const auto report = [&](const char* name, const Result& result) {
            print_result(name_of(path), name, result);
            if (path == paths[0]) first[name] = result;
        };
        if (!bench.has_padding)
            report("padded, match table", bench.measure<UsualTable>(PADDED, USUAL_TILE, USUAL_SPLITS, true));
        report("exact, match table", bench.measure<UsualTable>(EXACT, USUAL_TILE, USUAL_SPLITS, true));
        report("exact, table of pairs", bench.measure<PairTable>(EXACT, USUAL_TILE, USUAL_SPLITS, true));
        if (path == paths[0]) bench.check_damage();
    }

    printf("\nCompressed, sent over a link and decompressed: GB/s of text\n\n| GB/s of the link, plain |");
    for (double link : LINKS) printf(" %5.0f |", link);
    printf("\n| --- |");
    for (double link : LINKS) printf(" %5s |", link ? "---:" : "");
    printf("\n");
    for (const auto& [name, result] : first) {
        for (const char* decoding : {"decode", "decode by warps"}) {
            printf("| %s, %s |", name.c_str(), decoding);
            for (double link : LINKS) printf(" %5.1f |", speed_over(link, result, decoding));
            printf("\n");
        }
    }

    printf("\n| text | rows x entries | exact: ratio | encode, GB/s | kernels | padded: ratio | encode | kernels |\n");
    printf("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |\n");
    for (const auto& path : paths) {
        bench.load(path, bytes);
        measure_match_table<MatchTable<16, 2>>(bench, name_of(path));
        measure_match_table<MatchTable<32, 2>>(bench, name_of(path));
        measure_match_table<MatchTable<32, 4>>(bench, name_of(path));
        measure_match_table<MatchTable<32, 8>>(bench, name_of(path));
        measure_match_table<MatchTable<64, 4>>(bench, name_of(path));
    }

    bench.load(paths[0], bytes);
    if (!bench.has_padding) sweep_tiles<UsualTable>(bench, "Padded, match table", PADDED);
    sweep_tiles<UsualTable>(bench, "Exact, match table", EXACT);
    sweep_tiles<PairTable>(bench, "Exact, table of pairs", EXACT);
}
