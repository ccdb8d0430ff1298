//! Integers, and values that have an order-preserving integer, as offsets from the smallest one.

use arrow::array::Array;
use arrow::buffer::NullBuffer;
use arrow::datatypes::{DataType, i256};

use crate::class::{self, Class, Native, Wide, match_class};
use crate::float::Float;
use crate::simd::dispatched;

/// The offsets of a column and their reference.
pub(crate) struct Offsets {
    pub reference: i128,
    pub values: Vec<u64>,
}

impl Offsets {
    /// The original floats.
    pub fn floats<F: Float>(&self) -> Vec<F> {
        let float = |offset: &u64| (self.reference as i64).wrapping_add(*offset as i64);
        let floats = self.values.iter().map(|offset| F::from_key(float(offset)));
        floats.collect()
    }
}

/// The offsets of `array`; `None` if its type has none or its range exceeds 64 bits.
pub(crate) fn of(array: &dyn Array) -> Option<Offsets> {
    let data = array.to_data();
    if let DataType::Decimal256(_, _) = array.data_type() {
        let wide = class::natives::<i256>(&data);
        let values = (0..wide.len())
            .map(|i| {
                if array.is_valid(i) {
                    wide[i].to_i128()
                } else {
                    Some(0)
                }
            })
            .collect::<Option<Vec<i128>>>()?;
        return offsets_of(&values, data.nulls());
    }
    match_class!(Class::of(array.data_type())?,
        bool => {
            let bits = class::bits(array);
            let values: Vec<u8> = bits.iter().map(u8::from).collect();
            offsets_of(&values, data.nulls())
        },
        N => offsets_of(class::natives::<N>(&data), data.nulls()))
}

fn offsets_of<N: Native>(values: &[N], nulls: Option<&NullBuffer>) -> Option<Offsets> {
    let (min, max) = match nulls {
        None => extremes(values)?,
        Some(nulls) => {
            let valid = || nulls.valid_indices().map(|row| values[row].to_word());
            (valid().min()?, valid().max()?)
        }
    };
    let range = max.widen().checked_sub(min.widen())?;
    if range > i128::from(u64::MAX) {
        return None;
    }
    let mut offsets = Vec::with_capacity(values.len());
    match nulls {
        None => append_distances(values, min, &mut offsets),
        Some(nulls) => {
            let mut last = values[nulls.valid_indices().next()?].to_word();
            offsets.extend(values.iter().enumerate().map(|(row, value)| {
                if nulls.is_valid(row) {
                    last = value.to_word();
                }
                last.distance(min)
            }));
        }
    }
    Some(Offsets {
        reference: min.widen(),
        values: offsets,
    })
}

dispatched! {
    /// The smallest and the largest of `values`; `None` if there are none.
    pub(crate) fn extremes<N: Native>(values: &[N]) -> Option<(N::Word, N::Word)> {
        let first = values.first()?.to_word();
        Some(values.iter().fold((first, first), |(min, max), value| {
            let word = value.to_word();
            (min.min(word), max.max(word))
        }))
    }
}

dispatched! {
    fn append_distances<N: Native>(values: &[N], min: N::Word, out: &mut Vec<u64>) {
        out.extend(values.iter().map(|value| value.to_word().distance(min)));
    }
}
