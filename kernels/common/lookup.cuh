// Tables that are looked up by the values of a column: by their distance from the first key, or by the
// codes of a dictionary.

// Has the words of a vector fetched that are read a little later; of runs, as many as there are as a rule.
template <class S> DEVICE void fetch(const Cursor& c) {
    const bool runs = S::SEQUENCES >> SEQUENCE_RLE & 1 && sequence_of<S>(c) == SEQUENCE_RLE;
    const u8* from = runs ? c.at(c.line) : c.image + (u64)c.line * 128;
    const u32 lines = runs ? 1 + 2 * min((u32)c.width, 4u) : c.width;
    if (lane_id() >= lines) return;
    fetch(from + lane_id() * 128);
#ifdef CUCPU
    (void)*(const volatile u8*)(from + lane_id() * 128);  // not outside of the chunk
#endif
}

// As the entries of one row group find their way in it.
struct Table {
    const u32* bits;    // one for each place: whether its key is there
    const u8* codes;    // one for each place, if they differ
    i64 origin;         // a value's place is its entry (or the value, if it is plain) and this
    u32 places;
};

// `words` are of the row group.
template <class S> DEVICE Table table_of(const Chunk& c, const u64* words) {
    Table t;
    t.bits = (const u32*)words[0];
    t.codes = (const u8*)words[1];
    t.places = (u32)words[3];
    const u8 form = form_of<S>(c);
    // modulo 2^64: what is beyond comes to no place
    u64 origin = form == FORM_DICT ? 0 : 0 - words[2];
    if (S::FORMS >> FORM_INTEGER & 1 && form == FORM_INTEGER) origin += c.reference();
    t.origin = (i64)origin;
    return t;
}

// Where it is, or ALL if nowhere.
DEVICE u32 place_in(const Table& t, i64 x) {
    const u64 place = (u64)x + (u64)t.origin;
    return place < t.places ? (u32)place : ALL;
}

// The places of rows 8 * eighth to 8 * eighth + 7 of this lane; arbitrary where null or beyond the end. Of FOUND
// rows they are known to be some.
template <class S, bool FOUND>
DEVICE void places_8(const Cursor& c, u32 eighth, const void* tile, const Table& t, u32 out[8]) {
    const u8 form = form_of<S>(c);
    if (S::FORMS >> FORM_PLAIN & 1 && form == FORM_PLAIN) {
        typename S::Value value[8];
        values_8<S>(c, eighth, tile, value);
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = place_in(t, (i64)value[k]);
        return;
    }
    typename S::Entry entry[8];
    entries_8<S>(c, eighth, tile, entry);
#pragma unroll
    for (u32 k = 0; k < 8; k++) out[k] = FOUND ? (u32)entry[k] + (u32)t.origin : place_in(t, (i64)entry[k]);
}

// The place of row r of a lane, of columns without patches; of FOUND rows it is known to be one.
template <class S, bool FOUND>
DEVICE u32 place_at(const Cursor& c, u32 r, u32 lane, u32 run, const void* tile, const Table& t) {
    const u8 form = form_of<S>(c);
    if (S::FORMS >> FORM_PLAIN & 1 && form == FORM_PLAIN) {
        return place_in(t, (i64)value_at<S>(c, r, lane, run, tile));
    }
    const typename S::Entry entry = entry_at<S>(c, r, lane, run, tile);
    return FOUND ? (u32)entry + (u32)t.origin : place_in(t, (i64)entry);
}

DEVICE bool is_there(const Table& t, u32 place) {
    return place != ALL && __ldg(t.bits + place / 32) >> place % 32 & 1;
}

// The code at a place; ALL if there is none.
template <class T> DEVICE u32 code_at(const Table& t, u32 place) {
    if (place == ALL) return ALL;
    const T code = __ldg((const T*)t.codes + place);
    return code == (T)~(T)0 ? ALL : code;
}

// The same of a place where there is one.
template <class T> DEVICE u32 found_code(const Table& t, u32 place) {
    return __ldg((const T*)t.codes + place);
}

// Bits that lie in shared memory cannot be loaded the same way.
template <bool SHARED> DEVICE u32 word_of_bits(const u32* bits, u32 word) {
    if constexpr (SHARED) return bits[word];
    else return __ldg(bits + word);
}

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

