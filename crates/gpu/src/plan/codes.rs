//! Codes of the keys of a small table: what a join looks up.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;

use super::hashed::HashedKeys;
use super::types::Type;
use crate::error::{Error, Result};

/// Bits of a dense table for each key, at most: as many as a hash table has, of four slots for a key.
const BITS_PER_KEY: u64 = 256;
/// Numbers, from the smallest key to the largest, of which a table is dense, however few are keys: their bits
/// take 2 MiB, which caches hold.
const SMALL_RANGE: u64 = 1 << 24;
/// Numbers, from the smallest key to the largest, that kernels can tell apart in a dense table.
const MOST_RANGE: u64 = 1 << 31;
/// Bytes that a table of codes takes at most.
const MOST_BYTES: u64 = 2 << 30;

/// The keys of a table, each with a code: which of the rows that matter it has. Many keys may have the
/// same code, as many customers have one nation.
///
/// Kernels look integers up by their distance from the smallest: for each there is a bit, and a code
/// where some are told apart. If they lie too far apart for that, they are looked up in a hash table.
/// Make one `Codes` and keep it: the table stays on the device.
pub struct Codes {
    keys: Keys,
    /// Codes are below it. With one, there is nothing to tell apart.
    count: u32,
    found: usize,
    /// The share of rows that are found, once somebody has looked.
    share: OnceLock<f64>,
    /// Its copy on the device.
    device: DeviceCopy,
}

enum Keys {
    Integers(Dense),
    /// Those of a table that was made on a device.
    Made(Made),
    Hashed {
        table: HashedKeys,
        /// A code for each slot, if there is more than one.
        codes: CodeTable,
    },
    Bytes(HashMap<Box<[u8]>, u32>),
}

/// Integers that are looked up by their distance from the first.
struct Dense {
    first: i64,
    /// From the first to the last.
    range: u64,
    /// A bit for each.
    bits: Vec<u32>,
    /// A code for each, if there is more than one; of those that are missing, all ones.
    codes: CodeTable,
}

/// The same on a device, which is copied back when somebody asks for it here.
struct Made {
    place: MadePlace,
    /// Some bytes of the table, from a place on.
    fetch: FetchBytes,
    /// Without codes, and with them.
    bits: OnceLock<Dense>,
    dense: OnceLock<Dense>,
}

/// Which keys and codes a table may have that is made on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MadePlace {
    pub first: i64,
    /// From the first to the last.
    pub range: u64,
    /// Codes are below it.
    pub count: u32,
}

type FetchBytes = Box<dyn Fn(usize, usize) -> Result<Vec<u8>> + Send + Sync>;

/// Copies something back from a device.
pub(crate) type Fetch<T> = Box<dyn Fn() -> Result<T> + Send + Sync>;

/// A copy of a table on a device, whatever that is to who made it.
pub(crate) type DeviceCopy = Mutex<Option<Arc<dyn Any + Send + Sync>>>;

/// Bytes of a code below `count`, with one more for what is missing; 0 if there is but one.
pub(crate) fn code_bytes(count: u32) -> usize {
    match count {
        0 | 1 => 0,
        2..=0xff => 1,
        0x100..=0xffff => 2,
        _ => 4,
    }
}

/// Codes in as few bytes as they need.
pub(crate) enum CodeTable {
    One,
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
}

impl Codes {
    /// The share of rows that are found, as `sample` says when it is asked for the first time.
    pub(crate) fn share(&self, sample: impl FnOnce() -> Result<f64>) -> Result<f64> {
        match self.share.get() {
            Some(share) => Ok(*share),
            None => {
                let share = sample()?;
                Ok(*self.share.get_or_init(|| share))
            }
        }
    }

    /// Whether a key is there is all that is asked. Nulls are left out; a key may be there more than
    /// once.
    ///
    /// # Errors
    ///
    /// As [`Codes::new`], but for keys that are there twice.
    pub fn of_keys(keys: &ArrayRef) -> Result<Self> {
        Self::build(keys, None, 1)
    }

    /// The code of each key; codes are below `count`. Nulls are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if a key is there twice, if keys are no integers (or dates, times,
    /// decimals of up to 64 bits) nor text, or if there are too many for a table.
    pub fn new(keys: &ArrayRef, codes: &[u32], count: u32) -> Result<Self> {
        if codes.len() != keys.len() || codes.iter().any(|code| *code >= count) {
            let reason = format!("{} codes below {count} for {}", codes.len(), keys.len());
            return Err(Error::Unsupported(reason));
        }
        Self::build(keys, Some(codes), count)
    }

