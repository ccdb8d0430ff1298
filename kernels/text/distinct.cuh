// The distinct strings of a column, numbered in the order of their first rows, and codes of rows in chunks like those of
// `dict`. `exec/distinct.rs` launches the kernel once for each step. A warp has a vector. A row's place is 1024 times its
// vector, and where it is there; a place that is no row's, or that of a null, has no slot.

enum { NONE = ~0u, MOST_PROBES = 256 };

struct Args { u64 word[15]; };

// Decoded strings, one behind the other, with what tells them apart.
struct Strings {
    const u64* rows;    // before each vector, and all
    const u64* places;  // bytes before each vector
    const u32* lengths;
    const u8* valid;  // a byte for each row, or nothing where all of them are
    const u8* bytes;
    u32* starts;  // of each place, bytes before it in its vector

    DEVICE u32 count(u64 vector) const { return (u32)(__ldg(rows + vector + 1) - __ldg(rows + vector)); }
    DEVICE bool is_valid(u64 vector, u32 at) const { return !valid || __ldg(valid + __ldg(rows + vector) + at); }
    DEVICE u32 length(u64 vector, u32 at) const { return __ldg(lengths + __ldg(rows + vector) + at); }
    DEVICE const u8* string(u64 vector, u32 at) const {
        return bytes + __ldg(places + vector) + starts[vector * 1024 + at];
    }
};

// Which places have equal strings.
struct Table {
    u32* first;  // of each slot, the first place of its string
    u32 mask;
    u32* slots;  // of each place
    u32* count;  // of slots that are taken, and behind it whether there is no room
    u32 most;

    DEVICE bool is_full() const { return atomicAdd(count + 1, 0u); }
};

// The first bytes of 8.
DEVICE u64 some_of(u64 bytes, u32 some) { return some < 8 ? bytes & ((1ull << some * 8) - 1) : bytes; }

DEVICE u32 hash_of_string(const u8* at, u32 length) {
    u64 hash = length;
    for (u32 left = length; left; at += 8) {
        const u32 some = min(left, 8u);
        hash = (hash ^ some_of(bytes_at(at), some)) * 0x9e3779b97f4a7c15ull;
        hash ^= hash >> 29;
        left -= some;
    }
    return (u32)(hash ^ hash >> 32);
}

DEVICE bool are_equal(const u8* a, const u8* b, u32 length) {
    for (u32 left = length; left; a += 8, b += 8) {
        const u32 some = min(left, 8u);
        if (some_of(bytes_at(a) ^ bytes_at(b), some)) return false;
        left -= some;
    }
    return true;
}

// Calls f(row of the lane, where it is in the vector) for each.
template <class F> DEVICE void each_row(F f) {
    for (u32 r = 0; r < 32; r++) f(r, r * 32 + lane_id());
}

DEVICE void write_starts(const Strings& s, u64 vector) {
    const u32 count = s.count(vector);
    u32 before = 0;
    each_row([&](u32, u32 at) {
        const u32 length = at < count ? s.length(vector, at) : 0, start = before + sum_before(length);
        s.starts[vector * 1024 + at] = start;
        before = __shfl_sync(ALL, start + length, 31);
    });
}

// The slot of a string, which is taken if it is not there.
DEVICE u32 slot_of(const Strings& s, const Table& t, u64 vector, u32 at) {
    const u8* own = s.string(vector, at);
    const u32 length = s.length(vector, at), place = (u32)(vector * 1024 + at);
    u32 slot = hash_of_string(own, length) & t.mask;
    for (u32 probe = 0; probe < MOST_PROBES; probe++, slot = slot + 1 & t.mask) {
        // most are there already: a look takes no turn
        u32 there = *(volatile u32*)(t.first + slot);
        if (there == NONE) there = atomicCAS(t.first + slot, NONE, place);
        if (there == NONE) {
            if (atomicAdd(t.count, 1u) >= t.most) break;
            return slot;
        }
        const u64 other = there / 1024;
        if (s.length(other, there % 1024) == length && are_equal(s.string(other, there % 1024), own, length)) {
            if (place < there) atomicMin(t.first + slot, place);
            return slot;
        }
    }
    atomicExch(t.count + 1, 1u);
    return NONE;
}

