//! Reads the vectors of an encoded column.

use std::cell::Cell;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, UInt32Array};
use arrow::datatypes::DataType;
use vectile_encodings::layout::{Nulls, Rle, Sequence, SequenceReader, Values as Stored};
use vectile_encodings::{Column, Selection, VECTOR_LEN};
use vectile_pipeline::{Bounds, Domain, Error, Result, Type};

use crate::batch::{Batch, by_vector};
use crate::gather::replace;
use crate::vector::{ALL, Kind, Mask, Values, Vector};

/// Runs are worth a look if they have this many rows on average.
const ROWS_A_RUN: usize = 3;

/// A column of a row group, and how its vectors are read.
pub(crate) struct Reader<'a> {
    column: &'a Column,
    /// `None` if no row may be null.
    nulls: Option<Nulls<'a>>,
    /// True if rows are the runs of the column.
    is_of_runs: bool,
    /// `None` for values without a machine type, whose codes may be read if there is a dictionary.
    of: Option<Type>,
    /// `None` until they are needed.
    bounds: Cell<Option<Bounds>>,
    /// True if no closer bounds can be found.
    is_exact: Cell<bool>,
    source: Source<'a>,
}

/// Where values come from.
enum Source<'a> {
    /// `reference + entry` of a sequence.
    Integers {
        reference: i64,
        offsets: SequenceReader<'a>,
    },
    /// Entries of a dictionary of integers.
    Entries {
        codes: SequenceReader<'a>,
        entries: Arc<[i64]>,
    },
    /// Decoded by the column.
    Decoded,
}

impl<'a> Reader<'a> {
    /// Inspects `column`.
    pub fn new(column: &'a Column) -> Result<Self> {
        let layout = column.layout();
        let of = Type::of(column.data_type());
        let is_integer = of.is_some_and(|of| !of.is_float() && of != Type::Bool);
        let (mut source, mut bounds) = (Source::Decoded, None);
        match layout.values {
            _ if !is_integer => {}
            Stored::Integers { reference, offsets } => match i64::try_from(reference) {
                Ok(reference) => {
                    let offsets = SequenceReader::new(offsets, reference);
                    source = Source::Integers { reference, offsets };
                }
                Err(_) => {
                    let upper = column.largest_offset()?;
                    bounds = Some(integers_up_to(reference, upper));
                }
            },
            Stored::Dictionary { entries, codes } => {
                if let Some(entries) = integers(entries)? {
                    let first = entries.first().copied().unwrap_or_default();
                    let last = entries.last().copied().unwrap_or_default();
                    bounds = Some(Bounds(first.into(), last.into()));
                    let codes = SequenceReader::new(codes, 0);
                    let entries = entries.into();
                    source = Source::Entries { codes, entries };
                }
            }
            Stored::Constant(value) => {
                if let Some([value]) = integers(value)?.as_deref() {
                    bounds = Some(Bounds(i128::from(*value), i128::from(*value)));
                }
            }
            Stored::AllNull => bounds = Some(Bounds(0, 0)),
            _ => {}
        }
        let this = Self {
            column,
            nulls: Some(layout.validity).filter(Nulls::any),
            is_of_runs: false,
            of,
            bounds: Cell::new(None),
            is_exact: Cell::new(bounds.is_some()),
            source,
        };
        if let (Some(of), Some(bounds)) = (of, bounds) {
            this.bounds.set(Some(trusted(bounds, of)));
        }
        Ok(this)
    }

