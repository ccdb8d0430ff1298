// Copies of a warp that inflates: bytes from elsewhere, or from its own output. Behind `common/base.cuh`.

// Copies bytes. They may be bytes that this writes, 128 or more before.
DEVICE void copy(u8* to, const u8* from, u32 bytes) {
    const u32 lane = lane_id(), head = min(-(u32)(u64)to & 3, bytes), words = (bytes - head) / 4;
    if (lane < head) to[lane] = from[lane];
    __syncwarp();
    to += head;
    from += head;
    const u32 shift = (u32)(u64)from & 3;
    const u32* const source = (const u32*)(from - shift);
#pragma unroll 1
    for (u32 first = 0; first < words; first += 32) {
        const u32 word = first + lane;
        if (word < words) {
            const u32 low = source[word], high = shift ? source[word + 1] : 0;
            ((u32*)to)[word] = __funnelshift_r(low, high, shift * 8);
        }
        __syncwarp();
    }
    const u32 done = words * 4 + lane;
    if (done < bytes - head) to[done] = from[done];
    __syncwarp();
}

// Repeats the last `distance` bytes, fewer than 128. These alone are read: no lane waits for another.
DEVICE void repeat(u8* to, u32 distance, u32 bytes) {
    const u8* const from = to - distance;
    const u32 lane = lane_id(), head = min(-(u32)(u64)to & 3, bytes), words = (bytes - head) / 4;
    if (lane < head) to[lane] = from[lane % distance];
    const u32 step = 128 % distance;
    u32 phase = (head + lane * 4) % distance, word = 0;
#pragma unroll 1
    for (u32 i = lane; i < words; i += 32) {
        if (step || i == lane) {
            u32 of = phase;
#pragma unroll
            for (u32 byte = 0; byte < 4; byte++) {
                word = word >> 8 | (u32)from[of] << 24;
                of = of + 1 == distance ? 0 : of + 1;
            }
            phase += step;
            if (phase >= distance) phase -= distance;
        }
        ((u32*)(to + head))[i] = word;
    }
    const u32 done = head + words * 4 + lane;
    if (done < bytes) to[done] = from[done % distance];
    __syncwarp();
}

// Items lie one after the other, some for each lane from `first` on; lanes behind the last one have ~0. Lane l gets to
// know the lane that has the item `at` + l. `before` lanes have their first item before `at`; it goes 32 items on.
DEVICE u32 holder(u32 first, u32 at, u32& before) {
    // 0 for lanes that start elsewhere
    const u32 starts = __reduce_or_sync(ALL, __funnelshift_lc(0, 1, first - at));
    const u32 lane = before + __popc(starts & ((2u << lane_id()) - 1)) - 1;
    before += __popc(starts);
    return lane;
}

// The byte of each lane: its own, or where `is_inside` that of the lane at `distance` before it, which may have it from
// another.
DEVICE u32 from_lanes(u32 byte, bool is_inside, u32 distance) {
    const u32 lane = lane_id(), inside = __ballot_sync(ALL, is_inside);
    if (inside) {
        u32 source = is_inside ? lane - distance : lane;
        while (__any_sync(ALL, inside >> source & 1)) source = __shfl_sync(ALL, source, source);
        byte = __shfl_sync(ALL, byte, source);
    }
    return byte;
}
