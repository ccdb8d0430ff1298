// The hash of groups and of keys of lookups; `plan/hashed.rs` has the same.

DEVICE u64 hash_of(u64 x) {
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ull;
    return x ^ x >> 32;
}
