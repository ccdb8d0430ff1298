// A window of a stream of runs, or of other elements of which each says where the next one starts: what a warp needs to find
// all that start in 512 bytes at once.
//
// A stream says nowhere where its runs start, but at its front. So each lane takes 16 of the bytes, and finds where a run
// would end if it started there: `next`. From its last byte back it then finds where what starts at each would leave the
// 16 bytes: `exits`. The warp follows these, from lane to lane, and every lane marks its bytes that runs do start at.
// Behind that, the room of `exits` is for values of short runs: there they meet before they go to memory.
//
// Behind this come a format of ORC (`byte_rle.cuh`, `rle_v1.cuh`, `rle_v2.cuh` or `varints.cuh`) and `runs.cuh`, or
// `inflate/snappy.cuh`.

// BEYOND is behind all that a run which starts in a window may have.
enum { WINDOW = 512, LOOKAHEAD = 32, BEYOND = 0x6000 };
// Of a lane's exits: an odd number of words, so that no two lanes meet in a bank.
enum { EXITS = 18, EXIT_BYTES = 32 * EXITS * 2 };
// Where a byte's exit is among all, in bytes; bytes behind the window have places behind all.
DEVICE u32 exit_of(u32 at) { return at * 2 + at / 16 * 4; }
DEVICE u32 at_of(u32 exit) { return (exit - exit / (EXITS * 2) * 4) / 2; }

enum Fault { NO_FAULT, STREAM_ENDS, RUN_ENDS, WIDE_VARINT, WIDE_PATCHES, PATCH_OUTSIDE, WIDE_VALUE, MISPLACED };

// How the values of a run follow from `base` and `delta`. LINE: value k is `base` and k times `delta`. What the others
// are, a format says.
enum Kind { LINE, LIST, WHOLE };

struct Run {
    u32 count, kind, fault;
    u64 base, delta;
};

DEVICE Run run_of(u32 count, u32 kind, u64 base, u64 delta, u32 fault) {
    Run run;
    run.count = count;
    run.kind = kind;
    run.fault = fault;
    run.base = base;
    run.delta = delta;
    return run;
}

DEVICE u64 signed_of(u64 value) { return SIGNED ? value >> 1 ^ (0 - (value & 1)) : value; }

struct Window {
    uint4 quads[(WINDOW + LOOKAHEAD) / 16];
    union {
        u16 exits[32 * EXITS];  // of each byte, the place of another exit: `exit_of`
        u64 values[EXIT_BYTES / 8];
    };
    // where runs start; one more than fits is left over from the window before
    u16 starts[WINDOW / 2 + 2];
    // of the bytes that end a varint, in their order; behind them, one that has BEYOND behind it
    u16 ends[VARINTS ? WINDOW + LOOKAHEAD + 1 : 1];

    DEVICE u8 byte(u32 at) const { return ((const u8*)quads)[at]; }
    // Four bytes; behind the last one there is anything.
    DEVICE u32 word(u32 at) const {
        const u32* const words = (const u32*)quads + at / 4;
        return __funnelshift_r(words[0], words[1], at * 8);
    }
};

// What a lane has of a window in registers: 16 bytes and the four behind them, and which of the bytes end a varint, of
// 48 from its first on.
struct Own {
    u32 words[5];
    u64 ends;
    u32 ends_before;  // in the lanes before this one: once `find_ends` has counted them

    DEVICE u32 byte(u32 k) const { return words[k / 4] >> k % 4 * 8 & 255; }
    // The byte behind the second varint from byte k on. `BEYOND` if there is none.
    DEVICE u32 after_two_varints(u32 k) const {
        u32 bits = (u32)(ends >> k);
        bits &= bits - 1;
        return bits ? k + __ffs((int)bits) : (u32)BEYOND;
    }
    // How many varints end before byte k.
    DEVICE u32 ends_until(u32 k) const { return ends_before + __popc((u32)ends & ((1u << k) - 1)); }
    // The same in the lane `of`, which all lanes ask for.
    DEVICE u32 ends_until(u32 of, u32 k) const {
        const u32 bits = __shfl_sync(ALL, (u32)ends, of);
        return __shfl_sync(ALL, ends_before, of) + __popc(bits & ((1u << k) - 1));
    }
};

// The varint in bytes `from` to before `to`.
DEVICE u64 varint(const Window& w, u32 from, u32 to, u32& fault) {
    const u32 bytes = to - from;
    if (bytes <= 4) {
        const u32 word = w.word(from) & ~0u >> (32 - bytes * 8);
        return word & 0x7f | word >> 1 & 0x3f80 | word >> 2 & 0x1fc000 | word >> 3 & 0xfe00000;
    }
    if (bytes > 10 || bytes == 10 && w.byte(to - 1) > 1) {
        fault = WIDE_VARINT;
        return 0;
    }
    u64 value = 0;
#pragma unroll 1
    for (u32 i = 0; i < bytes; i++) value |= (u64)(w.byte(from + i) & 127) << i * 7;
    return value;
}

// Takes the varint at `at`.
DEVICE u64 take_varint(const Window& w, u32& at, u32& fault) {
    u32 byte = w.byte(at++);
    u64 value = byte & 127;
#pragma unroll 1
    for (u32 shift = 7; byte >= 128; shift += 7) {
        byte = w.byte(at++);
        if (shift > 63 || shift == 63 && byte > 1) {
            fault = WIDE_VARINT;
            break;
        }
        value |= (u64)(byte & 127) << shift;
    }
    return value;
}

