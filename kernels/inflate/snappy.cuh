// Inflates chunks of Snappy, a warp a chunk. Behind `common/base.cuh`, `common/window.cuh` and `inflate/copies.cuh`.
//
//     chunk      the bytes that it inflates to, as a varint; elements
//     element    a tag of 1 to 5 bytes: the length of a literal, whose bytes follow; or length and distance of a match
//
// Tags say where the next element starts, so that `window.cuh` finds all elements that start in 512 bytes at once. 32 of
// them are written at a time. Short ones are written 32 bytes at a time, a lane a byte: it finds the element that its byte
// is of. A match may have it from another of these bytes: lanes then point to lanes, as in `deflate.cuh`. Long elements
// are copied by themselves, several matches as one if they have the same distance.
//
// Whatever the input, only its own bytes (in aligned quads) and the output's room are touched.

// What is wrong with a chunk.
enum : u32 {
    NO_ERROR,
    INPUT_ENDS,        // before all elements do
    OUTPUT_ENDS,       // more is inflated than there is room for
    TOO_LARGE,         // more input, or room, than positions can tell
    WRONG_LENGTH,      // in front of the elements
    INVALID_DISTANCE,  // 0, or before the first byte of output
};

static_assert(sizeof(Window) == (u32)WINDOW_BYTES, "those who launch ask for so many bytes a warp");

enum : u32 {
    MOST_BYTES = 1 << 26,  // of input or output: the lengths of 32 elements have a sum of 32 bits
    LONG_ELEMENT = 64,     // is copied by itself
    BLOCK_THREADS = 128,
    BLOCKS = 8,  // of a multiprocessor, for which registers suffice
};

// A lane's element. No element has no length.
struct Element {
    // A literal has no distance.
    u32 length, distance, header;
    bool is_literal;

    // A tag, and the four bytes behind it.
    DEVICE Element(u32 tag, u32 more) {
        const u32 bits = tag >> 2;
        is_literal = (tag & 3) == 0;
        length = bits + 1;
        distance = 0;
        header = 1;
        switch (tag & 3) {
        case 0:
            if (bits < 60) break;
            header = bits - 58;
            // a length of 2^32 becomes 0, which fails as it has no bytes
            length = (more & ~0u >> (32 - 8 * (bits - 59))) + 1;
            break;
        case 1:
            length = (bits & 7) + 4;
            distance = tag >> 5 << 8 | (more & 255);
            header = 2;
            break;
        case 2:
            distance = more & 0xffff;
            header = 3;
            break;
        default: distance = more; header = 5;
        }
    }
    // Bytes of the input, `BEYOND` if there are more.
    DEVICE u32 size() const { return is_literal ? header + min(length, (u32)BEYOND) : header; }
};

DEVICE Element element_at(const Window& w, u32 at) { return Element(w.byte(at), w.word(at + 1)); }

// The byte behind an element that starts at byte k of a lane.
DEVICE u32 behind(const Own& own, u32 k) {
    const u32 at = k + 1, low = own.words[at / 4];
    const u32 more = at % 4 ? __funnelshift_r(low, own.words[at / 4 + 1], at % 4 * 8) : low;
    return min(k + Element(own.byte(k), more).size(), (u32)BEYOND);
}

// The output of a chunk.
struct Output {
    u8* to;
    u32 room, written;

    DEVICE u32 left() const { return room - written; }

    // The lanes' elements: `from` is where a literal is.
    DEVICE u32 write(const Element& element, const u8* from) {
        if (__any_sync(ALL, element.length > left())) return OUTPUT_ENDS;
        const u32 start = written + sum_before(element.length);
        const u32 stop = __shfl_sync(ALL, start + element.length, 31);
        if (stop > room) return OUTPUT_ENDS;
        const bool is_far = !element.is_literal && element.length && (element.distance == 0 || element.distance > start);
        if (__any_sync(ALL, is_far)) return INVALID_DISTANCE;
        const u32 first = element.length ? start : ~0u;
        u32 longs = __ballot_sync(ALL, element.length >= LONG_ELEMENT), before = 0;
        while (written < stop) {
            const u32 of = longs ? __ffs((int)longs) - 1 : 0, next = longs ? __shfl_sync(ALL, first, of) : stop;
            for (; written < next; written += 32) {
                write_bytes(next, element.distance, start, from, holder(first, written, before));
            }
            written = next;
            if (!longs) break;
            u32 last = of;
            const u32 distance = __shfl_sync(ALL, element.distance, of);
            if (distance) {
                // those behind it with the same distance go on with it
                const u32 others = __ballot_sync(ALL, element.distance != distance) >> of;
                last = others ? of + __ffs((int)others) - 2 : 31;
            }
            const u32 end = __shfl_sync(ALL, start + element.length, last), length = end - next;
            if (distance == 0) copy(to + next, (const u8*)__shfl_sync(ALL, (u64)from, of), length);
            else if (distance < 128) repeat(to + next, distance, length);
            else copy(to + next, to + next - distance, length);
            written = end;
            before = last + 1;
            longs &= ~((2u << last) - 1);
        }
        return NO_ERROR;
    }

