// Codes of strings. `exec/compress.rs` launches the kernel twice: a lane makes the codes of a few strings of a split, where
// they have room at the worst; then, as the host has summed the lengths of splits, a warp moves the codes of each to where
// they belong.

enum { ENCODE, GATHER };
enum { THREADS = 512 };
enum { NO_WORD = ~0u, NO_ESCAPE = ~0u };

struct Args { u64 word[10]; };

// What codes stand for, in the order of their bytes, as `exec/matcher.rs` writes it, in shared memory. The longest word that
// a text starts with is the last one that is not behind the text, or begins that one.
struct Matcher {
    const u64 *highs, *lows;  // the first 8 bytes of each word, and the others; the first byte is the highest
    const u32* infos;         // bytes, less 1, in 4 bits; the code in 12; and above, the number of the word that begins this one
    const u16* keys;          // of each byte as the first, the second and the third of a text, what it adds to the text's key
    const u32* starts;        // of each key, how many words come before those with it; and above 16 bits, how many have it
    bool is_long;

    // `shape`: how many words there are; and above 32 bits, whether some have more than 8 bytes.
    DEVICE Matcher(const u8* at, u64 shape) : is_long(shape >> 32) {
        const u32 words = (u32)shape;
        highs = (const u64*)at;
        lows = highs + words;
        infos = (const u32*)(is_long ? lows + words : lows);
        keys = (const u16*)(infos + words);
        starts = (const u32*)(keys + 3 * 256);
    }

    // Words have numbers from 1 on.
    DEVICE bool is_behind(u32 word, u64 high, u64 low) const {
        const u64 own = highs[word - 1];
        return own > high || (is_long && own == high && lows[word - 1] > low);
    }

    // The bytes that a word and a text have in common, from the first one on.
    DEVICE u32 common(u32 word, u64 high, u64 low) const {
        const u64 other = highs[word - 1] ^ high;
        if (other) return (u32)__clzll((i64)other) / 8;
        return is_long ? 8 + (u32)__clzll((i64)(lows[word - 1] ^ low)) / 8 : 8;
    }

