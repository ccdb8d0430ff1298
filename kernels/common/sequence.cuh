// Sequences of unsigned integers: offsets from a column's smallest value, codes of a dictionary.
//
// A column's traits S say what its chunks have: LOW and HIGH (widths, 0 among them, see packed.cuh), SEQUENCES,
// FORMS and FLAGS (masks), Entry (u32, or u64 where some entry needs it), BASED (whether some vector's base is not 0).

// ---- packed ----

template <class S> DEVICE void residuals_8(const Cursor& c, u32 eighth, typename S::Entry out[8]) {
    if constexpr (sizeof(typename S::Entry) == 8) wide_8<S::LOW, S::HIGH>(c.words(), c.width, eighth, out);
    else narrow_8<S::LOW>(c.words(), c.width, eighth, out);
    if (S::FLAGS & PATCHED && c.flags & PATCHED) {
        each_patch(c, [&](u32 row, u64 value) {
            if (row / 8 != eighth) return;
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = row % 8 == k ? (typename S::Entry)value : out[k];
        });
    }
}

// Which entries lie in low..=high.
template <class S>
DEVICE u32 packed_in(const Cursor& c, typename S::Entry low, typename S::Entry high) {
    typedef typename S::Entry E;
    const E base = c.base<E>();
    const u32 bits = sizeof(E) * 8;
    const E top = c.width >= bits ? ~(E)0 : ((E)1 << (c.width & (bits - 1))) - 1;
    const E from = low <= base ? 0 : low - base;
    E to = high - base;
    u32 mask;
    if (high < base || from > top) {
        mask = 0;
    } else if (from == 0 && to >= top) {
        mask = ALL;
    } else {
        to = to < top ? to : top;
        bool narrow = true;
        if constexpr (S::HIGH != 0) narrow = c.width <= 32;
        if (narrow) mask = within_narrow<S::LOW>(c.words(), c.width, (u32)from, (u32)(to - from));
        else mask = test_wide<S::HIGH>(c.words(), c.width, [=](u64 x) { return x - from <= to - from; });
    }
    if (S::FLAGS & PATCHED && c.flags & PATCHED) {
        each_patch(c, [&](u32 row, u64 value) {
            const E entry = base + (E)value;
            mask = (mask & ~(1u << row)) | (u32)(entry >= low && entry <= high) << row;
        });
    }
    return mask;
}

// ---- delta: lane l has the entries 32 * l to 32 * l + 31, as differences to the entry before ----

// The entry before this lane's first: in the line before the packed words, or in the two before.
template <class S> DEVICE typename S::Entry lane_start(const Cursor& c) {
    typedef typename S::Entry T;
    if (S::FLAGS & WIDE_STARTS && c.flags & WIDE_STARTS) {
        return (T)__ldg((const u64*)(c.words() - lane_id() - 64) + lane_id());
    }
    return __ldg(c.words() - 32);
}

template <class T, class F> struct DeltaWalk {
    const u32* words;
    T sum, smallest;
    F f;
    template <u32 WIDTH> DEVICE void run() {
        unpack_32<WIDTH>(words, [&](u32 r, u32 x) {
            sum += x + smallest;
            f(r, sum);
        });
    }
};

// Calls f(r, entry 32 * lane + r - less) for each r, in order; `sum` is the entry before, less `less`.
template <class S, class F> DEVICE void each_delta(const Cursor& c, typename S::Entry sum, F f) {
    typedef typename S::Entry T;
    const T smallest = (T)c.smallest;
    if (c.width > 0 && c.width <= 32 && !(c.flags & PATCHED)) {
        with_width<S::LOW>(c.width, DeltaWalk<T, F>{c.words(), sum, smallest, f});
        return;
    }
    T x[8];
    for (u32 eighth = 0; eighth < 4; eighth++) {
        residuals_8<S>(c, eighth, x);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            sum += (T)x[k] + smallest;
            f(eighth * 8 + k, sum);
        }
    }
}