    // 32 bytes of the lanes' elements, or up to `next`: each lane's is of the element of lane `of`.
    DEVICE void write_bytes(u32 next, u32 own_distance, u32 own_start, const u8* own_from, u32 of) const {
        const u32 lane = lane_id(), at = written + lane;
        const u32 distance = __shfl_sync(ALL, own_distance, of), start = __shfl_sync(ALL, own_start, of);
        const u8* const from = (const u8*)__shfl_sync(ALL, (u64)own_from, of);
        // where the byte is from: before these 32, or from the lane at that distance, which may have it from another
        const bool is_inside = distance - 1 < lane;
        u32 byte = 0;
        if (at < next && !is_inside) byte = distance ? to[at - distance] : from[at - start];
        byte = from_lanes(byte, is_inside, distance);
        if (at < next) to[at] = (u8)byte;
        __syncwarp();
    }
};

// The varint in front of the elements, which all lanes read; the bytes that it takes, 0 if it is none of 32 bits.
DEVICE u32 length_in_front(const u8* from, u32 bytes, u32& length) {
    u64 value = 0;
    length = 0;
    for (u32 i = 0; i < min(bytes, 5u); i++) {
        const u32 byte = __ldg(from + i);
        value |= (u64)(byte & 127) << i * 7;
        if (byte >= 128) continue;
        length = (u32)value;
        return value >> 32 ? 0 : i + 1;
    }
    return 0;
}

DEVICE u32 inflate_elements(const u8* stream, u32 bytes, Output& output, Window& w) {
    u32 length;
    u32 at = length_in_front(stream, bytes, length);
    if (at == 0 || length != output.room) return WRONG_LENGTH;
    while (at < bytes) {
        const u32 first = (u32)(u64)(stream + at) & 15, last = first + (bytes - at);
        const Own own = load(w, (const uint4*)(stream + at - first), first, last);
        u32 after = first;
        const u32 starts =
            starts_of(w, first, min(last, (u32)WINDOW), after, [&](u32 k) { return behind(own, k); });
        const u32 count = list_starts(w, starts, false);
        for (u32 i = 0; i < count; i += 32) {
            const u32 number = i + lane_id(), place = w.starts[min(number, count - 1)];
            Element element = element_at(w, place);
            const u32 behind_tag = at + (place - first) + element.header;
            const u32 needed = element.is_literal ? element.length : 0;
            // a literal of no length has 2^32 bytes
            const bool ends = behind_tag > bytes || needed > bytes - behind_tag || element.length == 0;
            if (__any_sync(ALL, number < count && ends)) return INPUT_ENDS;
            if (number >= count) element.length = 0;
            if (const u32 error = output.write(element, stream + behind_tag)) return error;
        }
        const u32 place = w.starts[count - 1];
        const Element element = element_at(w, place);
        at += place - first + element.header + (element.is_literal ? element.length : 0);
    }
    return output.left() ? INPUT_ENDS : NO_ERROR;
}

struct Args { u64 word[3]; };

// Chunks, how many there are, and where a result of each goes. A warp needs shared memory for a `Window`.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, BLOCKS) inflate_snappy(const Args a) {
    DYN_SHARED(Window, windows);
    const u32 warps = blockDim.x / 32, warp = threadIdx.x / 32;
    Window& w = windows[warp];
    for (u32 i = blockIdx.x * warps + warp; i < (u32)a.word[1]; i += gridDim.x * warps) {
        const InflateChunk chunk = global<const InflateChunk>(a.word[0])[i];
        Output output{global<u8>(chunk.to), chunk.room, 0};
        u32 error = TOO_LARGE;
        if (max(chunk.bytes, chunk.room) < MOST_BYTES) {
            error = inflate_elements(global<const u8>(chunk.from), chunk.bytes, output, w);
        }
        if (lane_id() == 0) global<Inflated>(a.word[2])[i] = Inflated{output.written, error};
    }
}
