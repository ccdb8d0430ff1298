// Values of ORC's run-length encodings: a warp decodes a part of a stream, which starts with a run, window by window.
// `window.cuh` finds the runs. 32 of them are decoded at a time, each by a lane. Their lengths are summed: each value of
// each lane then finds its run by its place, and goes to memory beside those of the other lanes. If all runs are short, a
// lane writes those of its own run to shared memory instead, from where they all go to memory together.
//
// `Value` is the type of the values.

struct Args { u64 word[4]; };

enum { NO_NEXT = 0xffffffff };

// Whether a part meets the next one.
struct Meeting {
    u32 byte, values;
    bool is_met;

    DEVICE void at(u32 at_byte, u64 at_values) { is_met |= at_byte == byte && at_values == values; }
    // What is wrong if nothing else is.
    DEVICE u32 fault() const { return __any_sync(ALL, is_met || byte == NO_NEXT) ? NO_FAULT : MISPLACED; }
};

static_assert(sizeof(Window) == (VARINTS ? (u32)VARINT_WINDOW_BYTES : (u32)WINDOW_BYTES),
              "those who launch ask for so many bytes a warp");

enum { SHORT_RUN = 16 };
// Values of a long run that a lane reads before it writes them.
enum { TOGETHER = 4 };

struct Output {
    Value* to;
    u32 skip, count;

    DEVICE void put(u64 at, u64 value, u32& fault) const {
        if (at < skip || at - skip >= count) return;
        to[at - skip] = (Value)value;
        if ((u64)(Value)value != value) fault = WIDE_VALUE;
    }
};

// Writes the values of runs, one a lane, all short: `limit` values in all, to `to`. These fit `w.values`.
DEVICE void write_short(Window& w, const Format& format, const u8* bytes, Run run, u32 before, u32 limit, Value* to,
                        u32& fault) {
    // they lie there as they do in memory, so that words are words
    const u32 lane = lane_id(), skipped = (u32)(u64)to % 8 / sizeof(Value);
    Value* const values = (Value*)w.values + skipped;
    const u32 own = before < limit ? min(run.count, limit - before) : 0;
    const auto put = [&](u32 k, u64 value) {
        values[before + k] = (Value)value;
        if ((u64)(Value)value != value) fault = WIDE_VALUE;
    };
    if (run.kind == LINE) {
#pragma unroll 1
        for (u32 k = 0; k < own; k++, run.base += run.delta) put(k, run.base);
    } else {
        u32 at = (u32)run.base;
#pragma unroll 1
        for (u32 k = 0; k < own; k++) put(k, format.take(w, bytes, at, (u32)run.delta, k, fault));
    }
    __syncwarp();
    const u32 in_word = 8 / sizeof(Value), head = min((in_word - skipped) % in_word, limit);
    const u32 words = (limit - head) / in_word, tail = head + words * in_word;
    if (lane < head) to[lane] = values[lane];
#pragma unroll 1
    for (u32 i = lane; i < words; i += 32) ((u64*)(to + head))[i] = ((u64*)(values + head))[i];
    if (tail + lane < limit) to[tail + lane] = values[tail + lane];
    __syncwarp();
}

// Writes the values of runs, one a lane, `done` values behind the start: up to `limit`, and all of those that are WHOLE.
DEVICE void write_runs(Window& w, const Format& format, const u8* bytes, const Run& run, u32 run_at, u32 before,
                       u64 done, u32 limit, const Output& out, u32& fault) {
    const bool is_short = run.count <= SHORT_RUN && run.kind != WHOLE || before >= limit;
    if (done >= out.skip && limit * sizeof(Value) <= EXIT_BYTES - 8 && __all_sync(ALL, is_short)) {
        write_short(w, format, bytes, run, before, limit, out.to + (done - out.skip), fault);
        return;
    }
    u32 lanes = 0;
    for (u32 first = 0; first < limit; first += 32) {
        const u32 at = first + lane_id();
        // 0 for runs that start elsewhere
        const u32 starts = __reduce_or_sync(ALL, __funnelshift_lc(0, 1, before - first));
        const u32 of = lanes + __popc(starts & ((2u << lane_id()) - 1)) - 1;
        lanes += __popc(starts);
        const u32 k = at - __shfl_sync(ALL, before, of), kind = __shfl_sync(ALL, run.kind, of);
        const u64 base = __shfl_sync(ALL, run.base, of), delta = __shfl_sync(ALL, run.delta, of);
        if (at >= limit || kind == WHOLE) continue;
        const u64 value = kind == LINE ? base + delta * k : format.listed(w, bytes, base, delta, k, fault);
        out.put(done + at, value, fault);
    }
    for (u32 left = __ballot_sync(ALL, run.kind == WHOLE && before < limit); left; left &= left - 1) {
        const u32 of = __ffs((int)left) - 1;
        const u64 start = done + __shfl_sync(ALL, before, of);
        u32 faults = NO_FAULT;
        format.each_of_whole(w, bytes, __shfl_sync(ALL, run_at, of), faults,
                             [&](u32 k, u64 value) { out.put(start + k, value, fault); });
        if (faults) fault = faults;
    }
}

