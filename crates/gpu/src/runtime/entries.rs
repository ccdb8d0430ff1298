//! The entries of dictionaries, numbered for use as group keys.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use arrow::array::{Array, ArrayRef, UInt32Array, new_empty_array};
use arrow::compute::{interleave, take};
use arrow::datatypes::DataType;

use crate::error::{Error, Result};
use vectile_pipeline::KeyTable;
use vectile_pipeline::join::{DictionaryCodes, for_bytes};

/// The distinct entries of all dictionaries of a column.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    dictionaries: Vec<ArrayRef>,
    /// Dictionary and index of each entry; `None` for those of one dictionary, in its order.
    locations: Option<Vec<(usize, usize)>>,
    count: u32,
    are_codes: bool,
    /// For each dictionary, the number of each entry.
    pub numbers: Vec<Arc<DictionaryCodes>>,
    /// The dictionary index of each row group.
    pub of_group: Arc<[usize]>,
    /// The numbers as codes of a lookup, computed lazily.
    codes: OnceLock<Arc<KeyTable>>,
}

impl Entries {
    /// Numbers the entries of a column's dictionaries, one for each row group.
    pub fn of<'a>(
        dictionaries: impl Iterator<Item = Option<&'a ArrayRef>>,
        of_group: Arc<[usize]>,
    ) -> Result<Self> {
        let mut known: HashMap<&[u8], u32> = HashMap::new();
        let (mut all, mut numbered, mut locations) = (vec![], vec![], vec![]);
        for (index, entries) in dictionaries.enumerate() {
            let Some(entries) = entries else {
                let reason = "grouping by a column that is not in dictionaries";
                return Err(Error::Unsupported(reason.into()));
            };
            if entries.null_count() > 0 {
                let reason = "grouping by a dictionary with nulls in it";
                return Err(Error::Unsupported(reason.into()));
            }
            let mut numbers = vec![None; entries.len()];
            for_bytes(entries, |row, bytes| {
                let next = known.len() as u32;
                let number = *known.entry(bytes).or_insert(next);
                if number == next {
                    locations.push((index, row));
                }
                numbers[row] = Some(number);
                Ok(())
            })?;
            all.push(Arc::clone(entries));
            numbered.push(numbers);
        }
        let is_code = |(code, number): (usize, &Option<u32>)| *number == u32::try_from(code).ok();
        let are_codes = |numbers: &Vec<Option<u32>>| numbers.iter().enumerate().all(is_code);
        let are_codes = numbered.iter().all(are_codes);
        let numbers = all.iter().cloned().zip(numbered);
        Ok(Self {
            numbers: numbers
                .map(|(of, codes)| Arc::new(DictionaryCodes::new(of, codes)))
                .collect(),
            dictionaries: all,
            count: locations.len() as u32,
            locations: Some(locations),
            are_codes,
            of_group,
            codes: OnceLock::new(),
        })
    }

    /// The entries of a dictionary that all row groups share, and whose entries are known to be distinct.
    pub fn of_distinct(entries: &ArrayRef, of_group: Arc<[usize]>) -> Self {
        let count = entries.len() as u32;
        let numbers = (0..count).map(Some).collect();
        Self {
            numbers: vec![Arc::new(DictionaryCodes::new(Arc::clone(entries), numbers))],
            dictionaries: vec![Arc::clone(entries)],
            count,
            locations: None,
            are_codes: true,
            of_group,
            codes: OnceLock::new(),
        }
    }

    /// The number of distinct entries.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Their type.
    pub fn data_type(&self) -> Result<DataType> {
        let first = self.dictionaries.first();
        let of = first.map(|entries| entries.data_type().clone());
        of.ok_or_else(|| Error::Internal("keys of no dictionary".into()))
    }

    /// The key table that maps the column's values to their numbers.
    pub fn codes(&self) -> Result<Arc<KeyTable>> {
        if let Some(codes) = self.codes.get() {
            return Ok(Arc::clone(codes));
        }
        let numbers: Vec<u32> = (0..self.count()).collect();
        let all: Vec<Option<u32>> = numbers.iter().copied().map(Some).collect();
        let codes = KeyTable::new(&self.take(&all)?, &numbers, self.count().max(1))?;
        Ok(Arc::clone(self.codes.get_or_init(|| Arc::new(codes))))
    }

    /// Returns true if each entry's number is its code, in every dictionary.
    pub fn are_codes(&self) -> bool {
        self.are_codes
    }

    /// All entries, by number.
    pub fn all(&self) -> Result<ArrayRef> {
        match (&self.locations, self.dictionaries.first()) {
            (None, Some(only)) => Ok(Arc::clone(only)),
            _ => self.take(&(0..self.count).map(Some).collect::<Vec<_>>()),
        }
    }

    /// The entries with these numbers.
    pub fn take(&self, numbers: &[Option<u32>]) -> Result<ArrayRef> {
        let Some(first) = self.dictionaries.first() else {
            return Err(Error::Internal("keys of no dictionary".into()));
        };
        let data_type = first.data_type();
        if numbers.is_empty() {
            return Ok(new_empty_array(data_type));
        }
        let Some(locations) = &self.locations else {
            let numbers = UInt32Array::from_iter(numbers.iter().copied());
            return Ok(take(first, &numbers, None).map_err(vectile_encodings::Error::from)?);
        };
        let null = arrow::array::new_null_array(data_type, 1);
        let mut arrays: Vec<&dyn Array> = self.dictionaries.iter().map(AsRef::as_ref).collect();
        arrays.push(null.as_ref());
        let nowhere = (arrays.len() - 1, 0);
        let location = |number: &Option<u32>| {
            let location = number.and_then(|number| locations.get(number as usize));
            location.copied().unwrap_or(nowhere)
        };
        let locations: Vec<(usize, usize)> = numbers.iter().map(location).collect();
        Ok(interleave(&arrays, &locations).map_err(vectile_encodings::Error::from)?)
    }
}
