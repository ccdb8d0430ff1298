// Keys that lie too far apart for a bit each: a hash table, made by `plan/hashed.rs`, which has its layout.
// Slots of 64 bits in buckets of four, 32 bytes; codes of as many bytes as they need apart, one for each
// slot: rows whose key is not there do not touch them. Chunks that are dictionaries have bits and codes for
// the dictionary's codes instead.

// Four blocks of 256 threads, or three, are too many for the registers that buckets take.
#ifdef MOST_REGISTERS
#define HASHED_BOUNDS(threads) __launch_bounds__(threads, 1)
#else
#define HASHED_BOUNDS(threads) __launch_bounds__(threads, 2)
#endif

// As the entries of one row group find their way in it.
struct HashTable {
    const u8* keys;     // buckets; of a dictionary, a bit for each of its codes
    const u8* codes;    // one for each slot, if they differ
    u64 empty;          // what a slot without a key has
    u64 origin;         // a key is its entry (or the value, if it is plain) and this
    u32 mask;           // buckets, less one; of a dictionary, its codes
    u32 probes;         // buckets to look into
    bool coded;         // whether it is for the codes of a dictionary
};

// `words` are of the row group.
template <class S> DEVICE HashTable hash_table_of(const Chunk& c, const u64* words) {
    HashTable t;
    t.keys = (const u8*)words[0];
    t.codes = (const u8*)words[1];
    t.empty = words[2];
    t.mask = (u32)words[3];
    t.probes = (u32)(words[3] >> 32);
    t.origin = with_transform<S>(c, [&](auto of) { return of.key_start(c); });
    t.coded = with_transform<S>(c, [](auto of) { return of.CODED; });
    return t;
}

// The same for computed keys.
DEVICE HashTable hash_table_of(const u64* words) {
    return HashTable{(const u8*)words[0], (const u8*)words[1], words[2], 0, (u32)words[3], (u32)(words[3] >> 32), false};
}

struct Bucket {
    ulonglong2 low, high;
};

DEVICE Bucket bucket_at(const HashTable& t, u32 bucket) {
    const ulonglong2* at = (const ulonglong2*)t.keys + 2 * (u64)bucket;
    return Bucket{__ldg(at), __ldg(at + 1)};
}

DEVICE u32 bucket_of(const HashTable& t, u64 key) { return (u32)hash_of(key) & t.mask; }

// Where a key is that belongs in a bucket, which is loaded; ALL if nowhere.
DEVICE u32 place_from(const HashTable& t, u64 key, u32 bucket, Bucket b) {
    if (key == t.empty) return ALL;
#pragma unroll 1
    for (u32 probe = 1;; probe++) {
        u32 slot = b.high.y == key ? 3u : ALL;
        if (b.high.x == key) slot = 2;
        if (b.low.y == key) slot = 1;
        if (b.low.x == key) slot = 0;
        if (slot != ALL) return bucket * 4 + slot;
        // the last slot is taken last
        if (b.high.y == t.empty || probe >= t.probes) return ALL;
        bucket = bucket + 1 & t.mask;
        b = bucket_at(t, bucket);
    }
}

// The place of a dictionary's code.
DEVICE u32 place_of_code(const HashTable& t, u64 code) {
    if (code >= t.mask) return ALL;
    return __ldg((const u32*)t.keys + (u32)code / 32) >> (u32)code % 32 & 1 ? (u32)code : ALL;
}

DEVICE u32 place_of(const HashTable& t, u64 key) {
    if (t.coded) return place_of_code(t, key);
    const u32 bucket = bucket_of(t, key);
    return place_from(t, key, bucket, bucket_at(t, bucket));
}

// The places of some keys, those of `rows`, a bit each; of others, ALL. They are waited for together.
template <u32 N> DEVICE void places_of(const HashTable& t, u32 rows, const u64* key, u32* out) {
    if (t.coded) {
#pragma unroll
        for (u32 k = 0; k < N; k++) out[k] = rows >> k & 1 ? place_of_code(t, key[k]) : ALL;
        return;
    }
    Bucket b[N];
#pragma unroll
    for (u32 k = 0; k < N; k++) b[k] = bucket_at(t, rows >> k & 1 ? bucket_of(t, key[k]) : 0);
#pragma unroll
    for (u32 k = 0; k < N; k++) {
        out[k] = rows >> k & 1 ? place_from(t, key[k], bucket_of(t, key[k]), b[k]) : ALL;
    }
}

// Rows whose keys are looked up together: as many buckets as there are registers for.
const u32 TOGETHER = 4;

// The places of rows 8 * eighth to 8 * eighth + 7 of this lane, as far as they are among `rows`, a bit each;
// of others, ALL.
template <class S>
DEVICE void places_8(const Cursor& c, u32 rows, u32 eighth, const void* tile, const HashTable& t, u32 out[8]) {
    u64 key[8];
    if (lacks_entries<S>(c)) {
        typename S::Value value[8];
        values_8<S>(c, eighth, tile, value);
#pragma unroll
        for (u32 k = 0; k < 8; k++) key[k] = (u64)(i64)value[k];
    } else {
        typename S::Entry entry[8];
        entries_8<S>(c, eighth, tile, entry);
#pragma unroll
        for (u32 k = 0; k < 8; k++) key[k] = t.origin + entry[k];
    }
#pragma unroll
    for (u32 k = 0; k < 8; k += TOGETHER) places_of<TOGETHER>(t, rows >> k, key + k, out + k);
}

// The key of row r of a lane, of columns without patches.
template <class S>
DEVICE u64 key_at(const Cursor& c, u32 r, u32 lane, u32 run, const void* tile, const HashTable& t) {
    if (lacks_entries<S>(c)) return (u64)(i64)value_at<S>(c, r, lane, run, tile);
    return t.origin + entry_at<S>(c, r, lane, run, tile);
}

DEVICE bool is_there(const HashTable&, u32 place) { return place != ALL; }

// The code at a place; ALL if there is none.
template <class T> DEVICE u32 code_at(const HashTable& t, u32 place) {
    return place == ALL ? ALL : (u32)__ldg((const T*)t.codes + place);
}

// Which of these rows have a key that is there; arbitrary where null.
template <class S> DEVICE u32 found_in(Cursor& c, u32 rows, const HashTable& t, void* tile) {
    const auto by_rows = [&] {
        prepare<S>(c, tile);
        u32 mask = 0;
        for (u32 eighth = 0; eighth < 4; eighth++) {
            const u32 left = rows >> eighth * 8 & 255;
            if (!__any_sync(ALL, left)) continue;
            u32 place[8];
            places_8<S>(c, left, eighth, tile, t, place);
#pragma unroll
            for (u32 k = 0; k < 8; k++) mask |= (u32)(place[k] != ALL) << (eighth * 8 + k);
        }
        return mask;
    };
    if (lacks_entries<S>(c)) return by_rows();
    const u64 start = t.origin + c.base<typename S::Entry>();
    const auto is_there = [=](typename S::Entry x) { return place_of(t, start + x) != ALL; };
    return with_sequence<S>(c, [&](auto of) { return of.where(c, rows, is_there, by_rows); });
}