    fn build(keys: &ArrayRef, codes: Option<&[u32]>, count: u32) -> Result<Self> {
        let twice = || Error::Unsupported("a key that is there more than once".into());
        let code = |row: usize| codes.map_or(0, |codes| codes[row]);
        let mut found = 0;
        let keys = if let Some(values) = integers(keys)? {
            let present = || (0..values.len()).filter(|row| keys.is_valid(*row));
            let bounds = present().fold(None, |bounds: Option<(i64, i64)>, row| {
                let value = values[row];
                Some(bounds.map_or((value, value), |(a, b)| (a.min(value), b.max(value))))
            });
            let (first, last) = bounds.unwrap_or((0, 0));
            let range = last.abs_diff(first).saturating_add(1);
            if is_dense(range, values.len() as u64, count) {
                let mut table = CodeTable::new(count, range)?;
                let mut bits = vec![0u32; (range as usize).div_ceil(32) + 1];
                for row in present() {
                    let place = values[row].abs_diff(first) as usize;
                    let bit = 1 << (place % 32);
                    if bits[place / 32] & bit != 0 {
                        match codes {
                            Some(_) => return Err(twice()),
                            None => continue,
                        }
                    }
                    bits[place / 32] |= bit;
                    table.set(place, code(row));
                    found += 1;
                }
                Keys::Integers(Dense {
                    first,
                    range,
                    bits,
                    codes: table,
                })
            } else {
                let rows = present().count();
                // where keys may be there more than once, how many differ is not known
                let expected = codes.map_or(0, |_| rows);
                let table = HashedKeys::new(present().map(|row| values[row]), expected)?;
                found = table.len();
                if codes.is_some() && found < rows {
                    return Err(twice());
                }
                let mut of_slots = CodeTable::new(count, table.slots().len() as u64)?;
                if count > 1 {
                    for row in present() {
                        if let Some(place) = table.place(values[row]) {
                            of_slots.set(place, code(row));
                        }
                    }
                }
                Keys::Hashed {
                    table,
                    codes: of_slots,
                }
            }
        } else {
            let mut known = HashMap::with_capacity(keys.len());
            for_bytes(keys, |row, bytes| {
                let before = known.insert(Box::<[u8]>::from(bytes), code(row));
                found += usize::from(before.is_none());
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
            found,
            share: OnceLock::new(),
            device: Mutex::new(None),
        })
    }

    /// Codes are below it.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.found
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.found == 0
    }

    /// The table at a place on a device, of `found` keys: `fetch` copies so many of its bytes back, from a byte on.
    pub(crate) fn made(
        place: MadePlace,
        found: usize,
        fetch: impl Fn(usize, usize) -> Result<Vec<u8>> + Send + Sync + 'static,
        device: DeviceCopy,
    ) -> Self {
        let made = Made {
            place,
            fetch: Box::new(fetch),
            bits: OnceLock::new(),
            dense: OnceLock::new(),
        };
        Self {
            keys: Keys::Made(made),
            count: place.count,
            found,
            share: OnceLock::new(),
            device,
        }
    }

    /// Has a table that was made on a device be here, too.
    pub(crate) fn fetch(&self) -> Result<()> {
        match &self.keys {
            Keys::Made(made) => made.dense().map(drop),
            _ => Ok(()),
        }
    }

    /// Bytes in memory, nearly; on the device integers take as many.
    pub fn bytes(&self) -> usize {
        match &self.keys {
            Keys::Integers(dense) => dense.bits.len() * 4 + dense.codes.bytes(),
            Keys::Made(made) => made.place.bits_bytes() + made.place.codes_bytes(),
            Keys::Hashed { table, codes } => table.slots().len() * 8 + codes.bytes(),
            Keys::Bytes(known) => known.keys().map(|key| key.len() + 32).sum(),
        }
    }

    /// Bytes of a bit for each place, if there is one.
    pub(crate) fn bits_bytes(&self) -> usize {
        match &self.keys {
            Keys::Integers(dense) => dense.bits.len() * 4,
            Keys::Made(made) => made.place.bits_bytes(),
            Keys::Hashed { .. } | Keys::Bytes(_) => usize::MAX,
        }
    }

