//! Values of rows, collected page by page. A null repeats the value before, so that it takes no more bits than that.

use vectile_encodings::{IntegerPacker, VECTOR_LEN};

use crate::error::Fault;
use crate::levels::Levels;
use crate::values::Values;

/// Rows that are read together.
const BATCH: usize = VECTOR_LEN;

/// The form that values of rows are collected in.
#[derive(Debug)]
pub(crate) enum Sink {
    Integers(IntegerPacker),
    /// From the bits of each.
    Floats(Vec<f32>),
    Doubles(Vec<f64>),
    Codes(Vec<u32>),
}

impl Sink {
    fn push(&mut self, values: &[i64]) {
        match self {
            Self::Integers(packer) => packer.push(values),
            Self::Floats(floats) => {
                floats.extend(values.iter().map(|bits| f32::from_bits(*bits as u32)));
            }
            Self::Doubles(doubles) => {
                doubles.extend(values.iter().map(|bits| f64::from_bits(*bits as u64)));
            }
            Self::Codes(codes) => codes.extend(values.iter().map(|code| *code as u32)),
        }
    }
}

/// Collects the values of rows.
pub(crate) struct RowValues {
    sink: Sink,
    /// The last value; `None` before the first one.
    last: Option<i64>,
    /// Nulls before the first value.
    leading: usize,
    rows: [i64; BATCH],
    /// The last value, then those of a batch.
    values: [i64; BATCH + 1],
}

impl RowValues {
    pub(crate) fn new(sink: Sink) -> Self {
        Self {
            sink,
            last: None,
            leading: 0,
            rows: [0; BATCH],
            values: [0; BATCH + 1],
        }
    }

    /// Appends `rows` rows, which all have values.
    ///
    /// # Errors
    ///
    /// Those of [`Values::read`].
    pub(crate) fn append(&mut self, mut rows: usize, values: &mut Values) -> Result<(), Fault> {
        while rows > 0 {
            let now = rows.min(BATCH);
            let batch = self.rows.get_mut(..now).unwrap_or_default();
            values.read(batch)?;
            if let Some(leading) = self.last.is_none().then_some(self.leading) {
                push_repeated(&mut self.sink, batch.first().copied(), leading);
            }
            self.last = batch.last().copied();
            self.sink.push(batch);
            rows -= now;
        }
        Ok(())
    }

    /// Appends the last `rows` rows of `levels`.
    ///
    /// # Errors
    ///
    /// Those of [`Values::read`].
    pub(crate) fn append_with_nulls(
        &mut self,
        levels: &Levels,
        rows: usize,
        values: &mut Values,
    ) -> Result<(), Fault> {
        let end = levels.rows();
        let mut start = end.saturating_sub(rows);
        while start < end {
            let now = BATCH.min(end - start);
            let words = levels.words(start, now).iter_padded();
            let valid: u32 = words.map(u64::count_ones).sum();
            let (before, dense) = self.values.split_at_mut(1);
            let dense = dense.get_mut(..valid as usize).unwrap_or_default();
            values.read(dense)?;
            start += now;
            if self.last.is_none() {
                push_repeated(&mut self.sink, dense.first().copied(), self.leading);
                if dense.is_empty() {
                    self.leading += now;
                    continue;
                }
                self.last = dense.first().copied();
            }
            before.fill(self.last.unwrap_or_default());
            self.last = dense.last().copied().or(self.last);
            let batch = self.rows.get_mut(..now).unwrap_or_default();
            let words = levels.words(start - now, now).iter_padded();
            spread(&self.values, words, batch);
            self.sink.push(batch);
        }
        Ok(())
    }

    /// All values.
    pub(crate) fn finish(mut self) -> Sink {
        if self.last.is_none() {
            push_repeated(&mut self.sink, Some(0), self.leading);
        }
        self.sink
    }
}

/// Pushes a value, if there is one, `count` times.
fn push_repeated(sink: &mut Sink, value: Option<i64>, mut count: usize) {
    let Some(value) = value else {
        return;
    };
    while count > 0 {
        let now = count.min(BATCH);
        sink.push([value; BATCH].get(..now).unwrap_or_default());
        count -= now;
    }
}

/// The value of each row: `values` has the one before, then one for each bit of `valid` that is set.
fn spread(values: &[i64; BATCH + 1], valid: impl Iterator<Item = u64>, rows: &mut [i64]) {
    let mut at = 0;
    for (rows, word) in rows.chunks_mut(64).zip(valid) {
        for (bit, row) in rows.iter_mut().enumerate() {
            at += (word >> bit & 1) as usize;
            *row = values.get(at).copied().unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plain::Form;

    #[test]
    fn nulls_repeat_the_value_before_or_the_first_one() {
        let bytes: Vec<u8> = (1..10i64).flat_map(i64::to_le_bytes).collect();
        let mut values = Values::Plain(Form::I64, &bytes);
        let mut rows = RowValues::new(Sink::Codes(vec![]));
        let mut levels = Levels::new(10);
        let mut append = |bits: &[u8], count, expected: usize| {
            let level = [&[3][..], bits].concat();
            assert_eq!(levels.append(&level, count), Ok(expected));
            rows.append_with_nulls(&levels, count, &mut values).unwrap();
        };
        append(&[0], 2, 0);
        append(&[0b0110_1100], 8, 4);
        append(&[0], 3, 0);
        append(&[1], 2, 1);
        rows.append(2, &mut values).unwrap();
        assert!(rows.append(3, &mut values).is_err());
        let Sink::Codes(codes) = rows.finish() else {
            panic!("other values");
        };
        let expected = [[1; 4].as_slice(), &[1, 2, 2, 3, 4, 4, 4, 4, 4, 5, 5, 6, 7]].concat();
        assert_eq!(codes, expected);
    }

    #[test]
    fn rows_without_values_are_zeros() {
        let mut rows = RowValues::new(Sink::Doubles(vec![]));
        let mut levels = Levels::new(3000);
        levels.append(&[0xF0, 0x2E, 0], 3000).unwrap();
        let mut values = Values::Plain(Form::I64, &[]);
        rows.append_with_nulls(&levels, 3000, &mut values).unwrap();
        assert!(matches!(rows.finish(), Sink::Doubles(values) if values == [0.0; 3000]));
    }
}
