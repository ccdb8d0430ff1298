// Differences in tiles of 512, each its first entry and four blocks, as `layout.rs` beside this says: `line` is the
// place of a vector's words, `base` and `width` are bounds of its entries.
//
// Lane l adds up the differences of row l. What a row starts from is known once all have been added up: it lies in shared
// memory, too.

template <class S> struct GpuDfor : Blocks<S, GpuDfor<S>> {
    typedef typename S::Entry E;

    // Sums of rows, in shared memory: a word of padding after 32 keeps both sides free of bank conflicts. Behind them,
    // what each is to be added to.
    static DEVICE E* sums(void* tile) { return (E*)((u32*)tile + most_words<E>()); }
    static DEVICE const E* sums(const void* tile) { return (const E*)((const u32*)tile + most_words<E>()); }

    // Adds up this lane's differences, as many of which are read at a time as `AT_ONCE`: 32 bits hold them.
    template <u32 AT_ONCE> static DEVICE E add_up(const u32* words, const Miniblock& m, E smallest, E* out) {
        const E mask = mask_of<E>(m.width);
        E sum = 0;
#pragma unroll 2
        for (u32 k = 0; k < 32; k += AT_ONCE) {
            E x = bits_at<E>(words, m.at * 32 + k * m.width);
#pragma unroll
            for (u32 i = 0; i < AT_ONCE; i++) {
                sum += (x & mask) + smallest;
                out[k + i] = sum;
                if constexpr (AT_ONCE > 1) x >>= m.width;
            }
        }
        return sum;
    }

    static DEVICE void prepare(Cursor& c, void* tile) {
        const u32 integer = words_of_integer<S>(c), lane = lane_id();
        const Miniblock m = stage<S>(c, integer, tile);
        const u32* words = (const u32*)tile;
        const E smallest = integer == 2 ? (E)m.minimum : (E)(i64)(i32)m.minimum;
        E* own = sums(tile) + lane * 33;
        E sum;
        if constexpr (sizeof(E) == 8) {
            sum = add_up<1>(words, m, smallest, own);
        } else {
            const u32 most = __reduce_max_sync(ALL, m.width);
            if (most <= 8) sum = add_up<4>(words, m, smallest, own);
            else if (most <= 16) sum = add_up<2>(words, m, smallest, own);
            else sum = add_up<1>(words, m, smallest, own);
        }
        // lanes 0 and 16 have the first miniblocks of tiles; what their tiles start with is before these
        const E first = lane % 16 == 0 ? (E)integer_at<S>(c, words + m.at - (1 + 2 * integer)) : 0;
        const E before = sum_before(sum);
        sums(tile)[32 * 33 + lane] = __shfl_sync(ALL, first - before, lane & 16) + before;
        __syncwarp();
    }

    static DEVICE E entry_at(const Cursor& c, u32 r, u32 lane, u32, const void* tile) {
        const E* all = sums(tile);
        const E entry = all[r * 33 + lane] + all[32 * 33 + r];
        // sums of 32 bits wrap around
        if constexpr (sizeof(E) == 8) return words_of_integer<S>(c) == 1 ? (u32)entry : entry;
        else return entry;
    }
};