    /// Whether keys are looked up in a hash table, but for those of dictionaries.
    pub(crate) fn is_hashed(&self) -> bool {
        matches!(self.keys, Keys::Hashed { .. })
    }

    /// Where codes begin in the table of keys that are integers, as devices have it, and its bytes.
    pub(crate) fn table_bytes(&self) -> Result<(usize, usize)> {
        let (keys_bytes, codes_bytes) = match &self.keys {
            Keys::Integers(dense) => (dense.bits.len() * 4, dense.codes.bytes()),
            Keys::Made(made) => (made.place.bits_bytes(), made.place.codes_bytes()),
            Keys::Hashed { table, codes } => (table.slots().len() * 8, codes.bytes()),
            Keys::Bytes(_) => {
                let reason = "text that is in no dictionary, looked up";
                return Err(Error::Unsupported(reason.into()));
            }
        };
        let codes_at = keys_bytes.next_multiple_of(256);
        Ok((codes_at, codes_at + codes_bytes))
    }

    /// Writes that table, of which codes begin at `codes_at`, if it is here.
    pub(crate) fn write_table(&self, codes_at: usize, to: &mut [u8]) {
        let codes = match &self.keys {
            Keys::Integers(dense) => Some(dense.write(to)),
            Keys::Made(made) => made.dense.get().map(|dense| dense.write(to)),
            Keys::Hashed { table, codes } => {
                let words = to.as_chunks_mut::<8>().0.iter_mut();
                words
                    .zip(table.slots())
                    .for_each(|(to, slot)| *to = slot.to_le_bytes());
                Some(codes)
            }
            Keys::Bytes(_) => None,
        };
        if let Some(codes) = codes {
            codes.write(&mut to[codes_at..]);
        }
    }

    /// What kernels get to know beside it: first key and places, or the empty slot and the size.
    pub(crate) fn table_words(&self) -> [u64; 2] {
        match &self.keys {
            Keys::Integers(Dense { first, range, .. }) => [*first as u64, *range],
            Keys::Made(Made { place, .. }) => [place.first as u64, place.range],
            Keys::Hashed { table, .. } => [table.empty_slot() as u64, table.size_word()],
            Keys::Bytes(_) => [0, 0],
        }
    }

    /// Where who executes keeps the table's copy on a device.
    pub(crate) fn device_copy(&self) -> &DeviceCopy {
        &self.device
    }

    /// How many of the values are there.
    pub(crate) fn found_among(&self, values: &ArrayRef) -> Result<usize> {
        let codes = match &self.keys {
            Keys::Made(made) => made.bits()?.of(values)?,
            _ => self.of(values)?,
        };
        Ok(codes.iter().flatten().count())
    }

    /// The code of each value; none of what is not there, and of nulls.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the values are of another kind than the keys.
    pub fn of(&self, values: &ArrayRef) -> Result<Vec<Option<u32>>> {
        match &self.keys {
            Keys::Integers(dense) => dense.of(values),
            Keys::Made(made) => made.dense()?.of(values),
            Keys::Hashed { table, codes } => {
                let integers = integers(values)?.ok_or_else(|| other_keys(values))?;
                let code = |row: usize| {
                    let key = Some(integers[row]).filter(|_| values.is_valid(row));
                    let place = key.and_then(|key| table.place(key));
                    place.map(|place| codes.get(place))
                };
                Ok((0..values.len()).map(code).collect())
            }
            Keys::Bytes(known) => {
                let mut codes = vec![None; values.len()];
                for_bytes(values, |row, bytes| {
                    codes[row] = known.get(bytes).copied();
                    Ok(())
                })?;
                Ok(codes)
            }
        }
    }
}

/// Tables are equal if they are the same one.
impl PartialEq for Codes {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, codes) = (self.found, self.count);
        write!(f, "Codes({keys} keys, {codes} codes)")
    }
}

impl Dense {
    /// The code of each value.
    fn of(&self, values: &ArrayRef) -> Result<Vec<Option<u32>>> {
        let integers = integers(values)?.ok_or_else(|| other_keys(values))?;
        let code = |row: usize| {
            let place = integers[row]
                .checked_sub(self.first)
                .filter(|_| values.is_valid(row));
            let place = place.and_then(|place| u64::try_from(place).ok());
            let place = place
                .filter(|place| *place < self.range)
                .unwrap_or(self.range) as usize;
            match self.bits[place / 32] >> (place % 32) & 1 {
                0 => None,
                _ => Some(self.codes.get(place)),
            }
        };
        Ok((0..values.len()).map(code).collect())
    }

