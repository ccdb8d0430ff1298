// The interpreter: runs a program over the vectors of columns, a warp a vector. `src/program.rs` defines programs.

// ---- a vector ----

// True if so few rows are selected that a body picks them, if it may.
DEVICE bool are_few(u32 m) { return __reduce_add_sync(ALL, (u32)__popc(m)) <= PICKED_ROWS; }

// Runs a body of row instructions for the selected rows. `picks`: few rows may be taken in any order.
DEVICE u32 run_body(const Args& a, Warp& w, u32 pc, u32 end, u32 m, bool picks) {
    u32 mask = 0;
    if (is_wide(a)) {
        // each lane's rows, one at a time
#pragma unroll 1
        for (u32 left = m; __any_sync(ALL, left); left &= left - 1) {
            const u32 r = left ? __ffs((int)left) - 1 : 0;
            Batch<1, true> rows;
            rows.in = left != 0;
            rows.batch = 0;
            rows.id[0] = r * 32 + lane_id();
            u32 own_mask = 0;
            run_rows<i128>(a, w, rows, pc, end, own_mask);
            mask |= (own_mask & 1) << r;
        }
        return mask;
    }
    if (picks && are_few(m)) {
        const u32 own = (u32)__popc(m);
        // the selected rows' numbers, lane by lane
        u16* const list = (u16*)tile_at(a) - LIST_BYTES / 2;
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
            run_rows<i64>(a, w, rows, pc, end, mask);
        }
        __syncwarp();
        return 0;
    }
#pragma unroll 1
    for (u32 batch = 0; batch < 32 / DENSE_ROWS; batch++) {
        Batch<DENSE_ROWS, false> rows;
        rows.in = m >> batch * DENSE_ROWS & ((1u << DENSE_ROWS) - 1);
        rows.batch = batch;
        if (!__any_sync(ALL, rows.in)) continue;
        u32 own_mask = 0;
        run_rows<i64>(a, w, rows, pc, end, own_mask);
        mask |= (own_mask & ((1u << DENSE_ROWS) - 1)) << batch * DENSE_ROWS;
    }
    return mask;
}

// The rows of a column that are not null.
DEVICE u32 valid_in(const Warp& w, u32 column) { return valid_rows(cursor(w, column)); }

// Writes the length of each selected string of a column, or its code if it is one of a dictionary, from `place` on; and
// whether it is valid, where some are not. Sets the sum of the vector's lengths.
DEVICE void write_lengths(const Args& a, const Warp& w, u32 column, bool is_nullable, u32 selected, u64 place) {
    const Cursor c = cursor(w, column);
    u32* const lengths = (u32*)((const u64*)a.word[3])[0];
    u8* const valid = (u8*)((const u64*)a.word[3])[1];
    u64* const sums = (u64*)((const u64*)a.word[3])[2];
    const About of = about(w, column);
    const bool is_text = of.transform() == TEXT;
    const Lengths of_text{c.at(c.line) + 144, c.width};
    const u32 m = transpose(selected), valid_in_lane = is_nullable ? valid_rows(c) : ALL;
    place += sum_before((u32)__popc(selected));
    u64 bytes = 0;
#pragma unroll 1
    for (u32 batch = 0; batch < 32 / DENSE_ROWS; batch++) {
        Batch<DENSE_ROWS, false> rows;
        rows.in = m >> batch * DENSE_ROWS & ((1u << DENSE_ROWS) - 1);
        rows.batch = batch;
        u64 x[DENSE_ROWS];
        if (is_text) {
#pragma unroll
            for (u32 k = 0; k < DENSE_ROWS; k++) x[k] = rows.in >> k & 1 ? of_text.of(rows.row(k)) : 0;
        } else {
            rows.entries(a, w, c, column, of, 0, x);
        }
#pragma unroll
        for (u32 k = 0; k < DENSE_ROWS; k++) {
            const u32 r = batch * DENSE_ROWS + k, word = __shfl_sync(ALL, selected, r);
            const u64 to = __shfl_sync(ALL, place, r) + __popc(word & ((1u << lane_id()) - 1));
            if (!(rows.in >> k & 1)) continue;
            lengths[to] = (u32)x[k];
            if (is_nullable) valid[to] = valid_in_lane >> r & 1;
            if (is_text) bytes += x[k];
        }
    }
    const u64 before = sum_before(bytes);
    if (lane_id() == 31) sums[w.group[0] + w.v] = before + bytes;
}

