//! Tests of one column against constants.

use std::cmp::Ordering;
use std::ops::Bound;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Datum, Scalar};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp;
use arrow::compute::{and, is_not_null, is_null, not, or};
use arrow::datatypes::{DataType, Decimal256Type, i256};

use crate::VECTOR_LEN;
use crate::byte_strings;
use crate::class::{Class, Native, Wide, match_class};
use crate::error::{Error, Result};
use crate::masks::Mask;
use crate::selection::Selection;

/// A test that encodings evaluate on their encoded form if they can. Constants are arrays of the column's type without
/// nulls, with one row if they are bounds. Values compare as in arrow-rs (floats in total order). A null row passes
/// [`Predicate::IsNull`] only.
#[derive(Clone, Debug, PartialEq)]
pub enum Predicate {
    /// The value lies between two bounds; or, negated, does not.
    Range {
        /// The lower bound.
        low: Bound<ArrayRef>,
        /// The upper bound.
        high: Bound<ArrayRef>,
        /// True if the values outside pass instead.
        negated: bool,
    },
    /// The value is one of these; or, negated, none of them.
    In {
        /// The values.
        values: ArrayRef,
        /// True if the other values pass instead.
        negated: bool,
    },
    /// The row is null.
    IsNull,
    /// The row is not null.
    IsNotNull,
}

impl Predicate {
    /// `value = constant`.
    pub fn equal(constant: ArrayRef) -> Self {
        Self::Range {
            low: Bound::Included(ArrayRef::clone(&constant)),
            high: Bound::Included(constant),
            negated: false,
        }
    }

    /// Returns true if all constants have this type.
    pub(crate) fn is_of(&self, data_type: &DataType) -> bool {
        let is_of = |constants: &ArrayRef| constants.data_type() == data_type;
        match self {
            Self::Range { low, high, .. } => [low, high].into_iter().all(|bound| match bound {
                Bound::Included(constant) | Bound::Excluded(constant) => is_of(constant),
                Bound::Unbounded => true,
            }),
            Self::In { values, .. } => is_of(values),
            Self::IsNull | Self::IsNotNull => true,
        }
    }

    /// The set of values that pass, if the predicate is such a set.
    pub fn points(&self) -> Option<&ArrayRef> {
        match self {
            Self::In {
                values,
                negated: false,
            } => Some(values),
            Self::Range {
                low: Bound::Included(low),
                high: Bound::Included(high),
                negated: false,
            } if low == high => Some(low),
            _ => None,
        }
    }

    /// The only value that passes, if there is exactly one.
    pub(crate) fn only_value(&self) -> Option<&ArrayRef> {
        self.points().filter(|values| values.len() == 1)
    }

    /// Evaluates the test row by row: the oracle, and the fallback of encodings.
    pub fn evaluate(&self, array: &ArrayRef) -> Result<BooleanArray> {
        Ok(match self {
            Self::IsNull => is_null(array)?,
            Self::IsNotNull => is_not_null(array)?,
            Self::Range { low, high, negated } => {
                let above = bound(array, low, cmp::gt_eq, cmp::gt)?;
                let below = bound(array, high, cmp::lt_eq, cmp::lt)?;
                let within = match (above, below) {
                    (Some(above), Some(below)) => and(&above, &below)?,
                    (Some(one), None) | (None, Some(one)) => one,
                    (None, None) => all_true(array),
                };
                if *negated { not(&within)? } else { within }
            }
            Self::In { values, negated } => {
                let matches = is_in(array, values)?;
                if *negated { not(&matches)? } else { matches }
            }
        })
    }
}

type Compare = fn(&dyn Datum, &dyn Datum) -> Result<BooleanArray, arrow::error::ArrowError>;

fn bound(
    array: &ArrayRef,
    bound: &Bound<ArrayRef>,
    included: Compare,
    excluded: Compare,
) -> Result<Option<BooleanArray>> {
    let (constant, compare) = match bound {
        Bound::Unbounded => return Ok(None),
        Bound::Included(constant) => (constant, included),
        Bound::Excluded(constant) => (constant, excluded),
    };
    Ok(Some(compare(
        array,
        &Scalar::new(ArrayRef::clone(constant)),
    )?))
}

/// True for every row that is not null.
fn all_true(array: &ArrayRef) -> BooleanArray {
    BooleanArray::new(BooleanBuffer::new_set(array.len()), array.logical_nulls())
}

fn is_in(array: &ArrayRef, values: &ArrayRef) -> Result<BooleanArray> {
    if let (Some(rows), Some(values)) = (byte_strings::values(array), byte_strings::values(values))
    {
        let set: hashbrown::HashSet<&[u8]> = values.into_iter().collect();
        let matches = BooleanBuffer::collect_bool(rows.len(), |row| set.contains(rows[row]));
        return Ok(BooleanArray::new(matches, array.logical_nulls()));
    }
    let none = BooleanBuffer::new_unset(array.len());
    let mut matches = BooleanArray::new(none, array.logical_nulls());
    for row in 0..values.len() {
        matches = or(
            &matches,
            &cmp::eq(array, &Scalar::new(values.slice(row, 1)))?,
        )?;
    }
    Ok(matches)
}

