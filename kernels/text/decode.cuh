// Strings in splits, decoded in the order of rows, as `exec/strings.rs` launches it.
//
// A vector whose rows are all wanted is one stream of codes. Eight codes take as many bytes as a code has bits: a lane
// takes eight codes of a split at a time, a warp those of 32 lanes, one split after the other. What codes stand for lies
// in shared memory, and is put together in a stage there: a sum over lanes says where the bytes of each lane go. From
// the stage, whole words of 16 bytes go to memory. Where codes may be within an escape, lanes tell the next one what
// they end in, until all agree.
//
// Of other vectors, a lane decodes the wanted rows of a split by itself. So it does where what codes stand for does not
// fit shared memory, or where codes are so short that padding may hold some.
//
// A vector takes no more bytes than the lengths of its wanted strings come to, from a place that follows from the same
// lengths.

enum { THREADS = 512, STAGE_BYTES = 2032 };
enum { FETCHED_BYTES = 512 };  // of a split's codes, before they are needed

struct Args { u64 word[7]; };

// What codes stand for: 8 zeros, how many bits a code has, in 8 bytes, then entries, then their bytes. For each way to
// be within an escape there are 256 entries; codes without escapes have one each. An entry is how many bytes it stands
// for, at most 64, in 10 bits, so that eight entries can be added up; which way to be within an escape follows, in 3;
// and where the bytes are, from the start: a multiple of 8. Behind the bytes are zeros, up to the next multiple.
struct Expansion {
    const u8* at;

    // Without, codes are bytes.
    DEVICE bool any() const { return at; }
    DEVICE u32 code_bits() const { return ((const u32*)at)[2]; }
    DEVICE u32 entry(u32 escapes, u32 code) const { return ((const u32*)at)[4 + escapes * 256 + code]; }
    DEVICE const u8* bytes(u32 entry) const { return at + (entry >> 13); }
};

DEVICE u32 length_of(u32 entry) { return entry & 1023; }
DEVICE u32 escapes_of(u32 entry) { return entry >> 10 & 7; }

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
    Lengths lengths;
    u32 selected, row;

    DEVICE u64 selected_bytes() const {
        u64 bytes = 0;
        for (u32 left = selected; left; left &= left - 1) bytes += lengths.of(__ffs((int)left) - 1);
        return bytes;
    }

    // Whether selected rows are left.
    DEVICE bool any() const { return row < 32 && selected >> row; }
    DEVICE bool is_selected() const { return selected >> row & 1; }
    // Goes behind the rows that are selected, or not, as this one is. Gives their bytes.
    DEVICE u64 next() {
        const u32 own = is_selected();
        u64 bytes = 0;
        do bytes += lengths.of(row++);
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
                const u64 length = min((u64)length_of(entry), left);
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
            escapes = escapes_of(entry);
            const u8* from = expansion.bytes(entry);
            u32 bytes = length_of(entry);
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

// Selected strings of a vector, a split a lane.
DEVICE void write_selected(Split split, const Expansion& expansion, const u8* body, u32 start, u32 end, u8* to) {
    to += sum_before(split.selected_bytes());
    if (!split.selected) return;
    Writer out(to);
    if (expansion.any() && expansion.code_bits() != 8) split.decode_entries(expansion, body + start, end - start, out);
    else if (expansion.any()) split.decode(expansion, body, start, end, out);
    else split.copy(body + start, body + end, out);
    out.flush();
}

// Bytes on their way to memory, in shared memory: as far from a multiple of 16 as where they go to.
struct Stage {
    u32* words;
    uint4* to;
    u32 skipped, head;  // bytes of the first word: those before the first are not ours, those from `head` on not there yet

    DEVICE Stage(u32* words, u8* at) : words(words), skipped((u32)(u64)at & 15), head(skipped) {
        to = (uint4*)(at - skipped);
    }

    // Sends whole words of 16 bytes on their way, now that there are `end` bytes.
    DEVICE void send(u32 end) {
        const u32 lane = lane_id(), whole = end / 16;
        for (u32 k = lane; k < whole; k += 32) {
            if (k || !skipped) to[k] = ((const uint4*)words)[k];
            else send_bytes(0, 16);
        }
        const u32 rest = words[whole * 4 + (lane & 3)];
        __syncwarp();
        if (whole) {
            if (lane < 4) words[lane] = rest;
            skipped = 0;
        }
        __syncwarp();
        to += whole;
        head = end & 15;
    }

    DEVICE void send_bytes(u32 from, u32 end) const {
        for (u32 k = max(from, skipped); k < end; k++) ((u8*)to)[k] = ((const u8*)words)[k];
    }
};

// What a lane puts into a stage: words of 4 bytes as they are full. The first may lack bytes, those of lanes before.
struct Piece {
    u32* to;
    u32 word, count;

    // The first bytes of so many words of 4, behind which there are zeros.
    template <u32 WORDS> DEVICE void put(const u64 bytes[WORDS / 2], u32 some) {
        const u32 shift = count * 8;
        u32 before = 0;
        count += some;
#pragma unroll
        for (u32 k = 0; k <= WORDS; k++) {
            const u32 own = k < WORDS ? (u32)(bytes[k / 2] >> k % 2 * 32) : 0;
            const u32 next = __funnelshift_l(before, own, shift) | (k ? 0 : word);
            before = own;
            if (k < WORDS && count >= k * 4 + 4) to[k] = next;
            if (count >= k * 4) word = next;
        }
        to += count / 4;
        count %= 4;
    }

    // What an entry stands for; of none, nothing. Most are short.
    DEVICE void put(const Expansion& table, u32 entry) {
        const u64* from = (const u64*)table.bytes(entry);
        u32 left = length_of(entry);
        if (!__any_sync(ALL, left > 8)) return put<2>(from, left);
        while (true) {
            const u64 bytes[] = {from[0], left > 8 ? from[1] : 0};
            put<4>(bytes, min(left, 16u));
            if (left <= 16) break;
            left -= 16;
            from += 2;
        }
    }
};

// Up to eight codes of a split, one behind the other.
struct Eight {
    u32 bits[3], count;

    DEVICE Eight(const u8* at, u32 count) : count(count) {
        const u32 shift = ((u32)(u64)at & 3) * 8;
        const u32* words = (const u32*)(at - shift / 8);
        u32 word = count ? __ldg(words) : 0;
#pragma unroll
        for (u32 k = 0; k < 3; k++) {
            const u32 next = count ? __ldg(words + k + 1) : 0;
            bits[k] = __funnelshift_r(word, next, shift);
            word = next;
        }
    }

    // What they stand for.
    DEVICE void entries(const Expansion& table, u32 code_bits, u32 out[8]) const {
        const u32 mask = (1u << code_bits) - 1;
        u32 a = bits[0], b = bits[1], c = bits[2];
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            out[k] = k < count ? table.entry(0, a & mask) : 0;
            a = __funnelshift_r(a, b, code_bits);
            b = __funnelshift_r(b, c, code_bits);
            c >>= code_bits;
        }
    }

    // The same of bytes, the first of them within `escapes`. Gives those that follow.
    DEVICE u32 entries_within(const Expansion& table, u32 escapes, u32 out[8]) const {
#pragma unroll
        for (u32 k = 0; k < 8; k++) {
            out[k] = k < count ? table.entry(escapes, bits[k / 4] >> k % 4 * 8 & 255) : 0;
            if (k < count) escapes = escapes_of(out[k]);
        }
        return escapes;
    }
};

