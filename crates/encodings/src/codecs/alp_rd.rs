//! `alp_rd`: floats with random digits, cut into a frequent left and a random right part. Loses to
//! `alp` on decimals.
//!
//! ```text
//! header   u8 bits of a right part: 48..=63 (f32: 16..=31)
//! buffer   u16 left parts of the dictionary, at most 8, the most frequent one first
//! then     the dictionary index of each value's left part, see `sequence`
//! then     the right parts, see `residuals`
//! then     the exceptions: left parts that are not in the dictionary, see `patches`
//! ```
//!
//! A value is `left << right_width | right`. The dictionary index of an exception is 0.
//!
//! Bits per value: `right_width`, at most 3 for the index, 32 for each exception.

use arrow::array::ArrayRef;
use arrow::buffer::{Buffer, NullBuffer};
use arrow::datatypes::DataType;

use crate::VECTOR_LEN;
use crate::class;
use crate::codecs::codec::Codec;
use crate::codecs::layout;
use crate::codecs::sequence::{self, Sequence};
use crate::codecs::source::Source;
use crate::encoding::Encoding;
use crate::error::{Result, ensure};
use crate::float::{self, Float, match_float};
use crate::masks::{Mask, set_bit};
use crate::patches::{PatchList, Patches, PatchesWriter};
use crate::residuals::{Order, Packed, Residuals, ResidualsWriter, bit_length};
use crate::selection::Selection;
use crate::simd::dispatched;
use crate::vectors::{for_each_vector, sample_ranges};
use crate::wire::{ChunkReader, ChunkWriter, le_bytes, u16_at};

const PART: &str = "alp_rd";
const MAX_LEFT_WIDTH: usize = 16;
const MAX_ENTRIES: usize = 8;
const EXCEPTION_BITS: usize = 32;
/// Vectors that the cut is chosen from, evenly spread.
const SAMPLE_VECTORS: usize = 12;

/// The position at which values are cut, and the dictionary of left parts.
#[derive(Clone, Debug)]
struct Cut {
    right_width: usize,
    entries: Vec<u16>,
}

impl Cut {
    /// The cut that costs least for the sampled values.
    fn best<F: Float>(sample: &[F]) -> Self {
        let cuts = (1..=MAX_LEFT_WIDTH).map(|left_width| Self::at(F::BITS - left_width, sample));
        let best = cuts.min_by_key(|(bits, _)| *bits);
        best.map_or(
            Self {
                right_width: F::BITS - 1,
                entries: vec![],
            },
            |(_, cut)| cut,
        )
    }

    /// The cut with right parts of `right_width` bits, and the bits that the sample takes with it.
    fn at<F: Float>(right_width: usize, sample: &[F]) -> (usize, Self) {
        let mut lefts: Vec<u16> = sample
            .iter()
            .map(|v| (v.to_bits64() >> right_width) as u16)
            .collect();
        lefts.sort_unstable();
        let mut counts: Vec<(usize, u16)> = lefts
            .chunk_by(|a, b| a == b)
            .map(|run| (run.len(), run[0]))
            .collect();
        counts.sort_unstable_by_key(|(count, left)| (std::cmp::Reverse(*count), *left));
        counts.truncate(MAX_ENTRIES);
        let exceptions = sample.len() - counts.iter().map(|(count, _)| count).sum::<usize>();
        let index_width = bit_length(counts.len().saturating_sub(1) as u64);
        let bits = sample.len() * (right_width + index_width) + exceptions * EXCEPTION_BITS;
        let entries = counts.into_iter().map(|(_, left)| left).collect();
        (
            bits,
            Self {
                right_width,
                entries,
            },
        )
    }
}

/// Appends the source's values; `false` if they are no floats of single or double precision.
pub(crate) fn encode(source: &Source, out: &mut ChunkWriter) -> bool {
    let Some(offsets) = &source.offsets else {
        return false;
    };
    match_float!(source.array.data_type(),
        F => encode_values::<F>(&offsets.floats(), out), _ => return false);
    true
}