/// Values as integers in the same order, without those that do not fit 128 bits: no stored value equals them.
///
/// # Errors
///
/// [`Error::Unsupported`] for types without such integers.
pub fn value_words(constants: &ArrayRef) -> Result<Vec<i128>> {
    let data = constants.to_data();
    if let DataType::Decimal256(_, _) = constants.data_type() {
        let wide = crate::class::natives::<i256>(&data);
        return Ok(wide.iter().filter_map(|value| value.to_i128()).collect());
    }
    let class = Class::stored(constants.data_type()).ok_or_else(|| {
        Error::Unsupported(format!("constants of type {}", constants.data_type()))
    })?;
    Ok(match_class!(class,
        bool => crate::class::bits(constants).iter().map(i128::from).collect(),
        N => crate::class::natives::<N>(&data).iter().map(|value| value.to_word().widen()).collect()))
}

/// The order of a constant relative to all integers of 128 bits: below, above, or (equal) among them.
fn beyond(constant: &ArrayRef) -> Ordering {
    let value = constant.as_primitive_opt::<Decimal256Type>();
    match value.and_then(|value| value.values().first()) {
        Some(value) if value.to_i128().is_none() => value.cmp(&i256::ZERO),
        _ => Ordering::Equal,
    }
}

/// The bounds of a range as integers in the order of values, both inclusive; if no integer of 128 bits is in the range,
/// the first is above the second. Bounds are arrays of one row, not of strings.
///
/// # Errors
///
/// As [`value_words`].
pub fn range_words(low: &Bound<ArrayRef>, high: &Bound<ArrayRef>) -> Result<(i128, i128)> {
    let low = match low {
        Bound::Unbounded => Some(i128::MIN),
        Bound::Included(low) | Bound::Excluded(low) if beyond(low) == Ordering::Less => {
            Some(i128::MIN)
        }
        Bound::Included(low) => value_words(low)?.first().copied(),
        Bound::Excluded(low) => (value_words(low)?.first()).and_then(|word| word.checked_add(1)),
    };
    let high = match high {
        Bound::Unbounded => Some(i128::MAX),
        Bound::Included(high) | Bound::Excluded(high) if beyond(high) == Ordering::Greater => {
            Some(i128::MAX)
        }
        Bound::Included(high) => value_words(high)?.first().copied(),
        Bound::Excluded(high) => (value_words(high)?.first()).and_then(|word| word.checked_sub(1)),
    };
    Ok(low.zip(high).unwrap_or((1, 0)))
}

/// Checks that constants have the type of their column, and that arrow-rs can compare it.
pub(crate) fn check_types(predicate: &Predicate, data_type: &DataType) -> Result<()> {
    if !matches!(predicate, Predicate::IsNull | Predicate::IsNotNull) && !is_comparable(data_type) {
        return Err(Error::Unsupported(format!("comparing {data_type}")));
    }
    let check = |constants: &ArrayRef, one: bool| {
        let fits = constants.data_type() == data_type
            && constants.null_count() == 0
            && (!one || constants.len() == 1);
        if fits {
            Ok(())
        } else {
            let (constant_type, rows) = (constants.data_type(), constants.len());
            Err(Error::Unsupported(format!(
                "{rows} constants of type {constant_type} for a column of type {data_type}"
            )))
        }
    };
    match predicate {
        Predicate::Range { low, high, .. } => {
            [low, high].into_iter().try_for_each(|bound| match bound {
                Bound::Included(constant) | Bound::Excluded(constant) => check(constant, true),
                Bound::Unbounded => Ok(()),
            })
        }
        Predicate::In { values, .. } => check(values, false),
        Predicate::IsNull | Predicate::IsNotNull => Ok(()),
    }
}

/// Returns true if arrow-rs compares the type, or returns an error. It looks through runs and one dictionary, and
/// panics if another one follows.
fn is_comparable(data_type: &DataType) -> bool {
    let values = match data_type {
        DataType::RunEndEncoded(_, values) => values.data_type(),
        other => other,
    };
    let values = match values {
        DataType::Dictionary(_, values) => values,
        other => other,
    };
    !matches!(
        values,
        DataType::Dictionary(_, _) | DataType::RunEndEncoded(_, _)
    )
}

/// Keeps the selected rows between two bounds, or, if negated, the others. `in_range` sets the rows of a vector that
/// hold a word in a range.
pub(crate) fn filter_range(
    low: &Bound<ArrayRef>,
    high: &Bound<ArrayRef>,
    negated: bool,
    selection: &mut Selection,
    mut in_range: impl FnMut(usize, i128, i128, &mut Mask) -> Result<()>,
) -> Result<()> {
    let (low, high) = range_words(low, high)?;
    let flip = if negated { u64::MAX } else { 0 };
    let mut within = [0; VECTOR_LEN / 64];
    for (vector, mask) in selection.vectors_mut() {
        in_range(vector, low, high, &mut within)?;
        mask.iter_mut()
            .zip(&within)
            .for_each(|(mask, within)| *mask &= within ^ flip);
    }
    Ok(())
}
