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

    // Entries lie behind the words.
    static DEVICE void prepare(Cursor& c, void* tile) {
        const Miniblock m = stage<S>(c, words_of_integer<S>(c), tile);
        const u32* words = (const u32*)tile;
        const E smallest = smallest_of(c, m);
        E* row = rows(tile) + lane_id() * 33;
        E sum = 0;
        const auto add = [&](u32 k, E x) {
            sum += x + smallest;
            row[k] = sum;
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
        const E start = start_of(c, words, m, sum);
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

    static DEVICE u32 tested(const Cursor& c, E low, E high, void* tile) {
        Cursor own = c;
        prepare(own, tile);
        return Blocks<S, GpuDfor<S>>::in_range_by_rows(own, low, high, tile);
    }
};
