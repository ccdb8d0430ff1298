// Differences in tiles of 512, each its first entry and four blocks, as `layout.rs` beside this says: `line` is the
// place of a vector's words, `base` and `width` are bounds of its entries.
//
// Lane l adds up the differences of row l. What a row starts from is known once all have been added up. A word of
// padding after 32 entries keeps lanes and rows free of bank conflicts.

template <class S> struct GpuDfor : Blocks<S, GpuDfor<S>> {
    typedef typename S::Entry E;

    static DEVICE E smallest_of(const Cursor& c, const Miniblock& m) {
        return words_of_integer<S>(c) == 2 ? (E)m.minimum : (E)(i64)(i32)m.minimum;
    }

    // What this lane's row starts from, whose differences come to `sum`: lanes 0 and 16 have the first miniblocks of
    // tiles, before which is what these start with.
    static DEVICE E start_of(const Cursor& c, const u32* words, const Miniblock& m, E sum) {
        const u32 integer = words_of_integer<S>(c), lane = lane_id();
        const E first = lane % 16 == 0 ? (E)integer_at<S>(c, words + m.at - (1 + 2 * integer)) : 0;
        const E before = sum_before(sum);
        return __shfl_sync(ALL, first - before, lane & 16) + before;
    }

    // Calls f(k, sum of this lane's differences up to k), and gives what the lane's row starts from.
    template <class F> static DEVICE E each_sum(const Cursor& c, const u32* words, const Miniblock& m, F f) {
        const E smallest = smallest_of(c, m);
        E sum = 0;
        const auto add = [&](u32 k, E x) {
            sum += x + smallest;
            f(k, sum);
        };
        if (Blocks<S, GpuDfor<S>>::has_few_widths(c)) {
            unpack_own<S>(words + m.at, m.width, add);
        } else {
            // of any width, for which a loop takes less code
            const E mask = mask_of<E>(m.width);
#pragma unroll 4
            for (u32 k = 0; k < 32; k++) add(k, bits_at<E>(words, m.at * 32 + k * m.width) & mask);
        }
        __syncwarp();
        return start_of(c, words, m, sum);
    }

    // Entries lie behind the words.
    static DEVICE void prepare(Cursor& c, void* tile) {
        const Miniblock m = stage<S>(c, words_of_integer<S>(c), tile);
        E* row = rows(tile) + lane_id() * 33;
        const E start = each_sum(c, (const u32*)tile, m, [&](u32 k, E sum) { row[k] = sum; });
        // sums of 32 bits wrap around
        const E wrap = words_of_integer<S>(c) == 1 ? (E)ALL : ~(E)0;
#pragma unroll 4
        for (u32 k = 0; k < 32; k++) row[k] = row[k] + start & wrap;
        __syncwarp();
    }

    static DEVICE E* rows(void* tile) { return (E*)tile + 32 * 33; }

    static DEVICE E entry_at(const Cursor&, u32 r, u32 lane, u32, const void* tile) {
        return rows((void*)tile)[r * 33 + lane];
    }

    template <class G> static DEVICE u64 sum(const Cursor& c, u32 rows, void* tile, G by_entries) {
        // 32 distances from the smallest entry in 32 bits: what is beyond these goes, wherever it came from
        if (sizeof(E) == 8 || c.width > 27) return by_entries();
        const Miniblock m = stage<S>(c, words_of_integer<S>(c), tile);
        const u32 own = transpose(rows), count = (u32)__popc(own), base = c.base<u32>();
        u32 sum = 0;
        const E start = each_sum(c, (const u32*)tile, m, [&](u32 k, E x) {
            if (own >> k & 1) sum += (u32)x;
        });
        return sum + count * ((u32)start - base) + (u64)count * base;
    }

    static DEVICE u32 tested(const Cursor& c, E low, E high, void* tile) {
        Cursor own = c;
        prepare(own, tile);
        return Blocks<S, GpuDfor<S>>::in_range_by_rows(own, low, high, tile);
    }
};
