//! Key tables: the keys of a join's build table, each with a code.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::slice;
use std::sync::{Arc, Mutex, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;

use super::code_table::{CodeTable, StoredCode, code_bytes};
use super::dense_build::dense_table;
use super::device_key_table::{
    DeviceKeyLayout, DeviceKeyTable, DeviceKeyTableLayout, HostKeyTable,
};
use super::hash_build::{hashed_set, hashed_table};
use super::hash_table::HashedKeys;
use super::key_chunks::{
    IntegerChunk, KeyChunks, KeyKind, RowCodes, bounds, bounds_of, do_ascend, integers,
    unsupported_keys,
};
use super::perfect_hash::{DenseCodes, PerfectHashTable, is_dense};
use crate::error::{Error, Result};

/// The keys of a build table, each with a code that identifies its payload. Several keys may share a code, as many
/// customers share a nation.
///
/// Kernels look integers up by their distance from the smallest: each has a bit and, if there are several codes, a
/// code. If the range of keys is too large for that, they are looked up in a hash table.
/// Create a `KeyTable` once and keep it: its copy on the device is reused.
pub struct KeyTable {
    keys: Keys,
    /// Number of codes; each code is below it. With one, no codes are stored.
    count: u32,
    len: usize,
    /// The share of probed rows that match. Computed lazily.
    share: OnceLock<f64>,
    /// A few ranges of consecutive keys, if there are no others. Computed lazily.
    ranges: OnceLock<Option<Vec<(i64, i64)>>>,
    /// The copies of the table on devices.
    device: DeviceCopies,
}

/// A table of integer keys in host memory.
pub enum HostKeys<'a> {
    /// Indexed by the distance from the first key.
    Dense(&'a PerfectHashTable),
    /// A hash table, and a code per slot if there is more than one code.
    Hashed(&'a HashedKeys, &'a CodeTable),
}

impl HostKeys<'_> {
    /// The code of a key.
    pub fn code(&self, key: i64) -> Option<u32> {
        match self {
            Self::Dense(dense) => dense.code(key),
            Self::Hashed(table, codes) => table.slot_index(key).map(|slot| codes.get(slot)),
        }
    }
}

enum Keys {
    Integers(PerfectHashTable),
    /// A table that was built on a device.
    DeviceKeyTable(DeviceKeyTable),
    Hashed {
        table: HashedKeys,
        /// A code per slot, if there is more than one code.
        codes: CodeTable,
    },
    Bytes(HashMap<Box<[u8]>, u32>),
    Dictionaries(Vec<Arc<DictionaryCodes>>),
}

/// The codes of the values of a dictionary.
pub struct DictionaryCodes {
    /// The dictionary, which is found by its address.
    dictionary: ArrayRef,
    codes: Vec<Option<u32>>,
    /// The copies of the codes on devices.
    device: DeviceCopies,
}

impl fmt::Debug for DictionaryCodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DictionaryCodes({} values)", self.codes.len())
    }
}

impl DictionaryCodes {
    /// The codes of the dictionary's values.
    pub fn new(dictionary: ArrayRef, codes: Vec<Option<u32>>) -> Self {
        Self {
            dictionary,
            codes,
            device: DeviceCopies::default(),
        }
    }

    /// The code of each value; `None` for one without.
    pub fn codes(&self) -> &[Option<u32>] {
        &self.codes
    }

    /// Where `exec` keeps the copies of the codes on devices.
    pub fn device_copies(&self) -> &DeviceCopies {
        &self.device
    }
}

/// The copies of a table on devices, one per engine that uses it. Only the module that adds them knows their type.
pub type DeviceCopies = Mutex<Vec<Arc<dyn Any + Send + Sync>>>;

impl KeyTable {
    /// The share of probed rows that match. The first call computes it with `sample`; an error is not kept.
    ///
    /// # Errors
    ///
    /// The error of `sample`.
    pub fn share<E>(&self, sample: impl FnOnce() -> Result<f64, E>) -> Result<f64, E> {
        match self.share.get() {
            Some(share) => Ok(*share),
            None => {
                let share = sample()?;
                Ok(*self.share.get_or_init(|| share))
            }
        }
    }

    /// Creates a set of keys with one code. Nulls are ignored, and keys may be duplicates.
    ///
    /// # Errors
    ///
    /// The errors of [`KeyTable::build`], except for duplicates.
    pub fn set(keys: &ArrayRef) -> Result<Self> {
        Self::build(&KeyChunks::new(slice::from_ref(keys), 1)?, RowCodes::Set)
    }

    /// Creates a table of keys with their codes; codes are below `count`. Null keys are ignored.
    ///
    /// # Errors
    ///
    /// The errors of [`KeyTable::build`].
    pub fn new(keys: &ArrayRef, codes: &[u32], count: u32) -> Result<Self> {
        let keys = KeyChunks::new(slice::from_ref(keys), 1)?;
        Self::build(&keys, RowCodes::Each(codes, count))
    }

