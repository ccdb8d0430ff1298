//! Packs several integers into one join key.
//!
//! Each part is a digit: its distance from the smallest value in the dimension. Values outside the dimension's range
//! have no digit, so distinct keys never get the same number. Text is numbered first, by a lookup of its own.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::{cast, concat};
use arrow::datatypes::{DataType, Decimal32Type, Decimal64Type, Decimal128Type};
use datafusion::common::{Result, internal_datafusion_err};
use vectile_gpu::Error;
use vectile_pipeline::{Arithmetic, Comparison, Expr, KeyTable, Literal, Type, parallel};

use super::dense_ids::Numbered;
use crate::error;
use crate::text::is_text;

/// Layout of a composite key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CompositeKey {
    digits: Vec<Digit>,
}

/// Range of one part of the key.
#[derive(Clone, Debug, PartialEq)]
struct Digit {
    first: i64,
    last: i64,
    /// Number of each text, if the part is text.
    texts: Option<Arc<KeyTable>>,
}

impl Digit {
    /// Number of values from the first to the last.
    fn count(&self) -> i128 {
        i128::from(self.last) - i128::from(self.first) + 1
    }
}

impl CompositeKey {
    /// The layout for keys without nulls, and the packed keys in the chunks that they come in. Each part has as many
    /// chunks, of as many rows. `threads` threads share them.
    ///
    /// # Errors
    ///
    /// Returns [`Error::Unsupported`] if the parts need more than 63 bits together.
    pub(crate) fn of(parts: &[Vec<ArrayRef>], threads: usize) -> Result<(Self, Vec<ArrayRef>)> {
        let parts = parts.iter().map(|chunks| match chunks.first() {
            Some(first) if is_text(first.data_type()) => numbers(chunks),
            _ => integers_of(chunks, threads),
        });
        let parts = parts.collect::<Result<Vec<Part>>>()?;
        let digits = parts.iter().map(|part| {
            let (first, last) = part.bounds.unwrap_or((0, 0));
            let texts = part.texts.clone();
            Digit { first, last, texts }
        });
        let packing = Self {
            digits: digits.collect(),
        };
        let mut counts = packing.digits.iter().map(|digit| digit.count());
        let most = counts.try_fold(1i128, |product, count| product.checked_mul(count));
        if most.is_none_or(|most| most > i64::MAX.into()) {
            let reason = Error::Unsupported("keys of more than 63 bits together".into());
            return Err(error::gpu(reason));
        }
        let chunks = parts.first().map_or(0, |part| part.chunks.len());
        let packed = parallel::map(threads, (0..chunks).collect(), |chunk| {
            let parts = parts.iter().filter_map(|part| part.chunks.get(chunk));
            packing.packed(parts)
        });
        Ok((packing, packed))
    }

    /// The packed keys of a chunk.
    fn packed<'a>(&self, parts: impl Iterator<Item = &'a Int64Array>) -> ArrayRef {
        let mut packed: Vec<i64> = Vec::new();
        for (number, (digit, part)) in self.digits.iter().zip(parts).enumerate() {
            let own = part.values().iter().map(|value| value - digit.first);
            if number == 0 {
                packed.extend(own);
                continue;
            }
            // does not overflow: the product of all counts was checked
            let count = digit.count() as i64;
            for (packed, own) in packed.iter_mut().zip(own) {
                *packed = *packed * count + own;
            }
        }
        Arc::new(Int64Array::from(packed))
    }

    /// The layout for parts within these bounds, as the device has packed them.
    pub(crate) fn of_bounds(bounds: &[(i64, i64)]) -> Self {
        let digits = bounds.iter().map(|&(first, last)| Digit {
            first,
            last,
            texts: None,
        });
        Self {
            digits: digits.collect(),
        }
    }

    /// The text parts by index, with the number of each text.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (usize, &Arc<KeyTable>)> {
        let digits = self.digits.iter().enumerate();
        digits.filter_map(|(part, digit)| Some((part, digit.texts.as_ref()?)))
    }

    /// The packed key of a row of the fact table, from its integers and numbers of text; null if one is null or outside
    /// the dimension's range.
    pub(crate) fn expr(&self, keys: Vec<Expr>) -> Result<Expr> {
        if keys.len() != self.digits.len() {
            return Err(internal_datafusion_err!("a key of {} parts", keys.len()));
        }
        let number = |value: i128| Expr::Literal(Literal::Int(value, Type::I64));
        let mut within = Vec::new();
        let mut packed: Option<Expr> = None;
        for (digit, key) in self.digits.iter().zip(keys) {
            let key = Expr::cast(key, Type::I64);
            for (comparison, end) in [
                (Comparison::GreaterOrEqual, digit.first),
                (Comparison::LessOrEqual, digit.last),
            ] {
                let end = number(end.into());
                within.push(Expr::compare(comparison, key.clone(), end));
            }
            let first = number(digit.first.into());
            let own = Expr::arithmetic(Arithmetic::Subtract, key, first);
            packed = Some(match packed {
                None => own,
                Some(before) => {
                    let count = number(digit.count());
                    let before = Expr::arithmetic(Arithmetic::Multiply, before, count);
                    Expr::arithmetic(Arithmetic::Add, before, own)
                }
            });
        }
        let packed = packed.ok_or_else(|| internal_datafusion_err!("a key without parts"))?;
        Ok(Expr::case(vec![(Expr::and(within), packed)], None))
    }
}

