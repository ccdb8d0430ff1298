// Inflates chunks of raw Deflate (RFC 1951), a warp a chunk. Behind `common/base.cuh` and `inflate/copies.cuh`.
//
// A block of Deflate is a string of tokens without marks between them: a literal is one code; a match is the code of a
// length, extra bits of it, the code of a distance, and extra bits of that. Where a token starts is known when the one
// before it is read. For 32 lanes to read at once, each starts anywhere and is put right afterwards:
//
//     bits      |....... segment of lane 0 .......|....... segment of lane 1 .......|....... of lane 2
//     walk      T---T--T----T-----T--T---T-----T----                                      T token
//     guess                                        G--G------G--T---T--T----T---T------   G a wrong guess
//     walk again                                    T----T--T---T---T--T----T---T------
//
// 1. A window of the input goes to shared memory. Each lane has a segment of it, guesses that a token starts where the
//    segment does, and walks from token to token to the first one behind the segment. It needs lengths of tokens only.
// 2. A lane whose guess is not where the lane before it came out walks again from there, until all lanes agree. A wrong
//    walk soon meets the right one, as a rule, and comes out at the same place: a few walks will do. At the worst,
//    each walk puts one more lane right, as if lanes took turns.
// 3. The tokens are known now, and are read 32 at a time, a lane a token. Sums of their lengths are where they go.
// 4. Their output is written 32 bytes at a time, a lane a byte: it finds the token that its byte is of, and where that
//    has the byte from. That may be a byte of another of the 32 lanes, and so on: lanes point to lanes, each takes over
//    what the one that it points to does, and all have come to a byte that is known after five times.
//    Matches that are long are copied by themselves, several as one if they have the same distance; so are those of
//    tokens that are nearly all literals.
//
// Codes are looked up by their first bits in tables; those with more bits are searched for, length by length.
//
// Whatever the input, only its own bytes (in aligned words of 32 bits) and the output's room are touched, and each
// window goes forward in the input or is the last one. What follows the last block is not looked at.

// What is wrong with a chunk.
enum : u32 {
    NO_ERROR,
    INPUT_ENDS,              // before the last block does
    OUTPUT_ENDS,             // more is inflated than there is room for
    TOO_LARGE,               // more input, or room, than positions can tell
    INVALID_BLOCK,           // type 3
    INVALID_STORED_LENGTH,   // is not what its complement says
    TOO_MANY_SYMBOLS,        // more lengths or distances than there are
    INVALID_CODE_LENGTHS,    // the codes of code lengths are no complete set
    INVALID_REPEAT,          // of the code length before the first one, or beyond the last one
    NO_END_OF_BLOCK,         // has a code
    INVALID_LITERAL_CODES,   // are no complete set
    INVALID_DISTANCE_CODES,  // are no complete set
    INVALID_LITERAL,         // none has that code, or a length that does not exist
    INVALID_DISTANCE,        // none has that code, or one that does not exist
    DISTANCE_TOO_FAR,        // before the first byte of output
};

enum : u32 {
    LITERAL_BITS = 10,      // of a literal's code, those that the table has
    DISTANCE_BITS = 8,      // of a distance's
    LITERALS = 288,         // literals, the end of a block, and lengths
    DISTANCES = 32,
    MOST_BITS = 15,         // of a code
    SEGMENT_BITS = 7 * 32,  // fits a byte; with an odd number of words, lanes begin in different banks
    SEGMENT_TOKENS = 48,    // at most; more are left to the next window
    // the first segment starts in any bit of a word, and two words are read at a token's second code, 20 bits on
    WINDOW_WORDS = SEGMENT_BITS + 4,
    LONG_MATCH = 64,        // is copied by itself
    SHORT_MATCH = 8,        // is copied by its lane alone
    FEW_MATCHES = 4,        // that are not, among 64 tokens: each is copied by itself
    MOST_BYTES = 1 << 28,   // of input or output
    BLOCK_THREADS = 128,
    BLOCKS = 8,             // of a multiprocessor, for which registers suffice
};