    /// Creates a table of keys with the codes of their rows. Null keys are ignored. Blocks.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if keys have duplicates and are no set, or if there are too many for a table.
    /// [`Error::Internal`] if the codes do not fit the keys or their number.
    pub fn build(keys: &KeyChunks, codes: RowCodes<'_>) -> Result<Self> {
        let count = codes.count(keys.rows())?;
        let twice = || Error::Unsupported("duplicate join keys".into());
        let (keys, len) = match &keys.kind {
            KeyKind::Integers(chunks) => {
                let form = (codes, count, keys.threads);
                let built = match code_bytes(count) {
                    0 => integer_keys::<()>(chunks, keys.rows(), form)?,
                    1 => integer_keys::<u8>(chunks, keys.rows(), form)?,
                    2 => integer_keys::<u16>(chunks, keys.rows(), form)?,
                    _ => integer_keys::<u32>(chunks, keys.rows(), form)?,
                };
                built.ok_or_else(twice)?
            }
            KeyKind::Bytes(chunks) => {
                let known = numbered_bytes(chunks, codes)?.ok_or_else(twice)?;
                let len = known.len();
                (Keys::Bytes(known), len)
            }
        };
        Ok(Self {
            keys,
            count,
            len,
            share: OnceLock::new(),
            ranges: OnceLock::new(),
            device: Mutex::default(),
        })
    }

    /// Creates a table of the values of dictionaries, with codes below `count`. Only columns with these very dictionaries can
    /// be looked up in it. A row without a code is expected as seldom as one that is null.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if the codes do not fit the dictionaries or their number.
    pub fn of_dictionaries(dictionaries: Vec<Arc<DictionaryCodes>>, count: u32) -> Result<Self> {
        let fits = |of: &Arc<DictionaryCodes>| {
            let mut codes = of.codes.iter().flatten();
            of.codes.len() == of.dictionary.len() && codes.all(|code| *code < count)
        };
        if !dictionaries.iter().all(fits) {
            return Err(Error::Internal("codes of other dictionaries".into()));
        }
        let codes = dictionaries
            .iter()
            .map(|of| of.codes.iter().flatten().count());
        Ok(Self {
            len: codes.sum(),
            keys: Keys::Dictionaries(dictionaries),
            count,
            share: OnceLock::from(1.0),
            ranges: OnceLock::new(),
            device: Mutex::default(),
        })
    }

    /// The same table of dictionaries with `other` of each code, below the same number of codes.
    ///
    /// # Errors
    ///
    /// [`Error::Internal`] if the table is not of dictionaries, or a code has no other one.
    pub fn with_codes(&self, other: &[u32]) -> Result<Self> {
        let Keys::Dictionaries(all) = &self.keys else {
            return Err(Error::Internal("other codes of keys".into()));
        };
        if other.len() < self.count as usize {
            return Err(Error::Internal("a code without another one".into()));
        }
        let changed = all.iter().map(|of| {
            let codes = of
                .codes
                .iter()
                .map(|code| code.map(|code| other[code as usize]));
            let dictionary = Arc::clone(&of.dictionary);
            Arc::new(DictionaryCodes::new(dictionary, codes.collect()))
        });
        Self::of_dictionaries(changed.collect(), self.count)
    }

    /// The codes of a dictionary's values, if the table is of dictionaries and this is one of them.
    pub fn codes_of_dictionary(&self, dictionary: &ArrayRef) -> Option<&DictionaryCodes> {
        let Keys::Dictionaries(all) = &self.keys else {
            return None;
        };
        let address = |of: &ArrayRef| Arc::as_ptr(of).addr();
        let mut all = all.iter().map(AsRef::as_ref);
        all.find(|of| address(&of.dictionary) == address(dictionary))
    }

    /// Maximum bytes in host memory of the table that [`build`](Self::build) creates, unless hashes collide more often
    /// than those of random keys.
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn bytes_of(keys: &KeyChunks, codes: RowCodes<'_>) -> Result<usize> {
        let count = codes.count(keys.rows())?;
        Ok(match &keys.kind {
            KeyKind::Integers(chunks) => {
                let (_, range) = first_and_range(chunks);
                match is_dense(range, keys.rows() as u64, count) {
                    true => PerfectHashTable::words(range) * 4 + range as usize * code_bytes(count),
                    false => HashedKeys::slots_for(keys.rows())? * (8 + code_bytes(count)),
                }
            }
            KeyKind::Bytes(chunks) => {
                let bytes = chunks.iter().map(|chunk| chunk.get_array_memory_size());
                bytes.sum::<usize>() + keys.rows() * 32
            }
        })
    }

