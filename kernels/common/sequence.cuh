// Sequences of unsigned integers: offsets from a column's smallest value, codes of a dictionary.
//
// A column's traits S say what its chunks have: LOW and HIGH (widths of residuals, 0 among them, see packed.cuh),
// WIDTHS (a bit for each `width` of a vector below 64), ONE_WIDTH (the only one, or -1), SEQUENCES, TRANSFORMS and
// FLAGS (masks), Entry (u32, or u64 where some entry needs it), BASED (whether some vector's base is not 0).

// The width of a vector, known when the kernel is compiled if all have the same. What decodes whole vectors asks
// `c.width` all the same: the branch keeps the loads of several columns apart, which takes fewer registers.
template <class S> DEVICE u32 width_of(const Cursor& c) { return S::ONE_WIDTH < 0 ? c.width : (u32)S::ONE_WIDTH; }

// Memory that a vector is read from.
struct Lines {
    const u8* from;
    u32 count;  // of 128 bytes
};

// What a way to store sequences does if it does not say otherwise. Beside this, each has
//
//     in_range(c, low, high, tile)           which rows have an entry in low..=high; low <= high
//     entries_8(c, eighth, tile, out)        the entries of rows 8 * eighth to 8 * eighth + 7 of this lane
//     entry_at(c, r, lane, run, tile)        the entry of row r of a lane, which is in this run, without patches
//
// after `prepare`, but for in_range.
template <class S> struct Sequence {
    // Whether rows behind the end may have entries that none of the others has.
    static const bool STRAYS = false;

    static DEVICE void open(Cursor&) {}

    // `tile` is shared memory, of columns that need some.
    static DEVICE void prepare(Cursor&, void*) {}

    // What the other lanes know of row r of a lane: its run.
    static DEVICE u32 run_at(const Cursor&, u32, u32) { return 0; }

    static DEVICE Lines lines(const Cursor& c) { return Lines{c.bytes + (u64)c.line * 128, c.width}; }

    // What follows is asked of whole vectors. Where it is no faster than to go by entries, `by_entries` answers.

    // Writes value(residual) of these rows, a bit each, to out[32 * r]; an entry is a residual and the vector's base.
    // `false`, and nothing written, if that is no faster.
    template <class T, class F> static DEVICE bool copy(const Cursor&, u32, T*, F) { return false; }

    // Which rows have an entry with a bit in `bits`.
    template <class G> static DEVICE u32 in_set(const Cursor&, const u32*, G by_entries) { return by_entries(); }

    // Which of these rows have a bit in `bits` at the place `origin` + entry, of places below `places`.
    template <bool SHARED, bool EVERY, class G>
    static DEVICE u32 found(const Cursor&, u32, i64, u32, const u32*, G by_entries) {
        return by_entries();
    }

    // The sum of the entries of these rows, without what is beyond 64 bits; before `prepare`.
    template <class G> static DEVICE u64 sum(Cursor&, u32, void*, G by_entries) { return by_entries(); }

    // Which of these rows have an entry whose distance from the vector's base passes.
    template <class F, class G> static DEVICE u32 where(const Cursor&, u32, F, G by_entries) { return by_entries(); }
};
