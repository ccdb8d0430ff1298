// Runs: a block of 32 words with a bit for each row that starts one, behind it values of 1, 2, 4 or 8 bytes (or
// none, where all are the vector's base). `line` is the place of the block, `width` the bytes of a value.

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

template <class S> DEVICE Runs runs_of(const Cursor& c) {
    const u8* block = c.at(c.line);
    return Runs{(const u32*)block, block + 128, width_of<S>(c), c.base<u64>()};
}

// Which of `count` runs have a value, less the base, that passes: bit i of lane l is run 32 * l + i. Bits of no
// run are arbitrary.
template <class V, class T> DEVICE u32 values_where(const Runs& runs, u32 count, T test) {
    // chunks go on behind the last run
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

// With a predicate: left alone, the compiler makes a mask of the condition.
DEVICE void flip_if(u32 condition, u32& rows, u32 these) {
#ifdef CUCPU
    if (condition) rows ^= these;
#else
    asm("{ .reg .pred p; setp.ne.u32 p, %1, 0; @p xor.b32 %0, %0, %2; }" : "+r"(rows) : "r"(condition), "r"(these));
#endif
}

// Which rows are in runs whose value, less the base, passes.
template <class S, class T> DEVICE u32 runs_where(const Runs& runs, T test) {
    const u32 starts = __ldg(runs.starts + lane_id());
    const u32 before = sum_before((u32)__popc(starts));
    const u32 count = __shfl_sync(ALL, before + __popc(starts), 31);
    u32 in = 0;
    switch (runs.value_bytes) {
        case 0: return test(0) ? ALL : 0;
#define CASE(V)                                                                                    \
    case sizeof(V):                                                                                \
        if constexpr (S::WIDTHS >> sizeof(V) & 1) in = values_where<V>(runs, count, test);         \
        break;
        CASE(u8)
        CASE(u16)
        CASE(u32)
        CASE(u64)
#undef CASE
    }
    // which runs are not as the one before, and of these the ones that start in this lane's 32 rows
    const u32 previous = __shfl_up_sync(ALL, in, 1);
    u32 changes = in ^ (in << 1 | (lane_id() == 0 ? 0 : previous >> 31));
    const u32 low_part = __shfl_sync(ALL, changes, (int)(before / 32));
    const u32 high_part = __shfl_sync(ALL, changes, (int)(before / 32 + 1));
    changes = __funnelshift_r(low_part, high_part, before);
    changes &= __funnelshift_rc(ALL, 0, 32 - __popc(starts));
    // each of them changes the rows from its start on: first those up to its start, which takes less
    u32 rows = 0;
#pragma unroll 1
    for (u32 left = starts; left; changes >>= 4) {
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u32 below = left - 1;
            flip_if(changes & 1u << k, rows, left ^ below);
            left &= below;
        }
    }
    rows = rows >> 1 ^ (0 - (rows & 1));
    const u32 open = __ballot_sync(ALL, rows >> 31);
    if (__popc(open & ((1u << lane_id()) - 1)) & 1) rows = ~rows;
    return transpose(rows);
}

// The sum of the values, less the base, that these rows are in runs of.
template <class V> DEVICE u64 sum_of_runs(const Runs& runs, u32 rows) {
    const u32 own = transpose(rows), starts = __ldg(runs.starts + lane_id());
    const u32 run = sum_before((u32)__popc(starts));
    // the first row of all starts one
    const V* values = (const V*)runs.values + run;
    u32 left = starts;
    u64 sum = run == 0 ? 0 : (u64)__popc(own & ((left & (0 - left)) - 1)) * __ldg(values - 1);
    // four loads at a time: chunks go on behind the last run
#pragma unroll 1
    for (; left; values += 4) {
        V value[4];
#pragma unroll
        for (u32 k = 0; k < 4; k++) value[k] = __ldg(values + k);
#pragma unroll
        for (u32 k = 0; k < 4; k++) {
            const u32 first = left & (0 - left);
            left ^= first;
            const u32 next = left & (0 - left);
            sum += (u64)__popc(own & (next - first)) * value[k];
        }
    }
    return sum;
}

// Whether the key of a run is there. A sum that is no place is more than the last one; the bit behind it is not set.
template <class E, bool SHARED> struct FoundRun {
    E start;
    u32 places;
    const u32* bits;
    template <class V> DEVICE bool operator()(V x) const {
        const u32 place = (u32)min((E)(start + x), (E)places);
        return word_of_bits<SHARED>(bits, place / 32) >> place % 32 & 1;
    }
};

