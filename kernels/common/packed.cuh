// Packed residuals: 32 lanes of 32-bit words, row r of a lane in its bits [r * width, (r + 1) * width).
//
// Bodies are unrolled for each width that the data has (a bit of WIDTHS) and chosen once a vector, by a
// branch that the whole warp takes: all words are loaded before the first is used, and shifts are
// constants. Residuals beyond 32 bits have a low plane of 32 lines and behind it a high plane.

#define EACH_WIDTH(M)                                                                              \
    M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15) M(16) M(17)   \
    M(18) M(19) M(20) M(21) M(22) M(23) M(24) M(25) M(26) M(27) M(28) M(29) M(30) M(31) M(32)

template <u32 WIDTH> DEVICE u32 low_bits(u32 x) {
    if constexpr (WIDTH >= 32) return x;
    else return x & ((1u << WIDTH) - 1);
}

// x * power, as a multiplication: half of the work of extracting then falls to the units for it, which
// have nothing else to do.
DEVICE u32 to_top(u32 x, u32 power) {
#ifdef CUCPU
    return x * power;
#else
    u32 y;
    asm("mul.lo.u32 %0, %1, %2;" : "=r"(y) : "r"(x), "r"(power));
    return y;
#endif
}

// The 32 residuals in these words, as f(row, residual); a word of zeros is behind them.
template <u32 WIDTH, class F> DEVICE void extract_32(const u32 w[WIDTH + 1], F f) {
#pragma unroll
    for (u32 r = 0; r < 32; r++) {
        const u32 line = r * WIDTH / 32, shift = r * WIDTH % 32;
        u32 x;
        if (shift + WIDTH == 32) x = w[line] >> shift;
        else if (shift == 0) x = low_bits<WIDTH>(w[line]);
        else if (shift + WIDTH <= 32) x = to_top(w[line], 1u << (32 - shift - WIDTH)) >> (32 - WIDTH);
        else x = low_bits<WIDTH>(__funnelshift_r(w[line], w[line + 1], shift));
        f(r, x);
    }
}

// All 32 residuals of this lane, as f(row, residual).
template <u32 WIDTH, class F> DEVICE void unpack_32(const u32* words, F f) {
    u32 w[WIDTH + 1];
#pragma unroll
    for (u32 i = 0; i < WIDTH; i++) w[i] = stream(words + i * 32);
    w[WIDTH] = 0;
    extract_32<WIDTH>(w, f);
}

// The sum of numbers of up to WIDTH bits, 32 at most: in 32 bits where that is enough.
template <u32 WIDTH> struct Sum {
    u64 sums = 0;
    u32 few = 0;

    DEVICE void add(u32 x) {
        if constexpr (WIDTH <= 27) few += x;
        else sums += x;
    }
    DEVICE u64 total() const { return sums + few; }
};

// Adds up the residuals of these rows.
struct Sum32 {
    const u32* words;
    u32 rows;
    u64& sum;
    template <u32 WIDTH> DEVICE void run() {
        Sum<WIDTH> own;
        unpack_32<WIDTH>(words, [&](u32 r, u32 x) {
            if (rows >> r & 1) own.add(x);
        });
        sum = own.total();
    }
};

// The residuals of rows 8 * eighth to 8 * eighth + 7 of this lane.
template <u32 WIDTH> DEVICE void unpack_8(const u32* words, u32 eighth, u32 out[8]) {
    const u32 bit = eighth * 8 * WIDTH, shift = bit % 32;
    const u32 LINES = (WIDTH + 3) / 4;
    words += bit / 32 * 32;
    u32 w[LINES + 1];
    if constexpr (WIDTH % 4 == 0) {
#pragma unroll
        for (u32 i = 0; i < LINES; i++) w[i] = stream(words + i * 32);
    } else {
        u32 next = stream(words);
#pragma unroll
        for (u32 i = 0; i < LINES; i++) {
            // the last line may be wholly in the one before
            const u32 last = i + 1 == LINES && shift + 8 * WIDTH <= LINES * 32;
            const u32 after = last ? 0 : stream(words + (i + 1) * 32);
            w[i] = __funnelshift_r(next, after, shift);
            next = after;
        }
    }
    w[LINES] = 0;
#pragma unroll
    for (u32 k = 0; k < 8; k++) {
        const u32 line = k * WIDTH / 32, at = k * WIDTH % 32;
        u32 x;
        if (at + WIDTH <= 32) x = w[line] >> at;
        else x = __funnelshift_r(w[line], w[line + 1], at);
        out[k] = low_bits<WIDTH>(x);
    }
}

