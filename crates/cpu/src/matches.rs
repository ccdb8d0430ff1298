//! Rows and their matches in a list, in pairs: a row comes once for each of its matches.

use std::ops::Range;

use vectile_encodings::VECTOR_LEN;
use vectile_pipeline::{Error, Result};

use crate::batch::{Batch, Matched};
use crate::vector::{ALL, Mask, Values, Vector, first_rows, for_each_row, has_row, mask_of};

/// The matches of a batch's rows: their codes follow each other.
pub(crate) struct Lists<'a> {
    first: &'a [i64; VECTOR_LEN],
    count: &'a [i64; VECTOR_LEN],
    /// The rows that have some.
    pub some: Mask,
}

impl<'a> Lists<'a> {
    /// The lists of the rows of `mask`, of their first codes and counts. A null count is 0.
    pub fn new(first: &'a Vector, count: &'a Vector, mask: &Mask) -> Result<Self> {
        let (Values::Int(first), Values::Int(counts)) = (&first.values, &count.values) else {
            return Err(Error::Internal("lists of another kind".into()));
        };
        let has_some = mask_of(counts, |count| count > 0);
        let valid = count.valid.unwrap_or(ALL);
        let some = std::array::from_fn(|word| mask[word] & valid[word] & has_some[word]);
        Ok(Self {
            first,
            count: counts,
            some,
        })
    }

    /// The codes of a row's matches.
    pub fn codes(&self, row: usize) -> Range<i64> {
        match has_row(&self.some, row) {
            true => self.first[row]..self.first[row] + self.count[row],
            false => 0..0,
        }
    }
}

/// A batch of rows with one match each, which becomes full.
pub(crate) struct Pairs {
    rows: Vec<u32>,
    /// Indices of the rows in the batches that they came from.
    sources: Vec<usize>,
    /// The matches that the rows had before, in other lists, and then the new ones.
    matches: Vec<Matched>,
}

impl Pairs {
    /// No pairs, of rows that have matches in `before` other lists.
    pub fn new(before: usize) -> Self {
        let matched = || Matched {
            codes: Box::new([0; VECTOR_LEN]),
            valid: None,
        };
        Self {
            rows: Vec::with_capacity(VECTOR_LEN),
            sources: Vec::with_capacity(VECTOR_LEN),
            matches: (0..=before).map(|_| matched()).collect(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn is_full(&self) -> bool {
        self.rows.len() == VECTOR_LEN
    }

    pub fn clear(&mut self) {
        self.rows.clear();
        self.sources.clear();
        let matches = self.matches.iter_mut();
        matches.for_each(|matched| matched.valid = None);
    }

    /// The pairs, and the mask of all of them.
    pub fn batch(&self) -> (Batch<'_>, Mask) {
        let batch = Batch::Rows(&self.rows, &self.matches);
        (batch, first_rows(self.rows.len()))
    }

    /// Adds a row of a batch with each of `codes`, as far as there is room. Returns how many were added.
    pub fn add(&mut self, batch: Batch<'_>, row: usize, codes: Range<i64>) -> i64 {
        let room = VECTOR_LEN - self.rows.len();
        let codes = codes.start..codes.end.min(codes.start.saturating_add(room as i64));
        let count = codes.end - codes.start;
        let places = self.add_rows(batch, row, count as usize);
        if let Some(own) = self.matches.last_mut() {
            let places = own.codes[places].iter_mut();
            places.zip(codes).for_each(|(place, code)| *place = code);
        }
        count
    }

    /// Adds a row of a batch without a match; there is room.
    pub fn add_unmatched(&mut self, batch: Batch<'_>, row: usize) {
        let places = self.add_rows(batch, row, 1);
        if let Some(own) = self.matches.last_mut() {
            own.codes[places.clone()].fill(0);
            own.clear(places);
        }
    }

    /// Adds a row several times, with the matches that it has. Returns the places.
    fn add_rows(&mut self, batch: Batch<'_>, row: usize, times: usize) -> Range<usize> {
        let places = self.rows.len()..self.rows.len() + times;
        self.rows.resize(places.end, batch.row(row));
        self.sources.resize(places.end, row);
        for (own, of) in self.matches.iter_mut().zip(batch.matches()) {
            own.codes[places.clone()].fill(of.codes[row]);
            if of.valid.is_some_and(|valid| !has_row(&valid, row)) {
                own.clear(places.clone());
            }
        }
        places
    }
}

impl Matched {
    /// Makes the codes of some rows null.
    fn clear(&mut self, rows: Range<usize>) {
        let valid = self.valid.get_or_insert(ALL);
        rows.for_each(|row| valid[row / 64] &= !(1 << (row % 64)));
    }
}

/// The rows of a mask.
pub(crate) fn rows_of(mask: &Mask) -> Vec<usize> {
    let mut rows = Vec::with_capacity(VECTOR_LEN);
    for_each_row(mask, |row| rows.push(row));
    rows
}

/// The rows of a batch with a match that passes `test`, which returns those that pass of a batch of `pairs`.
///
/// Each row's first match is tested first, then the next two of the rows that remain, the next four, and so on: at most
/// twice the matches up to the first one that passes, in batches that are as full as possible.
pub(crate) fn any_match(
    batch: Batch<'_>,
    lists: &Lists<'_>,
    pairs: &mut Pairs,
    test: &mut dyn FnMut(Batch<'_>, &Mask) -> Result<Mask>,
) -> Result<Mask> {
    let mut some = [0; VECTOR_LEN / 64];
    let mut pass = |pairs: &mut Pairs, some: &mut Mask| -> Result<()> {
        let (batch, mask) = pairs.batch();
        let passed = test(batch, &mask)?;
        for_each_row(&passed, |pair| {
            let row = pairs.sources[pair];
            some[row / 64] |= 1 << (row % 64);
        });
        pairs.clear();
        Ok(())
    };
    // an error may have left some
    pairs.clear();
    let mut open = rows_of(&lists.some);
    let (mut tested, mut next) = (0, 1);
    while !open.is_empty() {
        for row in &open {
            let all = lists.codes(*row);
            let end = all.end.min(all.start + tested + next);
            let mut codes = all.start + tested..end;
            while !codes.is_empty() && !has_row(&some, *row) {
                codes.start += pairs.add(batch, *row, codes.clone());
                if pairs.is_full() {
                    pass(pairs, &mut some)?;
                }
            }
        }
        if !pairs.is_empty() {
            pass(pairs, &mut some)?;
        }
        tested += next;
        next *= 2;
        open.retain(|row| lists.count[*row] > tested && !has_row(&some, *row));
    }
    Ok(some)
}
