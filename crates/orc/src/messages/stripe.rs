//! The footer of a stripe: its streams, in file order, and the encodings of its columns.

use super::protobuf::Fields;
use crate::error::{Fault, corrupt, ensure};
use crate::kind::{Encoding, RleVersion, StreamKind};

/// The most streams and encodings in all stripes of a file: few compressed bytes may encode many.
pub(crate) const MAX_STRIPE_ENTRIES: usize = 1 << 24;

/// The most streams and encodings per column of a stripe: there are 13 kinds of streams, and one encoding.
const MAX_COLUMN_ENTRIES: usize = 16;

/// The most bytes of the name of a timezone.
const MAX_TIMEZONE_BYTES: usize = 256;

/// The content of a stripe.
#[derive(Debug, Default)]
pub(crate) struct StripeFooter {
    /// Kind, column and length of each stream.
    pub(crate) streams: Vec<(StreamKind, u32, u64)>,
    /// Encodings by column number.
    pub(crate) encodings: Vec<Encoding>,
    /// The writer's timezone, which timestamps depend on.
    pub(crate) timezone: Option<String>,
    pub(crate) is_encrypted: bool,
}

impl StripeFooter {
    /// Parses the footer of a stripe in a file of `columns` columns. Subtracts its streams and encodings from
    /// `entries`, the number still allowed.
    pub(crate) fn parse(bytes: &[u8], columns: usize, entries: &mut usize) -> Result<Self, Fault> {
        let mut message = Self::default();
        let mut of_stripe = columns.saturating_mul(MAX_COLUMN_ENTRIES);
        for field in Fields::of(bytes) {
            let (number, value) = field?;
            if let 1 | 2 = number {
                let Some(rest) = of_stripe.checked_sub(1) else {
                    return corrupt(format!(
                        "more than {MAX_COLUMN_ENTRIES} streams and encodings for each of {columns} columns"
                    ));
                };
                of_stripe = rest;
                let Some(rest) = entries.checked_sub(1) else {
                    return corrupt(format!(
                        "more than {MAX_STRIPE_ENTRIES} streams and encodings in all stripes"
                    ));
                };
                *entries = rest;
            }
            match number {
                1 => message.streams.push(stream(value.message()?)?),
                2 => message.encodings.push(encoding(value.message()?)?),
                3 => {
                    let name = value.text()?;
                    ensure(name.len() <= MAX_TIMEZONE_BYTES, || {
                        format!("a timezone of {} bytes", name.len())
                    })?;
                    message.timezone = Some(name.to_owned());
                }
                4 => message.is_encrypted = true,
                _ => (),
            }
        }
        Ok(message)
    }
}

fn stream(fields: Fields<'_>) -> Result<(StreamKind, u32, u64), Fault> {
    let (mut kind, mut column, mut length) = (0, 0, 0);
    for field in fields {
        let (number, value) = field?;
        match number {
            1 => kind = value.unsigned()?,
            2 => column = value.u32()?,
            3 => length = value.unsigned()?,
            _ => (),
        }
    }
    Ok((StreamKind::of_code(kind), column, length))
}

fn encoding(fields: Fields<'_>) -> Result<Encoding, Fault> {
    let (mut kind, mut entries) = (0, 0);
    for field in fields {
        let (number, value) = field?;
        match number {
            1 => kind = value.unsigned()?,
            2 => entries = value.u32()?,
            _ => (),
        }
    }
    let version = match kind {
        0 | 1 => RleVersion::V1,
        2 | 3 => RleVersion::V2,
        other => return corrupt(format!("encoding number {other} of a column")),
    };
    Ok(match kind & 1 {
        0 => Encoding::Direct { version },
        _ => Encoding::Dictionary { version, entries },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_bytes_have_few_entries() {
        // two empty streams and an empty encoding
        let bytes = [0x0a, 0, 0x0a, 0, 0x12, 0];
        let mut entries = 5;
        assert!(StripeFooter::parse(&bytes, 1, &mut entries).is_ok());
        assert_eq!(entries, 2);
        assert!(StripeFooter::parse(&bytes, 1, &mut entries).is_err());
        let streams = |count: usize| [0x0a_u8, 0].repeat(count);
        assert!(StripeFooter::parse(&streams(32), 2, &mut 100).is_ok());
        assert!(StripeFooter::parse(&streams(33), 2, &mut 100).is_err());
        let mut bytes = vec![0x1a, 0x81, 2];
        bytes.extend([b'U'; 257]);
        assert!(StripeFooter::parse(&bytes, 1, &mut 5).is_err());
    }
}
