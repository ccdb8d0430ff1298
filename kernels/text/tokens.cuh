// Strings as tokens. A token stands for some bytes of one string, or says that a string ends in it: an automaton needs
// one load for each, and neither lengths nor symbols. The words of a vector's lanes lie side by side, three words for
// eight tokens; a lane has the tokens of a split. And strings as fingerprints: hashes of 16 bits, eight strings of each
// lane side by side.

struct Args { u64 word[6]; };

// The codes of a chunk, as `exec/tokens.rs` writes them.
struct Vocabulary {
    const u8* at;

    DEVICE u32 tables() const { return __ldg((const u32*)at); }
    // How many entries codes stand for, and the bits of a code; none if these are bytes or symbols. Their lengths lie
    // behind this.
    DEVICE u32 entries() const { return __ldg((const u32*)at + 1); }
    DEVICE u32 code_bits() const { return __ldg((const u32*)at + 2); }
    DEVICE u32 entry_length(u32 code) const { return __ldg(at + 16 + code); }
    // Bytes that a code stands for, and above them the escapes behind it.
    DEVICE u32 code(u32 code) const { return __ldg((const u16*)(at + 16) + code); }
    // The token of a string's end behind the first byte of a code, those of the other bytes behind it; 0 if there
    // are none.
    DEVICE u32 ends(u32 code) const { return __ldg((const u16*)(at + 528) + code); }
    DEVICE u32 length(u32 table, u32 code) const { return __ldg(at + 1040 + table * 256 + code); }
    DEVICE u64 symbol(u32 table, u32 code) const { return __ldg((const u64*)(at + 1552) + table * 256 + code); }
    // Of the bytes that a code or an entry stands for.
    DEVICE u32 hash(u32 code) const {
        const u32 before = entries() ? 16 + (entries() + 3) / 4 * 4 : 5648;
        return __ldg((const u32*)(at + before) + code);
    }
};

// Codes one after the other.
struct TextCodes {
    const u8* body;
    u32 at, end;
    u64 word, ahead;

    DEVICE TextCodes(const u8* body, u32 start, u32 end) : body(body), at(start), end(end) {
        ahead = __ldg((const u64*)(body + (start & ~7u)));
        turn();
        word >>= (start & 7) * 8;
    }
    // Goes to the word that this place is in. The one behind is on its way before it is needed: there is slack behind
    // the body.
    DEVICE void turn() {
        word = ahead;
        ahead = __ldg((const u64*)(body + (at & ~7u) + 8));
    }
    DEVICE bool any() const { return at < end; }
    DEVICE u32 next() {
        const u32 code = (u32)word & 255;
        word >>= 8;
        at++;
        if (!(at & 7)) turn();
        return code;
    }
};

// A lane's tokens: counted, and written if there is a place for them.
struct Tokens {
    u32* to;
    u32 count, words, end_of_entries;
    u64 bits;

    DEVICE Tokens(u32* to, u32 words, u32 entries)
        : to(to), count(0), words(words), end_of_entries(entries + 1), bits(0) {}
    // Of a string that goes on.
    DEVICE void code(u32 code, u32) { put(code); }
    DEVICE void byte(u32 byte, bool is_last) { put((is_last ? LAST_BYTES : BYTES) + byte); }
    DEVICE void empty() { put(EMPTY_STRING); }
    DEVICE void end() { put(end_of_entries); }
    // One ends within a code, in which the next one goes on: whether there is a token for that, the first of `ends` if
    // it has one byte of the code.
    DEVICE bool ends_in(u32 ends, u32 bytes) {
        if (ends) put(ends + bytes - 1);
        return ends;
    }
    DEVICE void put(u32 token) {
        if (to) {
            const u32 place = count * 12, shift = place % 32;
            bits |= (u64)token << shift;
            if (shift >= 20 && words) {
                *to = (u32)bits;
                to += 32;
                words--;
                bits >>= 32;
            }
        }
        count++;
    }
    DEVICE void fill(u32 nothing) {
        while (words) put(nothing);
    }
};

// A lane's fingerprints.
struct Fingerprints {
    const Vocabulary words;
    u16* to;
    u32 row, hash;

    DEVICE void code(u32 code, u32 bytes) {
        u32 factor = HASH_FACTOR;
        for (; bytes; bytes /= 2, factor *= factor)
            if (bytes & 1) hash *= factor;
        hash += words.hash(code);
    }
    DEVICE void byte(u32 byte, bool is_last) {
        hash = hash * HASH_FACTOR + byte + 1;
        if (is_last) end();
    }
    DEVICE void empty() { end(); }
    DEVICE void end() {
        to[row / 8 * 256 + row % 8] = (u16)(hash * HASH_MIX >> 16);
        row++;
        hash = 0;
    }
    // Byte by byte.
    DEVICE bool ends_in(u32, u32) { return false; }
};

