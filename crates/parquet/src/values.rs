//! The values of a page, without its nulls, as integers of 64 bits.

use vectile_encodings::simd::dispatched;

use crate::delta_packed::DeltaPacked;
use crate::error::{Fault, corrupt, ensure, unsupported};
use crate::hybrid::{Hybrid, Run};
use crate::pages::PageEncoding;
use crate::plain::{Form, Split};
use crate::unpack::unpack;

/// Indices that are unpacked together.
const PART: usize = 256;

/// The kind of values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Booleans, as 0 and 1.
    Bits,
    /// Integers and decimals of a fixed length.
    Fixed(Form),
    /// Floats, by their bits.
    Float(Form),
    /// Entries of a dictionary only.
    Codes,
    /// Text or binary, which `text` reads.
    Strings,
}

impl Kind {
    /// Returns true if values in an encoding are read.
    pub(crate) fn reads(self, encoding: PageEncoding) -> bool {
        use PageEncoding::*;
        match self {
            Self::Bits => matches!(encoding, Plain | Rle),
            Self::Float(_) | Self::Fixed(Form::BigEndian(_)) => {
                matches!(encoding, Plain | Dictionary | ByteStreamSplit)
            }
            Self::Fixed(_) => {
                matches!(
                    encoding,
                    Plain | Dictionary | ByteStreamSplit | DeltaBinaryPacked
                )
            }
            Self::Codes => encoding == Dictionary,
            Self::Strings => matches!(encoding, Plain | Dictionary),
        }
    }
}

