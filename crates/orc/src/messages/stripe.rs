//! The footer of a stripe: its streams, in the order in which they lie, and the encodings of its columns.

use super::protobuf::Fields;
use crate::error::{Fault, corrupt};
use crate::kind::{Encoding, RleVersion, StreamKind};

/// What is in a stripe.
#[derive(Debug, Default)]
pub(crate) struct StripeFooter {
    /// Kind, column and length of each stream.
    pub(crate) streams: Vec<(StreamKind, u32, u64)>,
    /// By number of the column.
    pub(crate) encodings: Vec<Encoding>,
    /// Where the writer was, which timestamps depend on.
    pub(crate) timezone: Option<String>,
    pub(crate) is_encrypted: bool,
}

impl StripeFooter {
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        let mut message = Self::default();
        for field in Fields::of(bytes) {
            let (number, value) = field?;
            match number {
                1 => message.streams.push(stream(value.message()?)?),
                2 => message.encodings.push(encoding(value.message()?)?),
                3 => message.timezone = Some(value.text()?.to_owned()),
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
