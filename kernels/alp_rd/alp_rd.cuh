// Floats cut in two: an entry is the index of a left part, and right parts are packed beside the entries. Exceptions
// are left parts without an index.

template <class S> struct AlpRd : Transform<S> {
    typedef typename S::Entry E;
    typedef typename S::Value V;
    typedef typename S::Word W;

    static DEVICE void values_8(const Cursor& c, u32 eighth, const E entry[8], V out[8]) {
        u64 right[8];
        const Extra* extra = c.extra();
        const u32 line = __ldg(&extra->right_line);
        wide_8<S::LOW, S::HIGH>(c.words(line), __ldg(&extra->right_width), eighth, right);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            out[k] = from_bits<V>(right[k] | __ldg(&c.header()->lefts[entry[k] & 7]));
        }
        if (!(S::FLAGS & EXCEPTIONS && c.flags & EXCEPTIONS)) return;
        const u32 shift = __ldg(&c.header()->right_width);
        each_patch(c.at(__ldg(&c.extra()->exceptions)), 4, [&](u32 row, u64 left) {
            if (row / 8 != eighth) return;
#pragma unroll
            for (u32 k = 0; k < 8; k++) {
                const u64 whole = left << shift | right[k];
                out[k] = row % 8 == k ? from_bits<V>(whole) : out[k];
            }
        });
    }

    template <bool BITS>
    static DEVICE u32 rows_in(Cursor& c, const Range<W>& range, const Entries<E>&, void* tile) {
        return values_in<S, AlpRd<S>>(c, range, tile);
    }
};