/// Reads the values of a page.
#[derive(Debug)]
pub(crate) enum Values<'a> {
    Plain(Form, &'a [u8]),
    Split(Split<'a>),
    Delta(Form, DeltaPacked<'a>),
    /// Booleans.
    Bits(Hybrid<'a>),
    /// Indices of entries.
    Indices(Hybrid<'a>, &'a [i64]),
}

impl<'a> Values<'a> {
    /// The values in the body of a page; the chunk's dictionary has these `entries`.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`], and [`Fault::Unsupported`] for encodings that the kind has not.
    pub(crate) fn new(
        kind: Kind,
        encoding: PageEncoding,
        body: &'a [u8],
        entries: &'a [i64],
    ) -> Result<Self, Fault> {
        Ok(match (encoding, kind) {
            (PageEncoding::Plain, Kind::Bits) => Self::Bits(Hybrid::of_bits(body)),
            (PageEncoding::Rle, Kind::Bits) => {
                let (levels, _) = prefixed(body)?;
                Self::Bits(Hybrid::new(levels, 1)?)
            }
            (PageEncoding::Dictionary, Kind::Fixed(_) | Kind::Float(_) | Kind::Codes) => {
                let Some((width, indices)) = body.split_first() else {
                    return corrupt("indices without their width");
                };
                Self::Indices(Hybrid::new(indices, usize::from(*width))?, entries)
            }
            (PageEncoding::Plain, Kind::Fixed(form) | Kind::Float(form)) => Self::Plain(form, body),
            (PageEncoding::ByteStreamSplit, Kind::Fixed(form) | Kind::Float(form)) => {
                Self::Split(Split::new(form, body))
            }
            (PageEncoding::DeltaBinaryPacked, Kind::Fixed(form)) => {
                Self::Delta(form, DeltaPacked::new(body, form.bytes() * 8)?)
            }
            _ => return unsupported(format!("{kind:?} in encoding {encoding:?}")),
        })
    }

    /// Reads as many values as `out` has room for.
    ///
    /// # Errors
    ///
    /// [`Fault::Corrupt`] if fewer are left, [`Fault::Unsupported`] as [`Form::read`].
    pub(crate) fn read(&mut self, out: &mut [i64]) -> Result<(), Fault> {
        match self {
            Self::Plain(form, bytes) => {
                form.read(bytes, out)?;
                let read = out.len() * form.bytes();
                *bytes = bytes.get(read..).unwrap_or_default();
                Ok(())
            }
            Self::Split(split) => split.read(out),
            Self::Delta(form, values) => {
                values.read(out)?;
                form.cast(out);
                Ok(())
            }
            Self::Bits(bits) => {
                let mut part = [0; PART];
                for out in out.chunks_mut(PART) {
                    let part = part.get_mut(..out.len()).unwrap_or_default();
                    bits.read(part)?;
                    let pairs = out.iter_mut().zip(part);
                    pairs.for_each(|(to, bit)| *to = i64::from(*bit != 0));
                }
                Ok(())
            }
            Self::Indices(indices, entries) => look_up(indices, entries, out),
        }
    }
}

/// Reads indices, and the entry of each.
fn look_up(indices: &mut Hybrid, entries: &[i64], mut out: &mut [i64]) -> Result<(), Fault> {
    let mut part = [0; PART];
    let width = indices.width();
    while !out.is_empty() {
        match indices.next(out.len())? {
            Run::Equal { value, count } => {
                let Some(entry) = entries.get(value as usize) else {
                    return corrupt(format!("entry {value} of {}", entries.len()));
                };
                let (now, rest) = out.split_at_mut(count.min(out.len()));
                now.fill(*entry);
                out = rest;
            }
            Run::Packed {
                packed,
                mut first,
                count,
            } => {
                let (now, rest) = out.split_at_mut(count.min(out.len()));
                for out in now.chunks_mut(PART) {
                    let part = part.get_mut(..out.len()).unwrap_or_default();
                    unpack(packed, width, first, part);
                    first += out.len();
                    pick(part, entries, out)?;
                }
                out = rest;
            }
        }
    }
    Ok(())
}

/// The entry of each index.
fn pick(indices: &[u32], entries: &[i64], out: &mut [i64]) -> Result<(), Fault> {
    let largest = largest(indices);
    ensure((largest as usize) < entries.len(), || {
        format!("entry {largest} of {}", entries.len())
    })?;
    for (to, index) in out.iter_mut().zip(indices) {
        *to = entries.get(*index as usize).copied().unwrap_or_default();
    }
    Ok(())
}

dispatched! {
    fn largest(indices: &[u32]) -> u32 {
        indices.iter().fold(0, |largest, index| largest.max(*index))
    }
}

/// Bytes that are preceded by their length, and those behind them.
pub(crate) fn prefixed(bytes: &[u8]) -> Result<(&[u8], &[u8]), Fault> {
    let split = bytes.split_first_chunk().and_then(|(length, rest)| {
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        rest.split_at_checked(length)
    });
    match split {
        Some(split) => Ok(split),
        None => corrupt(format!(
            "a length beyond the {} bytes of a page",
            bytes.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_have_entries() {
        // 9 times entry 2, then entries 0 to 7 of 3 bits
        let body = [3, 18, 2, 3, 0x88, 0xC6, 0xFA];
        let entries: Vec<i64> = (0..8).map(|entry| entry * 10).collect();
        let read = |entries: &[i64], out: &mut [i64]| {
            let mut values = Values::new(Kind::Codes, PageEncoding::Dictionary, &body, entries)?;
            values.read(out)
        };
        let mut out = [0; 17];
        read(&entries, &mut out).unwrap();
        assert_eq!(out[..10], [[20; 9].as_slice(), &[0]].concat());
        assert_eq!(out[10..], [10, 20, 30, 40, 50, 60, 70]);
        let reason = "entry 7 of 7";
        assert_eq!(read(&entries[..7], &mut out), corrupt(reason));
        assert_eq!(read(&entries[..1], &mut out), corrupt("entry 2 of 1"));
        assert!(read(&entries, &mut [0; 18]).is_err());
    }

    #[test]
    fn kinds_have_their_encodings() {
        use PageEncoding::*;
        for (kind, encoding) in [(Kind::Bits, Dictionary), (Kind::Codes, Plain)] {
            assert!(!kind.reads(encoding));
            assert!(matches!(
                Values::new(kind, encoding, &[0], &[]),
                Err(Fault::Unsupported(_))
            ));
        }
        let mut out = [0; 3];
        let mut values = Values::new(Kind::Bits, Rle, &[2, 0, 0, 0, 6, 1], &[]).unwrap();
        values.read(&mut out).unwrap();
        assert_eq!(out, [1; 3]);
        assert!(Values::new(Kind::Bits, Rle, &[3, 0, 0, 0, 6, 1], &[]).is_err());
        assert!(Values::new(Kind::Codes, Dictionary, &[], &[]).is_err());
    }
}
