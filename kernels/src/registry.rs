//! The list of encodings that kernels read: device code and layout of each.
//!
//! There are two families. A *sequence* stores unsigned integers; a *transform* maps these to values. Any transform
//! goes with any sequence. The index of a codec in its list is its number in chunks and its bit in [`ColumnTraits`];
//! device code gets the same lists.

#[path = "../alp/layout.rs"]
mod alp;
#[path = "../alp_rd/layout.rs"]
mod alp_rd;
#[path = "../constant/layout.rs"]
mod constant;
#[path = "../delta/layout.rs"]
mod delta;
#[path = "../dict/layout.rs"]
mod dict;
#[path = "../ffor/layout.rs"]
mod ffor;
#[path = "../gpu_dfor/layout.rs"]
mod gpu_dfor;
#[path = "../gpu_for/layout.rs"]
mod gpu_for;
#[path = "../integers/layout.rs"]
mod integers;
#[path = "../plain/layout.rs"]
mod plain;
#[path = "../rle/layout.rs"]
mod rle;
#[path = "../sparse/layout.rs"]
mod sparse;
#[path = "../text/layout.rs"]
mod text;

use arrow::array::ArrayRef;
use arrow::datatypes::DataType;
use vectile_encodings::layout::{Sequence, Values};

use crate::builder::{Builder, unsupported};
use crate::chunk_structs::TILE_ROWS;
use crate::error::Result;
use crate::traits::ColumnTraits;
use crate::unwritten::UnwrittenValues;

pub use alp::SCALES;

