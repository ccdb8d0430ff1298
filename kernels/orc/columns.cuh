// Decoded values of streams as columns: a warp a vector. Behind `common/base.cuh` and `common/chunk.cuh`.
//
//     values     of the rows that have one, one behind the other: integers of 64 bits, bytes, floats
//     present    32 words a vector: bit l of word r says whether row r * 32 + l has a value
//     BOUNDS     the least and the greatest value of each vector, and those of the rows of the sample
//     PACK       residuals, where the front of the chunk says, which the host has written meanwhile
//
// Floats have no bounds, and PACK puts them where they belong, as they are. Text lies where it belongs: PACK looks at it.

enum { SAMPLE_ROWS = 32, ROWS = 1024 };

// `product` becomes the product, unless that has more than 64 bits.
DEVICE bool multiplies(i64 a, i64 b, i64& product) {
    const i128 wide = (i128)a * b;
    product = (i64)wide;
    return wide == product;
}

DEVICE bool power_of_ten(u64 exponent, i64& power) {
    power = 1;
    if (exponent > 18) return false;
    for (u64 i = 0; i < exponent; i++) power *= 10;
    return true;
}

// Digits behind `found` decimal places, as those behind `scale`. What is too much is cut.
DEVICE bool rescale(i64 digits, i64 found, i64 scale, i64& value) {
    value = digits;
    if (found == scale) return true;
    // scales that the host has not seen are any number
    if (found < -64 || found > scale + 38) return false;
    if (found < scale) {
        i64 power;
        return power_of_ten(scale - found, power) && multiplies(digits, power, value);
    }
    // a division by what is no constant is a call, for which registers would spill
    for (i64 i = scale; i < found; i++) value /= 10;
    return true;
}

// Nanoseconds since 1970 of seconds since `epoch` and packed nanoseconds: `crates/orc/src/timestamp.rs` tells why.
DEVICE bool nanoseconds(i64 seconds, i64 packed, i64 epoch, i64& value) {
    i64 scale, fraction;
    const u32 zeros = (u32)packed & 7;
    power_of_ten(zeros ? zeros + 1 : 0, scale);
    if (!multiplies(packed >> 3, scale, fraction)) return false;
    if (fraction <= -1000000000 || fraction >= 1000000000) return false;
    const i128 sum = (i128)seconds + epoch;
    const i128 wide = (sum - (sum < 0 && fraction > 999999 ? 1 : 0)) * 1000000000 + fraction;
    value = (i64)wide;
    return wide == value && sum == (i64)sum;
}

// Value k of a column of integers of any kind.
DEVICE bool value_of(const DecodedColumn& c, u64 k, i64& value) {
    const i64* values = (const i64*)c.values;
    const u8* bytes = (const u8*)c.values;
    switch (c.kind) {
    case BITS: value = bytes[k / 8] >> (7 - k % 8) & 1; return true;
    case BYTES: value = (i8)bytes[k]; return true;
    case DECIMALS: return rescale(values[k], ((const i64*)c.others)[k], c.parameter, value);
    case TIMESTAMPS: return nanoseconds(values[k], ((const i64*)c.others)[k], c.parameter, value);
    default: value = values[k]; return true;
    }
}

// Which rows of a vector have a value, and which number that is.
struct Rows {
    u32 word, before;  // of rows lane * 32 to lane * 32 + 31
    u64 first;
    u32 vector, rows;
    bool are_all;

    DEVICE Rows(const DecodedColumn& c, u32 of_vector) {
        vector = of_vector;
        rows = min(c.rows - vector * ROWS, (u32)ROWS);
        are_all = c.present == 0;
        first = are_all ? (u64)vector * ROWS : ((const u32*)c.before)[vector];
        word = are_all ? 0 : ((const u32*)c.present)[vector * 32 + lane_id()];
        before = sum_before((u32)__popc(word));
    }
    // Of row `at`, which may be another for each lane.
    DEVICE bool has(u32 at, u64& number) const {
        if (are_all) {
            number = first + at;
            return at < rows;
        }
        const u32 from = at / 32 % 32, bits = __shfl_sync(ALL, word, from), sum = __shfl_sync(ALL, before, from);
        number = first + sum + __popc(bits & ((1u << at % 32) - 1));
        return at < rows && bits >> at % 32 & 1;
    }
};

DEVICE void find_bounds(const DecodedColumn& c, u32 vector) {
    const u32 lane = lane_id();
    const Rows rows(c, vector);
    i64 least = (i64)(~0ull >> 1), greatest = -least - 1;
    bool is_wrong = false;
    for (u32 r = 0; r < 32; r++) {
        u64 number;
        i64 value = 0;
        if (!rows.has(r * 32 + lane, number)) continue;
        is_wrong |= !value_of(c, number, value);
        least = min(least, value);
        greatest = max(greatest, value);
    }
#pragma unroll
    for (u32 distance = 16; distance; distance /= 2) {
        least = min(least, (i64)__shfl_xor_sync(ALL, (u64)least, distance));
        greatest = max(greatest, (i64)__shfl_xor_sync(ALL, (u64)greatest, distance));
    }
    if (lane == 0) {
        ((i64*)c.bounds)[2 * vector] = least;
        ((i64*)c.bounds)[2 * vector + 1] = greatest;
    }
    const u32 wanted = min(c.rows, (u32)SAMPLE_ROWS);
    const u32 row = (u32)((u64)lane * c.rows / wanted), at = row - vector * ROWS;
    u64 number;
    i64 value = 0;
    const bool has = rows.has(min(at, (u32)ROWS - 1), number);
    if (has && at < ROWS && lane < wanted && value_of(c, number, value)) ((i64*)c.sample)[lane] = value;
    if (is_wrong) *(u32*)c.fault = 1;
}

