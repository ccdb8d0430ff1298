// Codes of strings. `exec/compress.rs` launches the kernel twice: a lane makes the codes of a part of a split, where they have
// room at the worst; then, as the lengths of all are known, it moves them to where they belong.

enum { NO_WORD = ~0u, NO_ESCAPE = ~0u };

struct Args { u64 word[13]; };

// What codes stand for, in the order of their bytes, as `exec/matcher.rs` writes it. The longest word that a text starts with
// is found by halving the lengths that it may have: there is an entry for the beginnings of a word whose lengths are looked
// at on the way to its own. Entries lie at one of two places each, by hash; what is found is compared with the word.
struct Matcher {
    const u64* texts;    // the bytes of each word, in 8 or 16
    const u32* entries;  // the number of the first word with a beginning, from 0 on; and above 12 bits, some of its hash
    const u32* infos;    // of each word, bytes, less 1, in 4 bits; the code in 12; and above, the number, from 1 on, of the
                         // longest word that begins it
    const u16* singles;  // of each byte, the code above 4 bits; or all bits
    u32 words, shift;    // the number of entries is 2 to the power of 32 - shift
    bool is_long;

    // `shape`: how many words there are; above 16 bits, the shift, and above 24, whether some have more than 8 bytes.
    DEVICE Matcher(const u64* at, u32 shape) : words(shape & 0xffff), shift(shape >> 16 & 255), is_long(shape >> 24) {
        texts = at;
        entries = (const u32*)(texts + (is_long ? words * 2 : (words + 1) / 2 * 2));
        infos = entries + (1u << (32 - shift));
        singles = (const u16*)(infos + (words + 3) / 4 * 4);
    }

    static DEVICE u32 mixed(u32 hash) { return hash ^ hash >> 16; }

    // Whether there may be an entry of the hash, which is then `found`.
    DEVICE bool has(u32 hash, u32& found) const {
        const u32 first = entries[hash >> shift], second = entries[hash * OTHER >> shift], own = hash ^ hash << 12;
        const bool is_first = (first ^ own) < 4096, is_second = (second ^ own) < 4096;
        if (is_second) found = second;
        if (is_first) found = first;
        return is_first || is_second;
    }

    // Whether a text starts with the first bytes of a word.
    DEVICE bool agrees(u32 word, u32 bytes, u64 low, u64 high) const {
        low ^= texts[is_long ? word * 2 : word];
        if (bytes <= 8) return !(low << (64 - bytes * 8));
        return is_long && !(low | (high ^ texts[word * 2 + 1]) << (128 - bytes * 8));
    }

    // What is known of the longest word that the first `left` bytes of a text start with; `NO_WORD` if there is none.
    DEVICE u32 longest(u64 low, u64 high, u32 left) const {
        // for lengths of 4 n + 1 to 4 n + 4, the hash of the first 4 n bytes, and the next 4
        const u32 own[4] = {(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)};
        const u32 second = mixed(own[0] * FIRST);
        u32 bytes = 1, found = 0, before = 0, word = own[0], next_before = second, next_word = own[1];
        if (is_long) {
            const u32 third = mixed(second + own[1] * SECOND), fourth = mixed(third + own[2] * THIRD);
            if (has(third + (own[2] << 24 | 1) * LAST, found) && left >= 9) {
                bytes = 9, before = third, word = own[2], next_before = fourth, next_word = own[3];
            }
        }
        u32 other = found;
        if (has(next_before + (next_word << 24 | 1) * LAST, other) && left >= bytes + 4) {
            bytes += 4, found = other, before = next_before, word = next_word;
        }
        other = found;
        u32 end = word << 16 | 2;
        if (has(before + (word << 8 | 3) * LAST, other) && left >= bytes + 2) bytes += 2, found = other, end = word;
        other = found;
        if (has(before + end * LAST, other) && left > bytes) bytes++, found = other;

        if (bytes == 1) {
            const u32 single = singles[(u8)low];
            return single == 0xffff ? NO_WORD : single;
        }
        const u32 of = found & 4095;
        const u32 info = infos[of], length = (info & 15) + 1, parent = info >> 16;
        u32 result = info;
        if (length > bytes) result = parent ? infos[parent - 1] : NO_WORD;
        // another beginning may have the same hash
        const bool is_known = length >= bytes && agrees(of, bytes, low, high) && (result == NO_WORD || (result & 15) < bytes);
        return is_known ? result : search(low, high, left);
    }

    static DEVICE u64 turned(u64 x) {
        return (u64)__byte_perm((u32)x, 0, 0x0123) << 32 | __byte_perm((u32)(x >> 32), 0, 0x0123);
    }

