// Columns whose encodings are known only when a program runs.
//
// A lane keeps the chunk of one column and its record of the current vector; the others ask it. Vectors that are
// packed without patches, in up to 32 bits, are read where they are. All others are decoded first, to the memory that
// a warp has for it: that is slower, but one way for all.

// The program and the other arguments: in the constant bank, where all threads of a warp read the same.
struct Args { u64 word[PROGRAM_WORDS]; };

const u32 FIXED_WORDS = 6;

DEVICE u32 low_half(const Args& a, u32 word) { return (u32)a.word[FIXED_WORDS + word]; }
DEVICE u32 high_half(const Args& a, u32 word) { return (u32)(a.word[FIXED_WORDS + word] >> 32); }

// Widths of words that are unpacked by one body for all.
const u64 EVERY_WIDTH = 1ull << 63;

template <> DEVICE void narrow_8<EVERY_WIDTH>(const u32* words, u32 width, u32 eighth, u32 out[8]) {
#pragma unroll
    for (u32 k = 0; k < 8; k++) out[k] = narrow_at(words, width, eighth * 8 + k);
}

// Any integers and codes, as a column's traits. Differences have code of their own below.
struct Any {
    static const u64 LOW = EVERY_WIDTH, HIGH = EVERY_WIDTH, WIDTHS = ~0ull;
    static const u32 TRANSFORMS = 3, SEQUENCES = 29, FLAGS = 127;
    static const i32 ONE_WIDTH = -1, ONE_SCALE = -1;
    static const bool BASED = true, EVEN = false;
    typedef u64 Entry;
    typedef i64 Stored;
    typedef i64 Value;
    typedef i64 Word;
};

// Any floats that are not kept as they are.
template <class V> struct AnyFloat : Any {
    static const u32 TRANSFORMS = 12;
    typedef V Stored;
    typedef V Value;
};

// Text in splits.
struct AnyText : Any {
    static const u32 TRANSFORMS = 32;
};

// Packed words whose width is one of these are unrolled: there is code for them once for each use below.
const u64 UNROLLED_WIDTHS = 0x1ffffffffull;

// Numbers of transforms and sequences: their places in the lists of `registry.rs`.
enum { INTEGERS, CODES, DECIMALS, PARTS, VALUES, TEXT };
enum { PACKED, DIFFERENCES, RUNS };

// Where a warp is: kept in registers from vector to vector.
struct Warp {
    const u64* group;   // the descriptor of the row group
    u32 v;              // the vector's number there
    u32 direct;         // columns that are read where they are, a bit for the lane of each
    u32 decoded;        // columns that are decoded, likewise
    u32 in_runs;        // columns of which picked rows are read in their runs, likewise
    u32 about;          // this lane's column: see below
    u64 address;        // of its chunk
    uint4 record, next; // of the vector, and of the warp's next one
};

// ---- memory of a warp: its places are computed where they are needed, so that they take no registers ----

DEVICE u8* own_memory(const Args& a) {
    DYN_SHARED(u8, shared);
    return shared + ((u32)a.word[FIXED_WORDS + W_BLOCK_BYTES] + threadIdx.x / 32 * low_half(a, W_WARP_BYTES));
}
DEVICE u8* scratch_memory(const Args& a) {
    const u64 warp = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    return (u8*)a.word[FIXED_WORDS + W_SCRATCH] + warp * a.word[FIXED_WORDS + W_SCRATCH_BYTES];
}
// A word of each lane for each flag.
DEVICE u32* flags_at(const Args& a) { return (u32*)(own_memory(a) + high_half(a, W_KEPT_AT)); }
// Accumulators of this lane.
DEVICE u64* kept_at(const Args& a) { return (u64*)(own_memory(a) + low_half(a, W_KEPT_AT)) + lane_id(); }
// What vectors are decoded through.
DEVICE void* tile_at(const Args& a) { return own_memory(a) + high_half(a, W_WARP_BYTES); }
// A slot of this lane. Slots have room for dense batches.
DEVICE u64* slot_at(const Args& a, u32 slot) {
    return (u64*)(own_memory(a) + low_half(a, W_SLOTS_AT)) + slot * DENSE_ROWS * 32 + lane_id();
}