    /// The runs of the column, if there are some and they are not many.
    pub fn runs(&self) -> Option<&'a Rle<Sequence>> {
        let sequence = match (self.column.layout().values, &self.source) {
            (Stored::Integers { offsets, .. }, Source::Integers { .. }) => offsets,
            (Stored::Dictionary { codes, .. }, Source::Entries { .. }) => codes,
            (Stored::Dictionary { codes, .. }, _) if self.is_text() => codes,
            _ => return None,
        };
        match sequence {
            Sequence::Rle(runs) if runs.num_runs() * ROWS_A_RUN <= self.column.len() => Some(runs),
            _ => None,
        }
    }

    /// A reader of the values of `runs`, which are those of the column: each is a row. None of them is null, as runs do
    /// not say which rows are.
    pub fn of_runs(&self, runs: &'a Rle<Sequence>) -> Self {
        let values = runs.run_values();
        Self {
            column: self.column,
            nulls: None,
            is_of_runs: true,
            of: self.of,
            bounds: self.bounds.clone(),
            is_exact: self.is_exact.clone(),
            source: match &self.source {
                Source::Integers { reference, .. } => Source::Integers {
                    reference: *reference,
                    offsets: SequenceReader::new(values, *reference),
                },
                Source::Entries { entries, .. } => Source::Entries {
                    codes: SequenceReader::new(values, 0),
                    entries: Arc::clone(entries),
                },
                Source::Decoded => Source::Decoded,
            },
        }
    }

    /// Makes the bounds of the [`domain`](Self::domain) exact. All vectors may have to be unpacked for that.
    ///
    /// # Errors
    ///
    /// Errors of decoding.
    pub fn find_bounds(&self) -> Result<()> {
        if let (Some(of), false, Source::Integers { reference, .. }) =
            (self.of, self.is_exact.get(), &self.source)
        {
            let upper = self.column.largest_offset()?;
            let bounds = integers_up_to((*reference).into(), upper);
            self.bounds.set(Some(trusted(bounds, of)));
            self.is_exact.set(true);
        }
        Ok(())
    }

    /// Type and bounds of the values.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] for values without a machine type; errors of decoding.
    pub fn domain(&self) -> Result<Domain> {
        let data_type = self.column.data_type();
        let unsupported = || Error::Unsupported(format!("values of type {data_type}"));
        let of = self.of.ok_or_else(unsupported)?;
        let bounds = match (self.bounds.get(), &self.source) {
            (Some(bounds), _) => bounds,
            (None, Source::Integers { reference, .. }) => {
                let upper = self.column.offset_bound()?;
                let bounds = integers_up_to((*reference).into(), upper);
                let bounds = trusted(bounds, of);
                self.bounds.set(Some(bounds));
                bounds
            }
            (None, _) => Bounds::of(of),
        };
        Ok(Domain { of, bounds })
    }

    /// True if some row may be null.
    pub fn is_nullable(&self) -> bool {
        self.nulls.is_some()
    }

    /// The valid rows of a batch; `None` if all are.
    pub fn valid(&self, batch: Batch<'_>) -> Option<Mask> {
        let nulls = self.nulls.as_ref()?;
        let of_vector = |vector| nulls.mask(vector);
        match batch {
            Batch::Vector(vector) => of_vector(vector),
            _ => Some(batch.mask(|vector| of_vector(vector).unwrap_or(ALL))),
        }
    }

    /// Reads a batch into `out`, which is of the kind of the [`domain`](Self::domain).
    pub fn read(&self, batch: Batch<'_>, out: &mut Vector) -> Result<()> {
        out.valid = self.valid(batch);
        match (&self.source, &mut out.values) {
            (Source::Integers { offsets, .. }, Values::Int(out)) => batch.integers(offsets, out)?,
            (Source::Entries { codes, entries }, Values::Int(out)) => {
                batch.integers(codes, out)?;
                // codes of nulls, and those beyond the end, are arbitrary
                replace(entries, 0, out);
            }
            (_, out) => load(&self.decoded(batch)?, out)?,
        }
        Ok(())
    }

    /// The machine type of integers; `None` for other values.
    pub fn integer_type(&self) -> Option<Type> {
        self.of.filter(|of| !of.is_float() && *of != Type::Bool)
    }

    /// True for values without a machine type.
    pub fn is_text(&self) -> bool {
        self.of.is_none()
    }

    /// The values of a batch.
    pub fn decoded(&self, batch: Batch<'_>) -> Result<ArrayRef> {
        if self.is_of_runs {
            return Err(Error::Unsupported("runs that are not integers".into()));
        }
        let rows = match batch {
            Batch::Vector(vector) => {
                let start = vector * VECTOR_LEN;
                let end = (start + VECTOR_LEN).min(self.column.len());
                return Ok(self.column.decode(start..end)?);
            }
            Batch::Rows(rows, _) => rows,
        };
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else {
            return Ok(self.column.decode(0..0)?);
        };
        let first = *first as usize / VECTOR_LEN;
        let mut selection = Selection::none(first, *last as usize + 1 - first * VECTOR_LEN);
        for rows in by_vector(rows) {
            let mut mask = [0; VECTOR_LEN / 64];
            for row in rows {
                let row = *row as usize % VECTOR_LEN;
                mask[row / 64] |= 1 << (row % 64);
            }
            selection.or_mask(rows[0] as usize / VECTOR_LEN - first, &mask);
        }
        let distinct = self.column.select(&selection)?;
        if distinct.len() == rows.len() {
            return Ok(distinct);
        }
        let mut index = 0;
        let repeats = rows.windows(2).map(|pair| {
            index += u32::from(pair[0] != pair[1]);
            index
        });
        let indices: UInt32Array = [0].into_iter().chain(repeats).collect();
        let repeated = arrow::compute::take(&distinct, &indices, None);
        Ok(repeated.map_err(vectile_encodings::Error::from)?)
    }

    /// The dictionary of the values, ascending and distinct, and the code of each row.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if there is none.
    pub fn dictionary(&self) -> Result<(ArrayRef, Option<SequenceReader<'a>>)> {
        match self.column.layout().values {
            Stored::Dictionary { entries, codes } => {
                let codes = match (codes, self.is_of_runs) {
                    (Sequence::Rle(runs), true) => runs.run_values(),
                    _ => codes,
                };
                Ok((entries.clone(), Some(SequenceReader::new(codes, 0))))
            }
            Stored::Constant(value) => Ok((value.clone(), None)),
            Stored::AllNull => {
                let entry = arrow::array::new_null_array(self.column.data_type(), 1);
                Ok((entry, None))
            }
            _ => {
                let encoding = self.column.describe();
                Err(Error::Unsupported(format!(
                    "groups of values in {encoding}"
                )))
            }
        }
    }
}