// All strings of a vector, of which codes are bytes.
DEVICE void copy_all(const u8* from, u64 bytes, u8* to) {
    const u32 lane = lane_id(), before = (u32)min(bytes, (8 - ((u64)to & 7)) & 7);
    if (lane < before) to[lane] = __ldg(from + lane);
    const u64 words = (bytes - before) / 8, behind = before + words * 8;
    for (u64 k = lane; k < words; k += 32) ((u64*)(to + before))[k] = bytes_at(from + before + k * 8);
    if (lane < bytes - behind) to[behind + lane] = __ldg(from + behind + lane);
}

// All strings of a vector: `bytes` bytes of text. A lane says where the codes of a split are.
DEVICE void write_all(const Expansion& table, const u8* body, u32 start, u32 end, u64 bytes, u8* to, u32* words) {
    const u32 lane = lane_id(), code_bits = table.code_bits();
    const u32 codes = (u32)((u64)(end - start) * 8 / code_bits), own_eights = codes / 8 + (codes % 8 != 0);
    const u32 before = sum_before(own_eights), eights = __shfl_sync(ALL, before + own_eights, 31);
    Stage stage(words, to);
    for (u32 k = start; k < end && k - start < FETCHED_BYTES; k += 128) fetch(body + k);
    u32 escapes = 0;
    for (u32 first = 0; first < eights && bytes;) {
        // the split that the lane's eight codes are of
        const u32 own = first + lane;
        u32 split = 0;
#pragma unroll
        for (u32 step = 16; step; step /= 2) {
            if (__shfl_sync(ALL, before, split + step) <= own) split += step;
        }
        const u32 index = own - __shfl_sync(ALL, before, split), of_split = __shfl_sync(ALL, codes, split);
        const u8* at = body + __shfl_sync(ALL, start, split) + (u64)index * code_bits;
        const Eight eight(at, own < eights ? min(of_split - index * 8, 8u) : 0);

        u32 entries[8], following = 0;
        if (code_bits != 8) {
            eight.entries(table, code_bits, entries);
        } else {
            // right in the first lane at once, in each other one after the one before
            for (u32 within = index && lane == 0 ? escapes : 0;;) {
                following = eight.entries_within(table, within, entries);
                const u32 left = __shfl_up_sync(ALL, following, 1);
                const u32 known = index == 0 ? 0 : lane == 0 ? escapes : left;
                if (!__any_sync(ALL, known != within)) break;
                within = known;
            }
        }
        u32 sum = 0;
#pragma unroll
        for (u32 k = 0; k < 8; k++) sum += entries[k];
        const u32 own_bytes = length_of(sum);

        // as many lanes as there is room for
        const u32 place = stage.head + sum_before(own_bytes), last = place + own_bytes;
        const u32 lanes = (u32)__popc(__ballot_sync(ALL, last <= STAGE_BYTES));
        const bool has_room = lane < lanes;
        Piece piece{words + place / 4, 0, place % 4};
        if (lane == 0) piece.word = *piece.to & ((1u << place % 4 * 8) - 1);
        __syncwarp();
        if (has_room) words[last / 4] = 0;
        __syncwarp();
#pragma unroll
        for (u32 k = 0; k < 8; k++) piece.put(table, has_room ? entries[k] : 0);
        __syncwarp();
        if (has_room && piece.word) atomicOr(piece.to, piece.word);
        __syncwarp();
        const u32 filled = __shfl_sync(ALL, last, lanes - 1) - stage.head;
        const u32 sent = (u32)min((u64)filled, bytes);
        stage.send(stage.head + sent);
        bytes -= sent;
        escapes = __shfl_sync(ALL, following, lanes - 1);
        first += lanes;
    }
    if (lane == 0) stage.send_bytes(0, stage.head);
}

