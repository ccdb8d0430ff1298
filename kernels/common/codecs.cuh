// The encodings that a kernel can read, as lists of types. `registry.rs` writes the lists; the place of a codec in
// its list is its number in chunks, and its bit in a column's traits.

template <template <class> class... Codecs> struct List {};

// Calls f with a codec: the one with this number, of those in MASK. Only these get code, and the last of them
// is not asked for its number: with a single one, nothing is looked at.
template <class S, u32 MASK, u32 NUMBER = 0, class F, template <class> class First, template <class> class... Rest>
DEVICE auto choose(List<First, Rest...>, u8 number, F f) {
    if constexpr (MASK >> NUMBER <= 1) {
        return f(First<S>());
    } else if constexpr (!(MASK >> NUMBER & 1)) {
        return choose<S, MASK, NUMBER + 1>(List<Rest...>(), number, f);
    } else {
        if (number == NUMBER) return f(First<S>());
        return choose<S, MASK, NUMBER + 1>(List<Rest...>(), number, f);
    }
}

// The same, but the last is asked for its number, too: loads are then not brought before the question, where they
// would take more registers.
template <class S, u32 MASK, u32 NUMBER = 0, class F> DEVICE void ask(List<>, u8, F) {}

template <class S, u32 MASK, u32 NUMBER = 0, class F, template <class> class First, template <class> class... Rest>
DEVICE void ask(List<First, Rest...>, u8 number, F f) {
    if constexpr (MASK >> NUMBER & 1) {
        if (number == NUMBER) return f(First<S>());
    }
    ask<S, MASK, NUMBER + 1>(List<Rest...>(), number, f);
}

DEVICE constexpr bool is_one(u32 mask) { return (mask & (mask - 1)) == 0; }
