// A frame of reference for each block, as `layout.rs` beside this says: `line` is the place of a vector's words, `base`
// and `width` are bounds of its entries.

template <class S> struct GpuFor : Blocks<S, GpuFor<S>> {
    typedef typename S::Entry E;

    static DEVICE void prepare(Cursor& c, void* tile) {
        const Miniblock m = stage<S>(c, 0, tile);
        uint4 own;
        own.x = m.at * 32;
        own.y = m.width;
        own.z = sizeof(E) == 4 ? mask_of<u32>(m.width) : (u32)(m.minimum >> 32);
        own.w = (u32)m.minimum;
        miniblocks<E>(tile)[lane_id()] = own;
        __syncwarp();
    }

    static DEVICE E entry_at(const Cursor&, u32 r, u32 lane, u32, const void* tile) {
        const uint4 m = miniblocks<E>(tile)[r];
        const E x = bits_at<E>((const u32*)tile, m.x + lane * m.y);
        if constexpr (sizeof(E) == 4) return (x & m.z) + m.w;
        else return (x & mask_of<E>(m.y)) + ((u64)m.z << 32 | m.w);
    }
};