    /// Writes the bits in the device's order, and gives the codes.
    fn write(&self, to: &mut [u8]) -> &CodeTable {
        let words = to.as_chunks_mut::<4>().0.iter_mut();
        words
            .zip(&self.bits)
            .for_each(|(to, word)| *to = word.to_le_bytes());
        &self.codes
    }
}

impl MadePlace {
    /// Bytes of a bit for each place, and of one behind the last.
    pub fn bits_bytes(self) -> usize {
        ((self.range as usize).div_ceil(32) + 1) * 4
    }

    /// Bytes of a code for each place, if there is more than one.
    pub fn codes_bytes(self) -> usize {
        self.range as usize * code_bytes(self.count)
    }

    /// Whether there is such a table, for so many keys.
    pub fn is_dense(self, keys: u64) -> bool {
        is_dense(self.range, keys, self.count)
    }
}

impl Made {
    /// The keys, as if all had one code.
    fn bits(&self) -> Result<&Dense> {
        known_or(&self.bits, || self.copied(CodeTable::One))
    }

    fn dense(&self) -> Result<&Dense> {
        known_or(&self.dense, || {
            let at = self.place.bits_bytes().next_multiple_of(256);
            let codes = match self.place.codes_bytes() {
                0 => CodeTable::One,
                bytes => CodeTable::read(self.place.count, (self.fetch)(at, bytes)?),
            };
            self.copied(codes)
        })
    }

    fn copied(&self, codes: CodeTable) -> Result<Dense> {
        let bits = (self.fetch)(0, self.place.bits_bytes())?;
        let bits = bits.as_chunks::<4>().0.iter();
        Ok(Dense {
            first: self.place.first,
            range: self.place.range,
            bits: bits.map(|word| u32::from_le_bytes(*word)).collect(),
            codes,
        })
    }
}

fn known_or<T>(known: &OnceLock<T>, make: impl FnOnce() -> Result<T>) -> Result<&T> {
    match known.get() {
        Some(known) => Ok(known),
        None => {
            let made = make()?;
            Ok(known.get_or_init(|| made))
        }
    }
}

/// Whether integers are looked up by their distance from the smallest key, rather than in a hash table:
/// a bit for each of `range` numbers takes no more memory than slots for `keys` do, or is little in any
/// case. Its rows ask for one bit, where those of a hash table ask for 32 bytes, and more than once.
fn is_dense(range: u64, keys: u64, count: u32) -> bool {
    let width = code_bytes(count) as u64;
    range
        <= keys
            .saturating_mul(BITS_PER_KEY)
            .clamp(SMALL_RANGE, MOST_RANGE)
        && range.saturating_mul(width) <= MOST_BYTES
}

impl CodeTable {
    fn new(count: u32, range: u64) -> Result<Self> {
        let width = code_bytes(count) as u64;
        if range * width > MOST_BYTES {
            let reason = format!("a table of {range} codes of {width} bytes");
            return Err(Error::Unsupported(reason));
        }
        let range = range as usize;
        Ok(match width {
            0 => Self::One,
            1 => Self::U8(vec![u8::MAX; range]),
            2 => Self::U16(vec![u16::MAX; range]),
            _ => Self::U32(vec![u32::MAX; range]),
        })
    }

    /// Bytes of a code; 0 if there is one.
    fn width(&self) -> usize {
        match self {
            Self::One => 0,
            Self::U8(_) => 1,
            Self::U16(_) => 2,
            Self::U32(_) => 4,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::One => 0,
            Self::U8(codes) => codes.len(),
            Self::U16(codes) => codes.len(),
            Self::U32(codes) => codes.len(),
        }
    }

    /// The codes of places.
    pub fn of_places(places: &[Option<u32>], count: u32) -> Result<Self> {
        let mut table = Self::new(count, places.len() as u64)?;
        for (place, code) in places.iter().enumerate() {
            if let Some(code) = code {
                table.set(place, *code);
            }
        }
        Ok(table)
    }

