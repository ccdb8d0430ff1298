// Instructions of rows: a machine with one accumulator, whose operands are columns, arguments and slots. All K rows of
// a lane are in registers, so that an instruction is decoded once for 32 * K rows of a warp. Numbers are of a type X: i64,
// or i128 in wide programs.

template <class X> struct Number;
template <> struct Number<i64> {
    typedef u64 Unsigned;
    typedef u64 Read;  // what columns are read as
    static const bool IS_WIDE = false;
};
template <> struct Number<i128> {
    typedef u128 Unsigned;
    typedef i128 Read;
    static const bool IS_WIDE = true;
};

// A number in words of a thread or an argument, `step` words apart.
template <class X> DEVICE X number_at(const u64* words, u32 step) {
    if constexpr (Number<X>::IS_WIDE) return (X)((u128)words[step] << 64 | words[0]);
    else return (X)words[0];
}
template <class X> DEVICE void set_number(u64* words, u32 step, X x) {
    words[0] = (u64)x;
    if constexpr (Number<X>::IS_WIDE) words[step] = (u64)((u128)x >> 64);
}

struct Instruction {
    u64 word;
    DEVICE u32 op() const { return (u32)word & 255; }
    DEVICE u32 a() const { return (u32)word >> 8 & 255; }
    DEVICE u32 b() const { return (u32)word >> 16; }
    DEVICE u32 c() const { return (u32)(word >> 32) & 0xffff; }
    DEVICE u32 d() const { return (u32)(word >> 48); }
};

DEVICE Instruction instruction(const Args& a, u32 pc) {
    return Instruction{a.word[high_half(a, W_CODE) + pc]};
}

// A quotient; 0 of divisors 0 and -1, which only rows that do not count may have.
template <class X> DEVICE X quotient(X x, X y) { return (typename Number<X>::Unsigned)y + 1 > 1 ? x / y : 0; }

// Says so if a sum, a difference or a product does not fit 64 bits.
template <u32 K> DEVICE void check(const Args& a, u32 op, u32 in, const i64 x[K], const i64 y[K]) {
    u32 bad = 0;
#pragma unroll
    for (u32 k = 0; k < K; k++) {
        const i128 p = x[k], q = y[k], result = op == R_MULTIPLY ? p * q : op == R_ADD ? p + q : p - q;
        bad |= (u32)(result != (i128)(i64)result) << k;
    }
    if (bad & in) overflows(a);
}

template <class X> DEVICE X wrapped(X x, u32 type) {
    switch (type) {
    case T_BOOL:
    case T_U8: return (u8)x;
    case T_I8: return (i8)x;
    case T_U16: return (u16)x;
    case T_I16: return (i16)x;
    case T_U32: return (u32)x;
    case T_I32: return (i32)x;
    case T_U64: return (X)(u64)x;
    case T_I64: return (i64)x;
    default: return x;
    }
}

template <class T> DEVICE T with_made_nan(T result, T a, T b);
#if defined(MADE_NAN_IS_NEGATIVE)
template <> DEVICE double with_made_nan(double result, double a, double b) {
    return with_nan(result, a, b, __longlong_as_double((i64)0xfff8000000000000ull));
}
template <> DEVICE float with_made_nan(float result, float a, float b) {
    return with_nan(result, a, b, __int_as_float((i32)0xffc00000));
}
#else
template <> DEVICE double with_made_nan(double result, double a, double b) {
    return with_nan(result, a, b, __longlong_as_double(0x7ff8000000000000ll));
}
template <> DEVICE float with_made_nan(float result, float a, float b) {
    return with_nan(result, a, b, __int_as_float(0x7fc00000));
}
#endif

template <class T> DEVICE T computed(u32 operation, T a, T b) {
    switch (operation) {
    case 0: return with_made_nan(a + b, a, b);
    case 1: return with_made_nan(a - b, a, b);
    default: return operation == 2 ? with_made_nan(a * b, a, b) : with_made_nan(a / b, a, b);
    }
}

