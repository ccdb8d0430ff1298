//! Key tables: the keys of a join's build table, each with a code.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;

use super::code_table::CodeTable;
use super::device_key_table::{
    DeviceKeyLayout, DeviceKeyTable, DeviceKeyTableLayout, HostKeyTable,
};
use super::hash_table::HashedKeys;
use super::perfect_hash::{PerfectHashTable, integers, is_dense, unsupported_keys};
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
    /// The errors of [`KeyTable::new`], except for duplicates.
    pub fn set(keys: &ArrayRef) -> Result<Self> {
        Self::build(keys, None, 1)
    }

    /// Creates a table of keys with their codes; codes are below `count`. Null keys are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if keys have duplicates, if they are neither integers (or dates, times, decimals of up to
    /// 64 bits) nor text, or if there are too many for a table. [`Error::Internal`] if the codes do not fit the keys or
    /// `count`.
    pub fn new(keys: &ArrayRef, codes: &[u32], count: u32) -> Result<Self> {
        if codes.len() != keys.len() || codes.iter().any(|code| *code >= count) {
            let reason = format!("{} codes below {count} for {}", codes.len(), keys.len());
            return Err(Error::Internal(reason));
        }
        Self::build(keys, Some(codes), count)
    }

    fn build(keys: &ArrayRef, codes: Option<&[u32]>, count: u32) -> Result<Self> {
        let twice = || Error::Unsupported("duplicate join keys".into());
        let code = |row: usize| codes.map_or(0, |codes| codes[row]);
        let mut len = 0;
        let keys = if let Some(values) = integers(keys)? {
            let nulls = keys.nulls().filter(|nulls| nulls.null_count() > 0);
            let is_present = |row: &usize| nulls.is_none_or(|nulls| nulls.is_valid(*row));
            let present = || (0..values.len()).filter(is_present);
            let bounds = match nulls {
                // without a test of each row
                None => values
                    .iter()
                    .copied()
                    .min()
                    .zip(values.iter().copied().max()),
                Some(_) => {
                    let own = || present().map(|row| values[row]);
                    own().min().zip(own().max())
                }
            };
            let (first, last) = bounds.unwrap_or((0, 0));
            let range = last.abs_diff(first).saturating_add(1);
            if is_dense(range, values.len() as u64, count) {
                let table = CodeTable::new(count, range)?;
                let bits = vec![0u32; (range as usize).div_ceil(32) + 1];
                let mut dense = PerfectHashTable {
                    first,
                    range,
                    bits,
                    codes: table,
                };
                for row in present() {
                    match dense.insert(values[row], code(row)) {
                        true => len += 1,
                        false if codes.is_some() => return Err(twice()),
                        false => {}
                    }
                }
                Keys::Integers(dense)
            } else {
                let rows = present().count();
                // the number of distinct keys is not known if duplicates are allowed
                let expected = codes.map_or(0, |_| rows);
                let own = present().map(|row| values[row]);
                let (table, slots) = HashedKeys::with_slots(own, expected)?;
                len = table.len();
                if codes.is_some() && len < rows {
                    return Err(twice());
                }
                let mut slot_codes = CodeTable::new(count, table.slots().len() as u64)?;
                if count > 1 {
                    for (row, slot) in present().zip(slots) {
                        slot_codes.set(slot as usize, code(row));
                    }
                }
                Keys::Hashed {
                    table,
                    codes: slot_codes,
                }
            }
        } else {
            let mut known = HashMap::with_capacity(keys.len());
            for_bytes(keys, |row, bytes| {
                let before = known.insert(Box::<[u8]>::from(bytes), code(row));
                len += usize::from(before.is_none());
                match (before, codes) {
                    (Some(_), Some(_)) => Err(twice()),
                    _ => Ok(()),
                }
            })?;
            Keys::Bytes(known)
        };
        Ok(Self {
            keys,
            count,
            len,
            share: OnceLock::new(),
            device: Mutex::default(),
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

    /// Approximate bytes in host memory. Tables of integers take as many on the device.
    pub fn bytes(&self) -> usize {
        match &self.keys {
            Keys::Integers(dense) => dense.bits.len() * 4 + dense.codes.bytes(),
            Keys::DeviceKeyTable(device_table) => {
                device_table.layout.keys_bytes() + device_table.layout.codes_bytes()
            }
            Keys::Hashed { table, codes } => table.slots().len() * 8 + codes.bytes(),
            Keys::Bytes(known) => known.keys().map(|key| key.len() + 32).sum(),
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
            Keys::Hashed { .. } | Keys::Bytes(_) => usize::MAX,
        }
    }

    /// Returns true if integer keys are looked up in a hash table.
    pub fn is_hashed(&self) -> bool {
        match &self.keys {
            Keys::Hashed { .. } => true,
            Keys::DeviceKeyTable(device_table) => {
                matches!(device_table.layout.keys, DeviceKeyLayout::Hashed { .. })
            }
            Keys::Integers(_) | Keys::Bytes(_) => false,
        }
    }

    /// The offset of the codes in the device layout of a table of integers, and the table's size, in bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for text, which has no device layout.
    pub fn table_bytes(&self) -> Result<(usize, usize)> {
        let (keys_bytes, codes_bytes) = match &self.keys {
            Keys::Integers(dense) => (dense.bits.len() * 4, dense.codes.bytes()),
            Keys::DeviceKeyTable(device_table) => (
                device_table.layout.keys_bytes(),
                device_table.layout.codes_bytes(),
            ),
            Keys::Hashed { table, codes } => (table.slots().len() * 8, codes.bytes()),
            Keys::Bytes(_) => {
                let reason = "text that is in no dictionary, looked up";
                return Err(Error::Unsupported(reason.into()));
            }
        };
        let codes_at = keys_bytes.next_multiple_of(256);
        Ok((codes_at, codes_at + codes_bytes))
    }

    /// Writes the table in the device layout, with codes at the offset `codes_at`. Writes nothing for text, and if a
    /// table that was built on a device cannot be fetched.
    pub fn write_table(&self, codes_at: usize, to: &mut [u8]) {
        let codes = match &self.keys {
            Keys::Integers(dense) => Some(dense.write(to)),
            Keys::DeviceKeyTable(device_table) => {
                device_table.host().ok().map(|host| host.write(to))
            }
            Keys::Hashed { table, codes } => {
                table.write(to);
                Some(codes)
            }
            Keys::Bytes(_) => None,
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
            Keys::Bytes(_) => [0, 0],
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
            Keys::Bytes(_) => {
                let reason = "integers looked up among text";
                return Err(Error::Unsupported(reason.into()));
            }
        })
    }

    /// Looks values up: the code of each, `None` for nulls and values that are no keys.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the values are of another kind than the keys; the driver's errors.
    pub fn codes_of(&self, values: &ArrayRef) -> Result<Vec<Option<u32>>> {
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

/// Calls `f` with the row and the bytes of each value of a text or binary array that is not null.
///
/// # Errors
///
/// The errors of `f`; [`Error::Unsupported`] for arrays of other types.
pub fn for_bytes(keys: &ArrayRef, mut f: impl FnMut(usize, &[u8]) -> Result<()>) -> Result<()> {
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
}