    /// The number of codes; each code is below it.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The number of distinct keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// A table of `len` keys that was built on a device with this layout. `fetch` copies bytes (offset, length)
    /// of it to the host, `find` counts the values that are keys.
    pub fn on_device(
        layout: DeviceKeyTableLayout,
        len: usize,
        (fetch, find): (
            impl Fn(usize, usize) -> Result<Vec<u8>> + Send + Sync + 'static,
            impl Fn(&[i64]) -> Result<usize> + Send + Sync + 'static,
        ),
        device: DeviceCopies,
    ) -> Self {
        Self {
            keys: Keys::DeviceKeyTable(DeviceKeyTable::new(layout, fetch, find)),
            count: layout.count,
            len,
            share: OnceLock::new(),
            ranges: OnceLock::new(),
            device,
        }
    }

    /// Copies a table that was built on a device to the host, unless that was done before.
    pub fn fetch(&self) -> Result<()> {
        match &self.keys {
            Keys::DeviceKeyTable(device_table) => device_table.host().map(drop),
            _ => Ok(()),
        }
    }

    /// Approximate bytes in host memory, without those of filters, an eighth of a hash table at most. Tables of integers
    /// take as many on the device.
    pub fn bytes(&self) -> usize {
        match &self.keys {
            Keys::Integers(dense) => dense.bits.len() * 4 + dense.codes.bytes(),
            Keys::DeviceKeyTable(device_table) => {
                device_table.layout.keys_bytes() + device_table.layout.codes_bytes()
            }
            Keys::Hashed { table, codes } => table.slots().len() * 8 + codes.bytes(),
            Keys::Bytes(known) => known.keys().map(|key| key.len() + 32).sum(),
            Keys::Dictionaries(all) => all.iter().map(|of| of.codes.len() * 8).sum(),
        }
    }

    /// Bytes of the bits of a dense table; `usize::MAX` for other tables.
    pub fn bits_bytes(&self) -> usize {
        match &self.keys {
            Keys::Integers(dense) => dense.bits.len() * 4,
            Keys::DeviceKeyTable(device_table) if !self.is_hashed() => {
                device_table.layout.keys_bytes()
            }
            Keys::DeviceKeyTable(_) => usize::MAX,
            Keys::Hashed { .. } | Keys::Bytes(_) | Keys::Dictionaries(_) => usize::MAX,
        }
    }

    /// Returns true if integer keys are looked up in a hash table.
    pub fn is_hashed(&self) -> bool {
        match &self.keys {
            Keys::Hashed { .. } => true,
            Keys::DeviceKeyTable(device_table) => {
                matches!(device_table.layout.keys, DeviceKeyLayout::Hashed { .. })
            }
            Keys::Integers(_) | Keys::Bytes(_) | Keys::Dictionaries(_) => false,
        }
    }

    /// The offset of the codes in the device layout of a table of integers, and the table's size, in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for text and codes of [`RowCodes::Ranks`], which have no device layout.
    pub fn table_bytes(&self) -> Result<(usize, usize)> {
        let (keys_bytes, codes_bytes) = match &self.keys {
            Keys::Integers(PerfectHashTable {
                codes: DenseCodes::Ranks(_),
                ..
            }) => return Err(Error::Unsupported("codes by rank on a device".into())),
            Keys::Integers(dense) => (dense.bits.len() * 4, dense.codes.bytes()),
            Keys::DeviceKeyTable(device_table) => (
                device_table.layout.keys_bytes(),
                device_table.layout.codes_bytes(),
            ),
            Keys::Hashed { table, codes } => (table.slots().len() * 8, codes.bytes()),
            Keys::Bytes(_) | Keys::Dictionaries(_) => {
                let reason = "text that is in no dictionary, looked up";
                return Err(Error::Unsupported(reason.into()));
            }
        };
        let codes_at = keys_bytes.next_multiple_of(256);
        Ok((codes_at, codes_at + codes_bytes))
    }

    /// Writes the table in the device layout, with codes at the offset `codes_at`. Writes nothing if there is no such
    /// layout, and if a table that was built on a device cannot be fetched.
    pub fn write_table(&self, codes_at: usize, to: &mut [u8]) {
        let codes = match &self.keys {
            Keys::Integers(dense) => dense.write(to),
            Keys::DeviceKeyTable(device_table) => {
                device_table.host().ok().and_then(|host| host.write(to))
            }
            Keys::Hashed { table, codes } => {
                table.write(to);
                Some(codes)
            }
            Keys::Bytes(_) | Keys::Dictionaries(_) => None,
        };
        if let Some(codes) = codes {
            codes.write(&mut to[codes_at..]);
        }
    }

