// Tables that are looked up by the values of a column: by their distance from the first key, or by the
// codes of a dictionary.

// Has the words of a vector fetched that are read a little later.
template <class S> DEVICE void fetch(const Cursor& c) {
    const Lines lines = with_sequence<S>(c, [&](auto of) { return of.lines(c); });
    if (lane_id() >= lines.count) return;
    fetch(lines.from + lane_id() * 128);
#ifdef CUCPU
    (void)*(const volatile u8*)(lines.from + lane_id() * 128);  // not outside of the chunk
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
    // modulo 2^64: what is beyond comes to no place
    t.origin = with_transform<S>(c, [&](auto of) { return (i64)(of.CODED ? 0 : of.key_start(c) - words[2]); });
    return t;
}

// The same for computed keys.
DEVICE Table table_of(const u64* words) {
    return Table{(const u32*)words[0], (const u8*)words[1], (i64)(0 - words[2]), (u32)words[3]};
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
    if constexpr (may_lack_entries<S>()) {
        if (lacks_entries<S>(c)) {
            typename S::Value value[8];
            values_8<S>(c, eighth, tile, value);
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = place_in(t, (i64)value[k]);
            return;
        }
    }
    typename S::Entry entry[8];
    entries_8<S>(c, eighth, tile, entry);
#pragma unroll
    for (u32 k = 0; k < 8; k++) out[k] = FOUND ? (u32)entry[k] + (u32)t.origin : place_in(t, (i64)entry[k]);
}

// The place of row r of a lane, of columns without patches; of FOUND rows it is known to be one.
template <class S, bool FOUND>
DEVICE u32 place_at(const Cursor& c, u32 r, u32 lane, u32 run, const void* tile, const Table& t) {
    if (lacks_entries<S>(c)) return place_in(t, (i64)value_at<S>(c, r, lane, run, tile));
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

// Which of these rows have a key that is there; arbitrary where null. `copy` is one in shared memory of the
// table's bits. With EVERY, all rows are looked up: it takes no longer than looking which.
template <class S, bool SHARED, bool EVERY>
DEVICE u32 found_in(Cursor& c, u32 rows, const Table& t, const u32* copy, void* tile) {
    const u32* bits = SHARED ? copy : t.bits;
    // without arguments, but no code where nothing calls it
    const auto by_rows = [&](auto...) {
        u32 mask = 0;
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
    };
    if constexpr (may_lack_entries<S>()) {
        if (lacks_entries<S>(c)) return by_rows();
    }
    return with_sequence<S>(c, [&](auto of) {
        return of.template found<SHARED, EVERY>(c, rows, t.origin, t.places, bits, tile, by_rows);
    });
}
