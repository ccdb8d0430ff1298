// A frame of reference for each block, as `layout.rs` beside this says: `line` is the place of a vector's words, `base`
// and `width` are bounds of its entries.

// Which residuals lie in first..=first + span.
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

template <class S> struct GpuFor : Blocks<S, GpuFor<S>> {
    typedef typename S::Entry E;

    static DEVICE void values(const Cursor& c, u32* tile, E out[32]) {
        const Miniblock m = miniblock<S>(c, 0, tile);
        const E minimum = (E)m.minimum;
        residuals_of<S>(c, m, [&](u32 k, auto x) { out[k] = minimum + (E)x; });
    }

    static DEVICE u32 in_range(const Cursor& c, E low, E high, void* tile) {
        u32 rows;
        if (Blocks<S, GpuFor<S>>::decided(c, low, high, rows)) return rows;
        const Miniblock m = miniblock<S>(c, 0, (u32*)tile);
        const E minimum = (E)m.minimum;
        // of the residuals
        const E from = low <= minimum ? 0 : low - minimum, to = high - minimum;
        u32 mask = 0;
        if (c.flags & FEW_WIDTHS) {
            const u32 top = m.width >= 32 ? ALL : (1u << m.width) - 1;
            if (high < minimum || from > top) {
                // none
            } else if (from == 0 && to >= top) {
                mask = ALL;
            } else {
                const u32 last = to < top ? (u32)to : top;
                with_width<S::LOW>(m.width, WithinOwn{m.words, (u32)from, last - (u32)from, mask});
            }
        } else {
            const E span = high < minimum ? 0 : to - from;
            residuals_of<S>(c, m, [&](u32 k, auto x) { mask |= (E)x - from <= span ? 1u << k : 0; });
            if (high < minimum) mask = 0;
        }
        __syncwarp();
        return transpose(mask);
    }
};
