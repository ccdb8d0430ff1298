// Values of data pages of Parquet, a warp a page. Behind `common/base.cuh`.
//
//     page    levels of definition, if they lie in it: 4 bytes of their length, runs of bits, which all have to be set
//             values in one of these encodings
//
//     PLAIN        of 1 to 16 bytes each, the lowest first, or the highest (HIGHEST_FIRST)
//     BITS         a bit each, the lowest of a byte first
//     INDICES      the width of indices in a byte; runs of them
//     RUNS         4 bytes of their length, runs of bits
//     DIFFERENCES  of the value before, packed in blocks
//     PLANES       the first bytes of all values, the second ones, ..
//
//     runs         a varint v, then v / 2 times one value if v is even, else v / 2 * 8 packed values
//
// Values become integers of 64 bits, or of 32 bits (NARROW): those of floats are their bits. Indices become the dictionary's
// values. Whatever the page, only its bytes (in aligned words) and the room for `count` values are touched.

enum Fault : u32 { NO_FAULT, PAGE_ENDS, HAS_NULLS, WIDE_VALUE, NO_ENTRY, INVALID_WIDTH, INVALID_HEADER };

// The bytes of a page up to `end`, in words of memory. Each lane reads where it wants.
struct Bytes {
    const u8* at;
    u32 end;

    DEVICE u32 byte(u32 offset) const { return __ldg(at + offset); }
    // 32 bits from a bit on. The word behind them may be read, too.
    DEVICE u32 bits(u64 from) const {
        const u32 skipped = (u32)(u64)at & 3;
        const u32* const words = (const u32*)(at - skipped);
        const u64 bit = from + skipped * 8;
        return __funnelshift_r(__ldg(words + bit / 32), __ldg(words + bit / 32 + 1), (u32)bit & 31);
    }
    DEVICE u64 bits64(u64 from) const { return bits(from) | (u64)bits(from + 32) << 32; }
    // All lanes take the same varint.
    DEVICE bool varint(u32& offset, u64& value) const {
        value = 0;
        for (u32 shift = 0; shift < 70; shift += 7) {
            if (offset >= end) return false;
            const u32 next = byte(offset++);
            if (shift == 63 && next > 1) return false;
            value |= (u64)(next & 127) << shift;
            if (next < 128) return true;
        }
        return false;
    }
    DEVICE bool zigzag(u32& offset, u64& value) const {
        if (!varint(offset, value)) return false;
        value = value >> 1 ^ (0 - (value & 1));
        return true;
    }
};

DEVICE u64 low_bits(u32 count) { return count >= 64 ? ~0ull : (1ull << count) - 1; }

// Where values go.
struct Values {
    u64 to;
    bool is_narrow;

    DEVICE void put(u32 at, u64 value) const {
        if (is_narrow) global<u32>(to)[at] = (u32)value;
        else global<u64>(to)[at] = value;
    }
};

// Values that a lane reads before it uses them, since memory answers late.
enum { TOGETHER = 4 };

// `count` values of runs from `offset` on: calls one(place, value) for each. Returns a fault of this lane.
template <class F> DEVICE u32 each_of_runs(const Bytes& bytes, u32 offset, u32 width, u32 count, F one) {
    const u32 lane = lane_id(), value_bytes = (width + 7) / 8;
    const u32 mask = (u32)low_bits(width);
    u32 fault = NO_FAULT;
    for (u32 done = 0; done < count;) {
        u64 header;
        if (!bytes.varint(offset, header)) return PAGE_ENDS;
        const u64 most = min(header >> 1, 1ull << 32), of_run = header & 1 ? most * 8 : most;
        const u32 values = (u32)min(of_run, (u64)(count - done)), left = bytes.end - offset;
        if (header & 1) {
            // writers may cut the bytes of values that there are none of
            const u64 needed = ((u64)values * width + 7) / 8;
            if (needed > left) return PAGE_ENDS;
#pragma unroll 1
            for (u32 first = lane; first < values; first += 32 * TOGETHER) {
                u32 found[TOGETHER];
#pragma unroll
                for (u32 i = 0; i < TOGETHER; i++) {
                    const u32 k = min(first + 32 * i, values - 1);
                    found[i] = bytes.bits(offset * 8ull + (u64)k * width) & mask;
                }
#pragma unroll
                for (u32 i = 0; i < TOGETHER; i++) {
                    if (first + 32 * i < values) fault = max(fault, one(done + first + 32 * i, found[i]));
                }
            }
            offset += (u32)min(most * width, (u64)left);
        } else {
            if (value_bytes > left || of_run == 0) return PAGE_ENDS;
            u32 value = 0;
            for (u32 i = 0; i < value_bytes; i++) value |= bytes.byte(offset + i) << i * 8;
            if (value > mask) return INVALID_WIDTH;
            for (u32 i = lane; i < values; i += 32) fault = max(fault, one(done + i, value));
            offset += value_bytes;
        }
        if (values == 0) return INVALID_HEADER;
        done += values;
    }
    return fault;
}