// Which entries lie in low..=high. Neighbours differ little: often a vector is inside or outside as a
// whole. Base, width and smallest difference may tell, without anything read; or where the lanes start,
// without packed words read.
template <class S>
DEVICE u32 delta_in(const Cursor& c, typename S::Entry low, typename S::Entry high) {
    typedef typename S::Entry T;
    const i32 smallest = (i32)c.smallest, most = 1 << 16;
    const u64 base = c.base<u64>();
    // small enough for nothing below to wrap around
    bool tame = smallest == (i64)c.smallest && smallest > -most && smallest < most && c.width <= 16 &&
                !(c.flags & PATCHED) && base < 1ull << (sizeof(T) * 8 - 1);
    const i32 largest = tame ? smallest + (1 << c.width) - 1 : 0;
    const u32 rise = largest > 0 ? largest : 0, fall = tame && smallest < 0 ? -smallest : 0;
    if (tame) {
        const T least = (T)base - fall * 1024, greatest = (T)base + rise * 1024;
        tame = (T)base >= fall * 1024;
        if (tame && (greatest < low || least > high)) return 0;
        if (tame && least >= low && greatest <= high) return ALL;
    }
    const T start = lane_start<S>(c);
    if (tame) {
        // Between two starts nothing is farther than this from both: it could not go and come back.
        const u32 away = ((rise * fall >> c.width) + 2) * 32;
        const T next = __shfl_down_sync(ALL, start, 1);
        T least = start < next ? start : next, greatest = start < next ? next : start;
        least = least < away ? 0 : least - away;
        greatest += away;
        if (lane_id() == 31) {
            least = start - fall * 32;
            greatest = start + rise * 32;
        }
        const bool in = least >= low && greatest <= high, out = greatest < low || least > high;
        if (__all_sync(ALL, in || out)) return transpose(in ? ALL : 0);
    }
    const T span = high - low;
    u32 mask = 0;
    if constexpr (sizeof(T) == 4) {
        each_delta<S>(c, start - low, [&](u32, T x) { note_outside(mask, x, ~span); });
        mask = ~__brev(mask);
    } else {
        each_delta<S>(c, start - low, [&](u32 r, T x) { mask |= x <= span ? 1u << r : 0; });
    }
    return transpose(mask);
}

// A vector of `delta` in shared memory, for reading by row. A word of padding after 32 keeps both
// sides free of bank conflicts.
template <class S> DEVICE void delta_to_tile(const Cursor& c, typename S::Entry* tile) {
    typedef typename S::Entry T;
    __syncwarp();
    T* own = tile + lane_id() * 33;
    // differences beyond the end lead anywhere: codes must not
    const u32 before = c.vector * 1024 + lane_id() * 32, rows = __ldg(&c.header()->rows);
    each_delta<S>(c, lane_start<S>(c), [&](u32 r, T x) { own[r] = before + r < rows ? x : 0; });
    __syncwarp();
}

// ---- rle: a block of 32 words with a bit for each row that starts a run, values of 1, 2, 4 or 8 bytes ----

struct Runs {
    const u32* starts;
    const u8* values;
    u32 value_bytes;
    u64 base;
    // Without a branch for how many bytes it takes: several are waited for together. A block goes on behind
    // its last value.
    template <class E> DEVICE E value(u32 run) const {
        const u64 at = (u64)run * value_bytes;
        const u32 skipped = (u32)at % sizeof(E) * 8, unused = (u32)(sizeof(E) - value_bytes) * 8;
        const E word = __ldg((const E*)(values + at / sizeof(E) * sizeof(E)));
        const E mask = value_bytes == 0 ? 0 : (E)~(E)0 >> unused;
        return (E)base + (word >> skipped & mask);
    }
};

DEVICE Runs runs_of(const Cursor& c) {
    const u8* block = c.at(c.line);
    return Runs{(const u32*)block, block + 128, c.width, c.base<u64>()};
}

