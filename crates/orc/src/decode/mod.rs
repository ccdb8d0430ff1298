//! Decoders: from the bytes of a stream to values.
//!
//! [`Decoder::of`] is the registry: it maps a stream to its decoder. A decoder gets the inflated bytes of one stream
//! and the number of values in it, and knows nothing of columns, so that a device can replace it.

mod bits;
mod blocks;
mod boolean;
mod byte_rle;
mod rle_v1;
mod rle_v2;
mod sign;
pub(crate) mod varint;

use arrow::buffer::BooleanBuffer;
use bytes::Bytes;
use vectile_encodings::streams::RunLength;

use crate::error::{Fault, ensure};
use crate::kind::{Encoding, RleVersion, StreamKind, TypeKind};

use blocks::in_blocks;
pub use sign::Sign;

/// The method that decodes the bytes of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Decoder {
    /// Byte RLE of bits.
    Boolean,
    /// Byte RLE.
    ByteRle,
    /// Integer RLE, version 1.
    RleV1(Sign),
    /// Integer RLE, version 2.
    RleV2(Sign),
    /// A zigzag varint of up to 128 bits each.
    Decimals,
    /// Bytes without an encoding.
    Bytes,
}

/// The values of a decoded stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// From [`Decoder::Boolean`].
    Bits(BooleanBuffer),
    /// From [`Decoder::ByteRle`].
    Small(Vec<u8>),
    /// From [`Decoder::RleV1`] and [`Decoder::RleV2`]. Unsigned integers have the same bits.
    Integers(Vec<i64>),
    /// From [`Decoder::Decimals`].
    Decimals(Vec<i128>),
    /// From [`Decoder::Bytes`].
    Bytes(Bytes),
}

impl Decoder {
    /// The decoder of a stream of a column; `None` if such columns have no such stream.
    pub fn of(column: TypeKind, encoding: Encoding, stream: StreamKind) -> Option<Self> {
        use TypeKind::*;
        let integers = |sign| match encoding.version() {
            RleVersion::V1 => Self::RleV1(sign),
            RleVersion::V2 => Self::RleV2(sign),
        };
        let has_dictionary = matches!(encoding, Encoding::Dictionary { .. });
        Some(match (stream, column) {
            (StreamKind::Present, _) => Self::Boolean,
            (StreamKind::Data, Boolean) => Self::Boolean,
            (StreamKind::Data, Byte | Union) => Self::ByteRle,
            (StreamKind::Data, Short | Int | Long | Date | Timestamp | TimestampInstant) => {
                integers(Sign::Signed)
            }
            (StreamKind::Data, Float | Double | Binary) => Self::Bytes,
            (StreamKind::Data, String | Varchar | Char) => match has_dictionary {
                true => integers(Sign::Unsigned),
                false => Self::Bytes,
            },
            (StreamKind::Data, Decimal) => Self::Decimals,
            (StreamKind::Length, String | Varchar | Char | Binary | List | Map) => {
                integers(Sign::Unsigned)
            }
            (StreamKind::DictionaryData, String | Varchar | Char) => Self::Bytes,
            (StreamKind::Secondary, Timestamp | TimestampInstant) => integers(Sign::Unsigned),
            (StreamKind::Secondary, Decimal) => integers(Sign::Signed),
            _ => return None,
        })
    }

    /// The encoding of its runs, for decoders on a device; `None` if it has no runs.
    pub fn run_length(self) -> Option<RunLength> {
        Some(match self {
            Self::Boolean | Self::ByteRle => RunLength::Bytes,
            Self::RleV1(sign) => RunLength::V1 {
                is_signed: sign == Sign::Signed,
            },
            Self::RleV2(sign) => RunLength::V2 {
                is_signed: sign == Sign::Signed,
            },
            Self::Decimals => RunLength::Varints,
            Self::Bytes => return None,
        })
    }

    /// Decodes the first `count` values of `bytes`, which are inflated.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if there are fewer, or no encoder writes such bytes.
    pub fn decode(self, bytes: &Bytes, count: usize) -> Result<Values, Fault> {
        Ok(match self {
            Self::Boolean => Values::Bits(boolean::decode(bytes, count)?),
            Self::ByteRle => Values::Small(byte_rle::decode(bytes, count)?),
            Self::RleV1(_) | Self::RleV2(_) => {
                let mut values = Vec::with_capacity(count.min(most_integers(bytes)));
                self.decode_integers(bytes, count, &mut |block| {
                    values.extend_from_slice(block);
                    Ok(())
                })?;
                Values::Integers(values)
            }
            Self::Decimals => Values::Decimals(varint::decode_decimals(bytes, count)?),
            Self::Bytes => {
                ensure(count <= bytes.len(), || {
                    let actual = bytes.len();
                    format!("{actual} bytes instead of {count}")
                })?;
                Values::Bytes(bytes.slice(..count))
            }
        })
    }

    /// Decodes the first `count` integers of `bytes` and passes them to `take` in blocks of some thousands, which stay
    /// in the cache.
    ///
    /// # Errors
    ///
    /// Those of [`decode`](Self::decode) and of `take`; [`Fault::Unsupported`] if this is no decoder of integers.
    pub(crate) fn decode_integers(
        self,
        bytes: &Bytes,
        count: usize,
        take: &mut dyn FnMut(&[i64]) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        match self {
            Self::RleV1(sign) => in_blocks(&mut rle_v1::Runs { bytes, sign }, count, take),
            Self::RleV2(sign) => in_blocks(&mut rle_v2::Runs::new(bytes, sign), count, take),
            _ => Err(Fault::Unsupported(format!("integers by {self:?}"))),
        }
    }
}

/// Upper bound on the integers that `bytes` decode to: four bytes yield at most 512.
pub(crate) fn most_integers(bytes: &[u8]) -> usize {
    bytes.len().saturating_mul(128)
}
