// Floats cut in two: an entry is the index of a left part, and right parts are packed beside the entries. Exceptions
// are left parts without an index.

// An unsigned integer as wide as a float, and a signed one.
template <class V> struct BitsOf { typedef u32 Type; typedef i32 Signed; };
template <> struct BitsOf<double> { typedef u64 Type; typedef i64 Signed; };

// One more bit of `outside`, from the right: whether x > span.
DEVICE void note_outside(u32& outside, u64 x, u64 not_span) {
#ifdef CUCPU
    outside = outside << 1 | (x > ~not_span);
#else
    asm("{ .reg .u64 sum; add.cc.u64 sum, %1, %2; addc.u32 %0, %0, %0; }"
        : "+r"(outside) : "l"(x), "l"(not_span));
#endif
}

template <class S> struct AlpRd : Transform<S> {
    typedef typename S::Entry E;
    typedef typename S::Value V;
    typedef typename S::Word W;
    typedef typename BitsOf<V>::Type B;

    // The right parts of a vector.
    struct Rights {
        const u32* words;
        u32 width;
        DEVICE Rights(const Cursor& c)
            : words(c.words(__ldg(&c.extra()->right_line))), width(__ldg(&c.extra()->right_width)) {
#ifndef CUCPU
            // a value of its own: the compiler would add its parts up for each load
            asm("" : "+l"(words));
#endif
        }

        // Entries are waited for before right parts are loaded: fetched, both are on their way.
        DEVICE void fetch_all(const Cursor& c) const {
            const Lines entries = with_sequence<S>(c, [&](auto of) { return of.lines(c); });
            if (lane_id() < entries.count) fetch(entries.from + lane_id() * 128);
            // of words of this lane, not of the line: the same lines
            const u8* line = (const u8*)words + lane_id() * (128 - 4);
            if (lane_id() < width) fetch(line);
            if (S::HIGH != 0 && lane_id() + 32 < width) fetch(line + 32 * 128);
        }
        DEVICE void parts_8(u32 eighth, B out[8]) const {
            if constexpr (sizeof(V) == 8) wide_8<S::LOW, S::HIGH>(words, width, eighth, out);
            else narrow_8<S::LOW>(words, width, eighth, out);
        }
        DEVICE B part_at(u32 r) const { return (B)wide_at<S::HIGH>(words, width, r); }
    };

    // The left parts: lane l has number l % 8, and a shuffle takes less than loads from eight places. Of doubles,
    // they have the upper 16 bits, or fewer.
    struct Lefts {
        u32 own;
        DEVICE Lefts(const Cursor& c)
            : own((u32)(__ldg(&c.header()->lefts[lane_id() % 8]) >> (sizeof(V) - 4) * 8)) {}

        DEVICE B with(E entry, B right) const {
            const u32 left = __shfl_sync(ALL, own, (int)entry);
            if constexpr (sizeof(V) == 8) return (u64)left << 32 | right;
            else return left | right;
        }
    };

    // Calls f(row of this lane, left part) for the exceptions.
    template <class F> static DEVICE void each_exception(const Cursor& c, F f) {
        if (!(S::FLAGS & EXCEPTIONS && c.flags & EXCEPTIONS)) return;
        const u32 shift = __ldg(&c.header()->right_width);
        each_patch(c.at(__ldg(&c.extra()->exceptions)), 4, [&](u32 r, u64 left) { f(r, (B)(left << shift)); });
    }

    static DEVICE void values_8(const Cursor& c, u32 eighth, const E entry[8], V out[8]) {
        const Rights rights(c);
        const Lefts lefts(c);
        if (eighth == 0) rights.fetch_all(c);
        B right[8];
        rights.parts_8(eighth, right);
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = from_bits<V>(lefts.with(entry[k], right[k]));
        each_exception(c, [&](u32 r, B left) {
            if (r / 8 != eighth) return;
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = r % 8 == k ? from_bits<V>(left | right[k]) : out[k];
        });
    }

    // Bits in the order of floats.
    static DEVICE B ordered(B bits) {
        typedef typename BitsOf<V>::Signed I;
        return bits ^ ((B)((I)bits >> (sizeof(B) * 8 - 1)) | (B)1 << (sizeof(B) * 8 - 1));
    }

    // Exceptions are looked at one by one, once for all rows.
    template <bool BITS>
    static DEVICE u32 rows_in(Cursor& c, const Range<W>& range, const Entries<E>&, void* tile) {
        const W top = (W)1 << (sizeof(B) * 8 - 1), least = 0 - (u64)top, greatest = (u64)top - 1;
        const W from = range.low < least ? least : range.low, to = range.high > greatest ? greatest : range.high;
        if (from > to) return 0;
        const B low = (B)from ^ (B)top, span = (B)to - (B)from;
        const Rights rights(c);
        const Lefts lefts(c);
        rights.fetch_all(c);
        prepare<S>(c, tile);
        u32 outside = 0;
#pragma unroll 1
        for (u32 eighth = 0; eighth < 4; eighth++) {
            E entry[8];
            B right[8];
            entries_8<S>(c, eighth, tile, entry);
            rights.parts_8(eighth, right);
#pragma unroll
            for (u32 k = 0; k < 8; k++) note_outside(outside, ordered(lefts.with(entry[k], right[k])) - low, (B)~span);
        }
        u32 mask = ~__brev(outside);
        each_exception(c, [&](u32 r, B left) {
            const bool in = (B)(ordered(left | rights.part_at(r)) - low) <= span;
            mask = (mask & ~(1u << r)) | (u32)in << r;
        });
        return mask;
    }
};
