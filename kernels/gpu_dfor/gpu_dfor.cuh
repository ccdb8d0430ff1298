// Differences in tiles of 512, each its first entry and four blocks, as `layout.rs` beside this says: `line` is the
// place of a vector's words, `base` and `width` are bounds of its entries.

template <class S> struct GpuDfor : Blocks<S, GpuDfor<S>> {
    typedef typename S::Entry E;

    static DEVICE void values(const Cursor& c, u32* tile, E out[32]) {
        const u32 integer = words_of_integer<S>(c), lane = lane_id();
        const Miniblock m = miniblock<S>(c, integer, tile);
        const E smallest = integer == 2 ? (E)m.minimum : (E)(i64)(i32)m.minimum;
        E sum = 0;
        residuals_of<S>(c, m, [&](u32 k, auto x) {
            sum += (E)x + smallest;
            out[k] = sum;
        });
        // lanes 0 and 16 have the first blocks of tiles; what their tiles start with is before these
        const u32* words = m.words - (1 + 2 * integer);
        const E first = lane % 16 == 0 ? (E)integer_at<S>(c, words) : 0;
        const E before = sum_before(sum);
        const E start = __shfl_sync(ALL, first - before, lane & 16) + before;
#pragma unroll
        for (u32 k = 0; k < 32; k++) out[k] += start;
        if (sizeof(E) == 8 && integer == 1) {
            // sums wrap around
#pragma unroll
            for (u32 k = 0; k < 32; k++) out[k] &= (E)ALL;
        }
    }

    static DEVICE u32 in_range(const Cursor& c, E low, E high, void* tile) {
        u32 rows;
        if (Blocks<S, GpuDfor<S>>::decided(c, low, high, rows)) return rows;
        E own[32];
        values(c, (u32*)tile, own);
        u32 mask = 0;
        const E span = high - low;
#pragma unroll
        for (u32 k = 0; k < 32; k++) mask |= own[k] - low <= span ? 1u << k : 0;
        return transpose(mask);
    }
};