    // Whether a word is behind a text, in the order of their bytes.
    DEVICE bool is_behind(u32 word, u64 low, u64 high) const {
        const u64 own = texts[is_long ? word * 2 : word];
        if (!is_long || own != low) return turned(own) > turned(low);
        return turned(texts[word * 2 + 1]) > turned(high);
    }

    // As `longest`, by halving the words: the word is the last one that is not behind the text, or begins that one.
    DEVICE u32 search(u64 low, u64 high, u32 left) const {
        u32 word = 0;
        for (u32 count = words + 1; count > 1;) {
            const u32 half = count / 2;
            if (!is_behind(word + half - 1, low, high)) word += half;
            count -= half;
        }
        while (word) {
            const u32 info = infos[word - 1], length = (info & 15) + 1;
            if (length <= left && agrees(word - 1, length, low, high)) return info;
            word = info >> 16;
        }
        return NO_WORD;
    }
};

// Some text, from the first byte on. What lies behind it can be read, 48 bytes of it.
struct Text {
    const u64* next;
    u64 a, b, c, ahead;  // the last is on its way
    u32 shift;

    DEVICE Text(const u8* at) {
        shift = ((u32)(u64)at & 7) * 8;
        next = (const u64*)(at - shift / 8);
        a = __ldg(next);
        b = __ldg(next + 1);
        c = __ldg(next + 2);
        ahead = __ldg(next + 3);
        next += 4;
    }
    DEVICE u64 low() const { return a >> shift | b << 1 << (63 - shift); }
    DEVICE u64 high() const { return b >> shift | c << 1 << (63 - shift); }
    // At most 16 of them.
    DEVICE void skip(u32 bytes) {
        shift += bytes * 8;
        if (shift >= 64) turn();
        if (shift >= 64) turn();
    }
    DEVICE void turn() {
        a = b;
        b = c;
        c = ahead;
        ahead = __ldg(next++);
        shift -= 64;
    }
};

// A lane's codes.
struct Codes {
    u32* to;
    u64 bits;
    u32 count;

    DEVICE void put(u32 value, u32 width) {
        bits |= (u64)value << count;
        count += width;
        if (count >= 32) {
            *to++ = (u32)bits;
            bits >>= 32;
            count -= 32;
        }
    }
};

// Strings and what becomes of them.
struct Strings {
    const u8* text;
    const u32* starts;    // of each string, and where the last one ends
    u32 count, of_split;  // strings
    u32 splits, shift;    // each has 2 to the power of `shift` parts
    u32 escape;
    u32* scratch;
    u32* bits;    // of each part's codes
    u32* totals;  // bytes of the codes of each 32 parts

    DEVICE u32 parts() const { return splits << shift; }
    DEVICE bool has_escape() const { return escape != NO_ESCAPE; }
    DEVICE bool is_cut() const { return has_escape() && of_split == 1; }
    // The first string of a part, or of those behind it.
    DEVICE u32 first(u32 part) const {
        const u32 of = part & ((1u << shift) - 1);
        return min((part >> shift) * of_split + (of * of_split >> shift), count);
    }
    // Where a part starts: with an escape, it may be within a string, and a split is as one string.
    DEVICE u32 start(u32 part) const {
        const u32 split = part >> shift;
        if (!is_cut() || split == splits) return starts[first(part)];
        const u32 at = starts[split];
        return at + ((starts[split + 1] - at) * (part & ((1u << shift) - 1)) >> shift);
    }
    // A byte of text becomes 16 bits at most.
    DEVICE u32* place(u32 part) const { return scratch + start(part) / 2 + part; }
};

// Makes the codes of a part, string by string; as if it were one string, if there is an escape. Returns their bits.
DEVICE u32 encode(const Strings& s, const Matcher& matcher, u32 code_bits, u32 part) {
    u32* const place = s.place(part);
    Codes codes{place, 0, 0};
    u32 at = s.start(part), string = s.first(part);
    const u32 last = s.start(part + 1);
    u32 end = s.has_escape() ? last : at;
    Text text(s.text + at);
    while (at < last) {
        while (at == end) end = s.starts[++string];
        const u64 low = text.low();
        const u32 info = matcher.longest(low, text.high(), end - at);
        u32 bytes = 1;
        if (info != NO_WORD) {
            bytes = (info & 15) + 1;
            codes.put(info >> 4 & 4095, code_bits);
        } else {
            codes.put(s.escape | (u32)(u8)low << 8, 16);
        }
        text.skip(bytes);
        at += bytes;
    }
    if (codes.count) *codes.to = (u32)codes.bits;
    return (u32)(codes.to - place) * 32 + codes.count;
}