DEVICE u32 flag_of(const Args& a, u32 flag) { return flag == NONE ? ALL : flags_at(a)[flag * 32 + lane_id()]; }
DEVICE void set_flag(const Args& a, u32 flag, u32 bits) { flags_at(a)[flag * 32 + lane_id()] = bits; }

// Whether numbers of rows have 128 bits.
DEVICE bool is_wide(const Args& a) { return high_half(a, W_SLOTS_AT); }

DEVICE u64 of_lane(u64 value, u32 lane) { return __shfl_sync(ALL, value, (int)lane); }

DEVICE Cursor cursor(const Warp& w, u32 column) {
    Cursor c;
    c.bytes = (const u8*)of_lane(w.address, column);
    c.vector = w.v;
    c.line = __shfl_sync(ALL, w.record.x, (int)column);
    const u32 y = __shfl_sync(ALL, w.record.y, (int)column);
    c.width = (u8)y;
    c.flags = (u8)(y >> 8);
    c.scale = (u16)(y >> 16);
    c.base_low = __shfl_sync(ALL, w.record.z, (int)column);
    c.base_high = __shfl_sync(ALL, w.record.w, (int)column);
    c.starts = c.before = 0;
    c.smallest = 0;
    return c;
}

// A column, as the program describes it, and its chunk's transform.
struct About {
    u32 word;
    DEVICE u32 transform() const { return word & 255; }
    DEVICE u32 type() const { return word >> 8 & 255; }
    // The largest entry.
    DEVICE u64 most() const { return word >> 24 ? ~0ull : 0xffffffffull; }
    // The place of its decoded vectors.
    DEVICE u64* decoded_at(const Args& a) const {
        return (u64*)(scratch_memory(a) + (u64)(word >> 16 & 255) * 8192);
    }
};

DEVICE About about(const Warp& w, u32 column) { return About{__shfl_sync(ALL, w.about, (int)column)}; }
DEVICE u32 transform_of(const Warp& w, u32 column) { return about(w, column).transform(); }

// ---- what every encoding can do: few vectors need it ----

DEVICE u32 text_in(Cursor c, u64 test) {
    const Range<i64> range{0, 0, test, (const i64*)0};
    return Text<AnyText>::rows_in<false>(c, range, Entries<u64>{1, 0}, (void*)0);
}

// Differences of narrow columns wrap around in 32 bits: `most` is the largest entry.
DEVICE void decode_entries(Cursor c, void* tile, u64* out, u64 most) {
    if (__ldg(&c.header()->sequence) == DIFFERENCES) {
        Delta<Any>::open(c);
        u64* own = (u64*)tile + lane_id() * 33;
        u64 sum = lane_start<Any>(c);
        // differences beyond the end lead anywhere: codes must not
        const u32 before = c.vector * 1024 + lane_id() * 32, rows = __ldg(&c.header()->rows);
        __syncwarp();
#pragma unroll 1
        for (u32 eighth = 0; eighth < 4; eighth++) {
            u64 x[8];
            residuals_8<Any>(c, eighth, x);
#pragma unroll
            for (u32 k = 0; k < 8; k++) {
                const u32 r = eighth * 8 + k;
                sum += x[k] + c.smallest;
                own[r] = before + r < rows ? sum & most : 0;
            }
        }
        __syncwarp();
#pragma unroll 1
        for (u32 r = 0; r < 32; r++) out[r * 32] = ((const u64*)tile)[r * 33 + lane_id()];
        return;
    }
    with_sequence<Any>(c, [&](auto of) { of.open(c); });
    prepare<Any>(c, tile);
#pragma unroll 1
    for (u32 eighth = 0; eighth < 4; eighth++, out += 256) {
        u64 entry[8];
        entries_8<Any>(c, eighth, tile, entry);
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k * 32] = entry[k];
    }
}

DEVICE u64 bits_of(double x) { return (u64)__double_as_longlong(x); }
DEVICE u64 bits_of(float x) { return (u32)__float_as_int(x); }