DEVICE u32 decode_part(const DecodePart& part, u32 bytes_left, Window& w) {
    const u8* stream = global<const u8>(part.from);
    const Output out = {global<Value>(part.to), part.skip, part.count};
    const u64 wanted = (u64)part.skip + part.count;
    Meeting meeting = {part.next_byte, part.next_values, false};
    Format format;
    u64 done = 0;
    u32 fault = NO_FAULT;
    for (u32 at = 0;;) {
        if (Format::IS_LIST || format.carried == 0) meeting.at(at, done);
        if (done >= wanted) break;
        const u32 left = bytes_left - at;
        if (at >= bytes_left) return STREAM_ENDS;
        const u8* from = stream + at;
        Run alone;
        if (const u32 bytes = format.alone(from, left, alone)) {
            const u32 limit = (u32)min((u64)alone.count, wanted - done);
            // memory answers late: several values are asked for before the first is written
#pragma unroll 1
            for (u32 first = lane_id(); first < limit; first += 32 * TOGETHER) {
                u64 values[TOGETHER];
#pragma unroll
                for (u32 i = 0; i < TOGETHER; i++) {
                    const u32 k = min(first + 32 * i, limit - 1);
                    values[i] = format.listed(w, from, alone.base, alone.delta, k, fault);
                }
#pragma unroll
                for (u32 i = 0; i < TOGETHER; i++) {
                    if (first + 32 * i < limit) out.put(done + first + 32 * i, values[i], fault);
                }
            }
            done += alone.count;
            at += bytes;
            continue;
        }
        const u32 first = (u32)(u64)from & 15;
        const u8* bytes = from - first;
        // a run has far fewer bytes
        const u32 last = first + min(left, 1u << 16);
        Own own = load(w, (const uint4*)bytes, first, last);
        u32 after = format.prepare(w, own, first, last), starts = 0;
        const u32 start = after;
        if (start < WINDOW) {
            starts = starts_of(w, start, min(last, (u32)WINDOW), after, [&](u32 k) { return format.next(w, own, k); });
        }
        const u32 runs = list_starts(w, starts, format.carried > 0);
        u32 first_run = 0, limit = 0;
        for (; first_run < runs && done < wanted; first_run += 32) {
            const u32 number = first_run + lane_id(), run_at = w.starts[min(number, runs - 1)];
            Run run = format.run(w, own, run_at == BEYOND ? 0 : run_at);
            if (run_at == BEYOND) run = format.rest(first);
            if (number >= runs) run = run_of(0, LINE, 0, 0, NO_FAULT);
            const u32 before = sum_before(run.count), count = __shfl_sync(ALL, before + run.count, 31);
            limit = (u32)min((u64)count, wanted - done);
            if (number < runs && run_at != BEYOND) meeting.at(at + run_at - first, done + before);
            if (before < limit || (run.count == 0 && before == 0)) fault = max(fault, run.fault);
            if (const u32 any = __reduce_max_sync(ALL, fault)) return any;
            write_runs(w, format, bytes, run, run_at, before, done, limit, out, fault);
            done += Format::IS_LIST ? limit : count;
        }
        if (const u32 any = __reduce_max_sync(ALL, fault)) return any;
        if (first_run < runs) {
            meeting.at(at + w.starts[first_run] - first, done);
            break;
        }
        const u32 next = format.carry(w, own, w.starts[runs - 1], after, limit);
        if (next == BEYOND || next <= first) {
            if (done < wanted) return RUN_ENDS;
            break;
        }
        at += next - first;
    }
    fault = __reduce_max_sync(ALL, fault);
    return fault ? fault : meeting.fault();
}

// Parts, how many there are, a word for the fault of each, and what `inflate` says of chunks.
extern "C" __global__ void decode_runs(const Args a) {
    DYN_SHARED(Window, windows);
    Window& w = windows[threadIdx.x / 32];
    const u64 warps = (u64)gridDim.x * (blockDim.x / 32);
    for (u64 i = (u64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; i < a.word[1]; i += warps) {
        const DecodePart part = global<const DecodePart>(a.word[0])[i];
        const i32 of_last = part.last ? (i32)global<const Inflated>(a.word[3])[part.last - 1].written : 0;
        const u32 fault = decode_part(part, (u32)max(part.bytes + of_last, 0), w);
        if (lane_id() == 0) global<u32>(a.word[2])[i] = fault;
    }
}
