// Where strings in splits are: their chunks, bytes and codes.

// The 8 bytes from there on, and of the words that they lie in all is readable.
DEVICE u64 bytes_at(const u8* at) {
    const u32 shift = ((u32)(u64)at & 7) * 8;
    const u64* words = (const u64*)(at - shift / 8);
    const u64 low = __ldg(words);
    return shift ? low >> shift | __ldg(words + 1) << (64 - shift) : low;
}

// The code of at most 12 bits that begins at a bit.
DEVICE u32 code_at(const u8* codes, u64 bit, u32 code_bits) {
    const u32 word = (u32)(bytes_at(codes + (bit >> 3)) >> ((u32)bit & 7));
    return word & ((1u << code_bits) - 1);
}

// Of strings, in as many bytes each.
struct Lengths {
    const u8* at;
    u32 width;

    DEVICE u32 of(u32 row) const {
        if (width == 1) return __ldg(at + row);
        if (width == 2) return __ldg((const u16*)at + row);
        return __ldg((const u32*)at + row);
    }
};

// The one of `count` chunks, in order, that has a vector.
template <class T> DEVICE const T* chunk_of(const T* chunks, u32 count, u64 vector) {
    u32 low = 0, high = count;
    while (high - low > 1) {
        const u32 middle = (low + high) / 2;
        if (__ldg(&chunks[middle].first_vector) <= vector) low = middle;
        else high = middle;
    }
    return chunks + low;
}
