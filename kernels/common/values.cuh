// Values of a column, whatever its encoding. Traits S, beside those of sequence.cuh: Stored (the type
// of dictionary entries and plain values), Value (the type to compute in), Word (i64 or i128: integers,
// and floats by their total order), ONE_SCALE (the scale of all vectors of ALP, or -1), EVEN (whether all
// dictionaries are of evenly spaced numbers, which are computed from their codes).

__constant__ double POWERS[19] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8, 1e9,
                                  1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18};
__constant__ double FRACTIONS[19] = {1e0,   1e-1,  1e-2,  1e-3,  1e-4,  1e-5,  1e-6,  1e-7,  1e-8, 1e-9,
                                     1e-10, 1e-11, 1e-12, 1e-13, 1e-14, 1e-15, 1e-16, 1e-17, 1e-18};

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

template <class S> DEVICE u8 form_of(const Chunk& c) {
    if constexpr ((S::FORMS & (S::FORMS - 1)) == 0) {
        u8 form = 0;
        while (!(S::FORMS >> form & 1)) form++;
        return form;
    } else {
        return __ldg(&c.header()->form);
    }
}

// Makes codes safe to look up: those of `delta` in rows behind the end go on as the differences do.
template <class S> DEVICE void safe_codes(const Cursor& c, typename S::Entry code[8]) {
    if (!(S::SEQUENCES >> SEQUENCE_DELTA & 1)) return;
    const u32 entries = __ldg(&c.header()->entries);
#pragma unroll
    for (u32 k = 0; k < 8; k++) code[k] = code[k] < entries ? code[k] : 0;
}

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

