//! The entries of dictionaries, numbered for use as group keys.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, OnceLock};
use std::thread;

use arrow::array::{Array, ArrayRef, UInt32Array, new_empty_array};
use arrow::compute::{interleave, take};
use arrow::datatypes::DataType;

use crate::error::{Error, Result};
use vectile_pipeline::join::{DictionaryCodes, for_bytes};
use vectile_pipeline::{KeyTable, parallel};

/// The distinct entries of all dictionaries of a column.
#[derive(Debug, Default)]
pub(crate) struct Entries {
    dictionaries: Vec<ArrayRef>,
    /// Where each entry is; `None` for those of one dictionary, in its order.
    locations: Option<Locations>,
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
        let mut all = vec![];
        for entries in dictionaries {
            let Some(entries) = entries else {
                let reason = "grouping by a column that is not in dictionaries";
                return Err(Error::Unsupported(reason.into()));
            };
            if entries.null_count() > 0 {
                let reason = "grouping by a dictionary with nulls in it";
                return Err(Error::Unsupported(reason.into()));
            }
            all.push(Arc::clone(entries));
        }
        let (numbered, locations) = numbered(&all)?;
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

/// Dictionary and index of each entry.
type Locations = Vec<(usize, usize)>;

/// Fewer entries are numbered by one thread.
const FEW_ENTRIES: usize = 1 << 16;

/// Distinct entries that one thread has found.
#[derive(Default)]
struct Found {
    /// The number of each of its entries.
    numbers: Vec<u32>,
    /// Where each number is first.
    locations: Locations,
}

/// The number of each entry of each dictionary, and where each number is first: a thread numbers the entries whose hash
/// falls to it. One thread does so in their order.
fn numbered(all: &[ArrayRef]) -> Result<(Vec<Vec<Option<u32>>>, Locations)> {
    let count: usize = all.iter().map(|entries| entries.len()).sum();
    let threads = match all.len() < 2 || count < FEW_ENTRIES {
        true => 1,
        false => thread::available_parallelism().map_or(1, usize::from),
    };
    // the same for each run: numbers decide the order of groups
    let state = BuildHasherDefault::<DefaultHasher>::default();
    let hashed = parallel::map(threads, all.iter().collect(), |entries: &ArrayRef| {
        let mut hashed = Vec::with_capacity(entries.len());
        for_bytes(entries, |_, bytes| {
            let owner = match threads {
                1 => 0,
                _ => state.hash_one(bytes) as usize % threads,
            };
            hashed.push((owner, bytes));
            Ok(())
        })?;
        Ok(hashed)
    });
    let hashed: Vec<Vec<(usize, &[u8])>> = hashed.into_iter().collect::<Result<_>>()?;
    let found = parallel::map(threads, (0..threads).collect(), |thread| {
        let (mut known, mut found) = (HashMap::<&[u8], u32>::new(), Found::default());
        for (index, entries) in hashed.iter().enumerate() {
            let own = entries.iter().enumerate();
            for (row, (_, bytes)) in own.filter(|(_, (owner, _))| *owner == thread) {
                let next = found.locations.len() as u32;
                let number = *known.entry(bytes).or_insert(next);
                if number == next {
                    found.locations.push((index, row));
                }
                found.numbers.push(number);
            }
        }
        found
    });
    let mut before = 0;
    let (mut numbers, mut locations) = (vec![], vec![]);
    for Found {
        numbers: own,
        locations: first,
    } in found
    {
        numbers.push(own.into_iter().map(move |number| number + before));
        before += first.len() as u32;
        locations.extend(first);
    }
    let numbered = hashed.iter().map(|entries| {
        let owners = entries.iter().map(|(owner, _)| *owner);
        owners.map(|owner| numbers[owner].next()).collect()
    });
    Ok((numbered.collect(), locations))
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, StringArray};

    use super::*;

    #[test]
    fn entries_of_many_dictionaries_are_numbered_by_several_threads() {
        let count = 3 * FEW_ENTRIES as u32 / 2;
        let dictionary = |step: u32| -> ArrayRef {
            let texts = (0..count).map(|row| format!("text {}", row * step % 70_001));
            Arc::new(StringArray::from_iter_values(texts))
        };
        let all = [dictionary(1), dictionary(7)];
        let entries = Entries::of(all.iter().map(Some), vec![0, 1].into()).unwrap();
        assert_eq!(entries.count(), 70_001);
        for (dictionary, numbers) in all.iter().zip(&entries.numbers) {
            let texts = entries.take(numbers.codes()).unwrap();
            assert_eq!(texts.as_string::<i32>(), dictionary.as_string::<i32>());
        }
    }

    #[test]
    fn entries_of_one_dictionary_keep_their_order() {
        let all: [ArrayRef; 1] = [Arc::new(StringArray::from(vec!["b", "a", "c"]))];
        let entries = Entries::of(all.iter().map(Some), vec![0].into()).unwrap();
        assert!(entries.are_codes());
        let twice: [ArrayRef; 1] = [Arc::new(StringArray::from(vec!["b", "a", "b"]))];
        let entries = Entries::of(twice.iter().map(Some), vec![0].into()).unwrap();
        assert!(!entries.are_codes());
        assert_eq!(entries.count(), 2);
    }
}