// The floats of decoded entries, in their place.
template <template <class> class T, class V> DEVICE void floats_of_entries(Cursor c, u64* out) {
#pragma unroll 1
    for (u32 eighth = 0; eighth < 4; eighth++, out += 256) {
        u64 entry[8];
        V value[8];
#pragma unroll
        for (u32 k = 0; k < 8; k++) entry[k] = out[k * 32];
        T<AnyFloat<V>>::values_8(c, eighth, entry, value);
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k * 32] = bits_of(value[k]);
    }
}

// Makes a column's vector readable row by row: integers and codes as entries, floats as they are.
DEVICE void decode(const Args& a, Warp& w, u32 column) {
    if ((w.direct | w.decoded) >> column & 1) return;
    w.decoded |= 1u << column;
    const Cursor c = cursor(w, column);
    void* tile = tile_at(a);
    const About of = about(w, column);
    u64* out = of.decoded_at(a) + lane_id();
    const u32 transform = of.transform();
    const bool is_single = of.type() == T_F32;
    __syncwarp();
    decode_entries(c, tile, out, of.most());
    if (transform == DECIMALS) {
        if (is_single) floats_of_entries<Alp, float>(c, out);
        else floats_of_entries<Alp, double>(c, out);
    } else if (transform == PARTS) {
        if (is_single) floats_of_entries<AlpRd, float>(c, out);
        else floats_of_entries<AlpRd, double>(c, out);
    }
    __syncwarp();
}

// Says that a number does not fit 64 bits: the results are of no use then.
DEVICE void overflows(const Args& a) { *(volatile u64*)a.word[FIXED_WORDS + W_OVERFLOW] = 1; }

// ---- values ----

template <class T, u32 K> DEVICE void load_as(const u8* values, const u64 index[K], u32 in, u64 x[K]) {
#pragma unroll
    for (u32 k = 0; k < K; k++) x[k] = in >> k & 1 ? (u64)(i64)((const T*)values)[index[k]] : 0;
}

template <u32 K> DEVICE void check_unsigned(const Args& a, u32 in, const u64 x[K]) {
    u32 bad = 0;
#pragma unroll
    for (u32 k = 0; k < K; k++) bad |= (u32)(x[k] >> 63) << k;
    if (bad & in) overflows(a);
}

// Values as they are stored, as 64 bits; 0 for rows that do not count.
template <u32 K>
DEVICE void stored_at(const Args& a, const u8* values, u32 type, const u64 index[K], u32 in, u64 x[K]) {
    switch (type) {
    case T_BOOL:
    case T_U8: return load_as<u8, K>(values, index, in, x);
    case T_I8: return load_as<i8, K>(values, index, in, x);
    case T_I16: return load_as<i16, K>(values, index, in, x);
    case T_U16: return load_as<u16, K>(values, index, in, x);
    case T_I32: return load_as<i32, K>(values, index, in, x);
    case T_U32:
    case T_F32: return load_as<u32, K>(values, index, in, x);
    case T_I128: {
        u32 bad = 0;
#pragma unroll
        for (u32 k = 0; k < K; k++) {
            const i128 value = in >> k & 1 ? ((const i128*)values)[index[k]] : 0;
            x[k] = (u64)value;
            bad |= (u32)(value != (i128)(i64)value);
        }
        if (bad) overflows(a);
        return;
    }
    default:
        load_as<u64, K>(values, index, in, x);
        if (type == T_U64) check_unsigned<K>(a, in, x);
    }
}

// The same in 128 bits.
template <u32 K>
DEVICE void stored_at(const Args& a, const u8* values, u32 type, const u64 index[K], u32 in, i128 x[K]) {
    if (type == T_I128) {
#pragma unroll
        for (u32 k = 0; k < K; k++) x[k] = in >> k & 1 ? ((const i128*)values)[index[k]] : 0;
        return;
    }
    u64 y[K];
    stored_at<K>(a, values, type, index, in, y);
#pragma unroll
    for (u32 k = 0; k < K; k++) x[k] = type == T_U64 ? (i128)y[k] : (i128)(i64)y[k];
}

