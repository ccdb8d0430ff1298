// The interpreter: runs a program over the vectors of columns, a warp a vector. `src/program.rs` defines programs.

// ---- a vector ----

// Runs a body of row instructions for the selected rows. `picks`: few rows may be taken in any order.
DEVICE u32 run_body(const Args& a, Warp& w, u32 pc, u32 end, u32 m, bool picks) {
    u32 mask = 0;
    const u32 own = (u32)__popc(m);
    if (picks && __reduce_add_sync(ALL, own) <= PICKED_ROWS) {
        // the selected rows' numbers, lane by lane
        u16* const list = (u16*)(w.own + high_half(a, W_WARP_BYTES)) - LIST_BYTES / 2;
        const u32 before = sum_before(own), total = __shfl_sync(ALL, before + own, 31);
        u32 to = before;
        __syncwarp();
        for (u32 left = m; left; left &= left - 1) list[to++] = (u16)((__ffs((int)left) - 1) * 32 + lane_id());
        __syncwarp();
#pragma unroll 1
        for (u32 done = 0; done < total; done += 64) {
            Batch<2, true> rows;
            rows.in = rows.batch = 0;
#pragma unroll
            for (u32 k = 0; k < 2; k++) {
                const u32 index = done + k * 32 + lane_id();
                rows.id[k] = index < total ? list[index] : 0;
                rows.in |= (u32)(index < total) << k;
            }
            run_rows<2, true>(a, w, rows, pc, end, mask);
        }
        return 0;
    }
#pragma unroll 1
    for (u32 batch = 0; batch < 32 / DENSE_ROWS; batch++) {
        Batch<DENSE_ROWS, false> rows;
        rows.in = m >> batch * DENSE_ROWS & ((1u << DENSE_ROWS) - 1);
        rows.batch = batch;
        if (!__any_sync(ALL, rows.in)) continue;
        u32 own_mask = 0;
        run_rows<DENSE_ROWS, false>(a, w, rows, pc, end, own_mask);
        mask |= (own_mask & ((1u << DENSE_ROWS) - 1)) << batch * DENSE_ROWS;
    }
    return mask;
}

// The rows of a column that are not null.
DEVICE u32 valid_in(const Warp& w, u32 column) { return valid_rows(cursor(w, column)); }

DEVICE void run_vector(const Args& a, Warp& w, u32 m) {
    u32 t = 0;
    DYN_SHARED(u8, shared);
#pragma unroll 1
    for (u32 pc = 0;; pc++) {
        const Instruction i = instruction(a, pc);
        switch (i.op()) {
        case V_END: return;
        case V_ALL: t = ALL; break;
        case V_NOTHING: t = 0; break;
        case V_VALID: t = valid_in(w, i.a()); break;
        case V_NOT: t = ~t; break;
        case V_KEEP: set_flag(w, i.b(), t); break;
        case V_AND: t &= flag_of(w, i.b()); break;
        case V_OR: t |= flag_of(w, i.b()); break;
        case V_RANGE: {
            const u64 test = i.c() == NONE ? 0 : __ldg(w.group + i.c());
            t = in_range(a, w, i.a(), i.b(), test, i.d(), m);
            break;
        }
        case V_FOUND: {
            const u32* copy = i.c() == NONE ? (const u32*)0 : (const u32*)(shared + a.word[i.c()]);
            u32 rows = m;
            if (i.d()) rows &= valid_in(w, i.a());
            t = found(a, w, i.a(), w.group + i.b(), copy, i.d(), rows);
            break;
        }
        case V_WHERE:
        case V_LOOP:
            t = run_body(a, w, pc + 1, i.b(), m, i.a());
            pc = i.b() - 1;
            break;
        case V_FILTER:
            m &= t;
            if (!__any_sync(ALL, m)) return;
            break;
        case V_FETCH: {
            const Cursor c = cursor(w, i.a());
            if (w.direct >> i.a() & 1 && lane_id() < c.width) fetch(c.bytes + ((u64)c.line + lane_id()) * 128);
            break;
        }
        case V_DECODE: decode(a, w, i.a()); break;
        case V_COUNT: w.kept[i.b() * 32] += (u32)__popc(m & flag_of(w, i.c())); break;
        case V_MASKS: {
            const u32 selected = transpose(m), count = __reduce_add_sync(ALL, (u32)__popc(m));
            ((u32*)a.word[4])[w.at * 32 + lane_id()] = selected;
            if (lane_id() == 0) ((u64*)a.word[5])[w.at] = count;
            break;
        }
        case V_SELECTED: {
            const u32 selected = __ldg((const u32*)a.word[4] + w.at * 32 + lane_id());
            if (!__any_sync(ALL, selected)) return;
            m = transpose(selected);
            const u64 place = ((const u64*)a.word[5])[w.at] + sum_before((u32)__popc(selected));
            set_flag(w, 0, selected);
            set_flag(w, 1, (u32)place);
            set_flag(w, 2, (u32)(place >> 32));
            break;
        }
        case V_EVERY: {
            const u64 place = w.group[2] + (u64)w.v * 1024 + lane_id();
            set_flag(w, 1, (u32)place);
            set_flag(w, 2, (u32)(place >> 32));
            break;
        }
        default: return;
        }
    }
}