template <class S> struct Rle : Sequence<S> {
    typedef typename S::Entry E;

    // Notes where runs start, for run_at.
    static DEVICE void prepare(Cursor& c, void*) {
        c.starts = __ldg(runs_of<S>(c).starts + lane_id());
        c.before = sum_before((u32)__popc(c.starts));
    }

    static DEVICE u32 run_at(const Cursor& c, u32 r, u32 lane) {
        const u32 starts = __shfl_sync(ALL, c.starts, r), before = __shfl_sync(ALL, c.before, r);
        return before + __popc(starts & (ALL >> (31 - lane))) - 1;
    }

    // As many as there are as a rule.
    static DEVICE Lines lines(const Cursor& c) { return Lines{c.at(c.line), 1 + 2 * min((u32)c.width, 4u)}; }

    static DEVICE u32 in_range(const Cursor& c, E low, E high, void*) {
        const Runs runs = runs_of<S>(c);
        const E base = c.base<E>();
        const u32 unused_bits = (sizeof(E) - runs.value_bytes) * 8;
        const E most = runs.value_bytes == 0 ? 0 : (E)~(E)0 >> unused_bits % (sizeof(E) * 8);
        const E first = low <= base ? 0 : low - base;
        if (high < base || first > most) return 0;
        E last = high - base;
        last = last < most ? last : most;
        if (first == 0 && last == most) return ALL;
        const E span = last - first;
        return runs_where<S>(runs, [=](E x) { return (E)(x - first) <= span; });
    }

    static DEVICE void entries_8(const Cursor& c, u32 eighth, const void*, E out[8]) {
        const Runs runs = runs_of<S>(c);
        // what the next rows need, while these are waited for
        if (eighth == 0) {
            const u32 count = __shfl_sync(ALL, c.before + __popc(c.starts), 31);
            if (lane_id() * 128 < count * runs.value_bytes) fetch(runs.values + lane_id() * 128);
        }
        u32 starts = __shfl_sync(ALL, c.starts, eighth * 8), run[8];
        run[0] = __shfl_sync(ALL, c.before, eighth * 8) + __popc(starts & (ALL >> (31 - lane_id()))) - 1;
#pragma unroll
        for (u32 k = 1; k < 8; k++) {
            // 32 rows on, as many runs as start between
            const u32 next = __shfl_sync(ALL, c.starts, eighth * 8 + k);
            run[k] = run[k - 1] + __popc(__funnelshift_l(starts, next, 31 - lane_id()));
            starts = next;
        }
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = 0;
        switch (runs.value_bytes) {
#define CASE(V)                                                                                    \
    case sizeof(V):                                                                                \
        if constexpr (S::WIDTHS >> sizeof(V) & 1) values_of<V>(runs, run, out);                    \
        break;
            CASE(u8)
            CASE(u16)
            CASE(u32)
            CASE(u64)
#undef CASE
        }
        const E base = c.base<E>();
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] += base;
    }

    // The values, less the base, of eight runs.
    template <class V> static DEVICE void values_of(const Runs& runs, const u32 run[8], E out[8]) {
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = (E)__ldg((const V*)runs.values + run[k]);
    }

    static DEVICE E entry_at(const Cursor& c, u32, u32, u32 run, const void*) {
        const Runs runs = runs_of<S>(c);
        return runs.value<E>(run);
    }

    template <class G> static DEVICE u64 sum(const Cursor& c, u32 rows, void*, G) {
        const Runs runs = runs_of<S>(c);
        u64 sum = (u64)__popc(rows) * c.base<E>();
        switch (runs.value_bytes) {
#define CASE(V)                                                                                    \
    case sizeof(V):                                                                                \
        if constexpr (S::WIDTHS >> sizeof(V) & 1) sum += sum_of_runs<V>(runs, rows);               \
        break;
            CASE(u8)
            CASE(u16)
            CASE(u32)
            CASE(u64)
#undef CASE
        }
        return sum;
    }

    template <class G> static DEVICE u32 in_set(const Cursor& c, const u32* bits, G) {
        const E base = c.base<E>(), entries = __ldg(&c.header()->entries);
        return runs_where<S>(runs_of<S>(c), [=](E x) {
            const E code = base + x;
            return code < entries && (__ldg(bits + code / 32) >> code % 32 & 1) != 0;
        });
    }

    template <bool SHARED, bool EVERY, class G>
    static DEVICE u32 found(const Cursor& c, u32 rows, i64 origin, u32 places, const u32* bits, void*, G) {
        const i64 start = (i64)((u64)origin + c.base<E>());
        // entries of 32 bits are below 2^31 in a block: within these bounds no sum is taken for another
        if (sizeof(E) == 4 && (start >= (i64)places || start <= -(1ll << 31))) return 0;
        return rows & runs_where<S>(runs_of<S>(c), FoundRun<E, SHARED>{(E)start, places, bits});
    }

    template <class F, class G> static DEVICE u32 where(const Cursor& c, u32 rows, F test, G) {
        return rows & runs_where<S>(runs_of<S>(c), test);
    }
};