// Words of some bits of residuals, as `common/packed.cuh` reads them.
struct Plane {
    u32* to;
    u32 width, filled = 0;
    u64 bits = 0;

    DEVICE Plane(u32* words, u32 bits_of_each) {
        to = words;
        width = bits_of_each;
    }
    DEVICE void add(u32 residual) {
        bits |= (u64)residual << filled;
        filled += width;
        if (filled < 32) return;
        *to = (u32)bits;
        to += 32;
        bits >>= 32;
        filled -= 32;
    }
};

DEVICE void pack(const DecodedColumn& c, u32 vector) {
    const u32 lane = lane_id();
    const Vector of = ((const Vector*)(c.chunk + sizeof(Header)))[vector];
    const Rows rows(c, vector);
    const u64 start = c.reference + of.base;
    u32* words = (u32*)(c.chunk + (u64)of.line * 128) + lane;
    Plane low(words, min((u32)of.width, 32u)), high(words + 32 * 32, of.width > 32 ? of.width - 32u : 0u);
    for (u32 r = 0; r < 32; r++) {
        u64 number;
        i64 value = 0;
        const bool has = rows.has(r * 32 + lane, number) && value_of(c, number, value);
        const u64 residual = has ? (u64)value - start : 0;
        if (low.width) low.add((u32)residual);
        if (high.width) high.add((u32)(residual >> 32));
    }
}

// Values as they are.
template <class T> DEVICE void place(const DecodedColumn& c, u32 vector) {
    const u32 lane = lane_id();
    const Rows rows(c, vector);
    T* to = (T*)(c.chunk + (u64)((const Header*)c.chunk)->values * 16) + (u64)vector * ROWS;
    for (u32 r = 0; r < 32; r++) {
        u64 number;
        const bool has = rows.has(r * 32 + lane, number);
        to[r * 32 + lane] = has ? ((const T*)c.values)[number] : 0;
    }
}

// Bytes of the character that starts with this one; 0 if none does.
DEVICE u32 bytes_of_character(u8 first) {
    return first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : first < 0xf5 ? 4 : 0;
}

DEVICE bool is_inside(u8 byte) { return (byte & 0xc0) == 0x80; }

// Whether the byte at `at`, of those from `begin` to before `end`, is in a character of UTF-8, if it is not ASCII.
DEVICE bool is_in_character(const u8* bytes, u32 at, u32 begin, u32 end) {
    u32 first = at;
    while (first > begin && at - first < 3 && is_inside(bytes[first])) first--;
    const u8 lead = bytes[first];
    const u32 count = bytes_of_character(lead);
    if (count <= at - first || count > end - first) return false;
    if (at > first) return true;
    for (u32 i = 1; i < count; i++) {
        if (!is_inside(bytes[first + i])) return false;
    }
    const u8 second = count > 1 ? bytes[first + 1] : 0;
    // what fewer bytes have room for, half of pairs, and what is beyond the last character
    return !(lead == 0xe0 && second < 0xa0) && !(lead == 0xed && second > 0x9f) && !(lead == 0xf0 && second < 0x90) &&
           !(lead == 0xf4 && second > 0x8f);
}

// Whether the strings of a vector are UTF-8: of all bytes, and where strings begin.
DEVICE void check_text(const DecodedColumn& c, u32 vector) {
    const u32 lane = lane_id();
    const Vector of = ((const Vector*)(c.chunk + sizeof(Header)))[vector];
    const u8* block = (const u8*)(c.chunk + (u64)of.line * 16);
    const u32* starts = (const u32*)block;
    const u8* lengths = block + 144;  // behind 33 starts
    const u8* bytes = (const u8*)(c.chunk + (u64)((const Header*)c.chunk)->packed * 16);
    const u32 begin = starts[0], end = starts[32], rows = min(c.rows - vector * ROWS, (u32)ROWS);
    bool is_wrong = false;
    for (u32 at = begin + lane; at < end; at += 32) {
        if (bytes[at] >= 0x80) is_wrong |= !is_in_character(bytes, at, begin, end);
    }
    u32 at = starts[lane];
    for (u32 row = lane * 32; row < min(lane * 32 + 32, rows); row++) {
        is_wrong |= at < end && is_inside(bytes[at]);
        if (of.width == 1) at += lengths[row];
        else if (of.width == 2) at += ((const u16*)lengths)[row];
        else at += ((const u32*)lengths)[row];
    }
    if (is_wrong) *(u32*)c.fault = 1;
}

// The step, columns, how many there are, and their vectors.
struct Args { u64 word[4]; };

extern "C" __global__ void __launch_bounds__(128, 4) columns(const Args a) {
    const u32 warps = gridDim.x * (blockDim.x / 32), all = (u32)a.word[3];
    const DecodedColumn* const first = (const DecodedColumn*)a.word[1];
    for (u32 i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < all; i += warps) {
        u32 at = 0;
        while (at + 1 < (u32)a.word[2] && first[at + 1].first_vector <= i) at++;
        const DecodedColumn c = first[at];
        const u32 vector = i - c.first_vector;
        const bool are_integers = c.kind < FLOATS;
        if (a.word[0] == BOUNDS) {
            if (are_integers) find_bounds(c, vector);
            continue;
        }
        if (are_integers) pack(c, vector);
        else if (c.kind == FLOATS) place<u32>(c, vector);
        else if (c.kind == DOUBLES) place<u64>(c, vector);
        else if (c.kind == TEXT) check_text(c, vector);
    }
}
