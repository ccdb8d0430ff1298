//! The list of encodings: the types each applies to, its tag in a column chunk, and its parsed
//! form. The set is closed, so the compiler lists what a new one lacks.

use arrow::datatypes::DataType;

use crate::byte_strings;
use crate::class::Class;
use crate::codecs::alp::{self, Alp};
use crate::codecs::alp_rd::{self, AlpRd};
use crate::codecs::codec::{Child, Children};
use crate::codecs::constant::{self, Constant};
use crate::codecs::dict::{self, Dict};
use crate::codecs::integers::{self, Integers};
use crate::codecs::nested::{self, Nested};
use crate::codecs::plain::{self, Plain};
use crate::codecs::sequence;
use crate::codecs::source::Source;
use crate::codecs::strings::{self, Strings};
use crate::encoding::{Encoding, for_each_encoding};
use crate::error::{Result, corrupt, ensure};
use crate::float::match_float;
use crate::validity::{self, Validity};
use crate::wire::{ChunkReader, ChunkWriter};

const PART: &str = "column";

const CONSTANT: u8 = 0;
const PLAIN: u8 = 1;
const INTEGERS: u8 = 2;
const DICT: u8 = 3;
const ALP: u8 = 4;
const ALP_RD: u8 = 5;
const STRINGS: u8 = 6;
const NESTED: u8 = 7;

