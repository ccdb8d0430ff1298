//! Tests of one column against constants.

use std::ops::Bound;

use arrow::array::{Array, ArrayRef, BooleanArray, Datum, Scalar};
use arrow::buffer::BooleanBuffer;
use arrow::compute::kernels::cmp;
use arrow::compute::{and, is_not_null, is_null, not, or};
use arrow::datatypes::DataType;

use crate::VECTOR_LEN;
use crate::byte_strings;
use crate::class::{Class, Native, Wide, match_class};
use crate::error::{Error, Result};
use crate::masks::Mask;
use crate::selection::Selection;

/// A test that every encoding evaluates on its encoded form where it can. Constants are arrays of
/// the column's type without nulls, of one row where they are bounds. Values compare as arrow-rs
/// compares them (floats in total order). A null row passes [`Predicate::IsNull`] only.
#[derive(Clone, Debug)]
pub enum Predicate {
    /// The value lies between two bounds; or, negated, does not.
    Range {
        /// The lower bound.
        low: Bound<ArrayRef>,
        /// The upper bound.
        high: Bound<ArrayRef>,
        /// Whether the values outside pass instead.
        negated: bool,
    },
    /// The value is one of these; or, negated, none of them.
    In {
        /// The values.
        values: ArrayRef,
        /// Whether the other values pass instead.
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

    /// Whether all constants have this type.
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

    /// The values of which a row must have one to pass, if that is all there is to it.
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

    /// The only value that passes, if there is just one.
    pub(crate) fn only_value(&self) -> Option<&ArrayRef> {
        self.points().filter(|values| values.len() == 1)
    }

    /// Evaluates the test row by row: the oracle, and what encodings fall back to.
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
                let found = is_in(array, values)?;
                if *negated { not(&found)? } else { found }
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
        let found = BooleanBuffer::collect_bool(rows.len(), |row| set.contains(rows[row]));
        return Ok(BooleanArray::new(found, array.logical_nulls()));
    }
    let none = BooleanBuffer::new_unset(array.len());
    let mut found = BooleanArray::new(none, array.logical_nulls());
    for row in 0..values.len() {
        found = or(&found, &cmp::eq(array, &Scalar::new(values.slice(row, 1)))?)?;
    }
    Ok(found)
}

/// Values as integers that order as they do; `None` if one does not fit 128 bits.
///
/// # Errors
///
/// [`Error::Unsupported`] for types without such integers.
pub fn value_words(constants: &ArrayRef) -> Result<Option<Vec<i128>>> {
    let data = constants.to_data();
    if let arrow::datatypes::DataType::Decimal256(_, _) = constants.data_type() {
        let wide = crate::class::natives::<arrow::datatypes::i256>(&data);
        return Ok(wide.iter().map(|value| value.to_i128()).collect());
    }
    let class = Class::stored(constants.data_type()).ok_or_else(|| {
        Error::Unsupported(format!("constants of type {}", constants.data_type()))
    })?;
    Ok(Some(match_class!(class,
        bool => crate::class::bits(constants).iter().map(i128::from).collect(),
        N => crate::class::natives::<N>(&data).iter().map(|value| value.to_word().widen()).collect())))
}

/// The bounds of a range as integers that order as the values do, both inclusive; `None` if a bound
/// does not fit 128 bits. Bounds are arrays of one row, not of strings.
///
/// # Errors
///
/// As [`value_words`].
pub fn range_words(low: &Bound<ArrayRef>, high: &Bound<ArrayRef>) -> Result<Option<(i128, i128)>> {
    let word = |bound: &Bound<ArrayRef>, open: i128, step: i128| -> Result<Option<i128>> {
        Ok(match bound {
            Bound::Unbounded => Some(open),
            Bound::Included(constant) => {
                value_words(constant)?.and_then(|words| words.first().copied())
            }
            Bound::Excluded(constant) => value_words(constant)?
                .and_then(|words| words.first().and_then(|word| word.checked_add(step))),
        })
    };
    Ok(word(low, i128::MIN, 1)?.zip(word(high, i128::MAX, -1)?))
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
            let (found, rows) = (constants.data_type(), constants.len());
            Err(Error::Unsupported(format!(
                "{rows} constants of type {found} for a column of type {data_type}"
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

/// Whether arrow-rs compares the type, or says that it does not. It looks through runs and one dictionary, and
/// panics at what comes next if that is another.
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

/// Keeps the selected rows between two bounds, or those that are not; `in_range` tells which rows of
/// a vector hold a word in a range.
pub(crate) fn filter_range(
    low: &Bound<ArrayRef>,
    high: &Bound<ArrayRef>,
    negated: bool,
    selection: &mut Selection,
    mut in_range: impl FnMut(usize, i128, i128, &mut Mask) -> Result<()>,
) -> Result<()> {
    let (low, high) = range_words(low, high)?
        .ok_or_else(|| Error::Unsupported("a constant beyond 128 bits".into()))?;
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