DEVICE i64 part_of_date(u32 part, i64 x) {
    switch (part) {
    case 0: return year_of((i32)x);
    case 1: return quarter_of((i32)x);
    case 2: return month_of((i32)x);
    case 3: return day_of((i32)x);
    case 4: return day_of_week_of((i32)x);
    case 5: return day_of_year_of((i32)x);
    default: {
        const i64 all = part == 6 ? 86400 : part == 7 ? 3600 : 60, step = part == 6 ? 3600 : part == 7 ? 60 : 1;
        return (x % all + all) % all / step;
    }
    }
}

template <class X> DEVICE X converted(u32 conversion, X x) {
    switch (conversion) {
    case TO_DOUBLE: return (i64)bits_of((double)x);
    case TO_FLOAT: return (i64)bits_of((float)x);
    case WIDEN: return (i64)bits_of(widened(__int_as_float((i32)x)));
    case NARROW: return (i64)bits_of(narrowed(__longlong_as_double((i64)x)));
    default: return rounded<X>(__longlong_as_double((i64)x));
    }
}

// The code at a place of a table, in so many bytes: 0 if there is only one.
template <class T> DEVICE u32 any_code_at(const T& t, u32 place, u32 bytes) {
    switch (bytes) {
    case 0: return is_there(t, place) ? 0u : ALL;
    case 1: return code_at<u8>(t, place);
    case 2: return code_at<u16>(t, place);
    default: return code_at<u32>(t, place);
    }
}

template <class T, u32 K, class X> DEVICE void store_as(u64 address, u32 in, const u64* to, const X x[K]) {
#pragma unroll
    for (u32 k = 0; k < K; k++)
        if (in >> k & 1) ((T*)address)[to[k * 32]] = (T)x[k];
}

// Writes values of a type.
template <u32 K, class X> DEVICE void write_at(u64 address, u32 type, u32 in, const u64* to, const X x[K]) {
    switch (type) {
    case T_BOOL:
    case T_U8:
    case T_I8: return store_as<u8, K, X>(address, in, to, x);
    case T_U16:
    case T_I16: return store_as<u16, K, X>(address, in, to, x);
    case T_U32:
    case T_I32:
    case T_F32: return store_as<u32, K, X>(address, in, to, x);
    case T_I128: return store_as<i128, K, X>(address, in, to, x);
    default: return store_as<u64, K, X>(address, in, to, x);
    }
}

// Adds a value, or 1, to words of a thread, for each of these rows; `kept` has where.
template <u32 K, class X, class F> DEVICE void add_to_kept(u32 kind, u32 first, u32 in, const X x[K], F kept) {
    const bool is_count = kind & ONE;
    const auto each = [&](auto add_to) {
#pragma unroll
        for (u32 k = 0; k < K; k++)
            if (in >> k & 1) add_to(kept(k), is_count ? (X)1 : x[k]);
    };
    switch (kind & (ONE - 1)) {
    case A_WIDE_SUM:
        return each([](u64* to, X y) {
            const u64 before = to[0], sum = before + (u64)y;
            to[0] = sum;
            to[32] += (u64)((i128)y >> 64) + (sum < before);
        });
    case A_FLOAT_SUM:
        return each([](u64* to, X y) {
            to[0] = bits_of(__longlong_as_double((i64)to[0]) + __longlong_as_double((i64)y));
        });
    case A_MIN:
        return each([](u64* to, X y) {
            if ((i64)y < (i64)to[0]) to[0] = (u64)y;
        });
    case A_MAX:
        return each([](u64* to, X y) {
            if ((i64)y > (i64)to[0]) to[0] = (u64)y;
        });
    case A_WIDE_MIN:
    case A_WIDE_MAX:
        if constexpr (Number<X>::IS_WIDE) {
            return each([=](u64* to, X y) {
                const X before = number_at<X>(to, 32);
                if (kind == A_WIDE_MIN ? y < before : y > before) set_number(to, 32, y);
            });
        }
        return;
    default: return each([=](u64* to, X y) { to[0] += (u64)y << first; });
    }
}

// A count of rounds, in two flags.
DEVICE u64 round_in(const Args& a, u32 flag) { return (u64)flag_of(a, flag + 1) << 32 | flag_of(a, flag); }

