// Selected strings, decoded in the order of rows, as `exec/strings.rs` launches it: lengths first, whose sums say where
// the bytes of each vector belong, then bytes. A lane decodes the split that it has in `text.cuh`. It writes no more bytes
// than the lengths of its selected strings come to, from a place that follows from the same lengths.

// What codes stand for: how many bits a code has, in 8 bytes, then entries, then their bytes. For each way to be within an
// escape there are 256 entries; codes without escapes have one each. An entry is where its bytes are, in units of 8 from
// the start; above 16 bits how many; above 24 which way to be within an escape follows.
struct Expansion {
    const u8* at;

    // Without, codes are bytes.
    DEVICE bool any() const { return at; }
    DEVICE u32 code_bits() const { return __ldg((const u32*)at); }
    DEVICE u32 entry(u32 escapes, u32 code) const { return __ldg((const u32*)at + 2 + escapes * 256 + code); }
    DEVICE const u8* bytes(u32 entry) const { return at + (entry & 0xffff) * 8; }
};

// Writes bytes as whole words, and those that it shares with others byte by byte.
struct Writer {
    u64* to;
    u64 word;
    u32 first, count;  // bytes of the word: those before the first are not ours, those from `count` on are not there yet

    DEVICE Writer(u8* at) : word(0), first((u32)(u64)at & 7), count(first) { to = (u64*)(at - first); }

    // The first bytes of 8.
    DEVICE void put(u64 bytes, u32 some) {
        if (some < 8) bytes &= (1ull << some * 8) - 1;
        word |= bytes << count * 8;
        count += some;
        if (count < 8) return;
        if (first) flush();
        else *to = word;
        to++;
        first = 0;
        count -= 8;
        word = count ? bytes >> (some - count) * 8 : 0;
    }

    DEVICE void put_all(const u8* from, u64 bytes) {
        for (; bytes > 8; bytes -= 8, from += 8) put(bytes_at(from), 8);
        if (bytes) put(bytes_at(from), (u32)bytes);
    }

    DEVICE void flush() const {
        for (u32 k = first; k < count && k < 8; k++) ((u8*)to)[k] = (u8)(word >> k * 8);
    }
};

// The strings of a split, one behind the other.
struct Split {
    const u8* lengths;
    u32 width, selected, row;

    DEVICE u32 length(u32 of) const {
        if (width == 1) return __ldg(lengths + of);
        if (width == 2) return __ldg((const u16*)lengths + of);
        return __ldg((const u32*)lengths + of);
    }

    DEVICE u64 selected_bytes() const {
        u64 bytes = 0;
        for (u32 left = selected; left; left &= left - 1) bytes += length(__ffs((int)left) - 1);
        return bytes;
    }

    // Whether selected rows are left.
    DEVICE bool any() const { return row < 32 && selected >> row; }
    DEVICE bool is_selected() const { return selected >> row & 1; }
    // Goes behind the rows that are selected, or not, as this one is. Gives their bytes.
    DEVICE u64 next() {
        const u32 own = is_selected();
        u64 bytes = 0;
        do bytes += length(row++);
        while (any() && is_selected() == own);
        return bytes;
    }

    DEVICE void copy(const u8* from, const u8* end, Writer& out) {
        while (any()) {
            const bool wanted = is_selected();
            const u64 bytes = min(next(), (u64)(end - from));
            if (wanted) out.put_all(from, bytes);
            from += bytes;
        }
    }

    // Codes of entries: none stands for bytes of two strings.
    DEVICE void decode_entries(const Expansion& expansion, const u8* codes, u32 bytes, Writer& out) {
        const u32 code_bits = expansion.code_bits();
        u64 bit = 0;
        while (any()) {
            const bool wanted = is_selected();
            for (u64 left = next(); left && bit + code_bits <= (u64)bytes * 8; bit += code_bits) {
                const u32 entry = expansion.entry(0, code_at(codes, bit, code_bits));
                const u64 length = min((u64)(entry >> 16 & 255), left);
                if (wanted) out.put_all(expansion.bytes(entry), length);
                left -= length;
            }
        }
    }

