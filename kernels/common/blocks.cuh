// Blocks of 128 integers: the smallest, four widths, and four miniblocks of 32 residuals, each packed in as many words
// as it is wide. A vector is eight of them, in tiles that may start with an integer of their own. A miniblock is a row.
//
// A warp copies the words of a vector to shared memory, and there are two ways to read them. By rows, one body serves all
// widths: what a miniblock takes to be read lies beside the words, and all lanes load it at once. By lanes, each lane
// has a miniblock, and runs a body for its width, as those of `packed.cuh`; lanes of other widths wait. That is for
// vectors of few widths, of which LOW has a bit each.

// Words of a vector of `gpu_for`, at most, and those behind it that may be read: no miniblock is wider than the bounds
// of its vector. `tile_bytes` in `registry.rs` has the same.
template <class S> DEVICE constexpr u32 most_words() {
    if (sizeof(typename S::Entry) == 8) return 33 * 8 * 8;
    u32 width = 0;
    for (u64 wider = S::WIDTHS >> 1; wider; wider >>= 1) width++;
    return 8 * (2 + 4 * width) + 4;
}

// How to read a miniblock: where it starts, in bits; its width; of integers of 32 bits a mask and the minimum, of others
// the minimum.
template <class S> DEVICE uint4* miniblocks(void* tile) { return (uint4*)((u32*)tile + most_words<S>()); }
template <class S> DEVICE const uint4* miniblocks(const void* tile) {
    return (const uint4*)((const u32*)tile + most_words<S>());
}

// Words of an integer of the column.
template <class S> DEVICE u32 words_of_integer(const Cursor& c) { return S::FLAGS & WIDE && c.flags & WIDE ? 2 : 1; }

template <class S> DEVICE u64 integer_at(const Cursor& c, const u32* words) {
    return words_of_integer<S>(c) == 2 ? (u64)words[1] << 32 | words[0] : words[0];
}

// How many quads a vector has.
DEVICE u32 quads_of(const Cursor& c) { return __ldg(&c.record()[1].x) - c.line; }

struct Miniblock {
    u32 block, at, width;  // first words: of its block, its own
    u64 minimum;
};

// How far blocks are from each other.
DEVICE u64 distances_of(const Cursor& c) { return __ldg(&c.extra()->smallest); }

// This lane's miniblock. `first` is where the first block is, and `word` loads a word of the vector.
template <class S, class F> DEVICE Miniblock miniblock(const Cursor& c, u64 distances, u32 first, F word) {
    const u32 block = lane_id() / 4, own = lane_id() % 4;
    u32 at = first;
#pragma unroll
    for (u32 k = 0; k < 7; k++) at += k < block ? (u32)(distances >> k * 9) & 511 : 0;
    Miniblock m;
    m.block = at;
    const u32 head = words_of_integer<S>(c), widths = word(at + head);
    m.minimum = head == 2 ? (u64)word(at + 1) << 32 | word(at) : word(at);
    m.width = widths >> own * 8 & 255;
    m.at = at + head + 1;
#pragma unroll
    for (u32 k = 0; k < 3; k++) m.at += k < own ? widths >> k * 8 & 255 : 0;
    return m;
}

// Copies the vector's words to shared memory, and finds this lane's miniblock there.
template <class S> DEVICE Miniblock stage(const Cursor& c, u32 first, void* tile) {
    const u64 distances = distances_of(c);
    const uint4* from = (const uint4*)c.at(c.line);
    const u32 quads = quads_of(c);
    u32* words = (u32*)tile;
    __syncwarp();
#pragma unroll 4
    for (u32 i = lane_id(); i < quads; i += 32) copy_async((uint4*)words + i, from + i);
    wait_for_copies();
    __syncwarp();
    return miniblock<S>(c, distances, first, [=](u32 i) { return words[i]; });
}

