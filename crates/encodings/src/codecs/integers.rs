//! Columns whose values are integers, or have an order-preserving integer: numbers, booleans,
//! dates, times, decimals, and floats by their total order.
//!
//! ```text
//! header   i128 reference: the smallest value
//! then     the offsets value - reference as an integer sequence; null slots repeat a neighbour
//! ```

use arrow::array::{Array, ArrayRef, BooleanArray};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::{DataType, i256};

use crate::VECTOR_LEN;
use crate::class::{self, Class, Native, Wide, match_class};
use crate::codecs::layout;
use crate::codecs::sequence::SequenceView;
use crate::codecs::sequence::{Scratch, Sequence};
use crate::error::Result;
use crate::masks::Mask;
use crate::selection::Selection;
use crate::simd::dispatched;
use crate::validity::Bits;
use crate::wire::ChunkReader;

/// The offsets of a column and what they are relative to.
pub(crate) struct Offsets {
    pub reference: i128,
    pub values: Vec<u64>,
}

/// The offsets of `array`; `None` if its type has none or its range exceeds 64 bits.
pub(crate) fn offsets(array: &dyn Array) -> Option<Offsets> {
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

/// A parsed column of integers.
#[derive(Clone, Debug)]
pub(crate) struct Integers {
    reference: i128,
    pub ints: Sequence,
}

impl Integers {
    pub fn parse(reader: &mut ChunkReader, len: usize) -> Result<Self> {
        Ok(Self {
            reference: reader.i128()?,
            ints: Sequence::parse(reader, len)?,
        })
    }

    pub fn layout(&self) -> layout::Values<'_> {
        layout::Values::Integers {
            reference: self.reference,
            offsets: SequenceView::new(&self.ints),
        }
    }

    /// The selected values as an array of `data_type`, of class `class`.
    pub fn select(
        &self,
        data_type: &DataType,
        class: Class,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let len = selection.count();
        if let DataType::Decimal256(_, _) = data_type {
            let values: Vec<i256> = self
                .collect::<i128>(selection)?
                .into_iter()
                .map(i256::from_i128)
                .collect();
            return class::fixed_width_array(data_type, len, Buffer::from_vec(values), nulls);
        }
        match_class!(class,
        bool => {
            let values = self.select_bits(selection)?;
            Ok(std::sync::Arc::new(BooleanArray::new(values, nulls)))
        },
        N => {
            let values = self.collect::<N>(selection)?;
            class::fixed_width_array(data_type, len, Buffer::from_vec(values), nulls)
        })
    }

    fn collect<N: Native>(&self, selection: &Selection) -> Result<Vec<N>> {
        let reference = N::Word::narrow(self.reference);
        let mut out: Vec<N::Word> = Vec::with_capacity(selection.count());
        let mut scratch = Scratch::default();
        for selected in selection.vectors() {
            self.ints
                .select(&selected, reference, &mut scratch, &mut out)?;
        }
        Ok(out.into_iter().map(N::from_word).collect())
    }

    fn select_bits(&self, selection: &Selection) -> Result<arrow::buffer::BooleanBuffer> {
        let one = 1i128.saturating_sub(self.reference).clamp(0, 2) as u64;
        let mut bits = Bits::with_capacity(selection.count());
        let mut set = [0; VECTOR_LEN / 64];
        for selected in selection.vectors() {
            self.ints.in_range(selected.vector, one, one, &mut set)?;
            if selected.is_full() {
                for (i, word) in set.iter().enumerate() {
                    bits.append(*word, selected.rows.saturating_sub(i * 64).min(64));
                }
            } else {
                selected.for_each(|row| bits.append(set[row / 64] >> (row % 64), 1));
            }
        }
        Ok(bits.finish())
    }

    /// The range of offsets that a range of words is; `None` if no stored value can be in it.
    fn offset_range(&self, low: i128, high: i128) -> Option<(u64, u64)> {
        let low = low.saturating_sub(self.reference).max(0);
        let high = high
            .saturating_sub(self.reference)
            .min(i128::from(u64::MAX));
        (low <= high).then_some((low as u64, high as u64))
    }

    /// Which rows of a vector hold a word in `low..=high`.
    pub fn in_range(&self, vector: usize, low: i128, high: i128, out: &mut Mask) -> Result<()> {
        match self.offset_range(low, high) {
            Some((low, high)) => self.ints.in_range(vector, low, high, out),
            None => {
                out.fill(0);
                Ok(())
            }
        }
    }

    /// Keeps the selected rows whose word is one of `words`, ascending.
    pub fn filter_in(
        &self,
        words: &[i128],
        negated: bool,
        selection: &mut Selection,
    ) -> Result<()> {
        let offsets: Vec<u64> = words
            .iter()
            .filter_map(|word| self.offset_range(*word, *word).map(|(offset, _)| offset))
            .collect();
        self.ints.filter_in(&offsets, negated, selection)
    }
}