    // What is known of the longest word that the first `left` bytes of a text start with; `NO_WORD` if there is none.
    DEVICE u32 longest(u64 high, u64 low, u32 left) const {
        const u32 key = keys[high >> 56] + keys[256 + (high >> 48 & 255)] + keys[512 + (high >> 40 & 255)];
        const u32 start = starts[key];
        // the last word before those with the key, or one of them
        u32 word = start & 0xffff;
        for (u32 count = (start >> 16) + 1; count > 1;) {
            const u32 half = count / 2;
            if (!is_behind(word + half, high, low)) word += half;
            count -= half;
        }
        if (!word) return NO_WORD;
        const u32 most = min(common(word, high, low), left);
        do {
            const u32 info = infos[word - 1];
            if ((info & 15) < most) return info;
            word = info >> 16;
        } while (word);
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
    // 8 bytes of two words.
    static DEVICE u64 some(u64 low, u64 high, u32 shift) {
        const u64 bytes = low >> shift | high << 1 << (63 - shift);
        return (u64)__byte_perm((u32)bytes, 0, 0x0123) << 32 | __byte_perm((u32)(bytes >> 32), 0, 0x0123);
    }
    DEVICE u64 high() const { return some(a, b, shift); }
    DEVICE u64 low() const { return some(b, c, shift); }
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
    const u32* starts;  // of each string, and where the last one ends
    u32 count, of_split;  // strings
    u32 parts;            // of a split, one for each lane that it has
    u32* scratch;
    u32* bits;  // of each part's codes

    // The first string of a part, or of those behind it.
    DEVICE u32 first(u32 part) const {
        return min(part / parts * of_split + part % parts * of_split / parts, count);
    }
    // A byte of text becomes 16 bits at most.
    DEVICE u32* place(u32 part) const { return scratch + starts[first(part)] / 2 + part; }
};

// A part of a split, string by string; as if it were one string, if there is an escape.
DEVICE void encode(const Strings& s, const Matcher& words, u32 code_bits, u32 escape, u32 part) {
    u32 string = s.first(part);
    const u32 last = s.first(part + 1), step = escape == NO_ESCAPE ? 1 : last - string;
    u32* const place = s.place(part);
    Codes codes{place, 0, 0};
    u32 at = s.starts[string], end = at;
    Text text(s.text + at);
    while (true) {
        while (at == end && string < last) end = s.starts[string += step];
        if (at == end) break;
        const u64 high = text.high();
        const u32 info = words.longest(high, text.low(), end - at);
        u32 bytes = 1;
        if (info != NO_WORD) {
            bytes = (info & 15) + 1;
            codes.put(info >> 4 & 4095, code_bits);
        } else {
            codes.put(escape | (u32)(high >> 56) << 8, 16);
        }
        text.skip(bytes);
        at += bytes;
    }
    if (codes.count) *codes.to = (u32)codes.bits;
    s.bits[part] = (u32)(codes.to - place) * 32 + codes.count;
}

// A split's codes to where they belong, one part behind the other. A lane knows of a part, and makes every 32nd byte.
DEVICE void gather(const Strings& s, const u64* ends, u8* to, u32 split) {
    const u32 lane = lane_id(), own = split * s.parts + min(lane, s.parts - 1);
    const u8* const own_codes = (const u8*)s.place(own);
    const u32 own_bits = lane < s.parts ? s.bits[own] : 0, own_start = sum_before(own_bits);
    const u32 all = __shfl_sync(ALL, own_start + own_bits, 31);
    to += split ? ends[split - 1] : 0;
    for (u32 first = 0; first < all; first += 256) {
        u32 bit = first + lane * 8, part = 0, byte = 0;
        const u32 end = min(bit + 8, all);
        for (u32 next = 1; next < s.parts; next++) part += __shfl_sync(ALL, own_start, next) <= bit;
        // of one part, most of the time
        while (__any_sync(ALL, bit < end)) {
            const u8* codes = (const u8*)__shfl_sync(ALL, (u64)own_codes, part);
            const u32 start = __shfl_sync(ALL, own_start, part), bits = __shfl_sync(ALL, own_bits, part);
            part++;
            if (bit >= end || bit - start >= bits) continue;
            const u32 at = bit - start, some = min(end - bit, bits - at);
            u32 found = codes[at / 8];
            if (at % 8 + some > 8) found |= (u32)codes[at / 8 + 1] << 8;
            byte |= (found >> at % 8 & ((1u << some) - 1)) << bit % 8;
            bit += some;
        }
        if (first + lane * 8 < all) to[first / 8 + lane] = (u8)byte;
    }
}

// The step `word[0]` over `word[1]` splits, which has above 32 bits how many bytes the words have; then come text, starts and
// count of strings, above 32 bits how many a split has, and above 48 its parts; scratch and bits of parts; the shape of the
// words, and where they are; the bits of a code, and above 32 the escape. To gather, where each split's codes end, and where
// they go, take the place of the last two.
extern "C" __global__ void BOUNDS(THREADS) compress(const Args a) {
    DYN_SHARED(u64, words);
    const u32 splits = (u32)a.word[1], bytes = (u32)(a.word[1] >> 32);
    const Strings s{(const u8*)a.word[2], (const u32*)a.word[3], (u32)a.word[4],   (u32)(a.word[4] >> 32) & 0xffff,
                    (u32)(a.word[4] >> 48), (u32*)a.word[5],       (u32*)a.word[6]};
    if (a.word[0] == GATHER) {
        const u32 warps = THREADS / 32;
        for (u32 split = blockIdx.x * warps + threadIdx.x / 32; split < splits; split += gridDim.x * warps)
            gather(s, (const u64*)a.word[8], (u8*)a.word[9], split);
        return;
    }
    for (u32 i = threadIdx.x; i < bytes / 8; i += THREADS) words[i] = __ldg((const u64*)a.word[8] + i);
    __syncthreads();
    const Matcher matcher((const u8*)words, a.word[7]);
    for (u32 part = blockIdx.x * THREADS + threadIdx.x; part < splits * s.parts; part += gridDim.x * THREADS)
        encode(s, matcher, (u32)a.word[9], (u32)(a.word[9] >> 32), part);
}