// Runs f<width>() for the width, one of WIDTHS; of 0, nothing.
template <u64 WIDTHS, class F> DEVICE void with_width(u32 width, F f) {
    switch (width) {
#define CASE(n)                                                                                    \
    case n:                                                                                        \
        if constexpr (WIDTHS >> n & 1) f.template run<n>();                                        \
        break;
        EACH_WIDTH(CASE)
#undef CASE
    }
}

// One more bit of `outside`, from the right: whether x > span.
DEVICE void note_outside(u32& outside, u32 x, u32 not_span) {
#ifdef CUCPU
    outside = outside << 1 | (x > ~not_span);
#else
    // the carry is the bit: one addition makes it, another takes it up
    asm("{ .reg .u32 sum; add.cc.u32 sum, %1, %2; addc.u32 %0, %0, %0; }"
        : "+r"(outside) : "r"(x), "r"(not_span));
#endif
}

// Which of the 32 residuals in these words lie in first..=first + span. A residual is moved to the top of a word,
// and what is below it does not matter: comparing needs no masking.
template <u32 WIDTH> DEVICE u32 within_words(const u32 w[WIDTH], u32 first, u32 span) {
    const u32 low = first << (32 - WIDTH), not_span = ~(((span + 1) << (32 - WIDTH)) - 1);
    u32 outside = 0;
#pragma unroll
    for (u32 k = 0; k < 32; k++) {
        const u32 r = 31 - k, line = r * WIDTH / 32, shift = r * WIDTH % 32;
        u32 x;
        if (shift + WIDTH <= 32) x = w[line] << (32 - WIDTH - shift);
        else x = __funnelshift_l(w[line], w[(line + 1) % WIDTH], 64 - WIDTH - shift);
        note_outside(outside, x - low, not_span);
    }
    return ~outside;
}

// Which of this lane's residuals do.
template <u32 WIDTH> DEVICE u32 within_32(const u32* words, u32 first, u32 span) {
    u32 w[WIDTH];
#pragma unroll
    for (u32 i = 0; i < WIDTH; i++) w[i] = stream(words + i * 32);
    return within_words<WIDTH>(w, first, span);
}

// Which of this lane's codes, of up to 5 bits, have a bit in `set`.
template <u32 WIDTH> DEVICE u32 in_set_32(const u32* words, u32 set) {
    u32 w[WIDTH];
#pragma unroll
    for (u32 i = 0; i < WIDTH; i++) w[i] = stream(words + i * 32);
    // repeated, so that bits above a code do not matter: a shift looks at five of them
#pragma unroll
    for (u32 codes = 1u << WIDTH; codes < 32; codes *= 2) set |= set << codes;
    u32 mask = 0;
#pragma unroll
    for (u32 r = 0; r < 32; r++) {
        const u32 line = r * WIDTH / 32, shift = r * WIDTH % 32;
        u32 x;
        if (shift + WIDTH <= 32) x = w[line] >> shift;
        else x = __funnelshift_r(w[line], w[(line + 1) % WIDTH], shift);
        mask = __funnelshift_r(mask, set >> (x & 31), 1);
    }
    return mask;
}

// The same for codes of 6 to 10 bits: lane l has the bits of codes 32 * l to 32 * l + 31 in `table`, and
// where there are fewer codes their bits again, so that bits above a code do not matter.
template <u32 WIDTH> DEVICE u32 in_lanes_32(const u32* words, u32 table) {
    u32 w[WIDTH];
#pragma unroll
    for (u32 i = 0; i < WIDTH; i++) w[i] = stream(words + i * 32);
    u32 mask = 0;
#pragma unroll
    for (u32 r = 0; r < 32; r++) {
        const u32 line = r * WIDTH / 32, shift = r * WIDTH % 32;
        u32 x;
        if (shift + WIDTH <= 32) x = w[line] >> shift;
        else x = __funnelshift_r(w[line], w[(line + 1) % WIDTH], shift);
        const u32 set = __shfl_sync(ALL, table, (int)(x >> 5));
        mask = __funnelshift_r(mask, __funnelshift_r(set, 0, x), 1);
    }
    return mask;
}

// The same for any codes, of which `bits` has a bit each.
template <u32 WIDTH> DEVICE u32 in_bits_32(const u32* words, u32 base, const u32* bits) {
    u32 mask = 0;
    unpack_32<WIDTH>(words, [&](u32, u32 x) {
        const u32 code = x + base;
        mask = __funnelshift_r(mask, __funnelshift_r(__ldg(bits + (code >> 5)), 0, code), 1);
    });
    return mask;
}

// Which of this lane's codes, from `base` on, have a bit in `bits`, which has 33 words more than it needs.
struct InSet32 {
    const u32* words;
    u32 base;
    const u32* bits;
    u32& mask;