// Runs that are preceded by their length. `offset` goes behind them.
template <class F> DEVICE u32 each_of_block(const Bytes& bytes, u32& offset, u32 count, F one) {
    if (bytes.end - offset < 4) return PAGE_ENDS;
    const u32 length = bytes.bits(offset * 8ull);
    offset += 4;
    if (length > bytes.end - offset) return PAGE_ENDS;
    const u32 fault = each_of_runs(Bytes{bytes.at, offset + length}, offset, 1, count, one);
    offset += length;
    return fault;
}

// One value of 1 to 16 bytes, of which 64 bits have to suffice.
DEVICE u32 big_endian(const Bytes& bytes, u32 from, u32 width, u64& value) {
    const u64 sign = bytes.byte(from) & 128 ? ~0ull : 0;
    value = sign;
    for (u32 i = 0; i < width; i++) {
        if (i + 8 < width && bytes.byte(from + i) != (sign & 255)) return WIDE_VALUE;
        value = value << 8 | bytes.byte(from + i);
    }
    return ((i64)value < 0) == (sign != 0) ? NO_FAULT : WIDE_VALUE;
}

// Extends a value of some bytes to 64 bits.
DEVICE u64 extended(u64 value, u32 width, bool is_signed) {
    const u32 above = 64 - 8 * min(width, 8u);
    return is_signed ? (u64)((i64)(value << above) >> above) : value << above >> above;
}

DEVICE u32 plain(const DataPage& page, const Bytes& bytes, u32 offset, const Values& values) {
    if ((u64)page.count * page.width > bytes.end - offset) return PAGE_ENDS;
    const bool is_signed = page.flags & SIGNED_VALUES;
    u32 fault = NO_FAULT;
#pragma unroll 1
    for (u32 first = lane_id(); first < page.count; first += 32 * TOGETHER) {
        u64 found[TOGETHER];
#pragma unroll
        for (u32 i = 0; i < TOGETHER; i++) {
            const u32 from = offset + min(first + 32 * i, page.count - 1) * page.width;
            if (page.flags & HIGHEST_FIRST) fault = max(fault, big_endian(bytes, from, page.width, found[i]));
            else found[i] = page.width > 4 ? bytes.bits64(from * 8ull) : bytes.bits(from * 8ull);
        }
#pragma unroll
        for (u32 i = 0; i < TOGETHER; i++) {
            const u64 value = page.flags & HIGHEST_FIRST ? found[i] : extended(found[i], page.width, is_signed);
            if (first + 32 * i < page.count) values.put(first + 32 * i, value);
        }
    }
    return fault;
}

DEVICE u32 planes(const DataPage& page, const Bytes& bytes, u32 offset, const Values& values) {
    // what else lies behind the planes, decoders of the CPU count as values
    if ((u64)page.count * page.width != bytes.end - offset) return PAGE_ENDS;
    const bool is_big = page.flags & HIGHEST_FIRST;
    u32 fault = NO_FAULT;
    for (u32 k = lane_id(); k < page.count; k += 32) {
        u64 value = 0, sign = 0;
        for (u32 i = 0; i < page.width; i++) {
            const u64 byte = bytes.byte(offset + i * page.count + k);
            if (!is_big) {
                value |= byte << i * 8;
                continue;
            }
            if (i == 0) value = sign = byte & 128 ? ~0ull : 0;
            if (i + 8 < page.width && byte != (sign & 255)) fault = WIDE_VALUE;
            value = value << 8 | byte;
        }
        if (is_big && ((i64)value < 0) != (sign != 0)) fault = WIDE_VALUE;
        values.put(k, is_big ? value : extended(value, page.width, page.flags & SIGNED_VALUES));
    }
    return fault;
}

