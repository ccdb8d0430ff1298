// Values of a column, whatever its entries stand for.

template <class S> DEVICE u8 transform_of(const Chunk& c) {
    return is_one(S::TRANSFORMS) ? 0 : __ldg(&c.header()->transform);
}

template <class S, class F> DEVICE auto with_transform(const Chunk& c, F f) {
    return choose<S, S::TRANSFORMS>(Transforms(), transform_of<S>(c), f);
}

// Those of a column's transforms that have entries.
template <class S, u32 NUMBER = 0, template <class> class First, template <class> class... Rest>
DEVICE constexpr u32 of_entries(List<First, Rest...>) {
    const u32 own = First<S>::HAS_ENTRIES ? S::TRANSFORMS & 1 << NUMBER : 0;
    if constexpr (sizeof...(Rest) == 0) return own;
    else return own | of_entries<S, NUMBER + 1>(List<Rest...>());
}

// Whether values may lie as they are. Only then is there code for that.
template <class S> DEVICE constexpr bool may_lack_entries() { return of_entries<S>(Transforms()) != S::TRANSFORMS; }

template <class S> DEVICE bool lacks_entries(const Chunk& c) {
    return with_transform<S>(c, [](auto of) -> bool { return !of.HAS_ENTRIES; });
}

// Calls f with the transform, after `read` if there are entries to be read. ASK: see `ask`.
template <class S, bool ASK, class R, class F> DEVICE auto decode(const Chunk& c, R read, F f) {
    constexpr u32 MASK = of_entries<S>(Transforms());
    if constexpr (MASK == 0) {
        return with_transform<S>(c, f);
    } else {
        if constexpr (MASK != S::TRANSFORMS) {
            if (lacks_entries<S>(c)) return choose<S, S::TRANSFORMS & ~MASK>(Transforms(), transform_of<S>(c), f);
        }
        read();
        if constexpr (ASK && MASK != S::TRANSFORMS) ask<S, MASK>(Transforms(), transform_of<S>(c), f);
        else return choose<S, MASK>(Transforms(), transform_of<S>(c), f);
    }
}

// The values of rows 8 * eighth to 8 * eighth + 7 of this lane; arbitrary where null or beyond the end.
template <class S>
DEVICE void values_8(const Cursor& c, u32 eighth, const void* tile, typename S::Value out[8]) {
    typename S::Entry entry[8];
    decode<S, true>(
        c, [&] { entries_8<S>(c, eighth, tile, entry); }, [&](auto of) { of.values_8(c, eighth, entry, out); });
}

// The sum of the values of these rows, of columns that have only integers; before `prepare`.
template <class S> DEVICE i64 sum_of_values(Cursor& c, u32 rows, void* tile) {
    return (i64)(c.reference() * (u32)__popc(rows) + sum_of_entries<S>(c, rows, tile));
}

// Writes the values of this lane's `rows`, a bit each, to out[32 * r]; arbitrary ones where null.
template <class S>
DEVICE void copy_values(const Cursor& c, u32 rows, const void* tile, typename S::Stored* out) {
    if (with_transform<S>(c, [&](auto of) { return of.copy(c, rows, out); })) return;
    for (u32 eighth = 0; eighth < 4; eighth++) {
        typename S::Value value[8];
        values_8<S>(c, eighth, tile, value);
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            const u32 r = eighth * 8 + k;
            if (rows >> r & 1) out[r * 32] = (typename S::Stored)value[k];
        }
    }
}

// The value of row r of a lane, which is in this run, of columns without patches and exceptions. Each lane may
// ask for another row.
template <class S>
DEVICE typename S::Value value_at(const Cursor& c, u32 r, u32 lane, u32 run, const void* tile) {
    typename S::Entry entry = 0;
    return decode<S, false>(
        c, [&] { entry = entry_at<S>(c, r, lane, run, tile); },
        [&](auto of) { return of.value_at(c, r, lane, entry); });
}

template <class S>
DEVICE Entries<typename S::Entry> entries_of(const Chunk& c, const Range<typename S::Word>& range) {
    return with_transform<S>(c, [&](auto of) { return of.entries_of(c, range); });
}

// Which rows hold a value in the range; arbitrary where null or beyond the end.
template <class S, bool BITS>
DEVICE u32 rows_in(Cursor& c, const Range<typename S::Word>& range,
                   const Entries<typename S::Entry>& entries, void* tile) {
    return with_transform<S>(c, [&](auto of) { return of.template rows_in<BITS>(c, range, entries, tile); });
}