// The values of rows 8 * eighth to 8 * eighth + 7 of this lane; arbitrary where null or beyond the end.
template <class S>
DEVICE void values_8(const Cursor& c, u32 eighth, const void* tile, typename S::Value out[8]) {
    typedef typename S::Value V;
    typedef typename S::Stored T;
    const u8 form = form_of<S>(c);
    if (S::FORMS >> FORM_PLAIN & 1 && form == FORM_PLAIN) {
        const T* values = (const T*)c.values() + ((u64)c.vector * 1024 + eighth * 256 + lane_id());
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = (V)values[k * 32];
        return;
    }
    typedef typename S::Entry E;
    E entry[8];
    entries_8<S>(c, eighth, tile, entry);
    if (S::FORMS >> FORM_INTEGER & 1 && form == FORM_INTEGER) {
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
    if (S::FORMS >> FORM_DICT & 1 && form == FORM_DICT) {
        if constexpr (S::EVEN) {
            const Even<V> entries(c);
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = entries(entry[k]);
        } else {
            const T* entries = (const T*)c.values();
            safe_codes<S>(c, entry);
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = (V)entries[entry[k]];
        }
    }
    if constexpr (Is<V>::FLOAT) {
        if (S::FORMS >> FORM_ALP & 1 && form == FORM_ALP) {
            const u64 reference = c.reference();
            const double power = POWERS[c.scale % 19], fraction = FRACTIONS[c.scale / 19];
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = (V)((double)(i64)(reference + entry[k]) * power * fraction);
        }
        u64 right[8];
        if (S::FORMS >> FORM_ALP_RD & 1 && form == FORM_ALP_RD) {
            const Extra* extra = c.extra();
            const u32 line = __ldg(&extra->right_line);
            wide_8<S::LOW, S::HIGH>(c.words(line), __ldg(&extra->right_width), eighth, right);
#pragma unroll
            for (u32 k = 0; k < 8; k++) {
                out[k] = from_bits<V>(right[k] | __ldg(&c.header()->lefts[entry[k] & 7]));
            }
        }
        if (S::FLAGS & EXCEPTIONS && c.flags & EXCEPTIONS) {
            const u32 bytes = form == FORM_ALP_RD ? 4 : sizeof(V);
            const u32 shift = form == FORM_ALP_RD ? __ldg(&c.header()->right_width) : 0;
            each_patch(c.at(__ldg(&c.extra()->exceptions)), bytes, [&](u32 row, u64 bits) {
                if (row / 8 != eighth) return;
#pragma unroll
                for (u32 k = 0; k < 8; k++) {
                    const u64 whole = form == FORM_ALP_RD ? bits << shift | right[k] : bits;
                    out[k] = row % 8 == k ? from_bits<V>(whole) : out[k];
                }
            });
        }
    }
}

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

// Writes the packed values of this lane's `rows`, a bit each, to out[32 * r]; value(residual) decodes.
template <class S, class F>
DEVICE void copy_packed(const Cursor& c, u32 rows, typename S::Stored* out, F value) {
    typedef typename S::Stored T;
    if (c.width == 0) {
#pragma unroll
        for (u32 r = 0; r < 32; r++) {
            if (rows >> r & 1) out[r * 32] = value(0u);
        }
    } else {
        with_width<S::LOW>(c.width, Copy32<T, F>{c.words(), rows, out, value});
    }
    if (S::FLAGS & PATCHED && c.flags & PATCHED) {
        each_patch(c, [&](u32 r, u64 x) {
            if (rows >> r & 1) out[r * 32] = value((typename S::Entry)x);
        });
    }
}

// Writes the values of this lane's `rows`, a bit each, to out[32 * r]; arbitrary ones where null.
template <class S>
DEVICE void copy_values(const Cursor& c, u32 rows, const void* tile, typename S::Stored* out) {
    typedef typename S::Value V;
    typedef typename S::Stored T;
    typedef typename S::Entry E;
    const u8 form = form_of<S>(c);
    const bool packed = form != FORM_PLAIN && sequence_of<S>(c) == SEQUENCE_PACKED && c.width <= 32;
    // all words of a vector are loaded before the first is used
    if (S::FORMS >> FORM_INTEGER & 1 && form == FORM_INTEGER && packed) {
        if constexpr (sizeof(V) > 8) {
            const i128 first = c.wide_reference() + c.base<E>();
            copy_packed<S>(c, rows, out, [=](E x) { return (T)(first + x); });
        } else {
            const u64 first = c.reference() + c.base<E>();
            copy_packed<S>(c, rows, out, [=](E x) { return (T)value_of<V>(first + x); });
        }
        return;
    }
    if (S::FORMS >> FORM_DICT & 1 && form == FORM_DICT && packed) {
        const E base = c.base<E>();
        if constexpr (S::EVEN) {
            const Even<V> entries(c);
            copy_packed<S>(c, rows, out, [=](E x) { return (T)entries((E)(base + x)); });
        } else {
            const T* entries = (const T*)c.values() + base;
            copy_packed<S>(c, rows, out, [=](E x) { return entries[x]; });
        }
        return;
    }
    if constexpr (Is<V>::FLOAT) {
        if (S::FORMS >> FORM_ALP & 1 && form == FORM_ALP && packed) {
            const u64 first = c.reference() + c.base<E>();
            const double power = POWERS[c.scale % 19], fraction = FRACTIONS[c.scale / 19];
            copy_packed<S>(c, rows, out, [=](E x) { return (T)((double)(i64)(first + x) * power * fraction); });
            if (S::FLAGS & EXCEPTIONS && c.flags & EXCEPTIONS) {
                each_patch(c.at(__ldg(&c.extra()->exceptions)), sizeof(V), [&](u32 r, u64 bits) {
                    if (rows >> r & 1) out[r * 32] = from_bits<V>(bits);
                });
            }
            return;
        }
    }
    for (u32 eighth = 0; eighth < 4; eighth++) {
        V value[8];
        values_8<S>(c, eighth, tile, value);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            const u32 r = eighth * 8 + k;
            if (rows >> r & 1) out[r * 32] = (T)value[k];
        }
    }
}

