//! Multimap for duplicate join keys: an offset and a count per key, into a list of all rows.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::compute::concat;
use datafusion::common::Result;
use vectile_gpu::Error;
use vectile_pipeline::{Code, KeyTable, Matches, PayloadColumn, RowCodes};

use super::dense_ids::Numbered;
use crate::error;

/// Ranges of a list of all rows, by the code of the key.
#[derive(Debug)]
struct RowRanges {
    first: Arc<PayloadColumn>,
    count: Arc<PayloadColumn>,
    most: u32,
}

/// Rows listed by key, of which some are duplicate.
pub(crate) struct RowsByKey {
    /// The key table, with a code for each distinct key.
    pub(crate) codes: Arc<KeyTable>,
    ranges: Arc<RowRanges>,
    /// For each row, its index in the list.
    index_of_row: Vec<u32>,
}

impl RowsByKey {
    /// Lists rows by their keys, which come in chunks and none of which is null; `None` if all are distinct.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Unsupported`] if there are too many rows, or too many keys for a table.
    pub(crate) fn of(chunks: &[ArrayRef]) -> Result<Option<Self>> {
        let chunks: Vec<&dyn Array> = chunks.iter().map(AsRef::as_ref).collect();
        let keys = concat(&chunks)?;
        let ids = Numbered::of(&keys)?;
        if ids.count as usize == keys.len() {
            return Ok(None);
        }
        if u32::try_from(keys.len()).is_err() {
            let reason = format!("{} rows with duplicate join keys", keys.len());
            return Err(error::gpu(Error::Unsupported(reason)));
        }
        let mut count = vec![0u32; ids.count as usize];
        let ids_by_row = ids.codes.iter().map(|&number| number as usize);
        ids_by_row.clone().for_each(|number| count[number] += 1);
        let mut end = 0;
        let first = count.iter().map(|count| {
            end += count;
            end - count
        });
        let first: Vec<u32> = first.collect();
        let mut next = first.clone();
        let index_of_row = ids_by_row.map(|number| {
            next[number] += 1;
            next[number] - 1
        });
        let index_of_row = index_of_row.collect();
        let ranges = RowRanges {
            most: count.iter().copied().max().unwrap_or(0),
            first: payload_column(first),
            count: payload_column(count),
        };
        Ok(Some(Self {
            codes: Arc::new(ids.table()?),
            ranges: Arc::new(ranges),
            index_of_row,
        }))
    }

    /// The rows in the order of the list.
    pub(crate) fn rows(&self) -> UInt32Array {
        let mut rows = vec![0; self.index_of_row.len()];
        for (row, &index) in (0..).zip(&self.index_of_row) {
            rows[index as usize] = row;
        }
        rows.into()
    }

    /// A multimap whose codes are indices in the list. Payload values are to be listed as the rows are.
    pub(crate) fn coded_by_index(&self) -> JoinMultiMap {
        JoinMultiMap {
            ranges: Arc::clone(&self.ranges),
            codes: None,
        }
    }

    /// A multimap in which each row has its code of `codes`.
    pub(crate) fn with(&self, codes: RowCodes<'_>) -> JoinMultiMap {
        let mut listed = vec![0; self.index_of_row.len()];
        for (row, &index) in self.index_of_row.iter().enumerate() {
            listed[index as usize] = codes.code(row);
        }
        JoinMultiMap {
            ranges: Arc::clone(&self.ranges),
            codes: Some(payload_column(listed)),
        }
    }
}

fn payload_column(values: Vec<u32>) -> Arc<PayloadColumn> {
    PayloadColumn::new(Arc::new(UInt32Array::from(values)))
}

/// The rows of each key, with a payload code for each row.
#[derive(Debug)]
pub(crate) struct JoinMultiMap {
    ranges: Arc<RowRanges>,
    /// The code of each row in the list; `None` if its index is the code.
    codes: Option<Arc<PayloadColumn>>,
}

impl JoinMultiMap {
    /// True if both list the same rows in the same order.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.ranges, &other.ranges)
    }

    /// The matches of a row whose key has the code `code`.
    pub(crate) fn matches(&self, code: Code, is_outer: bool) -> Matches {
        Matches {
            code,
            offset: Arc::clone(&self.ranges.first),
            count: Arc::clone(&self.ranges.count),
            max_count: self.ranges.most,
            is_outer,
        }
    }

    /// The code of the current match in the matches numbered `number`.
    pub(crate) fn code(&self, number: usize) -> Code {
        let index = Code::Match(number);
        match &self.codes {
            Some(codes) => Code::Listed(Box::new(index), Arc::clone(codes)),
            None => index,
        }
    }

    /// Bytes in memory.
    pub(crate) fn bytes(&self) -> usize {
        let codes = self.codes.as_ref().map_or(0, |codes| codes.len());
        4 * (self.ranges.first.len() + self.ranges.count.len() + codes)
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{AsArray, Int64Array, StringArray};
    use arrow::datatypes::UInt32Type;

    use super::*;

    fn listed(multimap: &JoinMultiMap, number: usize) -> Vec<u32> {
        let values = |of: &PayloadColumn| of.values().unwrap().as_primitive::<UInt32Type>().clone();
        let ranges = &multimap.ranges;
        let (first, count) = (values(&ranges.first), values(&ranges.count));
        let first = first.value(number) as usize;
        let all = values(multimap.codes.as_ref().unwrap());
        all.values()[first..first + count.value(number) as usize].to_vec()
    }

    /// The rows of keys in two chunks.
    fn of(keys: &ArrayRef) -> Option<RowsByKey> {
        let chunks = [keys.slice(0, 1), keys.slice(1, keys.len() - 1)];
        RowsByKey::of(&chunks).unwrap()
    }

    fn with(rows: &RowsByKey, codes: &[u32]) -> JoinMultiMap {
        rows.with(RowCodes::Each(codes, 10))
    }

    #[test]
    fn each_key_has_its_rows() {
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![7, 5, 7, 9, 7, 5]));
        let all = of(&keys).unwrap();
        let codes = all.codes.codes_of(&keys).unwrap();
        assert_eq!(codes, [0, 1, 0, 2, 0, 1].map(Some));
        let (multimap, other) = (with(&all, &[0, 1, 2, 3, 4, 1]), with(&all, &[9; 6]));
        assert_eq!(listed(&multimap, 0), [0, 2, 4]);
        assert_eq!(listed(&multimap, 1), [1, 1]);
        assert_eq!(listed(&multimap, 2), [3]);
        assert_eq!(
            (multimap.ranges.most, multimap.bytes()),
            (3, 4 * (3 + 3 + 6))
        );
        assert_eq!(all.rows().values(), &[0, 2, 4, 1, 5, 3]);
        assert!(
            all.coded_by_index().is_like(&multimap) && all.coded_by_index().bytes() == 4 * (3 + 3)
        );
        let rebuilt = with(&of(&keys).unwrap(), &[9; 6]);
        assert!(multimap.is_like(&other) && !multimap.is_like(&rebuilt));
    }

    #[test]
    fn distinct_keys_need_no_list() {
        let keys: ArrayRef = Arc::new(StringArray::from(vec!["a", "b"]));
        assert!(of(&keys).is_none());
        let twice: ArrayRef = Arc::new(StringArray::from(vec!["a", "a"]));
        let all = of(&twice).unwrap();
        assert_eq!(all.codes.len(), 1);
        assert_eq!(listed(&with(&all, &[1, 0]), 0), [1, 0]);
    }
}
