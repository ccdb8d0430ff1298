//! Columns whose values are integers, or have an order-preserving integer: numbers, booleans,
//! dates, times, decimals, and floats by their total order.
//!
//! ```text
//! header   i128 reference: the smallest value
//! then     the offsets value - reference as an integer sequence; null slots repeat a neighbour
//! ```

use arrow::array::{ArrayRef, BooleanArray};
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::{DataType, i256};

use crate::VECTOR_LEN;
use crate::class::{self, Class, Native, Wide, match_class};
use crate::codecs::codec::Codec;
use crate::codecs::layout;
use crate::codecs::sequence::{self, Sequence};
use crate::codecs::sequence_codec::{Scratch, SpareRuns};
use crate::codecs::source::Source;
use crate::encoding::Encoding;
use crate::error::Result;
use crate::masks::Mask;
use crate::predicate::{self, Predicate};
use crate::selection::Selection;
use crate::validity::Bits;
use crate::wire::{ChunkReader, ChunkWriter};

/// Appends the source's offsets in an encoding of sequences; `false` if it has none.
pub(crate) fn encode(encoding: Encoding, source: &Source, out: &mut ChunkWriter) -> bool {
    let Some(offsets) = &source.offsets else {
        return false;
    };
    out.i128(offsets.reference);
    out.append(sequence::encode_as(encoding, &offsets.values, 0));
    true
}

/// A parsed column of integers.
#[derive(Clone, Debug)]
pub(crate) struct Integers {
    class: Class,
    reference: i128,
    offsets: Sequence,
}

impl Codec for Integers {
    fn encoding(&self) -> Encoding {
        self.offsets.encoding()
    }

    fn describe(&self) -> String {
        self.offsets.describe()
    }

    fn layout(&self) -> layout::Values<'_> {
        layout::Values::Integers {
            reference: self.reference,
            offsets: &self.offsets,
        }
    }

    fn select(
        &self,
        data_type: &DataType,
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
        match_class!(self.class,
        bool => {
            let values = self.select_bits(selection)?;
            Ok(std::sync::Arc::new(BooleanArray::new(values, nulls)))
        },
        N => {
            let values = self.collect::<N>(selection)?;
            class::fixed_width_array(data_type, len, Buffer::from_vec(values), nulls)
        })
    }

    fn filter(
        &self,
        _: &DataType,
        predicate: &Predicate,
        selection: &mut Selection,
    ) -> Result<bool> {
        match predicate {
            Predicate::Range { low, high, negated } => {
                let mut runs = None;
                let in_range = |vector, low, high, out: &mut _| {
                    self.in_range(vector, low, high, &mut runs, out)
                };
                predicate::filter_range(low, high, *negated, selection, in_range)?;
            }
            Predicate::In { values, negated } => {
                let mut words = predicate::value_words(values)?;
                words.sort_unstable();
                words.dedup();
                self.filter_in(&words, *negated, selection)?;
            }
            Predicate::IsNull | Predicate::IsNotNull => return Ok(false),
        }
        Ok(true)
    }
}

impl Integers {
    /// Values stored as those of `class`: `reference + offset` each.
    pub fn new(class: Class, reference: i128, offsets: Sequence) -> Self {
        Self {
            class,
            reference,
            offsets,
        }
    }

    /// Parses values that are stored as those of `class`.
    pub fn parse(reader: &mut ChunkReader, class: Class, len: usize) -> Result<Self> {
        Ok(Self {
            class,
            reference: reader.i128()?,
            offsets: Sequence::parse(reader, len)?,
        })
    }

    fn collect<N: Native>(&self, selection: &Selection) -> Result<Vec<N>> {
        let reference = N::Word::narrow(self.reference);
        let mut out: Vec<N::Word> = Vec::with_capacity(selection.count());
        let mut scratch = Scratch::default();
        for selected in selection.vectors() {
            self.offsets
                .select(&selected, reference, &mut scratch, &mut out)?;
        }
        Ok(out.into_iter().map(N::from_word).collect())
    }

    fn select_bits(&self, selection: &Selection) -> Result<arrow::buffer::BooleanBuffer> {
        let one = 1i128.saturating_sub(self.reference).clamp(0, 2) as u64;
        let mut bits = Bits::with_capacity(selection.count());
        let (mut runs, mut set) = (None, [0; VECTOR_LEN / 64]);
        for selected in selection.vectors() {
            self.offsets
                .in_range(selected.vector, one, one, &mut runs, &mut set)?;
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

    /// The offsets that correspond to a range of words; `None` if no stored value can be in it.
    fn offset_range(&self, low: i128, high: i128) -> Option<(u64, u64)> {
        let low = low.saturating_sub(self.reference).max(0);
        let high = high
            .saturating_sub(self.reference)
            .min(i128::from(u64::MAX));
        (low <= high).then_some((low as u64, high as u64))
    }

    /// Sets a bit per row of a vector whose word is in `low..=high`; `runs` as for
    /// [`Sequence::in_range`].
    fn in_range(
        &self,
        vector: usize,
        low: i128,
        high: i128,
        runs: &mut SpareRuns<u64>,
        out: &mut Mask,
    ) -> Result<()> {
        match self.offset_range(low, high) {
            Some((low, high)) => self.offsets.in_range(vector, low, high, runs, out),
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
        self.offsets.filter_in(&offsets, negated, selection)
    }
}