    /// That of these bytes, in the device's order.
    fn read(count: u32, bytes: Vec<u8>) -> Self {
        match code_bytes(count) {
            0 => Self::One,
            1 => Self::U8(bytes),
            2 => {
                let codes = bytes.as_chunks::<2>().0.iter();
                Self::U16(codes.map(|code| u16::from_le_bytes(*code)).collect())
            }
            _ => {
                let codes = bytes.as_chunks::<4>().0.iter();
                Self::U32(codes.map(|code| u32::from_le_bytes(*code)).collect())
            }
        }
    }

    /// Its bytes, in the device's order.
    pub fn write(&self, to: &mut [u8]) {
        match self {
            Self::One => {}
            Self::U8(codes) => to[..codes.len()].copy_from_slice(codes),
            Self::U16(codes) => {
                let to = to.as_chunks_mut::<2>().0.iter_mut();
                to.zip(codes)
                    .for_each(|(to, code)| *to = code.to_le_bytes());
            }
            Self::U32(codes) => {
                let to = to.as_chunks_mut::<4>().0.iter_mut();
                to.zip(codes)
                    .for_each(|(to, code)| *to = code.to_le_bytes());
            }
        }
    }

    /// How many bytes that are.
    pub fn bytes(&self) -> usize {
        self.len() * self.width()
    }

    fn set(&mut self, place: usize, code: u32) {
        match self {
            Self::One => {}
            Self::U8(codes) => codes[place] = code as u8,
            Self::U16(codes) => codes[place] = code as u16,
            Self::U32(codes) => codes[place] = code,
        }
    }

    fn get(&self, place: usize) -> u32 {
        match self {
            Self::One => 0,
            Self::U8(codes) => codes[place].into(),
            Self::U16(codes) => codes[place].into(),
            Self::U32(codes) => codes[place],
        }
    }
}

fn other_keys(keys: &ArrayRef) -> Error {
    Error::Unsupported(format!("keys of type {}", keys.data_type()))
}

/// The values of integers and what is stored as such; `None` of text.
pub(crate) fn integers(keys: &ArrayRef) -> Result<Option<Vec<i64>>> {
    use DataType::*;
    if matches!(
        keys.data_type(),
        Utf8 | LargeUtf8 | Utf8View | Binary | LargeBinary | BinaryView
    ) {
        return Ok(None);
    }
    let of = Type::of(keys.data_type()).filter(|of| !of.is_float() && *of != Type::Bool);
    let of = of.filter(|of| !matches!(of, Type::I128 | Type::U64));
    let of = of.ok_or_else(|| other_keys(keys))?;
    let data = keys.to_data();
    let (offset, len) = (data.offset(), data.len());
    let buffer = data.buffers().first().ok_or_else(|| other_keys(keys))?;
    macro_rules! widened {
        ($native:ty) => {
            buffer.typed_data::<$native>()[offset..offset + len]
                .iter()
                .map(|value| i64::from(*value))
                .collect()
        };
    }
    Ok(Some(match of {
        Type::I8 => widened!(i8),
        Type::I16 => widened!(i16),
        Type::I32 => widened!(i32),
        Type::U8 => widened!(u8),
        Type::U16 => widened!(u16),
        Type::U32 => widened!(u32),
        _ => widened!(i64),
    }))
}