// The value of row r of a lane, which is in this run, of columns without patches and exceptions. Each lane may
// ask for another row.
template <class S>
DEVICE typename S::Value value_at(const Cursor& c, u32 r, u32 lane, u32 run, const void* tile) {
    typedef typename S::Value V;
    typedef typename S::Stored T;
    const u8 form = form_of<S>(c);
    if (S::FORMS >> FORM_PLAIN & 1 && form == FORM_PLAIN) {
        return (V)((const T*)c.values())[(u64)c.vector * 1024 + r * 32 + lane];
    }
    typename S::Entry entry = entry_at<S>(c, r, lane, run, tile);
    if (S::FORMS >> FORM_DICT & 1 && form == FORM_DICT) {
        if constexpr (S::EVEN) return Even<V>(c)(entry);
        // codes of `delta` behind the end go on as the differences do
        if (S::SEQUENCES >> SEQUENCE_DELTA & 1 && entry >= __ldg(&c.header()->entries)) entry = 0;
        return (V)((const T*)c.values())[entry];
    }
    if constexpr (Is<V>::FLOAT) {
        if (S::FORMS >> FORM_ALP & 1 && form == FORM_ALP) {
            const double power = POWERS[c.scale % 19], fraction = FRACTIONS[c.scale / 19];
            return (V)((double)(i64)(c.reference() + entry) * power * fraction);
        }
    }
    if constexpr (sizeof(V) > 8) return (V)(c.wide_reference() + entry);
    else return value_of<V>(c.reference() + entry);
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

template <class S>
DEVICE Entries<typename S::Entry> entries_of(const Chunk& c, const Range<typename S::Word>& range) {
    typedef typename S::Entry E;
    typedef typename S::Word W;
    const u8 form = form_of<S>(c);
    if (S::FORMS >> FORM_DICT & 1 && form == FORM_DICT) {
        return Entries<E>{(E)(range.codes & 0xffffffffull), (E)(range.codes >> 32)};
    }
    if constexpr (S::ONE_SCALE >= 0) {
        if (form == FORM_ALP) {
            const i64 first = __ldg(range.decimals + 2 * S::ONE_SCALE);
            const i64 last = __ldg(range.decimals + 2 * S::ONE_SCALE + 1);
            return less<E>(first, last, (i64)c.reference());
        }
    }
    if (S::FORMS >> FORM_INTEGER & 1 && form == FORM_INTEGER) {
        if constexpr (sizeof(W) > 8) return less<E>(range.low, range.high, (W)c.wide_reference());
        else return less<E>(range.low, range.high, (W)c.reference());
    }
    return Entries<E>{1, 0};
}

// Which rows hold a value in the range; arbitrary where null or beyond the end.
template <class S, bool BITS>
DEVICE u32 rows_in(Cursor& c, const Range<typename S::Word>& range,
                   const Entries<typename S::Entry>& entries, void* tile) {
    typedef typename S::Word W;
    typedef typename S::Entry E;
    const u8 form = form_of<S>(c);
    if (S::FORMS >> FORM_INTEGER & 1 && form == FORM_INTEGER) {
        return entries_in<S>(c, entries.low, entries.high);
    }
    if (S::FORMS >> FORM_DICT & 1 && form == FORM_DICT) {
        if (!BITS) return entries_in<S>(c, entries.low, entries.high);
        const u32* bits = (const u32*)range.codes;
        if (S::SEQUENCES == 1 << SEQUENCE_PACKED && c.width > 0 && c.width <= 32 && !(c.flags & PATCHED)) {
            u32 mask = 0;
            with_width<S::LOW>(c.width, InSet32{c.words(), c.base_low, bits, mask});
            return mask;
        }
        if (S::SEQUENCES >> SEQUENCE_RLE & 1 && sequence_of<S>(c) == SEQUENCE_RLE) {
            const E base = c.base<E>(), entries = __ldg(&c.header()->entries);
            return runs_where<E>(runs_of(c), [=](E x) {
                const E code = base + x;
                return code < entries && (__ldg(bits + code / 32) >> code % 32 & 1) != 0;
            });
        }
        u32 mask = 0;
        prepare<S>(c, tile);
        for (u32 eighth = 0; eighth < 4; eighth++) {
            E code[8];
            entries_8<S>(c, eighth, tile, code);
            safe_codes<S>(c, code);
#pragma unroll
            for (u32 k = 0; k < 8; k++) {
                mask |= (__ldg(bits + code[k] / 32) >> code[k] % 32 & 1) << (eighth * 8 + k);
            }
        }
        return mask;
    }
    if (S::FORMS >> FORM_ALP & 1 && form == FORM_ALP) {
        Entries<E> own = entries;
        if constexpr (S::ONE_SCALE < 0) {
            const i64 first = __ldg(range.decimals + 2 * c.scale);
            const i64 last = __ldg(range.decimals + 2 * c.scale + 1);
            own = less<E>(first, last, (i64)c.reference());
        }
        u32 mask = entries_in<S>(c, own.low, own.high);
        if constexpr (Is<typename S::Value>::FLOAT) {
            if (S::FLAGS & EXCEPTIONS && c.flags & EXCEPTIONS) {
                typedef typename S::Value V;
                each_patch(c.at(__ldg(&c.extra()->exceptions)), sizeof(V), [&](u32 row, u64 bits) {
                    const W word = word_of<W>(from_bits<V>(bits));
                    mask = (mask & ~(1u << row)) | (u32)(word >= range.low && word <= range.high) << row;
                });
            }
        }
        return mask;
    }
    if (S::FORMS & (1 << FORM_PLAIN | 1 << FORM_ALP_RD)) {
        u32 mask = 0;
        prepare<S>(c, tile);
        for (u32 eighth = 0; eighth < 4; eighth++) {
            typename S::Value value[8];
            values_8<S>(c, eighth, tile, value);
#pragma unroll
            for (u32 k = 0; k < 8; k++) {
                const W word = word_of<W>(value[k]);
                mask |= (u32)(word >= range.low && word <= range.high) << (eighth * 8 + k);
            }
        }
        return mask;
    }
    return 0;
}