// Where a lane's codes are among those of its split, and how many bytes these have; before them are `before` bytes of the
// splits that the lanes before have.
struct Place {
    u32 start, bytes, before;

    DEVICE Place(const Strings& s, u32 bits) {
        const u32 lane = lane_id(), others = (1u << s.shift) - 1;
        const u32 sum = sum_before(bits), first = __shfl_sync(ALL, sum, lane & ~others);
        start = sum - first;
        bytes = (__shfl_sync(ALL, sum + bits, lane | others) - first + 7) / 8;
        before = __shfl_sync(ALL, sum_before(lane & others ? 0 : bytes), lane & ~others);
    }
};

// The first bits of a part's codes, from one of them on.
DEVICE u32 some(const u32* codes, u32 from, u32 bits) {
    const u32 found = __funnelshift_r(codes[from / 32], codes[from / 32 + 1], from);
    return bits < 32 ? found & ((1u << bits) - 1) : found;
}

// A lane's codes to where they belong: the words that begin among them, with what comes next of other parts. `before`:
// bytes of the codes before the warp's.
DEVICE void gather(const Strings& s, u32* ends, u32* to, u32 before, u32 part) {
    const u32 others = (1u << s.shift) - 1, bits = part < s.parts() ? s.bits[part] : 0;
    const Place place(s, bits);
    if (part >= s.parts()) return;
    before += place.before;
    const u32 start = before * 8 + place.start;
    u32 end = start + bits;
    if ((part & others) == others) {
        end = (before + place.bytes) * 8;
        ends[part >> s.shift] = end / 8;
    }
    const u32* const codes = s.place(part);
    for (u32 word = (start + 31) / 32; word * 32 < end; word++) {
        const u32 from = word * 32 - start;
        u32 found = from < bits ? some(codes, from, bits - from) : 0;
        u32 filled = end - word * 32;
        for (u32 next = part + 1; filled < 32 && next < s.parts(); next++) {
            const u32 more = s.bits[next];
            if (more) found |= some(s.place(next), 0, more) << filled;
            filled += more;
            if ((next & others) == others) filled = (filled + 7) & ~7u;
        }
        to[word] = found;
    }
}

// The step `word[0]`, with above 32 bits how many parts a split has, as a power of two; the bits of a code, and above 32 the
// escape; then come text, starts and count of strings, above 32 bits how many a split has; splits; scratch, bits and totals;
// the shape of the words, above 32 bits how many bytes they have if they fit into shared memory, and where they are; where
// the ends of splits go, and the codes.
extern "C" __global__ void BOUNDS(1024) compress(const Args a) {
    DYN_SHARED(u64, shared);
    const Strings s{(const u8*)a.word[2], (const u32*)a.word[3], (u32)a.word[4], (u32)(a.word[4] >> 32),
                    (u32)a.word[5], (u32)(a.word[0] >> 32), (u32)(a.word[1] >> 32),
                    (u32*)a.word[6], (u32*)a.word[7], (u32*)a.word[8]};
    const u32 warp = threadIdx.x & ~31u, lane = lane_id();
    if ((u32)a.word[0] == GATHER) {
        const u32 first = blockIdx.x * blockDim.x;
        u32* const sums = (u32*)shared;
        u32 before = 0;
        for (u32 i = threadIdx.x; i < first / 32; i += blockDim.x) before += s.totals[i];
        before = __reduce_add_sync(ALL, before);
        if (lane == 0) sums[warp / 32] = before;
        __syncthreads();
        before = lane < blockDim.x / 32 ? sums[lane] : 0;
        if (lane < warp / 32 && (first / 32 + lane) * 32 < s.parts()) before += s.totals[first / 32 + lane];
        gather(s, (u32*)a.word[11], (u32*)a.word[12], __reduce_add_sync(ALL, before), first + threadIdx.x);
        return;
    }
    const u32 shape = (u32)a.word[9], bytes = (u32)(a.word[9] >> 32);
    const u64* const words = (const u64*)a.word[10];
    for (u32 i = threadIdx.x; i < bytes / 16; i += blockDim.x) ((ulonglong2*)shared)[i] = __ldg((const ulonglong2*)words + i);
    __syncthreads();
    for (u32 first = blockIdx.x * blockDim.x + warp; first < s.parts(); first += gridDim.x * blockDim.x) {
        const u32 part = first + lane;
        u32 bits = 0;
        if (part < s.parts()) {
            bits = bytes ? encode(s, Matcher(shared, shape), (u32)a.word[1], part)
                         : encode(s, Matcher(words, shape), (u32)a.word[1], part);
            s.bits[part] = bits;
        }
        const Place place(s, bits);
        if (lane == 31) s.totals[first / 32] = place.before + place.bytes;
    }
}