// Which of `count` runs have a value, less the base, that passes: bit i of lane l is run 32 * l + i. Bits of no
// run are arbitrary.
template <class V, class T> DEVICE u32 values_where(const Runs& runs, u32 count, T test) {
    // images go on behind the last run
    const V* values = (const V*)runs.values + lane_id();
    const u32 in = __ballot_sync(ALL, test(__ldg(values)));
    u32 mask = in;
    // four loads at a time
#pragma unroll 1
    for (u32 run = 32; run < count; run += 128) {
        V value[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) value[k] = __ldg(values + run + k * 32);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u32 in = __ballot_sync(ALL, test(value[k]));
            if (lane_id() == run / 32 + k) mask = in;
        }
    }
    return mask;
}

// Which rows are in runs whose value, less the base, passes.
template <class E, class T> DEVICE u32 runs_where(const Runs& runs, T test) {
    const u32 starts = __ldg(runs.starts + lane_id());
    const u32 before = sum_before((u32)__popc(starts));
    const u32 count = __shfl_sync(ALL, before + __popc(starts), 31);
    u32 in;
    switch (runs.value_bytes) {
        case 0: return test(0) ? ALL : 0;
        case 1: in = values_where<u8>(runs, count, test); break;
        case 2: in = values_where<u16>(runs, count, test); break;
        case 4: in = values_where<u32>(runs, count, test); break;
        default:
            if constexpr (sizeof(E) == 8) in = values_where<u64>(runs, count, test);
            else in = 0;
    }
    // which runs are not as the one before, and of these the ones that start in this lane's 32 rows
    const u32 previous = __shfl_up_sync(ALL, in, 1);
    u32 changes = in ^ (in << 1 | (lane_id() == 0 ? 0 : previous >> 31));
    const u32 low_part = __shfl_sync(ALL, changes, (int)(before / 32));
    const u32 high_part = __shfl_sync(ALL, changes, (int)(before / 32 + 1));
    changes = __funnelshift_r(low_part, high_part, before);
    // each of them changes the rows from its start on
    u32 rows = 0;
#pragma unroll 1
    for (u32 left = starts; left; changes >>= 4) {
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u32 below = left - 1;
            if (changes >> k & 1) rows ^= left | ~below;
            left &= below;
        }
    }
    const u32 open = __ballot_sync(ALL, rows >> 31);
    if (__popc(open & ((1u << lane_id()) - 1)) & 1) rows = ~rows;
    return transpose(rows);
}

// Which rows are in runs whose entry lies in low..=high.
template <class E> DEVICE u32 runs_in(const Cursor& c, E low, E high) {
    const Runs runs = runs_of(c);
    const E base = c.base<E>();
    const u32 unused_bits = (sizeof(E) - runs.value_bytes) * 8;
    const E most = runs.value_bytes == 0 ? 0 : (E)~(E)0 >> unused_bits % (sizeof(E) * 8);
    const E first = low <= base ? 0 : low - base;
    if (high < base || first > most) return 0;
    E last = high - base;
    last = last < most ? last : most;
    if (first == 0 && last == most) return ALL;
    const E span = last - first;
    return runs_where<E>(runs, [=](E x) { return (E)(x - first) <= span; });
}

// Notes where runs start, for run_of.
DEVICE void find_runs(Cursor& c) {
    c.starts = __ldg(runs_of(c).starts + lane_id());
    c.before = sum_before((u32)__popc(c.starts));
}

// The run of row r of a lane. All lanes must ask at the same time.
DEVICE u32 run_of(const Cursor& c, u32 r, u32 lane) {
    const u32 starts = __shfl_sync(ALL, c.starts, r), before = __shfl_sync(ALL, c.before, r);
    return before + __popc(starts & (ALL >> (31 - lane))) - 1;
}

// ---- any of them ----

