// Blocks of 128 integers: the smallest, four widths, and four miniblocks of 32 residuals, each packed in as many words
// as it is wide. A vector is eight of them, in tiles that may start with a word of their own. Lane l has miniblock l,
// which is row l of the vector: rows change places with lanes in shared memory, or in a selection.

// A lane's miniblock: its words, in shared memory, and bits of a residual.
struct Miniblock {
    const u32* words;
    u32 width;
    u64 minimum;
};

// Words of an integer of the column.
template <class S> DEVICE u32 words_of_integer(const Cursor& c) { return S::FLAGS & WIDE && c.flags & WIDE ? 2 : 1; }

template <class S> DEVICE u64 integer_at(const Cursor& c, const u32* words) {
    return words_of_integer<S>(c) == 2 ? (u64)words[1] << 32 | words[0] : words[0];
}

// Copies the vector's words to shared memory, and finds this lane's miniblock. `first` is where the first block is.
template <class S> DEVICE Miniblock miniblock(const Cursor& c, u32 first, u32* tile) {
    // distances between blocks, and how many quads there are
    const uint4 extra = __ldg((const uint4*)c.extra() + 1);
    const uint4* from = (const uint4*)c.at(c.line);
    __syncwarp();
#pragma unroll 4
    for (u32 i = lane_id(); i < extra.w; i += 32) ((uint4*)tile)[i] = __ldcs(from + i);
    const u64 distances = (u64)extra.y << 32 | extra.x;
    const u32 block = lane_id() / 4, own = lane_id() % 4;
    u32 at = first;
#pragma unroll
    for (u32 k = 0; k < 7; k++) at += k < block ? (u32)(distances >> k * 9) & 511 : 0;
    __syncwarp();
    Miniblock m;
    const u32 head = words_of_integer<S>(c);
    m.minimum = integer_at<S>(c, tile + at);
    const u32 widths = tile[at + head];
    m.width = widths >> own * 8 & 255;
    m.words = tile + at + head + 1;
#pragma unroll
    for (u32 k = 0; k < 3; k++) m.words += k < own ? widths >> k * 8 & 255 : 0;
    return m;
}

template <u32 WIDTH> DEVICE void own_words(const u32* words, u32 w[WIDTH + 1]) {
#pragma unroll
    for (u32 i = 0; i < WIDTH; i++) w[i] = words[i];
    w[WIDTH] = 0;
}

// All residuals of a miniblock, as f(k, residual).
template <class F> struct Unpack {
    const u32* words;
    F f;
    template <u32 WIDTH> DEVICE void run() {
        u32 w[WIDTH + 1];
        own_words<WIDTH>(words, w);
        extract_32<WIDTH>(w, f);
    }
};

// The same of any width, which is a number.
template <class F> DEVICE void unpack_narrow(const Miniblock& m, F f) {
    const u32 mask = m.width >= 32 ? ALL : (1u << m.width) - 1;
    const u32* next = m.words + 2;
    u32 low = m.words[0], high = m.words[1], shift = 0;
#pragma unroll
    for (u32 k = 0; k < 32; k++) {
        f(k, __funnelshift_r(low, high, shift) & mask);
        shift += m.width;
        if (shift >= 32) {
            shift -= 32;
            low = high;
            high = *next++;
        }
    }
}

template <class F> DEVICE void unpack_wide(const Miniblock& m, F f) {
    const u64 mask = m.width >= 64 ? ~0ull : (1ull << m.width) - 1;
    for (u32 k = 0; k < 32; k++) {
        const u32 bit = k * m.width;
        const u32* w = m.words + bit / 32;
        const u32 low = __funnelshift_r(w[0], w[1], bit), high = __funnelshift_r(w[1], w[2], bit);
        f(k, ((u64)high << 32 | low) & mask);
    }
}

// All residuals of this lane's miniblock, as f(k, residual), in order. Lanes whose widths are the same are done
// together: where a vector has few widths, by code for each.
template <class S, class F> DEVICE void residuals_of(const Cursor& c, const Miniblock& m, F f) {
    if (words_of_integer<S>(c) == 2) {
        unpack_wide(m, f);
    } else if (c.flags & FEW_WIDTHS) {
        if (m.width == 0) {
#pragma unroll
            for (u32 k = 0; k < 32; k++) f(k, 0u);
        } else {
            with_width<S::LOW>(m.width, Unpack<F>{m.words, f});
        }
    } else {
        unpack_narrow(m, f);
    }
    __syncwarp();
}

// What both encodings of blocks do. `Own` has values(c, tile, out): this lane's 32 entries, those of a row.
template <class S, class Own> struct Blocks : Sequence<S> {
    typedef typename S::Entry E;

    // Rows behind the end may have any entry.
    static const bool STRAYS = true;

    static DEVICE Lines lines(const Cursor& c) {
        return Lines{c.at(c.line), (__ldg(&c.extra()->quads) + 7) / 8};
    }

    // A word of padding after 32 keeps both sides free of bank conflicts.
    static DEVICE void prepare(Cursor& c, void* tile) {
        E own[32];
        Own::values(c, (u32*)tile, own);
        __syncwarp();
        E* row = (E*)tile + lane_id() * 33;
#pragma unroll
        for (u32 k = 0; k < 32; k++) row[k] = own[k];
        __syncwarp();
    }

    static DEVICE void entries_8(const Cursor&, u32 eighth, const void* tile, E out[8]) {
        const E* rows = (const E*)tile + (eighth * 8 * 33 + lane_id());
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = rows[k * 33];
    }

    static DEVICE E entry_at(const Cursor&, u32 r, u32 lane, u32, const void* tile) {
        return ((const E*)tile)[r * 33 + lane];
    }

    // What is in the range of a vector whose bounds say so: all or none. `false` if they do not.
    static DEVICE bool decided(const Cursor& c, E low, E high, u32& rows) {
        const E least = c.base<E>();
        const u32 bits = sizeof(E) * 8;
        const E top = c.width >= bits ? ~(E)0 : ((E)1 << (c.width & (bits - 1))) - 1;
        const E most = top > (E)~least ? ~(E)0 : least + top;
        rows = low <= least && most <= high ? ALL : 0;
        return rows != 0 || high < least || most < low;
    }
};
