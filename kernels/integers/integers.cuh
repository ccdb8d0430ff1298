// A column's smallest value, the reference, and an entry. Of floats, the integers that order as they do.

template <class S> struct Integers : Transform<S> {
    typedef typename S::Entry E;
    typedef typename S::Value V;
    typedef typename S::Stored T;
    typedef typename S::Word W;

    static DEVICE u64 key_start(const Chunk& c) { return c.reference(); }

    static DEVICE void values_8(const Cursor& c, u32, const E entry[8], V out[8]) {
        if constexpr (sizeof(V) > 8) {
            const i128 reference = c.wide_reference();
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = (V)(reference + entry[k]);
        } else {
            const u64 reference = c.reference();
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = value_of<V>(reference + entry[k]);
        }
    }

    static DEVICE V value_at(const Cursor& c, u32, u32, E entry) {
        if constexpr (sizeof(V) > 8) return (V)(c.wide_reference() + entry);
        else return value_of<V>(c.reference() + entry);
    }

    static DEVICE Entries<E> entries_of(const Chunk& c, const Range<W>& range) {
        if constexpr (sizeof(W) > 8) return less<E>(range.low, range.high, (W)c.wide_reference());
        else return less<E>(range.low, range.high, (W)c.reference());
    }

    template <bool BITS>
    static DEVICE u32 rows_in(Cursor& c, const Range<W>&, const Entries<E>& entries, void* tile) {
        return entries_in<S>(c, entries.low, entries.high, tile);
    }

    static DEVICE bool copy(const Cursor& c, u32 rows, T* out) {
        if constexpr (sizeof(V) > 8) {
            const i128 first = c.wide_reference() + c.base<E>();
            return copy_entries<S>(c, rows, out, [=](E x) { return (T)(first + x); });
        } else {
            const u64 first = c.reference() + c.base<E>();
            return copy_entries<S>(c, rows, out, [=](E x) { return (T)value_of<V>(first + x); });
        }
    }
};
