// Differences in tiles of 512, each its first entry and four blocks, as `layout.rs` beside this says: `line` is the
// place of a vector's words, `base` and `width` are bounds of its entries.
//
// Lane l adds up the differences of row l. What a row starts from is known once all have been added up: it lies in shared
// memory, too.

// Adds up a miniblock's differences, into `out`.
struct AddUp {
    const u32* words;
    u32 smallest;
    u32* out;
    u32& sum;
    template <u32 WIDTH> DEVICE void run() {
        u32 w[WIDTH + 1];
        own_words<WIDTH>(words, w);
        extract_32<WIDTH>(w, [&](u32 k, u32 x) {
            sum += x + smallest;
            out[k] = sum;
        });
    }
};

template <class S> struct GpuDfor : Blocks<S, GpuDfor<S>> {
    typedef typename S::Entry E;

    // Sums of rows, in shared memory: a word of padding after 32 keeps both sides free of bank conflicts. Behind them,
    // what each is to be added to.
    static DEVICE E* sums(void* tile) { return (E*)((u32*)tile + most_words<E>()); }
    static DEVICE const E* sums(const void* tile) { return (const E*)((const u32*)tile + most_words<E>()); }

    // Adds up this lane's differences, whatever their width.
    static DEVICE E add_up(const u32* words, const Miniblock& m, E smallest, E* out) {
        const E mask = mask_of<E>(m.width);
        E sum = 0;
#pragma unroll 4
        for (u32 k = 0; k < 32; k++) {
            sum += (bits_at<E>(words, m.at * 32 + k * m.width) & mask) + smallest;
            out[k] = sum;
        }
        return sum;
    }

    static DEVICE void prepare(Cursor& c, void* tile) {
        const u32 integer = words_of_integer<S>(c), lane = lane_id();
        const Miniblock m = stage<S>(c, integer, tile);
        const u32* words = (const u32*)tile;
        const E smallest = integer == 2 ? (E)m.minimum : (E)(i64)(i32)m.minimum;
        E* own = sums(tile) + lane * 33;
        E sum = 0;
        bool is_summed = false;
        if constexpr (sizeof(E) == 4) {
            is_summed = Blocks<S, GpuDfor<S>>::has_few_widths(c) && __all_sync(ALL, m.width > 0);
            if (is_summed) with_width<S::LOW>(m.width, AddUp{words + m.at, smallest, own, sum});
        }
        if (!is_summed) sum = add_up(words, m, smallest, own);
        __syncwarp();
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

    static DEVICE void entries_8(const Cursor& c, u32 eighth, const void* tile, E out[8]) {
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = entry_at(c, eighth * 8 + k, lane_id(), 0, tile);
    }

    static DEVICE u32 tested(const Cursor& c, E low, E high, void* tile) {
        Cursor own = c;
        prepare(own, tile);
        return Blocks<S, GpuDfor<S>>::in_range_by_rows(own, low, high, tile);
    }
};