// An entry of a table or list: how many bits the code and the extra bits behind it have, in 5 bits; a value; and above
// 13 bits, of literals and lengths, their kind. 0 is none.
enum : u32 { VALUE = 5, KIND = 13, LITERAL = 0, LENGTH = 1, OTHER = 7 };
// The kinds between are lengths with more extra bits. Others are two by their values:
enum : u32 { END_OF_BLOCK = OTHER << (KIND - VALUE), NO_LENGTH };

struct LiteralSymbols {
    // The value of a length is less 3.
    static DEVICE u32 entry(u32 symbol, u32 bits) {
        if (symbol < 256) return bits | symbol << VALUE | LITERAL << KIND;
        if (symbol == 256) return bits | END_OF_BLOCK << VALUE;
        if (symbol > 285) return bits | NO_LENGTH << VALUE;
        if (symbol == 285) return bits | 255 << VALUE | LENGTH << KIND;
        const u32 of = symbol - 257, extra = of < 8 ? 0 : of / 4 - 1;
        const u32 length = of < 8 ? of : (4 + of % 4) << extra;
        return bits + extra | length << VALUE | (LENGTH + extra) << KIND;
    }
};

struct DistanceSymbols {
    static DEVICE u32 extra(u32 symbol) { return symbol < 4 ? 0 : symbol / 2 - 1; }
    // The value is the symbol. Two of them have no distance.
    static DEVICE u32 entry(u32 symbol, u32 bits) { return bits + (symbol < 30 ? extra(symbol) : 0) | symbol << VALUE; }
};

// Code lengths, and 16 to 18 for repeated ones.
struct LengthSymbols {
    static DEVICE u32 extra(u32 symbol) { return symbol < 16 ? 0 : symbol == 18 ? 7 : symbol - 14; }
    static DEVICE u32 entry(u32 symbol, u32 bits) { return bits + extra(symbol) | symbol << VALUE; }
};

// How many of the values of 15 bits start with one of some codes, counted for each code, and the longest one's bits.
struct Shares {
    u32 used, longest;

    DEVICE bool is_over() const { return used > 1 << MOST_BITS; }
    DEVICE bool is_complete() const { return used == 1 << MOST_BITS; }
    // As in zlib: no code at all, for there may be no matches, or a single one of one bit.
    DEVICE bool is_complete_or_small() const { return is_complete() || !is_over() && longest <= 1; }
};

// A canonical code: of codes with the same length, those of lower symbols come first; shorter ones come before longer
// ones. Codes are compared by their 15 bits, the first bit of a code on top.
template <u32 BITS, u32 SYMBOLS> struct Codes {
    u32 ranges[MOST_BITS + 1];  // of each length, above 16 bits the end of its codes; and what the first `length` bits
                                // of a code lack to its number in `entries`
    u16 table[1 << BITS];       // entries by the first bits of a code, if the code has no more
    u16 entries[SYMBOLS];       // of all symbols with codes, in the order of these

    // The entry of the code that bits begin with, if it has so many bits.
    DEVICE u32 search(u32 bits, u32 from, u32 to) const {
        const u32 code = __brev(bits) >> (32 - MOST_BITS);
#pragma unroll 1
        for (u32 length = from; length <= to; length++) {
            const u32 range = ranges[length];
            if (code < range >> 16) return entries[range + (code >> (MOST_BITS - length)) & 0xffff];
        }
        return 0;
    }

    DEVICE u32 short_one(u32 bits) const { return table[bits & ((1 << BITS) - 1)]; }
    DEVICE u32 long_one(u32 bits) const { return search(bits, BITS + 1, MOST_BITS); }
    DEVICE u32 find(u32 bits) const {
        const u32 entry = short_one(bits);
        return entry ? entry : long_one(bits);
    }

    // Of codes with these lengths, which are as `Shares` says. `next` is for 16 numbers meanwhile.
    template <class Symbols> DEVICE Shares build(const u8* lengths, u32 count, u32* next) {
        const u32 lane = lane_id();
        if (lane <= MOST_BITS) next[lane] = 0;
        __syncwarp();
#pragma unroll 1
        for (u32 first = 0; first < count; first += 32) {
            const u32 length = first + lane < count ? lengths[first + lane] : 0, same = __match_any_sync(ALL, length);
            if (lane == __ffs((int)same) - 1) next[length] += __popc(same);
            __syncwarp();
        }

        // lane l for codes of l bits; the shortest has ~0 where there are none
        const bool is_length = lane && lane <= MOST_BITS;
        const u32 codes = is_length ? next[lane] : 0, left = is_length ? MOST_BITS - lane : 0, used = codes << left;
        const u32 begin = sum_before(used), before = sum_before(codes), lengths_used = __ballot_sync(ALL, codes);
        const Shares shares{__reduce_add_sync(ALL, used), lengths_used ? 31u - __clz((int)lengths_used) : 0};
        const u32 shortest = __ffs((int)lengths_used) - 1;
        if (shares.is_over()) return shares;
        __syncwarp();
        if (lane <= MOST_BITS) {
            ranges[lane] = is_length ? begin + used << 16 | before - (begin >> left) & 0xffff : 0;
            next[lane] = before;
        }
        __syncwarp();

#pragma unroll 1
        for (u32 first = 0; first < count; first += 32) {
            const u32 symbol = first + lane, length = symbol < count ? lengths[symbol] : 0;
            const u32 same = __match_any_sync(ALL, length), place = next[length] + __popc(same & ((1u << lane) - 1));
            __syncwarp();
            if (length) entries[place] = (u16)Symbols::entry(symbol, length);
            if (length && lane == __ffs((int)same) - 1) next[length] += __popc(same);
            __syncwarp();
        }
#pragma unroll 1
        for (u32 bits = lane; bits < 1 << BITS; bits += 32) table[bits] = (u16)search(bits, shortest, BITS);
        __syncwarp();
        return shares;
    }
};