// Rows of a lane: those from batch * K on, or picked ones of the vector, by their numbers.
template <u32 K, bool PICKED> struct Batch {
    u32 in;        // the rows that count, a bit each
    u32 batch;
    u32 id[K];

    // A flag of the vector, of these rows.
    DEVICE u32 bits(const Args& a, u32 flag) const {
        if (flag == NONE) return ALL;
        if constexpr (!PICKED) return flag_of(a, flag) >> batch * K;
        const u32* words = flags_at(a) + flag * 32;
        u32 bits = 0;
#pragma unroll
        for (u32 k = 0; k < K; k++) bits |= (words[id[k] & 31] >> (id[k] >> 5) & 1) << k;
        return bits;
    }
    DEVICE u32 row(u32 k) const { return PICKED ? id[k] : (batch * K + k) * 32 + lane_id(); }

    // The entries of a column, which is readable by row, and `start`; arbitrary ones where rows do not count.
    DEVICE void entries(const Args& a, const Warp& w, const Cursor& c, u32 column, About of, u64 start, u64 x[K]) const {
        if (PICKED && w.in_runs >> column & 1) {
            Cursor own = c;
            Rle<Any>::open(own);
            Rle<Any>::prepare(own, (void*)0);
#pragma unroll
            for (u32 k = 0; k < K; k++) {
                const u32 run = Rle<Any>::run_at(own, row(k) / 32, row(k) % 32);
                x[k] = start + Rle<Any>::entry_at(own, 0, 0, run, (const void*)0);
            }
            return;
        }
        if (!(w.direct >> column & 1)) {
            const u64* from = of.decoded_at(a);
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = start + from[row(k)];
            return;
        }
        const u64 base = start + c.base<u64>();
        u32 y[K];
        if constexpr (PICKED) {
#pragma unroll
            for (u32 k = 0; k < K; k++) y[k] = narrow_at(c.words_of(id[k] & 31), c.width, id[k] >> 5);
        } else {
            static_assert(K == 8, "as `narrow_8`");
            narrow_8<UNROLLED_WIDTHS>(c.words(), c.width, batch, y);
        }
#pragma unroll
        for (u32 k = 0; k < K; k++) x[k] = base + y[k];
    }

    // Its values: integers, or the bits of floats. `as_keys`: codes of dictionaries, which tables are looked up by.
    DEVICE void values(const Args& a, const Warp& w, u32 column, bool as_keys, u64 x[K]) const {
        const Cursor c = cursor(w, column);
        const About of = about(w, column);
        const u32 transform = of.transform(), type = of.type();
        if (transform == VALUES) {
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = (u64)w.v * 1024 + row(k);
        } else {
            entries(a, w, c, column, of, transform == INTEGERS ? c.reference() : 0, x);
        }
        if (transform == INTEGERS) {
            if (type == T_I128) {
                const u64 reference = c.reference();
                const i64 high = (i64)__ldg(&c.header()->reference_high);
                u32 bad = 0;
#pragma unroll
                for (u32 k = 0; k < K; k++) {
                    bad |= (u32)(high + (i64)(x[k] < reference) != (i64)x[k] >> 63) << k;
                }
                if (bad & in) overflows(a);
            }
            if (type == T_U64) check_unsigned<K>(a, in, x);
            if (type == T_F64) {
#pragma unroll
                for (u32 k = 0; k < K; k++) x[k] = bits_of(double_of((i64)x[k]));
            } else if (type == T_F32) {
#pragma unroll
                for (u32 k = 0; k < K; k++) x[k] = bits_of(float_of((i32)x[k]));
            }
        } else if (transform == VALUES || (transform == CODES && !as_keys)) {
            stored_at<K>(a, c.values(), type, x, in, x);
        } else if (transform == DECIMALS && w.direct >> column & 1) {
            const u64 reference = c.reference();
            const double power = POWERS[c.scale % 19], fraction = FRACTIONS[c.scale / 19];
#pragma unroll
            for (u32 k = 0; k < K; k++) {
                const double value = (double)(i64)(reference + x[k]) * power * fraction;
                x[k] = type == T_F32 ? bits_of((float)value) : bits_of(value);
            }
        }
    }

    // The same in 128 bits.
    DEVICE void values(const Args& a, const Warp& w, u32 column, bool as_keys, i128 x[K]) const {
        const About of = about(w, column);
        const u32 transform = of.transform(), type = of.type();
        const Cursor c = cursor(w, column);
        u64 y[K];
        if (transform == INTEGERS && type != T_F32 && type != T_F64) {
            const i128 reference = c.wide_reference();
            entries(a, w, c, column, of, 0, y);
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = reference + y[k];
        } else if (transform == VALUES || (transform == CODES && !as_keys)) {
            if (transform == CODES) entries(a, w, c, column, of, 0, y);
#pragma unroll
            for (u32 k = 0; k < K; k++)
                if (transform == VALUES) y[k] = (u64)w.v * 1024 + row(k);
            stored_at<K>(a, c.values(), type, y, in, x);
        } else {
            values(a, w, column, as_keys, y);
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = (i64)y[k];
        }
    }
};