// Runs instructions from `pc` up to `end`. `mask` gets the rows that R_MASK tells, a bit of each row of the batch.
template <class X, u32 K, bool PICKED>
DEVICE void run_rows(const Args& a, Warp& w, Batch<K, PICKED>& rows, u32 pc, u32 end, u32& mask) {
    typedef typename Number<X>::Unsigned U;
    typedef typename Number<X>::Read Read;
    X x[K];
    u32 t = 0, valid = ALL;
#pragma unroll
    for (u32 k = 0; k < K; k++) x[k] = 0;
    // the next instruction is on its way while one runs
    Instruction next = instruction(a, pc);
#pragma unroll 1
    for (; pc < end; pc++) {
        const Instruction i = next;
        next = instruction(a, pc + 1);
        const u32 op = i.op();
        if (op <= R_AVERAGE) {
            X y[K];
            u32 others = ALL;
            const u32 from = i.a() & (CHECKED - 1);
            if (from == FROM_COLUMN || from == FROM_KEYS) {
                rows.values(a, w, i.b(), from == FROM_KEYS, (Read*)y);
                others = rows.bits(a, i.c());
            } else if (from == FROM_ARGUMENT) {
                const X argument = number_at<X>(a.word + i.b(), 1);
#pragma unroll
                for (u32 k = 0; k < K; k++) y[k] = argument;
            } else {
                const u64* slot = slot_at(a, i.b());
#pragma unroll
                for (u32 k = 0; k < K; k++) y[k] = number_at<X>(slot + k * 32, K * 32);
                others = flag_of(a, i.c());
            }
            valid &= others;
            if constexpr (!Number<X>::IS_WIDE) {
                if (i.a() & CHECKED) check<K>(a, op, rows.in & valid, x, y);
            }
            switch (op) {
            case R_SET:
                valid = others;
#pragma unroll
                for (u32 k = 0; k < K; k++) x[k] = y[k];
                break;
            case R_ADD:
#pragma unroll
                for (u32 k = 0; k < K; k++) x[k] = (X)((U)x[k] + (U)y[k]);
                break;
            case R_SUBTRACT:
#pragma unroll
                for (u32 k = 0; k < K; k++) x[k] = (X)((U)x[k] - (U)y[k]);
                break;
            case R_MULTIPLY:
#pragma unroll
                for (u32 k = 0; k < K; k++) x[k] = (X)((U)x[k] * (U)y[k]);
                break;
            case R_DIVIDE:
#pragma unroll
                for (u32 k = 0; k < K; k++) x[k] = quotient(x[k], y[k]);
                break;
            case R_REMAINDER:
#pragma unroll
                for (u32 k = 0; k < K; k++) x[k] = (X)((U)x[k] - (U)quotient(x[k], y[k]) * (U)y[k]);
                break;
            case R_FLOAT:
                if (i.d() < 8) {
#pragma unroll
                    for (u32 k = 0; k < K; k++)
                        x[k] = (i64)bits_of(computed(i.d(), __longlong_as_double((i64)x[k]), __longlong_as_double((i64)y[k])));
                } else {
#pragma unroll
                    for (u32 k = 0; k < K; k++)
                        x[k] = (i64)bits_of(computed(i.d() - 8, __int_as_float((i32)x[k]), __int_as_float((i32)y[k])));
                }
                break;
            case R_COMPARE: {
                const u32 kind = i.d() / 8, comparison = i.d() % 8;
                u32 equal = 0, less = 0;
                if (kind == 1) {
#pragma unroll
                    for (u32 k = 0; k < K; k++) {
                        x[k] = key_of(__longlong_as_double((i64)x[k]));
                        y[k] = key_of(__longlong_as_double((i64)y[k]));
                    }
                } else if (kind == 2) {
#pragma unroll
                    for (u32 k = 0; k < K; k++) {
                        x[k] = key_of(__int_as_float((i32)x[k]));
                        y[k] = key_of(__int_as_float((i32)y[k]));
                    }
                }
#pragma unroll
                for (u32 k = 0; k < K; k++) {
                    equal |= (u32)(x[k] == y[k]) << k;
                    less |= (u32)(x[k] < y[k]) << k;
                }
                switch (comparison) {
                case 0: t = equal; break;
                case 1: t = ~equal; break;
                case 2: t = less; break;
                case 3: t = less | equal; break;
                case 4: t = ~(less | equal); break;
                default: t = ~less;
                }
                break;
            }
            default: {  // R_AVERAGE
                u32 some = 0;
#pragma unroll
                for (u32 k = 0; k < K; k++) {
                    some |= (u32)(y[k] > 0) << k;
                    x[k] = quotient(x[k], y[k]);
                }
                valid &= some;
            }
            }
            continue;
        }
        switch (op) {
        case R_WRAP: {
            u32 bad = 0;
#pragma unroll
            for (u32 k = 0; k < K; k++) {
                x[k] = wrapped(x[k], i.a());
                // unsigned, this is more than the signed numbers of a narrow program can be
                if constexpr (sizeof(X) == sizeof(i64)) bad |= (u32)(i.a() == T_U64 && x[k] < 0) << k;
            }
            if (bad & rows.in & valid) overflows(a);
            break;
        }
        case R_NEGATE: {
            const u64 sign = i.a() ? 1ull << 31 : 1ull << 63;
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = (X)((U)x[k] ^ sign);
            break;
        }
        case R_NULL:
            t = valid = 0;
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = 0;
            break;
        case R_CONSTANT:
            t = i.a() ? ALL : 0;
            valid = ALL;
            break;
        case R_AND:
        case R_OR: {
            const u32 other = flag_of(a, i.b()), known = flag_of(a, i.c());
            // a valid false decides AND, a valid true OR
            const u32 decided = op == R_AND ? (valid & ~t) | (known & ~other) : (valid & t) | (known & other);
            t = op == R_AND ? (~valid | t) & (~known | other) : (valid & t) | (known & other);
            valid = (valid & known) | decided;
            break;
        }
        case R_NOT: t = ~t; break;
        case R_IS_NULL:
            t = ~valid;
            valid = ALL;
            break;
        case R_TRUTH:
            t = 0;
#pragma unroll
            for (u32 k = 0; k < K; k++) t |= (u32)(x[k] != 0) << k;
            break;
        case R_NUMBER:
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = t >> k & 1;
            break;
        case R_SAVE: {
            u64* to = slot_at(a, i.b());
#pragma unroll
            for (u32 k = 0; k < K; k++) set_number(to + k * 32, K * 32, x[k]);
            if (i.c() != NONE) set_flag(a, i.c(), valid);
            break;
        }
        case R_SAVE_TRUTH:
            set_flag(a, i.b(), t);
            if (i.c() != NONE) set_flag(a, i.c(), valid);
            break;
        case R_SAVE_TRUE: set_flag(a, i.b(), t & valid); break;
        case R_LOAD_TRUTH:
            t = flag_of(a, i.b());
            valid = flag_of(a, i.c());
            break;
        case R_LOAD_MASK:
            t = rows.bits(a, i.b());
            valid = rows.bits(a, i.c());
            break;
        case R_CHOOSE: {
            const u32 own = flag_of(a, i.d());
            const u64* from = slot_at(a, i.b());
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = own >> k & 1 ? x[k] : number_at<X>(from + k * 32, K * 32);
            valid = (own & valid) | (~own & flag_of(a, i.c()));
            break;
        }
        case R_CHOOSE_TRUTH: {
            const u32 own = flag_of(a, i.d());
            t = (own & t) | (~own & flag_of(a, i.b()));
            valid = (own & valid) | (~own & flag_of(a, i.c()));
            break;
        }
        case R_CONVERT:
            if (!Number<X>::IS_WIDE && i.a() == ROUND) {
                u32 bad = 0;
#pragma unroll
                for (u32 k = 0; k < K; k++) bad |= (u32)!(fabs(__longlong_as_double((i64)x[k])) < 9.2e18) << k;
                if (bad & rows.in & valid) overflows(a);
            }
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = converted(i.a(), x[k]);
            break;
        case R_FLOOR_DIVIDE: {
            const X divisor = (i64)a.word[i.b()];
#pragma unroll
            for (u32 k = 0; k < K; k++) {
                const X whole = quotient(x[k], divisor);
                x[k] = whole - (x[k] < whole * divisor);
            }
            break;
        }
        case R_DATE_PART: {
            u32 known = ALL;
            if (i.b() != NONE) {
                const i64 first = (i64)a.word[i.b()], last = (i64)a.word[i.b() + 1];
                known = 0;
#pragma unroll
                for (u32 k = 0; k < K; k++) known |= (u32)(x[k] >= first && x[k] <= last) << k;
            }
            valid &= known;
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = part_of_date(i.a(), (i64)x[k]);
            break;
        }
        case R_FIND: {
            const u32 in = rows.in & valid, bytes = i.d() & 15, column = i.a();
            const u64* words = column == COMPUTED ? a.word + i.b() : w.group + i.b();
            const bool is_coded = column != COMPUTED && transform_of(w, column) == CODES;
            valid = 0;
            if (i.d() & FIND_HASHED) {
                HashTable table = hash_table_of(words);
                table.coded = is_coded;
                const u32 PAIR = K == 1 ? 1 : 2;
#pragma unroll
                for (u32 k = 0; k < K; k += PAIR) {
                    u64 key[PAIR];
                    u32 place[PAIR];
#pragma unroll
                    for (u32 p = 0; p < PAIR; p++) key[p] = (u64)x[k + p];
                    places_of<PAIR>(table, in >> k, key, place);
#pragma unroll
                    for (u32 p = 0; p < PAIR; p++) x[k + p] = place[p];
                }
#pragma unroll
                for (u32 k = 0; k < K; k++) {
                    const u32 code = any_code_at(table, (u32)x[k], bytes);
                    valid |= (u32)(code != ALL) << k;
                    x[k] = code;
                }
            } else {
                Table table = table_of(words);
                if (is_coded) table.origin = 0;
#pragma unroll
                for (u32 k = 0; k < K; k++) {
                    const u32 place = in >> k & 1 ? place_in(table, (i64)x[k]) : ALL;
                    const u32 code = any_code_at(table, place, bytes);
                    valid |= (u32)(code != ALL) << k;
                    x[k] = code;
                }
            }
            break;
        }
        case R_PAYLOAD: {
            const u8* validity = i.c() == NONE ? (const u8*)0 : (const u8*)a.word[i.c()];
            valid &= rows.in;
            if (validity) {
                const u32 in = valid;
                valid = 0;
#pragma unroll
                for (u32 k = 0; k < K; k++)
                    if (in >> k & 1) valid |= (u32)(validity[(u32)x[k]] != 0) << k;
            }
            u64 index[K];
#pragma unroll
            for (u32 k = 0; k < K; k++) index[k] = (u64)x[k];
            stored_at<K>(a, (const u8*)a.word[i.b()], i.a(), index, valid, (Read*)x);
            break;
        }
        case R_FILTER:
            rows.in &= t & valid;
            break;
        case R_DROP:
            rows.in &= valid;
            break;
        case R_MASK:
            mask |= t & valid & rows.in;
            break;
        case R_OR_ZERO:
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = (rows.in & valid) >> k & 1 ? (u32)x[k] : 0;
            valid = ALL;
            break;
        case R_OR_ONE:
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = x[k] ? x[k] : rows.in >> k & 1;
            break;
        case R_BEGIN:
            set_flag(a, i.c(), rows.in);
            // fall through
        case R_AGAIN: {
            // R_AGAIN returns to R_BEGIN's conditions
            const Instruction begin = op == R_BEGIN ? i : instruction(a, i.b());
            const u32 first = op == R_BEGIN ? pc : i.b();
            u64 round = op == R_BEGIN ? 0 : round_in(a, begin.c() + 1) + 1;
            const u64* times = slot_at(a, begin.b());
            u32 left = 0;
#pragma unroll
            for (u32 k = 0; k < K; k++) left |= (u32)(round < times[k * 32]) << k;
            left &= flag_of(a, begin.c());
            if (begin.a()) {
                // another flag has the rows that are not done yet
                if (op == R_AGAIN) {
                    left = flag_of(a, begin.c() + 3);
                    if (left && round >= times[(__ffs((int)left) - 1) * 32]) {
                        left &= left - 1;
                        round = 0;
                    }
                }
                set_flag(a, begin.c() + 3, left);
                left &= 0 - left;
            }
            if (__any_sync(ALL, left)) {
                set_flag(a, begin.c() + 1, (u32)round);
                set_flag(a, begin.c() + 2, (u32)(round >> 32));
                rows.in = left;
                pc = first;
            } else {
                rows.in = flag_of(a, begin.c());
                pc = begin.d();
            }
            next = instruction(a, pc + 1);
            break;
        }
        case R_ROUND: {
            const i64 round = (i64)round_in(a, i.b());
            valid = ALL;
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = round;
            break;
        }
        case R_SOME: {
            const u32 done = t & valid & rows.in;
            set_flag(a, i.b(), flag_of(a, i.b()) | done);
            // the rest of the repetition is for the others
            set_flag(a, i.c(), flag_of(a, i.c()) & ~done);
            break;
        }
        case R_JOIN:
            t = flag_of(a, i.b());
            valid = ALL;
            rows.in |= t;
            break;
        case R_DIGIT: {
            const i64 first = (i64)a.word[i.b()];
            const i64 null = i.c() == NONE ? 0 : (i64)a.word[i.c()];
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = i.c() == NONE || valid >> k & 1 ? (X)((u64)x[k] - (u64)first) : (X)null;
            valid = ALL;
            break;
        }
        case R_CHECK: {
            const u64 groups = a.word[FIXED_WORDS + W_GROUPS];
            u32 some = 0;
#pragma unroll
            for (u32 k = 0; k < K; k++) some |= (u32)((u64)x[k] < groups) << k;
            // a value outside its chunk's bounds: no file of Vectile has one
            if (rows.in & ~some) *(volatile u64*)a.word[5] = 1;
            rows.in &= some;
            break;
        }
        case R_HASH: {
#pragma unroll
            for (u32 k = 0; k < K; k++) {
                const u64 hash = hashed_with(i.b() == NONE ? 0 : slot_at(a, i.b())[k * 32], (u64)x[k]);
                x[k] = (X)(i.a() ? group_of_hash(hash) : hash);
            }
            break;
        }
        case R_DISTINCT: {
            const u64* set = a.word + i.b();
            const u64 layout = set[3];
            const u32 num_parts = (u32)layout & 3, index = (u32)layout >> 2 & 63;
            const bool is_shared = layout >> 8 & 1;
            const u64 groups = a.word[FIXED_WORDS + (is_shared ? W_GROUPS : W_ENTRIES)];
            DYN_SHARED(u8, shared);
            u64* base = is_shared ? (u64*)(shared + a.word[FIXED_WORDS + W_TABLE_AT]) : (u64*)a.word[3];
            base += i.d() * groups;
            const u64 *number = slot_at(a, i.c()), *entry = slot_at(a, (u32)set[4]);
            const u32 in = rows.in & valid;
#pragma unroll
            for (u32 k = 0; k < K; k++) {
                if (!(in >> k & 1)) continue;
                u64 parts[3];
                for (u32 part = 0; part < num_parts; part++)
                    parts[part] = slot_at(a, (u32)(layout >> (16 + 16 * part)) & 0xffff)[k * 32];
                const u64 value = (u64)x[k];
                if (!add_to_set((u64*)set[0], set[1], set[2], number[k * 32], parts, num_parts, value, (u64*)a.word[5], index))
                    continue;
                if (is_shared) add_shared(base + entry[k * 32], 1);
                else add(base + entry[k * 32], 1ull);
            }
            break;
        }
        case R_ENTRY: {
            const u64 entries = a.word[FIXED_WORDS + W_GROUPS];
            u32 some = 0;
#pragma unroll
            for (u32 k = 0; k < K; k++) {
                if (!(rows.in >> k & 1)) continue;
                const u64 at = entry_of((u64*)a.word[4], entries - 1, (u64)x[k], (u64*)a.word[5]);
                some |= (u32)(at != ~0ull) << k;
                x[k] = (i64)at;
            }
            rows.in &= some;
            break;
        }
        case R_ORDER:
#pragma unroll
            for (u32 k = 0; k < K; k++)
                x[k] = i.a() ? (i64)key_of(__int_as_float((i32)x[k])) : key_of(__longlong_as_double((i64)x[k]));
            break;
        case R_RANK: {
            const u64 turned = i.a() ? ~0ull : 0;
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = (i64)(ordered((i64)x[k]) ^ turned);
            break;
        }
        case R_ADD_TO_TABLE: {
            const bool is_shared = i.c();
            const u64 groups = a.word[FIXED_WORDS + (is_shared ? W_GROUPS : W_ENTRIES)];
            DYN_SHARED(u8, shared);
            u64* base = is_shared ? (u64*)(shared + a.word[FIXED_WORDS + W_TABLE_AT]) : (u64*)a.word[3];
            base += i.d() * groups;
            const u64* at = slot_at(a, i.b());
            const u32 in = rows.in & valid, kind = i.a() & (ONE - 1);
            const bool is_count = i.a() & ONE;
            const auto each = [&](auto add_to) {
#pragma unroll
                for (u32 k = 0; k < K; k++)
                    if (in >> k & 1) add_to(at[k * 32], is_count ? (X)1 : x[k]);
            };
            if (kind == A_COUNT) each([=](u64 entry, X) { count_shared(base + entry); });
            else if (kind == A_SUM && is_shared) each([=](u64 entry, X y) { add_shared(base + entry, (u64)y); });
            else if (kind == A_SUM) each([=](u64 entry, X y) { add(base + entry, (u64)y); });
            else if (kind == A_WIDE_SUM && is_shared)
                each([=](u64 entry, X y) { add_wide_shared(base + 2 * entry, (u128)(i128)y); });
            else if (kind == A_WIDE_SUM) each([=](u64 entry, X y) { add_wide(base + 2 * entry, (u128)(i128)y); });
            else if (kind == A_FLOAT_SUM) each([=](u64 entry, X y) { add(base + entry, __longlong_as_double((i64)y)); });
            else if (kind == A_KEY_PART)
                each([=, &a](u64 entry, X y) { keep_part(base + entry, (u64)y + 1, (u64*)a.word[5]); });
            else each([=](u64 entry, X y) { raise(base + entry, (u64)y); });
            break;
        }
        case R_KEPT: {
            const u32 grouped = high_half(a, W_GROUPED), groups = grouped & 0xffff, words = grouped >> 16;
            // a value outside its chunk's bounds has any group
#pragma unroll
            for (u32 k = 0; k < K; k++) x[k] = ((u64)x[k] < groups ? (u32)x[k] : groups) * words * 32;
            break;
        }
        case R_ADD_TO_THREAD: {
            const u64* at = slot_at(a, i.b());
            u64* const kept = kept_at(a) + i.c() * 32;
            add_to_kept<K, X>(i.a(), i.d(), rows.in & valid, x, [=](u32 k) { return kept + (u32)at[k * 32]; });
            break;
        }
        case R_ADD_TO_TOTAL: {
            const u32 in = rows.in & valid;
            u64* kept = kept_at(a) + i.c() * 32;
            if (i.a() == A_COUNT) {
                kept[0] += (u32)__popc(in & ((1u << K) - 1));
            } else if (i.a() == A_SUM) {
                u64 sum = 0;
#pragma unroll
                for (u32 k = 0; k < K; k++) sum += in >> k & 1 ? (u64)x[k] : 0;
                kept[0] += sum;
            } else {
                add_to_kept<K, X>(i.a(), 0, in, x, [=](u32) { return kept; });
            }
            break;
        }
        case R_PLACE:
            // flags 0 to 2: the selection in row order, and the place of the first row of each lane's
            if constexpr (!PICKED || Number<X>::IS_WIDE) {
                const u64 own = (u64)flag_of(a, 2) << 32 | flag_of(a, 1);
                const u32 selected = flag_of(a, 0);
#pragma unroll
                for (u32 k = 0; k < K; k++) {
                    const u32 r = rows.row(k) / 32;
                    if (i.a()) {
                        x[k] = (i64)(own + r * 32);
                    } else {
                        const u32 word = __shfl_sync(ALL, selected, r);
                        x[k] = (i64)(__shfl_sync(ALL, own, r) + __popc(word & ((1u << lane_id()) - 1)));
                    }
                }
                valid = ALL;
            }
            break;
        case R_WRITE:
            write_at<K, X>(((const u64*)a.word[3])[2 * i.b()], i.a(), rows.in, slot_at(a, i.c()), x);
            break;
        case R_WRITE_VALID: {
            u8* address = (u8*)((const u64*)a.word[3])[2 * i.b() + 1];
            const u64* to = slot_at(a, i.c());
#pragma unroll
            for (u32 k = 0; k < K; k++)
                if (rows.in >> k & 1) address[to[k * 32]] = valid >> k & 1;
            break;
        }
        default: break;
        }
    }
}
