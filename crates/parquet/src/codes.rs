//! Text and binary in a file's dictionary, as a column of codes.
//!
//! A file has its entries in the order of their first row, and some writers repeat them. A column has them ascending,
//! each once: codes then compare as entries do.

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::compute::{CastOptions, cast_with_options, take};
use arrow::datatypes::{DataType, Int32Type};
use vectile_encodings::Column;

use crate::error::{Fault, corrupt};

/// The most entries of a dictionary that is worth sorting. A column has no more.
pub(crate) const MAX_ENTRIES: u64 = 1 << 18;

/// The entries of a dictionary, sorted.
#[derive(Debug)]
pub(crate) struct Ranks {
    /// The distinct entries, ascending.
    pub(crate) sorted: ArrayRef,
    /// For each entry of the file, its index in `sorted`.
    pub(crate) ranks: Vec<u32>,
}

impl Ranks {
    /// Sorts entries, and casts them to `data_type`; `None` if they are no text.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if entries are no text though their column is.
    pub(crate) fn of(entries: &ArrayRef, data_type: &DataType) -> Result<Option<Self>, Fault> {
        let Some(bytes) = bytes_of(entries).filter(|_| entries.null_count() == 0) else {
            return Ok(None);
        };
        let mut order: Vec<u32> = (0..bytes.len() as u32).collect();
        let entry = |number: u32| bytes.get(number as usize).copied().unwrap_or_default();
        order.sort_unstable_by(|a, b| entry(*a).cmp(entry(*b)));
        let mut ranks = vec![0; bytes.len()];
        let mut distinct: Vec<u32> = Vec::with_capacity(bytes.len());
        for number in order {
            if distinct
                .last()
                .is_none_or(|last| entry(*last) != entry(number))
            {
                distinct.push(number);
            }
            if let Some(rank) = ranks.get_mut(number as usize) {
                *rank = distinct.len() as u32 - 1;
            }
        }
        let exactly = CastOptions {
            safe: false,
            ..CastOptions::default()
        };
        let sorted = take(entries, &UInt32Array::from(distinct), None)?;
        let sorted = cast_with_options(&sorted, data_type, &exactly)?;
        Ok(Some(Self { sorted, ranks }))
    }
}

/// A dictionary array as a column of `data_type`, and its bytes; `None` if there is no such column.
///
/// # Errors
///
/// [`Fault::Corrupt`] if a row has no entry, or entries are no text though their column is.
pub(crate) fn column(
    array: &ArrayRef,
    data_type: &DataType,
) -> Result<Option<(Column, usize)>, Fault> {
    let Some(dictionary) = array.as_dictionary_opt::<Int32Type>() else {
        return Ok(None);
    };
    let Some(Ranks { sorted, ranks }) = Ranks::of(dictionary.values(), data_type)? else {
        return Ok(None);
    };
    let nulls = dictionary.keys().nulls();
    let keys = dictionary.keys().values().iter().enumerate();
    let numbers = keys.map(|(row, key)| {
        let rank = usize::try_from(*key).ok().and_then(|key| ranks.get(key));
        match rank {
            Some(rank) => Ok(*rank),
            None if nulls.is_some_and(|nulls| nulls.is_null(row)) => Ok(0),
            None => corrupt(format!("entry {key} of {}", ranks.len())),
        }
    });
    let numbers = numbers.collect::<Result<Vec<u32>, Fault>>()?;
    let bytes = sorted.get_array_memory_size() + size_of_val(&numbers[..]);
    let column = Column::of_codes(&sorted, &numbers, nulls)?;
    Ok(column.map(|column| (column, bytes)))
}

/// The bytes of each entry, if they are text or binary.
fn bytes_of(entries: &ArrayRef) -> Option<Vec<&[u8]>> {
    match entries.data_type() {
        DataType::Utf8 => {
            let entries = entries.as_string::<i32>();
            Some(
                (0..entries.len())
                    .map(|i| entries.value(i).as_bytes())
                    .collect(),
            )
        }
        DataType::Binary => {
            let entries = entries.as_binary::<i32>();
            Some((0..entries.len()).map(|i| entries.value(i)).collect())
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{BinaryArray, DictionaryArray, Int32Array, StringArray};
    use arrow::compute::cast;

    use super::*;

    fn dictionary(entries: ArrayRef, keys: Vec<Option<i32>>) -> ArrayRef {
        Arc::new(DictionaryArray::new(Int32Array::from(keys), entries))
    }

    #[test]
    fn entries_are_sorted_and_numbered_anew() {
        let entries: ArrayRef = Arc::new(StringArray::from(vec!["b", "a", "b", "", "unused"]));
        let keys = vec![Some(0), Some(2), None, Some(1), Some(3)];
        let array = dictionary(entries, keys);
        for data_type in [DataType::Utf8, DataType::LargeUtf8, DataType::Utf8View] {
            let (column, bytes) = super::column(&array, &data_type).unwrap().unwrap();
            assert!(column.describe().starts_with("dict") && bytes > 0);
            let expected = cast(&array, &data_type).unwrap();
            assert_eq!(&column.decode(0..5).unwrap(), &expected);
        }
    }

    #[test]
    fn what_is_no_dictionary_of_text_is_none_and_bad_text_an_error() {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![1]));
        assert!(column(&numbers, &DataType::Int32).unwrap().is_none());
        let empty: ArrayRef = Arc::new(StringArray::from(Vec::<&str>::new()));
        let array = dictionary(empty, vec![None, None]);
        assert!(column(&array, &DataType::Utf8).unwrap().is_none());
        let bad: ArrayRef = Arc::new(BinaryArray::from(vec![&b"\xFF"[..]]));
        let array = dictionary(bad, vec![Some(0)]);
        assert!(column(&array, &DataType::Utf8View).is_err());
        assert!(column(&array, &DataType::BinaryView).unwrap().is_some());
    }
}