// ---- row groups and vectors ----

DEVICE uint4 record_at(const Warp& w, u32 v) {
    return w.address ? __ldg((const uint4*)(w.address + sizeof(Header)) + v) : make_uint4(0, 0, 0, 0);
}

// Takes up a row group, from vector `v` on.
DEVICE void enter(const Args& a, Warp& w, u32 v) {
    const u32 columns = low_half(a, W_COLUMNS), lane = lane_id();
    w.address = lane < columns ? w.group[3 + lane] : 0;
    w.transform = 0;
    if (w.address) w.transform = __ldg(&((const Header*)w.address)->transform);
    w.next = record_at(w, v);
}

// Runs the program for vector `v`, of a row group of `vectors`; the warp's next one is `step` behind it.
DEVICE void one_vector(const Args& a, Warp& w, u32 v, u32 vectors, u32 step, u32 rows) {
    w.v = v;
    w.record = w.next;
    if (v + step < vectors) w.next = record_at(w, v + step);
    bool is_direct = false;
    if (w.address) {
        const u32 width = w.record.y & 255, flags = w.record.y >> 8 & 255;
        const bool is_packed = __ldg(&((const Header*)w.address)->sequence) == PACKED && width <= 32;
        is_direct = w.transform >= VALUES || (is_packed && !(flags & (PATCHED | EXCEPTIONS)) && w.transform != PARTS);
    }
    w.direct = __ballot_sync(ALL, is_direct);
    w.decoded = 0;
    run_vector(a, w, rows - v * 1024 >= 1024 ? ALL : existing(rows - v * 1024));
}

// ---- accumulators ----

// An accumulator, as the program describes it.
struct Accumulator {
    u64 word;
    DEVICE u32 kind() const { return (u32)word & 255; }
    DEVICE u32 at() const { return (u32)(word >> 8) & 0xffff; }      // in words of a group
    DEVICE u32 first() const { return (u32)(word >> 24) & 255; }     // of a field: its lowest bit
    DEVICE u32 bits() const { return (u32)(word >> 32) & 127; }      // and their number
    DEVICE bool is_signed() const { return word >> 39 & 1; }
    DEVICE u32 result() const { return (u32)(word >> 40) & 0xffff; } // its place among the results
};

DEVICE Accumulator accumulator(const Args& a, u32 index) {
    return Accumulator{a.word[low_half(a, W_ACCUMULATORS) + index]};
}

// A field of a word. Negative ones have borrowed from those above.
DEVICE i64 field_in(const Args& a, u32 index, u64 word) {
    const Accumulator own = accumulator(a, index);
    u32 first = index;
    while (first > 0) {
        const Accumulator before = accumulator(a, first - 1);
        if (before.kind() != A_FIELD || before.at() != own.at()) break;
        first--;
    }
    i64 field = 0;
    for (; first <= index; first++) {
        const Accumulator one = accumulator(a, first);
        const u32 bits = one.bits();
        field = one.is_signed() ? (i64)(word << (64 - bits)) >> (64 - bits) : (i64)(word << (64 - bits) >> (64 - bits));
        if (bits < 64) word = (word - (one.is_signed() ? (u64)field : 0)) >> bits;
    }
    return field;
}

