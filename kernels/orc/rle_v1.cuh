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
    u32 ends_until;   // how many varints end before the byte behind the one that `next` was asked about
    enum { IS_LIST = 0 };

    // Where the first run starts.
    DEVICE u32 prepare(Window& w, Own& own, u32 first, u32) {
        varints = find_ends(w, own);
        __syncwarp();
        return carried == 0 ? first : carried <= varints ? w.ends[carried - 1] + 1u : (u32)BEYOND;
    }

    // A run ends with the first varint behind its two bytes, literals with as many as there are.
    DEVICE u32 next(const Window& w, const Own& own, u32 k) {
        if (k == 15) ends_until = own.ends_until(17);
        const u32 control = own.byte(k), until_second = ends_until;
        ends_until -= (u32)own.ends >> (k + 1) & 1;
        const u32 last = control < 128 ? until_second : ends_until + 255 - control;
        return w.ends[min(last, varints)] + 1u - lane_id() * 16;
    }

    DEVICE Run literals(u32 count, u32 start, u32 before) const {
        count = min(count, varints - before);
        return run_of(count, LIST, start, before, count ? NO_FAULT : RUN_ENDS);
    }
    DEVICE Run rest(u32 first) const { return literals(carried, first, 0); }

    // All lanes ask, some of them for a run.
    DEVICE Run run(const Window& w, const Own& own, u32 at) const {
        const u32 control = w.byte(at), behind = control < 128 ? 2 : 1;
        const u32 before = own.ends_until(at / 16, at % 16 + behind);
        if (control >= 128) return literals(256 - control, at + 1, before);
        if (before >= varints) return run_of(1, LINE, 0, 0, RUN_ENDS);
        u32 fault = NO_FAULT;
        const u64 base = signed_of(varint(w, at + 2, w.ends[before] + 1u, fault));
        return run_of(control + 3, LINE, base, (u64)(i64)(i8)w.byte(at + 1), fault);
    }

    // Carries what is left of literals that start at `at`, or started before the window if there is no start in it.
    // Returns where the next window begins.
    DEVICE u32 carry(const Window& w, const Own& own, u32 at, u32 after, u32) {
        if (after != BEYOND) {
            carried = 0;
            return after;
        }
        const u32 before = own.ends_until(at / 16 % 32, at % 16 + 1);
        carried = at == BEYOND ? carried - varints : 256u - w.byte(at) - (varints - before);
        return varints ? w.ends[varints - 1] + 1u : after;
    }

    DEVICE u64 listed(const Window& w, const u8*, u64 base, u64 delta, u32 k, u32& fault) const {
        const u32 end = (u32)delta + k;
        if (end >= varints) return 0;
        const u32 start = k ? w.ends[end - 1] + 1u : (u32)base;
        return signed_of(varint(w, start, w.ends[end] + 1u, fault));
    }

    // Takes the literal at `at`, which is in the window.
    DEVICE u64 take(const Window& w, const u8*, u32& at, u32, u32, u32& fault) const {
        return signed_of(take_varint(w, at, fault));
    }

    DEVICE u32 alone(const u8*, u32, Run&) const { return 0; }

    template <class F> DEVICE void each_of_whole(const Window&, const u8*, u32, u32&, F) const {}
};