    // 32 bits from that of code `first` on
    DEVICE u32 from(u32 first) const {
        return __funnelshift_r(__ldg(bits + first / 32), __ldg(bits + first / 32 + 1), first);
    }
    template <u32 WIDTH> DEVICE void run() {
        if constexpr (WIDTH <= 5) {
            mask = in_set_32<WIDTH>(words, from(base) & ((2u << ((1u << WIDTH) - 1)) - 1));
        } else if constexpr (WIDTH <= 10) {
            mask = in_lanes_32<WIDTH>(words, from(base + lane_id() % (1u << (WIDTH - 5)) * 32));
        } else {
            mask = in_bits_32<WIDTH>(words, base, bits);
        }
    }
};

struct Within32 {
    const u32* words;
    u32 first, span;
    u32& mask;
    template <u32 WIDTH> DEVICE void run() { mask = within_32<WIDTH>(words, first, span); }
};

struct Unpack8 {
    const u32* words;
    u32 eighth;
    u32* out;
    template <u32 WIDTH> DEVICE void run() { unpack_8<WIDTH>(words, eighth, out); }
};

// Which residuals, of 1 to 32 bits, lie in first..=first + span. The range does not hold all of them.
template <u64 WIDTHS> DEVICE u32 within_narrow(const u32* words, u32 width, u32 first, u32 span) {
    u32 mask = 0;
    with_width<WIDTHS>(width, Within32{words, first, span, mask});
    return mask;
}

// A width that is the only one is not looked at: several columns are then loaded together.
template <u64 WIDTHS> DEVICE void narrow_8(const u32* words, u32 width, u32 eighth, u32 out[8]) {
#define ONLY(n) if constexpr (WIDTHS == 1ull << n) return unpack_8<n>(words, eighth, out);
    EACH_WIDTH(ONLY)
#undef ONLY
#pragma unroll
    for (u32 k = 0; k < 8; k++) out[k] = 0;
    with_width<WIDTHS>(width, Unpack8{words, eighth, out});
}

// Residuals of any width; HIGH has a bit for each width less 32.
template <u64 LOW, u64 HIGH> DEVICE void wide_8(const u32* words, u32 width, u32 eighth, u64 out[8]) {
    u32 low[8];
    if (HIGH == 0 || width <= 32) {
        narrow_8<LOW>(words, width, eighth, low);
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = low[k];
    } else {
        u32 high[8];
        unpack_8<32>(words, eighth, low);
        narrow_8<HIGH>(words + 32 * 32, width - 32, eighth, high);
#pragma unroll
        for (u32 k = 0; k < 8; k++) out[k] = (u64)high[k] << 32 | low[k];
    }
}

// The residual of row r of this lane, of up to 32 bits.
DEVICE u32 narrow_at(const u32* words, u32 width, u32 r) {
    if (width == 0) return 0;
    const u32 bit = r * width, shift = bit % 32;
    words += bit / 32 * 32;
    const u32 low = __ldg(words), high = shift + width > 32 ? __ldg(words + 32) : 0;
    return __funnelshift_r(low, high, shift) & (ALL >> (32 - width));
}

// The same, of any width.
template <u64 HIGH> DEVICE u64 wide_at(const u32* words, u32 width, u32 r) {
    if (HIGH == 0 || width <= 32) return narrow_at(words, width, r);
    return (u64)narrow_at(words + 32 * 32, width - 32, r) << 32 | __ldg(words + r * 32);
}

// Which residuals of more than 32 bits pass.
template <u64 HIGH, class F> DEVICE u32 test_wide(const u32* words, u32 width, F test) {
    u32 mask = 0;
    for (u32 eighth = 0; eighth < 4; eighth++) {
        u64 x[8];
        wide_8<0, HIGH>(words, width, eighth, x);
#pragma unroll
        for (u32 k = 0; k < 8; k++) mask |= test(x[k]) ? 1u << (eighth * 8 + k) : 0;
    }
    return mask;
}

// The residuals of rows 8 * eighth to 8 * eighth + 7 of this lane, patches among them.
template <class S> DEVICE void residuals_8(const Cursor& c, u32 eighth, typename S::Entry out[8]) {
    if constexpr (sizeof(typename S::Entry) == 8) wide_8<S::LOW, S::HIGH>(c.words(), c.width, eighth, out);
    else narrow_8<S::LOW>(c.words(), c.width, eighth, out);
    if (S::FLAGS & PATCHED && c.flags & PATCHED) {
        each_patch(c, [&](u32 row, u64 value) {
            if (row / 8 != eighth) return;
#pragma unroll
            for (u32 k = 0; k < 8; k++) out[k] = row % 8 == k ? (typename S::Entry)value : out[k];
        });
    }
}