DEVICE void insert(const Strings& s, const Table& t, u64 vector) {
    if (t.is_full()) return;
    const u32 count = s.count(vector);
    each_row([&](u32, u32 at) {
        u32 slot = NONE;
        if (at < count && s.is_valid(vector, at)) slot = slot_of(s, t, vector, at);
        t.slots[vector * 1024 + at] = slot;
    });
}

// Selects the first rows of strings, as kernels select, and counts them.
DEVICE void mark(const Table& t, u64 vector, u32* masks, u64* counts) {
    u32 own = 0;
    each_row([&](u32 r, u32 at) {
        const u64 place = vector * 1024 + at;
        const u32 slot = t.slots[place], word = __ballot_sync(ALL, slot != NONE && t.first[slot] == place);
        if (lane_id() == r) own = word;
    });
    masks[vector * 32 + lane_id()] = own;
    const u32 sum = __reduce_add_sync(ALL, (u32)__popc(own));
    if (lane_id() == 0) counts[vector] = sum;
}

// Writes the number of each string, by slot.
DEVICE void number(const Table& t, u64 vector, const u32* masks, u64 before, u32* numbers) {
    u32 next = (u32)before;
    each_row([&](u32 r, u32 at) {
        const u32 word = __ldg(masks + vector * 32 + r), lane = lane_id();
        if (word >> lane & 1) numbers[t.slots[vector * 1024 + at]] = next + __popc(word & ((1u << lane) - 1));
        next += __popc(word);
    });
}

// Writes a vector of a chunk: packed codes, and which rows are not null.
DEVICE void pack(const Table& t, u64 vector, const u32* numbers, const Chunk& c, u32 own) {
    const Vector of = ((const Vector*)(c.bytes + sizeof(Header)))[own];
    const u32 lane = lane_id(), width = of.width;
    u32* words = (u32*)(c.bytes + (u64)of.line * 128) + lane;
    u64 bits = 0;
    u32 count = 0, valid = 0;
    each_row([&](u32 r, u32 at) {
        const u32 slot = t.slots[vector * 1024 + at];
        const u32 word = __ballot_sync(ALL, slot != NONE);
        if (lane == r) valid = word;
        bits |= (u64)(slot == NONE ? 0 : __ldg(numbers + slot)) << count;
        count += width;
        if (count >= 32) {
            *words = (u32)bits;
            words += 32;
            bits >>= 32;
            count -= 32;
        }
    });
    if (of.flags & SOME_NULL) {
        const Extra* extra = (const Extra*)c.at(__ldg(&c.header()->extras)) + own;
        ((u32*)c.at(__ldg(&extra->bitmap)))[lane] = valid;
    }
}

// The step `word[0]` over `word[1]` vectors. Behind them come the fields of `Strings`, those of `Table`, masks, what vectors
// count or begin with, and numbers. To pack, chunks take the place of masks, each with its first vector and where it is,
// and how many they are that of counts.
extern "C" __global__ void BOUNDS(256) distinct(const Args a) {
    const Strings s{(const u64*)a.word[2], (const u64*)a.word[3], (const u32*)a.word[4],
                    (const u8*)a.word[5],  (const u8*)a.word[6],  (u32*)a.word[7]};
    const Table t{(u32*)a.word[8], (u32)a.word[9], (u32*)a.word[10], (u32*)a.word[11], (u32)(a.word[9] >> 32)};
    u32* const masks = (u32*)a.word[12];
    u64* const counts = (u64*)a.word[13];
    u32* const numbers = (u32*)a.word[14];
    for (u64 v = (u64)blockIdx.x * 8 + threadIdx.x / 32; v < a.word[1]; v += (u64)gridDim.x * 8) {
        switch (a.word[0]) {
            case STARTS: write_starts(s, v); break;
            case INSERT: insert(s, t, v); break;
            case MARK: mark(t, v, masks, counts); break;
            case NUMBER: number(t, v, masks, __ldg(counts + v), numbers); break;
            case PACK: {
                const NumberedChunk* own = chunk_of((const NumberedChunk*)a.word[12], (u32)a.word[13], v);
                pack(t, v, numbers, chunk(own->address), (u32)(v - own->first_vector));
            }
        }
    }
}
