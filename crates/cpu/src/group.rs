//! Group keys of a row group: each is a digit, and the digits of all keys are one number, a combination.

use std::sync::Arc;

use arrow::array::ArrayRef;
use vectile_encodings::VECTOR_LEN;
use vectile_encodings::layout::SequenceReader;
use vectile_encodings::simd::dispatched;
use vectile_pipeline::{Bounds, Error, Expr, GroupKey, Result, Type};

use crate::batch::Batch;
use crate::entries::Entries;
use crate::program::{Program, Register};
use crate::reader::Reader;
use crate::table::hashed;
use crate::vector::{ALL, HALF, Kind, Mask, Values, Vector, halves, has_row};

/// Decimals of 38 digits. Other values have no digit.
const DECIMALS: Bounds = Bounds(-(10i128.pow(38)), 10i128.pow(38));

/// The most keys: a word has a bit for each that is null.
const MOST_KEYS: usize = u64::BITS as usize;

/// A group key, and how its values become digits.
pub(crate) struct Key<'a> {
    digits: Digits<'a>,
    is_nullable: bool,
    /// Number of digits, without that for null, which follows them; 0 for 2^128.
    values: u128,
    /// The weight of a digit.
    weight: u128,
    /// Weights of keys behind this one are multiples of `weight * modulus`; 0 if there are none.
    modulus: u128,
}

enum Digits<'a> {
    /// Integers, from the first on.
    Value {
        register: Register,
        first: i128,
        of: Type,
    },
    /// Codes of a dictionary.
    Dictionary {
        column: usize,
        codes: Option<SequenceReader<'a>>,
        entries: ArrayRef,
    },
}

/// The values of a key are of this type.
#[derive(Clone, Debug)]
pub(crate) enum KeyType {
    /// Integers of a machine type.
    Integers(Type),
    /// Indices of entries.
    Entries(Arc<Entries>),
}

impl KeyType {
    /// The hash of each entry, if the values are indices of entries.
    pub fn entry_hashes(&self) -> Option<&[u64]> {
        match self {
            Self::Integers(_) => None,
            Self::Entries(entries) => Some(entries.hashes()),
        }
    }
}

/// Number of combinations of the keys of a row group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Combinations {
    /// This many.
    Some(u64),
    /// More, whose numbers have 64 bits.
    Long,
    /// More, whose numbers have 128 bits.
    Wide,
}

/// An unsigned integer that can be the number of a combination.
pub(crate) trait Combination: Copy + Default + PartialEq + PartialOrd {
    fn of_int(difference: i64) -> Self;
    fn of_wide(difference: i128) -> Self;
    /// Adds a digit times its weight.
    fn add(&mut self, digit: Self, weight: Self);
    /// `self / weight % modulus`, where a modulus of 0 is none.
    fn digit(self, weight: Self, modulus: Self) -> Self;
    fn word(self) -> u64;
    fn wide(self) -> i128;
    fn hash(self) -> u64;
}

macro_rules! combination {
    ($native:ty, |$digit:ident, $weight:ident| $product:expr, |$value:ident| $hash:expr) => {
        impl Combination for $native {
            #[inline(always)]
            fn of_int(difference: i64) -> Self {
                difference as u64 as Self
            }

            #[inline(always)]
            fn of_wide(difference: i128) -> Self {
                difference as Self
            }

            #[inline(always)]
            fn add(&mut self, $digit: Self, $weight: Self) {
                *self = self.wrapping_add($product);
            }

            #[inline(always)]
            fn digit(self, weight: Self, modulus: Self) -> Self {
                let upper = match weight.is_power_of_two() {
                    true => self >> weight.trailing_zeros(),
                    false => self.checked_div(weight).unwrap_or_default(),
                };
                match modulus {
                    0 => upper,
                    _ if modulus.is_power_of_two() => upper & (modulus - 1),
                    _ => upper % modulus,
                }
            }

            fn word(self) -> u64 {
                self as u64
            }

            fn wide(self) -> i128 {
                self as i128
            }

            #[inline(always)]
            fn hash(self) -> u64 {
                let $value = self;
                $hash
            }
        }
    };
}