// Whether a test reads a column that is not packed row by row. Tests of runs do not.
DEVICE bool needs_decoding(const Args& a, const Warp& w, const Instruction& i) {
    const u32 column = i.a();
    if (w.direct >> column & 1) return false;
    const bool has_runs = __ldg(&cursor(w, column).header()->sequence) == RUNS;
    const u32 transform = transform_of(w, column);
    if (!has_runs || transform > CODES) return true;
    return i.op() == V_RANGE ? transform == CODES && i.d() & TEST_BITS : i.d();
}

// True if rows of a column can be read in its runs: those of integers or codes.
DEVICE bool has_readable_runs(const Warp& w, u32 column) {
    const Cursor c = cursor(w, column);
    const bool has_runs = __ldg(&c.header()->sequence) == RUNS && !(c.flags & (PATCHED | EXCEPTIONS));
    return has_runs && transform_of(w, column) <= CODES;
}

// ---- columns of a row group ----

DEVICE uint4 record_at(const Warp& w, u32 v) {
    return w.address ? __ldg((const uint4*)(w.address + sizeof(Header)) + v) : make_uint4(0, 0, 0, 0);
}

// Takes up so many columns, a lane each: words from `first` on describe them.
DEVICE void take_up(const Args& a, Warp& w, u32 first, u32 columns) {
    w.address = 0;
    w.about = 0;
    if (lane_id() >= columns) return;
    const u64 word = a.word[first + lane_id()];
    w.address = w.group[3 + (word >> 32)];
    w.about = (u32)word;
    if (w.address) w.about |= __ldg(&((const Header*)w.address)->transform);
}

// Notes which of the columns are read where they are, by their records; none is decoded.
DEVICE void look(Warp& w) {
    bool is_direct = false;
    if (w.address) {
        const u32 width = w.record.y & 255, flags = w.record.y >> 8 & 255, transform = About{w.about}.transform();
        const bool is_packed = __ldg(&((const Header*)w.address)->sequence) == PACKED && width <= 32;
        is_direct = transform >= VALUES || (is_packed && !(flags & (PATCHED | EXCEPTIONS)) && transform != PARTS);
    }
    w.direct = __ballot_sync(ALL, is_direct);
    w.decoded = w.in_runs = 0;
}

// ---- vectors ----

DEVICE void run_vector(const Args& a, Warp& w, u32 m) {
    u32 t = 0;
    DYN_SHARED(u8, shared);
    Instruction next = instruction(a, 0);
#pragma unroll 1
    for (u32 pc = 0;; pc++) {
        const Instruction i = next;
        // behind the last one is a word of the program's, too
        next = instruction(a, pc + 1);
        const u32 op = i.op();
        PackedLookup packed{false, 0, 0, (const u32*)0};
        bool decodes = op == V_LENGTHS || ((op == V_RANGE || op == V_FOUND) && needs_decoding(a, w, i));
        if (op == V_DECODE) {
            decodes = !i.b() || is_wide(a) || !are_few(m) || !has_readable_runs(w, i.a());
            if (!decodes) w.in_runs |= 1u << i.a();
        }
        if (decodes) decode(a, w, i.a());
        switch (op) {
        case V_END: return;
        case V_ALL: t = ALL; break;
        case V_NOTHING: t = 0; break;
        case V_VALID: t = valid_in(w, i.a()); break;
        case V_NOT: t = ~t; break;
        case V_KEEP: set_flag(a, i.b(), t); break;
        case V_AND: t &= flag_of(a, i.b()); break;
        case V_OR: t |= flag_of(a, i.b()); break;
        case V_RANGE: {
            const u64 test = i.c() == NONE ? 0 : __ldg(w.group + i.c());
            t = in_range(a, w, i.a(), i.b(), test, i.d(), m, packed);
            break;
        }
        case V_FOUND: {
            const u32* copy = i.c() == NONE ? (const u32*)0 : (const u32*)(shared + a.word[i.c()]);
            u32 rows = m;
            if (i.d()) rows &= valid_in(w, i.a());
            t = found(a, w, i.a(), w.group + i.b(), copy, i.d(), rows, packed);
            break;
        }
        case V_WHERE:
        case V_LOOP:
            t = run_body(a, w, pc + 1, i.b(), m, i.a());
            pc = i.b() - 1;
            next = instruction(a, i.b());
            break;
        case V_FILTER:
            m &= t;
            if (!__any_sync(ALL, m)) return;
            break;
        case V_COLUMNS:
            take_up(a, w, i.b(), i.a());
            w.record = record_at(w, w.v);
            look(w);
            break;
        case V_FETCH: {
            const Cursor c = cursor(w, i.a());
            if (w.direct >> i.a() & 1 && lane_id() < c.width) fetch(c.bytes + ((u64)c.line + lane_id()) * 128);
            break;
        }
        case V_DECODE: break;
        case V_COUNT: kept_at(a)[i.b() * 32] += (u32)__popc(m & flag_of(a, i.c())); break;
        case V_MASKS: {
            const u64 at = w.group[0] + w.v;
            const u32 selected = transpose(m), count = __reduce_add_sync(ALL, (u32)__popc(m));
            ((u32*)a.word[4])[at * 32 + lane_id()] = selected;
            if (lane_id() == 0) ((u64*)a.word[5])[at] = count;
            break;
        }
        case V_SELECTED: {
            const u64 at = w.group[0] + w.v;
            const u32 selected = __ldg((const u32*)a.word[4] + at * 32 + lane_id());
            if (!__any_sync(ALL, selected)) return;
            m = transpose(selected);
            const u64 place = ((const u64*)a.word[5])[at] + sum_before((u32)__popc(selected));
            set_flag(a, 0, selected);
            set_flag(a, 1, (u32)place);
            set_flag(a, 2, (u32)(place >> 32));
            break;
        }
        case V_LENGTHS: {
            const u64 at = w.group[0] + w.v;
            const u32 selected = a.word[4] ? __ldg((const u32*)a.word[4] + at * 32 + lane_id()) : transpose(m);
            if (!__any_sync(ALL, selected)) return;
            write_lengths(a, w, i.a(), i.d(), selected, ((const u64*)a.word[5])[at]);
            break;
        }
        case V_EVERY: {
            const u64 place = w.group[2] + (u64)w.v * 1024 + lane_id();
            set_flag(a, 1, (u32)place);
            set_flag(a, 2, (u32)(place >> 32));
            break;
        }
        default: return;
        }
        if (packed.is_needed) t = found_packed(cursor(w, i.a()), m, packed.start, packed.places, packed.bits);
    }
}