// What a warp has in shared memory.
struct __align__(16) Scratch {
    u32 window[WINDOW_WORDS];
    u32 next[MOST_BITS + 1];
    Codes<LITERAL_BITS, LITERALS> literals;
    Codes<DISTANCE_BITS, DISTANCES> distances;
    // Where the tokens of a lane start in its segment, side by side for all lanes. Before that, lengths of codes.
    u8 starts[SEGMENT_TOKENS * 32];

    // 32 bits of the window.
    DEVICE u32 bits(u32 at) const { return __funnelshift_r(window[at / 32], window[at / 32 + 1], at); }
    DEVICE u32 bits(u32 at, u32 count) const { return bits(at) & ((1u << count) - 1); }
};
static_assert(sizeof(Scratch) == INFLATE_WARP_BYTES, "those who launch ask for so many bytes a warp");

// A chunk's bytes as bits, counted from the word on that the first one is in.
struct Input {
    const u32* words;
    u32 begin, end;

    DEVICE Input(const u8* from, u32 bytes) {
        const u32 skipped = (u32)(u64)from & 3;
        words = (const u32*)(from - skipped);
        begin = skipped * 8;
        end = begin + bytes * 8;
    }
    // What lies behind the last byte is 0.
    DEVICE u32 word(u32 index) const {
        if (index >= end / 32) return index * 32 < end ? __ldg(words + index) & ((1u << end % 32) - 1) : 0;
        return __ldg(words + index);
    }
    // The window starts with the word that this bit is in.
    DEVICE void load(Scratch& s, u32 at) const {
        __syncwarp();
#pragma unroll
        for (u32 i = 0; i < WINDOW_WORDS; i += 32) {
            const u32 index = i + lane_id();
            if (index < WINDOW_WORDS) s.window[index] = word(at / 32 + index);
        }
        __syncwarp();
    }
};

// A lane's token; no token has no length.
struct Token {
    // `what` is the distance of a match; a literal above 16 bits; or an error above 24 bits, without a length
    u32 length, what;

