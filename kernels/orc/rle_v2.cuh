// Integer RLE, version 2: runs of four kinds, which the upper two bits tell apart.
//
//     short repeat   00 www ccc             the value in w + 1 bytes, c + 3 times
//     direct         01 wwwww l  llllllll   l + 1 values of the width of code w
//     patched base   10 wwwww l  llllllll   bbb ppppp  ggg nnnnn, base, l + 1 values, n patches
//     delta          11 wwwww l  llllllll   base, first delta, l - 1 deltas; of one delta if w is 0
//
// A LIST is a direct run: `base` is the byte that its values are packed from, `delta` how wide they are. WHOLE are runs
// of several deltas and with patches: the warp decodes one at a time.

enum { SHORT_REPEAT, DIRECT, PATCHED_BASE, DELTA };
// Bytes of packed values from which on a direct run is not looked for in a window.
enum { LONE = 256 };

DEVICE u32 width_of(u32 code) { return code < 24 ? code + 1 : code < 28 ? code * 2 - 22 : code * 8 - 184; }

// The smallest width of a code that has room for so many bits, which are at most 64.
DEVICE u32 width_for(u32 bits) { return bits <= 24 ? bits : bits <= 32 ? (bits + 1) & ~1u : (bits + 7) & ~7u; }

DEVICE u32 bytes_of(u32 count, u32 width) { return (count * width + 7) / 8; }

// `width` bits, the most significant first; of the bytes behind them up to eleven may be read.
DEVICE u64 big_endian(const u8* bytes, u32 bit, u32 width) {
    const u64 at = (u64)bytes + bit / 8;
    const u32* words = (const u32*)(at & ~3ull);
    const u32 shift = (u32)(at & 3) * 8 + bit % 8;
    const u32 first = __byte_perm(__ldg(words), 0, 0x0123), second = __byte_perm(__ldg(words + 1), 0, 0x0123);
    const u32 high = __funnelshift_l(second, first, shift);
    if (width <= 32) return high >> (32 - width);
    const u32 low = __funnelshift_l(__byte_perm(__ldg(words + 2), 0, 0x0123), second, shift);
    return ((u64)high << 32 | low) >> (64 - width);
}

// What the first bytes of a run of patches say.
struct Patches {
    u32 base_bytes, width, gap_width, count;
    DEVICE Patches(u32 third, u32 fourth) {
        base_bytes = (third >> 5) + 1;
        width = width_of(third & 31);
        gap_width = (fourth >> 5) + 1;
        count = fourth & 31;
    }
    DEVICE bool is_wide() const { return width + gap_width > 64; }
    DEVICE u32 entry_width() const { return width_for(width + gap_width); }
};

struct Head {
    u32 kind, code, values;
    DEVICE Head(u32 first, u32 second) {
        kind = first >> 6;
        code = first >> 1 & 31;
        values = (first & 1) << 8 | second;
        values++;
    }
    // Values packed behind the others.
    DEVICE u32 packed() const {
        if (kind == DELTA) return code == 0 || values < 2 ? 0 : values - 2;
        return values;
    }
    DEVICE u32 packed_bytes() const { return bytes_of(packed(), width_of(code)); }
};

struct Format {
    u32 last;
    enum { carried = 0, IS_LIST = 0 };

    DEVICE u32 prepare(Window&, Own&, u32 first, u32 end) {
        last = end;
        return first;
    }

    DEVICE u32 next(const Window&, const Own& own, u32 k) const {
        const u32 first = own.byte(k);
        const Head head(first, own.byte(k + 1));
        if (head.kind == SHORT_REPEAT) return k + 2 + (first >> 3 & 7);
        u32 end = k + 2;
        if (head.kind == DELTA) {
            end = own.after_two_varints(k + 2);
            if (end == BEYOND) return BEYOND;
        } else if (head.kind == PATCHED_BASE) {
            const Patches patches(own.byte(k + 2), own.byte(k + 3));
            if (patches.is_wide()) return BEYOND;
            end = k + 4 + patches.base_bytes + bytes_of(patches.count, patches.entry_width());
        }
        return end + head.packed_bytes();
    }

    // Takes a varint.
    DEVICE u64 varint(const Window& w, u32& at, u32& fault) const {
        u64 value = 0;
        for (u32 shift = 0; shift < 70; shift += 7) {
            const u32 byte = w.byte(at++);
            if (shift == 63 && byte > 1) break;
            value |= (u64)(byte & 127) << shift;
            if (byte < 128) return value;
        }
        fault = WIDE_VARINT;
        return 0;
    }

    DEVICE u64 integer(const Window& w, u32 at, u32 bytes) const {
        u64 value = 0;
        for (u32 i = 0; i < bytes; i++) value = value << 8 | w.byte(at + i);
        return value;
    }