// Takes up a row group, from vector `v` on.
DEVICE void enter(const Args& a, Warp& w, u32 v) {
    take_up(a, w, low_half(a, W_CODE), low_half(a, W_COLUMNS));
    w.next = record_at(w, v);
}

// Runs the program for vector `v`, of a row group of `vectors`; the warp's next one is `step` behind it.
DEVICE void one_vector(const Args& a, Warp& w, u32 v, u32 vectors, u32 step, u32 rows) {
    w.v = v;
    w.record = w.next;
    if (v + step < vectors) w.next = record_at(w, v + step);
    look(w);
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
DEVICE i128 field_in(const Args& a, u32 index, u64 word) {
    const Accumulator own = accumulator(a, index);
    u32 first = index;
    while (first > 0) {
        const Accumulator before = accumulator(a, first - 1);
        if (before.kind() != A_FIELD || before.at() != own.at()) break;
        first--;
    }
    i128 field = 0;
    for (; first <= index; first++) {
        const Accumulator one = accumulator(a, first);
        const u32 bits = one.bits();
        const u64 top = word << (64 - bits);
        field = one.is_signed() ? (i128)((i64)top >> (64 - bits)) : (i128)(top >> (64 - bits));
        if (bits < 64) word = (word - (one.is_signed() ? (u64)field : 0)) >> bits;
    }
    return field;
}

DEVICE void clear_kept(const Args& a) {
    u64* const kept = kept_at(a);
    const u32 grouped = high_half(a, W_GROUPED), groups = grouped & 0xffff, words = grouped >> 16;
    const u32 count = high_half(a, W_ACCUMULATORS);
    // threads have a group more, of rows that do not count
    const u32 all = groups + (low_half(a, W_GROUPED) == BY_THREAD);
    for (u32 i = 0; i < all * words; i++) kept[i * 32] = 0;
    for (u32 i = 0; i < count; i++) {
        const Accumulator own = accumulator(a, i);
        for (u32 g = 0; g < all; g++) {
            u64* const to = kept + (g * words + own.at()) * 32;
            switch (own.kind()) {
            case A_MIN: set_number(to, 32, greatest<i64>()); break;
            case A_MAX: set_number(to, 32, least<i64>()); break;
            case A_WIDE_MIN: set_number(to, 32, greatest<i128>()); break;
            case A_WIDE_MAX: set_number(to, 32, least<i128>()); break;
            }
        }
    }
}

// Stores what `warps` warps from this lane's `kept` on have for a group, those of a warp `stride` bytes apart.
DEVICE void store_group(const Args& a, const u64* kept, u32 warps, u32 stride, u32 g, u64* to) {
    const u32 words = high_half(a, W_GROUPED) >> 16, count = high_half(a, W_ACCUMULATORS);
    for (u32 i = 0; i < count; i++) {
        const Accumulator own = accumulator(a, i);
        u64* const result = to + 2 * own.result();
        i128 sum = 0;
        i128 least_value = greatest<i128>(), greatest_value = least<i128>();
        double floats = 0;
        for (u32 o = 0; o < warps; o++) {
            const u64* from = (const u64*)((const u8*)kept + (u64)o * stride) + (g * words + own.at()) * 32;
            switch (own.kind()) {
            case A_WIDE_SUM: sum += number_at<i128>(from, 32); break;
            case A_FIELD: sum += field_in(a, i, from[0]); break;
            case A_FLOAT_SUM: floats += __longlong_as_double((i64)from[0]); break;
            case A_MIN:
            case A_WIDE_MIN: {
                const i128 value = own.kind() == A_MIN ? (i128)(i64)from[0] : number_at<i128>(from, 32);
                if (value < least_value) least_value = value;
                break;
            }
            case A_MAX:
            case A_WIDE_MAX: {
                const i128 value = own.kind() == A_MAX ? (i128)(i64)from[0] : number_at<i128>(from, 32);
                if (value > greatest_value) greatest_value = value;
                break;
            }
            default: sum += (i64)from[0];
            }
        }
        switch (own.kind()) {
        case A_FLOAT_SUM: store_sum(result, floats); break;
        case A_MIN:
        case A_WIDE_MIN: store_min(result, least_value); break;
        case A_MAX:
        case A_WIDE_MAX: store_max(result, greatest_value); break;
        default: store_sum(result, (u128)sum);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) interpret(const __grid_constant__ Args a) {
    DYN_SHARED(u8, shared);
    const u32 warps = high_half(a, W_SCOPE), scope = low_half(a, W_SCOPE), own = threadIdx.x / 32;
    const u32 grouped = low_half(a, W_GROUPED), groups = high_half(a, W_GROUPED) & 0xffff;
    const u32 stride = high_half(a, W_COLUMNS);
    const u64 warp = (u64)blockIdx.x * warps + own;
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
    if (is_kept && scope != OF_SLOT) clear_kept(a);
    __syncthreads();

    // a block takes a range of vectors, which its warps share; or warps take slots in turn: a slot is always summed in
    // the same order, whoever does it
    const bool by_slot = scope == OF_SLOT;
    const u64 units = a.word[0], last = by_slot ? units : units * (blockIdx.x + 1) / gridDim.x;
    u64 at = by_slot ? warp : units * blockIdx.x / gridDim.x + own;
    Warp w;
    w.group = group_of((const u64*)a.word[1], (u32)a.word[2], stride, at < last ? at : 0);
    u32 v = by_slot || at >= last ? 0 : (u32)(at - w.group[0]);
    for (bool is_done = false; !is_done;) {
        is_done = at >= last;
        if (!is_done) {
            if (by_slot) {
                w.group = group_of((const u64*)a.word[1], (u32)a.word[2], stride, at);
                v = (u32)(at - w.group[0]) * SLOT_VECTORS;
                clear_kept(a);
            }
            const u32 rows = (u32)w.group[1], vectors = (rows + 1023) / 1024, step = by_slot ? 1 : warps;
            const u64 left = by_slot ? v + SLOT_VECTORS : last - w.group[0];
            const u32 end = left < vectors ? (u32)left : vectors;
            if (v < end) enter(a, w, v);
            const u32 start = v;
            for (; v < end; v += step) one_vector(a, w, v, vectors, step, rows);
            if (!by_slot) {
                at += v - start;
                v -= vectors;
                w.group += stride;
            }
        }
        // accumulators of threads: of a slot when it is done, of a warp or a block at the end
        if (!is_kept || is_done == by_slot) continue;
        const bool of_block = scope == OF_BLOCK;
        if (of_block) __syncthreads();
        else __syncwarp();
        const u64 number = by_slot ? at : of_block ? blockIdx.x : warp;
        const u32 bytes = low_half(a, W_WARP_BYTES);
        const u64* from = (const u64*)((const u8*)kept_at(a) - (of_block ? own * bytes : 0));
        for (u32 g = of_block ? own : 0; g < groups; g += of_block ? warps : 1)
            store_group(a, from, of_block ? warps : 1, bytes, g, (u64*)a.word[3] + (number * groups + g) * 2 * count);
        __syncwarp();
        if (by_slot) at += (u64)gridDim.x * warps;
    }
    if (grouped != BY_BLOCK) return;
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
