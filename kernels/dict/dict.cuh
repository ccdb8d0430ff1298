// Codes of distinct values, which lie in the chunk unless they are computed.

// The entries of a dictionary of evenly spaced numbers, computed: a load from a table for each of 32 lanes takes
// several times as long as unpacking its code.
template <class V> struct Even {
    u64 first;
    i64 step;
    DEVICE Even(const Chunk& c) : first(c.reference()), step(__ldg(&c.header()->step)) {}
    template <class E> DEVICE V operator()(E code) const { return value_of<V>(first + (u64)step * code); }
};
template <> struct Even<i128> {
    u128 first;
    i64 step;
    DEVICE Even(const Chunk& c) : first((u128)c.wide_reference()), step(__ldg(&c.header()->step)) {}
    template <class E> DEVICE i128 operator()(E code) const { return (i128)(first + (u128)(i128)step * code); }
};

template <class S> struct Dict : Transform<S> {
    typedef typename S::Entry E;
    typedef typename S::Value V;
    typedef typename S::Stored T;
    typedef typename S::Word W;

    static const bool CODED = true;

    // Makes a code safe to look up: rows behind the end may have any.
    static DEVICE E safe(E code, u32 entries) {
        if constexpr (strays<S>(Sequences())) return code < entries ? code : 0;
        else return code;
    }

    // What `safe` needs to know.
    static DEVICE u32 entries(const Chunk& c) {
        if constexpr (strays<S>(Sequences())) return __ldg(&c.header()->entries);
        else return 0;
    }

    static DEVICE void values_8(const Cursor& c, u32, const E code[8], V out[8]) {
        if constexpr (S::EVEN) {
            const Even<V> values(c);
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = values(code[k]);
        } else {
            const T* values = (const T*)c.values();
            const u32 count = entries(c);
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = (V)values[safe(code[k], count)];
        }
    }

    static DEVICE V value_at(const Cursor& c, u32, u32, E code) {
        if constexpr (S::EVEN) return Even<V>(c)(code);
        else return (V)((const T*)c.values())[safe(code, entries(c))];
    }

    static DEVICE Entries<E> entries_of(const Chunk&, const Range<W>& range) {
        return Entries<E>{(E)(range.codes & 0xffffffffull), (E)(range.codes >> 32)};
    }

    template <bool BITS>
    static DEVICE u32 rows_in(Cursor& c, const Range<W>& range, const Entries<E>& codes, void* tile) {
        if constexpr (BITS) return in_bits(c, (const u32*)range.codes, tile);
        else return entries_in<S>(c, codes.low, codes.high, tile);
    }

    // Which rows have a code with a bit.
    static DEVICE u32 in_bits(Cursor& c, const u32* bits, void* tile) {
        const auto by_codes = [&] {
            u32 mask = 0;
            prepare<S>(c, tile);
            for (u32 eighth = 0; eighth < 4; eighth++) {
                E code[8];
                entries_8<S>(c, eighth, tile, code);
                const u32 count = entries(c);
#pragma unroll
                for (u32 k = 0; k < 8; k++) {
                    const E own = safe(code[k], count);
                    mask |= (__ldg(bits + own / 32) >> own % 32 & 1) << (eighth * 8 + k);
                }
            }
            return mask;
        };
        return with_sequence<S>(c, [&](auto of) { return of.in_set(c, bits, by_codes); });
    }

    static DEVICE bool copy(const Cursor& c, u32 rows, T* out) {
        const E base = c.base<E>();
        if constexpr (S::EVEN) {
            const Even<V> values(c);
            return copy_entries<S>(c, rows, out, [=](E x) { return (T)values((E)(base + x)); });
        } else {
            const T* values = (const T*)c.values() + base;
            return copy_entries<S>(c, rows, out, [=](E x) { return values[x]; });
        }
    }
};
