//! Codes of the keys of a small table: what a join looks up.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::DataType;

use crate::codegen::code_bytes;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::ir::Type;
use crate::memory::{Piece, lock};

/// Bits of a table of keys that are integers, for each key, up to which it is dense; more are fine if
/// it has less than [`SMALL_RANGE`].
const BITS_PER_KEY: u64 = 256;
/// Keys, from the smallest to the largest, that a table may always have.
const SMALL_RANGE: u64 = 1 << 24;
/// Keys, from the smallest to the largest, that kernels can tell apart.
const MOST_RANGE: u64 = 1 << 31;
/// Bytes that a table of codes takes at most.
const MOST_BYTES: u64 = 2 << 30;

/// The keys of a table, each with a code: which of the rows that matter it has. Many keys may have the
/// same code, as many customers have one nation.
///
/// Kernels look integers up by their distance from the smallest: for each there is a bit, and a code
/// where some are told apart. Make one `Codes` and keep it: the table stays on the device.
pub struct Codes {
    keys: Keys,
    /// Codes are below it. With one, there is nothing to tell apart.
    count: u32,
    found: usize,
    /// Its copy on the device.
    device: Mutex<Option<Arc<Piece>>>,
}

enum Keys {
    Integers {
        first: i64,
        /// From the first to the last.
        range: u64,
        /// A bit for each.
        bits: Vec<u32>,
        /// A code for each, if there is more than one; of those that are missing, all ones.
        codes: CodeTable,
    },
    Bytes(HashMap<Box<[u8]>, u32>),
}

/// A table on the device: the addresses of its parts, and what keys they are for.
pub(crate) struct DeviceTable {
    pub bits: u64,
    pub codes: u64,
    pub first: i64,
    pub places: u64,
    /// What keeps it there.
    _memory: Arc<Piece>,
}

/// Codes in as few bytes as they need.
pub(crate) enum CodeTable {
    One,
    U8(Vec<u8>),
    U16(Vec<u16>),
    U32(Vec<u32>),
}

impl Codes {
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
    /// decimals of up to 64 bits) nor text, or if they are too far apart for a table.
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
            let most = (values.len() as u64).saturating_mul(BITS_PER_KEY);
            if range > most.clamp(SMALL_RANGE, MOST_RANGE) {
                let reason = format!("{} keys from {first} to {last}", values.len());
                return Err(Error::Unsupported(reason));
            }
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
            Keys::Integers {
                first,
                range,
                bits,
                codes: table,
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

    /// Bytes in memory, nearly; on the device integers take as many.
    pub fn bytes(&self) -> usize {
        match &self.keys {
            Keys::Integers { bits, codes, .. } => bits.len() * 4 + codes.bytes(),
            Keys::Bytes(known) => known.keys().map(|key| key.len() + 32).sum(),
        }
    }

    /// Bytes of a bit for each place.
    pub(crate) fn bits_bytes(&self) -> usize {
        match &self.keys {
            Keys::Integers { bits, .. } => bits.len() * 4,
            Keys::Bytes(_) => usize::MAX,
        }
    }

    /// The table of keys that are integers, on the device: copied there at first.
    pub(crate) fn on_device(&self, engine: &Engine) -> Result<DeviceTable> {
        let Keys::Integers {
            first,
            range,
            bits,
            codes,
        } = &self.keys
        else {
            let reason = "text that is in no dictionary, looked up";
            return Err(Error::Unsupported(reason.into()));
        };
        let codes_at = (bits.len() * 4).next_multiple_of(256);
        let mut device = lock(&self.device);
        let piece = match device.as_ref().filter(|piece| piece.is_of(engine.pool())) {
            Some(piece) => Arc::clone(piece),
            None => {
                let bytes = codes_at + codes.bytes();
                let piece = Arc::new(engine.pool().take(bytes)?);
                let mut host = engine.host_pool().take(bytes)?;
                let to = host.as_mut_slice();
                let words = to.as_chunks_mut::<4>().0.iter_mut();
                words
                    .zip(bits)
                    .for_each(|(to, word)| *to = word.to_le_bytes());
                codes.write(&mut to[codes_at..]);
                let mut lane = engine.lane()?;
                // SAFETY: both are as long, and live until the stream is done.
                let copied = unsafe {
                    let from = host.as_slice().as_ptr();
                    lane.stream.copy_in(piece.address(), from, bytes)
                };
                let done = lane.stream.synchronize();
                copied?;
                done?;
                engine.give_back(lane);
                *device = Some(Arc::clone(&piece));
                piece
            }
        };
        Ok(DeviceTable {
            bits: piece.address(),
            codes: piece.address() + codes_at as u64,
            first: *first,
            places: *range,
            _memory: piece,
        })
    }

    /// The code of each value; none of what is not there, and of nulls.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the values are of another kind than the keys.
    pub fn of(&self, values: &ArrayRef) -> Result<Vec<Option<u32>>> {
        match &self.keys {
            Keys::Integers {
                first,
                range,
                bits,
                codes,
            } => {
                let integers = integers(values)?.ok_or_else(|| other_keys(values))?;
                let code = |row: usize| {
                    let place = integers[row]
                        .checked_sub(*first)
                        .filter(|_| values.is_valid(row));
                    let place = place.and_then(|place| u64::try_from(place).ok());
                    let place = place.filter(|place| place < range).unwrap_or(*range) as usize;
                    match bits[place / 32] >> (place % 32) & 1 {
                        0 => None,
                        _ => Some(codes.get(place)),
                    }
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

impl fmt::Debug for Codes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (keys, codes) = (self.found, self.count);
        write!(f, "Codes({keys} keys, {codes} codes)")
    }
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