// A bit for each of four bytes whose top bit is not set.
DEVICE u32 ends_of(u32 word) {
    const u32 bits = ~word >> 7 & 0x01010101;
    return bits * 0x01020408 >> 24;
}

DEVICE u32 ends_of(uint4 quad) {
    return ends_of(quad.x) | ends_of(quad.y) << 4 | ends_of(quad.z) << 8 | ends_of(quad.w) << 12;
}

// Of 16 bits from place `at` on, those at places from `first` to before `last`.
DEVICE u32 between(u32 bits, u32 at, u32 first, u32 last) {
    if (first > at) bits &= first - at < 16 ? ~0u << (first - at) : 0;
    if (last < at + 16) bits &= last > at ? (1u << (last - at)) - 1 : 0;
    return bits;
}

// Loads the window whose first quad is at `from`. The stream goes from byte `first` of it to before `last`.
DEVICE Own load(Window& w, const uint4* from, u32 first, u32 last) {
    const u32 lane = lane_id(), quads = (last + 15) / 16;
    uint4 quad = make_uint4(0, 0, 0, 0), ahead = quad;
    if (lane < quads) quad = __ldg(from + lane);
    if (lane < LOOKAHEAD / 16 && 32 + lane < quads) ahead = __ldg(from + 32 + lane);
    __syncwarp();
    w.quads[lane] = quad;
    if (lane < LOOKAHEAD / 16) w.quads[32 + lane] = ahead;
    Own own;
    own.words[0] = quad.x;
    own.words[1] = quad.y;
    own.words[2] = quad.z;
    own.words[3] = quad.w;
    const u32 next = __shfl_down_sync(ALL, quad.x, 1), behind = __shfl_sync(ALL, ahead.x, 0);
    own.words[4] = lane < 31 ? next : behind;
    own.ends = 0;
    own.ends_before = 0;
    if (VARINTS) {
        const u32 bits = between(ends_of(quad), lane * 16, first, last);
        const u32 far = between(ends_of(ahead), WINDOW + lane * 16, first, last);
        const u32 one = __shfl_down_sync(ALL, bits, 1), two = __shfl_down_sync(ALL, bits, 2);
        const u32 far_one = __shfl_sync(ALL, far, 0), far_two = __shfl_sync(ALL, far, 1);
        const u32 second = lane < 31 ? one : far_one;
        const u32 third = lane < 30 ? two : lane == 30 ? far_one : far_two;
        own.ends = bits | (u64)second << 16 | (u64)third << 32;
    }
    return own;
}

// Writes where varints end, and returns how many do.
DEVICE u32 find_ends(Window& w, Own& own) {
    const u32 lane = lane_id(), bits = (u32)own.ends & 0xffff;
    own.ends_before = sum_before((u32)__popc(bits));
    u32 at = own.ends_before;
#pragma unroll
    for (u32 k = 0; k < 16; k++) {
        if (bits >> k & 1) w.ends[at++] = (u16)(lane * 16 + k);
    }
    const u32 far = __shfl_sync(ALL, (u32)(own.ends >> 16), 31), inside = __shfl_sync(ALL, at, 31);
    if (far >> lane & 1) w.ends[inside + __popc(far & ((1u << lane) - 1))] = (u16)(WINDOW + lane);
    const u32 count = inside + __popc(far);
    if (lane == 0) w.ends[count] = BEYOND - 1;
    return count;
}

// Which of this lane's bytes runs start at, the first of them at `first` and all before `last`, as next(k) tells: the
// byte behind a run, from the lane's first, if one starts at the lane's byte k; `BEYOND` or more if none is known. It is
// asked from the last byte back. `after` becomes the byte behind all.
template <class F> DEVICE u32 starts_of(Window& w, u32 first, u32 last, u32& after, F next) {
    const u32 lane = lane_id(), own = exit_of(lane * 16);
    u8* const exits = (u8*)w.exits;
    u32 to[16];
#pragma unroll
    for (u32 i = 0; i < 16; i++) to[15 - i] = next(15 - i);
#pragma unroll
    for (u32 i = 0; i < 16; i++) {
        const u32 k = 15 - i;
        u32 exit = exit_of(lane * 16 + to[k]);
        if (to[k] < 16) exit = *(const u16*)(exits + own + to[k] * 2);
        *(u16*)(exits + own + k * 2) = (u16)exit;
    }
    __syncwarp();
    const u32 end = exit_of(last);
    u32 at = exit_of(first), entry = 32;
    while (at < end) {
        if (at - own < 32) entry = at - own;
        at = *(const u16*)(exits + at);
    }
    after = min(at_of(at), (u32)BEYOND);
    u32 starts = __funnelshift_lc(0, 1, entry / 2) & 0xffff;
#pragma unroll
    for (u32 k = 0; k < 16; k++) {
        if (starts >> k & 1) starts |= __funnelshift_lc(0, 1, to[k]);
    }
    // the lane may have gone on behind the end
    return between(starts & 0xffff, lane * 16, 0, last);
}

// Writes where runs start, and returns how many do, what is left over from the window before among them.
DEVICE u32 list_starts(Window& w, u32 starts, bool has_rest) {
    const u32 lane = lane_id();
    u32 at = sum_before((u32)__popc(starts)) + has_rest;
    if (has_rest && lane == 0) w.starts[0] = BEYOND;
#pragma unroll 1
    for (u32 left = starts; left; left &= left - 1) w.starts[at++] = (u16)(lane * 16 + __ffs((int)left) - 1);
    __syncwarp();
    return __shfl_sync(ALL, at, 31);
}
