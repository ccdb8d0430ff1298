// Sequences of unsigned integers: offsets from a column's smallest value, codes of a dictionary.
//
// A column's traits S say what its chunks have: LOW and HIGH (widths, see packed.cuh), SEQUENCES,
// FORMS and FLAGS (masks), Entry (u32, or u64 where some entry needs it).

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

template <class T, class F> struct DeltaWalk {
    const u32* words;
    T base, smallest;
    F f;
    template <u32 WIDTH> DEVICE void run() {
        u32 x[32];
        unpack_32<WIDTH>(words, [&](u32 r, u32 residual) { x[r] = residual; });
        T total = smallest * (T)32;
#pragma unroll
        for (u32 r = 0; r < 32; r++) total += x[r];
        T sum = base + sum_before(total);
#pragma unroll
        for (u32 r = 0; r < 32; r++) {
            sum += x[r] + smallest;
            f(r, sum);
        }
    }
};

// Calls f(r, entry 32 * lane + r - less) for each r, in order.
template <class S, class F>
DEVICE void each_delta(const Cursor& c, typename S::Entry less, F f) {
    typedef typename S::Entry T;
    const T base = c.base<T>() - less, smallest = (T)__ldg(&c.extra()->smallest);
    if (c.width > 0 && c.width <= 32 && !(c.flags & PATCHED)) {
        with_width<S::LOW>(c.width, DeltaWalk<T, F>{c.words(), base, smallest, f});
        return;
    }
    T total = smallest * (T)32;
    T x[8];
    for (u32 eighth = 0; eighth < 4; eighth++) {
        residuals_8<S>(c, eighth, x);
#pragma unroll
        for (u32 k = 0; k < 8; k++) total += (T)x[k];
    }
    T sum = base + sum_before(total);
    for (u32 eighth = 0; eighth < 4; eighth++) {
        residuals_8<S>(c, eighth, x);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            sum += (T)x[k] + smallest;
            f(eighth * 8 + k, sum);
        }
    }
}

template <class S>
DEVICE u32 delta_in(const Cursor& c, typename S::Entry low, typename S::Entry high) {
    typedef typename S::Entry T;
    const T span = high - low;
    u32 mask = 0;
    if constexpr (sizeof(T) == 4) {
        each_delta<S>(c, low, [&](u32, T x) { note_outside(mask, x, ~span); });
        mask = ~__brev(mask);
    } else {
        each_delta<S>(c, low, [&](u32 r, T x) { mask |= x <= span ? 1u << r : 0; });
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
    each_delta<S>(c, 0, [&](u32 r, T x) { own[r] = before + r < rows ? x : 0; });
    __syncwarp();
}

// ---- rle: a block of u16 count, u16 first row of each run, values of 1, 2, 4 or 8 bytes ----

struct Runs {
    const u16* rows;
    const u8* values;
    u32 count, value_bytes;
    u64 base;
    DEVICE u32 start(u32 run) const { return run < count ? __ldg(rows + run) : 1024; }
    DEVICE u64 value(u32 run) const {
        switch (value_bytes) {
            case 0: return base;
            case 1: return base + __ldg(values + run);
            case 2: return base + __ldg((const u16*)values + run);
            case 4: return base + __ldg((const u32*)values + run);
            default: return base + __ldg((const u64*)values + run);
        }
    }
};

DEVICE Runs runs_of(const Cursor& c) {
    const u16* block = (const u16*)c.at(c.line);
    const u32 count = __ldg(block);
    return Runs{block + 1, (const u8*)block + ((2 + 2 * count + 7) & ~7u), count, c.width, c.base<u64>()};
}

// Which rows are in runs whose entry lies in low..=high. `words`: 32 of shared memory.
DEVICE u32 runs_in(const Cursor& c, u64 low, u64 high, u32* words) {
    const u32 lane = lane_id();
    const Runs runs = runs_of(c);
    __syncwarp();
    words[lane] = 0;
    __syncwarp();
    for (u32 run = lane; run < runs.count; run += 32) {
        const u64 value = runs.value(run);
        if (value < low || value > high) continue;
        // a change where the run starts and one where it ends: changes of neighbours cancel
        const u32 start = runs.start(run), end = runs.start(run + 1);
        atomicXor(words + start / 32, 1u << start % 32);
        if (end < 1024) atomicXor(words + end / 32, 1u << end % 32);
    }
    __syncwarp();
    u32 in = words[lane];
#pragma unroll
    for (u32 distance = 1; distance < 32; distance *= 2) in ^= in << distance;
    const u32 open = __ballot_sync(ALL, in >> 31);
    if (__popc(open & ((1u << lane) - 1)) & 1) in = ~in;
    return transpose(in);
}

// Notes where runs start, for run_of.
DEVICE void find_runs(Cursor& c, u32* words) {
    const u32 lane = lane_id();
    const Runs runs = runs_of(c);
    __syncwarp();
    words[lane] = 0;
    __syncwarp();
    for (u32 run = lane; run < runs.count; run += 32) {
        const u32 start = runs.start(run);
        atomicOr(words + start / 32, 1u << start % 32);
    }
    __syncwarp();
    c.starts = words[lane];
    c.before = sum_before((u32)__popc(c.starts));
}

// The run of row r * 32 + lane; all lanes must ask for the same r.
DEVICE u32 run_of(const Cursor& c, u32 r) {
    const u32 starts = __shfl_sync(ALL, c.starts, r), before = __shfl_sync(ALL, c.before, r);
    return before + __popc(starts & (ALL >> (31 - lane_id()))) - 1;
}

// ---- any of them ----

template <class S> DEVICE u8 sequence_of(const Cursor& c) {
    if constexpr (S::SEQUENCES == 1 << SEQUENCE_PACKED) return SEQUENCE_PACKED;
    else if constexpr (S::SEQUENCES == 1 << SEQUENCE_DELTA) return SEQUENCE_DELTA;
    else if constexpr (S::SEQUENCES == 1 << SEQUENCE_RLE) return SEQUENCE_RLE;
    else return __ldg(&c.header()->sequence);
}

// Shared memory of a warp: 32 words for runs, and for each `delta` column that is read by row a tile.
template <class S>
DEVICE u32 entries_in(const Cursor& c, typename S::Entry low, typename S::Entry high, u32* words) {
    if (low > high) return 0;
    const u8 sequence = sequence_of<S>(c);
    if (S::SEQUENCES >> SEQUENCE_PACKED & 1 && sequence == SEQUENCE_PACKED) return packed_in<S>(c, low, high);
    if (S::SEQUENCES >> SEQUENCE_RLE & 1 && sequence == SEQUENCE_RLE) return runs_in(c, low, high, words);
    if (S::SEQUENCES >> SEQUENCE_DELTA & 1 && sequence == SEQUENCE_DELTA) return delta_in<S>(c, low, high);
    return 0;
}

// Makes entries_8 possible.
template <class S> DEVICE void prepare(Cursor& c, u32* words, void* tile) {
    const u8 sequence = sequence_of<S>(c);
    if (S::SEQUENCES >> SEQUENCE_RLE & 1 && sequence == SEQUENCE_RLE) find_runs(c, words);
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
        for (u32 k = 0; k < 8; k++) out[k] = (E)runs.value(run_of(c, eighth * 8 + k));
    } else if (S::SEQUENCES >> SEQUENCE_DELTA & 1) {
        const E* own = (const E*)tile + (eighth * 8 * 33 + lane_id());
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = own[k * 33];
    }
}