// A lane's strings, as it goes along its split.
template <class Sink> struct TextRows {
    const Vocabulary words;
    const u8* lengths;
    u32 width, count, row, left, escapes;
    Sink& sink;

    DEVICE u32 length(u32 of) const {
        if (of >= count) return ALL;
        if (width == 1) return __ldg(lengths + of);
        if (width == 2) return __ldg((const u16*)lengths + of);
        return __ldg((const u32*)lengths + of);
    }

    // Goes to a string, and beyond those that are empty.
    DEVICE void go_to(u32 next) {
        row = next;
        for (left = length(row); left == 0; left = length(row)) {
            sink.empty();
            row++;
        }
    }

    DEVICE void byte(u32 byte) {
        if (row >= count) return;
        left--;
        sink.byte(byte, left == 0);
        if (left == 0) go_to(row + 1);
    }

    // A code of the table that was applied first.
    DEVICE void code_of_first(u32 code) {
        if (escapes & 1) {
            escapes ^= 1;
            byte(code);
        } else if (code == 255) {
            escapes ^= 1;
        } else {
            u64 symbol = words.symbol(0, code);
            for (u32 n = words.length(0, code); n; n--, symbol >>= 8) byte((u32)symbol & 255);
        }
    }

    // A code within an escape, or in which several strings end: byte by byte.
    DEVICE void bytes_of(u32 code) {
        const u32 tables = words.tables();
        if (tables == 0) return byte(code);
        if (tables == 1) return code_of_first(code);
        if (escapes & 2) {
            escapes ^= 2;
            return code_of_first(code);
        }
        if (code == 255) {
            escapes ^= 2;
            return;
        }
        u64 symbol = words.symbol(1, code);
        for (u32 n = words.length(1, code); n; n--, symbol >>= 8) code_of_first((u32)symbol & 255);
    }

    // Codes of entries: none stands for bytes of two strings.
    DEVICE void run_entries(const u8* codes, u32 bytes) {
        const u32 code_bits = words.code_bits();
        u64 bit = 0;
        for (; row < count; row++) {
            left = length(row);
            for (; left && bit + code_bits <= (u64)bytes * 8; bit += code_bits) {
                const u32 code = code_at(codes, bit, code_bits);
                const u32 length = words.entry_length(code);
                sink.code(code, length);
                left -= min(left, length);
            }
            sink.end();
        }
    }

    DEVICE void run(TextCodes codes) {
        go_to(0);
        while (row < count && codes.any()) {
            const u32 code = codes.next();
            if (escapes) {
                bytes_of(code);
                continue;
            }
            const u32 word = words.code(code), bytes = word & 255;
            if (bytes < left) {
                if (bytes) sink.code(code, bytes);
                left -= bytes;
                escapes = word >> 8;
                continue;
            }
            // a string ends in what the code stands for
            const u32 rest = bytes - left, following = length(row + 1);
            if (following > rest && sink.ends_in(words.ends(code), left)) {
                escapes = word >> 8;
                row++;
                left = following - rest;
            } else {
                bytes_of(code);
            }
        }
        // what has no bytes although it should: a chunk is checked before it is here
        for (; row < count; row++) sink.empty();
    }
};

template <class Sink>
DEVICE void run_split(const Vocabulary& words, const u8* lengths, u32 width, u32 count, const u8* body, u32 start, u32 end,
                      Sink& sink) {
    TextRows<Sink> rows{words, lengths, width, count, 0, 0, 0, sink};
    if (words.entries()) rows.run_entries(body + start, end - start);
    else rows.run(TextCodes(body, start, end));
}

// Of `word[0]` vectors of `word[2]` chunks at `word[1]`, each with its first vector, where it is, and how far
// behind the chunks its vocabulary is:
// with `word[5]`, writes fingerprints to there, 1024 for a vector; else, without `word[4]`, counts at `word[3]` how many
// times three words the lanes of a vector take; else writes them to there, each vector's at the place that `word[3]` says.
extern "C" __global__ void BOUNDS(256) tokenize(const Args a) {
    const TokenizeChunk* chunks = (const TokenizeChunk*)a.word[1];
    u32* const places = (u32*)a.word[3];
    for (u64 at = (u64)blockIdx.x * 8 + threadIdx.x / 32; at < a.word[0]; at += (u64)gridDim.x * 8) {
        const TokenizeChunk* own = chunk_of(chunks, (u32)a.word[2], at);
        const u32 v = (u32)(at - own->first_vector), lane = lane_id();
        const Chunk c = chunk(own->address);
        const Vector vector = ((const Vector*)(c.bytes + sizeof(Header)))[v];
        const u32 rows = __ldg(&c.header()->rows), first = v * 1024 + lane * 32;
        const u32 count = rows > first ? min(rows - first, 32u) : 0;
        const u32* starts = (const u32*)c.at(vector.line);
        const u8* lengths = (const u8*)(starts + 36) + lane * 32 * vector.width;
        const u8* body = c.at(__ldg(&c.header()->packed));
        const u32 start = __ldg(starts + lane), end = __ldg(starts + lane + 1);
        const Vocabulary vocabulary{(const u8*)chunks + own->vocabulary};

        if (a.word[5]) {
            Fingerprints prints{vocabulary, (u16*)a.word[5] + at * 1024 + lane * 8, 0, 0};
            run_split(vocabulary, lengths, vector.width, count, body, start, end, prints);
            continue;
        }
        u32* to = 0;
        u32 words = 0;
        if (a.word[4]) {
            const u32 place = places[at];
            words = (places[at + 1] - place) * 3;
            to = (u32*)a.word[4] + (u64)place * 96 + lane;
        }
        const u32 entries = vocabulary.entries();
        Tokens tokens(to, words, entries);
        run_split(vocabulary, lengths, vector.width, count, body, start, end, tokens);
        tokens.fill(entries ? entries : NOTHING);
        __syncwarp();
        if (!a.word[4]) {
            const u32 most = __reduce_max_sync(ALL, tokens.count);
            if (lane == 0) places[at] = (most + 7) / 8;
        }
    }
}
