//! Key tables that were built on a device. They are copied to the host lazily.

use std::sync::OnceLock;

use arrow::array::{Array, ArrayRef};

use super::code_table::{CodeTable, code_bytes};
use super::hash_table::{HashedKeys, size_word};
use super::key_chunks::{integers, unsupported_keys};
use super::perfect_hash::{DenseCodes, MOST_RANGE, PerfectHashTable, is_dense};
use crate::error::{Error, Result};

/// Copies bytes of a table to the host: (offset, length).
type FetchBytes = Box<dyn Fn(usize, usize) -> Result<Vec<u8>> + Send + Sync>;

/// Counts how many of the values are keys of a table.
type CountKeys = Box<dyn Fn(&[i64]) -> Result<usize> + Send + Sync>;

/// Copies data from a device to the host.
pub type Fetch<T> = Box<dyn Fn() -> Result<T> + Send + Sync>;

/// A key table on a device, with a lazily fetched copy on the host.
pub(super) struct DeviceKeyTable {
    pub layout: DeviceKeyTableLayout,
    fetch: FetchBytes,
    count_keys: CountKeys,
    host: OnceLock<HostKeyTable>,
}

/// A table that was copied to the host.
pub(super) enum HostKeyTable {
    PerfectHashTable(PerfectHashTable),
    Hashed(HashedKeys, CodeTable),
}

/// Layout of a table on the device: keys, then codes, which start at a multiple of 256 bytes.
#[derive(Clone, Copy, Debug)]
pub struct DeviceKeyTableLayout {
    /// The layout of the keys.
    pub keys: DeviceKeyLayout,
    /// Number of codes; each code is below it.
    pub count: u32,
}

/// Layout of the keys.
#[derive(Clone, Copy, Debug)]
pub enum DeviceKeyLayout {
    /// A bit per integer from `first` on, and one behind the last.
    PerfectHashTable {
        /// The smallest key.
        first: i64,
        /// Number of integers from the first key to the last.
        range: u64,
    },
    /// The slots of a hash table.
    Hashed {
        /// Number of slots: four times a power of two.
        slots: usize,
        /// The value of a slot without a key.
        empty: i64,
        /// Maximum number of buckets that a probe reads.
        probes: u32,
    },
}

impl DeviceKeyTableLayout {
    /// Bytes of the keys.
    pub fn keys_bytes(self) -> usize {
        match self.keys {
            DeviceKeyLayout::PerfectHashTable { range, .. } => PerfectHashTable::words(range) * 4,
            DeviceKeyLayout::Hashed { slots, .. } => slots * 8,
        }
    }

    /// Bytes of the codes; 0 if there is only one code.
    pub fn codes_bytes(self) -> usize {
        let indices = match self.keys {
            DeviceKeyLayout::PerfectHashTable { range, .. } => range as usize,
            DeviceKeyLayout::Hashed { slots, .. } => slots,
        };
        indices * code_bytes(self.count)
    }

    /// Offset of the codes, in bytes.
    pub fn codes_at(self) -> usize {
        self.keys_bytes().next_multiple_of(256)
    }

    /// Arguments of kernels beside the table: first key and range, or empty slot and size.
    pub fn words(self) -> [u64; 2] {
        match self.keys {
            DeviceKeyLayout::PerfectHashTable { first, range } => [first as u64, range],
            DeviceKeyLayout::Hashed {
                slots,
                empty,
                probes,
            } => [empty as u64, size_word(slots, probes)],
        }
    }

    /// Chooses the layout of `keys` keys from `least` to `greatest`: dense, or hashed if the range is too large.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there are too many keys for a hash table, or no integer that is not a key is known.
    pub fn of(least: i64, greatest: i64, keys: u64, count: u32) -> Result<Self> {
        let range = greatest.abs_diff(least).saturating_add(1);
        let too_many = || Error::Unsupported("more keys than a table has room for".into());
        let expected = usize::try_from(keys).map_err(|_| too_many());
        let slots = expected.and_then(HashedKeys::slots_for);
        // a dense table of a large range is better than none
        if is_dense(range, keys, count) || slots.is_err() && range <= MOST_RANGE {
            let first = least;
            return Ok(Self {
                keys: DeviceKeyLayout::PerfectHashTable { first, range },
                count,
            });
        }
        let empty = match (least.checked_sub(1), greatest.checked_add(1)) {
            (Some(below), _) => below,
            (None, Some(above)) => above,
            (None, None) => return Err(Error::Unsupported("keys of all 64 bits".into())),
        };
        Ok(Self {
            keys: DeviceKeyLayout::Hashed {
                slots: slots?,
                empty,
                probes: HashedKeys::MOST_PROBES,
            },
            count,
        })
    }
}

impl DeviceKeyTable {
    pub fn new(
        layout: DeviceKeyTableLayout,
        fetch: impl Fn(usize, usize) -> Result<Vec<u8>> + Send + Sync + 'static,
        count_keys: impl Fn(&[i64]) -> Result<usize> + Send + Sync + 'static,
    ) -> Self {
        Self {
            layout,
            fetch: Box::new(fetch),
            count_keys: Box::new(count_keys),
            host: OnceLock::new(),
        }
    }

    /// The table on the host; the first call copies it.
    pub fn host(&self) -> Result<&HostKeyTable> {
        if let Some(host) = self.host.get() {
            return Ok(host);
        }
        let codes = match self.layout.codes_bytes() {
            0 => CodeTable::One,
            bytes => {
                let codes = (self.fetch)(self.layout.codes_at(), bytes)?;
                CodeTable::read(self.layout.count, codes)
            }
        };
        let host = self.copied(codes)?;
        Ok(self.host.get_or_init(|| host))
    }

    /// Counts the values that are keys, on the device.
    pub fn count_keys(&self, values: &ArrayRef) -> Result<usize> {
        let integers = integers(values)?.ok_or_else(|| unsupported_keys(values))?;
        let valid = (0..values.len()).filter(|row| values.is_valid(*row));
        let valid: Vec<i64> = valid.map(|row| integers[row]).collect();
        match valid.is_empty() {
            true => Ok(0),
            false => (self.count_keys)(&valid),
        }
    }

    fn copied(&self, codes: CodeTable) -> Result<HostKeyTable> {
        let keys = (self.fetch)(0, self.layout.keys_bytes())?;
        Ok(match self.layout.keys {
            DeviceKeyLayout::PerfectHashTable { first, range } => {
                let bits = keys.as_chunks::<4>().0.iter();
                HostKeyTable::PerfectHashTable(PerfectHashTable {
                    first,
                    range,
                    bits: bits.map(|word| u32::from_le_bytes(*word)).collect(),
                    codes: DenseCodes::Stored(codes),
                })
            }
            DeviceKeyLayout::Hashed { empty, probes, .. } => {
                let slots = keys.as_chunks::<8>().0.iter();
                let slots = slots.map(|slot| i64::from_le_bytes(*slot)).collect();
                HostKeyTable::Hashed(HashedKeys::of_slots(slots, empty, probes)?, codes)
            }
        })
    }
}

impl HostKeyTable {
    /// Writes the keys in the device's layout and returns the codes.
    pub fn write(&self, to: &mut [u8]) -> Option<&CodeTable> {
        match self {
            Self::PerfectHashTable(dense) => dense.write(to),
            Self::Hashed(keys, codes) => {
                keys.write(to);
                Some(codes)
            }
        }
    }
}
