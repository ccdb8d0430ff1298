// Byte RLE: a control byte c, then
//
//     c < 128: a byte, c + 3 times
//     c >= 128: 256 - c literal bytes
//
// A LIST is literals: `base` is where they start.

struct Format {
    u32 last;
    enum { carried = 0, IS_LIST = 0 };

    DEVICE u32 prepare(Window&, Own&, u32 first, u32 end) {
        last = end;
        return first;
    }

    DEVICE u32 next(const Window&, const Own& own, u32 k) const {
        const u32 control = own.byte(k);
        return k + (control < 128 ? 2 : 257 - control);
    }

    DEVICE Run run(const Window& w, const Own&, u32 at) const {
        const u32 control = w.byte(at);
        if (control < 128) return run_of(control + 3, LINE, w.byte(at + 1), 0, at + 2 <= last ? NO_FAULT : RUN_ENDS);
        const u32 count = 256 - control, there = last - (at + 1);
        // what is not there may not be wanted
        return run_of(min(count, there), LIST, at + 1, 0, there ? NO_FAULT : RUN_ENDS);
    }
    DEVICE Run rest(u32) const { return run_of(0, LINE, 0, 0, NO_FAULT); }
    DEVICE u32 carry(const Window&, const Own&, u32, u32 after, u32) const { return after; }

    DEVICE u64 listed(const Window&, const u8* bytes, u64 base, u64, u32 k, u32&) const {
        return __ldg(bytes + base + k);
    }

    DEVICE u64 take(const Window& w, const u8* bytes, u32 at, u32 delta, u32 k, u32& fault) const {
        return listed(w, bytes, at, delta, k, fault);
    }

    DEVICE u32 alone(const u8*, u32, Run&) const { return 0; }

    template <class F> DEVICE void each_of_whole(const Window&, const u8*, u32, u32&, F) const {}
};
