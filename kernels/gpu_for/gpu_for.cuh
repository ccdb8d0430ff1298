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

// Which residuals of a miniblock, of those in `rows`, have a bit at their place, which is `start` and the residual.
template <bool SHARED, bool EVERY> struct FoundOwn {
    u32 rows, start, places;
    const u32* bits;
    u32 mask = 0;
    DEVICE void look_up(u32 k, u32 x) {
        // the bit behind the last place is not set
        const u32 place = min(start + x, places);
        u32 word = 0;
        if (EVERY || rows >> k & 1) word = word_of_bits<SHARED>(bits, place / 32);
        mask = __funnelshift_r(mask, __funnelshift_r(word, 0, place), 1);
    }
};

template <class S> struct GpuFor : Blocks<S, GpuFor<S>> {
    typedef typename S::Entry E;

    // Entries take the place of words where that is faster, and the tile has room for them.
    static DEVICE void prepare(Cursor& c, void* tile) {
        const Miniblock m = stage<S>(c, 0, tile);
        if constexpr (sizeof(E) == 4) {
            if (Blocks<S, GpuFor<S>>::has_rows(c)) {
                const u32 minimum = (u32)m.minimum;
                u32 own[32];
                unpack_own<S>((const u32*)tile + m.at, m.width, [&](u32 k, u32 x) { own[k] = minimum + x; });
                note(c, m, false);
                return store_row(own, tile);
            }
        }
        note(c, m, true);
        describe(m, tile);
    }

    // What lanes take to read each other's rows.
    static DEVICE void describe(const Miniblock& m, void* tile) {
        uint4 own;
        own.x = m.at * 32;
        own.y = m.width;
        own.z = sizeof(E) == 4 ? mask_of<u32>(m.width) : (u32)(m.minimum >> 32);
        own.w = (u32)m.minimum;
        miniblocks<S>(tile)[lane_id()] = own;
        __syncwarp();
    }

    // Few rows are read where they lie, or in the tile if words were left there. `starts` says where this lane's
    // miniblock is, which is row `lane` of all lanes: its first word, its width, how far it is from its block, and whether
    // words were left in the tile. It is never 0, because a block's head lies before the first miniblock. So what a lookup
    // found is kept.
    template <class> static DEVICE void prepare_picked(Cursor& c, void*) {
        if (c.starts) return;
        const u32* words = (const u32*)c.at(c.line);
        note(c, miniblock<S>(c, distances_of(c), 0, [=](u32 i) { return __ldg(words + i); }), false);
    }

    static DEVICE void note(Cursor& c, const Miniblock& m, bool is_staged) {
        c.starts = m.at | m.width << 12 | (m.at - m.block) << 19 | (u32)is_staged << 31;
    }

    static DEVICE u32 run_at(const Cursor& c, u32 r, u32) { return __shfl_sync(ALL, c.starts, r); }

    // No tile is given if it has words of another column by now. The same loads read either memory, without a branch.
    static DEVICE E entry_at(const Cursor& c, u32, u32 lane, u32 run, const void* tile) {
        const u32* words = (const u32*)(tile && run >> 31 ? tile : c.at(c.line));
        const u32 at = run & 4095, width = run >> 12 & 127, block = at - (run >> 19 & 4095), bit = at * 32 + lane * width;
        if constexpr (sizeof(E) == 4) {
            // the second word only where the residual goes on there: most do not
            const u32 i = bit / 32, shift = bit % 32, second = shift + width > 32 ? words[i + 1] : 0;
            return (__funnelshift_r(words[i], second, shift) & mask_of<u32>(width)) + words[block];
        } else {
            return (bits_at<E>(words, bit) & mask_of<E>(width)) + integer_at<S>(c, words + block);
        }
    }

    static DEVICE E packed_at(u32 r, u32 lane, const void* tile) {
        const uint4 m = miniblocks<S>(tile)[r];
        const E x = bits_at<E>((const u32*)tile, m.x + lane * m.y);
        if constexpr (sizeof(E) == 4) return (x & m.z) + m.w;
        else return (x & mask_of<E>(m.y)) + ((u64)m.z << 32 | m.w);
    }

    static DEVICE E row_at(const Cursor& c, u32 r, const void* tile) {
        if (Blocks<S, GpuFor<S>>::has_rows(c)) return ((const E*)tile)[r * 33 + lane_id()];
        return packed_at(r, lane_id(), tile);
    }

    static DEVICE void entries_8(const Cursor& c, u32 eighth, const void* tile, E out[8]) {
        if (Blocks<S, GpuFor<S>>::has_rows(c)) {
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = ((const E*)tile)[(eighth * 8 + k) * 33 + lane_id()];
        } else {
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = packed_at(eighth * 8 + k, lane_id(), tile);
        }
    }

    template <bool SHARED, bool EVERY, class G>
    static DEVICE u32 found(Cursor& c, u32 rows, i64 origin, u32 places, const u32* bits, void* tile, G by_entries) {
        // a sum of 32 bits or more could be taken for another
        if (sizeof(E) == 8 || c.width >= 32) return by_entries();
        const u32 base = c.base<u32>();
        const i64 start = (i64)((u64)origin + base);
        if (start >= (i64)places || start <= -(1ll << 31)) return 0;
        if (!EVERY && __reduce_max_sync(ALL, (u32)__popc(rows)) <= FEW_ROWS) {
            prepare_picked<void>(c, tile);
            u32 mask = 0;
            for (u32 left = rows; __any_sync(ALL, left); left &= left - 1) {
                const u32 r = left ? __ffs((int)left) - 1 : 0, run = run_at(c, r, lane_id());
                if (!left) continue;
                const u32 x = (u32)entry_at(c, r, lane_id(), run, (void*)0) - base;
                const u32 place = min((u32)start + x, places);
                mask |= (word_of_bits<SHARED>(bits, place / 32) >> place % 32 & 1) << r;
            }
            return mask;
        }
        if (!Blocks<S, GpuFor<S>>::has_few_widths(c)) return by_entries();
        const Miniblock m = stage<S>(c, 0, tile);
        note(c, m, true);
        FoundOwn<SHARED, EVERY> own{transpose(rows), (u32)start + ((u32)m.minimum - base), places, bits};
        unpack_own<S>((const u32*)tile + m.at, m.width, [&](u32 k, u32 x) { own.look_up(k, x); });
        __syncwarp();
        return transpose(own.mask);
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
