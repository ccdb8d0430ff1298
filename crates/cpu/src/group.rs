//! Groups of a row group's rows: a dense number for each combination of keys.

use arrow::array::ArrayRef;
use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::Sequence;
use vectile_pipeline::{Error, GroupKey, Result, Type};

use crate::program::{Program, Register};
use crate::reader::Reader;
use crate::vector::{Kind, Mask, Values, Vector};

/// The most groups that a row group may have, counting combinations of keys that do not occur.
const MOST_GROUPS: u64 = 1 << 16;

/// A group key, and how its values become digits of the group's number.
pub(crate) struct Key<'a> {
    digits: Digits<'a>,
    is_nullable: bool,
    /// Number of digits, with one for null.
    count: u64,
    /// The weight of a digit.
    weight: u64,
}

enum Digits<'a> {
    /// Integers, from the first on.
    Value {
        register: Register,
        first: i64,
        of: Type,
    },
    /// Codes of a dictionary.
    Dictionary {
        column: usize,
        codes: Option<&'a Sequence>,
        entries: ArrayRef,
    },
}

/// The values of a key, one for each group.
#[derive(Clone, Debug)]
pub(crate) enum KeyValues {
    /// Integers of a machine type.
    Integers(Type, Vec<Option<i64>>),
    /// Indices of entries.
    Entries(ArrayRef, Vec<Option<u32>>),
}

impl<'a> Key<'a> {
    /// Lowers the keys of a grouping.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there are too many combinations, and for other keys than integers and dictionaries.
    pub fn all(
        keys: &[GroupKey],
        readers: &'a [Reader<'a>],
        program: &mut Program<'a>,
    ) -> Result<Vec<Self>> {
        let mut groups = 1u64;
        let mut all = Vec::new();
        for key in keys {
            let mut key = Self::new(key, readers, program)?;
            key.weight = groups;
            groups = groups.saturating_mul(key.count);
            if groups > MOST_GROUPS {
                let reason = format!("more than {MOST_GROUPS} groups of a row group");
                return Err(Error::Unsupported(reason));
            }
            all.push(key);
        }
        Ok(all)
    }

    fn new(key: &GroupKey, readers: &'a [Reader<'a>], program: &mut Program<'a>) -> Result<Self> {
        let (digits, is_nullable, count) = match key {
            GroupKey::Value(expr) => {
                let register = program.add(expr)?;
                let domain = program.domain(register);
                if !matches!(Kind::of(domain), Kind::Int | Kind::Bool) {
                    let reason = format!("groups by a value of type {:?}", domain.of);
                    return Err(Error::Unsupported(reason));
                }
                let is_nullable = program.is_nullable(register);
                let (first, last) = (domain.bounds.0, domain.bounds.1);
                let count = u64::try_from(last - first).unwrap_or(u64::MAX);
                let digits = Digits::Value {
                    register,
                    first: first as i64,
                    of: domain.of,
                };
                (digits, is_nullable, count.saturating_add(1))
            }
            GroupKey::DictionaryValue(column) => {
                let missing = || Error::Internal(format!("there is no column {column}"));
                let reader = readers.get(*column).ok_or_else(missing)?;
                let (entries, codes) = reader.dictionary()?;
                let count = entries.len() as u64;
                let digits = Digits::Dictionary {
                    column: *column,
                    codes,
                    entries,
                };
                (digits, reader.is_nullable(), count)
            }
            GroupKey::Code(_) => return Err(Error::Unsupported("groups by a lookup".into())),
        };
        Ok(Self {
            digits,
            is_nullable,
            count: count.saturating_add(is_nullable.into()),
            weight: 1,
        })
    }

    /// Number of combinations of keys.
    pub fn combinations(keys: &[Self]) -> usize {
        keys.iter().map(|key| key.count).product::<u64>() as usize
    }

    /// Adds the key's part of the numbers of a vector's rows that pass.
    pub fn add_digits(
        &self,
        vector: usize,
        mask: &Mask,
        vectors: &[Vector],
        readers: &[Reader<'_>],
        groups: &mut [u32; VECTOR_LEN],
    ) -> Result<()> {
        let weight = self.weight as u32;
        let null = self.count.saturating_sub(1);
        let mut digits = [0u32; VECTOR_LEN];
        let mut entries = u64::MAX;
        let valid = match &self.digits {
            Digits::Value {
                register, first, ..
            } => {
                let vector = &vectors[*register];
                match &vector.values {
                    Values::Int(values) => {
                        let pairs = digits.iter_mut().zip(values.iter());
                        pairs.for_each(|(digit, x)| *digit = x.wrapping_sub(*first) as u32);
                    }
                    Values::Bool(bits) => {
                        let rows = digits.iter_mut().enumerate();
                        rows.for_each(|(row, digit)| {
                            *digit = (bits[row / 64] >> (row % 64) & 1) as u32;
                        });
                    }
                    _ => return Err(Error::Internal("a key of another kind".into())),
                }
                vector.valid
            }
            Digits::Dictionary {
                column,
                codes,
                entries: of_codes,
            } => {
                entries = of_codes.len() as u64;
                if let Some(codes) = codes {
                    codes.decode_codes(vector, &mut digits)?;
                }
                readers[*column].valid(vector)
            }
        };
        let has_row = |mask: &Mask, row: usize| mask[row / 64] >> (row % 64) & 1 == 1;
        for (row, digit) in digits.iter_mut().enumerate() {
            let is_null = valid.is_some_and(|valid| !has_row(&valid, row));
            let is_known = u64::from(*digit) < self.count.min(entries);
            if is_null {
                *digit = null as u32;
            } else if !is_known {
                // a row that does not pass may have any digit
                if has_row(mask, row) {
                    let reason = format!("a key with the code {digit}, which has no value");
                    return Err(Error::Unsupported(reason));
                }
                *digit = 0;
            }
        }
        let pairs = groups.iter_mut().zip(&digits);
        pairs.for_each(|(group, digit)| *group += digit * weight);
        Ok(())
    }

    /// The key's values in `groups`.
    pub fn values(&self, groups: &[usize]) -> KeyValues {
        let digits = groups.iter().map(|group| {
            let digit = *group as u64 / self.weight % self.count;
            (!self.is_nullable || digit + 1 < self.count).then_some(digit)
        });
        match &self.digits {
            Digits::Value { first, of, .. } => {
                let values = digits.map(|digit| Some(first.wrapping_add(digit? as i64)));
                KeyValues::Integers(*of, values.collect())
            }
            Digits::Dictionary { entries, .. } => {
                let codes = digits.map(|digit| Some(digit? as u32));
                KeyValues::Entries(entries.clone(), codes.collect())
            }
        }
    }
}