// ---- masks ----

// What a lane has of a vector that is not packed: values as they are, entries, or the bits of decoded floats.
struct Rows {
    const u64* decoded;
    const u8* values;
    u64 first;
    u32 type;

    DEVICE Rows(const Args& a, const Warp& w, const Cursor& c, About of)
        : decoded(of.decoded_at(a) + lane_id()), values(of.transform() == VALUES ? c.values() : (const u8*)0),
          first((u64)w.v * 1024 + lane_id()), type(of.type()) {}

    // Rows 8 * eighth to 8 * eighth + 7; 0 for those that are not `in`.
    DEVICE void values_8(const Args& a, u32 eighth, u32 in, u64 x[8]) const {
        if (values) {
#pragma unroll
            for (u32 k = 0; k < 8; k++) x[k] = first + (eighth * 8 + k) * 32;
            stored_at<8>(a, values, type, x, in, x);
        } else {
#pragma unroll
            for (u32 k = 0; k < 8; k++) x[k] = decoded[(eighth * 8 + k) * 32];
        }
    }
};

// The rows among `m` whose value passes.
template <class F> DEVICE u32 rows_where(const Args& a, const Rows& rows, u32 m, F passes) {
    u32 mask = 0;
#pragma unroll 1
    for (u32 eighth = 0; eighth < 4; eighth++) {
        const u32 in = m >> eighth * 8 & 255;
        if (!__any_sync(ALL, in)) continue;
        u64 x[8];
        rows.values_8(a, eighth, in, x);
#pragma unroll
        for (u32 k = 0; k < 8; k++) mask |= (u32)(in >> k & 1 && passes(x[k])) << (eighth * 8 + k);
    }
    return mask;
}

// Which rows have a bit at their place, which is `start` and the residual. Bits lie in global or in shared memory.
struct FoundAnywhere {
    const u32* words;
    u32 rows, start, places;
    const u32* bits;
    u32& mask;
    template <u32 WIDTH> DEVICE void run() {
        unpack_32<WIDTH>(words, [&](u32 r, u32 x) {
            // the bit behind the last place is not set
            const u32 place = min(start + x, places);
            const u32 word = rows >> r & 1 ? bits[place / 32] : 0;
            mask = __funnelshift_r(mask, __funnelshift_r(word, 0, place), 1);
        });
    }
};

// Bits of places to look up for packed residuals, of 1 to 31 bits. Two instructions need that, and share its code.
struct PackedLookup {
    bool is_needed;
    u32 start, places;
    const u32* bits;
};

DEVICE u32 found_packed(const Cursor& c, u32 m, u32 start, u32 places, const u32* bits) {
    u32 mask = 0;
    if (__reduce_max_sync(ALL, (u32)__popc(m)) <= FEW_ROWS) {
        for (u32 left = m; left; left &= left - 1) {
            const u32 r = __ffs((int)left) - 1;
            const u32 place = min(start + narrow_at(c.words(), c.width, r), places);
            mask |= (bits[place / 32] >> place % 32 & 1) << r;
        }
        return mask;
    }
    with_width<UNROLLED_WIDTHS & 0xffffffffull>(c.width, FoundAnywhere{c.words(), m, start, places, bits, mask});
    return mask;
}