/// Bounds of `reference + entry` of entries up to one.
fn integers_up_to(reference: i128, upper: u64) -> Bounds {
    Bounds(reference, reference.saturating_add(upper.into()))
}

/// `bounds`, unless a damaged file has some that the type does not have.
fn trusted(bounds: Bounds, of: Type) -> Bounds {
    match bounds.within(Bounds::of(of)) {
        true => bounds,
        false => Bounds::of(of),
    }
}

/// The values of an array of integers that fit 64 bits; `None` if there are others.
fn integers(array: &ArrayRef) -> Result<Option<Vec<i64>>> {
    if array.null_count() > 0 || array.len() > 1 << 20 {
        return Ok(None);
    }
    let wide = matches!(
        array.data_type(),
        DataType::UInt64 | DataType::Decimal128(..)
    );
    let mut values = Vec::with_capacity(array.len());
    for start in (0..array.len()).step_by(VECTOR_LEN) {
        let part = array.slice(start, VECTOR_LEN.min(array.len() - start));
        if wide {
            let mut out = Values::Wide(Box::new([0; VECTOR_LEN]));
            load(&part, &mut out)?;
            let Values::Wide(wide) = &out else {
                return Ok(None);
            };
            for value in &wide[..part.len()] {
                match i64::try_from(*value) {
                    Ok(value) => values.push(value),
                    Err(_) => return Ok(None),
                }
            }
        } else {
            let mut out = Vector::new(Kind::Int).values;
            load(&part, &mut out)?;
            if let Values::Int(ints) = &out {
                values.extend_from_slice(&ints[..part.len()]);
            }
        }
    }
    Ok(Some(values))
}

/// Copies an array of at most a vector's values. Entries behind them stay as they are.
fn load(array: &ArrayRef, out: &mut Values) -> Result<()> {
    let data = array.to_data();
    let len = array.len();
    if len > VECTOR_LEN {
        return Err(Error::Internal(format!("a vector of {len} values")));
    }
    if let Values::Bool(mask) = out {
        let bits = array.as_boolean_opt().ok_or_else(|| mismatch(array))?;
        *mask = [0; VECTOR_LEN / 64];
        for row in bits.values().set_indices() {
            mask[row / 64] |= 1 << (row % 64);
        }
        return Ok(());
    }
    let of = Type::of(array.data_type()).ok_or_else(|| mismatch(array))?;
    macro_rules! copy {
        ($native:ty, $out:expr, $to:ty) => {{
            let values = data.buffer::<$native>(0).get(..len);
            let values = values.ok_or_else(|| mismatch(array))?;
            let out = $out.iter_mut().zip(values);
            out.for_each(|(out, value)| *out = *value as $to);
        }};
    }
    macro_rules! integers {
        ($out:expr, $to:ty) => {
            match of {
                Type::I8 => copy!(i8, $out, $to),
                Type::I16 => copy!(i16, $out, $to),
                Type::I32 => copy!(i32, $out, $to),
                Type::I64 => copy!(i64, $out, $to),
                Type::U8 => copy!(u8, $out, $to),
                Type::U16 => copy!(u16, $out, $to),
                Type::U32 => copy!(u32, $out, $to),
                Type::U64 => copy!(u64, $out, $to),
                Type::I128 => copy!(i128, $out, $to),
                _ => return Err(mismatch(array)),
            }
        };
    }
    match out {
        Values::Int(out) => integers!(out, i64),
        Values::Wide(out) => integers!(out, i128),
        Values::Float(out) => match of {
            Type::F32 => {
                let values = data.buffer::<f32>(0).get(..len);
                let values = values.ok_or_else(|| mismatch(array))?;
                let pairs = out.iter_mut().zip(values);
                pairs.for_each(|(out, value)| *out = widened(*value));
            }
            Type::F64 => copy!(f64, out, f64),
            _ => return Err(mismatch(array)),
        },
        Values::Bool(_) => return Err(mismatch(array)),
    }
    Ok(())
}

