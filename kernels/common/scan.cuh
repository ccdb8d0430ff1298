// What a generated kernel needs around its expressions: where a warp starts, parts of dates, and how
// the accumulators of a warp become one.

// The row group of vector `at`: groups are `stride` words apart and start with their first vector. The lanes look at
// 32 of them at a time: a kernel has nothing to do before it knows.
DEVICE const u64* group_of(const u64* groups, u32 count, u32 stride, u64 at) {
    u32 first = 0;
    while (count > 1) {
        const u32 step = (count + 31) / 32, own = lane_id() * step;
        const bool starts = own < count && __ldg(groups + (u64)(first + own) * stride) <= at;
        const u32 before = (__popc(__ballot_sync(ALL, starts)) - 1) * step;
        first += before;
        count = min(step, count - before);
    }
    return groups + (u64)first * stride;
}

// The other sign, of a NaN too, whose bits arithmetic does not keep.
DEVICE float negated(float x) { return __int_as_float(__float_as_int(x) ^ (i32)0x80000000); }
DEVICE double negated(double x) {
    return __longlong_as_double(__double_as_longlong(x) ^ (i64)0x8000000000000000ull);
}

// ---- dates: days since 1970-01-01 in the proleptic Gregorian calendar ----
// Years that start in March, in eras of 400 years: the leap day is a year's last.

struct Date { i32 year; u32 month, day; };

DEVICE Date date_of(i32 days) {
    const i64 shifted = (i64)days + 719468;
    const i64 era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
    const u32 of_era = (u32)(shifted - era * 146097);
    const u32 year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    const u32 of_year = of_era - (365 * year + year / 4 - year / 100);
    const u32 month = (5 * of_year + 2) / 153;
    Date date;
    date.day = of_year - (153 * month + 2) / 5 + 1;
    date.month = month < 10 ? month + 3 : month - 9;
    date.year = (i32)(year + era * 400) + (date.month <= 2 ? 1 : 0);
    return date;
}

DEVICE i32 year_of(i32 days) { return date_of(days).year; }
DEVICE i32 month_of(i32 days) { return (i32)date_of(days).month; }
DEVICE i32 quarter_of(i32 days) { return (i32)(date_of(days).month + 2) / 3; }
DEVICE i32 day_of(i32 days) { return (i32)date_of(days).day; }
DEVICE i32 day_of_week_of(i32 days) { return (i32)((((i64)days + 4) % 7 + 7) % 7); }
DEVICE i32 day_of_year_of(i32 days) {
    const Date date = date_of(days);
    const bool leap = (date.year % 4 == 0 && date.year % 100 != 0) || date.year % 400 == 0;
    const u32 march = (153 * ((date.month + 9) % 12) + 2) / 5 + date.day;  // 1 is the first of March
    return (i32)(date.month > 2 ? march + 59 + leap : march - 306);
}

// ---- accumulators ----

template <class T> DEVICE T least() { return (T)1 << (sizeof(T) * 8 - 1); }
template <> DEVICE i128 least<i128>() { return (i128)((u128)1 << 127); }
template <class T> DEVICE T greatest() { return ~least<T>(); }

template <class T> DEVICE T from_lane(T value, u32 distance) {
    if constexpr (sizeof(T) == 16) {
        const u64 low = __shfl_down_sync(ALL, (u64)value, distance);
        const u64 high = __shfl_down_sync(ALL, (u64)((u128)value >> 64), distance);
        return (T)((u128)high << 64 | low);
    } else {
        return __shfl_down_sync(ALL, value, distance);
    }
}

DEVICE void store(u64* to, i128 value) {
    if (lane_id() != 0) return;
    to[0] = (u64)value;
    to[1] = (u64)((u128)value >> 64);
}
DEVICE void store(u64* to, double value) {
    if (lane_id() != 0) return;
    to[0] = (u64)__double_as_longlong(value);
    to[1] = 0;
}

DEVICE void store_sum(u64* to, double value) {
    for (u32 distance = 16; distance; distance /= 2) value += from_lane(value, distance);
    store(to, value);
}
DEVICE void store_sum(u64* to, u128 value) {
    for (u32 distance = 16; distance; distance /= 2) value += from_lane(value, distance);
    store(to, (i128)value);
}
DEVICE void store_sum(u64* to, i64 value) { store_sum(to, (u128)(i128)value); }
// Of values whose sum is known to fit.
DEVICE void store_short_sum(u64* to, i64 value) {
    for (u32 distance = 16; distance; distance /= 2) value += from_lane(value, distance);
    store(to, (i128)value);
}

template <class T> DEVICE void store_min(u64* to, T value) {
    for (u32 distance = 16; distance; distance /= 2) {
        const T other = from_lane(value, distance);
        value = other < value ? other : value;
    }
    store(to, (i128)value);
}
template <class T> DEVICE void store_max(u64* to, T value) {
    for (u32 distance = 16; distance; distance /= 2) {
        const T other = from_lane(value, distance);
        value = other > value ? other : value;
    }
    store(to, (i128)value);
}