// Which of the rows `m` hold an integer in a range, of values that are not encoded and may not fit 64 bits.
DEVICE u32 wide_in_range(const Rows& rows, u32 m, i128 low, i128 high) {
    u32 mask = 0;
#pragma unroll 1
    for (u32 left = m; left; left &= left - 1) {
        const u32 r = __ffs((int)left) - 1;
        const u64 at = rows.first + r * 32;
        i128 x;
        switch (rows.type) {
        case T_I128: x = ((const i128*)rows.values)[at]; break;
        case T_U64: x = (i128)((const u64*)rows.values)[at]; break;
        default: x = (i128)((const i64*)rows.values)[at];
        }
        mask |= (u32)(x >= low && x <= high) << r;
    }
    return mask;
}

// Which of the rows `m` hold a value in a range; arbitrary where null. `test` is the word of a test of codes, `how` has
// flags of tests. The answer may be left to a lookup.
DEVICE u32 in_range(const Args& a, const Warp& w, u32 column, u32 argument, u64 test, u32 how, u32 m,
                    PackedLookup& packed) {
    const Cursor c = cursor(w, column);
    const About of = about(w, column);
    const u32 transform = of.transform(), type = of.type();
    const i64 low = (i64)a.word[argument], high = (i64)a.word[argument + 1];
    if (transform == TEXT) return text_in(c, test);
    const bool is_direct = w.direct >> column & 1;
    if (transform == CODES && how & TEST_BITS) {
        const u32* bits = (const u32*)test;
        // codes of a test have bits for all entries, and those beyond the end do not count
        if (is_direct && c.width > 0 && c.width < 32) {
            packed = PackedLookup{true, c.base_low, __ldg(&c.header()->entries), bits};
            return 0;
        }
        if (is_direct) return bits[c.base_low / 32] >> c.base_low % 32 & 1 ? m : 0;
        return rows_where(a, Rows(a, w, c, of), m, [=](u64 code) { return __ldg(bits + code / 32) >> code % 32 & 1; });
    }
    Entries<u64> entries{test & 0xffffffffull, test >> 32};
    if (how & TEST_WIDE && transform != CODES) {
        const i128 first = (i128)((u128)a.word[argument + 2] << 64 | (u64)low);
        const i128 last = (i128)((u128)a.word[argument + 3] << 64 | (u64)high);
        if (transform == VALUES) return wide_in_range(Rows(a, w, c, of), m, first, last);
        entries = less<u64>(first, last, c.wide_reference());
    } else if (transform == VALUES || transform == PARTS || (transform == DECIMALS && !is_direct)) {
        return rows_where(a, Rows(a, w, c, of), m, [=](u64 x) {
            i64 key = (i64)x;
            if (type == T_F64) key = key_of(__longlong_as_double(key));
            if (type == T_F32) key = key_of(__int_as_float((i32)key));
            return key >= low && key <= high;
        });
    } else if (transform == INTEGERS) {
        entries = less<u64>(low, high, (i64)c.reference());
    } else if (transform == DECIMALS) {
        const i64* decimals = (const i64*)a.word[argument + 2] + 2 * c.scale;
        entries = less<u64>(__ldg(decimals), __ldg(decimals + 1), (i64)c.reference());
    }
    if (entries.low > entries.high) return 0;
    if (!is_direct) {
        if (__ldg(&c.header()->sequence) == RUNS) {
            Cursor runs = c;
            Rle<Any>::open(runs);
            return Rle<Any>::in_range(runs, entries.low, entries.high, (void*)0);
        }
        return rows_where(a, Rows(a, w, c, of), m, [=](u64 x) { return x >= entries.low && x <= entries.high; });
    }
    // the vector's bounds often tell
    const u64 base = c.base<u64>(), top = c.width == 0 ? 0 : ALL >> (32 - c.width);
    const u64 first = entries.low <= base ? 0 : entries.low - base;
    if (entries.high < base || first > top) return 0;
    const u64 last = min(entries.high - base, top);
    if (first == 0 && last == top) return ALL;
    return within_narrow<UNROLLED_WIDTHS>(c.words(), c.width, (u32)first, (u32)(last - first));
}

