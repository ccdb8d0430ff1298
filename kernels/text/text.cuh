// Strings in splits: a lane has the 32 rows of a split, whose strings are compressed as one. A test is an automaton
// over bytes, folded over the symbols: one load for a code, whatever it stands for.

// A test for the chunks that have these symbol tables, as `exec/text.rs` writes it. An entry is the next row of the
// table, and above that the bytes that a code stands for. There is a row for each state, and as many more for each
// way to be within an escape: of the first table, of the second, of both.
struct TextTest {
    const u8* at;

    DEVICE u32 word(u32 index) const { return __ldg((const u32*)at + index); }
    DEVICE u32 states() const { return word(0); }
    DEVICE u32 start() const { return word(1); }
    DEVICE u32 tables() const { return word(2); }
    // Whether a string passes as soon as some part of it does.
    DEVICE bool is_anywhere() const { return word(3); }
    DEVICE bool accepts(u32 state) const { return __ldg((const u64*)at + 2) >> state & 1; }
    DEVICE const u16* entries() const { return (const u16*)(at + 48); }
    // For each state and code, a bit for each byte of the code's string: whether a string passes that ends behind it.
    DEVICE const u64* ends() const { return (const u64*)(at + word(8)); }
    // The row behind a code when a string ends so many bytes into it, and the next one begins there.
    // At 64 * code + bytes - 1.
    DEVICE const u8* behind() const { return at + word(9); }
    // The next state for each byte, of each state.
    DEVICE const u8* bytes() const { return at + word(6); }
    DEVICE const u64* symbols(u32 table) const { return (const u64*)(at + word(7)) + table * 256; }
    DEVICE const u8* lengths(u32 table) const { return at + word(7) + tables() * 2048 + table * 256; }
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

    // The row of a table after all of them.
    DEVICE u32 fold(const u16* entries, u32 row) {
        while (any()) {
            const u32 count = min(8 - (at & 7), end - at);
            u64 own = word;
            at += count;
            turn();
            if (count == 8) {
#pragma unroll
                for (u32 k = 0; k < 8; k++) row = __ldg(entries + row * 256 + (u32)(own >> k * 8 & 255)) & 255;
            } else {
                for (u32 k = 0; k < count; k++, own >>= 8) row = __ldg(entries + row * 256 + ((u32)own & 255)) & 255;
            }
        }
        return row;
    }
};

// A lane's strings, as it goes along its split.
struct TextRows {
    const TextTest& test;
    const u8* lengths;
    u32 width, count, row, left, following, row_of_table, passed;

    DEVICE u32 length(u32 of) const {
        if (width == 1) return __ldg(lengths + of);
        if (width == 2) return __ldg((const u16*)lengths + of);
        return __ldg((const u32*)lengths + of);
    }

    // The state, and how many states are in rows before its own.
    DEVICE u32 before() const {
        const u32 states = test.states();
        u32 before = 0;
        while (row_of_table - before >= states) before += states;
        return before;
    }

    // Goes to the next string of which there are bytes left.
    DEVICE void advance() {
        while (row < count && left == 0) {
            const u32 escapes = before();
            passed |= (u32)test.accepts(row_of_table - escapes) << row;
            row_of_table = escapes + test.start();
            if (++row < count) left = length(row);
        }
    }

    DEVICE void byte(u32 byte) {
        if (row >= count) return;
        const u32 escapes = before();
        row_of_table = escapes + __ldg(test.bytes() + (row_of_table - escapes) * 256 + byte);
        left--;
        advance();
    }

    // A code of the table that was applied first.
    DEVICE void code_of_first(u32 code) {
        const u32 states = test.states(), escapes = before();
        if (escapes / states & 1) {
            row_of_table -= states;
            byte(code);
        } else if (code == 255) {
            row_of_table += states;
        } else {
            u64 symbol = __ldg(test.symbols(0) + code);
            for (u32 n = __ldg(test.lengths(0) + code); n; n--, symbol >>= 8) byte((u32)symbol & 255);
        }
    }

    // A code within an escape, or with more than one end of a string in it: byte by byte.
    DEVICE void crossing(u32 code) {
        const u32 states = test.states(), tables = test.tables();
        if (tables == 0) return byte(code);
        if (tables == 1) return code_of_first(code);
        if (before() >= 2 * states) {
            row_of_table -= 2 * states;
            return code_of_first(code);
        }
        u64 symbol = __ldg(test.symbols(1) + code);
        for (u32 n = __ldg(test.lengths(1) + code); n; n--, symbol >>= 8) code_of_first((u32)symbol & 255);
    }

    // The next string's length is there before it is needed.
    DEVICE void look_ahead() { following = row + 1 < count ? length(row + 1) : ~0u; }

    DEVICE void run(TextCodes codes) {
        const u16* entries = test.entries();
        const u32 states = test.states();
        const u64* ends = test.ends();
        const u8* behind = test.behind();
        left = row < count ? length(row) : 0;
        advance();
        look_ahead();
        while (row < count && codes.any()) {
            const u32 code = codes.next(), place = row_of_table * 256 + code;
            const u32 entry = __ldg(entries + place), bytes = entry >> 8;
            if (bytes < left) {
                row_of_table = entry & 255;
                left -= bytes;
                continue;
            }
            // the string ends in what the code stands for
            const u32 rest = bytes - left;
            if (row_of_table < states && following > rest) {
                passed |= (u32)(__ldg(ends + place) >> (left - 1) & 1) << row;
                row_of_table = __ldg(behind + code * 64 + left - 1);
                left = following - rest;
                row++;
            } else {
                crossing(code);
            }
            look_ahead();
        }
    }
};

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

    template <bool BITS>
    static DEVICE u32 rows_in(const Cursor& c, const Range<W>& range, const Entries<E>&, void*) {
        const TextTest test{(const u8*)range.codes};
        const u32 lane = lane_id(), first = c.vector * 1024 + lane * 32;
        const u32 rows = __ldg(&c.header()->rows);
        const u32* starts = (const u32*)c.at(c.line);
        const u8* body = c.at(__ldg(&c.header()->packed));
        const TextCodes codes(body, __ldg(starts + lane), __ldg(starts + lane + 1));
        const u32 count = rows > first ? min(rows - first, 32u) : 0;
        bool may_pass = count > 0;
        if (test.is_anywhere()) {
            // strings as one: most splits have nothing to find
            TextCodes rest = codes;
            u32 row = rest.fold(test.entries(), test.start());
            while (row >= test.states()) row -= test.states();
            may_pass = test.accepts(row);
        }
        u32 passed = 0;
        if (may_pass) {
            const u8* lengths = (const u8*)(starts + 36) + lane * 32 * c.width;
            TextRows own{test, lengths, c.width, count, 0, 0, 0, test.start(), 0};
            own.run(codes);
            passed = own.passed;
        }
        __syncwarp();
        return transpose(passed);
    }
};