/// A part of keys as integers.
struct Part {
    chunks: Vec<Int64Array>,
    /// The smallest and the largest integer; `None` if there are no rows.
    bounds: Option<(i64, i64)>,
    /// The number of each text, if the part is text.
    texts: Option<Arc<KeyTable>>,
}

/// Numbers texts.
fn numbers(chunks: &[ArrayRef]) -> Result<Part> {
    let arrays: Vec<&dyn Array> = chunks.iter().map(AsRef::as_ref).collect();
    let numbered = Numbered::of(&concat(&arrays)?)?;
    let mut first = 0;
    let chunks = chunks.iter().map(|chunk| {
        let codes = numbered.codes.iter().skip(first).take(chunk.len());
        first += chunk.len();
        Int64Array::from_iter_values(codes.map(|&number| number.into()))
    });
    Ok(Part {
        chunks: chunks.collect(),
        bounds: numbered.count.checked_sub(1).map(|last| (0, last.into())),
        texts: Some(Arc::new(numbered.table()?)),
    })
}

/// Converts integers, dates, times or decimals to 64 bits, and finds their bounds.
fn integers_of(chunks: &[ArrayRef], threads: usize) -> Result<Part> {
    let converted = parallel::map(threads, chunks.iter().collect(), |chunk| {
        let values = integers(chunk)?;
        let ends = (i64::MAX, i64::MIN);
        let bounds = values
            .values()
            .iter()
            .fold(ends, |(least, greatest), value| {
                (least.min(*value), greatest.max(*value))
            });
        Ok((values, bounds))
    });
    let converted = converted.into_iter().collect::<Result<Vec<_>>>()?;
    let (chunks, bounds): (Vec<Int64Array>, Vec<_>) = converted.into_iter().unzip();
    let least = bounds.iter().map(|(least, _)| *least).min();
    let greatest = bounds.iter().map(|(_, greatest)| *greatest).max();
    let bounds = least.zip(greatest);
    Ok(Part {
        chunks,
        // without rows, they are the wrong way round
        bounds: bounds.filter(|(least, greatest)| least <= greatest),
        texts: None,
    })
}

/// Converts integers, dates, times or decimals to 64 bits.
fn integers(key: &ArrayRef) -> Result<Int64Array> {
    Ok(match key.data_type() {
        DataType::Decimal32(..) => key.as_primitive::<Decimal32Type>().unary(i64::from),
        DataType::Decimal64(..) => key.as_primitive::<Decimal64Type>().unary(|value| value),
        DataType::Decimal128(..) => {
            let fits = |value| {
                let reason = || Error::Unsupported("keys of more than 64 bits".into());
                i64::try_from(value).map_err(|_| error::gpu(reason()))
            };
            key.as_primitive::<Decimal128Type>().try_unary(fits)?
        }
        _ => cast(key, &DataType::Int64)?.as_primitive().clone(),
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::{Date32Array, Decimal128Array, Int32Array};
    use arrow::datatypes::Int64Type;

    use super::*;

    #[test]
    fn distinct_keys_have_distinct_numbers() {
        let numbers: ArrayRef = Arc::new(Int32Array::from(vec![-3, 7, 7, -3]));
        let days: ArrayRef = Arc::new(Date32Array::from(vec![10, 10, 12, 12]));
        let prices = Decimal128Array::from(vec![5, -5, 5, 0]).with_precision_and_scale(15, 2);
        let prices: ArrayRef = Arc::new(prices.unwrap());
        // in two chunks, the second of one row
        let parts = [numbers, days, prices].map(|part| vec![part.slice(0, 3), part.slice(3, 1)]);
        let (packing, packed) = CompositeKey::of(&parts, 2).unwrap();
        let counts: Vec<i128> = packing.digits.iter().map(|digit| digit.count()).collect();
        assert_eq!(counts, [11, 3, 11]);
        let packed = packed.iter().flat_map(|chunk| {
            let chunk = chunk.as_primitive::<Int64Type>();
            chunk.values().to_vec()
        });
        let packed: Vec<i64> = packed.collect();
        assert_eq!(packed, [10, 10 * 33, 10 * 33 + 2 * 11 + 10, 2 * 11 + 5]);
    }

    #[test]
    fn keys_beyond_63_bits_are_unsupported() {
        let ends: ArrayRef = Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX]));
        let error = CompositeKey::of(&[vec![ends]], 1).unwrap_err().to_string();
        assert!(error.contains("more than 63 bits"), "{error}");
        let halves: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(vec![0, 1 << 40]))];
        assert!(CompositeKey::of(std::slice::from_ref(&halves), 1).is_ok());
        assert!(CompositeKey::of(&[halves.clone(), halves], 1).is_err());
    }

    #[test]
    fn keys_may_be_empty() {
        let none: ArrayRef = Arc::new(Int64Array::from(Vec::<i64>::new()));
        let (packing, packed) =
            CompositeKey::of(&[vec![Arc::clone(&none)], vec![none]], 1).unwrap();
        assert_eq!((packing.digits.len(), packed[0].len()), (2, 0));
    }
}
