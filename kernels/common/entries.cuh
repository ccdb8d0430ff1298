// The entries of a column, however its sequences are stored.

template <class S, class F> DEVICE auto with_sequence(const Chunk& c, F f) {
    const u8 number = is_one(S::SEQUENCES) ? 0 : __ldg(&c.header()->sequence);
    return choose<S, S::SEQUENCES>(Sequences(), number, f);
}

// Whether sequences of some chunk stray.
template <class S, u32 NUMBER = 0, template <class> class First, template <class> class... Rest>
DEVICE constexpr bool strays(List<First, Rest...>) {
    const bool own = S::SEQUENCES >> NUMBER & 1 && First<S>::STRAYS;
    if constexpr (sizeof...(Rest) == 0) return own;
    else return own || strays<S, NUMBER + 1>(List<Rest...>());
}

template <class S> DEVICE Cursor open(const Chunk& chunk, u32 vector) {
    Cursor c;
    c.bytes = chunk.bytes;
    c.vector = vector;
    const uint4 v = __ldg(c.record());
    c.line = v.x;
    c.width = (u8)v.y;
    // what is known when the kernel is compiled takes no register, and code for anything else goes
    c.flags = (u8)(v.y >> 8) & S::FLAGS;
    c.scale = (u16)(v.y >> 16);
    c.base_low = S::BASED ? v.z : 0;
    c.base_high = S::BASED ? v.w : 0;
    c.starts = c.before = 0;
    c.smallest = 0;
    with_sequence<S>(c, [&](auto of) { of.open(c); });
    return c;
}

// Which rows have an entry in low..=high.
template <class S>
DEVICE u32 entries_in(const Cursor& c, typename S::Entry low, typename S::Entry high, void* tile) {
    if (low > high) return 0;
    return with_sequence<S>(c, [&](auto of) { return of.in_range(c, low, high, tile); });
}

// Makes entries_8 possible. A `delta` column that is read by row has a tile in shared memory.
template <class S> DEVICE void prepare(Cursor& c, void* tile) {
    with_sequence<S>(c, [&](auto of) { of.prepare(c, tile); });
}

// The entries of rows 8 * eighth to 8 * eighth + 7 of this lane.
template <class S>
DEVICE void entries_8(const Cursor& c, u32 eighth, const void* tile, typename S::Entry out[8]) {
    with_sequence<S>(c, [&](auto of) { of.entries_8(c, eighth, tile, out); });
}

// What the other lanes know of row r of a lane: its run, if there are any. All lanes must ask at the same time,
// and before they load: nothing is loaded together on both sides of that.
template <class S> DEVICE u32 run_at(const Cursor& c, u32 r, u32 lane) {
    return with_sequence<S>(c, [&](auto of) { return of.run_at(c, r, lane); });
}

// The entry of row r of a lane, which is in this run, where there are no patches.
template <class S>
DEVICE typename S::Entry entry_at(const Cursor& c, u32 r, u32 lane, u32 run, const void* tile) {
    return with_sequence<S>(c, [&](auto of) { return of.entry_at(c, r, lane, run, tile); });
}

// The sum of the entries of these rows, without what is beyond 64 bits. It is not `prepare`d for.
template <class S> DEVICE u64 sum_of_entries(Cursor& c, u32 rows, void* tile) {
    return with_sequence<S>(c, [&](auto of) {
        return of.sum(c, rows, tile, [&]() -> u64 {
            of.prepare(c, tile);
            u64 sum = 0;
            for (u32 eighth = 0; eighth < 4; eighth++) {
                typename S::Entry entry[8];
                of.entries_8(c, eighth, tile, entry);
#pragma unroll
                for (u32 k = 0; k < 8; k++) sum += rows >> (eighth * 8 + k) & 1 ? entry[k] : 0;
            }
            return sum;
        });
    });
}

// Writes value(residual) of these rows, a bit each, to out[32 * r]; an entry is a residual and the vector's base.
// `false`, and nothing written, if that is no faster than to go by entries.
template <class S, class F>
DEVICE bool copy_entries(const Cursor& c, u32 rows, typename S::Stored* out, F value) {
    return with_sequence<S>(c, [&](auto of) { return of.copy(c, rows, out, value); });
}
