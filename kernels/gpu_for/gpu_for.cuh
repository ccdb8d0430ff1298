// A frame of reference for each block, as `layout.rs` beside this says: `line` is the place of a vector's words, `base`
// and `width` are bounds of its entries.

// Which residuals of a miniblock lie in first..=first + span.
struct WithinOwn {
    const u32* words;
    u32 first, span;
    u32& mask;
    template <u32 WIDTH> DEVICE void run() {
        u32 w[WIDTH + 1];
        own_words<WIDTH>(words, w);
        mask = within_words<WIDTH>(w, first, span);
    }
};

// Adds up the residuals of a miniblock that have a bit in `rows`; EVERY: all of them.
template <bool EVERY> struct SumOwn {
    const u32* words;
    u32 rows;
    u64& sum;
    template <u32 WIDTH> DEVICE void run() {
        u32 w[WIDTH + 1];
        own_words<WIDTH>(words, w);
        Sum<WIDTH> own;
        extract_32<WIDTH>(w, [&](u32 k, u32 x) {
            if (EVERY || rows >> k & 1) own.add(x);
        });
        sum = own.total();
    }
};

template <class S> struct GpuFor : Blocks<S, GpuFor<S>> {
    typedef typename S::Entry E;

    // Entries take the place of words where that is faster.
    static DEVICE void prepare(Cursor& c, void* tile) {
        const Miniblock m = stage<S>(c, 0, tile);
        if constexpr (sizeof(E) == 4) {
            if (Blocks<S, GpuFor<S>>::has_few_widths(c)) {
                const u32 minimum = (u32)m.minimum;
                u32 own[32];
                unpack_own<S>((const u32*)tile + m.at, m.width, [&](u32 k, u32 x) { own[k] = minimum + x; });
                return store_row(own, tile);
            }
        }
        uint4 own;
        own.x = m.at * 32;
        own.y = m.width;
        own.z = sizeof(E) == 4 ? mask_of<u32>(m.width) : (u32)(m.minimum >> 32);
        own.w = (u32)m.minimum;
        miniblocks<E>(tile)[lane_id()] = own;
        __syncwarp();
    }

    static DEVICE E entry_at(const Cursor& c, u32 r, u32 lane, u32, const void* tile) {
        if (Blocks<S, GpuFor<S>>::has_few_widths(c)) return ((const E*)tile)[r * 33 + lane];
        return packed_at(r, lane, tile);
    }

    static DEVICE E packed_at(u32 r, u32 lane, const void* tile) {
        const uint4 m = miniblocks<E>(tile)[r];
        const E x = bits_at<E>((const u32*)tile, m.x + lane * m.y);
        if constexpr (sizeof(E) == 4) return (x & m.z) + m.w;
        else return (x & mask_of<E>(m.y)) + ((u64)m.z << 32 | m.w);
    }

    static DEVICE void entries_8(const Cursor& c, u32 eighth, const void* tile, E out[8]) {
        if (Blocks<S, GpuFor<S>>::has_few_widths(c)) {
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = ((const E*)tile)[(eighth * 8 + k) * 33 + lane_id()];
        } else {
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = packed_at(eighth * 8 + k, lane_id(), tile);
        }
    }

    template <class G> static DEVICE u64 sum(Cursor& c, u32 rows, void* tile, G by_entries) {
        if (!Blocks<S, GpuFor<S>>::has_few_widths(c)) {
            // 32 distances from the smallest entry in 32 bits
            if (sizeof(E) == 8 || c.width > 27) return by_entries();
            prepare(c, tile);
            const u32 base = c.base<u32>();
            u32 sum = 0;
#pragma unroll 8
            for (u32 r = 0; r < 32; r++) {
                const u32 x = (u32)packed_at(r, lane_id(), tile) - base;
                if (rows >> r & 1) sum += x;
            }
            return sum + (u64)__popc(rows) * base;
        }
        const Miniblock m = stage<S>(c, 0, tile);
        const u32 own = transpose(rows);
        u64 sum = 0;
        const u32* words = (const u32*)tile + m.at;
        if (__all_sync(ALL, own == ALL)) with_width<S::LOW>(m.width, SumOwn<true>{words, own, sum});
        else with_width<S::LOW>(m.width, SumOwn<false>{words, own, sum});
        __syncwarp();
        return sum + (u64)__popc(own) * (u32)m.minimum;
    }

    static DEVICE u32 tested(const Cursor& c, E low, E high, void* tile) {
        if (!Blocks<S, GpuFor<S>>::has_few_widths(c)) {
            Cursor own = c;
            prepare(own, tile);
            return Blocks<S, GpuFor<S>>::in_range_by_rows(own, low, high, tile);
        }
        const Miniblock m = stage<S>(c, 0, tile);
        const u32 minimum = (u32)m.minimum, top = mask_of<u32>(m.width);
        // of the residuals
        const u32 from = low <= minimum ? 0 : (u32)low - minimum, to = (u32)high - minimum;
        u32 mask = 0;
        if (high < minimum || from > top) {
            // none
        } else if (from == 0 && to >= top) {
            mask = ALL;
        } else {
            const u32* words = (const u32*)tile + m.at;
            with_width<S::LOW>(m.width, WithinOwn{words, from, (to < top ? to : top) - from, mask});
        }
        __syncwarp();
        return transpose(mask);
    }
};
