// The table of a lookup, made of columns that lie plain on the device: the keys of its rows, and what tells their codes
// apart. `exec/build_kernel.rs` launches the kernel once for each step.

enum { NONE = ~0u, MOST_PROBES = 32 };

struct Args { u64 word[10]; };

DEVICE bool is_valid(const KeyColumn& c, u64 row) { return !c.valid || __ldg((const u8*)c.valid + row); }

// Of 128 bits, the low half; `is_wide` says whether that is not all of it.
DEVICE i64 value_of(const KeyColumn& c, u64 row) {
    switch (c.width) {
        case 1: return c.is_signed ? (i64)__ldg((const i8*)c.values + row) : (i64)__ldg((const u8*)c.values + row);
        case 2: return c.is_signed ? (i64)__ldg((const i16*)c.values + row) : (i64)__ldg((const u16*)c.values + row);
        case 4: return c.is_signed ? (i64)__ldg((const i32*)c.values + row) : (i64)__ldg((const u32*)c.values + row);
        case 8: return __ldg((const i64*)c.values + row);
        default: return __ldg((const i64*)c.values + 2 * row);
    }
}

DEVICE bool is_wide(const KeyColumn& c, u64 row) {
    return c.width == 16 && __ldg((const i64*)c.values + 2 * row + 1) != value_of(c, row) >> 63;
}

// In the order of unsigned numbers.
DEVICE u64 raised(i64 value) { return (u64)value ^ 1ull << 63; }

// The largest value, the smallest, turned round, how many there are, and how many of more than 64 bits.
DEVICE void measure(const KeyColumn& c, u64 rows, u64 start, u64 step, u64* to) {
    u64 greatest = 0, least = 0, count = 0, wide = 0;
    for (u64 row = start; row < rows; row += step) {
        if (!is_valid(c, row)) continue;
        const u64 value = raised(value_of(c, row));
        greatest = max(greatest, value);
        least = max(least, ~value);
        count++;
        wide += is_wide(c, row);
    }
    for (u32 distance = 16; distance; distance /= 2) {
        greatest = max(greatest, __shfl_xor_sync(ALL, greatest, distance));
        least = max(least, __shfl_xor_sync(ALL, least, distance));
        count += __shfl_xor_sync(ALL, count, distance);
        wide += __shfl_xor_sync(ALL, wide, distance);
    }
    if (lane_id() == 0 && count) {
        atomicMax(to, greatest);
        atomicMax(to + 1, least);
        atomicAdd(to + 2, count);
        if (wide) atomicAdd(to + 3, wide);
    }
}

struct Target {
    u64* keys;  // bits, or slots of a hash table
    u8* codes;
    u32 width;  // bytes of a code; 0 if there is but one
    bool is_hashed;
    u64 empty;  // what a slot without a key has
    u32 mask;   // buckets, less one
};

// What a thread has added.
struct Found {
    u32 added, twice;  // keys, and rows whose key was there already
    u32 probes;        // buckets looked into for some key
    bool is_full;
};

DEVICE void write_code(const Target& t, u64 place, u64 code) {
    switch (t.width) {
        case 1: t.codes[place] = (u8)code; break;
        case 2: ((u16*)t.codes)[place] = (u16)code; break;
        case 4: ((u32*)t.codes)[place] = (u32)code; break;
    }
}

// Adds the keys `place` of the lanes that are `in`. Neighbours often have keys of one word.
DEVICE void add_bits(const Target& t, bool in, u64 place, Found& f) {
    u32* const bits = (u32*)t.keys;
    const u32 peers = __match_any_sync(ALL, in ? place / 32 : ~0ull);
    if (!in) return;
    const u32 all = __reduce_or_sync(peers, 1u << place % 32);
    if (lane_id() != __ffs(peers) - 1) return;
    const u32 before = atomicOr(bits + place / 32, all), own = __popc(all & ~before);
    f.added += own;
    f.twice += __popc(peers) - own;
}

// The slot of a key, which is taken if the key is not there. Slots of a bucket are taken in their order.
DEVICE u32 slot_of(const Target& t, u64 key, Found& f) {
    u32 bucket = (u32)hash_of(key) & t.mask;
    for (u32 probe = 1; probe <= MOST_PROBES; probe++, bucket = bucket + 1 & t.mask) {
        for (u32 slot = bucket * 4; slot < bucket * 4 + 4; slot++) {
            u64 there = *(volatile u64*)(t.keys + slot);
            if (there == t.empty) there = atomicCAS(t.keys + slot, t.empty, key);
            const bool is_new = there == t.empty;
            if (!is_new && there != key) continue;
            f.added += is_new;
            f.twice += !is_new;
            f.probes = max(f.probes, probe);
            return slot;
        }
    }
    f.is_full = true;
    return NONE;
}

