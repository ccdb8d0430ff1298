// Lane l has the entries 32 * l to 32 * l + 31, as differences to the entry before. Before a vector's packed words
// lies where each lane starts; a residual and `smallest` are a difference.

// The entry before this lane's first: in the line before the packed words, or in the two before.
template <class S> DEVICE typename S::Entry lane_start(const Cursor& c) {
    typedef typename S::Entry T;
    if (S::FLAGS & WIDE && c.flags & WIDE) {
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

template <class S> struct Delta : Sequence<S> {
    typedef typename S::Entry T;

    static const bool STRAYS = true;

    static DEVICE void open(Cursor& c) { c.smallest = __ldg(&c.extra()->smallest); }

    // Neighbours differ little: often a vector is inside or outside as a
    // whole. Base, width and smallest difference may tell, without anything read; or where the lanes start,
    // without packed words read.
    static DEVICE u32 in_range(const Cursor& c, T low, T high, void*) {
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

    // Differences of up to 32 bits wrap around there, whatever they are added up in.
    static DEVICE u64 whole(T x) {
        if constexpr (sizeof(typename S::Stored) <= 4) return (u32)x;
        else return x;
    }

    template <class G> static DEVICE u64 sum(const Cursor& c, u32 rows, void*, G) {
        const u32 own = transpose(rows);
        const T start = lane_start<S>(c);
        const i64 smallest = (i64)c.smallest, most = 1 << 16;
        // the first entry may be that of a null, which is anything
        if (smallest > -most && smallest < most && c.width <= 16 && !(c.flags & (PATCHED | SOME_NULL))) {
            // 32 distances from the lane's first entry, each of up to 31 differences
            i32 sum = 0, first = 0;
            each_delta<S>(c, 0, [&](u32 r, T x) {
                if (r == 0) first = (i32)x;
                if (own >> r & 1) sum += (i32)x - first;
            });
            return (u64)__popc(own) * whole(start + (T)first) + (u64)(i64)sum;
        }
        u64 sum = 0;
        each_delta<S>(c, start, [&](u32 r, T x) {
            if (own >> r & 1) sum += whole(x);
        });
        return sum;
    }

    // Puts entries into shared memory, for reading by row. A word of padding after 32 keeps both
    // sides free of bank conflicts.
    static DEVICE void prepare(Cursor& c, void* tile) {
        __syncwarp();
        T* own = (T*)tile + lane_id() * 33;
        // differences beyond the end lead anywhere: codes must not
        const u32 before = c.vector * 1024 + lane_id() * 32, rows = __ldg(&c.header()->rows);
        each_delta<S>(c, lane_start<S>(c), [&](u32 r, T x) { own[r] = before + r < rows ? x : 0; });
        __syncwarp();
    }

    static DEVICE void entries_8(const Cursor&, u32 eighth, const void* tile, T out[8]) {
        const T* own = (const T*)tile + (eighth * 8 * 33 + lane_id());
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = own[k * 33];
    }

    static DEVICE T entry_at(const Cursor&, u32 r, u32 lane, u32, const void* tile) {
        return ((const T*)tile)[r * 33 + lane];
    }
};
