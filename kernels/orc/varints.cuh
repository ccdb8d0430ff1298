// Zigzag varints without runs: digits of decimals. The whole part is one list, of which a window has some. Those beyond 64
// bits are a fault.

struct Format {
    u32 varints = 0;  // that end in the window
    enum { carried = 1, IS_LIST = 1 };

    DEVICE u32 prepare(Window& w, Own& own, u32, u32) {
        varints = find_ends(w, own);
        __syncwarp();
        return BEYOND;
    }
    DEVICE u32 next(const Window&, const Own&, u32) const { return BEYOND; }
    DEVICE Run run(const Window&, const Own&, u32) const { return run_of(0, LIST, 0, 0, RUN_ENDS); }
    DEVICE Run rest(u32 first) const { return run_of(varints, LIST, first, 0, varints ? NO_FAULT : RUN_ENDS); }
    // Behind the `taken` varints.
    DEVICE u32 carry(const Window& w, const Own&, u32, u32, u32 taken) const { return w.ends[taken - 1] + 1u; }

    DEVICE u64 listed(const Window& w, const u8*, u64 base, u64, u32 k, u32& fault) const {
        if (k >= varints) return 0;
        return signed_of(varint(w, k ? w.ends[k - 1] + 1u : (u32)base, w.ends[k] + 1u, fault));
    }

    DEVICE u64 take(const Window& w, const u8*, u32& at, u32, u32, u32& fault) const {
        return signed_of(take_varint(w, at, fault));
    }

    DEVICE u32 alone(const u8*, u32, Run&) const { return 0; }

    template <class F> DEVICE void each_of_whole(const Window&, const u8*, u32, u32&, F) const {}
};