/// A float in double precision. A conversion would make NaNs quiet, which moves them in the total order.
pub(crate) fn widened(value: f32) -> f64 {
    let bits = u64::from(value.to_bits());
    match value.is_nan() {
        true => f64::from_bits((bits >> 31) << 63 | 0x7ff << 52 | (bits & 0x7f_ffff) << 29),
        false => value.into(),
    }
}

/// The float of single precision that was [`widened`].
pub(crate) fn narrowed(value: f64) -> f32 {
    let bits = value.to_bits();
    match value.is_nan() {
        true => {
            let bits = (bits >> 63) << 31 | 0xff << 23 | (bits >> 29) & 0x7f_ffff;
            f32::from_bits(bits as u32)
        }
        false => value as f32,
    }
}

fn mismatch(array: &ArrayRef) -> Error {
    Error::Internal(format!("values of type {}", array.data_type()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{Float64Array, Int64Array};
    use vectile_encodings::{EncodeOptions, encode};

    use super::*;

    fn columns() -> Vec<ArrayRef> {
        let rows = 3 * VECTOR_LEN + 77;
        let random = |row: usize| (row as i64).wrapping_mul(0x9e37_79b9_7f4a_7c15_u64 as i64);
        let integers = |of: &dyn Fn(usize) -> Option<i64>| -> ArrayRef {
            Arc::new(Int64Array::from_iter((0..rows).map(of)))
        };
        let floats = |of: &dyn Fn(usize) -> Option<f64>| -> ArrayRef {
            Arc::new(Float64Array::from_iter((0..rows).map(of)))
        };
        vec![
            integers(&|row| Some(random(row))),
            integers(&|row| Some(random(row) >> 40)),
            integers(&|row| (row % 7 > 0).then(|| random(row) >> 50)),
            // patches, runs, differences, few values, one
            integers(&|row| Some(random(row) >> if row % 300 == 5 { 20 } else { 55 })),
            integers(&|row| Some(random(row / 90) >> 30)),
            integers(&|row| Some(row as i64 * 1000 + (random(row) >> 60))),
            integers(&|row| Some(random(row % 5))),
            integers(&|_| Some(3)),
            integers(&|_| None),
            floats(&|row| Some((random(row) >> 50) as f64 / 100.0)),
            floats(&|row| (row % 3 > 0).then(|| f64::from_bits(random(row) as u64))),
        ]
    }

    /// Picked rows have the values that they have in their vectors, also if they repeat.
    #[test]
    fn picked_rows_are_those_of_vectors() {
        for array in columns() {
            let bytes = encode(&array, &EncodeOptions::default()).unwrap();
            let column = Column::parse(bytes.into(), array.data_type(), array.len()).unwrap();
            let reader = Reader::new(&column).unwrap();
            let mut vectors = Vec::new();
            for vector in 0..column.num_vectors() {
                let mut out = Vector::new(Kind::of(reader.domain().unwrap()));
                reader.read(Batch::Vector(vector), &mut out).unwrap();
                vectors.push(out);
            }
            let value = |vector: &Vector, row: usize| {
                let valid = vector.valid.unwrap_or(ALL);
                let is_valid = valid[row / 64] >> (row % 64) & 1 == 1;
                is_valid.then(|| match &vector.values {
                    Values::Int(values) => values[row],
                    Values::Float(values) => values[row].to_bits() as i64,
                    _ => unreachable!(),
                })
            };
            for (step, repeats) in [(1, 1), (5, 1), (5, 3), (300, 2), (2000, 1)] {
                let rows = (0..array.len() as u32).step_by(step);
                let rows = rows.flat_map(|row| std::iter::repeat_n(row, repeats));
                let rows: Vec<u32> = rows.collect();
                for rows in rows.chunks(VECTOR_LEN) {
                    let mut out = Vector::new(Kind::of(reader.domain().unwrap()));
                    reader.read(Batch::Rows(rows, &[]), &mut out).unwrap();
                    for (index, row) in rows.iter().enumerate() {
                        let (vector, row) =
                            (*row as usize / VECTOR_LEN, *row as usize % VECTOR_LEN);
                        let expected = value(&vectors[vector], row);
                        let context = column.describe();
                        assert_eq!(value(&out, index), expected, "{context}, row {row}");
                    }
                }
            }
            let before = reader.domain().unwrap().bounds;
            reader.find_bounds().unwrap();
            let after = reader.domain().unwrap().bounds;
            assert!(after.within(before));
        }
    }
}
