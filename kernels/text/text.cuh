// Strings as tokens, which `tokens.cuh` makes of splits: a lane has the 32 rows of a split. A test is an automaton over
// bytes, folded over what tokens stand for: one load for a token.

// A test for a chunk, as `exec/text.rs` writes it.
struct TextTest {
    const u64* at;

    // For each state and token, the next state, and above it whether a string passes that ends in the token. It lies
    // behind this.
    DEVICE const u8* table() const { return (const u8*)at + __ldg(at); }
    // Three words of each lane for eight of its tokens, and where those of a vector begin, in as many words.
    DEVICE const u32* tokens() const { return (const u32*)__ldg(at + 1); }
    DEVICE const u32* places() const { return (const u32*)__ldg(at + 2); }
    DEVICE u32 bytes() const { return (u32)__ldg(at + 3); }
    DEVICE u32 stride() const { return (u32)(__ldg(at + 3) >> 32); }
    DEVICE u32 start() const { return (u32)__ldg(at + 4); }
    // The first token in which a string ends.
    DEVICE u32 ends() const { return (u32)(__ldg(at + 4) >> 32); }
    // Of the chunk's strings, if only few strings pass, or all but few. Eight strings of a lane lie side by side.
    DEVICE const uint4* fingerprints() const { return (const uint4*)__ldg(at + 5); }
    DEVICE u32 few() const { return (u32)__ldg(at + 6); }
    // The lane's strings that pass if they are none of the few.
    DEVICE u32 others() const { return (u32)(__ldg(at + 6) >> 32); }
    // The fingerprint of one of the few, twice.
    DEVICE u32 fingerprint(u32 one) const { return __ldg((const u32*)(at + 7) + one); }
};

// Copies a test's table to the block's memory, if the chunk has strings in splits: the transform of that number. All
// threads of the block are here for the same chunk.
template <u32 TEXT, class W> DEVICE void stage(const Chunk& c, const Range<W>& range, u8* shared) {
    if (!shared) return;
    __syncthreads();
    if (__ldg(&c.header()->transform) == TEXT) {
        const TextTest test{(const u64*)range.codes};
        const uint4* from = (const uint4*)test.table();
        for (u32 k = threadIdx.x; k < test.bytes() / 16; k += blockDim.x) ((uint4*)shared)[k] = __ldg(from + k);
    }
    __syncthreads();
}

// Whether one of a lane's strings may be one of the few that a test is about.
DEVICE bool may_be_one(const TextTest& test, u32 vector) {
    const uint4* own = test.fingerprints() + vector * 128 + lane_id();
    u32 equal = 0;
    // all at once would take registers from those who do not look
#pragma unroll 1
    for (u32 half = 0; half < 2; half++, own += 64) {
        const uint4 a = __ldg(own), b = __ldg(own + 32);
        const u32 prints[] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
        for (u32 one = 0; one < test.few(); one++) {
            const u32 wanted = test.fingerprint(one);
            for (u32 k = 0; k < 8; k++) {
                const u32 others = prints[k] ^ wanted;
                equal |= others - 0x10001 & ~others;  // of halves that are zero, the highest bit
            }
        }
    }
    return equal & 0x80008000;
}

// A lane's strings that pass, the last one in the lowest bit.
template <bool SHARED> DEVICE u32 passing(const TextTest& test, const u8* shared, u32 vector) {
    const u8* table = SHARED ? shared : test.table();
    const u32 stride = test.stride(), ends = test.ends(), place = __ldg(test.places() + vector);
    const u32* words = test.tokens() + (u64)place * 96 + lane_id();
    u32 state = test.start(), passed = 0;
    const auto step = [&](u32 token) {
        const u8* entry = table + (state & 127) * stride + token;
        state = SHARED ? *entry : __ldg(entry);
        if (token >= ends) passed = __funnelshift_l(state << 24, passed, 1);
    };
    u32 next[] = {__ldg(words), __ldg(words + 32), __ldg(words + 64)};
    for (u32 left = __ldg(test.places() + vector + 1) - place; left; left--) {
        const u32 a = next[0], b = next[1], c = next[2];
        // on their way before they are needed: there is slack behind the last
        words += 96;
        for (u32 k = 0; k < 3; k++) next[k] = __ldg(words + 32 * k);
        step(a & 4095);
        step(a >> 12 & 4095);
        step(__funnelshift_r(a, b, 24) & 4095);
        step(b >> 4 & 4095);
        step(b >> 16 & 4095);
        step(__funnelshift_r(b, c, 28) & 4095);
        step(c >> 8 & 4095);
        step(c >> 20);
    }
    return passed;
}

template <class S> struct Text : Transform<S> {
    typedef typename S::Entry E;
    typedef typename S::Value V;
    typedef typename S::Word W;

    static const bool HAS_ENTRIES = false;

    // Strings have tests only.
    static DEVICE void values_8(const Cursor&, u32, const E*, V out[8]) {
        for (u32 k = 0; k < 8; k++) out[k] = 0;
    }
    static DEVICE V value_at(const Cursor&, u32, u32, E) { return 0; }

    // The tile is the test's table in the block's memory, if it is there.
    template <bool BITS>
    static DEVICE u32 rows_in(const Cursor& c, const Range<W>& range, const Entries<E>&, void* tile) {
        const TextTest test{(const u64*)range.codes};
        const u8* shared = (const u8*)tile;
        u32 passed = test.others();
        if (!test.few() || may_be_one(test, c.vector))
            passed = shared ? passing<true>(test, shared, c.vector) : passing<false>(test, shared, c.vector);
        const u32 rows = __ldg(&c.header()->rows), first = c.vector * 1024 + lane_id() * 32;
        const u32 count = rows > first ? min(rows - first, 32u) : 0;
        passed = count ? __brev(passed << (32 - count)) : 0;
        return transpose(passed);
    }
};
