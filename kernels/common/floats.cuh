// Arithmetic on floats whose NaNs are those of the CPU. Comparisons look at all bits of a float, and a GPU makes the
// same NaN of everything, where a CPU
// - keeps the bits of the operand that is one (of the first, if both are), but for making it quiet;
// - makes a NaN of its own where none is (infinity - infinity): `made`, negative on x86.

DEVICE float quiet(float nan) { return __int_as_float(__float_as_int(nan) | 0x00400000); }
DEVICE double quiet(double nan) {
    return __longlong_as_double(__double_as_longlong(nan) | 0x0008000000000000ll);
}

// `result` of an operation on `a` and `b`.
template <class T> DEVICE T with_nan(T result, T a, T b, T made) {
    if (result == result) return result;
    if (a != a) return quiet(a);
    return b != b ? quiet(b) : made;
}

DEVICE double widened(float x) {
    if (x == x) return (double)x;
    const u64 bits = (u64)(u32)__float_as_int(x);
    const u64 nan = (bits & 0x80000000ull) << 32 | 0x7ff0000000000000ull | (bits & 0x007fffffull) << 29;
    return quiet(__longlong_as_double((i64)nan));
}

DEVICE float narrowed(double x) {
    if (x == x) return (float)x;
    const u64 bits = (u64)__double_as_longlong(x);
    const u32 nan = (u32)(bits >> 32) & 0x80000000u | 0x7f800000u | (u32)(bits >> 29) & 0x007fffffu;
    return quiet(__int_as_float((i32)nan));
}

// The nearest integer; of two, the one farther from zero. What is beyond the type is not asked for.
template <class T>
DEVICE T rounded(double x) {
    const T whole = (T)x;
    const double rest = x - (double)whole;
    return whole + (rest >= 0.5) - (rest <= -0.5);
}