template <class S> DEVICE u8 sequence_of(const Cursor& c) {
    if constexpr (S::SEQUENCES == 1 << SEQUENCE_PACKED) return SEQUENCE_PACKED;
    else if constexpr (S::SEQUENCES == 1 << SEQUENCE_DELTA) return SEQUENCE_DELTA;
    else if constexpr (S::SEQUENCES == 1 << SEQUENCE_RLE) return SEQUENCE_RLE;
    else return __ldg(&c.header()->sequence);
}

template <class S>
DEVICE u32 entries_in(const Cursor& c, typename S::Entry low, typename S::Entry high) {
    if (low > high) return 0;
    const u8 sequence = sequence_of<S>(c);
    if (S::SEQUENCES >> SEQUENCE_PACKED & 1 && sequence == SEQUENCE_PACKED) return packed_in<S>(c, low, high);
    if (S::SEQUENCES >> SEQUENCE_RLE & 1 && sequence == SEQUENCE_RLE) return runs_in<typename S::Entry>(c, low, high);
    if (S::SEQUENCES >> SEQUENCE_DELTA & 1 && sequence == SEQUENCE_DELTA) return delta_in<S>(c, low, high);
    return 0;
}

// Makes entries_8 possible. A `delta` column that is read by row has a tile in shared memory.
template <class S> DEVICE void prepare(Cursor& c, void* tile) {
    const u8 sequence = sequence_of<S>(c);
    if (S::SEQUENCES >> SEQUENCE_RLE & 1 && sequence == SEQUENCE_RLE) find_runs(c);
    if (S::SEQUENCES >> SEQUENCE_DELTA & 1 && sequence == SEQUENCE_DELTA) {
        delta_to_tile<S>(c, (typename S::Entry*)tile);
    }
}

// The entries of rows 8 * eighth to 8 * eighth + 7 of this lane.
template <class S>
DEVICE void entries_8(const Cursor& c, u32 eighth, const void* tile, typename S::Entry out[8]) {
    typedef typename S::Entry E;
    const u8 sequence = sequence_of<S>(c);
    if (S::SEQUENCES >> SEQUENCE_PACKED & 1 && sequence == SEQUENCE_PACKED) {
        const E base = c.base<E>();
        residuals_8<S>(c, eighth, out);
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] += base;
    } else if (S::SEQUENCES >> SEQUENCE_RLE & 1 && sequence == SEQUENCE_RLE) {
        const Runs runs = runs_of(c);
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = runs.value<E>(run_of(c, eighth * 8 + k, lane_id()));
    } else if (S::SEQUENCES >> SEQUENCE_DELTA & 1) {
        const E* own = (const E*)tile + (eighth * 8 * 33 + lane_id());
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = own[k * 33];
    }
}

// What the other lanes know of row r of a lane: its run, if there are any. All lanes must ask at the same time,
// and before they load: nothing is loaded together on both sides of that.
template <class S> DEVICE u32 run_at(const Cursor& c, u32 r, u32 lane) {
    if (S::SEQUENCES >> SEQUENCE_RLE & 1 && sequence_of<S>(c) == SEQUENCE_RLE) return run_of(c, r, lane);
    return 0;
}

// The entry of row r of a lane, which is in this run, where there are no patches.
template <class S>
DEVICE typename S::Entry entry_at(const Cursor& c, u32 r, u32 lane, u32 run, const void* tile) {
    typedef typename S::Entry E;
    const u8 sequence = sequence_of<S>(c);
    if (S::SEQUENCES >> SEQUENCE_RLE & 1 && sequence == SEQUENCE_RLE) return runs_of(c).value<E>(run);
    if (S::SEQUENCES >> SEQUENCE_DELTA & 1 && sequence == SEQUENCE_DELTA) return ((const E*)tile)[r * 33 + lane];
    return (E)(c.base<E>() + (E)wide_at<S::HIGH>(c.words_of(lane), c.width, r));
}
