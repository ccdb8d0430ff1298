// A column chunk in device memory. `src/chunk_structs.rs` defines its structs, which come before this.

// A chunk, as far as every vector needs it: kept in registers from vector to vector.
struct Chunk {
    const u8* bytes;

    DEVICE const Header* header() const { return (const Header*)bytes; }
    DEVICE const u8* at(u32 place) const { return bytes + (u64)place * 16; }
    DEVICE u64 reference() const { return __ldg(&header()->reference); }
    DEVICE i128 wide_reference() const {
        return (i128)((u128)__ldg(&header()->reference_high) << 64 | __ldg(&header()->reference));
    }
    DEVICE const u8* values() const { return at(__ldg(&header()->values)); }
};

DEVICE Chunk chunk(u64 address) {
    Chunk c;
    c.bytes = (const u8*)address;
    return c;
}

// One vector of a column: the same for all lanes.
struct Cursor : Chunk {
    u32 line, base_low, base_high;
    u8 width, flags;
    u16 scale;
    u32 vector;
    u32 starts, before;  // of runs: where they start in this lane's 32 rows, runs before those; see `gpu_for`, too
    u64 smallest;        // of `delta`: what is added to each residual

    template <class E> DEVICE E base() const {
        if constexpr (sizeof(E) == 8) return (u64)base_high << 32 | base_low;
        else return base_low;
    }
    DEVICE const Extra* extra() const {
        return (const Extra*)at(__ldg(&header()->extras)) + vector;
    }
    // Vectors follow the header.
    DEVICE const uint4* record() const { return (const uint4*)(bytes + sizeof(Header)) + vector; }
    DEVICE const u32* words(u32 line) const {
        return (const u32*)(bytes + (u64)line * 128) + lane_id();
    }
    DEVICE const u32* words() const { return words(line); }
    DEVICE const u32* words_of(u32 lane) const { return (const u32*)(bytes + (u64)line * 128) + lane; }
};

// The rows that are not null.
DEVICE u32 valid_rows(const Cursor& c) {
    if (!(c.flags & (ALL_NULL | SOME_NULL))) return ALL;
    if (c.flags & ALL_NULL) return 0;
    return transpose(__ldg((const u32*)c.at(__ldg(&c.extra()->bitmap)) + lane_id()));
}

// Calls f(row of this lane, value) for what replaces packed values of this lane's rows, ascending.
// G-ALP's layout: a 16-bit word a lane with count and offset, then values, then positions.
template <class F> DEVICE void each_patch(const u8* block, u32 value_bytes, F f) {
    const u32 word = __ldg((const u16*)block + lane_id());
    const u32 last = __shfl_sync(ALL, word, 31);
    const u32 count = word >> 10, offset = word & 0x3ff, total = (last >> 10) + (last & 0x3ff);
    const u8* values = block + 64;
    const u16* positions = (const u16*)(values + total * value_bytes);
    for (u32 i = offset; i < offset + count; i++) {
        const u64 value = value_bytes == 8 ? __ldg((const u64*)values + i) : __ldg((const u32*)values + i);
        f((u32)__ldg(positions + i) >> 5, value);
    }
}

template <class F> DEVICE void each_patch(const Cursor& c, F f) {
    each_patch(c.at(__ldg(&c.extra()->patches)), __ldg(&c.header()->patch_bytes), f);
}