    DEVICE Token() : length(0), what(0) {}
    DEVICE u32 distance() const { return what & 0xffff; }
    DEVICE u32 literal() const { return what >> 16; }
    DEVICE u32 error() const { return what >> 24; }
    DEVICE void fail(u32 error) {
        length = 0;
        what = error << 24;
    }
    // The one at a bit of the window.
    DEVICE Token(const Scratch& s, u32 at) : Token() {
        const u32 words[3] = {s.window[at / 32], s.window[at / 32 + 1], s.window[at / 32 + 2]};
        const u32 low = __funnelshift_r(words[0], words[1], at), high = __funnelshift_r(words[1], words[2], at);
        const u32 entry = s.literals.find(low), kind = entry >> KIND, value = entry >> VALUE & 255;
        const u32 bits = entry & 31;
        if (!entry || kind == OTHER) {
            fail(INVALID_LITERAL);
        } else if (kind == LITERAL) {
            length = 1;
            what = value << 16;
        } else {
            const u32 extra = kind - LENGTH, rest = __funnelshift_r(low, high, bits);
            length = value + 3 + (low >> (bits - extra) & ((1u << extra) - 1));
            const u32 far = s.distances.find(rest), symbol = far >> VALUE, far_bits = far & 31;
            const u32 far_extra = DistanceSymbols::extra(symbol);
            if (!far || symbol >= 30) {
                fail(INVALID_DISTANCE);
            } else {
                what = symbol < 4 ? symbol + 1 : ((2 + symbol % 2) << far_extra) + 1;
                what += rest >> (far_bits - far_extra) & ((1u << far_extra) - 1);
            }
        }
    }
};

// The output of a chunk.
struct Output {
    u8* to;
    u32 room, written;

    DEVICE u32 left() const { return room - written; }
    DEVICE u32 copy_all(const u8* from, u32 bytes) {
        if (bytes > left()) return OUTPUT_ENDS;
        copy(to + written, from, bytes);
        written += bytes;
        return NO_ERROR;
    }

    // What is wrong with a token that goes to `start`, counted from what is written.
    DEVICE u32 error_of(const Token& token, u32 start) const {
        if (token.error()) return token.error();
        if (token.distance() > start && token.distance() - start > written) return DISTANCE_TOO_FAR;
        return start + token.length > left() ? OUTPUT_ENDS : NO_ERROR;
    }

    // Two tokens of each lane, the second ones behind all first ones. Lanes without one are behind the others.
    DEVICE u32 write(const Token& one, const Token& two) {
        const u32 lengths = one.length | two.length << 16, before = sum_before(lengths);
        const u32 all = __shfl_sync(ALL, before + lengths, 31), ones = all & 0xffff, count = ones + (all >> 16);
        const u32 first = before & 0xffff, second = ones + (before >> 16);
        const u32 error = error_of(one, first), error_of_second = error_of(two, second);
        if (__any_sync(ALL, error | error_of_second)) {
            const u32 failed = __ballot_sync(ALL, error), failed_second = __ballot_sync(ALL, error_of_second);
            if (failed) return __shfl_sync(ALL, error, __ffs((int)failed) - 1);
            return __shfl_sync(ALL, error_of_second, __ffs((int)failed_second) - 1);
        }
        const u32 serial = __ballot_sync(ALL, is_serial(one, first)), serial_second = __ballot_sync(ALL, is_serial(two, second));
        const bool has_long = __any_sync(ALL, max(one.length, two.length) >= LONG_MATCH);
        if (!has_long && __popc(serial) + __popc(serial_second) <= FEW_MATCHES) {
            write_own(one, first, is_serial(one, first) ? 0 : one.length);
            write_own(two, second, is_serial(two, second) ? 0 : two.length);
            __syncwarp();
            write_serial(one, first, serial);
            write_serial(two, second, serial_second);
            written += count;
        } else {
            const u32 begin = written;
#pragma unroll 1
            for (u32 i = 0; i < 2; i++) {
                Token token;
                token.length = i ? two.length : one.length;
                token.what = i ? two.what : one.what;
                write_all(token, begin + (i ? second : first), begin + (i ? count : ones));
            }
        }
        return NO_ERROR;
    }

    // Whether a match is copied by itself if most others are copied by their own lanes: it is long, or needs one of them.
    DEVICE static bool is_serial(const Token& token, u32 start) {
        return token.distance() && (token.length > SHORT_MATCH || token.distance() < start + token.length);
    }