// Whether the key of a run is there. A sum that is no place is more than the last one; the bit behind it is not set.
template <class E, bool SHARED> struct FoundRun {
    E start;
    u32 places;
    const u32* bits;
    template <class V> DEVICE bool operator()(V x) const {
        const u32 place = (u32)min((E)(start + x), (E)places);
        return word_of_bits<SHARED>(bits, place / 32) >> place % 32 & 1;
    }
};

// Rows of any lane up to which each lane looks up its own one after the other, instead of going through all.
const u32 FEW_ROWS = 4;

// The same of packed residuals for few `rows`: two at a time, so that both are waited for together.
template <class S, bool SHARED>
DEVICE u32 few_found(const Cursor& c, u32 rows, u32 start, u32 places, const u32* bits) {
    u32 mask = 0;
    while (rows) {
        const u32 below = rows & (rows - 1), r[] = {(u32)__ffs((int)rows) - 1, (u32)__ffs((int)below) - 1};
        u32 x[2];
#pragma unroll
        for (u32 k = 0; k < 2; k++) x[k] = narrow_at(c.words(), c.width, r[k] & 31);
#pragma unroll
        for (u32 k = 0; k < 2; k++) {
            const u32 place = min(start + x[k], places);
            mask |= (word_of_bits<SHARED>(bits, place / 32) >> place % 32 & 1) << (r[k] & 31);
        }
        rows = below & (below - 1);
    }
    return mask;
}

// Which of these rows have a key that is there; arbitrary where null. `copy` is one in shared memory of the
// table's bits. With EVERY, all rows are looked up: it takes no longer than looking which.
template <class S, bool SHARED, bool EVERY>
DEVICE u32 found_in(Cursor& c, u32 rows, const Table& t, const u32* copy, void* tile) {
    typedef typename S::Entry E;
    const u32* bits = SHARED ? copy : t.bits;
    const u8 form = form_of<S>(c);
    u32 mask = 0;
    if (form != FORM_PLAIN && sequence_of<S>(c) == SEQUENCE_PACKED && c.width < 32) {
        const i64 start = (i64)((u64)t.origin + c.base<E>());
        // within these bounds, no sum of a residual and the start is taken for another
        if (start < (i64)t.places && start > -(1ll << 31)) {
            if (c.width == 0) {
                const bool in = start >= 0 && word_of_bits<SHARED>(bits, (u32)start / 32) >> (u32)start % 32 & 1;
                mask = in ? rows : 0;
            } else if (!EVERY && __reduce_max_sync(ALL, (u32)__popc(rows)) <= FEW_ROWS) {
                mask = few_found<S, SHARED>(c, rows, (u32)start, t.places, bits);
            } else {
                with_width<S::LOW & 0xffffffffull>(
                    c.width, Found32<SHARED, EVERY>{c.words(), rows, (u32)start, t.places, bits, mask});
            }
            if (S::FLAGS & PATCHED && c.flags & PATCHED) {
                each_patch(c, [&](u32 r, u64 x) {
                    const u64 place = (u64)start + x;
                    const bool in = place < t.places
                        && word_of_bits<SHARED>(bits, (u32)place / 32) >> (u32)place % 32 & 1;
                    mask = (mask & ~(1u << r)) | (u32)in << r;
                });
            }
            return mask;
        }
    }
    if (S::SEQUENCES >> SEQUENCE_RLE & 1 && form != FORM_PLAIN && sequence_of<S>(c) == SEQUENCE_RLE) {
        const i64 start = (i64)((u64)t.origin + c.base<E>());
        // entries of 32 bits are below 2^31 in a block: within these bounds no sum is taken for another
        if (sizeof(E) == 4 && (start >= (i64)t.places || start <= -(1ll << 31))) return 0;
        return rows & runs_where<E>(runs_of(c), FoundRun<E, SHARED>{(E)start, t.places, bits});
    }
    prepare<S>(c, tile);
    for (u32 eighth = 0; eighth < 4; eighth++) {
        if (!__any_sync(ALL, rows >> eighth * 8 & 255)) continue;
        u32 place[8];
        places_8<S, false>(c, eighth, tile, t, place);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            const u32 in = place[k] == ALL ? 0
                : word_of_bits<SHARED>(bits, place[k] / 32) >> place[k] % 32 & 1;
            mask |= in << (eighth * 8 + k);
        }
    }
    return mask & rows;
}