combination!(u32, |digit, weight| digit.wrapping_mul(weight), |value| {
    hashed(0, value.into())
});
combination!(u64, |digit, weight| digit.wrapping_mul(weight), |value| {
    hashed(0, value)
});
// so many have whole numbers of bits
combination!(
    u128,
    |digit, weight| digit << weight.trailing_zeros(),
    |value| hashed(
        0,
        value as u64 ^ ((value >> 64) as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    )
);

impl<'a> Key<'a> {
    /// Lowers the keys of a grouping, and counts combinations: if there are more than `few`, digits have whole numbers
    /// of bits.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for combinations of more than 128 bits, and for other keys than integers and
    /// dictionaries.
    pub fn all(
        keys: &[GroupKey],
        readers: &'a [Reader<'a>],
        program: &mut Program<'a>,
        few: u64,
    ) -> Result<(Vec<Self>, Combinations)> {
        if keys.len() > MOST_KEYS {
            let reason = format!("groups by more than {MOST_KEYS} keys");
            return Err(Error::Unsupported(reason));
        }
        let all = keys.iter().map(|key| Self::new(key, readers, program));
        let mut all: Vec<Self> = all.collect::<Result<_>>()?;
        let counts = all.iter().map(|key| match (key.values, key.count()) {
            (0, _) | (_, 0) => u128::MAX,
            (_, count) => count,
        });
        let count = counts.fold(1, u128::saturating_mul);
        if count <= few.into() {
            let mut weight = 1;
            for key in &mut all {
                (key.weight, key.modulus) = (weight, key.count());
                weight *= key.modulus;
            }
            if let Some(last) = all.last_mut() {
                last.modulus = 0;
            }
            return Ok((all, Combinations::Some(count as u64)));
        }
        let mut bits = 0u32;
        for key in &mut all {
            let own = u128::BITS - key.count().wrapping_sub(1).leading_zeros();
            // a null beside all values of 128 bits
            let is_full = key.values == 0 && key.is_nullable;
            if is_full || bits + own > u128::BITS {
                let reason = "groups by keys of more than 128 bits";
                return Err(Error::Unsupported(reason.into()));
            }
            // digits of no bits are 0 at any weight
            key.weight = 1u128.checked_shl(bits).unwrap_or(1);
            key.modulus = 1u128.checked_shl(own).unwrap_or(0);
            bits += own;
        }
        match bits {
            ..=64 => {
                let long = |modulus: u128| if modulus >> 64 == 0 { modulus } else { 0 };
                all.iter_mut()
                    .for_each(|key| key.modulus = long(key.modulus));
                Ok((all, Combinations::Long))
            }
            _ => Ok((all, Combinations::Wide)),
        }
    }

    fn new(key: &GroupKey, readers: &'a [Reader<'a>], program: &mut Program<'a>) -> Result<Self> {
        let (digits, is_nullable, values) = match key {
            GroupKey::Value(expr) => {
                find_bounds(expr, readers)?;
                let register = program.add(expr)?;
                let domain = program.domain(register);
                if Kind::of(domain) == Kind::Float {
                    let reason = format!("groups by a value of type {:?}", domain.of);
                    return Err(Error::Unsupported(reason));
                }
                // then there is a digit for null, even if nothing is known of the values
                let Bounds(first, last) = match domain.of {
                    Type::I128 => domain.bounds.clamped(DECIMALS),
                    _ => domain.bounds,
                };
                let digits = Digits::Value {
                    register,
                    first,
                    of: domain.of,
                };
                let values = last.wrapping_sub(first) as u128;
                let is_nullable = program.is_nullable(register);
                (digits, is_nullable, values.wrapping_add(1))
            }
            GroupKey::DictionaryValue(column) => {
                let missing = || Error::Internal(format!("there is no column {column}"));
                let reader = readers.get(*column).ok_or_else(missing)?;
                let (entries, codes) = reader.dictionary()?;
                let values = entries.len() as u128;
                let digits = Digits::Dictionary {
                    column: *column,
                    codes,
                    entries,
                };
                (digits, reader.is_nullable(), values)
            }
            GroupKey::Code(_) => return Err(Error::Unsupported("groups by a lookup".into())),
            GroupKey::Mapped(..) => {
                return Err(Error::Unsupported("groups by a function of text".into()));
            }
        };
        Ok(Self {
            digits,
            is_nullable,
            values,
            weight: 1,
            modulus: 0,
        })
    }

    /// Number of digits, with that for null; 0 for 2^128.
    fn count(&self) -> u128 {
        self.values.wrapping_add(self.is_nullable.into())
    }

    /// Adds the key's part of the combinations of a batch's rows that pass; those of others are arbitrary.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for digits that stand for no value.
    pub fn add_digits<T: Combination>(
        &self,
        batch: Batch<'_>,
        mask: &Mask,
        vectors: &[Vector],
        readers: &[Reader<'_>],
        combinations: &mut [T; VECTOR_LEN],
    ) -> Result<()> {
        let digit = |valid| Digit {
            mask,
            valid,
            null: T::of_wide(self.values as i128),
            weight: T::of_wide(self.weight as i128),
        };
        let most = match &self.digits {
            Digits::Value {
                register, first, ..
            } => {
                let vector = &vectors[*register];
                let digit = digit(vector.valid.as_ref());
                match &vector.values {
                    Values::Int(values) => add_ints(&digit, *first as i64, values, combinations),
                    Values::Wide(values) => add_wide(&digit, *first, values, combinations),
                    Values::Bool(bits) => {
                        let values: [i64; VECTOR_LEN] =
                            std::array::from_fn(|row| has_row(bits, row).into());
                        add_ints(&digit, *first as i64, &values, combinations)
                    }
                    _ => return Err(Error::Internal("a key of another kind".into())),
                }
            }
            Digits::Dictionary { column, codes, .. } => {
                let mut of_rows = [0; VECTOR_LEN];
                if let Some(codes) = codes {
                    batch.integers(codes, &mut of_rows)?;
                }
                let valid = readers[*column].valid(batch);
                add_ints(&digit(valid.as_ref()), 0, &of_rows, combinations)
            }
        };
        match most > T::of_wide(self.values.wrapping_sub(1) as i128) {
            true => {
                let digit = most.word();
                let reason = format!("a key with the code {digit}, which has no value");
                Err(Error::Unsupported(reason))
            }
            false => Ok(()),
        }
    }

    /// The register of the key's values, unless they are indices of entries.
    pub fn register(&self) -> Option<Register> {
        match &self.digits {
            Digits::Value { register, .. } => Some(*register),
            Digits::Dictionary { .. } => None,
        }
    }

    /// The type of the key's values.
    pub fn key_type(&self) -> Result<KeyType> {
        Ok(match &self.digits {
            Digits::Value { of, .. } => KeyType::Integers(*of),
            Digits::Dictionary { entries, .. } => {
                KeyType::Entries(Arc::new(Entries::new(Arc::clone(entries))?))
            }
        })
    }

    /// The key's values in combinations, as words: the lower 64 bits, and the upper ones unless all are those of a sign.
    /// Sets bit `bit` of `nulls` for nulls, whose words are 0; it is empty as long as there are none.
    pub fn words<T: Combination>(
        &self,
        combinations: &[T],
        bit: usize,
        nulls: &mut Vec<u64>,
    ) -> (Vec<u64>, Vec<u64>) {
        let (weight, modulus) = (self.weight, self.modulus);
        let (weight, modulus) = (T::of_wide(weight as i128), T::of_wide(modulus as i128));
        let digits = combinations.iter().map(|of| of.digit(weight, modulus));
        let first = match self.digits {
            Digits::Value { first, .. } => first,
            Digits::Dictionary { .. } => 0,
        };
        let is_wide = i64::try_from(first).is_err()
            || i64::try_from(first.wrapping_add(self.values as i128).wrapping_sub(1)).is_err();
        let low = digits
            .clone()
            .map(|digit| (first as u64).wrapping_add(digit.word()));
        let mut low: Vec<u64> = low.collect();
        let high = digits
            .clone()
            .filter(|_| is_wide)
            .map(|digit| (first.wrapping_add(digit.wide()) >> 64) as u64);
        let mut high: Vec<u64> = high.collect();
        if self.is_nullable {
            let null = T::of_wide(self.values as i128);
            for (group, _) in digits.enumerate().filter(|(_, digit)| *digit == null) {
                nulls.resize(low.len(), 0);
                nulls[group] |= 1 << bit;
                low[group] = 0;
                if let Some(high) = high.get_mut(group) {
                    *high = 0;
                }
            }
        }
        (low, high)
    }
}