    // Each lane writes `bytes` of its own token.
    DEVICE void write_own(const Token& token, u32 start, u32 bytes) const {
        u8* const own = to + written + start;
        const u8* const from = own - token.distance();
#pragma unroll
        for (u32 done = 0; done < SHORT_MATCH; done += 4) {
            if (done && !__any_sync(ALL, bytes > done)) break;
            u8 found[4];
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                found[i] = (u8)token.literal();
                if (token.distance() && done + i < bytes) found[i] = from[done + i];
            }
#pragma unroll
            for (u32 i = 0; i < 4; i++) {
                if (done + i < bytes) own[done + i] = found[i];
            }
        }
    }

    // One of these matches after the other. None is long.
    DEVICE void write_serial(const Token& token, u32 start, u32 matches) const {
#pragma unroll 1
        for (; matches; matches &= matches - 1) {
            const u32 of = __ffs((int)matches) - 1, at = written + __shfl_sync(ALL, start, of);
            const u32 distance = __shfl_sync(ALL, token.distance(), of), length = __shfl_sync(ALL, token.length, of);
            const u8* const from = to + at - distance;
#pragma unroll 1
            for (u32 i = lane_id(); i < length; i += 32) to[at + i] = from[i < distance ? i : i % distance];
            __syncwarp();
        }
    }

    // The lanes' tokens, from `written` up to `stop`; the lane's own goes to `start`.
    DEVICE void write_all(const Token& token, u32 start, u32 stop) {
        const u32 first = token.length ? start : ~0u;
        u32 longs = __ballot_sync(ALL, token.length >= LONG_MATCH), before = 0;
        while (written < stop) {
            const u32 of = longs ? __ffs((int)longs) - 1 : 0, next = longs ? __shfl_sync(ALL, first, of) : stop;
            for (; written < next; written += 32) write_bytes(next, token, holder(first, written, before));
            written = next;
            if (!longs) break;
            // those behind it with the same distance go on with it
            const u32 distance = __shfl_sync(ALL, token.distance(), of);
            const u32 others = __ballot_sync(ALL, token.distance() != distance) >> of;
            const u32 last = others ? of + __ffs((int)others) - 2 : 31;
            const u32 length = __shfl_sync(ALL, first + token.length, last) - next;
            if (distance < 128) repeat(to + next, distance, length);
            else copy(to + next, to + next - distance, length);
            written = next + length;
            before = last + 1;
            longs &= ~((2u << last) - 1);
        }
    }

    // 32 bytes of the lanes' tokens, or up to `next`: each lane's is of the token of lane `of`.
    DEVICE void write_bytes(u32 next, const Token& token, u32 of) const {
        const u32 lane = lane_id(), at = written + lane;
        const u32 what = __shfl_sync(ALL, token.what, of), distance = what & 0xffff;
        // where the byte is from: before these 32, or from the lane at that distance, which may have it from another
        const bool is_inside = distance - 1 < lane;
        u32 byte = what >> 16;
        if (distance > lane) byte = to[at - distance];
        byte = from_lanes(byte, is_inside, distance);
        if (at < next) to[at] = (u8)byte;
        __syncwarp();
    }
};

// A lane's way from token to token in its segment of the window.
struct Walk {
    u32 start, end, tokens;
    bool is_last;  // of the walks of a window: the block ends, or the input, or there is no place for more tokens
    bool has_end;  // of the block

    // From `start` on, to the end of the segment or of the input. Ends of blocks on a wrong way are ends as well.
    DEVICE void walk(Scratch& s, u32 segment, u32 input_end) {
        const u32 segment_end = segment + SEGMENT_BITS, stop = min(segment_end, input_end);
        u32 at = start, place = lane_id();
        has_end = false;
        while (at < stop && place < SEGMENT_TOKENS * 32) {
            // of 32 bits, those that are behind a first code and extra bits suffice for the second table
            const u32 bits = s.bits(at);
            u32 entry = s.literals.short_one(bits), far = s.distances.short_one(bits >> (entry & 31));
            // none, neither literal nor length, or a length without a distance
            if (entry - 1 >= (OTHER << KIND) - 1 || entry >> KIND != LITERAL && !far) {
                if (!entry) entry = s.literals.long_one(bits);
                // what no code begins with is an error if it turns out to be a token
                if (!entry) entry = 1;
                if (entry >> VALUE == END_OF_BLOCK) {
                    has_end = true;
                    at += entry & 31;
                    break;
                }
                far = s.distances.find(s.bits(at + (entry & 31)));
            }
            s.starts[place] = (u8)(at - segment);
            place += 32;
            at += (entry & 31) + (entry >> KIND != LITERAL ? far & 31 : 0);
        }
        tokens = place / 32;
        end = at;
        is_last = has_end || at < segment_end || at >= input_end;
    }
};