// A block has the least difference, the widths of its parts in a byte each, and the parts: differences less the least one.
DEVICE u32 differences(const DataPage& page, const Bytes& bytes, u32 offset, const Values& values) {
    u64 of_block, parts, total, value;
    if (!bytes.varint(offset, of_block) || !bytes.varint(offset, parts) || !bytes.varint(offset, total) ||
        !bytes.zigzag(offset, value)) {
        return PAGE_ENDS;
    }
    if (parts == 0 || of_block == 0 || of_block > 1 << 20 || of_block % parts || of_block / parts % 32) {
        return INVALID_HEADER;
    }
    if (total < page.count) return PAGE_ENDS;
    const u32 lane = lane_id(), of_part = (u32)(of_block / parts);
    const bool is_signed = page.flags & SIGNED_VALUES;
    if (lane == 0 && page.count) values.put(0, extended(value, page.width, is_signed));
    for (u32 done = 1; done < page.count;) {
        u64 least;
        if (!bytes.zigzag(offset, least)) return PAGE_ENDS;
        const u32 widths = offset;
        if (parts > bytes.end - offset) return PAGE_ENDS;
        offset += (u32)parts;
        for (u32 part = 0; part < parts && done < page.count; part++) {
            const u32 width = bytes.byte(widths + part);
            if (width > 64) return INVALID_WIDTH;
            if ((u64)of_part * width > (u64)(bytes.end - offset) * 8) return PAGE_ENDS;
            for (u32 first = 0; first < of_part && done < page.count; first += 32) {
                const u64 bit = offset * 8ull + (u64)(first + lane) * width;
                u64 packed = 0;
                if (width > 32) packed = bytes.bits64(bit) & low_bits(width);
                else if (width) packed = bytes.bits(bit) & low_bits(width);
                const u64 own = packed + least, sum = sum_before(own) + own;
                if (done + lane < page.count) values.put(done + lane, extended(value + sum, page.width, is_signed));
                value += __shfl_sync(ALL, sum, 31);
                done += min(32u, page.count - done);
            }
            offset += of_part / 8 * width;
        }
    }
    return NO_FAULT;
}

DEVICE u32 decode_page(const DataPage& page) {
    const Bytes bytes{global<const u8>(page.from), page.bytes};
    const Values values{page.to, (page.flags & NARROW) != 0};
    u32 offset = 0;
    if (page.levels) {
        const u32 fault = each_of_block(bytes, offset, page.levels, [](u32, u32 bit) { return bit ? NO_FAULT : HAS_NULLS; });
        if (const u32 any = __reduce_max_sync(ALL, (u32)fault)) return any;
    }
    // there may be no bytes either
    if (page.count == 0) return NO_FAULT;
    const auto bit = [&](u32 at, u32 value) {
        values.put(at, value);
        return NO_FAULT;
    };
    switch (page.encoding) {
    case PLAIN_VALUES: return plain(page, bytes, offset, values);
    case BITS_OF_VALUES:
        if ((page.count + 7) / 8 > bytes.end - offset) return PAGE_ENDS;
        for (u32 i = lane_id(); i < page.count; i += 32) bit(i, bytes.byte(offset + i / 8) >> i % 8 & 1);
        return NO_FAULT;
    case INDICES: {
        if (offset >= bytes.end) return PAGE_ENDS;
        const u32 width = bytes.byte(offset);
        if (width > 32) return INVALID_WIDTH;
        const u64* const entries = global<const u64>(page.dictionary);
        return each_of_runs(bytes, offset + 1, width, page.count, [&](u32 at, u32 index) {
            if (index >= page.entries) return NO_ENTRY;
            values.put(at, __ldg(entries + index));
            return NO_FAULT;
        });
    }
    case RUNS: return each_of_block(bytes, offset, page.count, bit);
    case DIFFERENCES: return differences(page, bytes, offset, values);
    default: return planes(page, bytes, offset, values);
    }
}

struct Args { u64 word[3]; };

// Pages, how many there are, and a word for the fault of each.
extern "C" __global__ void __launch_bounds__(128, 8) decode_pages(const Args a) {
    const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
    for (u64 i = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < a.word[1]; i += warps) {
        const DataPage page = global<const DataPage>(a.word[0])[i];
        const u32 fault = __reduce_max_sync(ALL, decode_page(page));
        if (lane_id() == 0) global<u32>(a.word[2])[i] = fault;
    }
}