/// How the digits of a batch's rows are added to combinations.
struct Digit<'a, T> {
    /// Rows that pass.
    mask: &'a Mask,
    /// `None` if no row is null.
    valid: Option<&'a Mask>,
    /// The digit for null.
    null: T,
    weight: T,
}

impl<T: Combination> Digit<'_, T> {
    /// Adds the digits of `values`. Returns the largest of rows that pass and are not null.
    #[inline(always)]
    fn add<V: Copy>(
        &self,
        values: &[V; VECTOR_LEN],
        digit: impl Fn(V) -> T,
        combinations: &mut [T; VECTOR_LEN],
    ) -> T {
        let mut most = [T::default(); HALF];
        let all = combinations.as_chunks_mut::<HALF>().0.iter_mut();
        let all = all.zip(values.as_chunks::<HALF>().0);
        let masks = halves(self.mask).zip(halves(self.valid.unwrap_or(&ALL)));
        for ((mask, valid), (combinations, values)) in masks.zip(all) {
            for lane in 0..HALF {
                let digit = digit(values[lane]);
                // all lanes do the same, whether they are null or pass
                let is_known = mask & valid & 1 << lane != 0;
                let known = if is_known { digit } else { T::default() };
                most[lane] = if known > most[lane] {
                    known
                } else {
                    most[lane]
                };
                let digit = match valid & 1 << lane != 0 {
                    true => digit,
                    false => self.null,
                };
                combinations[lane].add(digit, self.weight);
            }
        }
        let larger = |a, b| if a > b { a } else { b };
        most.into_iter().fold(T::default(), larger)
    }
}

dispatched! {
    fn add_ints<T: Combination>(
        digit: &Digit<'_, T>,
        first: i64,
        values: &[i64; VECTOR_LEN],
        combinations: &mut [T; VECTOR_LEN],
    ) -> T {
        digit.add(values, |value| T::of_int(value.wrapping_sub(first)), combinations)
    }
}

dispatched! {
    fn add_wide<T: Combination>(
        digit: &Digit<'_, T>,
        first: i128,
        values: &[i128; VECTOR_LEN],
        combinations: &mut [T; VECTOR_LEN],
    ) -> T {
        digit.add(values, |value| T::of_wide(value.wrapping_sub(first)), combinations)
    }
}

/// Makes the bounds of all columns of `expr` exact, so that it has few values.
fn find_bounds(expr: &Expr, readers: &[Reader<'_>]) -> Result<()> {
    if let Expr::Column(column) = expr
        && let Some(reader) = readers.get(*column)
    {
        reader.find_bounds()?;
    }
    let mut result = Ok(());
    expr.for_parts(|part| {
        if result.is_ok() {
            result = find_bounds(part, readers);
        }
    });
    result
}