// The tokens of a window, one lane's after the other's. `segments` is where the first segment starts.
DEVICE u32 write_tokens(const Scratch& s, Output& output, u32 segments, u32 own) {
    const u32 before = sum_before(own), count = __shfl_sync(ALL, before + own, 31), first = own ? before : ~0u;
    u32 lanes = 0;
    // the token at + lane
    const auto token_at = [&](u32 at) {
        const u32 lane = holder(first, at, lanes), of = at + lane_id() - __shfl_sync(ALL, before, lane);
        return at + lane_id() < count ? Token(s, segments + lane * SEGMENT_BITS + s.starts[of * 32 + lane]) : Token();
    };
    for (u32 at = 0; at < count; at += 64) {
        const Token one = token_at(at);
        Token two;
        if (at + 32 < count) two = token_at(at + 32);
        const u32 error = output.write(one, two);
        if (error) return error;
    }
    return NO_ERROR;
}

// The tokens of a block; `at` goes behind its end.
DEVICE u32 write_block(const Input& input, Output& output, Scratch& s, u32& at) {
    const u32 lane = lane_id();
    for (;;) {
        input.load(s, at);
        const u32 window = at & ~31u, input_end = input.end - window, segments = at - window;
        const u32 segment = segments + lane * SEGMENT_BITS;
        Walk walk;
        walk.start = segment;
        bool is_wrong = true;
        u32 lasts;
        for (;;) {
            if (is_wrong) walk.walk(s, segment, input_end);
            const u32 start = __shfl_up_sync(ALL, walk.end, 1);
            lasts = __ballot_sync(ALL, walk.is_last);
            // behind a last one, there is nothing to go by
            is_wrong = lane && !(lasts << 1 >> lane & 1) && walk.start != start;
            // wrong ones behind the first of the last ones do not matter
            if (!(__ballot_sync(ALL, is_wrong) & (lasts ^ (lasts - 1)))) break;
            if (is_wrong) walk.start = start;
        }
        __syncwarp();
        const u32 last = lasts ? __ffs((int)lasts) - 1 : 31;
        at = window + __shfl_sync(ALL, walk.end, last);
        const bool has_end = __shfl_sync(ALL, (u32)walk.has_end, last);
        const u32 error = write_tokens(s, output, segments, lane <= last ? walk.tokens : 0);
        if (error) return error;
        // a token that the input ends in is the last one
        if (at > input.end || at == input.end && !has_end) return INPUT_ENDS;
        if (has_end) return NO_ERROR;
    }
}

// The order in which the lengths of code lengths' codes come.
__constant__ const u8 LENGTHS_ORDER[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};

// The lengths of the codes that a block brings, and how many are of literals and of distances. `at` is a bit of the
// window, and goes behind them.
DEVICE u32 read_lengths(Scratch& s, u32& at, u32& literals, u32& distances) {
    const u32 lane = lane_id();
    const u32 counts = s.bits(at, 14), ordered = (counts >> 10) + 4;
    literals = (counts & 31) + 257;
    distances = (counts >> 5 & 31) + 1;
    if (literals > 286 || distances > 30) return TOO_MANY_SYMBOLS;
    at += 14;
    u8* const lengths = s.starts;
    if (lane < 19) lengths[LENGTHS_ORDER[lane]] = lane < ordered ? (u8)s.bits(at + lane * 3, 3) : 0;
    __syncwarp();
    at += ordered * 3;
    // the table of distances is free
    const Shares shares = s.distances.build<LengthSymbols>(lengths, 19, s.next);
    if (!shares.is_complete()) return INVALID_CODE_LENGTHS;

    const u32 count = literals + distances;
    u32 length = 0;
    for (u32 done = 0; done < count;) {
        const u32 bits = s.bits(at), entry = s.distances.short_one(bits), symbol = entry >> VALUE, all = entry & 31;
        const u32 extra = LengthSymbols::extra(symbol);
        u32 times = 1;
        if (symbol < 16) {
            length = symbol;
        } else {
            times = (symbol == 18 ? 11 : 3) + (bits >> (all - extra) & ((1u << extra) - 1));
            if (symbol > 16) length = 0;
            if (symbol == 16 && !done || times > count - done) return INVALID_REPEAT;
        }
        at += all;
        for (u32 i = lane; i < times; i += 32) lengths[done + i] = (u8)length;
        done += times;
    }
    __syncwarp();
    return lengths[256] ? NO_ERROR : NO_END_OF_BLOCK;
}

