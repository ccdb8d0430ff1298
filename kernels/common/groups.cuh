// Accumulators of groups: a column of words for each in a table, zero at first. A block that has a table of
// its own in shared memory adds it up there, and to the one in global memory in the end.

// ---- in global memory ----

DEVICE void add(u64* to, u64 value) { atomicAdd(to, value); }

// A sum of 128 bits, in two words.
DEVICE u128 wide_at(const u64* from) { return (u128)from[1] << 64 | from[0]; }
DEVICE void add_wide(u64* to, u128 value) {
    const u64 low = (u64)value, before = atomicAdd(to, low);
    const u64 high = (u64)(value >> 64) + (before + low < low);
    if (high) atomicAdd(to + 1, high);
}

DEVICE void add(u64* to, double value) { atomicAdd((double*)to, value); }

// The smallest and the largest are kept so that zero is none: in the order of unsigned numbers, the
// smallest turned round.
DEVICE u64 ordered(i64 value) { return (u64)value ^ 1ull << 63; }
DEVICE void raise(u64* to, u64 value) { atomicMax(to, value); }

// ---- in shared memory: atomics of 32 bits, which carry ----

// Adds to one of the words of a sum. Gives what is carried.
DEVICE u32 add_word(u32* to, u32 value, u32 carry) {
    const u32 sum = value + carry;
    if (sum == 0) return carry;  // nothing, or a whole 2^32
    const u32 before = atomicAdd(to, sum);
    return before + sum < sum;
}

DEVICE void add_shared(u64* to, u64 value) {
    u32* words = (u32*)to;
    const u32 carry = add_word(words, (u32)value, 0);
    add_word(words + 1, (u32)(value >> 32), carry);
}

DEVICE void add_wide_shared(u64* to, u128 value) {
    u32* words = (u32*)to;
    u32 carry = add_word(words, (u32)value, 0);
    carry = add_word(words + 1, (u32)(value >> 32), carry);
    carry = add_word(words + 2, (u32)(value >> 64), carry);
    add_word(words + 3, (u32)(value >> 96), carry);
}

// A count, of less than 2^32.
DEVICE void count_shared(u64* to) { atomicAdd((u32*)to, 1u); }

// Five blocks of 128 threads have registers for what Q1 of TPC-H adds up; more are waited for.
#ifdef MOST_REGISTERS
#define THREAD_BOUNDS(threads) __launch_bounds__(threads, 1)
#else
#define THREAD_BOUNDS(threads) __launch_bounds__(threads, 5)
#endif

// ---- of a thread: words that several sums share, as fields of some bits; a negative one borrows from the next ----

// Adds to the high half of a word.
DEVICE void add_high(u64& word, u32 value) {
    const u32 high = (u32)(word >> 32) + value;
    word = (u64)high << 32 | (u32)word;
}

// Takes the lowest field out of a word.
template <u32 BITS> DEVICE u64 take_unsigned(u64& word) {
    const u64 field = word << (64 - BITS) >> (64 - BITS);
    if constexpr (BITS < 64) word >>= BITS;
    return field;
}
template <u32 BITS> DEVICE i64 take_signed(u64& word) {
    const i64 field = (i64)(word << (64 - BITS)) >> (64 - BITS);
    if constexpr (BITS < 64) word = (word - (u64)field) >> BITS;
    return field;
}

// ---- groups found by hashing ----

// Where a group's accumulators are: in the entry, of `mask` + 1, that holds its number and one; and whether it is new. If
// it is not found near where it belongs, there are too many groups: `full` says so by 1, and the result is of no use. 2 says
// that a group has the number of which no entry can hold one more.
DEVICE u64 entry_of(u64* entries, u64 mask, u64 group, u64* full, bool& is_new) {
    const u64 named = group + 1;
    if (!named) {
        *(volatile u64*)full = 2;
        return ~0ull;
    }
    u64 at = hash_of(group) & mask;
#pragma unroll 1
    for (u32 tries = 0; tries < 128; tries++) {
        u64 found = *(volatile u64*)(entries + at);
        if (found == 0) {
            found = atomicCAS(entries + at, 0ull, named);
            is_new = found == 0;
            if (is_new) return at;
        }
        if (found == named) return at;
        // others may know by now that it is in vain
        if (tries % 8 == 7 && *(volatile u64*)full) return ~0ull;
        at = at + 1 & mask;
    }
    *(volatile u64*)full = 1;
    return ~0ull;
}
DEVICE u64 entry_of(u64* entries, u64 mask, u64 group, u64* full) {
    bool is_new;
    return entry_of(entries, mask, group, full, is_new);
}

// ---- keys of several parts: their hash is the number of a group, and its entry has the parts ----

// The hash of the parts before and of another one; 0 for none.
DEVICE u64 hashed_with(u64 before, u64 part) { return hash_of(before ^ part); }

// A group number.
DEVICE u64 group_of_hash(u64 hash) { return hash >> 1; }

// Keeps a part of the key, plus one, in the group's entry. If there is another one, two keys have the same hash: the word
// after `full` says so, and the result is of no use. So it is if one more is 0.
DEVICE void keep_part(u64* to, u64 named, u64* full) {
    u64 found = *(volatile u64*)to;
    if (found == 0) found = atomicCAS(to, 0ull, named);
    if (!named || found != 0 && found != named) *(volatile u64*)(full + 1) = 1;
}

// ---- sets of the values of each group, of which those are counted that are new ----

// The parts of a key.
template <u32 COUNT> struct Parts { u64 all[COUNT]; };

// Flags: the table is full, keys hash alike, then for each set that it is full.
enum { SET_FLAGS = 2 };

// Adds the value of a group to a set of so many entries. True if it is new. The group has a number, and parts if that is a
// hash. If the number and the value have a number together, that of the group counts 1 and that of the value `stride`;
// otherwise `stride` is 0, and a column of words follows the entries for each part and for the value.
DEVICE bool add_to_set(
    u64* set, u64 entries, u64 stride, u64 group, const u64* parts, u32 num_parts, u64 value, u64* flags, u32 index
) {
    const u64 hash = stride ? 0 : hashed_with(hashed_with(0, group), value);
    const u64 number = stride ? value * stride + group : group_of_hash(hash);
    bool is_new = false;
    const u64 at = entry_of(set, entries - 1, number, flags + SET_FLAGS + index, is_new);
    if (at == ~0ull || stride) return is_new;
    u64* to = set + at;
    for (u32 part = 0; part < (num_parts ? num_parts : 1); part++)
        keep_part(to += entries, (num_parts ? parts[part] : group) + 1, flags);
    keep_part(to + entries, value + 1, flags);
    return is_new;
}