    /// Arguments of kernels beside the table: first key and range, or empty slot and size.
    pub fn table_words(&self) -> [u64; 2] {
        match &self.keys {
            Keys::Integers(PerfectHashTable { first, range, .. }) => [*first as u64, *range],
            Keys::DeviceKeyTable(device_table) => device_table.layout.words(),
            Keys::Hashed { table, .. } => [table.empty_slot() as u64, table.size_word()],
            Keys::Bytes(_) | Keys::Dictionaries(_) => [0, 0],
        }
    }

    /// Where `exec` keeps the copies of the table on devices.
    pub fn device_copies(&self) -> &DeviceCopies {
        &self.device
    }

    /// Counts the values that are keys of the table.
    ///
    /// # Errors
    ///
    /// The errors of [`KeyTable::codes_of`]; the driver's errors.
    pub fn count_keys(&self, values: &ArrayRef) -> Result<usize> {
        match &self.keys {
            Keys::DeviceKeyTable(device_table) => device_table.count_keys(values),
            _ => Ok(self.codes_of(values)?.iter().flatten().count()),
        }
    }

    /// The table of integer keys in host memory. Copies a table that was built on a device, unless that was done before.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the keys are text; the driver's errors.
    pub fn host(&self) -> Result<HostKeys<'_>> {
        Ok(match &self.keys {
            Keys::Integers(dense) => HostKeys::Dense(dense),
            Keys::Hashed { table, codes } => HostKeys::Hashed(table, codes),
            Keys::DeviceKeyTable(device_table) => match device_table.host()? {
                HostKeyTable::PerfectHashTable(dense) => HostKeys::Dense(dense),
                HostKeyTable::Hashed(table, codes) => HostKeys::Hashed(table, codes),
            },
            Keys::Bytes(_) | Keys::Dictionaries(_) => {
                let reason = "integers looked up among text";
                return Err(Error::Unsupported(reason.into()));
            }
        })
    }

    /// False if no key is from the value of `least` to that of `greatest`, arrays of one value each. True if that is not
    /// known.
    pub fn may_have_key_within(&self, least: &ArrayRef, greatest: &ArrayRef) -> bool {
        let (Keys::Integers(dense), Some((low, _)), Some((_, high))) =
            (&self.keys, bounds_of(least), bounds_of(greatest))
        else {
            return true;
        };
        dense.may_have_key_within(low, high)
    }

    /// The keys as a few ranges of consecutive integers, from the first to the last of each. `None` if they are no integers
    /// in host memory, in a dense table, or more ranges.
    pub fn ranges(&self) -> Option<&[(i64, i64)]> {
        let ranges = || match &self.keys {
            Keys::Integers(dense) => dense.ranges(MOST_RANGES),
            _ => None,
        };
        self.ranges.get_or_init(ranges).as_deref()
    }

    /// Looks values up: the code of each, `None` for nulls and values that are no keys.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the values are of another kind than the keys; the driver's errors.
    pub fn codes_of(&self, values: &ArrayRef) -> Result<Vec<Option<u32>>> {
        if let Keys::Dictionaries(_) = &self.keys {
            let codes = self.codes_of_dictionary(values);
            let codes = codes.ok_or_else(|| Error::Internal("another dictionary".into()))?;
            return Ok(codes.codes.clone());
        }
        if let Keys::Bytes(known) = &self.keys {
            let mut codes = vec![None; values.len()];
            for_bytes(values, |row, bytes| {
                codes[row] = known.get(bytes).copied();
                Ok(())
            })?;
            return Ok(codes);
        }
        let integers = integers(values)?.ok_or_else(|| unsupported_keys(values))?;
        let keys = self.host()?;
        let rows = integers.into_iter().enumerate();
        let codes = rows.map(|(row, key)| keys.code(key).filter(|_| values.is_valid(row)));
        Ok(codes.collect())
    }
}

/// Tables are equal if they are the same one.
impl PartialEq for KeyTable {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, codes) = (self.len, self.count);
        write!(f, "KeyTable({keys} keys, {codes} codes)")
    }
}

/// The most ranges of keys that are worth a test of values instead of a lookup.
const MOST_RANGES: usize = 4;

/// Codes of dense tables with at most this many bytes are in the first two caches of a core.
const CACHED_CODES: u64 = 1 << 18;

/// The smallest key, and the number of integers from there to the largest.
fn first_and_range(chunks: &[IntegerChunk]) -> (i64, u64) {
    let (first, last) = bounds(chunks).unwrap_or((0, 0));
    (first, last.abs_diff(first).saturating_add(1))
}