// Adds the keys of rows, which the first columns are digits of, and their codes, which the others are. Without others, the
// code of a row is its number.
DEVICE void fill(const KeyColumn* columns, u32 keys, u32 all, u64 rows, u64 start, u64 step, const Target& t, u64* to) {
    Found f{0, 0, 0, false};
    // whole warps
    for (u64 row = start, first = start - lane_id(); first < rows; row += step, first += step) {
        bool in = row < rows;
        u64 key = 0;
        for (u32 c = 0; c < keys && in; c++) {
            in = is_valid(columns[c], row);
            key += ((u64)value_of(columns[c], row) - columns[c].first) * columns[c].stride;
        }
        u64 place = key;
        if (!t.is_hashed) add_bits(t, in, place, f);
        if (!in) continue;
        if (t.is_hashed) place = slot_of(t, key, f);
        if (!t.width || t.is_hashed && place == NONE) continue;
        u64 code = keys < all ? 0 : row;
        for (u32 c = keys; c < all; c++) {
            const u64 digit = (u64)value_of(columns[c], row) - columns[c].first;
            code += (is_valid(columns[c], row) ? digit : columns[c].null) * columns[c].stride;
        }
        write_code(t, place, code);
    }
    f.added = __reduce_add_sync(ALL, f.added);
    f.twice = __reduce_add_sync(ALL, f.twice);
    f.probes = __reduce_max_sync(ALL, f.probes);
    const bool is_full = __any_sync(ALL, f.is_full);
    if (lane_id()) return;
    if (f.added) atomicAdd(to, (u64)f.added);
    if (f.twice) atomicAdd(to + 1, (u64)f.twice);
    if (f.probes) atomicMax(to + 2, (u64)f.probes);
    if (is_full) atomicMax(to + 3, 1ull);
}

// Counts those of some values that are keys.
DEVICE void find(const i64* values, u64 rows, u64 start, u64 step, const Args& a, bool is_hashed, u64* to) {
    const u64* const keys = (const u64*)a.word[5];
    for (u64 row = start; row < rows; row += step) {
        const u64 key = (u64)__ldg(values + row);
        bool is_there = false;
        if (is_hashed) {
            u32 bucket = (u32)hash_of(key) & (u32)a.word[9];
            bool may_be_next = key != a.word[8];
            for (u32 probe = 0; probe < MOST_PROBES && may_be_next; probe++, bucket = bucket + 1 & (u32)a.word[9]) {
                for (u32 slot = bucket * 4; slot < bucket * 4 + 4; slot++) {
                    const u64 there = __ldg(keys + slot);
                    is_there |= there == key;
                    may_be_next &= there != key && there != a.word[8];
                }
            }
        } else {
            const u64 place = key - a.word[8];
            is_there = place < a.word[9] && __ldg((const u32*)keys + place / 32) >> place % 32 & 1;
        }
        if (is_there) atomicAdd(to, 1ull);
    }
}

// The step `word[0]` over `word[1]` rows of columns that lie at `word[2]`: `word[3]` in all, of which the high half says how
// many are keys. Results go to `word[4]`. Then come the fields of `Target`, but to measure. To clear, rows are slots. To find,
// values of 64 bits lie at `word[2]`, and where keys are not hashed, the last two words are the first and how many may be.
extern "C" __global__ void BOUNDS(256) build(const Args a) {
    const KeyColumn* const columns = (const KeyColumn*)a.word[2];
    const u64 start = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;
    const u32 all = (u32)a.word[3], keys = (u32)(a.word[3] >> 32);
    u64* const to = (u64*)a.word[4];
    if (a.word[0] == MEASURE) {
        for (u32 c = 0; c < all; c++) measure(columns[c], a.word[1], start, step, to + 4 * c);
        return;
    }
    const Target t{(u64*)a.word[5], (u8*)a.word[6], (u32)a.word[7], (bool)(a.word[7] >> 32), a.word[8], (u32)a.word[9]};
    if (a.word[0] == CLEAR) {
        for (u64 slot = start; slot < a.word[1]; slot += step) t.keys[slot] = t.empty;
        return;
    }
    if (a.word[0] == FIND) {
        find((const i64*)a.word[2], a.word[1], start, step, a, t.is_hashed, to);
        return;
    }
    fill(columns, keys, all, a.word[1], start, step, t, to);
}