/// Calls `f` with the row and the bytes of each text that is not null.
pub(crate) fn for_bytes(
    keys: &ArrayRef,
    mut f: impl FnMut(usize, &[u8]) -> Result<()>,
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
        _ => return Err(other_keys(keys)),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use arrow::array::{
        Date32Array, Decimal64Array, Int32Array, Int64Array, StringArray, UInt32Array, UInt64Array,
    };

    use super::*;

    fn array<A: Array + 'static>(array: A) -> ArrayRef {
        Arc::new(array)
    }

    fn numbers(values: impl IntoIterator<Item = i64>) -> ArrayRef {
        array(Int64Array::from_iter_values(values))
    }

    /// Numbers of 64 bits from anywhere, the same every time.
    fn anywhere(number: i64) -> i64 {
        number.wrapping_mul(0x1e37_79b9_7f4a_7c15)
    }

    #[test]
    fn tables_are_dense_up_to_the_bytes_of_a_hash_table() {
        let is_hashed = |last: i64, count: u32| {
            let keys = numbers((0..99_999).chain([last - 1]));
            let codes: Vec<u32> = (0..100_000).map(|row| row % count).collect();
            Codes::new(&keys, &codes, count).unwrap().is_hashed()
        };
        assert!(!is_hashed(256 * 100_000, 1));
        assert!(is_hashed(256 * 100_000 + 1, 1));
        assert!(!is_hashed(256 * 100_000, 300));
        let of_few = |last: i64| Codes::of_keys(&numbers([5, 5 + last])).unwrap().is_hashed();
        assert!(!of_few((1 << 24) - 1));
        assert!(of_few(1 << 24));
        // what a table of codes may take counts, too
        assert!(is_dense(MOST_RANGE, MOST_RANGE, 2));
        assert!(!is_dense(MOST_RANGE, MOST_RANGE, 300));
        assert!(!is_dense(MOST_RANGE + 1, MOST_RANGE + 1, 1));
        assert!(!is_dense(u64::MAX, u64::MAX, u32::MAX));
    }

    #[test]
    fn keys_from_anywhere_have_their_codes() {
        let keys: Vec<i64> = (0..3000)
            .map(anywhere)
            .chain([i64::MIN, i64::MAX, -1])
            .collect();
        for count in [1, 2, 255, 256, 65_535, 65_536, u32::MAX] {
            let code = |row: usize| (row as u64 * 0x9e37_79b9 % u64::from(count)) as u32;
            let numbered: Vec<u32> = (0..keys.len()).map(code).collect();
            let codes = Codes::new(&numbers(keys.clone()), &numbered, count).unwrap();
            assert!(codes.is_hashed() && codes.len() == keys.len());
            assert_eq!(codes.bits_bytes(), usize::MAX);
            assert_eq!(codes.bytes(), 8192 * (8 + code_bytes(count)));
            let all = codes.of(&numbers(keys.clone())).unwrap();
            assert!((0..keys.len()).all(|row| all[row] == Some(code(row))));
            let others = numbers((3000..6000).map(anywhere).chain([1, i64::MIN + 1]));
            assert!(codes.of(&others).unwrap().iter().all(Option::is_none));
        }
    }

    #[test]
    fn nulls_are_left_out_and_not_found() {
        let keys = Int64Array::from(vec![Some(i64::MAX), None, Some(i64::MIN), None]);
        let codes = Codes::new(&array(keys.clone()), &[1, 2, 0, 1], 3).unwrap();
        assert!(codes.is_hashed() && codes.len() == 2);
        let found = codes.of(&array(keys)).unwrap();
        assert_eq!(found, [Some(1), None, Some(0), None]);
        let only_nulls = Int64Array::new_null(5);
        let codes = Codes::of_keys(&array(only_nulls)).unwrap();
        assert!(codes.is_empty());
    }

    #[test]
    fn keys_are_there_twice_if_codes_do_not_matter() {
        let keys = numbers((0..1000).map(|row| anywhere(row % 10)));
        let codes = Codes::of_keys(&keys).unwrap();
        assert_eq!((codes.len(), codes.bytes()), (10, 32 * 8));
        let error = Codes::new(&keys, &[0; 1000], 1).unwrap_err();
        assert!(error.to_string().contains("more than once"), "{error}");
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
            // of a slice, what it has
            let codes = Codes::new(&keys.slice(1, 2), &[4, 3], 5).unwrap();
            assert!(codes.is_hashed());
            assert_eq!(codes.of(&keys).unwrap(), [None, Some(4), Some(3)]);
        }
        let codes = Codes::of_keys(&numbers([0, 1 << 40])).unwrap();
        for other in [
            array(UInt64Array::from(vec![0])),
            array(StringArray::from(vec!["0"])),
        ] {
            assert!(matches!(codes.of(&other), Err(Error::Unsupported(_))));
        }
    }

    #[test]
    fn dense_keys_and_text_have_their_codes() {
        let codes = Codes::new(&numbers([7, -2, 9]), &[0, 2, 1], 3).unwrap();
        assert!(!codes.is_hashed());
        let found = codes.of(&numbers([i64::MIN, -2, -1, 7, 9, 10, i64::MAX]));
        let expected = [None, Some(2), None, Some(0), Some(1), None, None];
        assert_eq!(found.unwrap(), expected);
        let texts = array(StringArray::from(vec![Some("a"), None, Some("b")]));
        let codes = Codes::new(&texts, &[1, 0, 0], 2).unwrap();
        assert!(!codes.is_hashed() && codes.len() == 2);
        assert_eq!(codes.of(&texts).unwrap(), [Some(1), None, Some(0)]);
    }
}