/// The table of integers, of which some of `rows` rows are null, and the number of distinct ones; `None` if keys are
/// duplicate and no set. `C` is as wide as `count` codes need.
fn integer_keys<C: StoredCode>(
    chunks: &[IntegerChunk],
    rows: usize,
    (codes, count, threads): (RowCodes<'_>, u32, usize),
) -> Result<Option<(Keys, usize)>> {
    let (first, range) = first_and_range(chunks);
    if is_dense(range, rows as u64, count) {
        let bytes = range.saturating_mul(code_bytes(count) as u64);
        if matches!(codes, RowCodes::Ranks) && bytes > CACHED_CODES && do_ascend(chunks, threads) {
            let built = dense_table::<()>(chunks, (first, range), RowCodes::One, threads);
            return Ok(built.map(|(table, len)| (Keys::Integers(table.with_ranks()), len)));
        }
        let built = dense_table::<C>(chunks, (first, range), codes, threads);
        return Ok(built.map(|(table, len)| (Keys::Integers(table), len)));
    }
    let built = match codes {
        RowCodes::Set => Some((hashed_set(chunks)?, CodeTable::One)),
        _ => hashed_table::<C>(chunks, (codes, count), threads)?,
    };
    Ok(built.map(|(table, codes)| {
        let len = table.len();
        (Keys::Hashed { table, codes }, len)
    }))
}

/// Texts with their codes; `None` if some are duplicate and no set.
fn numbered_bytes(
    chunks: &[ArrayRef],
    codes: RowCodes<'_>,
) -> Result<Option<HashMap<Box<[u8]>, u32>>> {
    let mut known = HashMap::with_capacity(chunks.iter().map(|chunk| chunk.len()).sum());
    let (mut first_row, mut has_duplicates) = (0, false);
    for chunk in chunks {
        for_bytes(chunk, |row, bytes| {
            let before = known.insert(Box::<[u8]>::from(bytes), codes.code(first_row + row));
            has_duplicates |= before.is_some();
            Ok(())
        })?;
        first_row += chunk.len();
    }
    let is_set = matches!(codes, RowCodes::Set);
    Ok((is_set || !has_duplicates).then_some(known))
}

/// Calls `f` with the row and the bytes of each value of a text or binary array that is not null.
///
/// # Errors
///
/// The errors of `f`; [`Error::Unsupported`] for arrays of other types.
pub fn for_bytes<'a>(
    keys: &'a ArrayRef,
    mut f: impl FnMut(usize, &'a [u8]) -> Result<()>,
) -> Result<()> {
    macro_rules! each {
        ($array:expr) => {
            for (row, value) in $array.iter().enumerate() {
                if let Some(value) = value {
                    f(row, value.as_ref())?;
                }
            }
        };
    }
    match keys.data_type() {
        DataType::Utf8 => each!(keys.as_string::<i32>()),
        DataType::LargeUtf8 => each!(keys.as_string::<i64>()),
        DataType::Utf8View => each!(keys.as_string_view()),
        DataType::Binary => each!(keys.as_binary::<i32>()),
        DataType::LargeBinary => each!(keys.as_binary::<i64>()),
        DataType::BinaryView => each!(keys.as_binary_view()),
        _ => return Err(unsupported_keys(keys)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date32Array, Decimal64Array, Int32Array, Int64Array, StringArray, UInt32Array, UInt64Array,
    };

    use arrow::compute::cast;

    use super::super::code_table::code_bytes;
    use super::super::perfect_hash::MOST_RANGE;
    use super::*;

    fn array<A: Array + 'static>(array: A) -> ArrayRef {
        Arc::new(array)
    }

    fn numbers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
        array(Int64Array::from_iter_values(values))
    }

    /// Pseudo-random, reproducible numbers of 64 bits.
    fn scattered(number: i64) -> i64 {
        number.wrapping_mul(0x1e37_79b9_7f4a_7c15)
    }

    #[test]
    fn ranges_without_a_key_are_found() {
        let keys = [-70, -3, 0, 31, 32, 95, 96, 1000, 900_000];
        let table = KeyTable::set(&numbers(keys)).unwrap();
        for low in (-100..130).chain(990..1010) {
            for high in [low, low + 1, low + 30, low + 64, low + 2000] {
                let expected = keys.iter().any(|key| (low..=high).contains(key));
                let found = table.may_have_key_within(&numbers([low]), &numbers([high]));
                assert_eq!(found, expected, "{low}..={high}");
            }
        }
        let within =
            |low: i64, high: i64| table.may_have_key_within(&numbers([low]), &numbers([high]));
        assert!(!within(i64::MIN, -71) && !within(900_001, i64::MAX));
        assert!(within(i64::MIN, i64::MAX));
        // too many to look at
        assert!(within(2_000, 899_999));
        let nothing = KeyTable::set(&numbers([])).unwrap();
        assert!(!nothing.may_have_key_within(&numbers([0]), &numbers([0])));
    }

    #[test]
    fn tables_are_dense_up_to_the_bytes_of_a_hash_table() {
        let is_hashed = |last: i64, count: u32| {
            let keys = numbers((0..99_999).chain([last - 1]));
            let codes: Vec<u32> = (0..100_000).map(|row| row % count).collect();
            KeyTable::new(&keys, &codes, count).unwrap().is_hashed()
        };
        assert!(!is_hashed(256 * 100_000, 1));
        assert!(is_hashed(256 * 100_000 + 1, 1));
        assert!(!is_hashed(256 * 100_000, 300));
        let of_few = |last: i64| KeyTable::set(&numbers([5, 5 + last])).unwrap().is_hashed();
        assert!(!of_few((1 << 24) - 1));
        assert!(of_few(1 << 24));
        // the codes have a limit of bytes, too
        assert!(is_dense(MOST_RANGE, MOST_RANGE, 2));
        assert!(!is_dense(MOST_RANGE, MOST_RANGE, 300));
        assert!(!is_dense(MOST_RANGE + 1, MOST_RANGE + 1, 1));
        assert!(!is_dense(u64::MAX, u64::MAX, u32::MAX));
    }

    #[test]
    fn scattered_keys_have_their_codes() {
        let keys: Vec<i64> = (0..3000)
            .map(scattered)
            .chain([i64::MIN, i64::MAX, -1])
            .collect();
        for count in [1, 2, 255, 256, 65_535, 65_536, u32::MAX] {
            let code = |row: usize| (row as u64 * 0x9e37_79b9 % u64::from(count)) as u32;
            let numbered: Vec<u32> = (0..keys.len()).map(code).collect();
            let codes = KeyTable::new(&numbers(keys.clone()), &numbered, count).unwrap();
            assert!(codes.is_hashed() && codes.len() == keys.len());
            assert_eq!(codes.bits_bytes(), usize::MAX);
            assert_eq!(codes.bytes(), 8192 * (8 + code_bytes(count)));
            let all = codes.codes_of(&numbers(keys.clone())).unwrap();
            assert!((0..keys.len()).all(|row| all[row] == Some(code(row))));
            let others = numbers((3000..6000).map(scattered).chain([1, i64::MIN + 1]));
            assert!(codes.codes_of(&others).unwrap().iter().all(Option::is_none));
        }
    }

    #[test]
    fn nulls_are_ignored() {
        let keys = Int64Array::from(vec![Some(i64::MAX), None, Some(i64::MIN), None]);
        let codes = KeyTable::new(&array(keys.clone()), &[1, 2, 0, 1], 3).unwrap();
        assert!(codes.is_hashed() && codes.len() == 2);
        let codes_of_keys = codes.codes_of(&array(keys)).unwrap();
        assert_eq!(codes_of_keys, [Some(1), None, Some(0), None]);
        let only_nulls = Int64Array::new_null(5);
        let codes = KeyTable::set(&array(only_nulls)).unwrap();
        assert!(codes.is_empty());
    }

    #[test]
    fn sets_of_keys_may_have_duplicates() {
        let keys = numbers((0..1000).map(|row| scattered(row % 10)));
        let codes = KeyTable::set(&keys).unwrap();
        assert_eq!((codes.len(), codes.bytes()), (10, 32 * 8));
        let error = KeyTable::new(&keys, &[0; 1000], 1).unwrap_err();
        assert!(error.to_string().contains("duplicate join keys"), "{error}");
    }

    #[test]
    fn every_type_of_integers() {
        let keys: [ArrayRef; 4] = [
            array(UInt32Array::from(vec![0, u32::MAX, 1 << 31])),
            array(Int32Array::from(vec![i32::MIN, i32::MAX, -1])),
            array(Date32Array::from(vec![i32::MIN, 0, i32::MAX])),
            array(Decimal64Array::from(vec![-(1 << 59), 7, 1 << 59])),
        ];
        for keys in keys {
            // only the rows of a slice count
            let codes = KeyTable::new(&keys.slice(1, 2), &[4, 3], 5).unwrap();
            assert!(codes.is_hashed());
            assert_eq!(codes.codes_of(&keys).unwrap(), [None, Some(4), Some(3)]);
        }
        let codes = KeyTable::set(&numbers([0, 1 << 40])).unwrap();
        for other in [
            array(UInt64Array::from(vec![0])),
            array(StringArray::from(vec!["0"])),
        ] {
            assert!(matches!(codes.codes_of(&other), Err(Error::Unsupported(_))));
        }
    }

    #[test]
    fn dense_keys_and_text_have_their_codes() {
        let codes = KeyTable::new(&numbers([7, -2, 9]), &[0, 2, 1], 3).unwrap();
        assert!(!codes.is_hashed());
        let codes_of_keys = codes.codes_of(&numbers([i64::MIN, -2, -1, 7, 9, 10, i64::MAX]));
        let expected = [None, Some(2), None, Some(0), Some(1), None, None];
        assert_eq!(codes_of_keys.unwrap(), expected);
        let texts = array(StringArray::from(vec![Some("a"), None, Some("b")]));
        let codes = KeyTable::new(&texts, &[1, 0, 0], 2).unwrap();
        assert!(!codes.is_hashed() && codes.len() == 2);
        assert_eq!(codes.codes_of(&texts).unwrap(), [Some(1), None, Some(0)]);
    }

    /// `values` in chunks that end at `ends`, with nulls where `is_null`, as each type of integers that has room.
    fn chunked(values: &[Option<i64>], ends: &[usize]) -> Vec<Vec<ArrayRef>> {
        let whole = array(Int64Array::from(values.to_vec()));
        let types = [
            DataType::Int64,
            DataType::Int32,
            DataType::Int16,
            DataType::Int8,
            DataType::UInt32,
            DataType::UInt16,
            DataType::UInt8,
        ];
        let types = types.iter().filter_map(|of| {
            let values = cast(&whole, of).unwrap();
            (values.null_count() == whole.null_count()).then_some(values)
        });
        let cut = |values: ArrayRef| {
            let ends = ends.iter().copied().chain([values.len()]);
            let mut begin = 0;
            let chunks = ends.map(|end| {
                let end = end.clamp(begin, values.len());
                let chunk = values.slice(begin, end - begin);
                begin = end;
                chunk
            });
            chunks.collect()
        };
        types.map(cut).collect()
    }

    /// Compares tables of chunks with a map, for one thread and several.
    fn check(values: &[Option<i64>], ends: &[usize]) {
        let present: Vec<(usize, i64)> = (0..)
            .zip(values)
            .filter_map(|(row, key)| Some((row, (*key)?)))
            .collect();
        let distinct: HashMap<i64, usize> = present.iter().map(|(row, key)| (*key, *row)).collect();
        let near = |key: &i64| [key.wrapping_sub(1), *key, key.wrapping_add(1)];
        let probes: Vec<i64> = distinct.keys().flat_map(near).chain([0]).collect();
        let of_row = |row: usize| (row as u64 * 0x9e37_79b9) as u32;
        for (chunks, threads) in chunked(values, ends)
            .iter()
            .flat_map(|chunks| [1, 3, 16].map(|threads| (chunks, threads)))
        {
            let keys = KeyChunks::new(chunks, 1).unwrap().with_threads(threads);
            let all = KeyTable::build(&keys, RowCodes::Set).unwrap();
            assert_eq!((all.len(), all.count()), (distinct.len(), 1));
            let codes = all.codes_of(&numbers(probes.clone())).unwrap();
            for (key, code) in probes.iter().zip(codes) {
                assert_eq!(code.is_some(), distinct.contains_key(key), "{key}");
            }
            assert!(all.bytes() <= KeyTable::bytes_of(&keys, RowCodes::Set).unwrap());
            for count in [1, 7, 70_000] {
                let each: Vec<u32> = (0..values.len()).map(|row| of_row(row) % count).collect();
                let mut codings = vec![RowCodes::Each(&each, count)];
                if count == 1 {
                    codings.extend([RowCodes::One, RowCodes::Rows, RowCodes::Ranks]);
                }
                for coding in codings {
                    let table = KeyTable::build(&keys, coding);
                    if distinct.len() < present.len() {
                        let error = table.unwrap_err();
                        assert!(error.to_string().contains("duplicate join keys"), "{error}");
                        continue;
                    }
                    let table = table.unwrap();
                    assert_eq!(table.len(), distinct.len());
                    let codes = table.codes_of(&numbers(probes.clone())).unwrap();
                    for (key, code) in probes.iter().zip(codes) {
                        let expected = distinct.get(key).map(|row| coding.code(*row));
                        assert_eq!(code, expected, "{key}");
                    }
                    assert!(table.bytes() <= KeyTable::bytes_of(&keys, coding).unwrap());
                }
            }
        }
    }

    #[test]
    fn tables_of_chunks_are_those_of_their_keys() {
        let sorted: Vec<i64> = (0..1100).map(|row| row * 5 - 300).collect();
        let small: Vec<i64> = (0..100).collect();
        let wide: Vec<i64> = (-100..300).map(|row| row << 44).collect();
        let ends: Vec<i64> = [i64::MIN, 0, i64::MAX, i64::MIN + 1, i64::MAX - 1].to_vec();
        let edges: Vec<i64> = vec![i64::MAX - 70, i64::MAX, i64::MAX - 31, i64::MAX - 32];
        let far: Vec<i64> = (0..200).chain([1 << 17]).collect();
        let apart: Vec<i64> = (0..1200).map(|row| row * 411 - 77).collect();
        for keys in [
            sorted,
            small,
            wide,
            ends,
            edges,
            far,
            apart,
            vec![],
            vec![-1],
        ] {
            let shuffled = |step: usize| {
                let row = move |row| row * step % 1511;
                let order = (0..1511).map(row).filter(|row| *row < keys.len());
                order.map(|row| Some(keys[row])).collect::<Vec<_>>()
            };
            for mut values in [shuffled(1), shuffled(1234)] {
                let len = values.len();
                for ends in [
                    vec![],
                    vec![0, 0, len / 3, len / 3, len / 2],
                    (0..len).step_by(len / 8 + 1).collect(),
                ] {
                    check(&values, &ends);
                }
                values.extend([None, values.first().copied().flatten(), None]);
                values.insert(0, None);
                // the first key twice, in one chunk and in two
                check(&values, &[]);
                check(&values, &[10, len]);
                let _ = values.remove(len + 2);
                check(&values, &[1, len / 2, len + 1]);
            }
        }
    }

    #[test]
    fn few_ranges_of_keys_are_found() {
        let ranges = |keys: &[i64]| {
            let table = KeyTable::set(&numbers(keys.to_vec())).unwrap();
            table.ranges().map(<[_]>::to_vec)
        };
        assert_eq!(ranges(&[]), Some(vec![]));
        assert_eq!(ranges(&[7]), Some(vec![(7, 7)]));
        assert_eq!(ranges(&Vec::from_iter(-40..200)), Some(vec![(-40, 199)]));
        let several: Vec<i64> = (0..32)
            .chain([64])
            .chain(96..161)
            .chain([i64::from(u16::MAX)])
            .collect();
        let expected = vec![(0, 31), (64, 64), (96, 160), (65_535, 65_535)];
        assert_eq!(ranges(&several), Some(expected));
        assert_eq!(ranges(&[1, 3, 5, 7, 9]), None);
        let last = i64::MAX - 3;
        assert_eq!(
            ranges(&Vec::from_iter(last..=i64::MAX)),
            Some(vec![(last, i64::MAX)])
        );
    }

    #[test]
    fn keys_that_ascend_have_small_tables() {
        let keys: Vec<i64> = (0..50_000).map(|row| row * 31).collect();
        let table = |keys: &[i64], codes| {
            let chunks: Vec<ArrayRef> = keys.chunks(9999).map(|of| numbers(of.to_vec())).collect();
            KeyTable::build(&KeyChunks::new(&chunks, 2).unwrap(), codes).unwrap()
        };
        let ranks = table(&keys, RowCodes::Ranks);
        let stored = table(&keys, RowCodes::Rows);
        assert!(ranks.bytes() * 8 < stored.bytes());
        assert!(ranks.table_bytes().is_err() && stored.table_bytes().is_ok());
        let mut other = keys;
        other.swap(9998, 9999);
        assert_eq!(table(&other, RowCodes::Ranks).bytes(), stored.bytes());
    }

    #[test]
    fn large_tables_have_several_threads() {
        let keys: Vec<i64> = (0..200_000).map(|row| row * 77_773 % 200_003).collect();
        let chunks: Vec<ArrayRef> = keys
            .chunks(8192)
            .map(|keys| numbers(keys.to_vec()))
            .collect();
        let keys = KeyChunks::new(&chunks, 4).unwrap();
        assert_eq!((keys.rows(), keys.threads), (200_000, 4));
        let table = KeyTable::build(&keys, RowCodes::Rows).unwrap();
        let codes = table.codes_of(&chunks[3]).unwrap();
        assert!(
            (0..)
                .zip(codes)
                .all(|(row, code)| code == Some(3 * 8192 + row))
        );
        let few = KeyChunks::new(&chunks[..2], 4).unwrap();
        assert_eq!(few.threads, 1);
        let none = KeyTable::build(&KeyChunks::new(&[], 4).unwrap(), RowCodes::Rows).unwrap();
        assert!(none.is_empty() && none.count() == 0);
    }

    #[test]
    fn texts_come_in_chunks() {
        let chunk = |texts: &[&str]| array(StringArray::from(texts.to_vec()));
        let keys = KeyChunks::new(&[chunk(&["b", "a"]), chunk(&[]), chunk(&["c"])], 2).unwrap();
        let table = KeyTable::build(&keys, RowCodes::Rows).unwrap();
        let codes = table.codes_of(&chunk(&["a", "b", "c", "d"])).unwrap();
        assert_eq!(codes, [Some(1), Some(0), Some(2), None]);
        let twice = KeyChunks::new(&[chunk(&["b", "a"]), chunk(&["b"])], 2).unwrap();
        assert!(KeyTable::build(&twice, RowCodes::Rows).is_err());
        assert_eq!(KeyTable::build(&twice, RowCodes::Set).unwrap().len(), 2);
    }
}
