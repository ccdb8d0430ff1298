// Values as Arrow lays them out.

template <class S> struct Plain : Transform<S> {
    typedef typename S::Entry E;
    typedef typename S::Value V;
    typedef typename S::Stored T;
    typedef typename S::Word W;

    static const bool HAS_ENTRIES = false;

    static DEVICE void values_8(const Cursor& c, u32 eighth, const E*, V out[8]) {
        const T* values = (const T*)c.values() + ((u64)c.vector * 1024 + eighth * 256 + lane_id());
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = (V)values[k * 32];
    }

    static DEVICE V value_at(const Cursor& c, u32 r, u32 lane, E) {
        return (V)((const T*)c.values())[(u64)c.vector * 1024 + r * 32 + lane];
    }

    template <bool BITS>
    static DEVICE u32 rows_in(Cursor& c, const Range<W>& range, const Entries<E>&, void* tile) {
        return values_in<S, Plain<S>>(c, range, tile);
    }
};
