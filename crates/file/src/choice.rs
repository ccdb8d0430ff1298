//! The encodings that were chosen for the columns of earlier row groups.

use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use vectile_encodings::{EncodeOptions, Encoding, Result};

use crate::metadata::Compression;

/// Row groups for which a choice holds at most: later ones may have become different, and another encoding smaller.
const MOST_USES: u32 = 32;

/// Rows take about as many bytes as others if the difference is one part in so many at most.
const TOLERANCE: u64 = 8;

/// Values in one encoding, perhaps compressed.
pub(crate) struct EncodedValues {
    pub(crate) data: Bytes,
    pub(crate) data_bytes: u64,
    pub(crate) compression: Compression,
    pub(crate) encoding: Encoding,
    /// The encoding of a dictionary's codes.
    pub(crate) codes: Option<Encoding>,
    /// The names of the encodings, the outermost first.
    pub(crate) name: String,
}

/// A choice for each column of a table.
#[derive(Debug)]
pub(crate) struct Choices(Vec<Choice>);

impl Choices {
    /// No choices yet.
    pub(crate) fn new(columns: usize) -> Self {
        Self((0..columns).map(|_| Choice::default()).collect())
    }

    /// That of a column of the table.
    pub(crate) fn of(&self, column: usize) -> &Choice {
        &self.0[column]
    }
}

/// The choice for a column, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Choice(Mutex<Option<Known>>);

#[derive(Clone, Debug)]
struct Known {
    encoding: Encoding,
    /// That of a dictionary's codes.
    codes: Option<Encoding>,
    /// The rows that it was chosen for, and their bytes.
    rows: usize,
    bytes: u64,
    /// Row groups that it was used for since.
    uses: u32,
}

impl Known {
    /// True if it may be used for `rows` rows. Dictionaries and symbol tables take their bytes once, so that another
    /// encoding may be best for many more or fewer rows.
    fn is_for(&self, rows: usize) -> bool {
        self.uses < MOST_USES && rows / 2 <= self.rows && self.rows / 2 <= rows
    }

    /// True if `rows` rows take about as many bytes as those that it was chosen for: otherwise they are different.
    fn holds(&self, rows: usize, bytes: u64) -> bool {
        let expected = u128::from(self.bytes) * rows as u128;
        let bytes = u128::from(bytes) * self.rows as u128;
        bytes.abs_diff(expected) <= expected / u128::from(TOLERANCE)
    }
}

impl Choice {
    /// Encodes `rows` rows by `encode`: with the encoding that was chosen before while that is about as good as it was,
    /// and otherwise with one that is chosen now.
    ///
    /// # Errors
    ///
    /// Those of `encode`.
    pub(crate) fn encode(
        &self,
        rows: usize,
        options: &EncodeOptions,
        encode: impl Fn(&EncodeOptions) -> Result<EncodedValues>,
    ) -> Result<EncodedValues> {
        let known = match options.pin {
            Some(_) => None,
            None => self.known().clone(),
        };
        if let Some(known) = known.as_ref().filter(|known| known.is_for(rows)) {
            let hinted = EncodeOptions {
                hint: Some(known.encoding),
                codes: known.codes,
                ..options.clone()
            };
            let values = encode(&hinted)?;
            // a constant takes next to nothing, and rows after it need not be constant
            let is_constant = values.encoding == Encoding::Constant;
            if is_constant || known.holds(rows, values.data_bytes) {
                if let Some(known) = self.known().as_mut() {
                    known.uses += 1;
                }
                return Ok(values);
            }
        }
        let values = encode(options)?;
        let is_larger = known.is_none_or(|known| known.rows / 2 <= rows);
        if is_larger && values.encoding != Encoding::Constant {
            *self.known() = Some(Known {
                encoding: values.encoding,
                codes: values.codes,
                rows,
                bytes: values.data_bytes,
                uses: 0,
            });
        }
        Ok(values)
    }