// Of `word[0]` vectors of `word[2]` chunks at `word[1]`, writes strings to `word[3]`. A chunk has its first vector, where
// it is, or nothing if it has no strings in splits, its rows, where its expansion is, and the bytes of that. Which rows
// are wanted is at `word[4]`, if not all are. Where each vector's strings belong is at `word[5]`, and then where the last
// ones end. A block's memory has stages, which vector is the next one in 16 bytes, and room for `word[6]` bytes of an
// expansion.
extern "C" __global__ void BOUNDS(THREADS) decode(const Args a) {
    DYN_SHARED(u8, shared);
    const u32 lane = lane_id();
    u32* const stage = (u32*)(shared + threadIdx.x / 32 * (STAGE_BYTES + 16));
    u32* const taken = (u32*)(shared + THREADS / 32 * (STAGE_BYTES + 16));
    u8* const room = (u8*)taken + 16;
    const u32 last = (u32)(a.word[0] * (blockIdx.x + 1) / gridDim.x);
    u32 next = (u32)(a.word[0] * blockIdx.x / gridDim.x);
    const DecodeChunk* own = chunk_of((const DecodeChunk*)a.word[1], (u32)a.word[2], next);
    // all warps are at the same chunk
    for (; next < last; own++) {
        const u32 first = (u32)own->first_vector, rows = (u32)own->rows, end = min(last, first + (rows + 1023) / 1024);
        const Expansion expansion{(const u8*)own->expansion};
        const bool is_here = expansion.any() && own->expansion_bytes <= a.word[6];
        __syncthreads();
        if (threadIdx.x == 0) *taken = own->address ? next : end;
        for (u32 k = threadIdx.x; is_here && k < own->expansion_bytes / 16; k += THREADS)
            ((uint4*)room)[k] = __ldg((const uint4*)expansion.at + k);
        __syncthreads();
        // some vectors have much more text than others
        while (true) {
            const u32 at = __shfl_sync(ALL, lane == 0 ? atomicAdd(taken, 1u) : 0, 0);
            if (at >= end) break;
            const u32 v = at - first, before = v * 1024 + lane * 32;
            const u32 existing = rows <= before ? 0 : rows - before >= 32 ? ALL : (1u << (rows - before)) - 1;
            const u32 selected = a.word[4] ? __ldg((const u32*)a.word[4] + (u64)at * 32 + lane) : existing;
            if (!__any_sync(ALL, selected)) continue;
            const Chunk c = chunk(own->address);
            const Vector vector = ((const Vector*)(c.bytes + sizeof(Header)))[v];
            const u32* starts = (const u32*)c.at(vector.line);
            const u8* body = c.at(__ldg(&c.header()->packed));
            const u32 start = __ldg(starts + lane), behind = __ldg(starts + lane + 1);
            const u64* place = (const u64*)a.word[5] + at;
            u8* const to = (u8*)a.word[3] + place[0];
            const bool is_whole = __all_sync(ALL, selected == existing);
            if (is_whole && !expansion.any()) {
                const u32 from = __shfl_sync(ALL, start, 0), bytes = __shfl_sync(ALL, behind, 31) - from;
                copy_all(body + from, min((u64)bytes, place[1] - place[0]), to);
            } else if (is_whole && is_here && Expansion{room}.code_bits() >= 8) {
                // shorter codes may have others behind the last one of a split
                write_all(Expansion{room}, body, start, behind, place[1] - place[0], to, stage);
            } else {
                const Lengths lengths{(const u8*)(starts + 36) + lane * 32 * vector.width, vector.width};
                write_selected(Split{lengths, selected, 0}, expansion, body, start, behind, to);
            }
        }
        next = end;
    }
}