/// A list of codecs: an enum, and the device code of each; the literal names the list in device code. Kernels that do
/// not need the rare codecs have a list without them.
macro_rules! list {
    ($(#[$about:meta])* $list:ident as $named:literal {
        $(#[$first_about:meta])* $first:ident: $first_code:expr,
        $($(#[$rest_about:meta])* $rest:ident: $rest_code:expr,)*
    } rare {
        $($(#[$rare_about:meta])* $rare:ident: $rare_code:expr,)*
    }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $list {
            $(#[$first_about])* $first,
            $($(#[$rest_about])* $rest,)*
            $($(#[$rare_about])* $rare,)*
        }

        impl $list {
            pub(crate) const CODE: &[&str] = &[
                $first_code,
                $($rest_code,)*
                concat!("typedef List<", stringify!($first), $(", ", stringify!($rest),)* "> ", $named, ";\n"),
            ];

            pub(crate) const CODE_WITH_RARE: &[&str] = &[
                $first_code,
                $($rest_code,)*
                $($rare_code,)*
                concat!(
                    "typedef List<", stringify!($first), $(", ", stringify!($rest),)* $(", ", stringify!($rare),)*
                    "> ", $named, ";\n"
                ),
            ];

            /// Its bit in [`ColumnTraits`].
            pub fn bit(self) -> u8 {
                1 << self as u8
            }
        }
    };
}

list! {
    /// Storage of a sequence of unsigned integers.
    SequenceKind as "Sequences" {
        /// Packed residuals, and a base for each vector.
        Ffor: include_str!("../ffor/ffor.cuh"),
        /// Differences.
        Delta: include_str!("../delta/delta.cuh"),
        /// Runs.
        Rle: include_str!("../rle/rle.cuh"),
    } rare {
        /// Blocks of 128, with a width for each 32.
        GpuFor: concat!(include_str!("../common/blocks.cuh"), include_str!("../gpu_for/gpu_for.cuh")),
        /// Differences in such blocks.
        GpuDfor: include_str!("../gpu_dfor/gpu_dfor.cuh"),
    }
}

list! {
    /// Meaning of the entries of a sequence.
    Transform as "Transforms" {
        /// Distances from the smallest value.
        Integers: include_str!("../integers/integers.cuh"),
        /// Codes of distinct values.
        Dict: include_str!("../dict/dict.cuh"),
        /// Floats that are decimals.
        Alp: include_str!("../alp/alp.cuh"),
        /// Left parts of floats.
        AlpRd: include_str!("../alp_rd/alp_rd.cuh"),
        /// No sequence: values lie as they are.
        Plain: include_str!("../plain/plain.cuh"),
    } rare {
        /// No sequence: strings lie in splits.
        Text: include_str!("../text/text.cuh"),
    }
}

/// Lays the values of a column out.
pub(crate) fn lay_out(
    builder: &mut Builder,
    data_type: &DataType,
    values: Values<'_>,
) -> Result<()> {
    let transform = match values {
        Values::AllNull => {
            builder.traits.sequences = SequenceKind::Ffor.bit();
            match constant::nulls(builder, data_type) {
                true => Transform::Integers,
                false => Transform::Dict,
            }
        }
        Values::Constant(value) => dictionary(builder, value, &Sequence::Constant(0))?,
        Values::Plain(width, bytes) => {
            builder.traits.sequences = SequenceKind::Ffor.bit();
            plain::lay_out(builder, data_type, width, bytes)?;
            Transform::Plain
        }
        Values::Integers { reference, offsets } => {
            let bounds = sequence(builder, offsets)?;
            integers::lay_out(builder, data_type, reference, bounds)?;
            Transform::Integers
        }
        Values::Dictionary { entries, codes } => dictionary(builder, entries, codes)?,
        Values::Alp {
            reference,
            exponents,
            factors,
            integers,
            exceptions,
        } => {
            sequence(builder, integers)?;
            let scales = exponents.iter().zip(factors);
            alp::lay_out(builder, data_type, reference, scales, exceptions)?;
            Transform::Alp
        }
        Values::AlpRd {
            right_width,
            lefts,
            indices,
            rights,
            exceptions,
        } => {
            sequence(builder, indices)?;
            alp_rd::lay_out(builder, right_width, lefts, rights, exceptions)?;
            Transform::AlpRd
        }
        Values::Strings(view) => {
            builder.traits.sequences = SequenceKind::Ffor.bit();
            text::lay_out(builder, view)?;
            Transform::Text
        }
        _ => return Err(unsupported(data_type)),
    };
    builder.traits.transforms = transform.bit();
    Ok(())
}

/// Lays out codes of entries to be written on the device, with a bitmap for each vector if some may be null. Returns
/// the bytes of the body.
pub(crate) fn lay_out_codes(
    builder: &mut Builder,
    entries: &ArrayRef,
    is_nullable: bool,
) -> Result<usize> {
    builder.traits.transforms = Transform::Dict.bit();
    builder.traits.sequences = SequenceKind::Ffor.bit();
    builder.codes = entries.len().max(1);
    dict::lay_out(builder, entries)?;
    ffor::lay_out_unwritten(builder, entries.len().saturating_sub(1), is_nullable)
}

/// Lays out values to be written on the device. Returns the bytes of the body.
pub(crate) fn lay_out_unwritten(
    builder: &mut Builder,
    data_type: &DataType,
    values: &UnwrittenValues<'_>,
) -> Result<usize> {
    builder.traits.sequences = SequenceKind::Ffor.bit();
    let (transform, body) = match *values {
        UnwrittenValues::Integers(bounds) => {
            let least = bounds.iter().filter(|(low, high)| low <= high);
            let reference = least.map(|(low, _)| *low).min().unwrap_or(0);
            let (largest, body) = ffor::lay_out_within(builder, bounds, reference)?;
            builder.traits.wide_entries = largest > u64::from(u32::MAX);
            integers::lay_out(builder, data_type, reference.into(), (0, largest))?;
            (Transform::Integers, body)
        }
        UnwrittenValues::Codes(bounds, entries) => {
            builder.codes = entries.len().max(1);
            let (largest, body) = ffor::lay_out_within(builder, bounds, 0)?;
            if largest >= builder.codes as u64 {
                let (part, reason) = (
                    "dict",
                    format!("code {largest} of {} entries", entries.len()),
                );
                return Err(vectile_encodings::Error::Corrupt { part, reason }.into());
            }
            dict::lay_out(builder, entries)?;
            (Transform::Dict, body)
        }
        UnwrittenValues::Floats => (
            Transform::Plain,
            plain::lay_out_unwritten(builder, data_type, None)?,
        ),
        UnwrittenValues::Plain(low, high) => (
            Transform::Plain,
            plain::lay_out_unwritten(builder, data_type, Some((low, high)))?,
        ),
        UnwrittenValues::Strings(lengths) => {
            (Transform::Text, text::lay_out_unwritten(builder, lengths)?)
        }
    };
    builder.traits.transforms = transform.bit();
    Ok(body)
}

/// Lays out row numbers, the first of which is `first`. Returns the bytes of the body.
pub(crate) fn lay_out_row_numbers(
    builder: &mut Builder,
    data_type: &DataType,
    first: i128,
) -> Result<usize> {
    builder.traits.sequences = SequenceKind::Ffor.bit();
    builder.traits.transforms = Transform::Integers.bit();
    let last = (builder.rows() as u64).saturating_sub(1);
    builder.traits.wide_entries = last > u64::from(u32::MAX);
    integers::lay_out(builder, data_type, first, (0, last))?;
    ffor::lay_out_row_numbers(builder);
    Ok(builder.packed.len())
}

/// Lays out a dictionary. For a single boolean, which kernels compute with, the transform is another.
fn dictionary(builder: &mut Builder, entries: &ArrayRef, codes: &Sequence) -> Result<Transform> {
    let bounds = sequence(builder, codes)?;
    dict::check(builder, entries.len(), codes, bounds)?;
    match constant::boolean(entries) {
        Some(value) => {
            integers::lay_out(builder, entries.data_type(), value, (0, 0))?;
            Ok(Transform::Integers)
        }
        None => {
            dict::lay_out(builder, entries)?;
            Ok(Transform::Dict)
        }
    }
}

/// Lays a sequence out. Returns bounds of the entries of its rows.
fn sequence(builder: &mut Builder, sequence: &Sequence) -> Result<(u64, u64)> {
    let (kind, bounds) = match sequence {
        Sequence::Constant(value) => (SequenceKind::Ffor, constant::entries(builder, *value)),
        Sequence::Ffor(view) => (SequenceKind::Ffor, ffor::lay_out(builder, view)?),
        Sequence::Delta(view) => {
            let rows = builder.rows();
            let largest = || sequence.largest(rows);
            (SequenceKind::Delta, delta::lay_out(builder, view, largest)?)
        }
        Sequence::Rle(view) => (SequenceKind::Rle, rle::lay_out(builder, view)?),
        Sequence::GpuRfor(view) => (SequenceKind::Rle, rle::lay_out(builder, view)?),
        Sequence::GpuFor(view) => (SequenceKind::GpuFor, gpu_for::lay_out(builder, view)?),
        Sequence::GpuDfor(view) => (SequenceKind::GpuDfor, gpu_dfor::lay_out(builder, view)?),
        Sequence::Sparse(view) => (SequenceKind::Ffor, sparse::lay_out(builder, view)?),
    };
    builder.traits.sequences = kind.bit();
    let bounds = bounds.unwrap_or((0, 0));
    // differences may be wider than their sums
    builder.traits.wide_entries |= bounds.1 > u64::from(u32::MAX) || builder.traits.high != 0;
    Ok(bounds)
}

impl ColumnTraits {
    /// Returns true if a transform occurs.
    pub fn has(&self, of: Transform) -> bool {
        self.transforms & of.bit() != 0
    }

    /// Returns true if no other transform occurs.
    pub fn has_only(&self, of: Transform) -> bool {
        self.transforms == of.bit()
    }

    /// Returns true if only these transforms occur.
    pub fn has_no_others(&self, these: &[Transform]) -> bool {
        let all = these.iter().fold(0, |all, of| all | of.bit());
        self.transforms & !all == 0
    }

    /// Returns true if some transform looks up each entry, so that entries have to be decoded.
    pub fn looks_entries_up(&self) -> bool {
        self.has(Transform::Dict) || self.has(Transform::AlpRd)
    }

    /// Reserves room for entries in tiles of blocks, because vectors are read row by row.
    pub fn keep_rows(&mut self) {
        if self.has_sequence(SequenceKind::GpuFor) {
            self.flags |= TILE_ROWS;
        }
    }

    /// Bytes of shared memory that a warp needs to decode vectors of some sequence as a whole; 0 if none.
    pub fn tile_bytes(&self) -> u32 {
        let entry = if self.wide_entries { 8 } else { 4 };
        // 32 rows of 32, padded against bank conflicts; words of blocks take no more
        let rows = 32 * 33 * entry;
        let of = |kind, bytes| if self.has_sequence(kind) { bytes } else { 0 };
        let delta = of(SequenceKind::Delta, rows);
        // as `most_words` in `blocks.cuh`
        let words = match self.wide_entries {
            true => rows,
            false => (8 * (2 + 4 * self.widths.checked_ilog2().unwrap_or(0)) + 4) * 4,
        };
        let entries = if self.flags & TILE_ROWS == 0 { 0 } else { rows };
        let gpu_for = of(SequenceKind::GpuFor, entries.max(words + 32 * 16));
        let gpu_dfor = of(SequenceKind::GpuDfor, 2 * rows);
        delta.max(gpu_for).max(gpu_dfor)
    }

    /// Returns true if some sequence needs that memory even to read a few rows.
    pub fn picks_from_tile(&self) -> bool {
        self.has_sequence(SequenceKind::Delta) || self.has_sequence(SequenceKind::GpuDfor)
    }

    /// Returns true if some sequence needs that memory for tests.
    pub fn filters_through_tile(&self) -> bool {
        self.has_sequence(SequenceKind::GpuFor) || self.has_sequence(SequenceKind::GpuDfor)
    }

    /// Returns true if kernels need the code of rare encodings.
    pub fn has_rare(&self) -> bool {
        self.has(Transform::Text) || self.filters_through_tile()
    }

    /// Returns true if all entries are packed residuals, each decoded from its row alone.
    pub fn is_packed(&self) -> bool {
        self.has_only_sequence(SequenceKind::Ffor)
    }

    /// Returns true if a kind of sequence occurs.
    fn has_sequence(&self, of: SequenceKind) -> bool {
        self.sequences & of.bit() != 0
    }

    /// Returns true if no other kind of sequence occurs.
    fn has_only_sequence(&self, of: SequenceKind) -> bool {
        self.sequences & !of.bit() == 0
    }

    /// Traits of packed integers of some width within bounds.
    pub fn integers(width: usize, low: i128, high: i128) -> Self {
        let mut traits = Self {
            transforms: Transform::Integers.bit(),
            sequences: SequenceKind::Ffor.bit(),
            ..Self::default()
        };
        traits.width(width);
        traits.widths = 1 << width;
        traits.include(low, high);
        traits
    }
}