fn encode_values<F: Float>(values: &[F], out: &mut ChunkWriter) {
    let ranges = sample_ranges(values.len(), SAMPLE_VECTORS);
    let sample: Vec<F> = ranges
        .flat_map(|rows| float::sample(&values[rows]))
        .collect();
    let cut = Cut::best(&sample);
    let first = cut.entries.first().copied().unwrap_or(0);
    let entries = std::array::from_fn(|i| cut.entries.get(i).copied().unwrap_or(first));
    let mut indices = Vec::with_capacity(values.len());
    let mut rights = ResidualsWriter::new(Order::Rows);
    let mut exceptions = PatchesWriter::default();
    for_each_vector(values, |vector, rows| {
        let (mut index, mut right) = ([0; VECTOR_LEN], [0; VECTOR_LEN]);
        let mut missing = [0; VECTOR_LEN / 64];
        split(
            vector,
            cut.right_width,
            entries,
            &mut index,
            &mut right,
            &mut missing,
        );
        (rows..VECTOR_LEN).for_each(|row| set_bit(&mut missing, row, false));
        indices.extend_from_slice(&index[..rows]);
        rights.push(&right, rows, false);
        exceptions.push(&missing, |row| vector[row].to_bits64() >> cut.right_width);
    });
    out.u8(cut.right_width as u8);
    out.sized_buffer(le_bytes(&cut.entries, |left| left.to_le_bytes()));
    out.append(sequence::encode(&indices, None));
    rights.finish(out);
    exceptions.finish(out);
}

dispatched! {
    /// Splits values into dictionary indices and right parts; the mask has the values whose left part has no entry.
    fn split<F: Float>(
        values: &[F; VECTOR_LEN],
        right_width: usize,
        entries: [u16; MAX_ENTRIES],
        indices: &mut [u64; VECTOR_LEN],
        rights: &mut [u64; VECTOR_LEN],
        missing: &mut Mask,
    ) {
        for (row, value) in values.iter().enumerate() {
            let bits = value.to_bits64();
            let left = bits >> right_width;
            rights[row] = bits & ((1 << right_width) - 1);
            let mut index = 0;
            for (i, entry) in entries.iter().enumerate().rev() {
                index = if left == u64::from(*entry) { i as u64 } else { index };
            }
            indices[row] = index;
        }
        for (word, at) in missing.iter_mut().zip((0..VECTOR_LEN).step_by(64)) {
            *word = 0;
            for bit in 0..64 {
                let left = values[at + bit].to_bits64() >> right_width;
                let entry = entries[indices[at + bit] as usize % MAX_ENTRIES];
                *word |= u64::from(left != u64::from(entry)) << bit;
            }
        }
    }
}

/// A parsed column of floats.
///
/// Invariants, checked by [`AlpRd::parse`]: the type allows `right_width`, and no packed right part is wider. Indices
/// beyond the dictionary show only in decoding: they yield left part 0.
#[derive(Clone, Debug)]
pub(crate) struct AlpRd {
    right_width: usize,
    /// The left parts of the dictionary, shifted to their position in a value.
    lefts: [u64; MAX_ENTRIES],
    indices: Sequence,
    rights: Residuals,
    exceptions: Patches,
}

impl Codec for AlpRd {
    fn encoding(&self) -> Encoding {
        Encoding::AlpRd
    }

    fn describe(&self) -> String {
        format!("alp_rd({})", self.indices.describe())
    }

    fn layout(&self) -> layout::Values<'_> {
        layout::Values::AlpRd {
            right_width: self.right_width,
            lefts: self.lefts,
            indices: &self.indices,
            rights: Packed(&self.rights),
            exceptions: PatchList(&self.exceptions),
        }
    }

    fn select(
        &self,
        data_type: &DataType,
        selection: &Selection,
        nulls: Option<NullBuffer>,
    ) -> Result<ArrayRef> {
        let values = match data_type {
            DataType::Float64 => Buffer::from_vec(self.values::<f64>(selection)?),
            _ => Buffer::from_vec(self.values::<f32>(selection)?),
        };
        class::fixed_width_array(data_type, selection.count(), values, nulls)
    }
}

