// Writes the length of each selected string, or its code if it is one of a dictionary, from `place` on; and whether it is
// valid, where some are not. Sets the sum of the lengths: it says where `decode.cuh` writes the strings.
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
        const Lengths of_vector{c.at(c.line) + 144, c.width};
        for (u32 r = 0; r < 32; r++) {
            each(r, [&](u64 to) {
                const u32 length = of_vector.of(r * 32 + lane);
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