// The table of a row group, for the keys of a column.
DEVICE Table table_at(const Cursor& c, u32 transform, const u64* words) {
    Table t;
    t.bits = (const u32*)__ldg(words);
    t.codes = (const u8*)__ldg(words + 1);
    t.places = (u32)__ldg(words + 3);
    t.origin = transform == CODES ? 0 : (i64)((transform == INTEGERS ? c.reference() : 0) - __ldg(words + 2));
    return t;
}

DEVICE HashTable hash_table_at(const Cursor& c, u32 transform, const u64* words) {
    HashTable t = hash_table_of(words);
    t.origin = transform == INTEGERS ? c.reference() : 0;
    t.coded = transform == CODES;
    return t;
}

// Which of the rows `m` have a key in a table; arbitrary where null. `copy` is one of its bits in shared memory. The answer
// may be left to a lookup.
DEVICE u32 found(const Args& a, const Warp& w, u32 column, const u64* words, const u32* copy, bool is_hashed, u32 m,
                 PackedLookup& packed) {
    const Cursor c = cursor(w, column);
    const About of = about(w, column);
    const u32 transform = of.transform();
    if (is_hashed) {
        const HashTable t = hash_table_at(c, transform, words);
        u32 mask = 0;
#pragma unroll 1
        for (u32 batch = 0; batch < 32 / DENSE_ROWS; batch++) {
            Batch<DENSE_ROWS, false> rows;
            rows.in = m >> batch * DENSE_ROWS & ((1u << DENSE_ROWS) - 1);
            rows.batch = batch;
            if (!__any_sync(ALL, rows.in)) continue;
            u64 x[DENSE_ROWS];
            rows.values(a, w, column, true, x);
#pragma unroll
            for (u32 k = 0; k < DENSE_ROWS; k += 2) {
                u32 place[2];
                places_of<2>(t, rows.in >> k, x + k, place);
                mask |= ((u32)(place[0] != ALL) | (u32)(place[1] != ALL) << 1) << (batch * DENSE_ROWS + k);
            }
        }
        return mask;
    }
    const Table t = table_at(c, transform, words);
    const u32* bits = copy ? copy : t.bits;
    const bool is_direct = w.direct >> column & 1;
    if (is_direct && transform != VALUES && c.width == 32) {
        const u64 base = c.base<u64>();
        u32 mask = 0;
#pragma unroll 1
        for (u32 left = m; left; left &= left - 1) {
            const u32 r = __ffs((int)left) - 1, place = place_in(t, (i64)(base + narrow_at(c.words(), 32, r)));
            mask |= place == ALL ? 0 : (bits[place / 32] >> place % 32 & 1) << r;
        }
        return mask;
    }
    if (!is_direct || transform == VALUES) {
        if (transform != VALUES && __ldg(&c.header()->sequence) == RUNS) {
            Cursor runs = c;
            Rle<Any>::open(runs);
            // of the table itself: it loads from global memory
            return Rle<Any>::found<false, false>(runs, m, t.origin, t.places, t.bits, (void*)0, 0);
        }
        return rows_where(a, Rows(a, w, c, of), m, [=](u64 x) {
            const u32 place = place_in(t, (i64)x);
            return place != ALL && bits[place / 32] >> place % 32 & 1;
        });
    }
    const i64 start = (i64)((u64)t.origin + c.base<u64>());
    if (start >= (i64)t.places || start <= -(1ll << 31)) return 0;
    if (c.width == 0) return start >= 0 && bits[(u32)start / 32] >> (u32)start % 32 & 1 ? m : 0;
    packed = PackedLookup{true, (u32)start, t.places, bits};
    return 0;
}