impl AlpRd {
    pub fn parse<F: Float>(reader: &mut ChunkReader, len: usize) -> Result<Self> {
        let vectors = len.div_ceil(VECTOR_LEN);
        let right_width = usize::from(reader.u8()?);
        ensure(
            (F::BITS - MAX_LEFT_WIDTH..F::BITS).contains(&right_width),
            PART,
            || format!("right parts of {right_width} bits in values of {}", F::BITS),
        )?;
        let entries = reader.sized_buffer()?;
        ensure(
            entries.len() <= MAX_ENTRIES * 2 && entries.len() % 2 == 0,
            PART,
            || format!("a dictionary of {} bytes", entries.len()),
        )?;
        let indices = Sequence::parse(reader, len)?;
        let rights = Residuals::parse(reader, len, Order::Rows)?;
        let widest = (0..vectors)
            .map(|vector| rights.width(vector))
            .max()
            .unwrap_or(0);
        ensure(widest <= right_width, PART, || {
            format!("right parts of {widest} bits, at most {right_width}")
        })?;
        Ok(Self {
            right_width,
            lefts: std::array::from_fn(|i| u64::from(u16_at(&entries, i)) << right_width),
            indices,
            rights,
            exceptions: Patches::parse(reader, vectors, size_of::<u16>())?,
        })
    }

    /// The selected values.
    fn values<F: Float>(&self, selection: &Selection) -> Result<Vec<F>> {
        let mut out = Vec::with_capacity(selection.count());
        let mut values = [F::default(); VECTOR_LEN];
        for selected in selection.vectors() {
            self.decode(selected.vector, &mut values)?;
            selected.append(&values, &mut out);
        }
        Ok(out)
    }

    /// Decodes a vector. Entries beyond the end are arbitrary.
    fn decode<F: Float>(&self, vector: usize, out: &mut [F; VECTOR_LEN]) -> Result<()> {
        let mut indices = [0u32; VECTOR_LEN];
        self.indices.decode(vector, 0, &mut indices)?;
        let mut rights = [0; VECTOR_LEN];
        self.rights.unpack(vector, &mut rights);
        join(&indices, self.lefts, &rights, out);
        for (row, left) in self.exceptions.of(vector) {
            out[row] = F::from_bits64(left << self.right_width | rights[row]);
        }
        Ok(())
    }
}