/// The pattern of all encodings of integer sequences.
macro_rules! sequence_pattern {
    ($(
        $(#[$doc:meta])* $variant:ident = $name:literal, $weight:literal
        $(, Sequence::$sequence:ident($codec:ty) = $tag:literal)?;
    )+) => {
        $($(| Encoding::$sequence)?)+
    };
}

/// The encodings to choose from, cheapest to decode first. Some may turn out not to apply.
pub(crate) fn candidates(source: &Source) -> Vec<Encoding> {
    let data_type = source.array.data_type();
    let is_boolean = data_type == &DataType::Boolean;
    let is_empty = data_type == &DataType::FixedSizeBinary(0);
    let applies = |encoding: &Encoding| match encoding {
        // used without a choice
        Encoding::Constant => false,
        Encoding::Plain => !is_boolean,
        for_each_encoding!(sequence_pattern) => {
            source.offsets.is_some() && (!is_boolean || sequence::stores_booleans(*encoding))
        }
        Encoding::Dict => source.has_order() && !is_boolean && !is_empty,
        Encoding::Alp | Encoding::AlpRd => match_float!(data_type, _F => true, _ => false),
        Encoding::Fsst | Encoding::OnPair => source.bytes.is_some() && !is_empty,
    };
    Encoding::ALL.into_iter().filter(applies).collect()
}

/// The encoding to use if the chosen one turns out not to apply.
pub(crate) fn fallback(source: &Source) -> Encoding {
    match (&source.offsets, &source.bytes) {
        (Some(_), _) => Encoding::Ffor,
        (_, Some(_)) => Encoding::Fsst,
        _ => Encoding::Plain,
    }
}

/// Appends the source in one encoding; `false`, and nothing appended, if it does not apply.
pub(crate) fn encode(
    encoding: Encoding,
    source: &Source,
    children: Children,
    out: &mut ChunkWriter,
) -> Result<bool> {
    let mut values = ChunkWriter::default();
    let (tag, applies) = match encoding {
        Encoding::Constant => (CONSTANT, encode_constant(source, children, &mut values)?),
        Encoding::Plain if source.bytes.is_some() => {
            (STRINGS, strings::encode(source, &mut values))
        }
        Encoding::Plain if plain::width_of(source.array.data_type()).is_some() => {
            (PLAIN, plain::encode(source, &mut values)?)
        }
        Encoding::Plain => (NESTED, nested::encode(source, children, &mut values)?),
        for_each_encoding!(sequence_pattern) => {
            (INTEGERS, integers::encode(encoding, source, &mut values))
        }
        Encoding::Dict => (DICT, dict::encode(source, children, &mut values)?),
        Encoding::Alp => (ALP, alp::encode(source, &mut values)),
        Encoding::AlpRd => (ALP_RD, alp_rd::encode(source, &mut values)),
        Encoding::Fsst => (STRINGS, strings::encode_fsst(source, &mut values)),
        Encoding::OnPair => (STRINGS, strings::encode_onpair(source, &mut values)),
    };
    if applies {
        out.u8(tag);
        validity::encode(source.array, out);
        out.append(values);
    }
    Ok(applies)
}

fn encode_constant(source: &Source, children: Children, out: &mut ChunkWriter) -> Result<bool> {
    constant::encode(source, out, |value, out| {
        let encoding = match value.offsets {
            Some(_) => Encoding::Ffor,
            None => Encoding::Plain,
        };
        encode(encoding, value, children, out)
    })
}

/// The parsed values of a column: a variant for each tag.
#[derive(Debug)]
pub(crate) enum Values<C> {
    Constant(Constant),
    Plain(Plain),
    Integers(Integers),
    Dict(Dict),
    Alp(Alp),
    AlpRd(AlpRd),
    Strings(Strings),
    Nested(Nested<C>),
}

/// Runs `$body` with `$codec` the values in their encoding.
macro_rules! match_codec {
    ($values:expr, $codec:ident => $body:expr) => {
        match $values {
            $crate::codecs::registry::Values::Constant($codec) => $body,
            $crate::codecs::registry::Values::Plain($codec) => $body,
            $crate::codecs::registry::Values::Integers($codec) => $body,
            $crate::codecs::registry::Values::Dict($codec) => $body,
            $crate::codecs::registry::Values::Alp($codec) => $body,
            $crate::codecs::registry::Values::AlpRd($codec) => $body,
            $crate::codecs::registry::Values::Strings($codec) => $body,
            $crate::codecs::registry::Values::Nested($codec) => $body,
        }
    };
}

pub(crate) use match_codec;

/// Returns true if values of this type and tag may be those of a constant or a dictionary.
pub(crate) fn is_distinct(tag: u8, data_type: &DataType) -> bool {
    let is_flat = Class::stored(data_type).is_some() || byte_strings::is_bytes(data_type);
    is_flat && tag != CONSTANT && tag != DICT
}

impl<C: Child> Values<C> {
    /// Parses the values stored under `tag`.
    pub fn parse(
        reader: &mut ChunkReader,
        tag: u8,
        validity: &Validity,
        data_type: &DataType,
        len: usize,
    ) -> Result<Self> {
        let mismatch = || corrupt(PART, format!("tag {tag} for type {data_type}"));
        if matches!(validity, Validity::AllNull) {
            ensure(tag == CONSTANT, PART, || {
                format!("tag {tag} for nulls only")
            })?;
            return Ok(Self::Constant(Constant::of_nulls()));
        }
        Ok(match tag {
            CONSTANT => Self::Constant(Constant::parse::<C>(reader, data_type)?),
            PLAIN => {
                let width = plain::width_of(data_type).ok_or_else(mismatch)?;
                Self::Plain(Plain::parse(reader, width, len)?)
            }
            INTEGERS => {
                let class = Class::stored(data_type).ok_or_else(mismatch)?;
                Self::Integers(Integers::parse(reader, class, len)?)
            }
            DICT => Self::Dict(Dict::parse::<C>(reader, data_type, len)?),
            ALP => match_float!(data_type,
                F => Self::Alp(Alp::parse::<F>(reader, len)?), _ => return Err(mismatch())),
            ALP_RD => match_float!(data_type,
                F => Self::AlpRd(AlpRd::parse::<F>(reader, len)?), _ => return Err(mismatch())),
            STRINGS if byte_strings::is_bytes(data_type) => {
                Self::Strings(Strings::parse(reader, len)?)
            }
            NESTED => Self::Nested(Nested::parse(reader, data_type, len)?),
            _ => return Err(mismatch()),
        })
    }
}