DEVICE void clear_kept(const Args& a, const Warp& w) {
    const u32 grouped = high_half(a, W_GROUPED), groups = grouped & 0xffff, words = grouped >> 16;
    const u32 count = high_half(a, W_ACCUMULATORS);
    // threads have a group more, of rows that do not count
    const u32 all = groups + (low_half(a, W_GROUPED) == BY_THREAD);
    for (u32 i = 0; i < all * words; i++) w.kept[i * 32] = 0;
    for (u32 i = 0; i < count; i++) {
        const Accumulator own = accumulator(a, i);
        if (own.kind() != A_MIN && own.kind() != A_MAX) continue;
        for (u32 g = 0; g < all; g++)
            w.kept[(g * words + own.at()) * 32] = (u64)(own.kind() == A_MIN ? greatest<i64>() : least<i64>());
    }
}

// Stores what `warps` warps from this lane's `kept` on have for a group, those of a warp `stride` bytes apart.
OUT_OF_LINE void store_group(const Args& a, const u64* kept, u32 warps, u32 stride, u32 g, u64* to) {
    const u32 words = high_half(a, W_GROUPED) >> 16, count = high_half(a, W_ACCUMULATORS);
    for (u32 i = 0; i < count; i++) {
        const Accumulator own = accumulator(a, i);
        u64* const result = to + 2 * own.result();
        i128 sum = 0;
        i64 best = own.kind() == A_MIN ? greatest<i64>() : least<i64>();
        double floats = 0;
        for (u32 o = 0; o < warps; o++) {
            const u64* from = (const u64*)((const u8*)kept + (u64)o * stride) + (g * words + own.at()) * 32;
            switch (own.kind()) {
            case A_WIDE_SUM: sum += (i128)((u128)from[32] << 64 | from[0]); break;
            case A_FIELD: sum += field_in(a, i, from[0]); break;
            case A_FLOAT_SUM: floats += __longlong_as_double((i64)from[0]); break;
            case A_MIN: best = min(best, (i64)from[0]); break;
            case A_MAX: best = max(best, (i64)from[0]); break;
            default: sum += (i64)from[0];
            }
        }
        switch (own.kind()) {
        case A_FLOAT_SUM: store_sum(result, floats); break;
        case A_MIN: store_min(result, best); break;
        case A_MAX: store_max(result, best); break;
        default: store_sum(result, (u128)sum);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 3) interpret(const __grid_constant__ Args a) {
    DYN_SHARED(u8, shared);
    const u32 warps = high_half(a, W_SCOPE), scope = low_half(a, W_SCOPE), own = threadIdx.x / 32, lane = lane_id();
    const u32 grouped = low_half(a, W_GROUPED), groups = high_half(a, W_GROUPED) & 0xffff;
    const u32 stride = high_half(a, W_COLUMNS), warp_bytes = low_half(a, W_WARP_BYTES);
    const u64 warp = (u64)blockIdx.x * warps + own;
    Warp w;
    w.own = shared + a.word[FIXED_WORDS + W_BLOCK_BYTES] + own * warp_bytes;
    w.scratch = (u8*)a.word[FIXED_WORDS + W_SCRATCH] + warp * a.word[FIXED_WORDS + W_SCRATCH_BYTES];
    w.kept = (u64*)(w.own + low_half(a, W_KEPT_AT)) + lane;
    w.flags = (u32*)(w.own + high_half(a, W_KEPT_AT));
    w.slots = (u64*)((high_half(a, W_SLOTS_AT) ? w.scratch : w.own) + low_half(a, W_SLOTS_AT)) + lane;

    // what a block copies, and its table
    for (u32 i = 0; i < high_half(a, W_COPIES); i++) {
        const u64* words = a.word + low_half(a, W_COPIES) + 3 * i;
        u32* to = (u32*)(shared + words[0]);
        const u32* from = (const u32*)words[2];
        for (u32 k = threadIdx.x; k < words[1]; k += blockDim.x) to[k] = __ldg(from + k);
    }
    const u32 count = high_half(a, W_ACCUMULATORS);
    const u64 table_groups = a.word[FIXED_WORDS + W_GROUPS], entries = a.word[FIXED_WORDS + W_ENTRIES];
    u64* const table = (u64*)(shared + a.word[FIXED_WORDS + W_TABLE_AT]);
    if (grouped == BY_BLOCK) {
        const u32 words = high_half(a, W_GROUPED) >> 16;
        for (u64 i = threadIdx.x; i < words * table_groups; i += blockDim.x) table[i] = 0;
    }
    const bool is_kept = grouped == BY_THREAD || grouped == NOT_GROUPED;
    if (is_kept && scope != OF_SLOT) clear_kept(a, w);
    __syncthreads();

    // a block takes a range of vectors, which its warps share; or warps take slots in turn: a slot is always summed in
    // the same order, whoever does it
    const bool by_slot = scope == OF_SLOT;
    const u64 units = a.word[0], step = by_slot ? (u64)gridDim.x * warps : warps;
    const u64 last = by_slot ? units : units * (blockIdx.x + 1) / gridDim.x;
    w.at = by_slot ? warp : units * blockIdx.x / gridDim.x + own;
    w.group = group_of((const u64*)a.word[1], (u32)a.word[2], stride, w.at < last ? w.at : 0);
    u32 v = by_slot || w.at >= last ? 0 : (u32)(w.at - w.group[0]);
    while (w.at < last) {
        if (by_slot) {
            w.group = group_of((const u64*)a.word[1], (u32)a.word[2], stride, w.at);
            v = (u32)(w.at - w.group[0]) * SLOT_VECTORS;
            clear_kept(a, w);
        }
        const u32 rows = (u32)w.group[1], vectors = (rows + 1023) / 1024;
        const u32 end = by_slot && vectors - v > SLOT_VECTORS ? v + SLOT_VECTORS : vectors;
        if (v < end) enter(a, w, v);
        for (; v < end && w.at < last; v += by_slot ? 1 : warps, w.at += by_slot ? 0 : warps)
            one_vector(a, w, v, vectors, by_slot ? 1 : warps, rows);
        if (by_slot) {
            __syncwarp();
            for (u32 g = 0; g < groups; g++)
                store_group(a, w.kept, 1, 0, g, (u64*)a.word[3] + (w.at * groups + g) * 2 * count);
            __syncwarp();
            w.at += step;
        } else {
            w.group += stride;
            v -= vectors;
        }
    }
    if (by_slot) return;
    if (grouped == ELSEWHERE) return;
    if (is_kept) {
        if (scope == OF_WARP) {
            __syncwarp();
            for (u32 g = 0; g < groups; g++)
                store_group(a, w.kept, 1, 0, g, (u64*)a.word[3] + (warp * groups + g) * 2 * count);
            return;
        }
        __syncthreads();
        const u64* first = (const u64*)((const u8*)w.kept - own * warp_bytes);
        for (u32 g = own; g < groups; g += warps)
            store_group(a, first, warps, warp_bytes, g, (u64*)a.word[3] + ((u64)blockIdx.x * groups + g) * 2 * count);
        return;
    }
    __syncthreads();
    u64* const merged = (u64*)a.word[3];
    for (u64 g = threadIdx.x; g < table_groups; g += blockDim.x) {
        // the first accumulator counts rows
        if (!table[g]) continue;
        for (u32 i = 0; i < count; i++) {
            const Accumulator one = accumulator(a, i);
            const u64 at = one.kind() == A_WIDE_SUM ? 2 * g : g;
            const u64* from = table + one.at() * table_groups + at;
            u64* to = merged + one.at() * entries + at;
            switch (one.kind()) {
            case A_WIDE_SUM: add_wide(to, wide_at(from)); break;
            case A_FLOAT_SUM: add(to, __longlong_as_double((i64)*from)); break;
            case A_RAISE: raise(to, *from); break;
            default: add(to, *from);
            }
        }
    }
}