    DEVICE void decode(const Expansion& expansion, const u8* body, u32 at, u32 end, Writer& out) {
        bool wanted = is_selected();
        u64 left = next();
        u32 escapes = 0;
        u64 word = __ldg((const u64*)(body + (at & ~7u))) >> (at & 7) * 8;
        while (at < end) {
            const u32 entry = expansion.entry(escapes, (u32)word & 255);
            word >>= 8;
            if (!(++at & 7)) word = __ldg((const u64*)(body + at));
            escapes = entry >> 24;
            const u8* from = expansion.bytes(entry);
            u32 bytes = entry >> 16 & 255;
            while (bytes > left) {
                if (wanted) out.put_all(from, left);
                if (!any()) return;
                from += left;
                bytes -= (u32)left;
                wanted = is_selected();
                left = next();
            }
            if (wanted) out.put_all(from, bytes);
            left -= bytes;
        }
    }
};

// Writes the length of each selected string, or its code if it is one of a dictionary, from `place` on; and whether it is
// valid, where some are not. Sets the sum of the lengths.
template <class S>
DEVICE void write_lengths(Cursor& c, u32 selected, u64 place, void* tile, u32* lengths, u8* valid, u64* sum) {
    const u32 m = transpose(selected), lane = lane_id();
    place += sum_before((u32)__popc(selected));
    const u32 valid_in_lane = valid_rows(c);
    // calls f(row of the lane, where it belongs) for each selected one
    const auto each = [&](u32 r, auto f) {
        const u32 word = __shfl_sync(ALL, selected, r);
        const u64 to = __shfl_sync(ALL, place, r) + __popc(word & ((1u << lane) - 1));
        if (m >> r & 1) f(to);
    };
    if (S::FLAGS & (ALL_NULL | SOME_NULL)) {
        for (u32 r = 0; r < 32; r++) each(r, [&](u64 to) { valid[to] = valid_in_lane >> r & 1; });
    }
    u64 bytes = 0;
    if (may_lack_entries<S>() && lacks_entries<S>(c)) {
        const u8* of_vector = c.at(c.line) + 144;
        const Split strings{of_vector, c.width, 0, 0};
        for (u32 r = 0; r < 32; r++) {
            each(r, [&](u64 to) {
                const u32 length = strings.length(r * 32 + lane);
                lengths[to] = length;
                bytes += length;
            });
        }
    } else if constexpr (of_entries<S>(Transforms()) != 0) {
        prepare<S>(c, tile);
        for (u32 eighth = 0; eighth < 4; eighth++) {
            typename S::Entry code[8];
            entries_8<S>(c, eighth, tile, code);
#pragma unroll
            for (u32 k = 0; k < 8; k++) each(eighth * 8 + k, [&](u64 to) { lengths[to] = (u32)code[k]; });
        }
    }
    const u64 before = sum_before(bytes);
    if (lane == 31) *sum = before + bytes;
}

// Writes the bytes of the selected strings of a vector.
template <class S> DEVICE void write_strings(const Cursor& c, u32 selected, const u8* expansion, u8* to) {
    if (!lacks_entries<S>(c)) return;
    const u32 lane = lane_id();
    const u32* starts = (const u32*)c.at(c.line);
    Split strings{(const u8*)(starts + 36) + lane * 32 * c.width, c.width, selected, 0};
    to += sum_before(strings.selected_bytes());
    if (!selected) return;
    const u8* body = c.at(__ldg(&c.header()->packed));
    const u32 start = __ldg(starts + lane), end = __ldg(starts + lane + 1);
    const Expansion own{expansion};
    Writer out(to);
    if (own.any() && own.code_bits() != 8) strings.decode_entries(own, body + start, end - start, out);
    else if (own.any()) strings.decode(own, body, start, end, out);
    else strings.copy(body + start, body + end, out);
    out.flush();
}