// The lengths of codes of blocks that bring none.
DEVICE void fixed_lengths(Scratch& s) {
    for (u32 i = lane_id(); i < LITERALS + DISTANCES; i += 32) {
        s.starts[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : i < LITERALS ? 8 : 5;
    }
    __syncwarp();
}

// The codes of a block.
DEVICE u32 read_codes(Scratch& s, bool is_fixed, u32& at) {
    u32 literals = LITERALS, distances = DISTANCES, error = NO_ERROR;
    if (is_fixed) fixed_lengths(s);
    else error = read_lengths(s, at, literals, distances);
    if (error) return error;
    const Shares of_literals = s.literals.build<LiteralSymbols>(s.starts, literals, s.next);
    if (!of_literals.is_complete_or_small()) return INVALID_LITERAL_CODES;
    const Shares of_distances = s.distances.build<DistanceSymbols>(s.starts + literals, distances, s.next);
    return of_distances.is_complete_or_small() ? NO_ERROR : INVALID_DISTANCE_CODES;
}

// Bytes as they are. `at` is behind the type of the block, in the window as well, and goes behind the block.
DEVICE u32 write_stored(const Input& input, Output& output, const Scratch& s, u32& at, u32 in_window) {
    const u32 skipped = (8 - at % 8) % 8;
    at += skipped;
    if (input.end - at < 32) return INPUT_ENDS;
    const u32 length = s.bits(in_window + skipped), bytes = length & 0xffff;
    if ((bytes ^ length >> 16) != 0xffff) return INVALID_STORED_LENGTH;
    at += 32;
    if (bytes > (input.end - at) / 8) return INPUT_ENDS;
    const u32 error = output.copy_all((const u8*)input.words + at / 8, bytes);
    at += bytes * 8;
    return error;
}

// Blocks up to the one that is marked as the last.
DEVICE u32 inflate_blocks(const Input& input, Output& output, Scratch& s) {
    enum { STORED, FIXED, DYNAMIC };
    for (u32 at = input.begin;;) {
        if (input.end - at < 3) return INPUT_ENDS;
        input.load(s, at);
        u32 in_window = at % 32, error = NO_ERROR;
        const u32 header = s.bits(in_window, 3), type = header >> 1, window = at - in_window;
        in_window += 3;
        if (type == STORED) {
            at += 3;
            error = write_stored(input, output, s, at, in_window);
        } else {
            error = type > DYNAMIC ? INVALID_BLOCK : read_codes(s, type == FIXED, in_window);
            at = window + in_window;
            if (!error && at > input.end) error = INPUT_ENDS;
            if (!error) error = write_block(input, output, s, at);
        }
        if (error || header & 1) return error;
    }
}

struct Args { u64 word[3]; };

// Chunks, how many there are, and where a result of each goes. A warp needs shared memory for a `Scratch`.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS) inflate(const Args a) {
    DYN_SHARED(Scratch, shared);
    const u32 warps = blockDim.x / 32, warp = threadIdx.x / 32;
    Scratch& s = shared[warp];
    for (u32 i = blockIdx.x * warps + warp; i < (u32)a.word[1]; i += gridDim.x * warps) {
        const InflateChunk chunk = global<const InflateChunk>(a.word[0])[i];
        const u8* const from = global<const u8>(chunk.from);
        Output output{global<u8>(chunk.to), chunk.room, 0};
        u32 error;
        if (chunk.is_original) error = output.copy_all(from, chunk.bytes);
        else if (max(chunk.bytes, chunk.room) >= MOST_BYTES) error = TOO_LARGE;
        else error = inflate_blocks(Input(from, chunk.bytes), output, s);
        if (lane_id() == 0) global<Inflated>(a.word[2])[i] = Inflated{output.written, error};
    }
}