template <class E> DEVICE E mask_of(u32 width) {
    const u32 bits = sizeof(E) * 8;
    return width >= bits ? ~(E)0 : ((E)1 << (width & (bits - 1))) - 1;
}

// The bits from `bit` on of words that `word` loads.
template <class E, class F> DEVICE E bits_at(u32 bit, F word) {
    const u32 i = bit / 32, second = word(i + 1), low = __funnelshift_r(word(i), second, bit);
    if constexpr (sizeof(E) == 4) return low;
    else return (u64)__funnelshift_r(second, word(i + 2), bit) << 32 | low;
}

template <class E> DEVICE E bits_at(const u32* words, u32 bit) {
    return bits_at<E>(bit, [=](u32 i) { return words[i]; });
}

// A lane's packed words, and one behind them.
template <u32 WIDTH> DEVICE void own_words(const u32* words, u32 w[WIDTH + 1]) {
#pragma unroll
    for (u32 i = 0; i < WIDTH; i++) w[i] = words[i];
    w[WIDTH] = 0;
}

// All residuals of a lane's miniblock, as f(k, residual).
template <class F> struct UnpackOwn {
    const u32* words;
    F f;
    template <u32 WIDTH> DEVICE void run() {
        u32 w[WIDTH + 1];
        own_words<WIDTH>(words, w);
        extract_32<WIDTH>(w, f);
    }
};

template <class S, class F> DEVICE void unpack_own(const u32* words, u32 width, F f) {
    if (width == 0) {
#pragma unroll
        for (u32 k = 0; k < 32; k++) f(k, 0u);
    } else {
        with_width<S::LOW>(width, UnpackOwn<F>{words, f});
    }
}

// Puts this lane's entries, those of a row, in the place of the words that they were in. A word of padding after 32
// keeps both sides free of bank conflicts.
template <class E> DEVICE void store_row(const E own[32], void* tile) {
    __syncwarp();
    E* row = (E*)tile + lane_id() * 33;
#pragma unroll
    for (u32 k = 0; k < 32; k++) row[k] = own[k];
    __syncwarp();
}

// What both encodings of blocks do. `Own` has the rest: prepare, entry_at, row_at, tested.
template <class S, class Own> struct Blocks : Sequence<S> {
    typedef typename S::Entry E;

    // Rows behind the end may have any entry.
    static const bool STRAYS = true;

    static DEVICE Lines lines(const Cursor& c) {
        return Lines{c.at(c.line), (quads_of(c) + 7) / 8};
    }

    static DEVICE void entries_8(const Cursor& c, u32 eighth, const void* tile, E out[8]) {
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = Own::row_at(c, eighth * 8 + k, tile);
    }

    // Whether a vector has few widths, with a body for each.
    static DEVICE bool has_few_widths(const Cursor& c) {
        return sizeof(E) == 4 && S::FLAGS & FEW_WIDTHS && c.flags & FEW_WIDTHS;
    }

    // Whether its entries take the place of their words, by rows.
    static DEVICE bool has_rows(const Cursor& c) { return S::FLAGS & TILE_ROWS && has_few_widths(c); }

    static DEVICE u32 in_range(const Cursor& c, E low, E high, void* tile) {
        // bounds of a vector often tell
        const E least = c.base<E>(), top = mask_of<E>(c.width);
        const E most = top > (E)~least ? ~(E)0 : least + top;
        if (high < least || most < low) return 0;
        if (low <= least && most <= high) return ALL;
        return Own::tested(c, low, high, tile);
    }

    // The same, of entries that are prepared.
    static DEVICE u32 in_range_by_rows(const Cursor& c, E low, E high, const void* tile) {
        const E span = high - low;
        u32 outside = 0;
#pragma unroll 8
        for (u32 k = 0; k < 32; k++) {
            const E x = Own::row_at(c, 31 - k, tile) - low;
            if constexpr (sizeof(E) == 4) note_outside(outside, x, ~span);
            else outside = outside << 1 | (x > span);
        }
        return ~outside;
    }
};