dispatched! {
    fn join<F: Float>(
        indices: &[u32; VECTOR_LEN],
        lefts: [u64; MAX_ENTRIES],
        rights: &[u64; VECTOR_LEN],
        out: &mut [F; VECTOR_LEN],
    ) {
        for row in 0..VECTOR_LEN {
            out[row] = F::from_bits64(lefts[indices[row] as usize % MAX_ENTRIES] | rights[row]);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::FORMAT_VERSION;
    use crate::float::tests::columns;

    fn encoded<F: Float>(values: &[F]) -> Vec<u8> {
        let mut out = ChunkWriter::default();
        encode_values(values, &mut out);
        out.finish()
    }

    fn parsed<F: Float>(bytes: Vec<u8>, len: usize) -> Result<AlpRd> {
        let mut reader = ChunkReader::new(&Buffer::from_vec(bytes), FORMAT_VERSION)?;
        let alp_rd = AlpRd::parse::<F>(&mut reader, len)?;
        reader.finish()?;
        Ok(alp_rd)
    }

    fn check_round_trip<F: Float>(values: &[F]) -> AlpRd {
        let alp_rd = parsed::<F>(encoded(values), values.len()).unwrap();
        for (vector, values) in values.chunks(VECTOR_LEN).enumerate() {
            let mut out = [F::default(); VECTOR_LEN];
            alp_rd.decode(vector, &mut out).unwrap();
            for (row, (decoded, value)) in out.iter().zip(values).enumerate() {
                assert_eq!(
                    decoded.to_bits64(),
                    value.to_bits64(),
                    "row {row} of vector {vector}"
                );
            }
        }
        alp_rd
    }

    /// Random digits in `1.0..2.0`.
    fn random(count: u64) -> impl Iterator<Item = f64> {
        (0..count).map(|i| {
            let digits = (i + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ i << 29;
            f64::from_bits(1.0f64.to_bits() | digits.wrapping_mul(0xD134_2543_DE82_EF95) >> 12)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn doubles_round_trip(column in columns::<f64>()) {
            check_round_trip(&column);
        }

        #[test]
        fn floats_round_trip(column in columns::<f32>()) {
            check_round_trip(&column);
        }

        #[test]
        fn any_bytes_are_refused_or_decode(
            column in columns::<f32>(),
            damage in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut bytes = encoded(&column);
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(alp_rd) = parsed::<f32>(bytes, column.len()) {
                for vector in 0..column.len().div_ceil(VECTOR_LEN) {
                    let _ = alp_rd.decode::<f32>(vector, &mut [0.0; VECTOR_LEN]);
                }
            }
        }
    }

    #[test]
    fn every_length_round_trips() {
        for len in [0, 1, 2, 31, 1023, 1024, 1025, 2048, 3000] {
            check_round_trip(&random(len).collect::<Vec<_>>());
            check_round_trip(&random(len).map(|value| value as f32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn random_digits_take_the_bits_of_the_mantissa() {
        let column: Vec<f64> = random(100 << 10).collect();
        let bits = encoded(&column).len() as f64 * 8.0 / column.len() as f64;
        assert!((51.9..52.2).contains(&bits), "{bits} bits");
        let column: Vec<f32> = column.into_iter().map(|value| value as f32).collect();
        let bits = encoded(&column).len() as f64 * 8.0 / column.len() as f64;
        assert!((22.9..23.2).contains(&bits), "{bits} bits");
    }

    #[test]
    fn any_number_of_rare_left_parts_round_trips() {
        for exceptions in [1, 32, 33, 500, 1023, 1024] {
            let mut column: Vec<f64> = random(100 << 10).collect();
            let spread = (0..exceptions).map(|i| i * 389 % VECTOR_LEN);
            spread.for_each(|row| column[3 * VECTOR_LEN + row] = -1e-300 * row as f64 - 1e-300);
            let alp_rd = check_round_trip(&column);
            assert_eq!(alp_rd.exceptions.of(3).count(), exceptions);
            assert!(alp_rd.exceptions.is_empty(2));
        }
    }

    #[test]
    fn widths_and_dictionaries_are_checked() {
        let message = |right_width, entries, wide: u64| {
            let mut out = ChunkWriter::default();
            out.u8(right_width);
            out.sized_buffer(vec![0; entries]);
            out.append(sequence::encode(&[0], None));
            let mut rights = ResidualsWriter::new(Order::Rows);
            rights.push(&[wide; VECTOR_LEN], 1, false);
            rights.finish(&mut out);
            out.u8(4);
            parsed::<f64>(out.finish(), 1)
                .map(|_| ())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            message(47, 2, 0),
            "corrupt alp_rd: right parts of 47 bits in values of 64"
        );
        assert_eq!(
            message(64, 2, 0),
            "corrupt alp_rd: right parts of 64 bits in values of 64"
        );
        assert_eq!(
            message(48, 18, 0),
            "corrupt alp_rd: a dictionary of 18 bytes"
        );
        assert_eq!(message(48, 3, 0), "corrupt alp_rd: a dictionary of 3 bytes");
        assert_eq!(
            message(48, 2, 1 << 48),
            "corrupt alp_rd: right parts of 49 bits, at most 48"
        );
        assert_eq!(
            message(48, 2, 0),
            "corrupt patches: values of 4 bytes, at most 2 possible"
        );
    }
}