    DEVICE Run run(const Window& w, const Own&, u32 at) const {
        const u32 first = w.byte(at);
        const Head head(first, w.byte(at + 1));
        Run run = run_of(head.values, WHOLE, 0, 0, NO_FAULT);
        u32 end = at + 2;
        if (head.kind == SHORT_REPEAT) {
            const u32 bytes = (first >> 3 & 7) + 1;
            run = run_of((first & 7) + 3, LINE, signed_of(integer(w, at + 1, bytes)), 0, NO_FAULT);
            end = at + 1 + bytes;
        } else if (head.kind == DIRECT) {
            run = run_of(head.values, LIST, end, width_of(head.code), NO_FAULT);
            end += head.packed_bytes();
        } else if (head.kind == DELTA) {
            run.base = signed_of(varint(w, end, run.fault));
            const u64 delta = varint(w, end, run.fault);
            run.delta = delta >> 1 ^ (0 - (delta & 1));
            if (head.packed() == 0) run.kind = LINE;
            end += head.packed_bytes();
        } else {
            const Patches patches(w.byte(at + 2), w.byte(at + 3));
            if (patches.is_wide()) run.fault = WIDE_PATCHES;
            end += 2 + patches.base_bytes + head.packed_bytes();
            if (!run.fault) end += bytes_of(patches.count, patches.entry_width());
        }
        if (end > last) run.fault = RUN_ENDS;
        return run;
    }
    DEVICE Run rest(u32) const { return run_of(0, LINE, 0, 0, NO_FAULT); }
    DEVICE u32 carry(const Window&, const Own&, u32, u32 after, u32) const { return after; }

    DEVICE u64 listed(const Window&, const u8* bytes, u64 base, u64 delta, u32 k, u32&) const {
        return signed_of(big_endian(bytes + base, k * (u32)delta, (u32)delta));
    }

    DEVICE u64 take(const Window& w, const u8* bytes, u32 at, u32 delta, u32 k, u32& fault) const {
        return listed(w, bytes, at, delta, k, fault);
    }

    // The run at `from`, if it is a direct one of many bytes: how many. There is no need of a window then.
    DEVICE u32 alone(const u8* from, u32 left, Run& run) const {
        if (left < 2 + LONE) return 0;
        const Head head(__ldg(from), __ldg(from + 1));
        const u32 packed = head.packed_bytes();
        if (head.kind != DIRECT || packed < LONE || packed > left - 2) return 0;
        run = run_of(head.values, LIST, 2, width_of(head.code), NO_FAULT);
        return 2 + packed;
    }

    // Calls f(k, value) for the values of the run at `at`, which has no fault; f must not wait for other lanes.
    template <class F> DEVICE void each_of_whole(const Window& w, const u8* bytes, u32 at, u32& fault, F f) const {
        const Head head(w.byte(at), w.byte(at + 1));
        if (head.kind == DELTA) each_of_deltas(w, bytes, at + 2, head, f);
        else each_of_patched(w, bytes, at, head, fault, f);
    }

    template <class F> DEVICE void each_of_deltas(const Window& w, const u8* bytes, u32 at, const Head& head, F f) const {
        u32 no_fault;
        const u64 base = signed_of(varint(w, at, no_fault));
        const u64 zigzag = varint(w, at, no_fault), delta = zigzag >> 1 ^ (0 - (zigzag & 1));
        const u32 width = width_of(head.code);
        u64 sum = base;
        for (u32 first = 0; first < head.values; first += 32) {
            const u32 k = first + lane_id();
            u64 own = 0;
            if (k == 1) own = delta;
            if (k >= 2 && k < head.values) {
                own = big_endian(bytes + at, (k - 2) * width, width);
                if ((i64)delta < 0) own = 0 - own;
            }
            const u64 value = sum + sum_before(own) + own;
            if (k < head.values) f(k, value);
            sum = __shfl_sync(ALL, value, 31);
        }
    }

    template <class F>
    DEVICE void each_of_patched(const Window& w, const u8* bytes, u32 at, const Head& head, u32& fault, F f) const {
        const Patches patches(w.byte(at + 2), w.byte(at + 3));
        const u64 read = integer(w, at + 4, patches.base_bytes), sign = 1ull << (8 * patches.base_bytes - 1);
        const u64 base = read & sign ? 0 - (read & (sign - 1)) : read;
        const u32 width = width_of(head.code);
        const u8* values = bytes + at + 4 + patches.base_bytes;
        const u8* list = values + head.packed_bytes();
        for (u32 k = lane_id(); k < head.values; k += 32) f(k, base + big_endian(values, k * width, width));
        u32 gap = 0;
        u64 patch = 0;
        if (lane_id() < patches.count) {
            const u32 entry_width = patches.entry_width();
            const u64 entry = big_endian(list, lane_id() * entry_width, entry_width);
            gap = (u32)(entry >> patches.width) & ((1u << patches.gap_width) - 1);
            patch = entry & ~0ull >> (64 - patches.width);
        }
        const u32 place = sum_before(gap) + gap;
        // a longer gap takes two entries: the first only goes on
        const bool is_patch = lane_id() < patches.count && !(gap == 255 && patch == 0);
        if (is_patch && place >= head.values) fault = PATCH_OUTSIDE;
        patch = width < 64 ? patch << width : 0;
        // a value may have several
        u64 bits = 0;
        for (u32 other = 0; other < patches.count; other++) {
            const u32 at_place = __shfl_sync(ALL, place, other);
            const u64 of_other = __shfl_sync(ALL, patch, other);
            if (at_place == place) bits |= of_other;
        }
        __syncwarp();
        if (is_patch && place < head.values) f(place, base + (big_endian(values, place * width, width) | bits));
    }
};