    fn known(&self) -> MutexGuard<'_, Option<Known>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Encodes rows of a column: `bytes` are what each encoding takes for a row. Returns the encoding, and how often one
    /// was chosen by a comparison.
    fn encode(choice: &Choice, rows: usize, bytes: [(Encoding, u64); 2]) -> (Encoding, usize) {
        let compared = RefCell::new(0);
        let values = choice.encode(rows, &EncodeOptions::default(), |options| {
            let smallest = bytes.into_iter().min_by_key(|(_, bytes)| *bytes).unwrap();
            let (encoding, bytes) = match options.hint {
                Some(hint) => bytes.into_iter().find(|(of, _)| *of == hint).unwrap(),
                None => {
                    *compared.borrow_mut() += 1;
                    smallest
                }
            };
            Ok(EncodedValues {
                data: Default::default(),
                data_bytes: bytes * rows as u64,
                compression: Compression::None,
                encoding,
                codes: None,
                name: String::new(),
            })
        });
        (values.unwrap().encoding, compared.into_inner())
    }

    use Encoding::{Constant, Dict, Ffor};

    #[test]
    fn rows_like_those_before_are_not_compared() {
        let choice = Choice::default();
        assert_eq!(encode(&choice, 100, [(Dict, 10), (Ffor, 20)]), (Dict, 1));
        assert_eq!(encode(&choice, 100, [(Dict, 10), (Ffor, 20)]), (Dict, 0));
        assert_eq!(encode(&choice, 190, [(Dict, 9), (Ffor, 2)]), (Dict, 0));
    }

    #[test]
    fn more_and_fewer_rows_are_compared() {
        let choice = Choice::default();
        encode(&choice, 100, [(Dict, 10), (Ffor, 20)]);
        // the next row group is probably a large one again
        assert_eq!(encode(&choice, 9, [(Dict, 10), (Ffor, 5)]), (Ffor, 1));
        assert_eq!(encode(&choice, 100, [(Dict, 10), (Ffor, 5)]), (Dict, 0));
        assert_eq!(encode(&choice, 900, [(Dict, 10), (Ffor, 5)]), (Ffor, 1));
        assert_eq!(encode(&choice, 800, [(Dict, 10), (Ffor, 5)]), (Ffor, 0));
    }

    #[test]
    fn rows_that_change_are_compared() {
        let choice = Choice::default();
        encode(&choice, 100, [(Dict, 32), (Ffor, 40)]);
        assert_eq!(encode(&choice, 100, [(Dict, 36), (Ffor, 30)]), (Dict, 0));
        assert_eq!(encode(&choice, 100, [(Dict, 37), (Ffor, 30)]), (Ffor, 1));
        assert_eq!(encode(&choice, 100, [(Dict, 37), (Ffor, 30)]), (Ffor, 0));
        assert_eq!(encode(&choice, 100, [(Dict, 8), (Ffor, 20)]), (Dict, 1));
    }

    #[test]
    fn rows_are_compared_now_and_then() {
        let choice = Choice::default();
        encode(&choice, 100, [(Dict, 10), (Ffor, 20)]);
        let compared =
            (0..4 * (MOST_USES + 1)).map(|_| encode(&choice, 100, [(Dict, 10), (Ffor, 5)]));
        let compared: Vec<_> = compared.collect();
        let first = compared.iter().position(|(encoding, _)| *encoding == Ffor);
        assert_eq!(first, Some(MOST_USES as usize));
        assert_eq!(
            compared.iter().map(|(_, compared)| compared).sum::<usize>(),
            4
        );
    }

    #[test]
    fn constant_rows_change_no_choice() {
        let choice = Choice::default();
        assert_eq!(
            encode(&choice, 9, [(Constant, 0), (Ffor, 5)]),
            (Constant, 1)
        );
        assert_eq!(encode(&choice, 9, [(Dict, 6), (Ffor, 5)]), (Ffor, 1));
    }
}
