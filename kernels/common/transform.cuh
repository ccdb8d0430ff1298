// What entries stand for. Traits S, beside those of sequence.cuh: Stored (the type of dictionary entries and plain
// values), Value (the type to compute in), Word (i64 or i128: integers, and floats by their total order), ONE_SCALE
// (the scale of all vectors of ALP, or -1), EVEN (whether all dictionaries are of evenly spaced numbers, which are
// computed from their codes).

template <class T> struct Is { enum { FLOAT = 0 }; };
template <> struct Is<float> { enum { FLOAT = 1 }; };
template <> struct Is<double> { enum { FLOAT = 1 }; };

// The value that a word stands for.
template <class V> DEVICE V value_of(u64 word) {
    if constexpr (Is<V>::FLOAT) {
        if constexpr (sizeof(V) == 8) return double_of((i64)word);
        else return float_of((i32)word);
    } else {
        return (V)word;
    }
}

template <class V> DEVICE V from_bits(u64 bits) {
    if constexpr (Is<V>::FLOAT) {
        if constexpr (sizeof(V) == 8) return __longlong_as_double((i64)bits);
        else return __int_as_float((i32)bits);
    } else {
        return (V)bits;
    }
}

template <class W, class V> DEVICE W word_of(V value) {
    if constexpr (Is<V>::FLOAT) return (W)key_of(value);
    else return (W)value;
}

// What a predicate on a column compares with.
template <class Word> struct Range {
    Word low, high;        // for integers, and floats by their total order
    u64 codes;             // of a dictionary: low | high << 32, or where a bit for each code is
    const i64* decimals;   // of ALP: the smallest and largest integer for each scale
};

// The same for the entries of a chunk; none if low > high.
template <class E> struct Entries { E low, high; };

// Words from low to high, less a reference.
template <class E, class W> DEVICE Entries<E> less(W low, W high, W reference) {
    if (low > high || high < reference) return Entries<E>{1, 0};
    typedef decltype(reference) T;
    const u128 from = low <= reference ? 0 : (u128)(i128)low - (u128)(i128)reference;
    const u128 to = sizeof(T) == 16 ? (u128)high - (u128)reference : (u128)((u64)high - (u64)reference);
    const u128 most = (u128)(E)~(E)0;
    if (from > most) return Entries<E>{1, 0};
    return Entries<E>{(E)from, (E)(to > most ? most : to)};
}

// What a transform does if it does not say otherwise. Beside this, each has
//
//     values_8(c, eighth, entry, out)        the values of rows 8 * eighth to 8 * eighth + 7 of this lane
//     value_at(c, r, lane, entry)            the value of row r of a lane, if no search is needed for it
//     rows_in<BITS>(c, range, entries, tile) which rows hold a value in the range; BITS: of codes with a bit
//
// Values are arbitrary where null or beyond the end.
template <class S> struct Transform {
    // Whether there are entries. Without, values lie as they are.
    static const bool HAS_ENTRIES = true;
    // Whether entries are codes, which lookups have places for.
    static const bool CODED = false;

    // What an entry is to be added to, to become a key of lookups.
    static DEVICE u64 key_start(const Chunk&) { return 0; }

    // The entries of values in a range, if these are the same in all vectors.
    static DEVICE Entries<typename S::Entry> entries_of(const Chunk&, const Range<typename S::Word>&) {
        return Entries<typename S::Entry>{1, 0};
    }

    // Writes the values of these rows, a bit each, to out[32 * r]; `false` if that is no faster than values_8.
    static DEVICE bool copy(const Cursor&, u32, typename S::Stored*) { return false; }
};

// Which rows hold a value in the range, by decoding them: transform T of columns S.
template <class S, class T> DEVICE u32 values_in(Cursor& c, const Range<typename S::Word>& range, void* tile) {
    typedef typename S::Word W;
    u32 mask = 0;
    prepare<S>(c, tile);
    for (u32 eighth = 0; eighth < 4; eighth++) {
        typename S::Entry entry[8];
        typename S::Value value[8];
        if (T::HAS_ENTRIES) entries_8<S>(c, eighth, tile, entry);
        T::values_8(c, eighth, entry, value);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            const W word = word_of<W>(value[k]);
            mask |= (u32)(word >= range.low && word <= range.high) << (eighth * 8 + k);
        }
    }
    return mask;
}
