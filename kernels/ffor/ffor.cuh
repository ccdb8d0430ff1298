// Packed residuals and a base for each vector, as `layout.rs` beside this writes them: `line` is where a vector's
// words are, `width` the bits of a residual.

// Writes value(residual) of these rows.
template <class T, class F> struct Copy32 {
    const u32* words;
    u32 rows;
    T* out;
    F value;
    template <u32 WIDTH> DEVICE void run() {
        unpack_32<WIDTH>(words, [&](u32 r, u32 x) {
            if (rows >> r & 1) __stcs(out + r * 32, value(x));
        });
    }
};

// Which rows have a bit at their place, which is `start` and the residual.
template <bool SHARED, bool EVERY> struct Found32 {
    const u32* words;
    u32 rows, start, places;
    const u32* bits;
    u32& mask;
    template <u32 WIDTH> DEVICE void run() {
        unpack_32<WIDTH>(words, [&](u32 r, u32 x) {
            // the bit behind the last place is not set
            const u32 place = min(start + x, places);
            u32 word = 0;
            if (EVERY || rows >> r & 1) word = word_of_bits<SHARED>(bits, place / 32);
            mask = __funnelshift_r(mask, __funnelshift_r(word, 0, place), 1);
        });
    }
};

// Rows of any lane up to which each lane looks up its own one after the other, instead of going through all.
const u32 FEW_ROWS = 4;

// The same for few `rows`: two at a time, so that both are waited for together.
template <class S, bool SHARED>
DEVICE u32 few_found(const Cursor& c, u32 rows, u32 start, u32 places, const u32* bits) {
    const u32 width = width_of<S>(c);
    u32 mask = 0;
    while (rows) {
        const u32 below = rows & (rows - 1), r[] = {(u32)__ffs((int)rows) - 1, (u32)__ffs((int)below) - 1};
        u32 x[2];
#pragma unroll
        for (u32 k = 0; k < 2; k++) x[k] = narrow_at(c.words(), width, r[k] & 31);
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            const u32 place = min(start + x[k], places);
            mask |= (word_of_bits<SHARED>(bits, place / 32) >> place % 32 & 1) << (r[k] & 31);
        }
        rows = below & (below - 1);
    }
    return mask;
}

template <class S> struct Ffor : Sequence<S> {
    typedef typename S::Entry E;

    static DEVICE bool is_patched(const Cursor& c) { return S::FLAGS & PATCHED && c.flags & PATCHED; }

    static DEVICE u32 in_range(const Cursor& c, E low, E high, void*) {
        const E base = c.base<E>();
        const u32 bits = sizeof(E) * 8;
        const E top = c.width >= bits ? ~(E)0 : ((E)1 << (c.width & (bits - 1))) - 1;
        const E from = low <= base ? 0 : low - base;
        E to = high - base;
        u32 mask;
        if (high < base || from > top) {
            mask = 0;
        } else if (from == 0 && to >= top) {
            mask = ALL;
        } else {
            to = to < top ? to : top;
            bool narrow = true;
            if constexpr (S::HIGH != 0) narrow = c.width <= 32;
            if (narrow) mask = within_narrow<S::LOW>(c.words(), c.width, (u32)from, (u32)(to - from));
            else mask = test_wide<S::HIGH>(c.words(), c.width, [=](u64 x) { return x - from <= to - from; });
        }
        if (is_patched(c)) {
            each_patch(c, [&](u32 row, u64 value) {
                const E entry = base + (E)value;
                mask = (mask & ~(1u << row)) | (u32)(entry >= low && entry <= high) << row;
            });
        }
        return mask;
    }

    static DEVICE void entries_8(const Cursor& c, u32 eighth, const void*, E out[8]) {
        const E base = c.base<E>();
        residuals_8<S>(c, eighth, out);
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] += base;
    }

    static DEVICE E entry_at(const Cursor& c, u32 r, u32 lane, u32, const void*) {
        return (E)(c.base<E>() + (E)wide_at<S::HIGH>(c.words_of(lane), width_of<S>(c), r));
    }

    // All words of a vector are loaded before the first is used.
    template <class T, class F> static DEVICE bool copy(const Cursor& c, u32 rows, T* out, F value) {
        if (c.width > 32) return false;
        if (c.width == 0) {
#pragma unroll
            for (u32 r = 0; r < 32; r++) {
                if (rows >> r & 1) out[r * 32] = value(0u);
            }
        } else {
            with_width<S::LOW>(c.width, Copy32<T, F>{c.words(), rows, out, value});
        }
        if (is_patched(c)) {
            each_patch(c, [&](u32 r, u64 x) {
                if (rows >> r & 1) out[r * 32] = value((E)x);
            });
        }
        return true;
    }

    template <class G> static DEVICE u32 in_set(const Cursor& c, const u32* bits, G by_entries) {
        // beside other sequences it is not worth its code
        if (is_one(S::SEQUENCES) && c.width > 0 && c.width <= 32 && !(c.flags & PATCHED)) {
            u32 mask = 0;
            with_width<S::LOW>(c.width, InSet32{c.words(), c.base_low, bits, mask});
            return mask;
        }
        return by_entries();
    }

    template <bool SHARED, bool EVERY, class G>
    static DEVICE u32 found(const Cursor& c, u32 rows, i64 origin, u32 places, const u32* bits, G by_entries) {
        // a residual of 32 bits or more could take a sum for another
        const u32 width = width_of<S>(c);
        if constexpr (S::LOW >> 32) {
            if (width >= 32) return by_entries();
        }
        const i64 start = (i64)((u64)origin + c.base<E>());
        u32 mask = 0;
        if (start >= (i64)places || start <= -(1ll << 31)) {
            // none, but patches
        } else if (width == 0) {
            const bool in = start >= 0 && word_of_bits<SHARED>(bits, (u32)start / 32) >> (u32)start % 32 & 1;
            mask = in ? rows : 0;
        } else if (!EVERY && __reduce_max_sync(ALL, (u32)__popc(rows)) <= FEW_ROWS) {
            mask = few_found<S, SHARED>(c, rows, (u32)start, places, bits);
        } else {
            with_width<S::LOW & 0xffffffffull>(
                c.width, Found32<SHARED, EVERY>{c.words(), rows, (u32)start, places, bits, mask});
        }
        if (is_patched(c)) {
            each_patch(c, [&](u32 r, u64 x) {
                const u64 place = (u64)start + x;
                const bool in = place < places
                    && word_of_bits<SHARED>(bits, (u32)place / 32) >> (u32)place % 32 & 1;
                mask = (mask & ~(1u << r)) | (u32)in << r;
            });
        }
        return mask;
    }

    template <class G> static DEVICE u64 sum(const Cursor& c, u32 rows, void*, G by_entries) {
        if (c.width > 32) return by_entries();
        u64 sum = (u64)__popc(rows) * c.base<E>(), residuals = 0;
        if (is_patched(c)) {
            const u32 all = rows;
            each_patch(c, [&](u32 row, u64 value) {
                if (!(all >> row & 1)) return;
                sum += value;
                rows &= ~(1u << row);
            });
        }
        with_width<S::LOW>(c.width, Sum32{c.words(), rows, residuals});
        return sum + residuals;
    }

    template <class F, class G> static DEVICE u32 where(const Cursor& c, u32 rows, F test, G by_entries) {
        if (width_of<S>(c) == 0 && !is_patched(c)) return test((E)0) ? rows : 0;
        return by_entries();
    }
};
