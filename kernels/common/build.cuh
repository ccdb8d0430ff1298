// The table of a lookup, made of columns that lie plain on the device: the keys of its rows, and what tells their codes
// apart. `exec/build.rs` launches the kernel once for each step.

enum { MEASURE, FILL };

struct Args { u64 word[8]; };

// A column, and how its values are digits of a code.
struct Column {
    u64 values, valid;  // `valid` is a byte for each row, or nothing where none is null
    u64 width, is_signed;
    u64 first, stride, null;  // a value's digit is its distance from the first; `null` is that of nulls
};

DEVICE bool is_valid(const Column& c, u64 row) { return !c.valid || __ldg((const u8*)c.valid + row); }

// Of 128 bits, the low half; `is_wide` says whether that is not all of it.
DEVICE i64 value_of(const Column& c, u64 row) {
    switch (c.width) {
        case 1: return c.is_signed ? (i64)__ldg((const i8*)c.values + row) : (i64)__ldg((const u8*)c.values + row);
        case 2: return c.is_signed ? (i64)__ldg((const i16*)c.values + row) : (i64)__ldg((const u16*)c.values + row);
        case 4: return c.is_signed ? (i64)__ldg((const i32*)c.values + row) : (i64)__ldg((const u32*)c.values + row);
        case 8: return __ldg((const i64*)c.values + row);
        default: return __ldg((const i64*)c.values + 2 * row);
    }
}

DEVICE bool is_wide(const Column& c, u64 row) {
    return c.width == 16 && __ldg((const i64*)c.values + 2 * row + 1) != value_of(c, row) >> 63;
}

// In the order of unsigned numbers.
DEVICE u64 raised(i64 value) { return (u64)value ^ 1ull << 63; }

// The largest value, the smallest, turned round, how many there are, and how many of more than 64 bits.
DEVICE void measure(const Column& c, u64 rows, u64 start, u64 step, u64* to) {
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
    u32* bits;
    u8* codes;
    u64 width;  // bytes of a code; 0 if there is but one
};

DEVICE void write_code(const Target& t, u64 place, u64 code) {
    switch (t.width) {
        case 1: t.codes[place] = (u8)code; break;
        case 2: ((u16*)t.codes)[place] = (u16)code; break;
        case 4: ((u32*)t.codes)[place] = (u32)code; break;
    }
}

// Adds the keys of rows, and counts those that are new, and then those that were there already. Without columns beside
// that of keys, the code of a row is its number.
DEVICE void fill(const Column* columns, u64 count, u64 rows, u64 start, u64 step, const Target& t, u64* found) {
    u32 added = 0, twice = 0;
    // whole warps: neighbours often have keys of one word
    for (u64 row = start, first = start - lane_id(); first < rows; row += step, first += step) {
        const bool in = row < rows && is_valid(columns[0], row);
        const u64 place = in ? (u64)value_of(columns[0], row) - columns[0].first : ~0ull;
        const u32 peers = __match_any_sync(ALL, in ? place / 32 : ~0ull);
        if (!in) continue;
        const u32 all = __reduce_or_sync(peers, 1u << place % 32);
        if (lane_id() == __ffs(peers) - 1) {
            const u32 before = atomicOr(t.bits + place / 32, all), own = __popc(all & ~before);
            added += own;
            twice += __popc(peers) - own;
        }
        if (!t.width) continue;
        u64 code = row;
        if (count > 1) {
            code = 0;
            for (u64 c = 1; c < count; c++) {
                const u64 digit = (u64)value_of(columns[c], row) - columns[c].first;
                code += (is_valid(columns[c], row) ? digit : columns[c].null) * columns[c].stride;
            }
        }
        write_code(t, place, code);
    }
    added = __reduce_add_sync(ALL, added);
    twice = __reduce_add_sync(ALL, twice);
    if (lane_id()) return;
    if (added) atomicAdd(found, (u64)added);
    if (twice) atomicAdd(found + 1, (u64)twice);
}

// The step `word[0]` over `word[1]` rows of `word[3]` columns, which lie at `word[2]`; results go to `word[4]`. To fill,
// then come the fields of `Target`.
extern "C" __global__ void BOUNDS(256) build(const Args a) {
    const Column* const columns = (const Column*)a.word[2];
    const u64 start = (u64)blockIdx.x * blockDim.x + threadIdx.x, step = (u64)gridDim.x * blockDim.x;
    u64* const to = (u64*)a.word[4];
    if (a.word[0] == MEASURE) {
        for (u64 c = 0; c < a.word[3]; c++) measure(columns[c], a.word[1], start, step, to + 4 * c);
        return;
    }
    fill(columns, a.word[3], a.word[1], start, step, Target{(u32*)a.word[5], (u8*)a.word[6], a.word[7]}, to);
}
