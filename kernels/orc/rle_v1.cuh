// Integer RLE, version 1: a control byte c, then
//
//     c < 128: a run of c + 3 values: i8 delta, then the first value as a varint
//     c >= 128: 256 - c literal varints
//
// A LIST is literals: `base` is where the first starts, `delta` how many varints end before it. A window may have a part
// of them. What is left is carried to the next one.

struct Format {
    u32 varints = 0;  // that end in the window
    u32 carried = 0;  // literals that were left over
    enum { IS_LIST = 0 };

    // Where the first run starts.
    DEVICE u32 prepare(Window& w, Own& own, u32 first, u32) {
        varints = find_ends(w, own);
        __syncwarp();
        return carried == 0 ? first : carried <= varints ? w.ends[carried - 1] + 1u : (u32)BEYOND;
    }

    DEVICE u32 next(const Window& w, const Own& own, u32 k) const {
        const u32 control = own.byte(k);
        if (control < 128) return own.after_varint(k + 2);
        const u32 last = own.ends_until(k + 1) + 255 - control;
        return last < varints ? w.ends[last] + 1u - lane_id() * 16 : (u32)BEYOND;
    }

    DEVICE Run literals(u32 count, u32 start, u32 before) const {
        count = min(count, varints - before);
        return run_of(count, LIST, start, before, count ? NO_FAULT : RUN_ENDS);
    }
    DEVICE Run rest(u32 first) const { return literals(carried, first, 0); }

    // How many varints end before a byte.
    DEVICE u32 ends_before(const Window& w, u32 at) const {
        u32 low = 0, high = varints;
        while (low < high) {
            const u32 middle = (low + high) / 2;
            if (w.ends[middle] < at) low = middle + 1;
            else high = middle;
        }
        return low;
    }

    DEVICE Run run(const Window& w, u32 at) const {
        const u32 control = w.byte(at);
        if (control >= 128) return literals(256 - control, at + 1, ends_before(w, at + 1));
        const u32 end = ends_before(w, at + 2);
        if (end >= varints) return run_of(1, LINE, 0, 0, RUN_ENDS);
        u32 fault = NO_FAULT;
        const u64 base = signed_of(varint(w, at + 2, w.ends[end] + 1u, fault));
        return run_of(control + 3, LINE, base, (u64)(i64)(i8)w.byte(at + 1), fault);
    }

    // Carries what is left of literals that start at `at`, or started before the window if there is no start in it.
    // Returns where the next window begins.
    DEVICE u32 carry(const Window& w, u32 at, u32 after, u32) {
        const u32 count = at == BEYOND ? carried : 256u - w.byte(at);
        const u32 before = at == BEYOND ? 0 : ends_before(w, at + 1);
        carried = after == BEYOND ? count - (varints - before) : 0;
        return after == BEYOND && varints ? w.ends[varints - 1] + 1u : after;
    }

    DEVICE u64 listed(const Window& w, const u8*, u64 base, u64 delta, u32 k, u32& fault) const {
        const u32 end = (u32)delta + k;
        if (end >= varints) return 0;
        const u32 start = k ? w.ends[end - 1] + 1u : (u32)base;
        return signed_of(varint(w, start, w.ends[end] + 1u, fault));
    }

    DEVICE u32 alone(const u8*, u32, Run&) const { return 0; }

    template <class F> DEVICE void each_of_whole(const Window&, const u8*, u32, u32&, F) const {}
};
