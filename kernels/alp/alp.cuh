// Floats that are decimals: (reference + entry) * 10^factor * 10^-exponent in doubles, with a vector's factor and
// exponent in its scale. Exceptions are stored apart, as they are.

__constant__ double POWERS[19] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                                  1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
__constant__ double FRACTIONS[19] = {1e0,   1e-1,  1e-2,  1e-3,  1e-4,  1e-5,  1e-6,  1e-7,  1e-8, 1e-9,
                                     1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15, 1e-16, 1e-17, 1e-18};

template <class S> struct Alp : Transform<S> {
    typedef typename S::Entry E;
    typedef typename S::Value V;
    typedef typename S::Stored T;
    typedef typename S::Word W;

    template <class F> static DEVICE void each_exception(const Cursor& c, F f) {
        if (!(S::FLAGS & EXCEPTIONS && c.flags & EXCEPTIONS)) return;
        each_patch(c.at(__ldg(&c.extra()->exceptions)), sizeof(V), [&](u32 r, u64 bits) { f(r, from_bits<V>(bits)); });
    }

    static DEVICE void values_8(const Cursor& c, u32 eighth, const E entry[8], V out[8]) {
        const u64 reference = c.reference();
        const double power = POWERS[c.scale % 19], fraction = FRACTIONS[c.scale / 19];
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = (V)((double)(i64)(reference + entry[k]) * power * fraction);
        each_exception(c, [&](u32 row, V value) {
            if (row / 8 != eighth) return;
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = row % 8 == k ? value : out[k];
        });
    }

    static DEVICE V value_at(const Cursor& c, u32, u32, E entry) {
        const double power = POWERS[c.scale % 19], fraction = FRACTIONS[c.scale / 19];
        return (V)((double)(i64)(c.reference() + entry) * power * fraction);
    }

    // The integers of values in a range, less the reference, in vectors of a scale.
    static DEVICE Entries<E> integers_of(const Chunk& c, const Range<W>& range, u32 scale) {
        const i64 first = __ldg(range.decimals + 2 * scale);
        const i64 last = __ldg(range.decimals + 2 * scale + 1);
        return less<E>(first, last, (i64)c.reference());
    }

    static DEVICE Entries<E> entries_of(const Chunk& c, const Range<W>& range) {
        if constexpr (S::ONE_SCALE >= 0) return integers_of(c, range, S::ONE_SCALE);
        else return Entries<E>{1, 0};
    }

    template <bool BITS>
    static DEVICE u32 rows_in(Cursor& c, const Range<W>& range, const Entries<E>& entries, void* tile) {
        Entries<E> own = entries;
        if constexpr (S::ONE_SCALE < 0) own = integers_of(c, range, c.scale);
        u32 mask = entries_in<S>(c, own.low, own.high, tile);
        each_exception(c, [&](u32 row, V value) {
            const W word = word_of<W>(value);
            mask = (mask & ~(1u << row)) | (u32)(word >= range.low && word <= range.high) << row;
        });
        return mask;
    }

    static DEVICE bool copy(const Cursor& c, u32 rows, T* out) {
        const u64 first = c.reference() + c.base<E>();
        const double power = POWERS[c.scale % 19], fraction = FRACTIONS[c.scale / 19];
        const auto value = [=](E x) { return (T)((double)(i64)(first + x) * power * fraction); };
        if (!copy_entries<S>(c, rows, out, value)) return false;
        each_exception(c, [&](u32 r, V value) {
            if (rows >> r & 1) out[r * 32] = value;
        });
        return true;
    }
};
